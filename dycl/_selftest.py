"""The programs of the self-test (``_proof``): small ones, each of which depends on something else that dycl knows of
torch's inside. They run in eager and through dycl; values, dtypes, sizes, strides, versions, views, what became of the
arguments, and errors must agree."""

import json
import math
import pickle
import weakref

from dycl import _environment, _selftest_train

RUNS = 3  # a segment is seen new, as a plan of the first kind and as a tuned one


def main():
    """Prints what failed, behind a mark, for the process that waits."""
    from dycl import _proof

    print(f"{_proof._MARK}{json.dumps(failed())}", flush=True)


def failed():
    """"" where every program agrees, else the first that does not and how."""
    import torch

    import dycl
    from dycl import _api

    torch.set_num_threads(1)
    if not _api._setup():
        return str(_api._ready)
    for name, program in programs(torch).items():
        call = dycl.accelerate(program)
        for run in range(RUNS):
            want, got = _outcome(torch, program), _outcome(torch, call)
            if not _near(torch, want, got):
                return f"{name} (call {run + 1})"
        if dycl.stats(call)["calls"] != RUNS:
            return f"{name}: nothing is recorded"
    return _models(torch, dycl) or _training(torch, dycl)


# ---- What is compared


def _outcome(torch, program):
    torch.manual_seed(3)
    arguments = [torch.randn(4, 6), torch.rand(4, 6) + 0.5, torch.arange(24).reshape(4, 6)]
    with torch.no_grad():
        try:
            result = program(*arguments)
        except Exception as error:  # noqa: BLE001: it has to be eager's
            return "error", type(error), str(error), _seen(torch, arguments)
    return "result", _seen(torch, result), _seen(torch, arguments)


def _seen(torch, x):
    """What a program can see of a result, tensors last."""
    if isinstance(x, torch.Tensor):
        return (type(x), x.dtype, tuple(x.shape), x.stride(), x.storage_offset(), x._version, x._is_view(),
                x.requires_grad, x.is_leaf, x)
    if isinstance(x, (list, tuple)):
        return [_seen(torch, y) for y in x]
    return x


def _near(torch, want, got):
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        rough = want.dtype in (torch.bfloat16, torch.float16)
        return torch.allclose(want, got, rtol=1e-2 if rough else 1e-4, atol=1e-5, equal_nan=True)
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        return len(want) == len(got) and all(_near(torch, w, g) for w, g in zip(want, got))
    if isinstance(want, float) and isinstance(got, float):  # sums are taken in another order
        return math.isclose(want, got, rel_tol=1e-4, abs_tol=1e-5)
    return want == got


# ---- Programs of three arguments


