"""What an operator makes of an alias (detach, a view, a part) is no view of it: every recorded operator of torch's test
database, where torch computes something before the segment ends."""

import itertools
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import dycl
from dycl import _core
from suite import FULL, RUNS, copy_of, is_strided, lot, map_tensors, one_thread, tensors_of  # noqa: F401 (a fixture)
from test_gradients import agree

dycl.accelerate(lambda: None)  # finds torch


ALIASES = (lambda t: t.detach(), lambda t: t.data, lambda t: t.detach().view(t.shape), lambda t: (t * 1).detach(),
           lambda t: t.chunk(1)[0] if t.dim() else t)


def looks(program, operands):
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = tensors_of(program(*map_tensors(copy_of, operands)))
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            return type(error).__name__, []
    return [(t.shape, t.dtype, t.stride(), t._version, t._is_view()) for t in results], results


def _recorded():
    for op in op_db:
        if torch.float32 in op.supported_dtypes("cpu") and "empty" not in op.name and any(
                f is not None and _core.bound(f) for f in (op.op, op.method_variant)):
            yield pytest.param(op, id=op.full_name)


@pytest.mark.parametrize("op", list(_recorded()))
def test_what_is_made_of_an_alias_is_none_of_it(op):
    """Where torch computes something before the segment's end, each result gets its tensor: views of what was computed
    from an alias lie in what was computed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32), None if FULL else 3))
    for i, sample in enumerate(samples):
        alias = ALIASES[lot(op.full_name, i) % len(ALIASES)]

        def program(first, args, kwargs, other):
            first, args = map_tensors(lambda t: alias(t) if t.dtype.is_floating_point else t, (first, args))
            result = op.op(first, *args, **kwargs)
            torch.linalg.svdvals(other * 2)  # torch's own
            return result

        operands = (sample.input, sample.args, sample.kwargs, torch.eye(2))
        want, results = looks(program, operands)
        if not all(is_strided(t) for t in results):
            continue
        run = dycl.accelerate(program)
        for _ in range(RUNS):
            got, ours = looks(run, operands)
            assert got == want, f"sample {i}, alias {ALIASES.index(alias)}"
            assert all(map(agree, results, ours)), f"sample {i}, alias {ALIASES.index(alias)}"
