"""A second backward pass is an error exactly where it is one in eager: where the nodes on its way saved tensors, which
the first pass freed. Every operator of torch's test database, alone and between operators that save nothing."""

import itertools
import warnings

import pytest
import torch

import dycl
from suite import FULL, map_tensors, one_thread, tensors_of  # noqa: F401 (a fixture)
from test_gradients import _cases, fresh_operands

# Several results of one call have one node in torch, which a pass from any of them frees.
ONE_NODE = {"var_mean", "var_mean.unbiased", "std_mean", "std_mean.unbiased"}


def between(function):
    def shifted(t):
        return t + 1.0 if t.dtype.is_floating_point else t

    return lambda first, args, kwargs: map_tensors(shifted, function(
        *(map_tensors(shifted, x) for x in (first, *args)), **{key: map_tensors(shifted, x)
                                                               for key, x in kwargs.items()}))


def passes(program, sample, alone=None):
    """What two passes from each result say. alone: which of the operands has a history, if not all have."""
    leaves, operands = fresh_operands(sample, "")
    for i, leaf in enumerate([leaf for leaf in leaves if leaf.requires_grad]):
        leaf.requires_grad_(alone in (None, i))
    torch.manual_seed(1)
    try:
        results = [r for r in tensors_of(program(*operands)) if r.requires_grad]
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return [type(error)]
    wanted, said = [leaf for leaf in leaves if leaf.requires_grad], []
    for _, r in itertools.product(range(2), results):
        try:
            torch.autograd.grad(r, wanted, torch.ones_like(r), allow_unused=True)
            said.append("done")
        except RuntimeError as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("op, dtype", [case for case in _cases() if case.values[1] == torch.float32])
def test_operators(op, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), None if FULL else 8))
        for i, sample in enumerate(samples):
            for program in (lambda first, args, kwargs: op.op(first, *args, **kwargs), between(op.op)):
                want, got = passes(program, sample), passes(dycl.accelerate(program), sample)
                if op.full_name in ONE_NODE:
                    want, got = want[:1], got[:1]
                assert want == got, f"sample {i}"


@pytest.mark.parametrize("op, dtype", [case for case in _cases() if case.values[1] == torch.float32])
def test_operators_of_one_that_learns(op, dtype):
    """What torch saves depends on which operands have a history: a bias alone needs no weight."""
    def program(first, args, kwargs):
        return op.op(first, *args, **kwargs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), None if FULL else 3))
        for i, sample in enumerate(samples):
            leaves = [leaf for leaf in fresh_operands(sample, "")[0] if leaf.requires_grad]
            for alone in range(len(leaves)) if len(leaves) > 1 else ():
                want, fast = passes(program, sample, alone), dycl.accelerate(program)
                got = [passes(fast, sample, alone) for _ in range(2)]
                if op.full_name in ONE_NODE:
                    want, got = want[:1], [g[:1] for g in got]
                assert got == [want, want], f"sample {i}, {alone} of {len(leaves)}"


@pytest.mark.parametrize("size", [(4, 1), (1, 4), (1, 1), (3, 5)])
def test_averages_over_all_are_means(size):
    """torch takes mean there, which saves nothing."""
    x = torch.randn(2, 3, *size, requires_grad=True)
    pools = {1: lambda x: torch.nn.functional.adaptive_avg_pool2d(x * 1.0, 1).sum(),
             2: lambda x: torch.nn.functional.adaptive_avg_pool2d(x + 1, (1, 1)),
             3: lambda x: torch.nn.functional.adaptive_avg_pool2d(x + 1, (1, 2))}
    for pool in pools.values():
        seen = []
        for function in (pool, dycl.accelerate(pool)):
            y, said = function(x).sum(), []
            for _ in range(2):
                try:
                    y.backward()
                    said.append("done")
                except RuntimeError as error:
                    said.append(str(error))
            seen.append(said)
        assert seen[0] == seen[1]


@pytest.mark.parametrize("learns", ["both", "self", "source"])
@pytest.mark.parametrize("dim", range(3))
def test_index_add_of_each_dimension(dim, learns):
    """Its positions stand behind a list with nothing for the dimensions before."""
    def run(program):
        a, b = (torch.ones(3, 4, 5, requires_grad=learns in ("both", name)) for name in ("self", "source"))
        result, said = program(a, b), []
        for _ in range(2):
            try:
                result.sum().backward(retain_graph=False)
                said.append([None if t.grad is None else t.grad.clone() for t in (a, b)])
            except RuntimeError as error:
                said.append(str(error)[:40])
        return said

    def program(a, b):
        return a.index_add(dim, torch.tensor([2, 0, 2])[:b.shape[dim]], b.narrow(dim, 0, 3))

    want, accelerated = run(program), dycl.accelerate(program)
    for _ in range(3):
        got = run(accelerated)
        for a, b in zip(want, got, strict=True):
            assert a == b if isinstance(a, str) or isinstance(b, str) else \
                all(x is y or torch.equal(x, y) for x, y in zip(a, b, strict=True))
