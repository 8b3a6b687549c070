"""Norms, distances, selections, indices and losses where a gradient is needed: recorded between what is recorded
around them, with eager's values, gradients and names of nodes, for random shapes, layouts and special values."""

import itertools
import os
import random

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import one_thread  # noqa: F401 (a fixture)
from test_gradients import agree

dycl.accelerate(lambda: None)  # finds torch

INF, NAN = float("inf"), float("nan")
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, INF, -INF, NAN, 1e-30, -3.0]


def _index(x, dim=0):
    return torch.arange(x.shape[dim]).mul(3).remainder(max(1, x.shape[dim] - 1))


def _wide(x):
    return _index(x).view(-1, *[1] * (x.dim() - 1)).expand_as(x)


def rowed(t):
    return t.reshape(-1, t.shape[-1])


def some(t):
    if not t.numel() or t.numel() == t.shape[-1]:  # none, or one row
        raise ValueError("torch divides by zero: SIGFPE")
    return t


ONE = {
    "norm": lambda x: x.norm(dim=-1),
    "norm of all": lambda x: x.norm(),
    "norm, p 1": lambda x: torch.norm(x, 1, -1, True),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, dim=0, keepdim=True),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "normalize, p 1": lambda x: F.normalize(x, 1, -1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "logsumexp, kept": lambda x: torch.logsumexp(x, (0,), True),
    "max": lambda x: x.max(-1).values,
    "max, kept": lambda x: torch.max(x, 0, True)[0],
    "min": lambda x: x.min(0)[0],
    "max of all": lambda x: x.max(),
    "min of all": lambda x: x.min(),
    "median": lambda x: x.median(-1)[0],
    "nanmedian": lambda x: x.nanmedian(0, True)[0],
    "median of all": lambda x: x.median(),
    "kthvalue": lambda x: x.kthvalue(1, -1)[0],
    "mode": lambda x: x.mode(-1)[0],
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum, first": lambda x: x.cumsum(0),  # across rows: torch's
    "cumprod": lambda x: x.cumprod(-1),
    "cumprod, first, with zeros": lambda x: torch.where(x > 0.5, 0.0, x).cumprod(0),
    "diff": lambda x: x.diff(),
    "diff, first": lambda x: torch.diff(x, dim=0),
    "diag": lambda x: rowed(x).diag(1),
    "diag of a row": lambda x: torch.diag(rowed(x)[0], -1),
    "diag_embed": lambda x: torch.diag_embed(x, -1, 0, -1),
    "trace": lambda x: rowed(x)[:2, :2].trace(),
    "pdist": lambda x: torch.pdist(rowed(some(x))),
    "pdist, p 1": lambda x: F.pdist(rowed(some(x)), 1),
    "cummax": lambda x: x.cummax(-1)[0],
    "cummin": lambda x: x.cummin(0)[0],
    "index": lambda x: x[_index(x), _index(x) * 0],
    "index_add": lambda x: x.index_add(0, _index(x), x * 2),
    "index_add, alpha": lambda x: torch.zeros_like(x).index_add(0, _index(x), x, alpha=2),  # saves what is not scaled
    "index_fill": lambda x: x.index_fill(0, _index(x), 2.0),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(0, _wide(x), x),
    "scatter_reduce_ of zeros, amax": lambda x: torch.zeros_like(x).scatter_reduce_(0, _wide(x), x.round(), "amax"),
    "scatter_reduce of zeros, mean": lambda x: torch.zeros_like(x).scatter_reduce(
        0, _wide(x), x, "mean", include_self=False),
    "scatter": lambda x: x.scatter(0, _wide(x)[:1], x[:1] * 2),
    "scatter of a number": lambda x: x.scatter(0, _wide(x), 1.5),
    "index_put": lambda x: x.index_put((torch.arange(1),), x[:1] * 2),
    "index_put, from the end": lambda x: x.index_put((-1 - torch.arange(x.shape[0]),), x * 2),
    "index_put, added": lambda x: x.index_put((_index(x),), x * 2, accumulate=True),
    "acos": lambda x: x.acos(),
    "acosh": lambda x: x.acosh(),
    "asin": lambda x: x.asin(),
    "asinh": lambda x: x.asinh(),
    "atan": lambda x: x.atan(),
    "atanh": lambda x: x.atanh(),
    "erfc": lambda x: x.erfc(),
    "deg2rad": lambda x: x.deg2rad(),
    "rad2deg": lambda x: x.rad2deg(),
    "nan_to_num": lambda x: x.nan_to_num(0.5),
    "fmod of a number": lambda x: x.fmod(0.75),
    "remainder of a number": lambda x: x % 0.75,
    "sinh": lambda x: x.sinh(),
    "cosh": lambda x: x.cosh(),
    "sinc": lambda x: x.sinc(),
    "erfinv": lambda x: x.erfinv(),
    "lgamma": lambda x: x.lgamma(),
    "logit": lambda x: x.logit(),
    "logit, eps": lambda x: x.logit(1e-2),
    "logit, long enough for vectors": lambda x: torch.cat([x] * 23).logit(),
    "clamp_max": lambda x: x.clamp_max(0.5),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "repeat_interleave, each": lambda x: x.repeat_interleave(torch.arange(x.shape[0]) + 1, 0),
    "unfold": lambda x: x.unfold(0, 1, 1),
}
TWO = {
    "atan2": torch.atan2,
    "fmod": torch.fmod,
    "remainder": lambda x, y: x % y,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "max": torch.max,
    "min": torch.min,
    "copysign": torch.copysign,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "xlogy": torch.xlogy,
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y, dim=-1),
    "pairwise_distance": F.pairwise_distance,
    "pairwise_distance, p 1": lambda x, y: F.pairwise_distance(x, y, 1, keepdim=True),
}
# x [..., p, m], y [..., r, m]
PAIRS = {
    "cdist": lambda x, y: torch.cdist(x, y),
    "cdist, p 1": lambda x, y: torch.cdist(x, y, 1),
    "cdist, p 3": lambda x, y: torch.cdist(x, y, 3),
    "cdist, p inf": lambda x, y: torch.cdist(x, y, float("inf")),
    "cdist, products": lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
    "cdist, differences": lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
}


