"""Operators in place, `x[key] = y` too, on what has a history: recorded where no operator needs what is overwritten;
else torch's, whose errors the program sees. Aliases without a history (detach)."""

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from suite import one_thread  # noqa: F401 (a fixture)
from test_gradients import agree

dycl.accelerate(lambda: None)  # finds torch

FRESH = {
    "exp": lambda x, y: (x * 0.2).exp(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "relu": lambda x, y: F.relu(x),
    "gelu": lambda x, y: F.gelu(x),
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "product": lambda x, y: x @ y,
    "linear": lambda x, y: F.linear(x, y),
    "norm": lambda x, y: F.layer_norm(x, (4,)),
    "softmax": lambda x, y: x.softmax(-1),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "sum": lambda x, y: x.sum(0, keepdim=True) + y,
    "cat": lambda x, y: torch.cat([x, y], 1)[:, 2:6],
    "rows": lambda x, y: x[1:] + y[:-1].sum(),
    "transposed": lambda x, y: x.t() @ y,
    "view": lambda x, y: x.view(x.shape),
    "detached": lambda x, y: x.detach() * y,
    "alias": lambda x, y: x.detach(),
    "rows of an alias": lambda x, y: y.detach()[1:],
    "alias of rows": lambda x, y: y[:3].detach(),
    "alias of an alias": lambda x, y: x.detach().t().detach(),
    "straight through": lambda x, y: x + (x.round() - x).detach(),
    "square": lambda x, y: x.square(),
    "conv": lambda x, y: F.conv2d(x.reshape(1, 1, *x.shape), y.reshape(1, 1, *y.shape)[:, :, :1, :1])[0, 0],
    "norm of a batch": lambda x, y: F.batch_norm(x, None, None, training=True),
}
AT = torch.tensor([2, -4])


def dropped(function, x):
    torch.manual_seed(x.dim())  # both sides draw the same
    return function(x, 0.4, training=True, inplace=True)


WRITES = {
    "relu_": lambda x, y: F.relu(x, inplace=True),
    "silu_": lambda x, y: F.silu(x, inplace=True),
    "leaky_relu_": lambda x, y: F.leaky_relu(x, 0.1, inplace=True),
    "leaky_relu_ that folds": lambda x, y: F.leaky_relu(x, -0.5, inplace=True),
    "elu_": lambda x, y: F.elu(x, inplace=True),
    "elu_ that folds": lambda x, y: F.elu(x, -0.5, inplace=True),
    "hardtanh_": lambda x, y: F.hardtanh(x, inplace=True),
    "celu_": lambda x, y: F.celu(x, 0.7, inplace=True),
    "clamp_": lambda x, y: x.clamp_(-1, 1),
    "clamp_min_": lambda x, y: x.clamp_min_(0.25),
    "clamp_ from below": lambda x, y: x.clamp_(min=-0.5),
    "clamp_ to a tensor": lambda x, y: x.clamp_(max=y[0].detach()),
    "dropout_": lambda x, y: dropped(F.dropout, x),
    "alpha_dropout_": lambda x, y: dropped(F.alpha_dropout, x),
    "add_": lambda x, y: x.add_(y[0]),
    "+=": lambda x, y: x.__iadd__(y[:1]),
    "-= number": lambda x, y: x.__isub__(1.5),
    "mul_": lambda x, y: x.mul_(y[0]),
    "mul_ number": lambda x, y: x.mul_(0.5),
    "div_": lambda x, y: x.div_(y[0].abs() + 1),
    "addcmul_": lambda x, y: x.addcmul_(y[0], y[0], value=0.5),
    "sigmoid_": lambda x, y: x.sigmoid_(),
    "tanh_": lambda x, y: torch.tanh_(x),
    "masked_fill_": lambda x, y: x.masked_fill_(y[0] > 0, 0.5),
    "zero_": lambda x, y: x.zero_(),
    "element": lambda x, y: x.__setitem__(0, y[0]),
    "row": lambda x, y: x.__setitem__(-1, y[2]),
    "rows": lambda x, y: x.__setitem__(slice(1, 3), y[:1]),
    "columns": lambda x, y: x.__setitem__((slice(None), slice(1, 3)), y[:, :2]),
    "steps": lambda x, y: x.__setitem__((slice(1, None, 2), Ellipsis), y[::2]),
    "whole": lambda x, y: x.__setitem__(slice(None), y),
    "column": lambda x, y: x.__setitem__((Ellipsis, 0), y[0]),
    "one more dimension": lambda x, y: x.__setitem__((None, 1, slice(2)), y[:1, 2:]),
    "number": lambda x, y: x.__setitem__((slice(2), slice(2)), 2.5),
    "mask": lambda x, y: x.__setitem__(y > 0, 0.5),
    "mask of rows": lambda x, y: x.__setitem__(y[:, 0] > 0, -1.5),
    "masked values": lambda x, y: x.__setitem__(y > 0, y[y > 0]),
    "positions": lambda x, y: x.__setitem__(AT, y[:2] * 2),
    "positions, a number": lambda x, y: x.__setitem__(AT, 0.25),
    "positions, one row": lambda x, y: x.__setitem__(AT, y[3]),
    "positions twice": lambda x, y: x.__setitem__(torch.tensor([1, 1]), y[:2]),
    "a table of positions": lambda x, y: x.__setitem__(torch.tensor([[0, 1], [2, 3]]), y.view(2, 2, 4)),
    "a list": lambda x, y: x.__setitem__([0, 2], y[1:3]),
    "columns by positions": lambda x, y: x.__setitem__((slice(None), AT), y[:, :2]),
    "elements by positions": lambda x, y: x.__setitem__((AT, AT), y[0, :2]),
    "a row of itself": lambda x, y: x.__setitem__(0, x[1]),
    "a row of itself, computed": lambda x, y: x.__setitem__(0, x[1] * 2),
    "rows added to": lambda x, y: x[1:].add_(y[0]),
    "rows that are added to": lambda x, y: x.__setitem__(1, x[1].__iadd__(y[0])),
    "copy_": lambda x, y: x.copy_(y[0]),
    "scatter_add_": lambda x, y: x.scatter_add_(0, (y.detach() > 0).long(), y),
    "scatter_add_ to a row": lambda x, y: x.scatter_add_(0, torch.tensor([1]).expand(4, 4), y),
    "scatter_": lambda x, y: x.scatter_(1, AT.remainder(4).expand(4, 2).contiguous(), y[:, :2]),
    "index_add_": lambda x, y: x.index_add_(0, AT.remainder(4), y[:2]),
    "index_put_": lambda x, y: x.index_put_((AT, AT), y[0, :2], accumulate=True),
    "index_fill_": lambda x, y: x.index_fill_(1, AT.remainder(4), 0.5),
    "index_copy_": lambda x, y: x.index_copy_(0, AT.remainder(4), y[:2]),
    "cumsum_": lambda x, y: x.cumsum_(0).sub_(0.37),
    "cumprod_": lambda x, y: x.cumprod_(1),
    "atan_": lambda x, y: x.atan_(),
    "sinh_": lambda x, y: x.sinh_(),
    "erfc_": lambda x, y: x.erfc_(),
    "sinc_": lambda x, y: x.sinc_(),
    "selu_": lambda x, y: F.selu(x, inplace=True),
    "logit_": lambda x, y: x.logit_(0.25),
    "nan_to_num_": lambda x, y: x.nan_to_num_(0.5),
    "hypot_": lambda x, y: x.hypot_(y[0]),
    "clamp_max_": lambda x, y: x.clamp_max_(0.5),
    "itself": lambda x, y: x.add_(x),
    "itself, times": lambda x, y: x.mul_(x),
    "itself, in parts": lambda x, y: x.addcmul_(x, y[0]),
    "itself, by places": lambda x, y: x.hypot_(x),
    "scatter_add_ of itself": lambda x, y: x.scatter_add_(0, (y.detach() > 0).long(), x),
    "alias": lambda x, y: x.detach().mul_(2),
    "row of an alias": lambda x, y: x.detach().__setitem__(1, y[0].detach()),
    "without gradients": lambda x, y: torch.no_grad()(lambda: x.mul_(2))(),
}


def program_of(rng):
    """Steps as (result, kind, operands); the operands' numbers are those of earlier results."""
    steps, count = [], 3
    for _ in range(rng.randint(2, 12)):
        if count > 3 and rng.random() < 0.5:
            steps.append(("write", rng.choice(list(WRITES)), rng.randrange(3 if rng.random() < 0.9 else 0, count),
                          rng.randrange(count)))
        else:
            steps.append(("make", rng.choice(list(FRESH)), rng.randrange(count), rng.randrange(count)))
            count += 1
    kept = sorted(rng.sample(range(3, count), rng.randint(1, count - 3))) if count > 3 else [0]
    dead = rng.random() < 0.5

    def run(*leaves):
        pool = list(leaves)
        for number, (what, kind, i, j) in enumerate(steps):
            x, y = pool[i], pool[j]
            if x is None or y is None or x.shape != (4, 4) or y.shape != (4, 4):
                x = y = leaves[2] * 1.0
            if what == "write":
                WRITES[kind](x, y)
            else:
                pool.append(FRESH[kind](x, y))
            if dead:  # what nobody asks for again
                later = {k for step in steps[number + 1:] for k in step[2:]} | set(kept) | {0, 1, 2}
                pool = [t if k in later else None for k, t in enumerate(pool)]
            del x, y
        return [pool[k] for k in kept]

    return run


def outcome(function, leaves):
    copies = [t.detach().clone().requires_grad_(t.requires_grad) for t in leaves]
    seen = []
    try:
        results = function(*copies)
        seen += [(r.shape, r.stride(), r._version, r.requires_grad, r.is_leaf, r._is_view()) for r in results]
        seen += [r.detach().clone() for r in results]
        loss = sum((r * 0.3).sin().sum() for r in results)
        if loss.requires_grad:
            loss.backward()
    except RuntimeError as error:
        text = str(error)
        return [*seen, "modified by an inplace operation" if "modified by an inplace" in text else text[:60]]
    return seen + [t.grad for t in copies]


def same(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return agree(a, b)
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("seed", range(400))
def test_random_programs(seed):
    torch.manual_seed(seed)
    program = program_of(random.Random(seed))
    run = dycl.accelerate(program)
    leaves = [torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)]
    for _ in range(3):
        want, got = outcome(program, leaves), outcome(run, leaves)
        assert len(want) == len(got) and all(map(same, want, got)), (want, got, dycl.explain(run))


class Block(nn.Module):
    def __init__(self, width, act):
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norms, self.act = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2)), act

    def forward(self, x):
        y = self.norms[1](self.second(self.act(self.norms[0](self.first(x)))))
        y += x
        return self.act(y)


