"""What a program sees of the nodes of autograd's graph is what it sees in eager: their names, in print,
repr and errors, which output of its node a tensor is, and which tensors are views.

Every operator of torch's test database with its samples, and a population of small programs."""

import inspect
import itertools
import re
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import FULL, RUNS, lot, map_tensors, one_thread, tensors_of  # noqa: F401 (a fixture)
from test_gradients import _cases, _leaf, _samples

dycl.accelerate(lambda: None)  # finds torch


def seen(t):
    """What of a result's node can be seen without walking on."""
    node = t.grad_fn
    if node is None:
        return None, t.requires_grad
    printed = re.search(r"grad_fn=<\w+>", repr(t) if t.numel() < 1000 else repr(t[..., :1]))
    return (type(node).__name__, type(node).__module__, type(node).__qualname__, node.name(),
            re.sub("0x[0-9a-f]+", "", repr(node)), printed and printed[0], t.output_nr, t._is_view(),
            isinstance(node, torch.autograd.graph.Node))


def shared(results):
    """Which results have one node."""
    return [[a.grad_fn is b.grad_fn for a in results] for b in results if b.grad_fn is not None]


def outcome(program):
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = tensors_of(program())
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            return type(error).__name__
        return [seen(t) for t in results], shared(results)


def compare(program, what):
    expected, accelerated = outcome(program), dycl.accelerate(program)
    for run in range(RUNS):
        assert outcome(accelerated) == expected, f"{what}, run {run}"


def windows(function, sizes, strides, pending):
    def program():
        x = torch.arange(64.0).as_strided(sizes, strides).requires_grad_()
        y = torch.ones(16).as_strided(sizes[-2:], strides[-2:]).requires_grad_()
        return function(*((x * 1.0, y * 1.0) if pending else (x, y)))

    return program


@pytest.mark.parametrize("strides", [(8, 1, 1), (1, 1, 1), (2, 1, 1), (1, 2, 1), (4, 4, 1), (0, 1, 1), (1, 8, 1),
                                     (3, 1, 2)])
def test_elements_that_overlap(strides):
    """Which of two dimensions is the inner one decides whether torch has to lay a result out anew."""
    functions = (lambda x, y: F.rms_norm(x, y.shape, y), lambda x, y: F.rms_norm(x, y.shape[1:]), torch.mul,
                 lambda x, y: torch.lerp(x, y, 0.3), lambda x, y: (x + y).view(-1), lambda x, y: (x * y).contiguous(),
                 lambda x, y: (x + 1).reshape(-1), lambda x, y: F.layer_norm(x, y.shape, y), lambda x, y: x.flatten())
    for sizes in ((2, 2, 4), (2, 4, 2), (3, 3, 3), (4, 2, 3)):
        for function, pending in itertools.product(functions, (False, True)):
            compare(windows(function, sizes, strides, pending), f"{sizes} {pending}")


def scaled(t):
    """Pending, where it is recorded."""
    return t * 1.0 if t.dtype.is_floating_point else t


@pytest.mark.parametrize("op, dtype", _cases())
def test_operators(op, dtype):
    for i, sample in itertools.islice(_samples(op, dtype), None if FULL else 1):
        first, args, kwargs = (map_tensors(lambda t: _leaf(t, ""), x)
                               for x in (sample.input, sample.args, sample.kwargs))

        compare(lambda: op.op(first, *args, **kwargs), f"sample {i}")
        compare(lambda: op.op(map_tensors(scaled, first), *map_tensors(scaled, args), **map_tensors(scaled, kwargs)),
                f"sample {i}, pending operands")


