"""Whole training programs of frameworks (train_programs.py): what each of them sees is what it sees
in eager, in the three ways that users have: dycl.accelerate, dycl.accelerate_all, python -m dycl. Numbers may differ by
ten times as much as eager's do when its parameters move by a rounding."""

import importlib.util
import os
import socket

import pytest
import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path

import dycl
import started
import train_programs
from suite import FULL, one_thread  # noqa: F401 (a fixture)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = os.path.join(ROOT, "tests", "py", "train_programs.py")
NEEDS = {"torch": [], "transformers": ["accelerate", "peft"], "lightning": ["pytorch_lightning"], "distributed": []}
NOISE = ["noise0", "noise1", "noise2", "noise3"]


def start(group, path, ways, under_dycl):
    """The command runs the programs of a group, each in these ways: the outcomes, of both processes where it has
    two."""
    command = [*(["-m", "dycl"] if under_dycl else []), PROGRAMS, group, str(path), *ways]
    if group == "distributed":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        if under_dycl:
            command[0:1] = ["--module"]
        command = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1",
                   f"--master-port={port}", *command]
    space = {**os.environ, "DYCL_CHOOSE": "0", "DYCL_PROFILE": "0", "GLOO_SOCKET_IFNAME": "lo",
             "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([ROOT, os.path.dirname(PROGRAMS)])}
    done = started.run(command, cwd=path.parent, env=space, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    files = [f"{path}.0", f"{path}.1"] if group == "distributed" else [path]
    return [torch.load(f, weights_only=False) for f in files]


def distance(a, b):
    """Of two tensors or numbers; integers differ or do not."""
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if not a.is_floating_point():
        return 0.0 if torch.equal(a, b) else float("inf")
    same = (a == b) | (a.isnan() & b.isnan())
    return (a.double() - b.double()).abs().masked_fill(same, 0).max().item() if a.numel() else 0.0


def differences(want, got, noises):
    """The places where what a program saw is not what it saw in eager."""
    (a, shape), (b, other) = tree_flatten_with_path(want), tree_flatten_with_path(got)
    if shape != other:
        return [f"not of one structure: {str(shape)[:300]} and {str(other)[:300]}"]
    moved = [dict((keystr(k), v) for k, v in tree_flatten_with_path(n)[0]) for n in noises]
    found = []
    for (key, x), (_, y) in zip(a, b):
        name = keystr(key)
        if isinstance(x, (torch.Tensor, float)) and isinstance(y, type(x)):
            noise = max(distance(x, n[name]) for n in moved if name in n)
            scale = torch.as_tensor(x).abs().max().item() if torch.as_tensor(x).numel() else 0
            strides = getattr(x, "stride", tuple)() == getattr(y, "stride", tuple)()
            if not strides or not distance(x, y) <= 10 * noise + 1e-6 * scale:
                found.append(f"{name}: {distance(x, y)} of {scale}, by a rounding {noise}")
        elif x != y:
            found.append(f"{name}: {x} and {y}")
    return found


@pytest.mark.parametrize("group", train_programs.GROUPS)
def test_programs(group, tmp_path):
    for name in NEEDS[group]:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    here = start(group, tmp_path / "here", ["eager", *NOISE, "model", "all"], False)
    whole = FULL or group == "torch"  # importing the others takes most of a process
    below = start(group, tmp_path / "below", ["eager"], True) if whole else [{}] * len(here)
    for mine, under in zip(here, below):
        for name in [f.__name__ for f in train_programs.GROUPS[group]]:
            want, noises = mine[name, "eager"], [mine[name, way]["notes"] for way in NOISE]
            ways = {"model": mine[name, "model"], "all": mine[name, "all"]}
            if whole:
                ways["-m"] = under[name, "eager"]
            for way, got in ways.items():
                found = differences(want["notes"], got["notes"], noises)
                assert not found, (name, way, found[:10])
                assert torch.equal(want["random"][0], got["random"][0]) and want["random"][1:] == got["random"][1:]
                assert got["recorded"] > 0, (name, way)
            assert want["recorded"] == 0


# ---- The order of hooks


class Tied(nn.Module):
    """Parameters that several operators read, and some that are no layer's."""

    def __init__(self):
        super().__init__()
        self.embed, self.layer = nn.Embedding(9, 4), nn.Linear(4, 4)
        self.w, self.b, self.c = (nn.Parameter(torch.randn(s)) for s in ((4, 4), (4,), ()))

    def forward(self, x):
        h = torch.addmm(self.b, self.layer(self.embed(x)), self.w) + self.layer.bias
        return torch.addcmul(h, self.b, self.c) @ self.w @ self.embed.weight.t() * self.c


class Levels(nn.Module):
    """Results that others depend on: several nodes of autograd's graph."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))

    def forward(self, x):
        a, b, c, d, e = self.layers
        h = a(x)
        k = torch.tanh(b(h))
        m = c(k)
        return a(e(d(m))).sum() + h.sum() + k.sum(), h, k, m


class Cut(nn.Module):
    """Torch runs an operator in the middle: beside what it answers goes the residual stream."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        h = self.a(x)
        return self.norm(self.c(h + torch.special.erfcx(self.b(h))))


def orders():
    rows, image = torch.randn(2, 4), torch.randn(2, 3, 16, 16)
    for count in (1, 2, 3, 4, 5, 8, 13, 21):
        yield f"{count} layers", (lambda: nn.Sequential(*[nn.Linear(4, 4) for _ in range(count)])), (rows,)
    for name in ("LSTMCell", "GRUCell", "RNNCell"):
        yield name, (lambda: getattr(nn, name)(4, 4)), (rows,)
    yield "norms", (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.PReLU(4), nn.BatchNorm2d(4),
                                          nn.Conv2d(4, 2, 3, bias=False))), (image,)
    yield "residual", train_programs.resnet, (image,)
    yield "transformer", (lambda: nn.Transformer(8, 2, 1, 2, 16, dropout=0)), (torch.randn(3, 2, 8),) * 2
    yield "tied", Tied, (torch.tensor([1, 2, 3]),)
    yield "levels", Levels, (rows,)
    yield "cut", Cut, (rows,)
    yield "gpt2", train_programs.gpt2, (torch.arange(1, 9)[None],)


def noted(model):
    """The model, and a list that gets the name of each parameter whose hook is called."""
    torch.manual_seed(0)
    model, seen = model(), []
    for name, p in model.named_parameters():
        p.register_hook(lambda g, name=name: seen.append(name))
    return model, seen


def go_back(model, arguments):
    out = model(*arguments)
    out = getattr(out, "logits", out)
    (out[0] if isinstance(out, tuple) else out).sum().backward()


def hook_order(model, arguments, wrap):
    model, seen = noted(model)
    model = wrap(model)
    for _ in range(2):
        go_back(model, arguments)
    return seen


def step_order(model, arguments, wrap):
    """Several steps in one call: what the first ones read has been gone back through when the next ones begin."""
    model, seen = noted(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def steps():
        for _ in range(3):
            optimizer.zero_grad()
            go_back(model, arguments)
            optimizer.step()

    run = wrap(steps)
    for _ in range(2):
        run()
    return seen


@pytest.mark.parametrize("order", [hook_order, step_order])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_leaves_get_their_gradients_in_eagers_order(order):
    """What hooks of parameters see, and what DistributedDataParallel fills its buckets by."""
    wrong = []
    for name, model, arguments in orders():
        want, got = order(model, arguments, lambda f: f), order(model, arguments, dycl.accelerate)
        if want != got:
            wrong.append((name, want, got))
    assert not wrong, wrong
