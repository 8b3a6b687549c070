"""Sorting, selecting, counting and grouped products: recorded, and equal to eager, equal elements (of which torch's
order depends on the processor) included."""

import random

import dycl
import pytest
import torch
from test_bind_nn import check, rejected


def elements(kind, *shape):
    if kind == "few":  # equal ones everywhere
        return torch.randint(0, 4, shape)
    if kind == "few floats":
        return torch.randint(-3, 3, shape).float() / 2
    x = torch.randn(shape)
    if kind == "nan":
        x[torch.rand(shape) < 0.2] = float("nan")
        x[torch.rand(shape) < 0.1] = float("inf")
    return x


@pytest.mark.parametrize("kind", ["few", "few floats", "numbers", "nan"])
def test_sort_and_topk(kind):
    draw = random.Random(len(kind))
    for shape in [(1,), (7,), (300,), (5000,), (4, 9), (3, 70, 5), (2, 3, 4, 5)]:
        x = elements(kind, *shape)
        for dim in {0, -1, draw.randrange(len(shape))}:
            for descending in (False, True):
                check(lambda x: torch.sort(x, dim, descending), x, name="sort")
                check(lambda x: (x + 0).sort(dim=dim, descending=descending, stable=True), x, name="sort")
                check(lambda x: x.argsort(dim, descending=descending) * 2, x, name="sort")
            k = draw.randint(1, x.shape[dim])
            for largest in (False, True):
                check(lambda x: torch.topk(x, k, dim, largest), x, name="sort")
                check(lambda x: (x + 0).topk(k, dim=dim, largest=largest, sorted=False), x, name="sort")
    x = elements(kind, 6, 5)
    check(lambda x: x.t().topk(2), x, name="sort")
    check(lambda x: x.t().sort(), x, left=1, name="sort")
    check(lambda x: x[:, ::2].topk(2, 0).values + 1, x, name="sort")
    assert type(dycl.accelerate(lambda x: x.topk(2))(x)) is torch.return_types.topk \
        and type(dycl.accelerate(torch.sort)(x)) is torch.return_types.sort


def test_few_elements():
    draw = random.Random(5)
    for _ in range(150):
        shape = [draw.randint(1, 9) for _ in range(draw.randint(1, 2))]
        x = elements(draw.choice(["few", "few floats", "numbers", "nan"]),
                     *shape).to(draw.choice([torch.float32, torch.float64]))
        if draw.random() < 0.5:
            x = x.nan_to_num(0, 9, -9).to(draw.choice([torch.int64, torch.int32, torch.int16]))
        descending, stable, k = draw.random() < 0.5, draw.random() < 0.5, draw.randint(1, shape[-1])
        check(lambda x: torch.sort(x, dim=-1, descending=descending, stable=stable), x, name="sort")
        in_order = draw.random() < 0.5
        check(lambda x: torch.topk(x, k, -1, descending, in_order), x, name="sort")


def test_indices_of_sort_and_topk_are_in_range():
    """What they choose needs no look at the values: one segment."""

    def f(x, table):
        values, at = x.topk(3, 0)
        order = torch.argsort(at)
        return (table[at], table[at // 2], table[order], values[order], table[at.sort().values],
                torch.nn.functional.embedding(at % 2, table))

    x, table = torch.randn(8), torch.randn(8, 5)
    check(f, x, table, name="sort")
    accelerated = dycl.accelerate(f)
    accelerated(x, table)
    assert dycl.stats(accelerated)["segments"] == 1, dycl.explain(accelerated)


def test_what_is_rejected():
    x = torch.randn(4, 5)
    for f in (lambda x: x.topk(6), lambda x: x.topk(-1), lambda x: x.topk(2, 2), lambda x: x.sort(3),
              lambda x: torch.sort(x, 0, stable=True), lambda x: torch.topk(x, 2.0)):
        rejected(f, x)
    check(lambda x: x[0, 0].sort(), x, left=1, name="sort")
    check(lambda x: x.topk(0), x, left=1, name="sort")


def test_histc():
    draw = random.Random(1)
    for _ in range(20):
        low, width, bins = draw.uniform(-3, 3), draw.uniform(0.1, 5), draw.randint(1, 40)
        for x in (torch.randn(draw.randint(1, 5000)) * 3, torch.randint(-4, 5, (50, 3)).float(), torch.randn(4, 6).t()):
            check(lambda x: torch.histc(x, bins, low, low + width), x, name="sort")
            check(lambda x: (x + 0).histc(bins=bins, min=-4, max=4), x, name="sort")
    for _ in range(200):  # few elements, around the borders of the bins
        low, width, bins = draw.uniform(-3, 3), draw.uniform(0.1, 5), draw.randint(1, 40)
        x = torch.cat([torch.linspace(low, low + width, bins + 1),
                       torch.tensor([float("nan"), float("inf"), low - 1e-7, low + width + 1e-6])])
        x = torch.nextafter(x, torch.randn(x.shape) * 10)
        check(lambda x: torch.histc(x, bins, low, low + width), x, name="sort")
    check(lambda x: torch.histc(x, 4), torch.randn(9), left=1, name="sort")
    rejected(lambda x: torch.histc(x, 4, 2, 1), torch.randn(9))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32, torch.float64])
