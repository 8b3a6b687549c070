"""einsum: random equations, sizes and layouts; values and strides as torch's, whose result is often a view of a product
or of its operand; and gradients, and the order of contraction, with and without opt_einsum."""

import random

import dycl
import pytest
import torch

WIDE = "."  # "...", while an equation is made


def program(equation, operands, as_list):
    operands = [x * 1.0 for x in operands]
    product = torch.einsum(equation, operands) if as_list else torch.einsum(equation, *operands)
    return product, product + 1


def operand(chance, labels, size, wide, dtype):
    shape = []
    for label in labels:
        if label == WIDE:
            shape += [1 if wide.ones and chance.random() < 0.15 else n
                      for n in wide.sizes[chance.randrange(len(wide.sizes) + 1):]]
        else:
            shape.append(1 if wide.ones and labels.count(label) == 1 and chance.random() < 0.1 else size[label])
    x = torch.randn(shape, dtype=dtype)
    if x.dim() > 1 and chance.random() < 0.3:
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    return x


class Wide:
    def __init__(self, chance, ones):
        self.ones = ones
        self.sizes = [chance.choice((1,) * ones + (2, 3)) for _ in range(chance.randrange(3))]


def equation(chance, ones, most):
    """(text, operands): one to `most` of them, labels that occur once or several times, "..." here and there."""
    labels, wide = chance.sample("abcdeXYZ", chance.randrange(1, 5)), Wide(chance, ones)
    size = {label: chance.choice((1, 1) * ones + (2, 3, 4)) for label in labels}
    parts = []
    for _ in range(chance.choice((1, 2, 2, 3, 4, 5)[:most + 1])):
        part = chance.sample(labels, chance.randrange(0 if chance.random() < 0.2 else 1, min(3, len(labels)) + 1))
        if part and chance.random() < 0.15:
            part.append(chance.choice(part))
        if chance.random() < 0.3:
            part.insert(chance.randrange(len(part) + 1), WIDE)
        parts.append(part)
    union = list(dict.fromkeys(label for part in parts for label in part if label != WIDE))
    out = chance.sample(union, chance.randrange(len(union) + 1))
    if any(WIDE in part for part in parts) and chance.random() < 0.8:
        out.insert(chance.randrange(len(out) + 1), WIDE)
    text = chance.choice((",", " , ")).join("".join(part) for part in parts)
    if chance.random() < 0.8:
        text += "->" + "".join(out)
    dtype = chance.choice((torch.float32, torch.float64))
    return text.replace(WIDE, "..."), [operand(chance, part, size, wide, dtype) for part in parts]


def same(want, got, what):
    assert got.shape == want.shape and got.stride() == want.stride() and got.dtype == want.dtype, \
        (*what, want.stride(), got.stride())
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def outcome(call, *arguments):
    try:
        return call(*arguments)
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__} {error}"


def alike(want, got, what):
    """Tensors that are the same; False: the same error."""
    assert type(got) is type(want), (*what, want, got)
    if isinstance(want, str):
        assert got == want, what
        return False
    for x, y in zip(want, got):
        same(x, y, what)
    return True


@pytest.mark.parametrize("seed", range(8))
def test_random_equations(seed):
    chance = random.Random(seed)
    torch.manual_seed(seed)
    recorded = 0
    for _ in range(100):
        text, operands = equation(chance, 1, 5)
        if chance.random() < 0.03:
            operands[-1] = operands[-1].double()
        as_list, ours = chance.random() < 0.5, dycl.accelerate(program)
        with torch.no_grad(), torch.backends.opt_einsum.flags(enabled=has_order() and chance.random() < 0.7):
            want, got = (outcome(call, text, operands, as_list) for call in (program, ours))
        what = text, [(x.shape, x.stride()) for x in operands]
        if not alike(want, got, what):
            continue
        for x, y in zip(want, got):
            assert (x._base is None) == (y._base is None), what
        recorded += dycl.stats(ours)["torch"] == 0
    assert recorded > 90


