"""Gradients of operands in every layout, against torch's: torch's operators with samples of its test database, whose
operands are leaves that lie transposed, channels last, in steps, in reverse, as parts of something larger or expanded,
alone in a region and between recorded operators, and so does the gradient that comes in. Compared are results (strides,
versions, names of nodes), the leaves' gradients with their strides, and errors with their text.

DYCL_TEST_FULL=1 takes all samples, DYCL_TEST_OPERATORS="add mul" those operators only."""

import itertools
import os
import random
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import dycl
from dycl import _core
from suite import FULL, RUNS, copy_of, is_strided, lot, map_tensors, node_of, one_thread, tensors_of  # noqa: F401
from test_gradients import agree

ONLY = os.environ.get("DYCL_TEST_OPERATORS", "").split()
SAMPLES = 2

dycl.accelerate(lambda: None)  # finds torch


def _plain(t):
    return t


def _turned(t):
    return t.mT.contiguous().mT if t.dim() > 1 else t


def _last(t):
    """Channels last, of whatever rank: the second dimension is the innermost."""
    return t.movedim(1, -1).contiguous().movedim(-1, 1) if t.dim() > 2 else t


def _stepped(t):
    return torch.stack([t, t], -1)[..., 1]


def _part(t):
    return torch.cat([t, t], -1)[..., t.shape[-1]:] if t.dim() else t


def _expanded(t):
    return t[:1].expand_as(t) if t.dim() and t.shape[0] else t


def _ones(t):
    """Steps of dimensions of size 1 are anything."""
    return t.as_strided(t.shape, [7 if n == 1 else s for n, s in zip(t.shape, t.stride())])


def _none(t):
    return t[..., :0] if t.dim() else t


def _none_first(t):
    return t[:0] if t.dim() else t


def _one(t):
    """One number for all elements, as `sum` and `mean` give it."""
    return t.flatten()[:1].view(()).expand(t.shape) if t.numel() else t


GIVEN = (lambda t: t, _one, _turned, _last, _stepped, _expanded, _ones)
# torch's kernels lay these gradients out in their own way, where strides of dimensions of size 1 are concerned.
OWN_ONES = {"nn.functional.logsigmoid", "nn.functional.avg_pool1d", "nn.functional.mse_loss", "stack"}
# Gradients that are asked for, not accumulated, and lie in their own way (docs/correctness.md)
OWN_LAYOUT = {"flip", "fliplr", "flipud", "roll", "ravel", "masked_fill", "var_mean", "var_mean.unbiased", "std_mean",
              "std_mean.unbiased", "stack", "vstack", "dstack", "repeat", "tile", "sum", "__rmatmul__",
              *(f"nn.functional.{name}" for name in """conv1d conv2d conv3d conv_transpose1d conv_transpose2d
              conv_transpose3d pad.reflect pad.constant interpolate.trilinear max_pool1d logsigmoid""".split())}
TORCH_CRASHES = {("nn.functional.pdist", _none_first)}  # its backward pass reads what is not there
LAYOUTS = (_plain, _turned, _last, _stepped, _part, _expanded, _ones, _none, _none_first)


def _alone(f):
    return lambda *operands: f(operands[0], *operands[1], **operands[2])


def _asked(f):
    """As torch.autograd.grad gives them: what is accumulated lies as its leaf."""
    return lambda *operands: f(operands[0], *operands[1], **operands[2])


def _between(f):
    def between(*operands):
        first, args, kwargs = map_tensors(lambda t: t * 1.0 if t.dtype.is_floating_point else t, operands)
        result = f(first, *args, **kwargs)
        return map_tensors(lambda t: t.abs() + 1 if t.dtype.is_floating_point else t, result)

    return between


