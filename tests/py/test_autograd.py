"""What users of autograd do: whole training programs in eager and through dycl. A program gets
`wrap` (nothing, or dycl.accelerate) and answers what it saw; losses, gradients and notes must be equal."""

import contextlib
import copy
import io
import itertools
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_flatten

import dycl
from suite import one_thread  # noqa: F401 (a fixture)
from test_gradients import agree

dycl.accelerate(lambda: None)  # finds torch


def mlp(*sizes, act=nn.Tanh):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def grads(*modules):
    return [None if p.grad is None else p.grad.clone() for m in modules for p in m.parameters()]


def batches(n=4, rows=6, size=5, dtype=torch.float32):
    for _ in range(n):
        yield torch.randn(rows, size, dtype=dtype), torch.randn(rows, 3, dtype=dtype)


PROGRAMS = []


def program(function):
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


@pytest.mark.parametrize("function", PROGRAMS)
def test_programs(function):
    seen = []
    for wrap in (lambda x: x, dycl.accelerate):
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seen.append(tree_flatten(function(wrap))[0])
    assert len(seen[0]) == len(seen[1])
    for i, (a, b) in enumerate(zip(*seen)):
        if isinstance(a, torch.Tensor):
            assert agree(a.detach(), b.detach()), f"{i}: {a} and {b}"
            assert a.requires_grad == b.requires_grad and a.is_leaf == b.is_leaf, i
        else:
            assert a == b, f"{i}: {a} and {b}"


def test_regions_record_what_needs_gradients():
    """Else all of this would test nothing."""
    model = dycl.accelerate(mlp(5, 8, 3))
    before = dycl.stats(model)["recorded"]
    model(torch.randn(6, 5)).sum().backward()
    assert dycl.stats(model)["recorded"] >= before + 3
    assert type(model(torch.randn(6, 5)).grad_fn).__name__ == "AddmmBackward0"
    assert isinstance(model(torch.randn(6, 5)).grad_fn, torch.autograd.function.BackwardCFunction)


@pytest.mark.parametrize("dims", [1, 2])
def test_convolutional_networks_are_one_segment(dims):
    def kind(name):
        return getattr(nn, f"{name}{dims}d")

    plain = nn.Sequential(
        kind("Conv")(3, 8, 3, padding=1), nn.ReLU(), kind("MaxPool")(2),
        kind("Conv")(8, 16, 3, groups=2, stride=2, bias=False), nn.GELU(), kind("AvgPool")(2, padding=1),
        kind("ConvTranspose")(16, 4, 3, 2), kind("AdaptiveAvgPool")(2), nn.Flatten(), nn.Linear(4 * 2 ** dims, 5))
    fast = dycl.accelerate(copy.deepcopy(plain))
    for _ in range(4):
        x = torch.randn(4, 3, *[32] * dims)
        for model in (plain, fast):
            model.zero_grad()
            model(x).square().mean().backward()
        for want, got in zip(grads(plain), grads(fast)):
            assert agree(want, got) and want.stride() == got.stride()
    stats = dycl.stats(fast)
    assert stats["torch"] == 0 and stats["segments"] == stats["calls"] == 4, dycl.explain(fast)


