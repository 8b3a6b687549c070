"""The programs of the self-test (``_proof``) that train: what users of autograd see, in eager and through dycl. Each
gets what accelerates (or nothing) and answers what it saw."""

RUNS = 4  # a segment is seen new, as a plan of the first kind and as a tuned one, with what the steps before left


def programs(torch):
    nn, F = torch.nn, torch.nn.functional

    def data(*sizes):
        return torch.randn(*sizes, requires_grad=True)

    def raised(call):
        try:
            call()
        except RuntimeError as error:
            return str(error)
        return None

    def slopes(*tensors):
        return [None if t.grad is None else t.grad.clone() for t in tensors]

    def steps(wrap):
        """Hooks, names, gradients of gradients, a graph that was freed, statistics, an optimizer that nobody gave."""

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm, self.last = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)

            def forward(self, x):
                h = torch.tanh(self.norm(self.first(x)))
                return self.last(h) * 0.5, h

        net, seen = Net(), []
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        net.first.weight.register_hook(lambda g: seen.append(g.clone()))
        call = wrap(net)
        for _ in range(RUNS):
            x = data(5, 6)
            out, h = call(x)
            h.register_hook(lambda g: seen.append(g.clone()))
            slope, = torch.autograd.grad(out.sum(), x, create_graph=True)
            loss = out.square().mean() + slope.square().mean()
            loss.backward()
            seen += [raised(out.sum().backward), type(out.grad_fn).__name__, loss.detach(),
                     *slopes(x, *net.parameters()), net.norm.running_mean.clone()]
            optimizer.step()
            optimizer.zero_grad()
        return [*seen, *(p.detach() for p in net.parameters())]

    def points(wrap):
        """Gradients where there is none are torch's choice, which was not the same in every version."""

        def call(x, y):
            bounded = x.clamp(0, 1) + torch.clamp_min(x, y) + torch.clamp_max(x, y) + torch.clamp(x, y, y.abs())
            larger = torch.fmax(x, y) + torch.fmin(x, y) + torch.maximum(x, y) + torch.minimum(x, y)
            steps = F.relu(x) + F.relu6(x) + F.hardtanh(x) + F.leaky_relu(x) + F.hardswish(x) + x.abs() + F.elu(x)
            losses = [loss(x, y, reduction="none") for loss in (F.l1_loss, F.smooth_l1_loss, F.huber_loss)]
            return bounded + 2 * larger + 4 * steps + sum(losses) + F.hinge_embedding_loss(x, y, reduction="none")

        seen, run = [], wrap(call)
        for _ in range(RUNS):
            x, y = ((2 * torch.randn(60)).round().requires_grad_() for _ in range(2))
            run(x, y).sum().backward()
            seen += slopes(x, y)
        return seen

    def names(wrap):
        def call(x, w):
            h = F.linear(x, w)
            return [h, h.relu(), F.gelu(h), h.sum(), h.mean(1), h[1:], h.t(), h.view(-1), h.reshape(3, 4), h.max(1)[0],
                    h.softmax(-1), F.layer_norm(h, (3,)), torch.cat([h, h]), h.chunk(3, 1)[1], h.permute(1, 0), h + 1,
                    F.cross_entropy(h, torch.tensor([0, 2, 1, 1])), F.mse_loss(h, h * 2), h @ h.t(), h.exp(),
                    h.detach(), h.unsqueeze(0), h.pow(2), torch.stack([h, h]), h.clamp(0, 1),
                    torch.where(h > 0, h, x[:, :3])]

        run, seen = wrap(call), []
        for _ in range(RUNS):
            for out in run(data(4, 6), data(3, 6)):
                node = out.grad_fn
                seen.append((node and type(node).__name__, out.output_nr, out.requires_grad, out._is_view(),
                             out._version, out.stride(), repr(out).partition("grad_fn=")[2]))
        return seen

    def writes(wrap):
        """What an in-place write after the call makes of the backward pass."""
        def call(x, w):
            h = torch.tanh(x @ w)
            return h, h * w.sum(), h.sigmoid()

        run, seen = wrap(call), []
        for written in range(4):
            for asked in range(3):
                x, w = data(4, 6), data(6, 3)
                out = run(x, w)
                with torch.no_grad():
                    (w if written == 3 else out[written]).mul_(2)
                seen.append(raised(out[asked].sum().backward))
        x = data(3)
        return [*seen, raised(lambda: wrap(lambda: x.add_(1))()), raised(lambda: wrap(lambda: x[:2].zero_())())]

    def in_place(wrap):
        def call(x, w):
            h = F.relu_(x @ w)
            g = x @ w
            g += 1
            g[0] = 2
            y = (x * 3).mul_(2)
            y[:, 1] *= w[0, 0]
            with torch.no_grad():
                z = h * 2
            return h * g, y.view(-1), z, h.detach()

        run, seen = wrap(call), []
        for _ in range(RUNS):
            x, w = data(4, 6), data(6, 3)
            h, y, z, d = run(x, w)
            (h.sum() + y.square().sum()).backward()
            seen += [h._version, y._version, z.requires_grad, d, *slopes(x, w)]
        return seen

    def images(wrap):
        net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                            nn.Conv2d(4, 4, 3, groups=2), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                            nn.Dropout(0.3), nn.Linear(4, 3))
        return learns(net, wrap, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01),
                      lambda: torch.randn(3, 2, 8, 8), lambda out: F.cross_entropy(out, torch.tensor([0, 2, 1])))

    def texts(wrap):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.norm = nn.Embedding(9, 8, padding_idx=0), nn.LayerNorm(8)
                self.mixed = nn.Linear(8, 24, bias=False)  # keys' bias has no gradient but rounding

            def forward(self, n):
                h = self.words(n)
                q, k, v = self.mixed(h).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 5, 8)
                return F.log_softmax(self.norm(h + a) @ self.words.weight.t(), -1)

        net = Net()
        return learns(net, wrap, torch.optim.Adam(net.parameters(), lr=0.01, foreach=False),
                      lambda: torch.randint(9, (2, 5)), lambda out: F.nll_loss(out.flatten(0, 1), torch.arange(10) % 9))

    def learns(net, wrap, optimizer, draw, measure):
        """The order in which parameters get their gradients, too."""
        seen, call = [], wrap(net)
        for name, p in net.named_parameters():
            p.register_post_accumulate_grad_hook(lambda p, name=name: seen.append(name))
        for i in range(RUNS):
            loss = measure(call(draw()))
            loss.backward()
            if i % 2:
                seen += [loss.item(), nn.utils.clip_grad_norm_(net.parameters(), 0.5)]
                optimizer.step()
                optimizer.zero_grad(set_to_none=i > 2)
        return [*seen, *slopes(*net.parameters()), *(t.clone() for t in net.state_dict().values()),
                *(t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor))]

    def graphs(wrap):
        """Graphs that are kept, asked for parts, looked at on the way, differentiated again; and none."""
        def call(x, w, b):
            h = F.softplus(x @ w + b)
            return h, F.layer_norm(h, (3,), b) * h.detach(), h.std(0)

        run, seen = wrap(call), []
        for _ in range(RUNS):
            x, w, b = data(4, 6), data(6, 3), data(3)
            h, out, spread = run(x, w, b)
            h.retain_grad()
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
                packed = run(x, w, b)[1]
            out.sum().backward(retain_graph=True, inputs=[h, b])
            first = torch.autograd.grad(out.square().sum(), (x, w), create_graph=True)
            second = torch.autograd.grad(sum(f.square().sum() for f in first), (x, b), retain_graph=True)
            seen += [*slopes(x, w, b, h), *(f.detach() for f in first), *second, packed.detach(),
                     torch.autograd.grad(spread.sum(), (x, out), allow_unused=True, retain_graph=True),
                     torch.autograd.grad(h, b, torch.ones_like(h), retain_graph=True),
                     torch.autograd.grad(packed.sum(), x), raised(lambda: torch.autograd.grad(h.detach().sum(), x)),
                     torch.autograd.grad(h, w, torch.eye(12).view(12, 4, 3), is_grads_batched=True)]
        return [[t.detach() if isinstance(t, torch.Tensor) else t for t in s] if isinstance(s, tuple) else s
                for s in seen]

    def whole_steps(wrap):
        """Optimizer and backward pass within the call."""
        seen = []
        for make in (lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
                     lambda p: torch.optim.RMSprop(p, lr=0.01)):
            w, b = data(6, 3), data(3)
            optimizer = make([w, b])

            def step(x):
                optimizer.zero_grad()
                loss = F.smooth_l1_loss(x @ w + b, torch.ones(4, 3))
                loss.backward()
                optimizer.step()
                return loss.item()

            run = wrap(step)
            seen += [run(torch.randn(4, 6)) for _ in range(RUNS)]
            seen += [w.detach(), b.detach(), w._version, *slopes(w, b)]
        return seen

    return {f.__name__: f for f in (steps, names, points, writes, in_place, images, texts, graphs, whole_steps)}