def _outcome(program, operands, given, ones=True, asked=False):
    """What is shown of the results, results and leaves' gradients; or the error. given: how gradients come in; ones:
    strides of the gradients' dimensions of size 1 are shown, too (None: no strides); asked: gradients are not
    accumulated."""
    operands = map_tensors(copy_of, operands)
    leaves = [t for t in tensors_of(operands) if t.requires_grad]
    torch.manual_seed(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = tensors_of(program(*operands))
            shown = [(node_of(r), r.requires_grad, r.stride(), r._version) for r in results]
            wanted = [r for r in results if r.requires_grad]
            given = [given((torch.arange(r.numel()) * 0.7).sin().to(r.dtype).view(r.shape)) for r in wanted]
            gradients = [None] * len(leaves)
            if wanted and asked:
                gradients = torch.autograd.grad(wanted, leaves, given, allow_unused=True)
            elif wanted:
                torch.autograd.backward(wanted, given)
                gradients = [leaf.grad for leaf in leaves]
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}", [], []
    shown += [None if g is None else () if ones is None else [s for n, s in zip(g.shape, g.stride()) if ones or n != 1]
              for g in gradients]
    return shown, [r.detach() for r in results], gradients


def _double(operands):
    return map_tensors(lambda t: copy_of(t).detach().double().requires_grad_(t.requires_grad)
                       if t.dtype == torch.float32 else t, operands)


def _near(program, operands, given, kind, i, want, got):
    """Equal but for rounding; where eager's own is as far from what float64 gives, any."""
    if agree(want, got):
        return True
    if want is None or got is None or want.dtype != torch.float32:
        return False
    truth = _outcome(program, _double(operands), given)[kind][i]
    return bool(((got - truth).abs().max() <= 2 * (want - truth).abs().max()).item())


def _compare(program, operands, given, ones, asked, what):
    want = _outcome(program, operands, given, ones, asked)
    if not all(is_strided(r) for r in want[1]):
        return
    run = dycl.accelerate(program)
    for nth in range(RUNS):
        got = _outcome(run, operands, given, ones, asked)
        assert got[0] == want[0], f"{what}, run {nth}"
        for kind, name in ((1, "result"), (2, "gradient")):
            for i, (x, y) in enumerate(zip(want[kind], got[kind], strict=True)):
                assert _near(program, operands, given, kind, i, x, y), f"{what}, run {nth}: {name} {i}: {x} and {y}"


def _cases():
    for op in op_db:
        if ONLY and op.full_name not in ONLY:
            continue
        if torch.float32 not in op.supported_backward_dtypes("cpu") or not op.supports_autograd:
            continue
        if FULL or ONLY or any(f is not None and _core.bound(f) for f in (op.op, op.method_variant)):
            yield pytest.param(op, id=op.full_name)


def _samples(op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=True),
                                        None if FULL else 24))
    order = sorted(range(len(samples)), key=lambda i: lot("layout", op.full_name, i))
    for i in sorted(order if FULL else order[:SAMPLES]):
        yield i, samples[i]


@pytest.mark.parametrize("op", _cases())
def test_layouts(op):
    for i, sample in _samples(op):
        for layout in LAYOUTS:
            if (op.full_name, layout) in TORCH_CRASHES:
                continue

            def laid(t):
                t, wanted = t.detach(), t.requires_grad
                return (layout(t) if is_strided(t) and t.dtype.is_floating_point else t).requires_grad_(wanted)

            operands = map_tensors(laid, (sample.input, sample.args, sample.kwargs))
            forms = list(itertools.product((_alone, _asked, _between), GIVEN))
            some = random.Random(f"{op.full_name} {i} {layout.__name__}").sample(forms, 1)
            for form, given in forms if FULL else some:
                ones = None if form is _asked and op.full_name in OWN_LAYOUT else op.full_name not in OWN_ONES
                _compare(form(op.op), operands, given, ones, form is _asked,
                         f"sample {i} {layout.__name__} {form.__name__} {GIVEN.index(given)}")


ODD = [((2, 2, 1, 1), (2, 1, 4, 1)), ((2, 2, 1, 1), (2, 1, 1, 4)), ((2, 1, 2, 1), (2, 7, 1, 9)),
       ((1, 3, 1, 2), (1, 2, 50, 1)), ((2, 3, 1), (3, 1, 3)), ((2, 3, 1), (1, 2, 1)), ((0,), (3,)), ((0, 3), (5, 7)),
       ((2, 0, 3), (5, 7, 1))]
KEEPS = {name: getattr(torch.nn.functional, name)
         for name in "relu gelu silu mish hardswish hardsigmoid leaky_relu elu celu selu softplus hardtanh "
                     "hardshrink".split()}