@program
def plain_training(wrap):
    model = mlp(5, 8, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run, seen = wrap(model), []
    for x, y in batches(6):
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        optimizer.step()
        seen += [loss.detach(), grads(model)]
    return seen


@program
def a_whole_step(wrap):
    model = mlp(5, 8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    run = wrap(step)
    return [[torch.tensor(run(x, y)), grads(model)] for x, y in batches(6)]


@pytest.mark.parametrize("learns", ["input", "others", "all"])
@pytest.mark.parametrize("name, sizes", [("addmm", ((3, 4), (3, 5), (5, 4))), ("addmv", ((3,), (3, 5), (5,))),
                                         ("baddbmm", ((2, 3, 4), (2, 3, 5), (2, 5, 4)))])
def test_operands_that_are_left_out_keep_their_history(name, sizes, learns):
    """beta=0: the input counts for nothing, and has a gradient of zeros all the same, which weight decay adds to."""
    seen = []
    for wrap in (lambda x: x, dycl.accelerate):
        call = wrap(lambda x, a, b: getattr(torch, name)(x * 1.5, a, b, beta=0) + 1)
        for _ in range(3):
            torch.manual_seed(0)
            leaves = [torch.randn(s, requires_grad=learns != "others" if i == 0 else learns != "input")
                      for i, s in enumerate(sizes)]
            with torch.no_grad():
                leaves[0][0] = float("nan")
            out = call(*leaves)
            out.sum().backward()
            seen.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for other in seen[1:]:
        assert all((w is None) == (g is None) and (w is None or agree(w, g)) for w, g in zip(seen[0], other))
    assert seen[0][1] is None or not seen[0][1].any()


@program
def accumulation(wrap):
    model = mlp(5, 8, 3)
    run = wrap(model)
    for x, y in batches():
        (F.mse_loss(run(x), y) / 4).backward()
    return grads(model)


@program
def retained_graph(wrap):
    model = mlp(5, 8, 3)
    run, seen = wrap(model), []
    for x, y in batches():
        loss = F.mse_loss(run(x), y)
        loss.backward(retain_graph=True)
        loss.backward()
        seen += [grads(model)]
        try:
            loss.backward()
        except RuntimeError as error:
            seen.append(str(error)[:60])
    return seen


@program
def grad_of_inputs(wrap):
    model = mlp(5, 8, 3)
    run, seen = wrap(model), []
    for x, _ in batches():
        x.requires_grad_()
        unused = torch.ones(2, requires_grad=True)
        out = run(x)
        seen += torch.autograd.grad(out.sum(), [x, unused, model[0].weight], allow_unused=True)
        try:
            torch.autograd.grad(run(x).sum(), [unused])
        except RuntimeError as error:
            seen.append(str(error)[:60])
    return seen


@program
def results_that_nobody_uses(wrap):
    """Parameters of an unused head get no gradient, not zeros."""
    trunk, heads = mlp(5, 8), nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 3)])
    both = nn.ModuleList([trunk, heads])

    def forward(x):
        h = torch.tanh(trunk(x))
        return heads[0](h), heads[1](h)

    run, seen = wrap(forward), []
    for i, (x, y) in enumerate(batches()):
        both.zero_grad()
        out = run(x)
        F.mse_loss(out[i % 2], y).backward()
        seen.append(grads(both))
    return seen


@program
def partial_freezing(wrap):
    model = mlp(5, 8, 8, 3)
    run, seen = wrap(model), []
    for i, (x, y) in enumerate(batches(6)):
        model[2].requires_grad_(i % 2 == 0)
        model.zero_grad()
        F.mse_loss(run(x), y).backward()
        seen.append(grads(model))
    return seen


@program
def frozen_backbone(wrap):
    backbone, head = mlp(5, 8, 8), nn.Linear(8, 3)

    def forward(x):
        with torch.no_grad():
            h = backbone(x).relu()
        return head(h), h.requires_grad, h.is_leaf

    run, seen = wrap(forward), []
    for x, y in batches():
        out, *rest = run(x)
        F.mse_loss(out, y).backward()
        seen += [grads(backbone, head), rest]
    return seen


@program
def gradients_inside_no_grad(wrap):
    model = mlp(5, 8, 3)

    def forward(x):
        with torch.no_grad():
            a = model(x)
            with torch.enable_grad():
                b = model(x)
            c = b * 2
        return a.requires_grad, b.requires_grad, c.requires_grad, b + c

    run, seen = wrap(forward), []
    for x, _ in batches():
        *rest, out = run(x)
        out.sum().backward()
        seen += [rest, grads(model)]
    return seen


@program
def views_made_without_gradients(wrap):
    """They require gradients where what they are views of does, as leaves of their own."""

    def run(x):
        with torch.no_grad():
            views = [x[:1], x.view(-1), x.t()[0], x.expand(3, 2, 2), x.reshape(4), x.unbind(0)[0], x.contiguous()]
            others = [(x * 2)[:1], x.detach()[:1], x.detach()]
        value = (views[0] * 3).sum() + (others[0] * x).sum()
        value.backward()
        return [(v.requires_grad, v.is_leaf, v.grad_fn is None) for v in views + others], value

    seen, run = [], wrap(run)
    for _ in range(3):
        for x in (torch.ones(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True) * 1):
            if not x.is_leaf:
                x.retain_grad()
            seen += [run(x), x.grad]
    return seen


@program
def detached_in_the_middle(wrap):
    model = mlp(5, 8, 3)

    def forward(x):
        h = model[0](x)
        d = h.detach()
        return model[2](torch.tanh(h)) + (d.mean() * 2), d.requires_grad, d

    run, seen = wrap(forward), []
    for x, _ in batches():
        out, *rest = run(x)
        out.sum().backward()
        seen += [rest, grads(model)]
    return seen


