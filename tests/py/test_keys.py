"""Indexing with keys of all kinds, nested as nobody would write them: what is read, what is written, errors, strides
and versions are eager's, also where the value is of a kind that torch refuses."""

import random

import dycl
import numpy as np
import pytest
import torch

VALUES = [lambda x: 3.0, lambda x: torch.tensor(2.0), lambda x: torch.ones(3), lambda x: True, lambda x: np.float32(2),
          lambda x: x[:1], lambda x: [1.0, 2.0, 3.0], lambda x: np.ones(3, dtype=np.float32)]


def item(draw, depth=0):
    def place():
        return draw.randrange(-3, 3)

    kind = draw.randrange(16 if depth < 2 else 14)
    simple = (place(), slice(draw.choice([None, 0, 1]), draw.choice([None, 2, 3]), draw.choice([None, 1, 2])),
              None, ..., draw.random() < 0.5, [place() for _ in range(draw.randint(0, 3))],
              tuple(place() for _ in range(draw.randint(0, 3))), torch.tensor(place()),
              torch.tensor([place(), place()]), np.array([place(), place()]), np.int64(place()),
              torch.tensor([True, False, True]), [True, False, True], range(2))
    if kind < len(simple):
        return simple[kind]
    return (list, tuple)[kind - 14](item(draw, depth + 1) for _ in range(draw.randint(1, 2)))


def key(draw):
    items = [item(draw) for _ in range(draw.randint(0, 3))]
    return draw.choice([tuple(items), tuple(items), items, item(draw)])


def seen(tensor):
    return tensor.tolist(), tensor.shape, tensor.stride(), tensor._version, tensor.dtype


def outcome(function, *args):
    try:
        return str([seen(t) for t in function(*args)])
    except Exception as error:  # of any kind, to be compared
        return type(error).__name__, str(error)


OPERANDS = {
    "argument": lambda x, w: x, "pending": lambda x, w: x * w, "view": lambda x, w: (x * 2)[:3].t(),
    "integers": lambda x, w: (x * 2).int(),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.filterwarnings("ignore")
def test_random_keys(operand, seed):
    draw = random.Random(f"{operand} {seed}")
    for _ in range(60):
        k, value, form = key(draw), draw.choice(VALUES), draw.choice(["get", "set", "set", "add"])
        weight = torch.tensor(2.0, requires_grad=draw.random() < 0.2)

        def program(x):
            y = OPERANDS[operand](x, weight)
            if form == "get":
                return [y[k]]
            if form == "set":
                y[k] = value(x)
            else:
                y[k] += value(x)
            return [y, y * 2, x]

        x, fast = torch.arange(9.0).view(3, 3), dycl.accelerate(program)
        want = outcome(program, x.clone())
        for _ in range(2):
            assert outcome(fast, x.clone()) == want, (form, k, VALUES.index(value))