def test_isin(dtype):
    for shape in [(), (1,), (7,), (3, 40), (2, 3, 4)]:
        for tests in [(), (1,), (5,), (2, 9)]:
            x, t = torch.randint(0, 12, shape).to(dtype), torch.randint(0, 12, tests).to(dtype)
            if dtype.is_floating_point and t.numel() > 1:
                t.view(-1)[0] = float("nan")
                x = torch.where(x == 3, float("nan"), x)
            check(lambda x, t: torch.isin(x, t), x, t, name="any")
            check(lambda x, t: torch.isin(x.mT if x.dim() > 1 else x, t * 1, assume_unique=False, invert=True), x, t,
                  name="any")
    for wrong in (torch.zeros(3), torch.zeros(0, dtype=dtype), torch.zeros(3, dtype=torch.bool)):
        if wrong.dtype != dtype or not wrong.numel():
            check(lambda x, t: torch.isin(x, t), torch.randint(0, 12, (4,)).to(dtype), wrong,
                  left=1) if wrong.dtype != torch.bool else rejected(lambda x, t: torch.isin(x, t), x, wrong)
    check(lambda x, t: torch.isin(x, 3), x, t, left=None)
    check(lambda x, t: torch.isin(x, t, assume_unique=True), torch.arange(5).to(dtype), torch.arange(3).to(dtype),
          left=1)


def test_positions_of_largest_elements_are_good_indices():
    table, scores = torch.randn(9, 3), torch.randn(4, 9)

    def pick(table, scores):
        return (table[scores.argmax(-1)], torch.nn.functional.embedding(scores.argmin(1, keepdim=True), table),
                torch.nn.functional.embedding(scores[0].argmax(), table))

    check(pick, table, scores)
    fast = dycl.accelerate(pick)
    fast(table, scores)
    assert "index" not in dycl.stats(fast)["flushes"] or dycl.stats(fast)["flushes"]["index"] <= 1
    rejected(lambda table, scores: table[scores.argmax(-1)], torch.randn(4, 3), torch.arange(18.0).reshape(2, 9))


def test_running_sums_of_narrow_integers():
    for dtype in (torch.int32, torch.int16, torch.int8, torch.uint8):
        for x in (torch.randint(-100, 100, (3, 40)), torch.randn(40, 3) * 50, torch.rand(30) > 0.5):
            check(lambda x: x.cumsum(0, dtype=dtype), x, name="cumsum")
            check(lambda x: torch.cumsum(x + x, -1, dtype=dtype), x, name="cumsum")


def test_grouped_product():
    draw = random.Random(2)
    for _ in range(30):
        groups, k, n, rows = draw.randint(1, 6), 4 * draw.randint(1, 40), 4 * draw.randint(1, 40), draw.randint(1, 70)
        ends = torch.tensor(sorted(draw.randint(0, rows) for _ in range(groups - 1)) + [rows], dtype=torch.int32)
        x, w = torch.randn(rows, k), torch.randn(groups, n, k)
        check(lambda x, w, ends: torch._grouped_mm(x, w.transpose(1, 2), offs=ends), x, w, ends)
        check(lambda x, w, ends: torch.nn.functional.grouped_mm(x * 2, w, offs=ends + 0), x,
              w.transpose(1, 2).contiguous(), ends)
        # rows behind the last end are not written: torch leaves what was there
        some = torch.tensor([0, *ends[:-1].tolist()], dtype=torch.int32)
        last = int(some[-1])
        check(lambda x, w, ends: torch._grouped_mm(x, w.transpose(1, 2), offs=ends)[:last], x,
              torch.cat([w, w[:1]])[: len(some)], some)
    w = torch.randn(4, 1540, 1024) * 0.1  # each larger than a core's cache
    for rows in ([5, 33, 0, 17], [4, 32, 31, 7], [1, 2, 3, 40]):
        ends = torch.tensor(rows).cumsum(0).to(torch.int32)
        check(lambda x, w, ends: torch._grouped_mm(x, w.transpose(1, 2), offs=ends), torch.randn(sum(rows), 1024) * 0.1,
              w, ends)
    x, w = torch.randn(9, 8), torch.randn(3, 8, 8)
    for strange in ([2, 5, 12], [5, 2, 9], [3, 1, 9], [-1, 5, 9], [-6, 1, 9], [9, 0, 9]):
        ends = torch.tensor(strange, dtype=torch.int32)
        covered = torch.zeros(9, dtype=torch.bool)
        start = 0
        for end in strange:
            covered[start:end] = True
            start = end
        check(lambda x, w, ends: torch._grouped_mm(x, w, offs=ends)[covered], x, w, ends)
        check(lambda x, w, ends: torch._grouped_mm(x, w.transpose(1, 2), offs=ends)[covered], x, w, ends)
    check(lambda x, w: torch._grouped_mm(x, w[:, :, :7], offs=torch.tensor([1, 1, 9], dtype=torch.int32)), x, w,
          left=None)
    for f in (lambda x, w: torch._grouped_mm(x[:, :6], w, offs=ends),
              lambda x, w: torch._grouped_mm(x, w[:, :, :7].contiguous(), offs=ends),
              lambda x, w: torch._grouped_mm(x, w[:2], offs=ends)):
        rejected(f, x, w)