@program
def tensor_hooks(wrap):
    model, caught = mlp(5, 8, 3), []

    def forward(x):
        h = model[0](x)
        h.register_hook(lambda g: caught.append(g.clone()))
        k = torch.tanh(h) * 2
        k.register_hook(lambda g: g * 0.5)
        return model[2](k)

    run = wrap(forward)
    for x, y in batches():
        F.mse_loss(run(x), y).backward()
    return grads(model), caught


@program
def hooks_on_what_was_returned(wrap):
    """An intermediate result that the caller hooks, or asks the gradient of, lies between two nodes."""
    model = mlp(5, 8, 3)

    def forward(x):
        h = model[0](x)
        k = torch.tanh(h)
        return h, k, model[2](k)

    run, seen = wrap(forward), []
    for x, y in batches():
        h, k, out = run(x)
        h.retain_grad()
        k.register_hook(lambda g: seen.append(g.clone()))
        loss = F.mse_loss(out, y)
        seen += torch.autograd.grad(loss, [k, h], retain_graph=True)
        (loss + k.sum()).backward()
        seen += [h.grad, grads(model)]
    return seen


@program
def module_hooks(wrap):
    model, caught = mlp(5, 8, 3), []
    model[0].register_full_backward_hook(lambda m, i, o: caught.append([t is None for t in i] + [o[0].clone()]))
    model[2].register_full_backward_pre_hook(lambda m, o: (o[0] * 2,))
    model[1].register_forward_hook(lambda m, i, o: o * 1.5)
    run = wrap(model)
    for x, y in batches():
        F.mse_loss(run(x), y).backward()
    return grads(model), caught


@program
def optimizer_in_backward(wrap):
    model = mlp(5, 8, 3)
    for p in model.parameters():
        one = torch.optim.SGD([p], lr=0.1)
        p.register_post_accumulate_grad_hook(lambda q, one=one: (one.step(), one.zero_grad())[:0] or None)
    run, seen = wrap(model), []
    for x, y in batches():
        loss = F.mse_loss(run(x), y)
        loss.backward()
        seen += [loss.detach(), [p.detach().clone() for p in model.parameters()]]
    return seen


@program
def anomaly_mode(wrap):
    model = mlp(5, 8, 3)
    run, seen = wrap(lambda x: model(x).sqrt()), []
    for x, _ in batches():
        with torch.autograd.detect_anomaly(check_nan=True):
            try:
                run(x * 0 - 1).sum().backward()
            except RuntimeError as error:
                seen.append(str(error))
    return seen


@program
def anomaly_mode_within(wrap):
    """Which function answers NaN, also where what follows makes zeros of it."""
    model, seen = mlp(5, 8, 3), []

    def step(x):
        with torch.autograd.detect_anomaly(check_nan=True):
            h = model(x)
            ((h.sign() + h.detach()) * 0 - 1).sqrt().sum().backward()

    run = wrap(step)
    for x, _ in batches():
        try:
            run(x)
        except RuntimeError as error:
            seen.append(str(error))
    return seen


@program
def in_place_activations(wrap):
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.LeakyReLU(0.1, inplace=True),
                          nn.Linear(8, 3))
    run = wrap(model)
    for x, y in batches():
        F.mse_loss(run(x), y).backward()
    return grads(model)


@program
def written_before_backward(wrap):
    """What was saved and then written is an error; what was not saved is none."""
    model, seen = mlp(5, 8, 3), []
    for what in (lambda m: m[0].weight, lambda m: m[2].weight, lambda m: m[2].bias):
        run = wrap(lambda x: model(x))
        for x, y in batches(2):
            loss = F.mse_loss(run(x), y)
            with torch.no_grad():
                what(model).mul_(1.5)
            try:
                loss.backward()
                seen.append(grads(model))
            except RuntimeError as error:
                seen.append(str(error)[:80])
    return seen


@program
def parametrizations(wrap):
    from torch.nn.utils import parametrizations as p

    model = nn.Sequential(p.weight_norm(nn.Linear(5, 8)), nn.Tanh(), p.spectral_norm(nn.Linear(8, 8)), nn.Tanh(),
                          p.orthogonal(nn.Linear(8, 3)))
    run = wrap(model)
    for x, y in batches():
        F.mse_loss(run(x), y).backward()
    return grads(model)