def share(t):
    """From 0 to 1, with both: whatever else raises."""
    return torch.where(t > 0, t.clamp(max=1), 0.0)


def lengths(t, dim):
    """One number along a dimension, as a weight norm has them."""
    return some(t).sum([d for d in range(t.dim()) if d != dim % t.dim()], keepdim=True)


def three(t):
    return torch.stack([t, t * -2, t.sin()], -1)


SAME = {
    "weight_norm": lambda x, y: torch._weight_norm(x, lengths(y, 0), 0),
    "weight_norm, last": lambda x, y: torch._weight_norm(x, lengths(y, -1), x.dim() - 1),
    "triplet": lambda x, y: F.triplet_margin_loss(x, y, x * y),
    "triplet, swapped": lambda x, y: F.triplet_margin_loss(x, y, x + y, swap=True, reduction="none"),
    "margin_ranking": lambda x, y: F.margin_ranking_loss(x, y, torch.ones_like(x), 0.5),
    "cross": lambda x, y: torch.cross(three(x), three(y), dim=-1),
    "linalg.cross": lambda x, y: torch.linalg.cross(three(x).movedim(-1, 0), three(y[:1]).movedim(-1, 0), dim=0),
    **{f"scatter_reduce, {how}{'' if own else ', not itself'}": lambda x, y, how=how, own=own: x.scatter_reduce(
        0, _wide(x).contiguous(), y, how, include_self=own)
       for how in ("sum", "mean", "amax", "amin") for own in (True, False)},
    "tensordot": lambda x, y: torch.tensordot(x, y, dims=([0], [0])),
    "inner": torch.inner,
    "hinge_embedding": lambda x, y: F.hinge_embedding_loss(x, y.sign(), 0.5),
    "hinge_embedding of each": lambda x, y: F.hinge_embedding_loss(x, y, reduction="none"),
    "cosine_embedding": lambda x, y: F.cosine_embedding_loss(rowed(x), rowed(y), rowed(y)[:, 0].sign(), 0.1),
    "cosine_embedding, margin": lambda x, y: F.cosine_embedding_loss(
        rowed(x), rowed(y), -torch.ones(len(rowed(x))), -0.5, reduction="sum"),
    "poisson_nll": lambda x, y: F.poisson_nll_loss(x, y),
    "poisson_nll of rates": lambda x, y: F.poisson_nll_loss(x.abs(), y.abs() * 3, log_input=False, full=True),
    "poisson_nll of each": lambda x, y: F.poisson_nll_loss(x, y.abs() * 3, full=True, reduction="none"),
    "smooth_l1": F.smooth_l1_loss,
    "smooth_l1, beta": lambda x, y: F.smooth_l1_loss(x, y, beta=0.5, reduction="none"),
    "huber": lambda x, y: F.huber_loss(x, y, delta=0.5, reduction="sum"),
    "soft_margin": lambda x, y: F.soft_margin_loss(x, y.sign()),
    "bce of shares": lambda x, y: F.binary_cross_entropy(share(x), share(y)),
    "bce of shares, weights": lambda x, y: F.binary_cross_entropy(
        share(x), share(y), y[..., :1].abs(), reduction="sum"),
    "bce of each share": lambda x, y: F.binary_cross_entropy(share(x), share(y), reduction="none"),
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "bce, weights": lambda x, y: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), y.abs(), reduction="sum", pos_weight=y[..., :1].abs()),
    "kl_div": lambda x, y: F.kl_div(x, y.softmax(-1), reduction="batchmean"),
    "kl_div of logarithms": lambda x, y: F.kl_div(x, y, log_target=True, reduction="none"),
}
LEFT = {"index_add, alpha"}
# the target learns nothing
FIXED = {"soft_margin", "bce of shares", "bce of shares, weights", "bce of each share", "bce", "bce, weights", "kl_div"}
# what is not made of one operator of torch's may round, or overflow, on another way
ROUNDS = {"cosine_similarity", "triplet", "triplet, swapped", "kl_div", "bce, weights", "norm", "norm of all",
          "vector_norm", "normalize", "pairwise_distance"}