def _named(function, operands):
    """The operands by the names that the function's signature, or torch's schema, has for them; None: unknown."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        aten = getattr(torch.ops.aten, function.__name__, None)
        kinds = [getattr(aten, name)._schema.arguments for name in aten.overloads()] if aten else []
        kinds = [[a.name.replace("self", "input") for a in kind if not a.kwarg_only] for kind in kinds]
        names = next((kind for kind in kinds if len(kind) >= len(operands)), [])
    return dict(zip(names, operands)) if len(names) >= len(operands) else None


NUMPYS = {"input": "x", "other": "x2", "dim": "axis", "keepdim": "keepdims"}  # which torch's parser takes, too


@pytest.mark.parametrize("op, dtype", [case for case in _cases() if case.values[1] == torch.float32])
def test_operators_by_name(op, dtype):
    """In the order of the operands, in the reverse, and by NumPy's names; pending operands, too, which may come back as
    they were."""

    def pending(named):
        operands = {key: map_tensors(scaled, x) for key, x in named.items()}
        return tensors_of(list(operands.values())), op.op(**operands)

    for i, sample in itertools.islice(_samples(op, dtype), None if FULL else 6):
        named = _named(op.op, [map_tensors(lambda t: _leaf(t, ""), x) for x in (sample.input, *sample.args)])
        if named is None or not named.keys().isdisjoint(sample.kwargs):
            continue
        named |= {key: map_tensors(lambda t: _leaf(t, ""), x) for key, x in sample.kwargs.items()}
        for turned in (named, dict(reversed(named.items())), {NUMPYS.get(key, key): x for key, x in named.items()}):
            compare(lambda turned=turned: op.op(**turned), f"sample {i}, {list(turned)}")
        compare(lambda: pending(named), f"sample {i}, pending")


AS_THEY_WERE = {  # functions that may give their operand back
    torch.resolve_neg: {}, torch.resolve_conj: {}, torch.conj: {}, torch.real: {}, torch.positive: {},
    torch.flatten: {"end_dim": 0}, torch.dropout: {"p": 0.5, "train": False}, F.dropout: {"training": False},
    F.alpha_dropout: {"training": False}, F.dropout1d: {"training": False}, torch.atleast_1d: None,
    torch.Tensor.contiguous: None, torch.Tensor.float: None}


@pytest.mark.parametrize("function", AS_THEY_WERE, ids=lambda f: f.__name__)
def test_operands_that_come_back_keep_their_nodes(function):
    options, x = AS_THEY_WERE[function], torch.randn(3, 2, requires_grad=True)

    def program():
        y = x.roll(1, 0)
        z = function(y) if options is None else function(input=y, **options)
        return y, z, torch.tensor(y is z)

    compare(program, "it came back")


def test_recurrent_layers_by_name():
    x, state, weights = torch.randn(3, 2, 4), torch.randn(1, 2, 5), [torch.randn(5, 4), torch.randn(5, 5)]
    for leaf in weights:
        leaf.requires_grad_()
    options = {"has_biases": False, "num_layers": 1, "dropout": 0.0, "train": True, "bidirectional": False,
               "batch_first": False}
    compare(lambda: torch.rnn_relu(x, hx=state, params=weights, **options), "hx")
    compare(lambda: torch.rnn_tanh(**options, params=weights, hx=state, input=x), "all")
    compare(lambda: torch.rnn_relu(x=x, params=weights, hx=state, **options), "NumPy's name")
    compare(lambda: torch.rnn_relu(a=x, params=weights, hx=state, **options), "another of NumPy's names")


def test_operands_by_name():
    x, matrix = torch.randn(4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    compare(lambda: F.softplus(input=x, beta=2), "a function")
    compare(lambda: torch.mul(input=x, other=x), "an operator")
    compare(lambda: torch.moveaxis(input=matrix.exp(), source=(1, 0), destination=(1, 0)), "a view")
    compare(lambda: torch.swapaxes(input=matrix.exp(), axis0=-1, axis1=0), "another view")
    compare(lambda: torch.transpose(input=matrix.exp() * 2, dim0=0, dim1=1).mul(2), "what is made of one")


LIKE = {"dtype": lambda x, other: (x * 1).to(other), "type": lambda x, other: x.mul(2).type_as(other),
        "sizes": lambda x, other: x.exp().view_as(other), "reshaped": lambda x, other: (x.t() * 1).reshape_as(other),
        "expanded": lambda x, other: x[:1].exp().expand_as(other)}


@pytest.mark.parametrize("what", LIKE)
@pytest.mark.parametrize("needs", [False, True])
def test_operands_of_which_only_the_looks_count(what, needs):
    x, other = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, dtype=torch.float64, requires_grad=needs)
    compare(lambda: LIKE[what](x, other), what)


def test_indices():
    x, at = torch.randn(5, 4, requires_grad=True), torch.tensor(2)
    compare(lambda: (x * 1)[at], "one integer")
    compare(lambda: (x * 1)[:, at], "one integer behind a slice")
    compare(lambda: (x * 1)[at.reshape(1)], "a list of one")

    def written(index):
        y = x * 1
        y[index] = 0
        return y

    for index in (0, slice(1, 3), at):
        compare(lambda: written(index), f"written at {index}")


WRITTEN = {  # from an operand of three rows
    "made": lambda x: x - 1.5, "a view": lambda x: (x * 2)[:], "transposed": lambda x: (x * 2).t(),
    "a number": lambda x: x.sum(), "of another dtype": lambda x: x.double(), "one row": lambda x: x[:1] * 2,
    "one element": lambda x: x[:1, :1] * 1}
PLACES = [..., slice(None), None, 0, -1, True, False, (...,), (), (slice(None), slice(None)), (..., slice(None)),
          (None, ...), slice(0, 1), slice(0, 3), (0, 0), slice(None, None, 2), torch.ones(3, 3, dtype=torch.bool),
          torch.tensor([True, False, True]), torch.tensor([0, 1]), torch.tensor(0), torch.tensor(True)]
VALUES = {
    "int": lambda x: 2, "float": lambda x: 2.0, "bool": lambda x: True, "tensor number": lambda x: torch.tensor(2.0),
    "of another dtype": lambda x: torch.tensor(2), "one": lambda x: torch.ones(1),
    "of its shape": lambda x: torch.ones(3, 3), "that learns": lambda x: x * 3, "number that learns": lambda x: x.sum(),
    "detached": lambda x: (x * 2).detach()[0]}


@pytest.mark.parametrize("what", WRITTEN)
@pytest.mark.parametrize("value", VALUES)
def test_what_is_written(what, value):
    x = torch.randn(3, 3, requires_grad=True)

    def written(place):
        y = WRITTEN[what](x)
        y[place] = VALUES[value](x)
        return y, y * 2

    for place in PLACES:
        compare(lambda place=place: written(place), f"at {place}")


def test_indices_that_are_tensors(monkeypatch):
    """Which view it is depends on their elements, which not on what free memory has."""
    x, at = torch.randn(5, 4, requires_grad=True), torch.tensor(2)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, **kwargs: empty(*args, **kwargs).fill_(1))
    for case, function in {
        "one": lambda: (x * 1)[at], "behind a slice": lambda: (x * 1)[:, at], "two": lambda: (x * 1)[at, at],
        "computed": lambda: (x * 1)[at + 1], "of a view": lambda: (x * 1).view(4, 5)[at],
    }.items():
        compare(function, case)


def test_written_by_name():
    x = torch.randn(4, requires_grad=True)

    def written(function, **options):
        y = x * 1
        function(input=y, **options)
        return y

    compare(lambda: written(torch.relu_), "in place")
    compare(lambda: written(torch.clamp_, min=0), "in place, with a number")
    compare(lambda: written(F.relu, inplace=True), "a function that is told to")


NUMPY = {"operand": lambda x, n: x * n.float32(1.5), "reflected": lambda x, n: n.float64(2) * x,
         "alpha": lambda x, n: torch.add(x, 1, alpha=n.int64(2)), "bound": lambda x, n: x.clamp(min=n.float32(0)),
         "dimension": lambda x, n: x.sum(n.int64(1)), "axes": lambda x, n: x.transpose(n.int64(0), n.int64(1)),
         "sizes": lambda x, n: x.view(n.int64(4), n.int32(3)), "index": lambda x, n: x[n.int64(1)],
         "slice": lambda x, n: x[n.int64(1):], "logical": lambda x, n: x * n.bool_(True)}


@pytest.mark.parametrize("what", NUMPY)
def test_numbers_of_numpy(what):
    numpy = pytest.importorskip("numpy")
    x = torch.randn(3, 4, requires_grad=True)
    compare(lambda: NUMPY[what](x * 1.0, numpy), what)
    compare(lambda: NUMPY[what](x * 1.0, numpy).exp(), what)


COMPUTES = {  # what a binding reads of pending operands, to know that indices are in range
    "targets": lambda x: F.nll_loss(x, x.argmax(1)), "classes": lambda x: F.cross_entropy(x, (x > 0).long().argmax(1)),
    "rows": lambda x: F.embedding((x > 0).long()[:, 0], x),
    "selected": lambda x: x.index_select(0, (x > 0).long()[:, 0]),
    "gathered": lambda x: x.gather(1, (x > 0).long()), "taken": lambda x: x.take_along_dim((x > 0).long(), 1),
    "indexed": lambda x: x[(x > 0).long()[:, 0]], "added": lambda x: x.index_add(0, (x > 0).long()[:, 0], x * 2),
    "scattered": lambda x: x.scatter(1, (x > 0).long()[:, :1], 2.0)}


@pytest.mark.parametrize("what", COMPUTES)
def test_a_call_that_computes_what_is_pending(what):
    """The segment that begins within the call knows other values than the one before."""
    x, y = torch.randn(4, 3, requires_grad=True), torch.randn(3, 4)

    def program():
        logs = F.log_softmax(x, 1)
        y.swapaxes_(0, 1)  # torch writes it, and ends a segment
        return COMPUTES[what](logs)

    compare(program, what)
    compare(lambda: COMPUTES[what](F.log_softmax(x, 1) * 1.5).sum(), f"{what}, no result")


def test_names_are_asked_for_outside_of_inference_mode():
    x = torch.randn(4, 3, requires_grad=True)

    def program():
        y = torch.special.expm1(x * 1.25)
        with torch.inference_mode():
            y.sum().item()
        return y

    compare(program, "a value was needed in inference mode")
    compare(lambda: torch.special.expm1(x * 1.25), "the same without")


def test_names_are_asked_for_outside_of_transforms():
    x = torch.randn(4, 3, requires_grad=True)

    def program():
        y, z = torch.special.exp2(x * 1.125), x.detach() + 1
        torch.func.grad(lambda t: t.sum())(z)
        return y

    compare(program, "a transform ends the segment")


FIRST = """
import sys, torch, dycl
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.conv = nn.Embedding(9, 12), nn.Conv1d(12, 12, 5, padding=2, groups=12)
        self.norm, self.group, self.batch = nn.LayerNorm(12), nn.GroupNorm(4, 12), nn.BatchNorm1d(12)
        self.cell, self.linear = nn.LSTMCell(12, 12), nn.Linear(12, 9)
    def forward(self, at):
        x = self.norm(self.words(at))
        x = self.batch(self.group(F.gelu(self.conv(x.transpose(1, 2))))).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(x, x, x) * x.std(-1, keepdim=True)
        h, c = self.cell(x.mean(1))
        return F.cross_entropy(self.linear(h * c.sigmoid()), at[:, 0])

model, drawn = dycl.accelerate(Model()), torch.get_rng_state()
loss = model(torch.arange(14).view(2, 7) % 9)
assert type(loss.grad_fn).__name__ == "NllLossBackward0", loss
loss.backward()
assert torch.equal(drawn, torch.get_rng_state())
print(*sorted({"sympy", "torch._dynamo", "torch._inductor"} & set(sys.modules)))
"""


def test_names_do_not_import_the_compiler():
    """A first call would take a second and a half."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.strip() == "", done.stdout + done.stderr


@pytest.mark.parametrize("momentum", (None, 0.1))
@pytest.mark.parametrize("training", (False, True))
def test_names_of_a_batch_norm(momentum, training):
    norm = torch.nn.Sequential(torch.nn.Conv2d(2, 2, 1), torch.nn.BatchNorm2d(2, momentum=momentum)).train(training)
    x = torch.randn(2, 2, 5, 5, requires_grad=True)
    wanted = norm(x * 2).grad_fn.name()
    fast = dycl.accelerate(lambda x: norm(x * 2))
    for _ in range(2):
        assert fast(x).grad_fn.name() == wanted