@program
def pruning(wrap):
    from torch.nn.utils import prune

    model = mlp(5, 8, 3)
    prune.l1_unstructured(model[0], "weight", 0.5)
    run = wrap(model)
    for x, y in batches():
        F.mse_loss(run(x), y).backward()
    return grads(model)


@program
def checkpoints(wrap):
    from torch.utils.checkpoint import checkpoint

    model, seen = nn.ModuleList([mlp(5, 8, 5) for _ in range(3)]), []
    for reentrant in (False, True):
        def forward(x, reentrant=reentrant):
            for part in model:
                x = checkpoint(part, x, use_reentrant=reentrant) * 1.5
            return x

        run = wrap(forward)
        for x, _ in batches():
            x.requires_grad_()
            run(x).square().sum().backward()
            seen += [x.grad, grads(model)]
    return seen


@program
def saved_tensor_hooks(wrap):
    model, counted = mlp(5, 8, 3), []
    run = wrap(model)
    for x, y in batches():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (counted.append(t.shape), t * 1)[1], lambda t: t):
            F.mse_loss(run(x), y).backward()
    return grads(model), counted


@program
def double_precision(wrap):
    model = mlp(5, 8, 3).double()
    run = wrap(model)
    for x, y in batches(dtype=torch.float64):
        F.mse_loss(run(x), y).backward()
    return grads(model)


@program
def sparse_embeddings(wrap):
    table, head = nn.Embedding(10, 5, sparse=True), nn.Linear(5, 3)
    run = wrap(lambda i: head(table(i)))
    for _ in range(3):
        run(torch.randint(10, (6,))).square().sum().backward()
    return table.weight.grad.is_sparse, table.weight.grad.to_dense(), grads(head)


@program
def batch_norm(wrap):
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    run, seen = wrap(model), []
    for i, (x, y) in enumerate(batches(6)):
        model.train(i % 3 != 2)
        F.mse_loss(run(x), y).backward()
        seen += [[b.clone() for b in model.buffers()], grads(model)]
    return seen


@program
def dropout(wrap):
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Linear(8, 8), nn.Dropout1d(0.3), nn.Linear(8, 3))
    run, seen = wrap(model), []
    for x, y in batches(6):
        loss = F.mse_loss(run(x), y)
        loss.backward()
        seen += [loss.detach(), grads(model), torch.rand(2)]
    return seen


