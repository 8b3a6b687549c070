"""argmax of a product with large constant weights: the right place of the largest element, whatever weights and rows
are, with all of the product or only what 8 bits leave over; it follows the weights when they change."""

import pytest
from isa import VECTOR_ISAS, run_with
from suite import FULL

PROGRAM = """
import copy, dycl, torch
from torch import nn

torch.manual_seed(7)
torch.set_num_threads(2)
ROWS, COLUMNS = 4111, 301


def normal(w):
    return w


def outliers(w):
    w.view(-1)[::9973] *= 1e12
    return w


def ties(w):  # several largest: the first counts
    w[5] *= 6
    w[5::700] = w[5]
    return w


def not_finite(w):
    w[77, 3] = float("nan")
    w[2000, 5] = float("-inf")
    return w


def close(w):  # the rows differ in the last bits: many are left over
    return w[:1] + 1e-6 * w


def check(model, accelerated, x, tuned=True):
    with torch.no_grad():
        got, want = accelerated(x), model(x).argmax(-1)
        assert got.dtype == want.dtype and got.shape == want.shape
        for i in range(x.shape[0]):
            g, w = int(got[i]), int(want[i])
            alike = (model.weight == model.weight[g]).all(1).nonzero()
            assert not tuned or model.bias is not None or not len(alike) or g == int(alike[0]), "not the first of equals"
            if g == w:
                continue
            two = model.weight[[w, g]].double()
            best, found = (two @ x[i].double() + (0 if model.bias is None else model.bias[[w, g]].double())).tolist()
            assert abs(best - found) <= 2e-6 * float((two.abs() @ x[i].double().abs()).max()), (i, g, w, best, found)  # rounding decides between them


class Best(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x):
        return self.head(x * 1).argmax(-1)


for bias in (False, True):
    for nth, sort in enumerate((normal, outliers, ties, not_finite, close)):
        for rows in (1 + nth % 4, 1 + (nth + bias + 2) % 4)[: 1 + FULL]:
            head = nn.Linear(COLUMNS, ROWS, bias=bias)
            with torch.no_grad():
                head.weight.copy_(sort(head.weight.clone()))
            fast = dycl.accelerate(Best(copy.deepcopy(head)))
            before = dycl.stats(fast)["packed_bytes"]
            with torch.no_grad():
                for i in range(100000):
                    check(head, fast, torch.randn(rows, COLUMNS), i > 2)  # the first plan's product may round equal rows differently, as eager's
                    if i >= 40 and (not WAY or dycl.stats(fast)["packed_bytes"] > before):
                        break
                for _ in range(5):
                    check(head, fast, torch.randn(rows, COLUMNS))
                for strange in (0.0, float("inf"), float("nan"), 1e30, 1e-40):
                    x = torch.randn(rows, COLUMNS)
                    x[0, 3] = strange
                    assert torch.equal(fast(x), head(x).argmax(-1)) or strange == 0.0 or strange == 1e-40 or sort is not normal, strange
                check(head, fast, torch.zeros(rows, COLUMNS))
                for h in (head, fast.head):
                    h.weight[4000] = h.weight[4000] * 3
                    h.weight[17] = 0.5
                for _ in range(30):
                    check(head, fast, torch.randn(rows, COLUMNS))
                text = dycl.explain(fast)
                assert "largest of product" in text and ("prefiltered" if WAY else "all of it") in text, text
print("done")
"""


@pytest.mark.parametrize("isa", VECTOR_ISAS)
@pytest.mark.parametrize("way", [0, 1])
def test_largest_of_a_product(way, isa):
    program = f"WAY, FULL = {bool(way)}, {FULL}\n{PROGRAM}"
    done = run_with(isa, "-c", program, timeout=300, DYCL_MEASURE=str(way), DYCL_CHOOSE="0", DYCL_PROFILE="0")
    assert (done.stdout.strip(), done.returncode) == ("done", 0), done.stdout[-3000:] + done.stderr[-3000:]
