"""Operators that answer several tensors, on memory that NumPy shares: such a segment is computed at once, and every
result is there."""

import numpy as np
import pytest
import torch

import dycl

PROGRAMS = {
    "chunk": lambda x: x.chunk(3, -1),
    "split": lambda x: torch.split(x, [1, 3, 2], -1),
    "unbind": lambda x: x.unbind(0),
    "max": lambda x: x.max(-1),
    "iterate": lambda x: [row + 1 for row in x],
    "transpose": lambda x: (x.T, x.mT),
    "in place": lambda x: (x * 1).add_(x),
    "chunk of a result": lambda x: (x + 1).chunk(2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_results_are_there(name):
    program = PROGRAMS[name]
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = torch.from_numpy(array)

    def changed(x):  # the array changes behind torch's back, between the operator and the end of the call
        results = tuple(program(x))
        array[:] = -1
        return results

    with torch.no_grad():
        expected = [r.clone() for r in program(x)]
        aliases = [r.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for r in program(x)]
        for _ in range(3):
            array[:] = np.arange(24, dtype=np.float32).reshape(4, 6)
            got = dycl.accelerate(changed)(x)
            for r, e, alias in zip(got, expected, aliases):
                torch.testing.assert_close(r, torch.full_like(e, -1) if alias else e, rtol=0, atol=0)


def test_a_segment_has_a_bound():
    def program(x):
        parts = []
        for i in range(9000):
            x = x + 1
            parts = x.chunk(2)
        return x, parts

    x = torch.zeros(4)
    with torch.no_grad():
        y, parts = dycl.accelerate(program)(x)
    assert y.tolist() == [9000.0] * 4
    assert [p.tolist() for p in parts] == [[9000.0] * 2] * 2