@pytest.mark.parametrize("act", [nn.ReLU(inplace=True), nn.LeakyReLU(0.1, inplace=True), nn.SiLU(inplace=True),
                                 nn.ReLU6(inplace=True), nn.ELU(inplace=True), nn.Hardswish(inplace=True)], ids=repr)
def test_residual_networks_are_one_segment(act):
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), act, Block(8, act), Block(8, act), nn.Flatten(), nn.Linear(8 * 36, 4))
    fast = dycl.accelerate(copy.deepcopy(plain))
    before = 0
    for call in range(4):
        x = torch.randn(2, 3, 8, 8)
        for model in (plain, fast):
            model.zero_grad()
            model(x).square().sum().backward()
        stats = dycl.stats(fast)
        assert stats["torch"] == 0 and (call == 0 or stats["segments"] == before + 1), dycl.explain(fast)
        before = stats["segments"]  # the first call of a process learns what torch's batch norm answers
    largest = max(p.grad.abs().max() for p in plain.parameters())
    for p, q in zip(plain.parameters(), fast.parameters()):
        assert (p.grad - q.grad).abs().max() <= 1e-5 * largest


@pytest.mark.parametrize("name", ["clamp_min_", "clamp_max_", "clamp_ from below", "dropout_", "alpha_dropout_"])
def test_writes_that_end_no_segment(name):
    def program(x, w):
        h = x @ w
        WRITES[name](h, h)
        return (h @ w).tanh()

    run, leaves = dycl.accelerate(program), [torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)]
    for _ in range(4):
        want, got = outcome(program_of_one(program), leaves), outcome(program_of_one(run), leaves)
        assert all(map(same, want, got)), dycl.explain(run)
    stats = dycl.stats(run)
    assert stats["torch"] == 0 and stats["segments"] == stats["calls"] == 4, dycl.explain(run)