def programs(torch):
    F = torch.nn.functional

    def views(x, y, n):
        t = (x + 1).t()
        u, v = t[1:4, ::2], t.reshape(2, 12)
        return (t, u, v, u.contiguous(), t.expand(2, 6, 4), (x * 2).unflatten(1, (2, 3)).permute(2, 0, 1),
                x.view(torch.int32))

    def writes(x, y, n):
        x.add_(1)
        z = x * 2
        z[0] = 5
        z[:, 1].mul_(3)
        z.masked_fill_(z > 4, 0.5)
        w = z.view(-1)
        w[3] = 7
        return z, w, x, z[0, 3].item()

    def outs(x, y, n):
        out = torch.empty(4, 6)
        torch.add(x, y, out=out)
        return out, torch.mul(out, 2, out=x) is x

    def dtypes(x, y, n):
        return (x.double(), x.int(), x > 0, (x > 0).float() + n, n / 2, n.half(), x.bfloat16(), n.to(torch.uint8),
                torch.result_type(x, n))

    def scalars(x, y, n):
        total = x.sum()
        if total.item() > 1e9 or bool(y.amin() < 0):
            return None
        text = f"{n.float().mean():.4f}"
        return float(total + 1), int(n.max()), (x - total).tolist()[0][:2], len(x), n[1, 2].item(), text

    def errors(x, y, n):
        try:
            x @ y
        except RuntimeError as error:
            text = str(error)
        return text, (x + 1).view(5, 5)

    def numbers(x, y, n):
        return (x * 2).numpy().sum().item(), torch.from_numpy((x + 1).numpy()) * 2

    def identities(x, y, n):
        a = x * 2
        b, c = a.detach(), a.contiguous()
        b[0, 0] = 9
        return a, b, c is a, a.data_ptr() == b.data_ptr(), a._base is None, a.view_as(a)._base is a, a.clone() is a

    def pooled(x, y, n):
        kept, gone = [], []
        for i in range(60):
            t = x + i
            gone.append(weakref.ref(t))
            if i % 7 == 0:
                kept.append(t)
                t.mark = i
        del t
        return kept, [t.mark for t in kept], sum(r() is None for r in gone)

    def generators(x, y, n):
        a = torch.rand(3)
        b = F.dropout(x, 0.5, True)
        return a, b, torch.randn_like(y), x.clone().normal_(), torch.randperm(5)

    def states(x, y, n):
        with torch.enable_grad():
            w = y.clone().requires_grad_()
            (w * 2).sum().backward()
        with torch.inference_mode():
            inner = y * 3
        with torch.autocast("cpu", dtype=torch.bfloat16):
            product = y @ y.t()
        return w.grad, inner.is_inference(), inner.sum().item(), product, (x * 2).requires_grad

    def copies(x, y, n):
        a = x * 2
        b = pickle.loads(pickle.dumps(a))
        c = torch.nn.Parameter(a)
        return b, type(c), c.detach() + 1, repr(a[:1, :2])

    found = {f.__name__: f for f in (views, writes, outs, dtypes, scalars, errors, numbers, identities, pooled,
                                     generators, states, copies)}
    found |= {
        "elementwise": lambda x, y, n: (x + y, x - 2, 3 / y, y**2.5, x.tanh().sigmoid(), F.gelu(x), F.silu(x),
                                        x.clamp(-1, 1), torch.where(x > 0, x, y)),
        "comparisons": lambda x, y, n: (x == y, x <= 1, n % 3 == 0, ~(n > 3), (x > 0) & (y > 1), torch.isnan(x / 0)),
        "integers": lambda x, y, n: (n // 7, n % 5, n << 1, n.sum(), -n, n * 2.5, n.cumsum(1)),
        "reductions": lambda x, y, n: (x.sum(), x.mean(1), x.amax(0), x.argmax(1), x.std(1), x.norm(), y.prod(1),
                                       (x > 0).any(0), x.max(1)),
        "rows": lambda x, y, n: (x.softmax(-1), x.log_softmax(0), F.layer_norm(x, (6,), y[0], y[1]), x.cumsum(1),
                                 F.normalize(x)),
        "products": lambda x, y, n: (x @ y.t(), F.linear(x, y, y[:, 0]),
                                     torch.baddbmm(y[:, :, None], x[:, :, None], y[:, None, :1]), x.mv(y[0])),
        "convolution": lambda x, y, n: (F.conv2d(x.view(1, 2, 3, 4), y.view(4, 2, 3, 1)),
                                        F.max_pool2d(x.view(1, 1, 4, 6), 2)),
        "attention": lambda x, y, n: F.scaled_dot_product_attention(x.view(1, 2, 2, 6), y.view(1, 2, 2, 6),
                                                                    x.view(1, 2, 2, 6)),
        "movement": lambda x, y, n: (torch.cat([x, y]), torch.stack([x, y], 1), x.flip(0), x.roll(1, 1),
                                     F.pad(x, (1, 2)), x.repeat(2, 1), x.chunk(3, 1)),
        "indices": lambda x, y, n: (x[n[0] % 4], x.gather(1, n % 6), x.index_select(0, n[0] % 4), F.embedding(n % 4, y),
                                    x[x > 0], x.take(n)),
        "orders": lambda x, y, n: (x.sort(1), x.topk(2), x.argsort(0), torch.unique(n % 5), x.median(1),
                                   torch.searchsorted(y.sort().values, x)),
        "scatters": lambda x, y, n: (x.scatter(1, n % 6, y), x.index_add(0, n[0, :4], y),
                                     x.index_put((n[0, :2],), y[:2]), x.scatter_reduce(0, n % 4, y, "sum")),
        "creation": lambda x, y, n: (torch.zeros(3, 2), x.new_ones(2), torch.full((2,), 1.5), torch.arange(5) * 2,
                                     torch.linspace(0, 1, 4) + 1, torch.eye(3)),
        "others": lambda x, y, n: (torch.special.i1e(x), torch.cdist(x, y), torch.logsumexp(x, 1),
                                   torch.linalg.inv(x[:, :4]), torch.einsum("ij,kj->ik", x, y)),
    }
    return found


# ---- Modules


def _models(torch, dycl):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Dropout(0.5))
            self.cell, self.seen = nn.LSTMCell(8, 5), []

        def forward(self, x):
            h = self.body(x)
            for _ in range(2):
                state = self.cell(h)
            return {"state": state, "h": h}

    torch.manual_seed(1)
    net = Net()
    net.body[1].register_forward_hook(lambda module, args, out: net.seen.append(out.sum().item()))
    for train in (False, True):
        net.train(train)
        outcomes = []
        for accelerated in (False, True):
            if accelerated:
                dycl.accelerate(net)
            for _ in range(RUNS):
                torch.manual_seed(2)
                net.seen.clear()
                with torch.no_grad():
                    out = net(torch.ones(3, 6))
                outcomes.append([_seen(torch, [out["h"], *out["state"]]), list(net.seen)])
        torch.manual_seed(2)
        loss = net(torch.ones(3, 6))["h"].sum()
        loss.backward()
        if net.body[0].weight.grad is None or not all(_near(torch, outcomes[0], other) for other in outcomes[1:]):
            return f"a module {'in training' if train else 'with a hook'}"
    return ""


def _training(torch, dycl):
    """Which program of those that train does not agree."""
    for name, program in _selftest_train.programs(torch).items():
        made, seen = [], []

        def accelerated(target, made=made):
            made.append(dycl.accelerate(target))
            return made[-1]

        for wrap in (lambda x: x, accelerated):
            torch.manual_seed(4)
            try:
                seen.append(_numbers(torch, program(wrap)))
            except Exception as error:  # noqa: BLE001: it has to be named
                return f"training: {name}: {str(error):.100}"
        if not _near(torch, *seen):
            return f"training: {name}"
        if _environment.trains() and not any(dycl.stats(call)["recorded"] for call in made):
            return f"training: {name}: nothing is recorded"
    return ""


def _numbers(torch, seen):
    """Losses have to be near each other, too."""
    if isinstance(seen, (list, tuple)):
        return [_numbers(torch, x) for x in seen]
    return torch.tensor(seen) if isinstance(seen, float) else seen
