"""x[key] = y on tensors made in the region: recorded as new values, and equal to eager in values, versions, strides,
aliasing and errors."""

import random

import dycl
import pytest
import torch
from suite import check

DTYPES = [torch.float32, torch.int64, torch.bool, torch.float64, torch.int32]


def left(stats, runs=3):
    return stats["torch"] / runs


def random_key(draw, shape):
    key = []
    for size in shape:
        kind = draw.randrange(6)
        if kind == 0:
            key.append(draw.randrange(-size, size))
        elif kind == 1:
            key.append(None)
            key.append(slice(None))
        elif kind == 2:
            start = draw.randrange(size)
            key.append(slice(start, draw.randint(start + 1, size), draw.randint(1, 2)))
        elif kind == 3:
            key.append(slice(-draw.randint(1, size), None))
        else:
            key.append(slice(None))
    if draw.random() < 0.3:
        key = key[: draw.randint(0, len(key))] + [...]
    return tuple(key)


def values(dtype, *shape):
    return (torch.rand(shape) * 100).to(dtype) if dtype != torch.bool else torch.rand(shape) > 0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_views(dtype):
    draw = random.Random(DTYPES.index(dtype))
    for i in range(60):
        shape = [draw.randint(1, 6) for _ in range(draw.randint(1, 4))]
        key = random_key(draw, shape)
        target = torch.empty(shape)[key].shape
        given = draw.choice(["same", "number", "one", "other dtype", "row"])
        y = values(torch.int16 if given == "other dtype" else dtype,
                   *{"one": (), "row": target[-1:]}.get(given, target))
        if given == "number":
            y = draw.choice([True, 3]) if dtype != torch.float32 else draw.choice([True, 2, 0.5])

        def program(x, y):
            x = x.clone()
            before = x * 1
            x[key] = y
            after = x + x
            x[key] = x[key] * 1
            return x, before, after

        stats = check("copy", program, (values(dtype, *shape), y), f"{shape} {key} {given}")
        assert stats["recorded"]


def test_recorded_whole():
    def program(x, y):
        z = torch.zeros(4, 6)
        z[:, 1:3] = x
        z[0] = 7
        z[..., -1] = y
        z[z > 6] = -1
        z[3, None] = y[:1]
        w = torch.empty_like(z)
        w[...] = z
        return z, w

    stats = check("copy", program, (torch.randn(4, 2), torch.randn(4)), "views")
    assert left(stats) == 0, stats


def test_other_orders_of_dimensions():
    def program(x):
        y = (x + 1).t()
        y[1:, 0] = 5
        z = (x * 2).view(3, 2, 2).permute(2, 0, 1).contiguous().permute(1, 2, 0)
        z[0, :, 1] = y[:2, 2]
        return y, z

    check("copy", program, (torch.randn(3, 4),), "permuted")


def test_shared_memory_is_written_by_torch():
    def program(x, plain):
        y = x + 1
        view = y[0]
        y[0] = 3
        plain[1:] = y[1:]
        z = x * 2
        z[1:] = z[:-1].clone()
        z.view(-1)[2:4] = 0
        kept = z[1]
        z[1] = kept * 2
        return y, view, z, kept, plain

    check("copy", program, (torch.randn(3, 3), torch.zeros(3, 3)), "views of it live")


def test_rows():
    draw = random.Random(5)
    for i in range(40):
        shape = [draw.randint(1, 7) for _ in range(draw.randint(1, 3))]
        count = draw.randint(1, shape[0])
        index = torch.tensor(draw.sample(range(shape[0]), count)) - (shape[0] if draw.random() < 0.3 else 0)
        if count % 2 == 0 and draw.random() < 0.5:
            index = index.view(2, -1)
        y = torch.randn(*index.shape, *shape[1:]) if draw.random() < 0.6 \
            else draw.choice([2, torch.randn(shape[-1]), torch.tensor(1.5)])
        if isinstance(y, torch.Tensor) and len(shape) == 1 and y.shape == (shape[-1],) and y.shape != index.shape:
            continue

        def program(x, index, y):
            x = x + 1
            x[index] = y
            return x, x[index], index + 0

        check("copy", program, (torch.randn(shape), index, y), f"{shape} {index.tolist()}")

    def inverse(x, table):
        order = torch.argsort(x)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.size(0))
        return table[order][back], back

    stats = check("copy", inverse, (torch.randn(20), torch.randn(20, 3)), "inverse of a permutation")
    assert left(stats) == 0 and stats["segments"] == 3, stats


def test_masks():
    for shape, mask in (((4, 5), (4, 5)), ((4, 5), (4,)), ((3, 4, 2), (3, 4)), ((6,), (6,))):
        for value in (0, 1.5, float("-inf"), True):

            def program(x, m):
                x = x + 1
                x[m] = value
                y = x * 2
                y[m > m] = 1
                return x, y

            stats = check("copy", program, (torch.randn(shape), torch.rand(mask) > 0.5), f"mask {value}")
            assert left(stats) == 0, stats
    for f in (lambda x, m: x.clone().__setitem__(m, torch.randn(2)), lambda x, m: x.clone().long().__setitem__(m, 1.5),
              lambda x, m: x.clone().__setitem__(m[:2], 1)):
        check("copy", f, (torch.randn(4, 5), torch.rand(4, 5) > 0.5), "not represented")


def test_errors():
    x = torch.randn(3, 4)
    for key, value in (((5,), 1), ((0, 0, 0), 1), ((slice(0, 2),), torch.randn(3, 4)), ((torch.tensor([7]),), 1.0),
                       ((torch.tensor([0]),), torch.zeros(1, 4).double()), (("a",), 1)):

        def program(x):
            y = x + 1
            y[key] = value
            return y

        check("copy", program, (x,), f"{key} {value}")

    def deletes(x):
        y = x + 1
        del y[0]

    check("copy", deletes, (x,), "del")


def test_a_loop_of_writes_copies_nothing():
    """Each write takes over the memory of what it replaces: n writes of a row cost n rows, not n tensors."""

    def program(x):
        out = torch.zeros(300, 2000)
        for i in range(300):
            out[i] = x + i
        return out * 2

    stats = check("add", program, (torch.randn(2000),), "loop")
    assert left(stats) == 0
    accelerated = dycl.accelerate(program)
    x = torch.randn(2000)
    for _ in range(4):
        accelerated(x)
    dycl.explain(accelerated)  # steps are timed from now on
    for _ in range(3):
        accelerated(x)
    copies = [float(line.split("us")[0].split()[-1]) for line in dycl.explain(accelerated).splitlines()
              if " copy " in line and "us" in line]
    assert copies and sum(copies) < 5000, sum(copies)  # 300 copies of 2.4 MB take 60 ms and more


def test_written_with_itself():
    """torch refuses a part of the overlaps."""
    for shape in ((1, 1, 1), (3, 1), (3, 4), ()):
        for key in (..., 0, slice(0, 1), (None,), (Ellipsis, 0)):

            def program(x):
                y = x + 1
                y[key] = y
                return y

            check("copy", program, (torch.randn(shape),), f"{shape} {key}")

    def by_itself(x):
        y = x > 0
        y[y] = False
        return y

    check("copy", by_itself, (torch.randn(5),), "mask")