def has_order():
    return torch.backends.opt_einsum.is_available()


@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_random_equations(seed):
    """Without dimensions of size 1, whose strides in gradients are known to differ (docs/correctness.md)."""
    chance = random.Random(1000 + seed)
    torch.manual_seed(seed)
    recorded = 0
    for _ in range(60):
        text, given = equation(chance, 0, 4)
        ours, found = dycl.accelerate(program), []
        for call in (program, ours):
            operands = [x.detach().requires_grad_() for x in given]
            product = outcome(call, text, operands, True)
            if not isinstance(product, str):
                torch.manual_seed(1)
                (product[0] * torch.randn_like(product[0])).sum().backward()
                product = product[0], *(x.grad for x in operands)
            found.append(product)
        (want, got), what = found, (text, [(x.shape, x.stride()) for x in given])
        if not alike(want, got, what):
            continue
        assert got[0].grad_fn.name() == want[0].grad_fn.name(), what
        recorded += dycl.stats(ours)["torch"] == 0
    assert recorded > 50


@pytest.mark.skipif(not has_order(), reason="opt_einsum is not there")
@pytest.mark.parametrize("strategy", ("auto", "greedy", "optimal"))
def test_the_order_is_the_one_that_torch_asks_for(strategy):
    """What is small is contracted first: the other product overflows."""
    a, b, c = torch.full((40, 2), 1e30), torch.full((2, 40), 1e30), torch.full((40, 2), 1e-30)
    call = dycl.accelerate(lambda *x: torch.einsum("ij,jk,kl->il", *x))
    with torch.no_grad():
        for enabled in (True, False, True):
            with torch.backends.opt_einsum.flags(enabled=enabled, strategy=strategy if enabled else None):
                want, got = torch.einsum("ij,jk,kl->il", a, b, c), call(a, b, c)
            assert bool(want.isfinite().all()) == enabled
            same(want, got, (strategy, enabled))
    assert dycl.stats(call)["torch"] == 0


def test_a_view_of_its_operand_is_one():
    """One operand whose dimensions all stay: what is written to the result is the operand's."""
    def write(x):
        x = x * 1.0
        torch.einsum("ii->i", x).mul_(3)
        torch.einsum("ij->ji", x)[0] += 1
        return x

    x = torch.randn(3, 3)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(dycl.accelerate(write)(x), write(x), rtol=0, atol=0)


@pytest.mark.parametrize("text", ("...i,...j->...", "ii,ij->ij", "ij,jk->il", "ij,jk->iik", "ij;jk", "ij,jk->",
                                  "ij,jk,kl->il", "ij,jk-ik", "ij,", "", "..ij,jk", "i...j...,jk", "ij,jk->...ik",
                                  "ij,jk->ik->", "ijk,jk", "...ijk,jk", "i.j,jk", "ij,jk->ik,", "ij,jk->..ik"))
def test_odd_forms_and_errors_are_torchs(text):
    a, b = torch.randn(3, 3), torch.randn(3, 3)
    with torch.no_grad():
        want, got = (outcome(call, text, [a, b], False) for call in (program, dycl.accelerate(program)))
    assert type(got) is type(want)
    same(want[0], got[0], (text,)) if isinstance(want, tuple) else None
    assert not isinstance(want, str) or got == want


def test_an_interrupt_while_an_order_is_looked_for(monkeypatch):
    opt = pytest.importorskip("opt_einsum")

    def interrupted(*args, **named):
        monkeypatch.undo()
        raise KeyboardInterrupt

    call = dycl.accelerate(lambda a: torch.einsum("ij,jk,kl->il", a, a, a))
    monkeypatch.setattr(opt, "contract_path", interrupted)
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        call(torch.randn(3, 3))
    a = torch.randn(3, 3)
    torch.testing.assert_close(call(a), a @ a @ a, rtol=1e-4, atol=1e-4)