@program
def saved_and_loaded(wrap):
    model = mlp(5, 8, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    run, seen = wrap(model), []
    for i, (x, y) in enumerate(batches(6)):
        if i == 3:
            file = io.BytesIO()
            torch.save([model.state_dict(), optimizer.state_dict()], file)
            file.seek(0)
            a, b = torch.load(file)
            model.load_state_dict(a)
            optimizer.load_state_dict(b)
        if i == 4:
            other = copy.deepcopy(run)
            other(x).sum().backward()
            seen.append(grads(other))
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        optimizer.step()
        seen.append(loss.detach())
    return seen


@program
def gradient_penalty(wrap):
    model = mlp(5, 8, 3)
    run, seen = wrap(model), []
    for x, y in batches():
        x.requires_grad_()
        out = run(x)
        first, = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = F.mse_loss(out, y) + (first.norm(dim=1) - 1).square().mean()
        loss.backward()
        seen += [loss.detach(), x.grad, grads(model)]
    return seen


@program
def third_order(wrap):
    run, seen = wrap(lambda x: torch.tanh(x * x).sum() + (x ** 3).mean()), []
    for x, _ in batches():
        x = x.double().requires_grad_()
        g = run(x)
        for _ in range(3):
            g, = torch.autograd.grad(g.sum(), x, create_graph=True)
            seen.append(g)
    return [s.detach() for s in seen]


@program
def meta_learning(wrap):
    model = mlp(5, 8, 3)

    def inner(x, y, weights):
        h = torch.tanh(F.linear(x, weights[0], weights[1]))
        return F.mse_loss(F.linear(h, weights[2], weights[3]), y)

    run, seen = wrap(inner), []
    for x, y in batches():
        weights = list(model.parameters())
        steps = torch.autograd.grad(run(x, y, weights), weights, create_graph=True)
        run(x, y, [w - 0.1 * s for w, s in zip(weights, steps)]).backward()
        seen.append(grads(model))
    return seen


@program
def lbfgs(wrap):
    model = mlp(5, 8, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    run, seen = wrap(model), []
    x, y = next(batches())

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        seen.append(optimizer.step(closure).detach())
    return seen


@program
def functional_transforms(wrap):
    model = mlp(5, 8, 3)
    run, seen = wrap(model), []
    parameters = {k: p.detach() for k, p in model.named_parameters()}
    for x, y in batches():
        def loss(p, x=x, y=y):
            return F.mse_loss(torch.func.functional_call(run, p, (x,)), y)

        seen += list(torch.func.grad(loss)(parameters).values())
        seen.append(torch.func.vmap(run)(x))
        seen += torch.autograd.functional.jacobian(run, x)
    return [s.detach() for s in seen]


@program
def computed_inside_a_transform(wrap):
    model = mlp(5, 8, 3)

    def forward(x):
        h = model(x)
        g = torch.func.grad(lambda t: (t * h.sum().detach().item()).sum())(x.detach())
        k = model(x)
        with torch.no_grad():
            j = torch.func.grad(lambda t: t.square().sum())(x.detach())
        return h + k + g.mean() + j.mean()

    run = wrap(forward)
    for x, y in batches():
        F.mse_loss(run(x), y).backward()
    return grads(model)


@program
def recurrent_loop(wrap):
    cell, head = nn.LSTMCell(5, 8), nn.Linear(8, 3)

    def forward(xs):
        h = c = torch.zeros(xs.shape[1], 8)
        kept = []
        for x in xs:
            h, c = cell(x, (h, c))
            if h.sum() > 0:  # data decides
                kept.append(h)
        return head(h), kept

    run, seen = wrap(forward), []
    for _ in range(4):
        out, kept = run(torch.randn(6, 4, 5))
        (out.square().sum() + sum(k.sum() for k in kept)).backward()
        seen += [out.detach(), grads(cell, head)]
    return seen


@program
def recurrent_without_looking(wrap):
    """torch counts writes in what the cell answers, which is saved."""
    cell, head = nn.LSTMCell(5, 8), nn.Linear(8, 3)

    def forward(xs):
        h = c = torch.zeros(xs.shape[1], 8)
        for x in xs:
            h, c = cell(x, (h, c))
        return head(h), c

    run, seen = wrap(forward), []
    for _ in range(4):
        out, c = run(torch.randn(6, 4, 5))
        (out.square().sum() + c.sum()).backward()
        seen += [out.detach(), c._version, grads(cell, head)]
    return seen


@program
def own_function(wrap):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2 + ctx.saved_tensors[0] * 0

    model = mlp(5, 8, 3)
    run = wrap(lambda x: model[2](torch.tanh(Double.apply(model[0](x) * 1.5) + 1)))
    for x, y in batches():
        F.mse_loss(run(x), y).backward()
    return grads(model)


@program
def views_and_slices(wrap):
    weight = nn.Parameter(torch.randn(12, 5))

    def forward(x):
        a, b, c = (x @ weight.t()).chunk(3, 1)
        d = torch.stack([a * b, c], 1).permute(0, 2, 1).reshape(len(x), -1)
        return d[:, ::2].sum(1) + d[:, 1:3].mean(1) + d.unsqueeze(0).expand(2, -1, -1).sum((0, 2)) + weight[3, 2]

    run = wrap(forward)
    for x, _ in batches():
        run(x).square().sum().backward()
    return weight.grad


@program
def empty_parts(wrap):
    """A concatenation takes no elements of a tensor of size (0,), and its history all the same."""
    seen = []
    for join in (torch.cat, torch.hstack):
        for others_learn in (False, True):
            empty = torch.zeros(0, requires_grad=True)
            x = torch.randn(2, 3, requires_grad=others_learn)
            shape = (6,) if join is torch.hstack else (2, 3)
            joined = wrap(lambda x, join=join, shape=shape: join([empty * 1, (x * 2).view(shape)]))(x)  # noqa: B023
            joined.sum().backward()
            seen += [joined.detach(), joined.requires_grad, empty.grad, x.grad]
    return seen


@program
def written_parts(wrap):
    """In-place operators on what has a history, and of what has one into what has none."""
    model = mlp(5, 8, 3)

    def forward(x):
        h = model[0](x)
        buffer = torch.zeros(len(x), 8)
        buffer[:, 2:6] = h[:, :4]
        buffer.add_(h * 0.5)
        k = h * 2
        k[0] = 1
        k += buffer
        return model[2](k), buffer.requires_grad, k._version

    run, seen = wrap(forward), []
    for x, y in batches():
        out, *rest = run(x)
        F.mse_loss(out, y).backward()
        seen += [rest, grads(model)]
    return seen


@program
def attributes(wrap):
    model = mlp(5, 8, 3)

    def forward(x):
        h = model[0](x)
        k = (h > 0).float()
        return (h.requires_grad, h.is_leaf, h.grad_fn is None, k.requires_grad, k.is_leaf, k.grad_fn is None,
                (h * k).requires_grad, h.argmax().requires_grad, x.requires_grad, h.T.requires_grad)

    run = wrap(forward)
    return [run(x) for x, _ in batches()]


@program
def threads(wrap):
    import threading

    seen = [None] * 3

    def work(i):
        generator = torch.Generator().manual_seed(i)
        model = mlp(5, 8, 3)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=generator))
        run = wrap(model)
        for _ in range(5):
            run(torch.randn(6, 5, generator=generator)).square().sum().backward()
        seen[i] = grads(model)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return seen


