"""Products of doubles: any layouts of both sides, vectors, batches, biases, no terms; and who computes them."""

import random

import dycl
import pytest
import torch
import torch.nn.functional as F


def laid_out(rng, *sizes):
    """Of these sizes, as it may lie: dense, transposed, a part of something larger, every other, turned, expanded."""
    way = rng.choice(["dense", "transposed", "part", "every other", "offset", "expanded"])
    if way == "transposed":
        return torch.randn(*sizes[:-2], *reversed(sizes[-2:]), dtype=torch.float64).mT if len(sizes) > 1 \
            else torch.randn(*sizes, dtype=torch.float64)
    if way == "part":
        larger = torch.randn([n + rng.randrange(3) for n in sizes], dtype=torch.float64)
        return larger[tuple(slice(n) for n in sizes)]
    if way == "every other":
        return torch.randn(*sizes[:-1], 2 * sizes[-1], dtype=torch.float64)[..., ::2]
    if way == "offset":
        return torch.randn(1 + rng.randrange(3) + sizes[0], *sizes[1:], dtype=torch.float64)[-sizes[0]:]
    if way == "expanded" and len(sizes) > 1:
        return torch.randn(*sizes[1:], dtype=torch.float64).expand(*sizes)
    return torch.randn(*sizes, dtype=torch.float64)


FORMS = {
    "mm": lambda rng, m, k, n: (torch.matmul, laid_out(rng, m, k), laid_out(rng, k, n)),
    "mv": lambda rng, m, k, n: (torch.matmul, laid_out(rng, m, k), laid_out(rng, k)),
    "vm": lambda rng, m, k, n: (torch.matmul, laid_out(rng, k), laid_out(rng, k, n)),
    "dot": lambda rng, m, k, n: (torch.matmul, laid_out(rng, k), laid_out(rng, k)),
    "column": lambda rng, m, k, n: (torch.matmul, laid_out(rng, m, k), laid_out(rng, k, 1)),
    "row": lambda rng, m, k, n: (torch.matmul, laid_out(rng, 1, k), laid_out(rng, k, n)),
    "outer": lambda rng, m, k, n: (torch.matmul, laid_out(rng, m, 1), laid_out(rng, 1, n)),
    "bmm": lambda rng, m, k, n: (torch.bmm, laid_out(rng, 3, m, k), laid_out(rng, 3, k, n)),
    "broadcast": lambda rng, m, k, n: (torch.matmul, laid_out(rng, 2, 3, m, k), laid_out(rng, 3, k, n)),
    "linear": lambda rng, m, k, n: (F.linear, laid_out(rng, m, k), laid_out(rng, n, k), laid_out(rng, n)),
    "linear of rows": lambda rng, m, k, n: (F.linear, laid_out(rng, 2, m, k), laid_out(rng, n, k)),
    "addmm": lambda rng, m, k, n: (torch.addmm, laid_out(rng, n), laid_out(rng, m, k), laid_out(rng, k, n)),
    "einsum": lambda rng, m, k, n: (lambda a, b: torch.einsum("bik,bkj->bij", a, b), laid_out(rng, 2, m, k),
                                    laid_out(rng, 2, k, n)),
}


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("form", FORMS)
def test_products(form, threads):
    rng = random.Random(f"{form} {threads}")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    try:
        for _ in range(12):
            m, k, n = (rng.choice([1, 2, 3, 7, 16, 33, 90]) for _ in range(3))
            f, *operands = FORMS[form](rng, m, k, n)
            fast = dycl.accelerate(lambda *args: (f(*args) * 1,))
            with torch.no_grad():
                want = f(*operands) * 1
                for _ in range(4):
                    got, = fast(*operands)
                    assert got.stride() == want.stride()
                    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    finally:
        torch.set_num_threads(before)


def test_of_nothing():
    a, b = torch.zeros(3, 0, dtype=torch.float64), torch.zeros(0, 5, dtype=torch.float64)
    fast = dycl.accelerate(lambda a, b: torch.addmm(torch.ones(5, dtype=torch.float64), a, b))
    assert torch.equal(fast(a, b), torch.ones(3, 5, dtype=torch.float64))


@pytest.mark.parametrize("special", (float("nan"), float("inf"), -0.0))
def test_special_values_and_what_was_in_the_memory(special):
    a, b = torch.randn(9, 8, dtype=torch.float64), torch.randn(8, 7, dtype=torch.float64)
    a[2, 3] = special
    fast = dycl.accelerate(lambda a, b: torch.relu(a @ b) + (a @ b)[0])
    for _ in range(5):
        torch.testing.assert_close(fast(a, b), torch.relu(a @ b) + (a @ b)[0], equal_nan=True, rtol=1e-12, atol=1e-12)


def test_training():
    def step(w, x, y):
        loss = F.mse_loss(torch.tanh(x @ w[0].T) @ w[1], y)
        return torch.autograd.grad(loss, w)

    weights = [torch.randn(16, 12, dtype=torch.float64, requires_grad=True),
               torch.randn(16, 5, dtype=torch.float64, requires_grad=True)]
    fast = dycl.accelerate(step)
    for _ in range(4):
        x, y = torch.randn(20, 12, dtype=torch.float64), torch.randn(20, 5, dtype=torch.float64)
        for a, b in zip(fast(weights, x, y), step(weights, x, y)):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("f", (torch.matmul, lambda a, b: F.linear(a, b), lambda a, b: torch.bmm(a[None], b[None])))
def test_no_plain_loops(f, monkeypatch):
    """They take 14 times as long at 64x64x64."""
    monkeypatch.setenv("DYCL_CHOOSE", "0")
    fast, a = dycl.accelerate(f), torch.randn(32, 32, dtype=torch.float64)
    with torch.no_grad():
        for _ in range(3):
            fast(a, a)
    assert "torch's BLAS" in str(dycl.explain(fast))
    assert "loops" not in str(dycl.explain(fast))
