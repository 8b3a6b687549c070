"""Constant weights of products with few rows, read in fewer bits: results stay, for weights of every sort, and follow
the weights when they change."""

import pytest
from isa import VECTOR_ISAS, run_with

PROGRAM = """
import copy, dycl, torch
from torch import nn

torch.manual_seed(7)
torch.set_num_threads(2)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 256, 192) * 0.05)

    def forward(self, x, ends):
        return torch._grouped_mm(x, self.weight.transpose(1, 2), offs=ends)


class Rows(nn.Module):  # the weights of transformers' GPT-2 lie this way
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(700, 900) * 0.02), nn.Parameter(torch.randn(900))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


def some_ends():
    ends = torch.tensor([0, 1, 1, 4, 4, 6], dtype=torch.int32)
    return torch.randn(6, 192), ends


CASES = [(nn.Linear(700, 900), lambda rows=rows: (torch.randn(rows, 700),)) for rows in (1, 2, 3, 4)]
CASES += [(nn.Linear(513, 1030, bias=False), lambda: (torch.randn(1, 513),)), (Rows(), lambda: (torch.randn(2, 700),)), (Rows(), lambda: (torch.randn(1, 700),)),
          (Experts(), some_ends)]


def normal(weight):
    return weight


def brain(weight):  # as if saved in bfloat16: 16 bits do
    return weight.bfloat16().float()


def outliers(weight):
    weight.view(-1)[::997] *= 1e12
    weight.view(-1)[5::1999] *= 1e-20
    weight.view(-1)[3::11] = 0
    return weight


def not_finite(weight):
    weight.view(-1)[7777] = float("nan")
    weight.view(-1)[55555] = float("inf")
    return weight


def compare(model, exact, accelerated, inputs):
    eager, got = model(*inputs), accelerated(*inputs)
    reference = exact(inputs[0].double()) if exact else eager.double()
    size = exact.magnitude(inputs[0]) if exact else reference.nan_to_num(0, 0, 0).abs().amax()
    assert got.shape == eager.shape and got.stride() == eager.stride() and torch.equal(got.isnan(), eager.isnan()) and torch.equal(got.isinf(), eager.isinf())
    error = ((got.double() - reference).abs() / size)[eager.isfinite()]
    assert not (error > 3e-6).any(), error.max()  # of the sum of magnitudes: float32's rounding, of at most 700 terms


class Exact:  # the product in double
    def __init__(self, model):
        self.weight = model.weight.double() if isinstance(model, Rows) else model.weight.double().t()
        self.bias = torch.zeros(1) if model.bias is None else model.bias

    def __call__(self, x):
        return x @ self.weight + self.bias

    def magnitude(self, x):
        return x.double().abs() @ self.weight.abs() + self.bias.abs()


with torch.no_grad():
    for sort in (normal, brain, outliers, not_finite):
        for case, make in CASES:
            model = copy.deepcopy(case)
            model.weight.copy_(sort(model.weight.clone()))
            accelerated = dycl.accelerate(copy.deepcopy(model))
            before = dycl.stats(accelerated)["packed_bytes"]
            exact = Exact(model) if not isinstance(model, Experts) else None
            for _ in range(3):
                compare(model, exact, accelerated, make())
            early = dycl.stats(accelerated)["packed_bytes"]
            assert early <= before  # it would not pay yet; what the case before packed may go
            for i in range(100000):
                if i >= 140 and (not WAY or dycl.stats(accelerated)["packed_bytes"] > early):  # packing takes a tenth of the time
                    break
                accelerated(*make())
            for _ in range(4):
                compare(model, exact, accelerated, make())
            assert (dycl.stats(accelerated)["packed_bytes"] > early) == WAY, (sort, model)
            assert ("narrow" if WAY else "as it lies") in dycl.explain(accelerated), dycl.explain(accelerated)
            x, *rest = make()
            x[0, 3] = float("inf")
            compare(model, None if sort is not_finite else exact, accelerated, (x, *rest))
            for m in (model, accelerated):
                m.weight[0] = 0.125
            exact = Exact(model) if exact else None
            for _ in range(3):
                compare(model, exact, accelerated, make())
            for _ in range(140):
                accelerated(*make())
            compare(model, exact, accelerated, make())
print("done")
"""


@pytest.mark.parametrize("isa", VECTOR_ISAS)
@pytest.mark.parametrize("way", [0, 1])
def test_products_of_few_rows(way, isa):
    program = f"WAY = {bool(way)}\n{PROGRAM}"
    done = run_with(isa, "-c", program, timeout=300, DYCL_MEASURE=str(way), DYCL_CHOOSE="0", DYCL_PROFILE="0")
    assert (done.stdout.strip(), done.returncode) == ("done", 0), done.stdout[-3000:] + done.stderr[-3000:]