def outcome(program, operands, cotangent, fixed):
    leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_(i == 0 or not fixed)
              for i, t in enumerate(operands)]
    result = program(*leaves)
    name = result.grad_fn.name()
    torch.autograd.backward([result], [cotangent(result)])
    strides = [leaf.grad is not None and leaf.grad.stride() for leaf in leaves]
    return [result.detach()] + [leaf.grad for leaf in leaves], name, strides


def compare(function, operands, what, fixed=False, fallible=False):
    def program(*leaves):
        return function(*(t * 1.0 for t in leaves)) * 2

    def cotangent(result):
        return torch.linspace(-2, 3, max(1, result.numel())).view(result.shape).to(result.dtype)

    accelerated = dycl.accelerate(program)
    want = outcome(program, operands, cotangent, fixed)
    for run in range(4):
        left = dycl.stats(accelerated)["torch"] if run else 0
        got = outcome(accelerated, operands, cotangent, fixed)
        for i, (x, y) in enumerate(zip(want[0], got[0])):
            assert agree(x, y), f"{what}, run {run}: {'gradient' if i else 'result'} {i}: {x} and {y}"
        assert want[1:] == got[1:], f"{what}, run {run}"
    assert fallible or dycl.stats(accelerated)["torch"] == left, f"{what}: {dycl.explain(accelerated)}"


def layouts(draw, shape, dtype):
    t = torch.randn(shape, dtype=dtype)
    kind = draw.choice(["plain", "plain", "turned", "stepped"])
    if kind == "turned" and len(shape) > 1:
        return kind, t.mT.contiguous().mT
    return kind, torch.stack([t, t], -1)[..., 1] if kind == "stepped" else t


@pytest.mark.parametrize("name", ONE)
def test_of_one(name):
    draw = random.Random(name)
    for _ in range(4):
        shape = tuple(draw.randint(2, 6) for _ in range(draw.choice([2, 2, 3])))
        dtype = draw.choice([torch.float32, torch.float32, torch.float64])
        compare(ONE[name], [torch.randn(shape, dtype=dtype)], f"{name} {shape} {dtype}", fallible=name in LEFT)


@pytest.mark.parametrize("name", TWO)
def test_of_two(name):
    draw = random.Random(name)
    for _ in range(4):
        shape = tuple(draw.randint(2, 6) for _ in range(draw.choice([2, 3])))
        dtype = draw.choice([torch.float32, torch.float64])
        other = shape if draw.random() < 0.5 else shape[1:] if draw.random() < 0.5 else (*shape[:-2], 1, shape[-1])
        compare(TWO[name], [torch.randn(shape, dtype=dtype), torch.randn(other, dtype=dtype)],
                f"{name} {shape} {other} {dtype}")