@program
def losses_of_one_region_go_back_apart(wrap):
    """They share nothing that a backward pass frees."""
    a, b = mlp(5, 8, 3), mlp(5, 8, 3)
    run, seen = wrap(lambda x: (a(x).square().sum(), b(x).square().sum(), x * a[0].weight[0], x + b[0].bias[:5])), []
    for x, _ in batches():
        first, second, third, fourth = run(x)
        second.backward()
        first.backward()
        fourth.sum().backward()
        fourth.sum().backward()
        seen += [grads(a, b)]
        try:
            first.backward()
        except RuntimeError as error:
            seen.append(str(error)[:60])
        third.sum().backward()
    return seen, grads(a, b)


@program
def order_of_leaves(wrap):
    model, seen = nn.Sequential(*[m for _ in range(3) for m in (nn.Linear(5, 5), nn.LayerNorm(5), nn.PReLU(5))]), []
    for name, p in model.named_parameters():
        p.register_hook(lambda g, name=name: seen.append(name))
        p.register_post_accumulate_grad_hook(lambda q, name=name: seen.append("after " + name))
    run = wrap(model)
    for x, _ in batches():
        run(x).square().sum().backward()
    return seen


@program
def memory_replaced_before_backward(wrap):
    """Of the weight torch has saved a view; of what is a factor, the parameter itself."""
    model, factor = mlp(5, 8, 3), nn.Parameter(torch.randn(5))
    run, seen = wrap(lambda x: model(x.sin() * factor)), []
    for x, y in batches():
        loss = F.mse_loss(run(x.requires_grad_()), y)
        for p in [*model.parameters(), factor]:
            p.data = p.data * 0.5
        loss.backward()
        seen += [x.grad, factor.grad.clone(), grads(model)]
    return seen


@program
def what_results_with_a_history_refuse(wrap):
    def forward(x):
        seen = []
        for what in (lambda t: t.numpy(), lambda t: t.__array__(), lambda t: t.requires_grad_(False)):
            try:
                what(x * 2)
                seen.append("fine")
            except RuntimeError as error:
                seen.append(str(error))
        return seen, (x * 2).numpy(force=True).sum(), torch.no_grad()(lambda: (x * 2).numpy().sum())()

    return [wrap(forward)(torch.ones(2, 3, requires_grad=True)) for _ in range(3)]


@program
def a_sum_is_expanded(wrap):
    def run(x):
        return torch.autograd.grad((x * 1).sum(), x)[0].stride(), torch.autograd.grad(x.sum(), x)[0].stride()

    return wrap(run)(torch.ones(1, 5, requires_grad=True))