def program_of_one(function):
    return lambda *leaves: [function(*leaves)]


ROWS = torch.tensor([[4, 0, 2], [1, 3, 5]])
BUFFERS = {  # what is written at step t, of a buffer of 6 steps
    "steps": (lambda x: x.new_zeros(6, 3, 5), lambda t: t),
    "steps of each": (lambda x: torch.zeros(3, 6, 5), lambda t: (slice(None), t)),
    "last dimension": (lambda x: torch.ones(3, 5, 6), lambda t: (Ellipsis, t)),
    "from the end": (lambda x: torch.full((6, 3, 5), 2.0), lambda t: -1 - t),
    "computed": (lambda x: x.sin() * torch.ones(6, 1, 1), lambda t: t),
    "by a position": (lambda x: torch.zeros(6, 3, 5), lambda t: torch.tensor([t])),
    "strided": (lambda x: torch.zeros(12, 3, 5), lambda t: slice(t, t + 7, 6)),
    "over one another": (lambda x: torch.zeros(7, 3, 5), lambda t: slice(t, t + 2)),
    "what was there": (lambda x: x.new_zeros(6, 3, 5), lambda t: t // 2),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", BUFFERS)
def test_what_is_written_step_by_step_is_one_segment(name, turned):
    """A buffer of results, as decoders and hand-written recurrent networks fill it. turned: its gradient does not lie
    as it does."""
    make, key = BUFFERS[name]

    def program(x, w):
        out, h = make(x), x
        for t in range(6):
            h = torch.tanh(h @ w)
            out[key(t)] = h
        return out.mT.contiguous() * 3 if turned else out * 3 + out.mean()

    run, leaves = dycl.accelerate(program), [torch.randn(3, 5, requires_grad=True), torch.randn(5, 5).requires_grad_()]
    for call in range(4):
        want, got = outcome(lambda *a: [program(*a)], leaves), outcome(lambda *a: [run(*a)], leaves)
        assert len(want) == len(got) and all(map(same, want, got)), (want, got)
        stats = dycl.stats(run)
        assert call == 0 or stats["torch"] == before["torch"], dycl.explain(run)
        assert call == 0 or stats["segments"] == before["segments"] + 1, dycl.explain(run)
        before = stats


ALIASES = {
    "straight through": lambda x, w: x @ w + ((x @ w).round() - x @ w).detach(),
    "advantage": lambda x, w: (x.mean(1) - (x @ w).sum(1).detach()) * (x @ w).sum(1),
    "target": lambda x, w: ((x @ w) - F.softmax((x @ w).detach() * 2, -1)).square(),
    "rows": lambda x, w: (x @ w).detach()[1:] * w[:2] + (x @ w)[:2].detach().t().mean(),
    "of what is given": lambda x, w: x * w.detach()[:3] + x.detach().view(-1)[:5],
    "twice": lambda x, w: (lambda y: y * y.detach() + y.detach().detach())(x @ w),
    "kept for both": lambda x, w: (lambda y: y * y * y.detach())(x @ w),
    "a copy": lambda x, w: (lambda y: y * y.detach().clone())(x @ w),
}


@pytest.mark.parametrize("name", ALIASES)
def test_detached_results_end_no_segment(name):
    program, run = ALIASES[name], dycl.accelerate(ALIASES[name])
    leaves = [torch.randn(3, 5, requires_grad=True), torch.randn(5, 5).requires_grad_()]
    for call in range(3):
        want, got = outcome(lambda *a: [program(*a)], leaves), outcome(lambda *a: [run(*a)], leaves)
        assert len(want) == len(got) and all(map(same, want, got)), (want, got)
        assert dycl.stats(run)["torch"] == 0 and dycl.stats(run)["segments"] == call + 1, dycl.explain(run)


@pytest.mark.parametrize("name", ALIASES)
def test_detached_results_have_no_second_derivative(name):
    """What a backward pass keeps of them has none either, though it may be kept for others that have one."""
    run = dycl.accelerate(ALIASES[name])
    for _ in range(3):
        data, seen = [torch.randn(3, 5, dtype=torch.float64), torch.randn(5, 5, dtype=torch.float64)], []
        for function in (ALIASES[name], run):
            leaves = [t.clone().requires_grad_() for t in data]
            first = torch.autograd.grad(function(*leaves).sin().sum(), leaves, create_graph=True, allow_unused=True)
            total = sum(g.sin().sum() for g in first if g is not None)
            second = torch.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else ()
            seen.append([*first, *second])
        assert len(seen[0]) == len(seen[1])
        for a, b in zip(*seen):
            assert a is b is None or torch.allclose(a, b, rtol=1e-9, atol=1e-9), (a, b)


def test_a_detached_result_shares_memory_and_versions():
    def program(x):
        y = x * 2
        d = y.detach()
        e, rows = d[0], y[1:].detach()
        return y, d, e, rows

    run = dycl.accelerate(program)
    for _ in range(3):
        for function in (program, run):
            y, d, e, rows = function(torch.randn(3, 4, requires_grad=True))
            assert (d.requires_grad, e.requires_grad, d._is_view(), e._is_view()) == (False, False, False, True)
            assert not e._base.requires_grad and e.grad_fn is None and not rows._is_view()
            assert y.data_ptr() == d.data_ptr() == e.data_ptr() and rows.data_ptr() == y[1].data_ptr()
            rows.add_(1)
            assert y._version == d._version == e._version == rows._version == 1
            z = (y * y).sum()
            d.mul_(2)
            with pytest.raises(RuntimeError, match="modified by an inplace"):
                z.backward()


def test_what_is_added_to_again_and_again_is_recorded():
    """A mixture's loop over its experts (transformers, before products of groups)."""
    weights, x = [nn.Parameter(torch.randn(6, 6)) for _ in range(3)], torch.randn(5, 6)
    rows = torch.tensor([[0, 2], [1, 3], [2, 4]])

    def mixed():
        out = torch.zeros(5, 6)
        for weight, at in zip(weights, rows):
            out.index_add_(0, at, x[at] @ weight)
        return out.square().sum()

    def gradients(loss):
        return torch.autograd.grad(loss, weights)

    run = dycl.accelerate(mixed)
    for _ in range(3):
        for a, b in zip(gradients(mixed()), gradients(run()), strict=True):
            assert agree(a, b)
    before = dycl.stats(run)["torch"]
    gradients(run())
    assert dycl.stats(run)["torch"] == before, dycl.explain(run)


@pytest.mark.parametrize("write", ("selu_", "celu_", "elu_", "sigmoid_", "tanh_", "sinc_", "nan_to_num_",
                                   "leaky_relu_"))
@pytest.mark.parametrize("between", ("nothing", "added", "copied", "asked for"))
def test_what_is_written_twice(write, between):
    """In place some functions save their result, which a second write changes."""
    w, x = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)

    def program():
        y = F.linear(x, w)
        WRITES[write](y, x)
        seen = [x + y] if between != "nothing" else []
        if between == "copied":
            seen.append(torch.zeros_like(y).copy_(seen[0][0]))
        if between == "asked for":
            seen[0].sum().item()
        return [F.relu(y, inplace=True), *seen]

    def outcome(function):
        try:
            return torch.autograd.grad(sum((t * 0.3).sin().sum() for t in function()), w)[0].flatten().tolist()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)

    run = dycl.accelerate(program)
    for _ in range(3):
        assert outcome(run) == pytest.approx(outcome(program), rel=1e-5, abs=1e-6)