@pytest.mark.parametrize("name", PAIRS)
def test_of_pairs(name):
    draw = random.Random(name)
    for batch, dtype in itertools.product([(), (2,), (3, 2)], [torch.float32, torch.float64]):
        p, r, m = (draw.choice([2, 3, 7, 30]) for _ in range(3))
        operands = [torch.randn(*batch, p, m, dtype=dtype), torch.randn(*batch, r, m, dtype=dtype)]
        if name not in ("cdist", "cdist, products"):  # by products it is rounding, and its direction too
            operands[0][..., :1, :] = operands[1][..., :1, :]
        compare(PAIRS[name], operands, f"{name} {batch} {p} {r} {m} {dtype}")


@pytest.mark.parametrize("name", SAME)
def test_losses(name):
    draw = random.Random(name)
    for _ in range(4):
        shape = tuple(draw.randint(1, 6) + 1 for _ in range(2))
        dtype = draw.choice([torch.float32, torch.float64])
        operands = [torch.randn(shape, dtype=dtype) for _ in range(2)]
        compare(SAME[name], operands, f"{name} {shape} {dtype}", name in FIXED)


def look(function, operands, what, fixed=False):
    """Recorded or not, values and gradients are eager's."""
    def program(*leaves):
        return function(*(t * 1.0 for t in leaves)) * 2

    accelerated = dycl.accelerate(program)
    want = outcome(program, operands, torch.ones_like, fixed)
    for run in range(3):
        got = outcome(accelerated, operands, torch.ones_like, fixed)
        for i, (x, y) in enumerate(zip(want[0], got[0])):
            assert agree(x, y), f"{what}, run {run}: {'gradient' if i else 'result'} {i}: {x} and {y}"
        assert want[1:] == got[1:], f"{what}, run {run}"


@pytest.mark.parametrize("name", sorted(ONE.keys() - ROUNDS))
def test_special_values_of_one(name):
    draw = random.Random(name)
    for _ in range(12):
        values = draw.choice([EDGES, [0.0, 1.0], [0.0], [NAN, 1.0], [INF, -INF, 2.0]])
        x = torch.tensor([[draw.choice(values) for _ in range(4)] for _ in range(5)])
        look(ONE[name], [x], f"{name} {x.tolist()}")


@pytest.mark.parametrize("name", sorted((TWO | SAME).keys() - ROUNDS))
def test_special_values_of_two(name):
    draw = random.Random(name)
    for _ in range(12):
        values = draw.choice([EDGES, [0.0, 1.0], [0.0], [NAN, 1.0], [INF, -INF, 2.0]])
        x, y = (torch.tensor([[draw.choice(values) for _ in range(4)] for _ in range(5)]) for _ in range(2))
        look((TWO | SAME)[name], [x, y], f"{name} {x.tolist()} {y.tolist()}", name in FIXED)


@pytest.mark.parametrize("name", sorted((ONE | TWO | SAME).keys() & ROUNDS))
def test_zeros(name):
    """Rows of zeros, of tiny elements, equal rows, NaN and infinities in some rows."""
    for row in ([0.0] * 4, [1e-12] * 4, [1e-9, 0, 0, 0], [NAN, 1, 2, 3], [INF, 1, 2, 3], [0.0, 1, 1, 1]):
        for other in ([1.0, 2, 3, 4], row):
            x, y = torch.tensor([row, [1.0, -2, 0.5, 3]]), torch.tensor([other, [0.5, 0.5, 1, 2]])
            look((ONE | TWO | SAME)[name], [x] if name in ONE else [x, y], f"{name} {row} {other}",
                 name in FIXED)


@pytest.mark.parametrize("name", ONE)
def test_layouts_of_one(name):
    draw = random.Random(name)
    for _ in range(4):
        kind, x = layouts(draw, (draw.randint(2, 5), draw.randint(2, 5)), torch.float32)
        look(ONE[name], [x], f"{name} {kind}")


@pytest.mark.parametrize("name", TWO | SAME)
def test_layouts_of_two(name):
    draw = random.Random(name)
    for _ in range(4):
        shape = (draw.randint(2, 5), draw.randint(2, 5))
        (kind, x), (other, y) = (layouts(draw, shape, torch.float32) for _ in range(2))
        look((TWO | SAME)[name], [x, y], f"{name} {kind} {other}", name in FIXED)


