"""Products whose right side is not packed, by each library that may compute them (csrc/exec/matmul/unpacked.c):
operands of all layouts against float64."""

import textwrap

import pytest
from test_environment import start

PROGRAM = textwrap.dedent("""
    import random
    import torch, dycl

    def matrix(chance, rows, columns):
        gap = chance.choice((0, 0, 3))
        if chance.random() < 0.5:
            return torch.randn(columns, rows + gap)[:, :rows].t()
        return torch.randn(rows, columns + gap)[:, gap:]

    def program(a, b, bias):
        return a.tanh() @ b.tanh(), a @ b, torch.addmm(bias, a + 1, b)

    torch.set_grad_enabled(False)
    for seed in range(30):
        chance = random.Random(seed)
        torch.manual_seed(seed)
        m, n = chance.randint(20, 200), chance.randint(20, 300)
        k = 1 + 1500000 // (m * n) + chance.randint(0, 90)
        a, b, bias = matrix(chance, m, k), matrix(chance, k, n), torch.randn(n)
        want = program(a.double(), b.double(), bias.double())
        run = dycl.accelerate(program)
        for _ in range(3):
            for x, y in zip(run(a, b, bias), want):
                assert x.is_contiguous() and (x - y).abs().max() <= 1e-5 * (y.abs().max() + k**0.5), (seed, m, n, k)
    text = dycl.explain(run)
    print([line for line in text.splitlines() if "matmul" in line and "[" in line])
""")


@pytest.mark.parametrize("variant, name", [("0", "oneDNN"), ("1", "torch's BLAS")])
def test_products_of_all_layouts(variant, name):
    out = start(PROGRAM, DYCL_MEASURE=variant, DYCL_PROFILE="0", DYCL_CHOOSE="0")
    assert out.returncode == 0 and f"[{name}]" in out.stdout, out.stdout + out.stderr
