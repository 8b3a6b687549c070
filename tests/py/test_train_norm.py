"""Batch norm in training: recorded, and its running statistics are what eager makes of them, whoever
looks at them and when."""

import copy
import ctypes
import io
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from dycl import _core
from suite import one_thread  # noqa: F401 (a fixture)
from test_gradients import agree

dycl.accelerate(lambda: None)  # finds torch


class Twice(nn.Module):
    """One norm at two places, as discriminators use it."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)

    def forward(self, x):
        return self.b(self.norm(F.relu(self.norm(self.a(x)))))


def conv(norm=nn.BatchNorm2d, **options):
    return nn.Sequential(nn.Conv2d(3, 6, 3), norm(6, **options), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 3),
                         norm(4, **options), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


def frozen():
    model = conv()
    for p in model[1].parameters():
        p.requires_grad = False
    return model


IMAGE, ROW = (4, 3, 12, 12), (7, 6)
MODELS = {  # what, the shape of its input, segments ended by torch's operators
    "conv": (conv, IMAGE, 0),
    "not affine": (lambda: conv(affine=False), IMAGE, 0),
    "double": (lambda: conv().double(), IMAGE, None),
    "momentum": (lambda: conv(momentum=0.7, eps=1e-2), IMAGE, 0),
    "cumulative": (lambda: conv(momentum=None), IMAGE, None),
    "no statistics": (lambda: conv(track_running_stats=False), IMAGE, None),
    "frozen": (frozen, IMAGE, 0),
    "rows": (lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2)), ROW, 0),
    "sequences": (lambda: nn.Sequential(nn.Conv1d(6, 5, 3), nn.BatchNorm1d(5), nn.GELU(), nn.Flatten(),
                                        nn.Linear(20, 2)), (3, 6, 6), 0),
    "volumes": (lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3), nn.ReLU(), nn.Flatten(),
                                      nn.Linear(24, 2)), (3, 2, 3, 3, 3), None),
    "twice": (Twice, ROW, 0),
    "half of it": (lambda: conv().bfloat16(), IMAGE, None),
    "channels last": (lambda: conv().to(memory_format=torch.channels_last), IMAGE, 0),
}


def state(model):
    return [t.detach().clone() for t in model.state_dict(keep_vars=True).values()] \
        + [t._version for t in model.buffers()] + [t.requires_grad for t in model.buffers()] \
        + [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def same(want, got):
    assert len(want) == len(got)
    for i, (a, b) in enumerate(zip(want, got)):
        assert agree(a, b) if isinstance(a, torch.Tensor) else a == b, (i, a, b)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("evaluates", [False, True])
def test_statistics_and_gradients(name, evaluates):
    make, shape, left = MODELS[name]
    seen = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(3)
        model = wrap(make())
        optimizer, log = torch.optim.SGD(model.parameters(), lr=0.1), []
        dtype = next(model.parameters()).dtype
        for step in range(4):
            model.train(not evaluates or step % 2 == 0)
            x = torch.randn(shape).to(dtype)
            if name == "channels last":
                x = x.to(memory_format=torch.channels_last)
            y = model(x)
            y.square().mean().backward()
            log += [y.detach().clone(), *state(model)]
            optimizer.step()
            optimizer.zero_grad(set_to_none=bool(step % 2))
        seen.append(log)
    same(*seen)
    stats = dycl.stats(model)
    if left == 0 and not evaluates:
        assert stats["torch"] <= 1 and stats["segments"] <= 5, dycl.explain(model)  # add_ of the count, when it is new


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name][2] == 0])
def test_where_torch_differentiates_a_segment(name):
    """No plan, or no formula: the segment is replayed with a history, and the statistics are written all the same."""
    _core.set_replaying(True)
    try:
        test_statistics_and_gradients(name, True)
    finally:
        _core.set_replaying(False)


READS = {
    "item": lambda t: t[1].item(),
    "print": str,
    "list": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy().copy(),
    "array": lambda t: np.asarray(t).copy(),
    "dlpack": lambda t: np.from_dlpack(t).copy(),
    "pointer": lambda t: ctypes.cast(t.data_ptr(), ctypes.POINTER(ctypes.c_float))[1],
    "storage": lambda t: t.untyped_storage()[5],
    "typed storage": lambda t: t.storage()[1],
    "storage's copy": lambda t: bytes(t.untyped_storage().clone()),
    "clone": lambda t: t.clone(),
    "detach": lambda t: t.detach().clone(),
    "data": lambda t: t.data.clone(),
    "a view": lambda t: t.view(2, 3)[1],
    "added": lambda t: t + 1,
    "bool": lambda t: bool((t > 0).all()),
    "deepcopy": lambda t: copy.deepcopy(t),
    "iteration": lambda t: [float(x) for x in t],
    "equal": lambda t: torch.equal(t, t + 0),
    "allclose": lambda t: torch.allclose(t, torch.zeros(6)),
    "saved": lambda t: _saved(t),
    "set": lambda t: torch.empty(0).set_(t).clone(),
    "frombuffer": lambda t: torch.from_numpy(t.numpy()).clone(),
    "out": lambda t: torch.add(t, 1, out=torch.empty(6)),
    "foreach": lambda t: torch._foreach_add([t], 1)[0],
}  # TorchScript: test_foreign.py


def _saved(t):
    file = io.BytesIO()
    torch.save(t, file)
    file.seek(0)
    return torch.load(file)


WRITES = {
    "zero": lambda t: t.zero_(),
    "copy": lambda t: t.copy_(torch.arange(6.0)),
    "add": lambda t: t.add_(1),
    "item": lambda t: t.__setitem__(1, 5.0),
    "data": lambda t: t.data.mul_(2),
    "numpy": lambda t: t.numpy().__setitem__(2, 7),
    "storage": lambda t: t.untyped_storage().fill_(0),
    "out": lambda t: torch.mul(t, 2, out=t),
    "set data": lambda t: setattr(t, "data", torch.ones(6)),
    "pointer": lambda t: ctypes.cast(t.data_ptr(), ctypes.POINTER(ctypes.c_float)).__setitem__(1, 9.0),
}


class Looked(nn.Module):
    def __init__(self, look, keeps, gradients):
        super().__init__()
        self.a, self.norm, self.look, self.gradients = nn.Linear(6, 6), nn.BatchNorm1d(6), look, gradients
        self.seen, self.keeps = [], keeps

    def forward(self, x):
        x = self.norm(self.a(x).tanh())
        for t in (self.norm.running_mean, self.norm.running_var):
            with torch.set_grad_enabled(self.gradients):
                seen = self.look(t)
                self.seen += [seen] if self.keeps else []
        return self.norm(x.sigmoid())


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", [f"{kind} {name}" for kind, table in (("read", READS), ("write", WRITES))
                                  for name in table])
def test_who_looks_at_statistics_in_the_call(name, gradients):
    kind, _, which = name.partition(" ")
    look = (READS if kind == "read" else WRITES)[which]
    seen = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(5)
        model = wrap(Looked(look, kind == "read", gradients))
        for _ in range(3):
            y = model(torch.randn(7, 6))
            error = None
            try:
                y.square().sum().backward()
            except RuntimeError as e:  # statistics are saved: who writes them loses the gradients
                error = str(e)
        seen.append([y.detach(), error, *state(model), *model.seen])
    for want, got in zip(*seen):
        if isinstance(want, torch.Tensor):
            assert agree(want, got) and want.requires_grad == got.requires_grad, name
        elif isinstance(want, (str, bytes)):
            assert len(want) == len(got), (want, got)
        else:
            assert (want is None) == (got is None), name
            if want is not None:
                np.testing.assert_allclose(np.asarray(want, dtype=float), np.asarray(got, dtype=float), rtol=1e-4)


def test_a_batch_of_one_is_torchs_error():
    model = dycl.accelerate(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)))
    for _ in range(3):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
            model(torch.randn(1, 6))
    assert model[1].num_batches_tracked == 3 and torch.equal(model[1].running_mean, torch.zeros(6))


def test_statistics_of_an_array_that_is_open():
    """Memory that others may look at is written when torch would."""
    seen = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(1)
        norm, looked = nn.BatchNorm1d(6), []
        array = norm.running_mean.numpy()

        def forward(x):
            y = norm(x * 2)
            looked.append(array.copy())
            return y

        run = wrap(forward)
        for _ in range(3):
            run(torch.randn(7, 6, requires_grad=True)).sum().backward()
        seen.append(looked)
    np.testing.assert_allclose(*seen, rtol=1e-5)


@pytest.mark.parametrize("unused", [False, True])
def test_a_norm_whose_result_nobody_takes(unused):
    """Its statistics count all the same, also when the call ends in an error."""
    seen = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(4)
        norm, other = nn.BatchNorm1d(6), nn.Linear(6, 6)

        def forward(x):
            y = norm(other(x))
            if not unused:
                raise KeyError(len(y))
            return other(x)

        run = wrap(forward)
        for _ in range(3):
            try:
                run(torch.randn(7, 6))
            except KeyError as e:
                assert e.args == (7,)
        seen.append(state(norm))
    same(*seen)


def test_second_derivatives():
    seen = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(2)
        model, x = wrap(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Softplus())), torch.randn(7, 6)
        x.requires_grad_()
        (g,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        g.square().sum().backward()
        seen.append([g.detach(), x.grad, *state(model)])
    same(*seen)


# ---- Kernels of our own: whatever lies contiguous or in channels last, with a history and without

def batch(rng):
    """A norm and its input: sizes, layouts, dtypes, options and special values by chance."""
    rank = rng.choice([2, 3, 4, 4, 4, 5])
    while True:
        shape = [rng.choice([1, 2, 3, 5, 17]), rng.choice([1, 2, 3, 8, 17, 33, 64])]
        shape += [rng.choice([1, 2, 3, 7, 16]) for _ in range(rank - 2)]
        if np.prod(shape) > shape[1]:
            break
    dtype = rng.choice([torch.float32, torch.float32, torch.float64])
    x = (torch.randn(shape, dtype=torch.float64) + rng.choice([0, 0, 3])) * rng.choice([1, 1, 30])
    if rng.random() < 0.2:
        most = torch.finfo(dtype).max  # of large ones the square is too large
        special = [float("nan"), float("inf"), -float("inf"), 0.04 * most, -most**0.6]
        x.view(-1)[rng.randrange(x.numel())] = rng.choice(special)
    if rng.random() < 0.1:
        x[:, 0] = 0
    x = x.to(dtype)
    if rank == 4 and rng.random() < 0.5:
        x = x.to(memory_format=torch.channels_last)
    norm = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[rank]
    norm = norm(shape[1], affine=rng.random() < 0.7, track_running_stats=rng.random() < 0.7,
                momentum=rng.choice([0.1, 0.7]), eps=rng.choice([1e-5, 1e-2])).to(dtype)
    for p in norm.parameters():
        p.data.uniform_(-1, 1)
        p.requires_grad = rng.random() < 0.8
    return norm, x, rng.random() < 0.7


def strides(tensors):
    return [t.stride() if isinstance(t, torch.Tensor) else t for t in tensors]


@pytest.mark.parametrize("seed", range(80))
def test_random_batches(seed):
    seen = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(seed)
        norm, x, differs = batch(random.Random(seed))
        x.requires_grad_(differs)
        after = random.Random(seed).choice([torch.tanh, torch.relu, lambda t: t])
        run, log = wrap(lambda t: after(norm(t * 2)) + 1), []
        for _ in range(3):
            y = run(x)
            if y.requires_grad:
                y.backward(torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape))
            log += [y.detach(), x.grad, *state(norm)]
        seen.append(log)
    same(*seen)
    assert strides(seen[0]) == strides(seen[1])
    text = dycl.explain(run)
    assert "batch_stats" in text and "aten_" not in text and dycl.stats(run)["torch"] <= 1, text
    assert differs is False or "batch_norm_back" in text or not torch.is_grad_enabled(), text


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("statistics", [False, True])
def test_without_a_history(affine, statistics):
    """Statistics are gathered without gradients, too, as `torch.optim.swa_utils.update_bn` does."""
    seen = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(6)
        model, log = wrap(conv(affine=affine, track_running_stats=statistics)), []
        with torch.no_grad():
            for _ in range(4):
                log += [model(torch.randn(IMAGE)), *state(model)]
        seen.append(log)
    same(*seen)
    assert "batch_stats" in dycl.explain(model) and dycl.stats(model)["torch"] <= 2, dycl.explain(model)


LAYOUTS = {
    "planes": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "rows": lambda x: x[:, :, 0, 0].contiguous(),
    "rows of one plane": lambda x: x[:, :, :1, :1].contiguous(),
    "one channel": lambda x: x[:, :1].contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [3e35, 3e36, 6e37, 3e38])
def test_sums_that_floats_do_not_hold(layout, size):
    """torch sums planes in doubles, what lies in channels last in floats: there the mean is infinite."""
    torch.manual_seed(5)
    for draw in (torch.rand, torch.randn):
        x = LAYOUTS[layout](draw(6, 5, 8, 8).clamp(-1, 1) * size)
        seen = []
        for wrap in (lambda f: f, dycl.accelerate):
            mean, variance = torch.zeros(x.shape[1]), torch.ones(x.shape[1])
            run, log = wrap(lambda: F.batch_norm(x, mean, variance, training=True, momentum=0.5) * 2), []
            with torch.no_grad():
                for _ in range(3):
                    log += [run(), mean.clone(), variance.clone()]
            seen.append(log)
        same(*seen)
        assert "batch_stats" in dycl.explain(run)


def test_convolutions_are_read_as_they_lie():
    """Nothing is copied between a convolution and its norm but what is kept for the backward pass."""
    model = dycl.accelerate(nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()))
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 16, 20, 20))
    lines = dycl.explain(model).splitlines()
    at = next(i for i, line in enumerate(lines) if "statistics" in line and "batch_stats" in line)
    assert "conv2d" in lines[at - 1] and "reorder" not in lines[at - 1], dycl.explain(model)


@pytest.mark.parametrize("what", ["input", "weight", "running_mean", "running_var", "bias"])
def test_what_is_written_before_the_backward_pass(what):
    seen = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(8)
        norm = nn.BatchNorm2d(3)
        run, log = wrap(lambda t: norm(t).sin()), []
        for _ in range(2):
            x = torch.randn(4, 3, 5, 5)
            leaf = x.clone().requires_grad_()
            given = leaf * 1
            y = run(given)
            with torch.no_grad():
                (given if what == "input" else getattr(norm, what)).add_(1)
            try:
                y.sum().backward()
                log += [leaf.grad, *state(norm)]
            except RuntimeError as e:
                log.append(str(e).split("];")[0])
        seen.append(log)
    assert [type(e) for e in seen[0]] == [type(e) for e in seen[1]]
    same(*seen)


@pytest.mark.parametrize("last", [False, True])
def test_second_derivatives_of_images(last):
    seen = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(9)
        model = wrap(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Softplus()).double())
        x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
        x = x.to(memory_format=torch.channels_last) if last else x
        x.requires_grad_()
        for _ in range(2):
            (g,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
            g.square().sum().backward()
        seen.append([g.detach(), x.grad, *state(model)])
    same(*seen)


def test_two_norms_of_one_tensor():
    """The same call twice is two results, also where no pass makes one of them (the first run of a segment)."""
    norms = [nn.BatchNorm1d(6, affine=False, track_running_stats=False) for _ in range(2)]
    x = torch.randn(7, 6)
    for wrap in (lambda f: f, dycl.accelerate):
        leaf = x.clone().requires_grad_()
        y, z = wrap(lambda t: (norms[0](t) * 2, norms[1](t) * 3))(leaf)
        (y.sin() + z.cos()).sum().backward()
        seen = [y.detach(), z.detach(), leaf.grad]
        if wrap is dycl.accelerate:
            same(want, seen)
        want = seen


@pytest.mark.parametrize("seed", range(12))
def test_residual_sums_in_mixed_orders(seed):
    """What a convolution left channels last meets what lies plain: one of them is copied, forwards and back."""
    rng, seen = random.Random(seed), []
    channels, size, batch = rng.choice([8, 16, 24]), rng.choice([5, 8, 14]), rng.choice([1, 3])
    formats = [rng.choice([torch.contiguous_format, torch.channels_last]) for _ in range(2)]
    picks = [rng.randrange(4) for _ in range(3)]
    joins = [torch.add, torch.mul, lambda a, b: a * 0.3 + b, lambda a, b: F.relu(a) - b]
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(seed)
        first, second = (nn.Conv2d(channels, channels, k, padding=k // 2) for k in (3, 1))
        norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(2)])

        def forward(x, y):
            a = joins[picks[0]](norms[0](first(x)), y)
            b = joins[picks[1]](F.relu(a), norms[1](second(a)))
            return joins[picks[2]](b, x.mean((2, 3), keepdim=True)), a

        run, log = wrap(forward), []
        for _ in range(3):
            x, y = (torch.randn(batch, channels, size, size).to(memory_format=f).requires_grad_() for f in formats)
            results = run(x, y)
            (results[0].sin().sum() + results[1].cos().sum()).backward()
            log += [r.detach() for r in results] + [x.grad, y.grad, *(p.grad.clone() for p in first.parameters()),
                                                    *state(norms)]
        seen.append(log)
    for want, got in zip(*seen):
        if isinstance(want, torch.Tensor):  # products are summed in another order
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 * max(1.0, want.abs().max().item()))
            assert want.stride() == got.stride()


@pytest.mark.parametrize("seed", range(8))
def test_few_channels_of_large_images(seed):
    """A channel is summed in parts, which begin and end inside an image."""
    r = random.Random(seed)
    shape = (r.randint(1, 7), r.randint(1, 3), r.randint(20000, 60000))
    dtype = r.choice([torch.float32, torch.float64])

    def program(x, weight, g):
        y = F.batch_norm(x * 1, None, None, weight, training=True)
        return y.detach(), *torch.autograd.grad(y, (x, weight), g)

    torch.manual_seed(seed)
    x = torch.linspace(-3, 5, shape[-1], dtype=dtype) * torch.rand(shape, dtype=dtype)  # parts differ
    weight, g = torch.rand(shape[1], dtype=dtype), torch.randn(shape, dtype=dtype)
    operands = [x.requires_grad_(), weight.requires_grad_(), g]
    accelerated = dycl.accelerate(program)
    for _ in range(3):
        for want, got in zip(program(*operands), accelerated(*operands), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))


@pytest.mark.parametrize("seed", range(24))
def test_what_is_copied_before_the_norm_lives_until_it(seed):
    """Operands in no order that the kernels read: dimensions of one row have any stride. Where they are copied, one
    copy is not to be put where another waits."""
    rng = random.Random(f"copied {seed}")
    n, c, h, w = rng.choice([(2, 4, 1, 2), (1, 4, 1, 5), (8, 16, 1, 7), (3, 5, 2, 1), (2, 3, 4, 5)])

    def laid(order):
        strides, reached = [0] * 4, 1
        for dim in order:
            strides[dim] = reached * (2 if rng.random() < 0.1 else 1)
            reached = strides[dim] * (n, c, h, w)[dim]
        for dim, size in enumerate((n, c, h, w)):
            strides[dim] = rng.choice([strides[dim], 1, c, 77]) if size == 1 else strides[dim]
        return torch.empty_strided((n, c, h, w), strides).copy_(torch.randn(n, c, h, w))

    torch.manual_seed(seed)
    order = rng.choice([(1, 3, 2, 0), (1, 3, 2, 0), (3, 2, 1, 0), (2, 3, 0, 1), (3, 2, 0, 1)])
    x, g, strided, wanted = laid(order), laid(order), rng.random() < 0.5, rng.random() < 0.3

    norm = nn.BatchNorm2d(c)
    if strided:
        norm.weight.data, norm.bias.data = torch.rand(2 * c)[::2], torch.rand(2 * c)[::2]
        norm.running_mean, norm.running_var = torch.zeros(2 * c)[::2], torch.ones(2 * c)[::2]
    norms = norm, copy.deepcopy(norm)

    def step(norm, x):
        norm(x).backward(g)

    leaves = [x.detach().requires_grad_(wanted) for _ in norms]
    step(norms[0], leaves[0])
    dycl.accelerate(step)(norms[1], leaves[1])
    for want, got in zip(*(norm.state_dict().values() for norm in norms), strict=True):
        assert agree(want, got)
    for want, got in zip(*((norm.weight.grad, norm.bias.grad, leaf.grad) for norm, leaf in zip(norms, leaves))):
        assert want is got is None or agree(want, got)