TARGETS = {"rows": lambda: torch.zeros(4, 6), "turned": lambda: torch.zeros(6, 4).t(),
           "another dtype": lambda: torch.zeros(4, 6, dtype=torch.float64), "larger": lambda: torch.zeros(2, 4, 6),
           "a part": lambda: torch.zeros(8, 6)[2:6]}
SOURCES = {"computed": lambda p: p * 2, "leaf": lambda p: p, "row": lambda p: p[0] * 2,
           "detached": lambda p: p.detach(), "turned": lambda p: (p * 2).t().contiguous().t(),
           "another dtype": lambda p: p.double() * 2, "one row of it": lambda p: (p * 2)[1:2]}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", TARGETS)
def test_copies(target, source):
    p = torch.randn(4, 6, requires_grad=True)

    def program(p):
        to = TARGETS[target]()
        to.copy_(SOURCES[source](p))
        return to * p, to

    def outcome(function, second):
        y, to = function(p)
        found = [y.detach(), to.detach(), to._version, to.stride(), to.requires_grad, to.grad_fn and to.grad_fn.name()]
        weights = torch.arange(y.numel(), dtype=y.dtype).view(y.shape) / y.numel()
        g, = torch.autograd.grad((y * weights).sum(), p, create_graph=second)
        if second and g.requires_grad:
            found += torch.autograd.grad(g.sin().sum(), p)
        return [*found, g.detach(), g.stride()]

    run = dycl.accelerate(program)
    for second in (False, True, False):
        want, got = outcome(program, second), outcome(run, second)
        assert len(want) == len(got) and all(map(same, want, got)), (want, got)
    if target in ("rows", "another dtype", "larger"):
        assert dycl.stats(run)["torch"] == 0, dycl.explain(run)