KEEPS |= {name: getattr(torch, name) for name in "abs sin tanh exp sigmoid sqrt reciprocal clone".split()}
KEEPS |= {
    "number": lambda x: x * 2, "itself": lambda x: x * x, "over": lambda x: x / (x + 3),
    "clamp": lambda x: x.clamp(-1, 1), "clamp_min": lambda x: x.clamp_min(0.1),
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "maximum": lambda x: torch.maximum(x, x * 0.5), "where": lambda x: torch.where(x > 0, x, x * 2),
    "threshold": lambda x: torch.nn.functional.threshold(x, 0.1, 0.0), "slice": lambda x: x[..., :1] * 2,
    "three": lambda x: x.sin() + x.cos() + x * x, "mean": lambda x: x.mean(-1),
    "total": lambda x: x.sum(0, keepdim=True) * x, "all": lambda x: x * 2 + x.sum(),
}  # fmt: skip
READ = {"sum": lambda y: y.sum(), "squares": lambda y: (y * y).sum()}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("name", KEEPS)
def test_dimensions_of_size_1(name, read):
    """Also where nobody names their strides: sums that torch makes in place lie as what they add to, kernels of
    activations as gradient and operand say, and of nothing there are contiguous zeros."""

    def gradients(x):
        leaf = x.detach().clone().requires_grad_()
        return torch.autograd.grad(READ[read](KEEPS[name](leaf)), leaf)[0]

    ours = dycl.accelerate(gradients)
    for sizes, strides in ODD:
        x = torch.empty_strided(sizes, strides).uniform_(0.1, 2)
        want, got = gradients(x), ours(x)
        assert want.stride() == got.stride(), (sizes, strides)
        agree(want, got)


