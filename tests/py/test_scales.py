"""Magnitudes at the ends of a float's range: torch computes many operators in one kernel that rounds once, where dycl
composes several that each round. A square, a product or a sum that overflows or vanishes on the way shows it: whether
elements are finite, and what they are, must be eager's.

Samples are op_db's, every float32 tensor multiplied. Where terms of both signs overflow, what is left hangs on their
order: those operators are compared at small magnitudes only."""

import itertools
import warnings

import pytest
import torch

import dycl
from dycl import _core
from samples import op_db
from suite import map_tensors, one_thread, run, tensors_of  # noqa: F401 (a fixture)

SMALL, LARGE = (1e-38, 1e-30, 1e-22, 1e-16), (1e16, 1e20, 1e30, 3e37)
SAMPLES = 6

# sums and products of terms that are infinite already, in an order of each one's own; sums that overflow where the mean
# does not
ORDERED = """
    addmm baddbmm bmm dot vdot matmul mm addmv mv addbmm addr linalg.multi_dot linalg.matmul inner einsum __rmatmul__ nn.functional.conv1d nn.functional.conv2d
    nn.functional.conv_transpose1d nn.functional.conv_transpose2d nn.functional.linear nn.functional.scaled_dot_product_attention
    nn.functional.layer_norm native_layer_norm nn.functional.group_norm nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
    nn.functional.interpolate index_add std var std_mean var_mean nn.functional.bilinear nn.functional.instance_norm
""".split()

# in training torch's sum for the mean overflows at the very end of the range, where its number of terms is small
SUMMED = ("nn.functional.batch_norm",)

dycl.accelerate(lambda: None)  # finds torch


def _cases():
    for op in op_db:
        if torch.float32 in op.supported_dtypes("cpu") and any(f is not None and _core.bound(f)
                                                               for f in (op.op, op.method_variant)):
            if not any(part in op.name for part in ("empty", "rand", "dropout", "normal", "uniform", "bernoulli",
                                                    "multinomial")):
                yield pytest.param(op, id=op.full_name)


def _large(op):
    return () if op.name in ORDERED else LARGE[:-1] if op.name in SUMMED else LARGE


def _outcome(f, inputs):
    result, _, error = run(lambda first, args, kwargs: f(first, *args, **kwargs), inputs)
    return type(error) if error else tensors_of(result)


def _same(want, got):
    if not isinstance(want, list) or not isinstance(got, list):
        return want == got
    for w, g in zip(want, got, strict=True):
        if not w.dtype.is_floating_point:
            if not torch.equal(w, g):
                return False
            continue
        w, g = w.double(), g.double()
        least = 1e-37  # what is smaller has lost its digits
        most = w[w.isfinite()].abs().max().item() if w.isfinite().any() else 0  # terms as large as this may cancel
        near = ((w - g).abs() <= (1e-4 * w.abs()).clamp_min(max(1e-4 * least, 1e-6 * most))) | (w == g) \
            | (w.isnan() & g.isnan())
        if not near.all():
            return False
    return True


@pytest.mark.parametrize("op", list(_cases()))
def test_ends_of_the_range(op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32), SAMPLES))
        wrong = []
        for (number, sample), scale in itertools.product(enumerate(samples),
                                                         SMALL + _large(op)):
            inputs = map_tensors(lambda t: t * scale if t.dtype == torch.float32 else t,
                                 (sample.input, tuple(sample.args), dict(sample.kwargs)))
            want = _outcome(op.op, inputs)
            call = dycl.accelerate(lambda first, *args, **kwargs: op.op(first, *args, **kwargs))
            wrong += [(number, scale) for _ in range(2) if not _same(want, _outcome(call, inputs))]
    assert not wrong, (op.full_name, wrong)


@pytest.mark.parametrize("function", [torch.std_mean, torch.var_mean, torch.std, torch.var])
def test_a_variance_does_not_overflow_before_it_is_one(function):
    """torch sums squares in doubles; the mean beside them is a double's too."""
    call = dycl.accelerate(lambda x, dim: function(x, dim))
    for scale, size in itertools.product((1e-25, 1e-10, 1e18, 1e25, 1e38), (2, 40, 700)):
        x = (torch.rand(3, size, generator=torch.Generator().manual_seed(size)) + 0.5) * scale
        for t, dim in ((x, 1), (x.T, 0), (x.T.contiguous(), 0), (x[:, None], (1, 2))):
            with torch.no_grad():
                want = function(t, dim)
                for _ in range(2):
                    torch.testing.assert_close(call(t, dim), want, rtol=1e-5, atol=0)


@pytest.mark.parametrize("function", [torch.std, torch.var])
def test_a_variance_of_nothing(function):
    """NaN whatever the correction."""
    for correction, shape in itertools.product((-2, -0.5, 0, 1), ((3, 0), (0, 3), (0,), (2, 0, 9))):
        call = dycl.accelerate(lambda x: (function(x, 0, correction=correction),
                                          function(x, -1, correction=correction)))
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.empty(shape)
            for _ in range(2):
                for want, got in zip((function(x, 0, correction=correction), function(x, -1, correction=correction)),
                                     call(x), strict=True):
                    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dim", [0, 1, (0, 2)])
@pytest.mark.parametrize("function", [torch.std, torch.var])
def test_a_variance_far_from_zero(function, dim):
    """What is left of the squares beside a mean that float32 cannot hold: a few rows decide how it is taken off."""
    accelerated = dycl.accelerate(lambda x: function(x, dim))
    x = 2.0**26 + 8 * torch.randint(0, 4, (3, 5, 40), generator=torch.Generator().manual_seed(1)).float()
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(accelerated(x), function(x.double(), dim).float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [65537, 98305, 131071, 200003])
def test_every_element_of_a_large_group_counts(size, threads):
    """Groups are measured in pieces: one large element, anywhere, moves the mean and the variance of all."""
    accelerated = dycl.accelerate(lambda x: torch.nn.functional.group_norm(x, 2))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for at in (0, size // 3 - 1, size // 3, size // 2 - 1, size // 2, 2 * size // 3, size - 2, size - 1):
            x = torch.randn(1, 2, size, generator=torch.Generator().manual_seed(at))
            x[0, :, at] = 1e4
            with torch.no_grad():
                torch.testing.assert_close(accelerated(x), torch.nn.functional.group_norm(x, 2), rtol=1e-5, atol=1e-5)
    finally:
        torch.set_num_threads(before)
