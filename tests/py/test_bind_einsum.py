"""einsum of two operands: random equations, sizes and layouts; values and strides as torch's, whose result is often a
view of a product."""

import random

import dycl
import pytest
import torch


def program(equation, a, b, as_list):
    a, b = a * 1.0, b * 1.0
    product = torch.einsum(equation, [a, b]) if as_list else torch.einsum(equation, a, b)
    return product, product + 1


def operand(chance, labels, size):
    x = torch.randn([1 if chance.random() < 0.1 else size[label] for label in labels],
                    dtype=chance.choice((torch.float32, torch.float64)))
    if x.dim() > 1 and chance.random() < 0.3:
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    return x


def equation(chance):
    labels = chance.sample("abcdeXYZ", chance.randrange(1, 6))
    left, right = (chance.sample(labels, chance.randrange(1, len(labels) + 1)) for _ in range(2))
    union = list(dict.fromkeys(left + right))
    out = chance.sample(union, chance.randrange(len(union) + 1))
    arrow = "->" + "".join(out) if chance.random() < 0.8 else ""
    return (left, right, chance.choice((",", " , ")).join(("".join(left), "".join(right))) + arrow,
            {label: chance.choice((1, 1, 2, 3, 4)) for label in labels})


@pytest.mark.parametrize("seed", range(4))
def test_random_equations(seed):
    chance = random.Random(seed)
    torch.manual_seed(seed)
    recorded = 0
    for _ in range(150):
        left, right, text, size = equation(chance)
        a, b = operand(chance, left, size), operand(chance, right, size)
        if chance.random() < 0.9:
            b = b.to(a.dtype)
        as_list, ours, outcomes = chance.random() < 0.5, dycl.accelerate(program), []
        for call in (program, ours):
            try:
                outcomes.append(call(text, a, b, as_list))
            except RuntimeError as error:
                outcomes.append(str(error))
        want, got = outcomes
        assert type(got) is type(want), (text, want, got)
        if isinstance(want, str):
            assert got == want
            continue
        for x, y in zip(want, got):
            assert y.shape == x.shape and y.stride() == x.stride() and y.dtype == x.dtype, \
                (text, a.shape, b.shape, x.stride(), y.stride())
            assert x._base is not None or y._base is None, text
            torch.testing.assert_close(y, x, rtol=1e-5, atol=1e-5)
        recorded += dycl.stats(ours)["torch"] == 0
    assert recorded > 100


@pytest.mark.parametrize("text", ("...i,...j->...", "ii,ij->ij", "ij,jk->il", "ij,jk->iik", "ij;jk", "ij,jk->",
                                  "ij,jk,kl->il", "ij,jk-ik", "ij,", ""))
def test_other_forms_and_errors_are_torchs(text):
    a, b, outcomes = torch.randn(3, 3), torch.randn(3, 3), []
    for call in (program, dycl.accelerate(program)):
        try:
            outcomes.append(call(text, a, b, False)[0])
        except RuntimeError as error:
            outcomes.append(str(error))
    torch.testing.assert_close(outcomes[1], outcomes[0]) if isinstance(outcomes[0], torch.Tensor) else None
    assert type(outcomes[0]) is type(outcomes[1]) and (not isinstance(outcomes[0], str) or outcomes[0] == outcomes[1])