AT = torch.tensor([0, 2, 1, 1])
SUMS = {
    "select": lambda x: x + x.index_select(0, AT), "select first": lambda x: x.index_select(0, AT) + x,
    "gather": lambda x: x + x.gather(0, AT[:, None].expand(4, 5)), "rows": lambda x: x * 2 + x.index_select(0, AT),
    "cumsum": lambda x: x + x.cumsum(-1), "added": lambda x: x.index_add(0, AT, x * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_gradients_that_lie_differently(name):
    """What comes first may not be written, as somebody has it: then torch lays the sum out as it does any other, and
    not as what comes second."""
    x, given = torch.randn(4, 5, requires_grad=True), torch.randn(5, 4).t()
    run = dycl.accelerate(SUMS[name])
    want = torch.autograd.grad(SUMS[name](x), x, given)[0]
    for _ in range(3):
        got = torch.autograd.grad(run(x), x, given)[0]
        assert want.stride() == got.stride() and agree(want, got)


PLACES = {
    "row": 1, "slice": slice(1, 3), "column": (slice(None), 2), "last": (..., slice(0, 2)), "list": [0, 2],
    "rows": AT, "rows of a table": AT.view(2, 2), "turned table": AT.view(2, 2).t(), "cube": AT.view(2, 1, 2),
    "columns": (slice(None), AT), "columns of a table": (slice(None), AT.view(2, 2)), "last of rows": (..., AT),
    "last of a table": (..., AT.view(2, 2)), "two": (AT, AT), "two apart": (AT, slice(None), AT), "three": (AT, AT, AT),
    "rows from the end": -1 - AT,
    "row and table": (1, AT.view(2, 2)), "table and slice": (AT.view(2, 2), slice(1, 3)), "new": (None, 0),
    "none": None,
}  # fmt: skip


@pytest.mark.parametrize("asked", (False, True), ids=("accumulated", "asked"))
@pytest.mark.parametrize("name", PLACES)
def test_what_is_written_or_read(name, asked):
    """What the database has no samples of: the gradient of what was written at a place, and of what was read there,
    however the gradient lies."""
    place = PLACES[name]

    def write(x, v):
        y = x * 1.0
        y[place] = v
        return y

    x = torch.randn(4, 5, 6)
    for program, v in ((write, torch.randn_like(x[place])), (write, torch.randn(())), (lambda x, v: x[place], x)):
        operands = (x.clone().requires_grad_(), v.requires_grad_())
        for given in GIVEN:
            _compare(program, operands, given, name not in ("new", "none"), asked, f"{name} {GIVEN.index(given)}")


NOTHING = {
    "all of it": lambda x: x[..., :x.shape[-1]], "transposed": lambda x: x.transpose(0, -1),
    "turned": lambda x: x.permute(*reversed(range(x.dim()))), "expanded": lambda x: x.expand(2, *x.shape),
    "rows": lambda x: x.sum(0),
}  # fmt: skip
BEHIND = {"itself": lambda y: y, "mish": torch.nn.functional.mish, "exp": torch.exp, "cumsum": lambda y: y.cumsum(-1)}


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("name", NOTHING)
def test_views_without_elements(name, behind):
    """A gradient goes through what shows everything as it lies, also where that is nothing."""
    def gradients(x):
        return torch.autograd.grad(BEHIND[behind](NOTHING[name](x)).sum(), x)[0]

    ours = dycl.accelerate(gradients)
    for x in (torch.randn(2, 0, 1), torch.randn(2, 0, 3), torch.randn(3, 0).t(), torch.randn(0, 3, 2)[..., ::2]):
        leaf = x.requires_grad_()
        want, got = gradients(leaf), ours(leaf)
        assert want.shape == got.shape and want.stride() == got.stride(), (x.shape, x.stride())


SPARSE = {  # of what is looked up, with gradients that torch's own nodes answer for sparse ones
    "mul": lambda w, v: w * 2, "add": lambda w, v: w + v, "exp": lambda w, v: w.exp(), "neg": lambda w, v: -w,
    "div": lambda w, v: w / 2, "clone": lambda w, v: w.clone(), "by a tensor": lambda w, v: w * v,
    "by a row": lambda w, v: w * v[0], "sub": lambda w, v: v - w, "in place": lambda w, v: w.clone().mul_(2),
    "sum": lambda w, v: w + w.sum()}


@pytest.mark.parametrize("what", SPARSE)
@pytest.mark.parametrize("accumulated", [False, True])
def test_sparse_gradients(what, accumulated):
    """Dense behind a segment; the values are eager's."""
    operands = torch.randn(5, 3), torch.randn(5, 3)

    def program():
        w, v = leaves = [t.clone().requires_grad_() for t in operands]
        rows = torch.nn.functional.embedding(torch.tensor([0, 1, 1]), SPARSE[what](w, v), sparse=True)
        if accumulated:
            rows.sum().backward()
            return [t.grad for t in leaves]
        return torch.autograd.grad(rows, leaves, torch.ones_like(rows), allow_unused=True)

    accelerated = dycl.accelerate(program)
    for _ in range(3):
        for expected, actual in zip(program(), accelerated()):
            assert (expected is None) == (actual is None)
            if expected is not None:
                torch.testing.assert_close(actual.to_dense(), expected.to_dense())


TURNED = {
    "t None": lambda w: w.t()[None], "None mT": lambda w: w[None].mT, "T": lambda w: w.t(),
    "None": lambda w: w[None], "end": lambda w: w.t()[..., None], "between": lambda w: w[:, None].transpose(0, 2),
    "twice": lambda w: w.t()[None, :, None].squeeze(0), "squeezed": lambda w: w.squeeze(0)[None, :, None],
}  # fmt: skip


@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize("name", TURNED)
def test_dimensions_that_are_turned_and_added(name, product):
    """The gradient of a view goes back as the view was made, to a leaf whose own dimension of size 1 is among them."""
    for sizes in ((1, 6), (6, 1), (1, 1), (4, 6)):
        w = torch.arange(float(sizes[0] * sizes[1])).view(sizes) * 0.1

        def gradient():
            leaf = torch.nn.Parameter(w)
            turn = TURNED[name]  # nobody holds the view: its gradient is a part of the leaf's
            if product and turn(w).ndim == 3:
                y = torch.bmm(turn(leaf), torch.ones(*turn(w).shape[::2], 3))
            else:
                y = turn(leaf) * 2
            y.tanh().sum().backward()
            return leaf.grad

        ours = dycl.accelerate(gradient)
        want, got = gradient(), ours()
        assert want.stride() == got.stride() and agree(want, got), (sizes, want.stride(), got.stride())


SHARED = {
    "mm": lambda v: v @ v.mT, "mm turned": lambda v: v.mT @ v, "linear": torch.nn.functional.linear,
    "bmm": lambda v: torch.bmm(v[None], v.mT[None]), "einsum": lambda v: torch.einsum("ij,kj->ik", v, v),
    "addmm": lambda v: torch.addmm(v[:, :1], v, v.mT), "turned": lambda v: v.mT * v.mT,
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_gradients_of_one_tensor_that_is_several_operands(name):
    """torch adds them up in place only where nobody else has the memory of the first: a view's base has."""
    function = SHARED[name]
    for sizes in ((2, 1), (1, 3), (3, 1), (1, 1), (2, 3)):
        for strides in ((sizes[1], 1), (1, sizes[0]), (1, 2), (5, 1), (2, 7)):
            x = torch.randn(64).as_strided(sizes, strides)

            def gradient():
                leaf = x.detach().clone().requires_grad_()
                (function(leaf, leaf) if name == "linear" else function(leaf)).exp().sum().backward()
                return leaf.grad

            want, got = gradient(), dycl.accelerate(gradient)()
            assert want.stride() == got.stride() and agree(want, got), (sizes, strides, want.stride(), got.stride())


USES = {
    "square": lambda v: v * v, "flat": lambda v: v.flatten().exp(), "turned": lambda v: (v.t() * 2).exp(),
    "cat": lambda v: torch.cat([v, v * 2], 1), "slice": lambda v: v[:, :1] * 2, "chunk": lambda v: v.chunk(2, 0)[0] * 2,
    "row": lambda v: v[:1].expand(3, -1) * 2, "relu": torch.nn.functional.relu, "stack": lambda v: torch.stack([v, v]),
    "linear": lambda v: torch.nn.functional.linear(v, v), "Tmm": lambda v: v.mT @ v,
    "mm": lambda v: v @ torch.ones(v.shape[1], 2), "outer": lambda v: torch.outer(v[0], v[0]),
    "einsum": lambda v: torch.einsum("ij,kj->ik", v, v), "mean": lambda v: v - v.mean(0),
    "addmm": lambda v: torch.addmm(v[:, :1], v, v.mT), "bmm": lambda v: torch.bmm(v[None], v.mT[None]),
    "part of a transpose": lambda v: v.mT[:1] * 2, "row of a transpose": lambda v: v.mT[0].exp(),
    "transpose's uses": lambda v: (lambda t: t.exp() * t + t.t().t())(v.t()), "copy": lambda v: v.t().reshape(-1).exp(),
    "gelu": torch.nn.functional.gelu, "added": lambda v: v + v.mT.mT,
    "pairs": lambda v: (v[:, None] - v[None]).pow(2), "exp": torch.exp,
}  # fmt: skip
SHAPES = [((3, 1), (1, 3)), ((1, 3), (3, 1)), ((1, 3), (1, 1)), ((1, 2), (1, 1)), ((2, 1), (1, 2)), ((3, 2), (1, 3)),
          ((2, 3), (1, 2)), ((3, 3), (5, 1)), ((3, 1), (2, 7))]


def _of_uses(names, x, asked):
    leaf = x.detach().clone().requires_grad_()
    v = leaf * 1.5 if asked else leaf
    loss = sum(USES[name](v).sum() for name in names)
    if asked:
        return torch.autograd.grad(loss, (leaf, v))
    loss.backward()
    return [leaf.grad]


@pytest.mark.parametrize("name", USES)
def test_sums_of_several_uses(name):
    """torch adds to what the use gave that stands last in the program, in place where it may; here parts of one tensor
    wait for each other, and products that share an operand."""
    draw = random.Random(f"uses {name}")
    for _ in range(300 if FULL else 16):
        names = [name, *draw.choices(list(USES), k=draw.choice((1, 1, 2)))]
        draw.shuffle(names)
        (sizes, strides), asked = draw.choice(SHAPES), draw.random() < 0.7
        x = torch.randn(64).as_strided(sizes, strides)
        want = _of_uses(names, x, asked)
        got = dycl.accelerate(_of_uses)(names, x, asked)
        for i, (e, g) in enumerate(zip(want, got, strict=True)):
            assert e.stride() == g.stride() and agree(e, g), (names, sizes, strides, asked, i, e.stride(), g.stride())
