"""Functions of several tensors whose operands have different dtypes, and perhaps no dimensions: results, gradients,
their dtypes and strides, and errors (some of torch's gradients refuse bools) are eager's."""

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import FULL, one_thread  # noqa: F401 (a fixture)

dycl.accelerate(lambda: None)  # finds torch


def rows(t):
    return torch.zeros_like(t, dtype=torch.int64)


def places(t):
    return torch.arange(t.shape[0])


def line(t, size):
    return t.reshape(-1)[:size]


OF_TWO = """hypot xlogy logaddexp logaddexp2 atan2 mul add sub div pow copysign maximum minimum fmax fmin fmod remainder
    float_power floor_divide dist cdist mm mv dot matmul bmm cross outer inner kron heaviside ldexp nextafter rsub eq
    logical_and bitwise_and smooth_l1_loss mse_loss l1_loss huber_loss binary_cross_entropy_with_logits kl_div
    soft_margin_loss poisson_nll_loss cosine_similarity pairwise_distance hinge_embedding_loss embedding_bag""".split()
OF_THREE = "lerp addcmul addcdiv baddbmm addmm gaussian_nll_loss triplet_margin_loss".split()
FUNCTIONS = {name: lambda x, y, z, name=name: (getattr(torch, name, None) or getattr(F, name))(x, y) for name in OF_TWO}
FUNCTIONS |= {name: lambda x, y, z, name=name: (getattr(torch, name, None) or getattr(F, name))(x, y, z)
              for name in OF_THREE}
FUNCTIONS |= {
    "where": lambda x, y, z: torch.where(z > 1.5, x, y), "cat": lambda x, y, z: torch.cat([x, y, z]),
    "stack": lambda x, y, z: torch.stack([x, y, z]), "ranking": lambda x, y, z: F.margin_ranking_loss(x, y, z.sign()),
    "entropy": lambda x, y, z: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "index_add": lambda x, y, z: x.index_add(0, places(x), y),
    "index_copy": lambda x, y, z: x.index_copy(0, places(x), y),
    "index_put": lambda x, y, z: x.index_put((places(x),), y),
    "scatter_add": lambda x, y, z: x.scatter_add(0, rows(y), y),
    "scatter_reduce": lambda x, y, z: x.scatter_reduce(0, rows(y), y, "amax"),
    "convolution": lambda x, y, z: F.conv1d(x.reshape(1, 1, -1), line(y, 2).reshape(1, 1, -1), line(z, 1)),
    "layer_norm": lambda x, y, z: F.layer_norm(x, x.shape[-1:], line(y, x.shape[-1]), line(z, x.shape[-1])),
    "group_norm": lambda x, y, z: F.group_norm(x, 1, line(y, x.shape[1]), line(z, x.shape[1])),
    "batch_norm": lambda x, y, z: F.batch_norm(x, None, None, line(y, x.shape[1]), line(z, x.shape[1]), True),
    "linear": lambda x, y, z: F.linear(x, y, line(z, 1)), "prelu": lambda x, y, z: F.prelu(x - 2, line(y, 1))}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8]
if FULL:
    DTYPES += [torch.float16, torch.int32, torch.int8, torch.int16]
SHAPES = [((3, 3), (3, 3)), ((3, 3), ()), ((), (3, 3)), ((3,), (3, 3)), ((), ())]


def outcome(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return program()
        except Exception as error:  # noqa: BLE001: it has to be eager's
            return type(error).__name__, str(error)


def compare(expected, actual):
    if isinstance(expected, tuple) or isinstance(actual, tuple):
        assert actual == expected
        return
    narrow = min(t.dtype.itemsize for t in expected if t is not None) < 4
    bound = 2e-2 if narrow else 1e-4  # two roundings of bfloat16; sums of nine numbers of float32
    for e, a in zip(expected, actual, strict=True):
        assert (e is None) == (a is None)
        if e is not None:
            assert (a.dtype, a.stride()) == (e.dtype, e.stride())
            torch.testing.assert_close(a.double(), e.double(), rtol=bound, atol=bound / 10, equal_nan=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    for (first, second), (some, others) in itertools.product(itertools.permutations(DTYPES, 2), SHAPES):

        def program():
            generator, leaves = torch.Generator().manual_seed(1), []

            def operand(shape, dtype):
                made = (torch.rand(shape, generator=generator) * 2 + 0.5).to(dtype)
                if not dtype.is_floating_point:
                    return made
                leaves.append(made.requires_grad_())
                return made * 1

            result = FUNCTIONS[name](operand(some, first), operand(others, second), operand(some, first))
            if not result.requires_grad:
                return [result]
            return [result.detach(), *torch.autograd.grad(result, leaves, torch.ones_like(result), allow_unused=True)]

        expected, accelerated = outcome(program), dycl.accelerate(program)
        for _ in range(2):
            compare(expected, outcome(accelerated))


@pytest.mark.parametrize("function", [torch.hypot, torch.logaddexp, torch.xlogy])
def test_steps_that_promote_have_gradients(function):
    """Were their formulas wrong in dtypes, torch would compute them in a replay."""
    leaves = [torch.rand(5, requires_grad=True), torch.rand(5, requires_grad=True)]

    def program(first, second):
        result = function(first.double(), second * 1)
        return torch.autograd.grad(result, leaves, torch.ones_like(result))

    accelerated = dycl.accelerate(program)
    for _ in range(3):
        compare(list(program(*leaves)), list(accelerated(*leaves)))
    stats = dycl.stats(accelerated)
    assert stats["segments"] and not stats["replays"] and not stats["backward_replays"]