# ---- What is seen of gradients besides their values

def _permuted(draw, t):
    order = draw.sample(range(t.dim()), t.dim())
    return t.permute(order).contiguous().permute([order.index(i) for i in range(t.dim())])


LAID = [
    lambda draw, t: t,
    _permuted,
    lambda draw, t: torch.stack([t, t], -1)[..., 1],
    lambda draw, t: torch.cat([t, t], -1)[..., t.shape[-1]:],
    lambda draw, t: t[:1].expand_as(t) if t.shape[0] else t,
    lambda draw, t: t.flatten()[:1].view(()).expand(t.shape) if t.numel() else t,
]
SHARED = {"median", "nanmedian", "median of all"}  # torch's kernels write into what they order: nothing expanded
AFTER = [lambda y: y, lambda y: y * 2, lambda y: y.sum(), lambda y: y.transpose(0, -1) if y.dim() else y * 1]
WAYS = ["grad", "backward", "twice", "graph", "write", "anomaly"]
REPLAYS = os.environ.get("DYCL_REPLAY") == "1"  # torch differentiates the parts: it saves what they need


def strides(t):
    return t is not None and [s for n, s in zip(t.shape, t.stride()) if n != 1]


def gradients_in(way, result, between, leaves, given):
    wanted = [t for t in leaves if t.requires_grad]
    if way == "write":  # no error where torch saves none of it
        with torch.no_grad():
            between.add_(1)
    if way == "backward":
        result.backward(given)
        return [t.grad for t in leaves]
    if way == "twice":
        first = torch.autograd.grad(result, wanted, given, retain_graph=True)
        return [*first, *torch.autograd.grad(result, wanted, given)]
    with torch.autograd.set_detect_anomaly(way == "anomaly", check_nan=False):
        once = torch.autograd.grad(result, wanted, given, create_graph=way == "graph")
    sums = [g.square().sum() for g in once if g.requires_grad]
    return [*once, *(torch.autograd.grad(sum(sums), wanted, allow_unused=True) if sums else ())]


def seen(program, operands, fixed, way, given):
    """What is shown of the result and the gradients, or the error's text up to what was written; and their values."""
    leaves = [t.detach().requires_grad_(i == 0 or not fixed) for i, t in enumerate(operands)]
    try:
        between, result = program(*leaves)
        shown = [(result.grad_fn.name(), result.shape, result.stride(), result._version)]
        gradients = gradients_in(way, result, between, leaves, given(result))
    except RuntimeError as error:
        return str(error).partition(" [")[0], []
    return [*shown, *map(strides, gradients)], [result.detach(), *(g is not None and g.detach() for g in gradients)]


def near(want, got):
    if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):  # nothing reaches it: as good as zeros
        return all(x is False or not x.any() for x in (want, got))
    return agree(want, got)


@pytest.mark.parametrize("name", ONE | TWO | SAME)
def test_strides_versions_and_errors(name):
    draw = random.Random(name)
    function, fixed = (ONE | TWO | SAME)[name], name in FIXED
    for _ in range(16):
        shape = tuple(draw.choice([0, 1, 2, 3, 4, 5, 9]) for _ in range(draw.choice([2, 2, 3, 4])))
        if 0 in shape and draw.random() < 0.7:
            shape = tuple(n or 2 for n in shape)
        dtype, way, after = draw.choice([torch.float32, torch.float64]), draw.choice(WAYS), draw.choice(AFTER)
        if way == "write" and REPLAYS:
            continue
        layouts = LAID[:4] if name in SHARED else LAID
        torch.manual_seed(draw.randrange(1000))
        operands = [draw.choice(layouts)(draw, torch.randn(shape, dtype=dtype)) for _ in range(1 if name in ONE else 2)]
        seed, place = draw.randrange(1000), draw.randrange(len(operands))

        def program(*leaves):
            pending = [t * 1.0 for t in leaves]
            return pending[place], after(function(*pending))

        def given(result):
            torch.manual_seed(seed)
            g = torch.randn(result.shape, dtype=dtype)
            return random.Random(seed).choice(LAID)(random.Random(seed), g) if g.dim() else g

        try:
            want = seen(program, operands, fixed, way, given)
        except (ValueError, IndexError):
            continue  # not of nothing
        accelerated = dycl.accelerate(program)
        for run in range(3):
            got = seen(accelerated, operands, fixed, way, given)
            what = f"{name} {shape} {[t.stride() for t in operands]} {dtype} {way} {AFTER.index(after)} run {run}"
            if way == "graph" or REPLAYS:  # sums are not made in place there
                got, want = (got[0][:1], got[1]), (want[0][:1], want[1])
            assert got[0] == want[0], what
            for i, (x, y) in enumerate(zip(want[1], got[1], strict=True)):
                assert near(x, y), f"{what}, {i}: {x} and {y}"