@pytest.mark.parametrize("enabled", [False, True])
def test_tangents(enabled):
    """Forward mode, entered outside and inside; also without gradients."""
    from torch.autograd import forward_ad

    def outside(x):
        return (x * 2).sin() * x

    def inside(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(outside(forward_ad.make_dual(x * 1, torch.ones(3)))).tangent

    with torch.set_grad_enabled(enabled):
        plain, fast, both = outside, dycl.accelerate(lambda x: outside(x)), dycl.accelerate(lambda x: inside(x))
        for _ in range(3):
            with forward_ad.dual_level():
                x = forward_ad.make_dual(torch.randn(3), torch.randn(3))
                want, got = (forward_ad.unpack_dual(f(x)).tangent for f in (plain, fast))
                assert agree(want, got)
            x = torch.randn(3)
            assert agree(inside(x), both(x))
        before = dycl.stats(fast)["recorded"]
        fast(torch.randn(3))
        assert dycl.stats(fast)["recorded"] > before  # the level is left


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 7])
def test_transformers_are_one_segment(causal, length):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x):
            q, k, v = self.into(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q[:, :, :5], k, v, is_causal=causal)
            return self.out(y.transpose(1, 2).flatten(2))

    plain = nn.Sequential(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), Attention())
    fast = dycl.accelerate(copy.deepcopy(plain))
    for _ in range(4):
        x = torch.randn(3, length, 32)
        for model in (plain, fast):
            model.zero_grad()
            model(x).sin().sum().backward()
        for want, got in zip(grads(plain), grads(fast)):
            assert agree(want, got)
    stats = dycl.stats(fast)
    assert stats["torch"] == 0 and stats["segments"] == stats["calls"] == 4, dycl.explain(fast)


