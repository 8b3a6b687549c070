"""Products whose right side is not packed, by each variant that may compute them (csrc/exec/matmul/unpacked.c):
operands of all layouts against float64."""

import textwrap

import pytest
from isa import has
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


@pytest.mark.parametrize("variant, name, isa", [("0", "own", ""), ("0", "own", "avx2"), ("0", "sgemm", "scalar"),
                                                ("1", "torch's BLAS", ""), ("2", "oneDNN", "")])
def test_products_of_all_layouts(variant, name, isa):
    if name == "oneDNN" and not has("avx512"):
        name = "own"  # its products would be those of its sgemm
    out = start(PROGRAM, DYCL_MEASURE=variant, DYCL_PROFILE="0", DYCL_CHOOSE="0", **({"DYCL_ISA": isa} if isa else {}))
    assert out.returncode == 0 and f"[{name}]" in out.stdout, out.stdout + out.stderr


BATCHES = textwrap.dedent("""
    import random
    import torch, dycl

    def matrices(chance, batch, rows, columns):
        turned = chance.random() < 0.5
        x = torch.randn(*batch, columns, rows).mT if turned else torch.randn(*batch, rows, columns + 3)[..., 3:]
        return x[:1].expand(*batch, rows, columns) if chance.random() < 0.2 else x

    torch.set_grad_enabled(False)
    for seed in range(60):
        chance = random.Random(seed)
        torch.manual_seed(seed)
        torch.set_num_threads(1 + seed % 2)
        batch = chance.choice([(2,), (9,), (3, 4), (40,)])
        m, n, k = (chance.randint(2, 60) for _ in range(3))
        if chance.random() < 0.2:
            k *= 30
        a, b = matrices(chance, batch, m, k), matrices(chance, batch, k, n)
        bias = torch.randn(n)
        program = (lambda a, b, bias: (a @ b, torch.baddbmm(bias, a, b))) if len(batch) == 1 else (
            lambda a, b, bias: (a @ b, torch.matmul(a, b) + bias))
        want = program(a.double(), b.double(), bias.double())
        run = dycl.accelerate(program)
        for _ in range(3):
            for x, y in zip(run(a, b, bias), want):
                assert (x - y).abs().max() <= 1e-5 * (y.abs().max() + k**0.5), (seed, batch, m, n, k)
        print([line for line in dycl.explain(run).splitlines() if "matmul" in line and "[" in line])
""")


@pytest.mark.parametrize("variant, name, isa", [("0", "sgemm", ""), ("0", "own", ""), ("0", "sgemm", "scalar"),
                                                ("1", "torch's BLAS", ""), ("2", "own", ""), ("2", "own", "avx2")])
def test_batches_of_all_layouts(variant, name, isa):
    """Few rows, whose right side is not worth packing, as many."""
    out = start(BATCHES, DYCL_MEASURE=variant, DYCL_PROFILE="0", DYCL_CHOOSE="0", **({"DYCL_ISA": isa} if isa else {}))
    assert out.returncode == 0 and f"[{name}]" in out.stdout, out.stdout + out.stderr


VECTORS = textwrap.dedent("""
    import torch, dycl

    def single(a, b, v):
        return (a @ v, v @ a.mT, a @ v[:, None], v[None] @ a.mT, b.mT @ b[:, :1], b[:, 0] @ b, b[:, :1].mT @ b,
                (b.mT @ a)[0] @ a.mT)

    def batched(a, b, v):
        return a @ v, a.mT @ a[..., :1], a[..., :3, :] @ a.mT, a[..., :2].mT @ a, b @ a

    torch.set_grad_enabled(False)
    for rows, depth in ((1, 1), (2, 7), (40, 33), (300, 500), (3, 40000), (700, 300)):
        for program, batch in ((single, ()), (batched, (5,))):
            torch.manual_seed(rows)
            a, b, v = torch.randn(*batch, rows, depth), torch.randn(rows, rows), torch.randn(depth)
            want = program(a.double(), b.double(), v.double())
            run = dycl.accelerate(program)
            for _ in range(4):
                for x, y in zip(run(a, b, v), want):
                    assert (x - y).abs().max() <= 2e-5 * (y.abs().max() + depth**0.5), (rows, depth, program)
""")


@pytest.mark.parametrize("isa", ["scalar", "avx2", ""])
def test_vectors_and_few_rows(isa):
    out = start(VECTORS, DYCL_PROFILE="0", DYCL_CHOOSE="0", **({"DYCL_ISA": isa} if isa else {}))
    assert out.returncode == 0, out.stdout + out.stderr