def test_a_contrastive_loss_is_one_segment():
    w, v, data = torch.randn(8, 6, requires_grad=True), torch.randn(8, 6, requires_grad=True), torch.randn(5, 6)

    def program():
        a, b = F.normalize(data @ w.t(), dim=-1), F.normalize(data @ v.t(), dim=-1)
        logits = a @ b.t() / 0.1
        return (logits.logsumexp(-1) - logits.diagonal()).mean()

    run = dycl.accelerate(program)
    for f in (program, *[run] * 4):
        w.grad = v.grad = None
        before = dycl.stats(run) if f is run else None
        loss = f()
        loss.backward()
        if f is program:
            want = loss.detach(), w.grad, v.grad
        assert all(agree(x, y) for x, y in zip(want, (loss.detach(), w.grad, v.grad)))
    after = dycl.stats(run)
    count = "replays" if REPLAYS else "segments"
    assert after["torch"] == before["torch"] and after[count] == before[count] + 1


NO_FORMULA = {
    "index_put of a broadcast value": lambda x, y: x.index_put((torch.tensor([0, 2]),), y[0] * 2),
    "bce of shares whose target learns": lambda x, y: F.binary_cross_entropy(share(x), share(y)),
    "bce whose target learns": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "smooth_l1 of what lies otherwise": lambda x, y: F.smooth_l1_loss(x, y.t().contiguous().t()),
}


@pytest.mark.parametrize("name", NO_FORMULA)
def test_what_has_no_formula_ends_no_segment_later(name):
    """It is left to torch where it is called: the segment around it is not replayed in each call."""
    operands = [torch.randn(4, 5) for _ in range(2)]

    def program(x, y):
        return NO_FORMULA[name](x * 1.0, y * 1.0) * 2

    run = dycl.accelerate(program)
    want = outcome(program, operands, torch.ones_like, False)
    for _ in range(4):
        got = outcome(run, operands, torch.ones_like, False)
        assert all(agree(x, y) for x, y in zip(want[0], got[0])) and want[1:] == got[1:]
    assert REPLAYS or dycl.stats(run)["replays"] == 0, dycl.explain(run)


def test_what_torch_has_no_derivative_of():
    for function in (lambda x: (7 % x).sum(), lambda x: torch.remainder(7, x * 2).sum()):
        for run in (function, dycl.accelerate(function)):
            with pytest.raises(RuntimeError, match="derivative for aten::remainder is not implemented"):
                run(torch.ones(3, requires_grad=True)).backward()


@pytest.mark.parametrize("seed", range(12))
def test_positions_of_any_dimension_from_both_ends(seed):
    """`x[:, at] = v` and its kin, sizes of the dimensions apart, positions from either end."""
    draw = random.Random(seed)
    for _ in range(6):
        shape = draw.sample([2, 3, 4, 5, 7], draw.randint(1, 4))
        dim = draw.randrange(len(shape))
        at = torch.tensor(draw.sample(range(shape[dim]), draw.randint(1, shape[dim])))
        at = torch.where(torch.rand(at.shape) < 0.5, at - shape[dim], at)
        index = (*[slice(None)] * dim, at)
        adds, history = draw.random() < 0.3, draw.random() < 0.3

        def program(x, v):
            y = (x if history else x.detach()) * 1.0  # noqa: B023
            if adds:  # noqa: B023
                y[index] += v * 2  # noqa: B023
            else:
                y[index] = v * 2  # noqa: B023
            return y * 3

        x, v = torch.randn(shape), torch.randn([len(at) if i == dim else n for i, n in enumerate(shape)])
        compare(program, [x, v], (shape, dim, at.tolist(), adds), fallible=True)