SEEN = torch.tensor([[True, False, True, True], [False, False, False, False], [True, True, True, True]])
MASKS = {
    "rows that see nothing": SEEN,
    "the same in numbers": torch.zeros(3, 4).masked_fill(~SEEN, -torch.inf),
    "the smallest number": torch.zeros(3, 4).masked_fill(~SEEN, torch.finfo(torch.float32).min),
    "padding": torch.tensor([[True, True, False, True], [True, False, False, False]])[:, None, None],
    "of each head": torch.randn(2, 5, 3, 4),
    "NaN": torch.zeros(3, 4).masked_fill(~SEEN, torch.nan),
    "infinite": torch.zeros(3, 4).masked_fill(~SEEN, torch.inf),
    "none": None,
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("special", [None, torch.inf, torch.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_with_masks(name, special, dtype):
    """What torch's kernel makes of rows without a finite score, it makes of their gradients."""
    mask = MASKS[name] if MASKS[name] is None or MASKS[name].dtype == torch.bool else MASKS[name].to(dtype)

    def program(q, k, v):
        y = F.scaled_dot_product_attention(q * 1, k * 1, v * 1, attn_mask=mask)
        return y.nan_to_num(3.0, 5.0, 7.0) * torch.arange(y.numel()).view(y.shape)

    run = dycl.accelerate(program)
    for call in range(3):
        leaves = [torch.randn(2, 5, n, 8, dtype=dtype) for n in (3, 4, 4)]
        if special is not None:
            leaves[call][0, 1, 2, 3] = special
        seen = []
        for f in (program, run):
            copies = [t.clone().requires_grad_() for t in leaves]
            f(*copies).sum().backward()
            seen.append([t.grad for t in copies])
        for want, got in zip(*seen):
            assert agree(want, got), (call, want, got)
    assert dtype != torch.float32 or dycl.stats(run)["torch"] <= 1, dycl.explain(run)  # nan_to_num, once


STEPS_OF_ATTENTION = [
    pytest.param(*case, id="-".join(map(str, case)))
    for case in itertools.product((2, 3, 4), ("none", "causal", "bool", "float", "learns", "one row"),
                                  (0.0, 0.3), (None, -0.7), (torch.float32, torch.float64))
    if case[1] == "learns" or case[2]]


@pytest.mark.parametrize("rank, mask, dropout, scale, dtype", STEPS_OF_ATTENTION)
def test_attention_in_steps(rank, mask, dropout, scale, dtype):
    """With dropout, and with masks that learn, torch computes matrices of weights, and so do we: the same draws."""
    batches = (2, 3)[4 - rank:] if rank > 2 else ()
    q, k = torch.randn(*batches, 5, 8, dtype=dtype), torch.randn(*batches, 7, 8, dtype=dtype)
    v = torch.randn(*batches, 7, 6, dtype=dtype)
    masks = {"bool": torch.rand(5, 7) > 0.4, "float": torch.randn(*batches, 1, 7, dtype=dtype),
             "learns": torch.randn(5, 7, dtype=dtype), "one row": torch.rand(5, 7) > 0.4}
    masks["one row"][2] = False  # every score is hidden

    def program(q, k, v, m):
        return F.scaled_dot_product_attention(q * 1, k, v.sin(), m, dropout, mask == "causal", scale=scale)

    run = dycl.accelerate(program)
    for _ in range(3):
        seen = []
        for f in (program, run):
            torch.manual_seed(1)
            leaves = [t.clone().requires_grad_() for t in (q, k, v)]
            m = masks[mask].clone() if mask in masks else None
            if mask == "learns":
                leaves.append(m.requires_grad_())
            out = f(*leaves[:3], m)
            out.cos().sum().backward()
            seen.append([out.detach(), *[t.grad for t in leaves], torch.rand(3)])
        for want, got in zip(*seen):
            assert agree(want, got), (want, got)
            assert want.stride() == got.stride()
    assert dycl.stats(run)["torch"] == 0, dycl.explain(run)


def test_masks_that_learn():
    """torch takes another way then."""
    def program(q, bias):
        return F.scaled_dot_product_attention(q * 1, q, q, attn_mask=bias * 2).sin().sum()

    run = dycl.accelerate(program)
    for _ in range(3):
        seen = []
        leaves = [torch.randn(1, 1, 2, 4), torch.randn(2, 2)]
        for f in (program, run):
            copies = [t.clone().requires_grad_() for t in leaves]
            f(*copies).backward()
            seen.append([t.grad for t in copies])
        for want, got in zip(*seen):
            assert agree(want, got)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, torch.float64])
@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod", "nansum", "mean"])
def test_what_has_a_history_is_not_added_up_as_integers(name, dtype):
    x = torch.randn(3, 4, requires_grad=True)

    def outcome(program):
        try:
            return [(r.dtype, r.requires_grad, type(r.grad_fn).__name__) for r in program()]
        except (RuntimeError, NotImplementedError, TypeError) as error:
            return type(error).__name__, str(error)

    for dims in ((), (1,)):
        for of in (lambda: x, lambda: x * 2, lambda: (x * 2).detach()):
            def program():
                return [getattr(of(), name)(*dims, dtype=dtype)]

            want, run = outcome(program), dycl.accelerate(program)
            assert [outcome(run) for _ in range(2)] == [want] * 2


def test_a_node_is_made_without_python():
    """A small segment takes less time than the lines of Python that torch runs for an autograd.Function."""
    model = dycl.accelerate(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()))
    x, one, seen = torch.randn(2, 4), torch.ones(2, 4), set()
    for _ in range(3):
        model(x).backward(one)
    sys.setprofile(lambda frame, event, argument: seen.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        torch.autograd.backward(model(x), one)
    finally:
        sys.setprofile(None)
    assert not any(name.endswith(("_autograd.py", "autograd/function.py")) for name in seen), seen


def test_a_node_goes_back_twice_and_is_freed():
    def use(model, x):
        result, found = model(x), []
        for retained in (True, False):
            found += torch.autograd.grad(result.sum(), list(model.parameters()), retain_graph=retained)
        with pytest.raises(RuntimeError) as error:
            torch.autograd.grad(result.sum(), list(model.parameters()))
        return found, type(result.grad_fn).__name__, str(error.value)

    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), torch.randn(2, 4)
    want, *said = use(model, x)
    run = dycl.accelerate(model)
    for _ in range(3):
        got, *says = use(run, x)
        assert says == said
        assert all(agree(a, b) for a, b in zip(want, got, strict=True))


@pytest.mark.parametrize("around, nodes", [("nothing", 3), ("hooks", 0), ("anomaly", 0)])
def test_gradients_that_are_enabled_within(around, nodes):
    """A region that is entered without gradients records those that are enabled inside, but for what is watched."""
    def of(accelerated):
        saved, w = [], torch.full((4, 4), 0.3, requires_grad=True)

        def program(x):
            y = x * 2
            with torch.enable_grad():
                (x @ w).tanh().exp().sum().backward()
            g, w.grad = w.grad, None
            return y + g

        run = dycl.accelerate(program) if accelerated else program
        watch = {"nothing": contextlib.nullcontext(), "anomaly": torch.autograd.detect_anomaly(False),
                 "hooks": torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t.shape), t)[1],
                                                                   lambda t: t)}
        with torch.no_grad(), watch[around]:
            results = [run(torch.ones(4, 4)) for _ in range(3)]
        assert not accelerated or dycl.stats(run)["nodes"] == nodes
        return results[-1], saved

    (want, saved), (got, hooked) = of(False), of(True)
    torch.testing.assert_close(got, want)
    assert hooked == saved
