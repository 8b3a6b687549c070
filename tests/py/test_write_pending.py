"""Writes into what was recorded and is not computed yet, through views of it or where views look at it: slices in
place, `x[a:b] += y`, rows of a view. Programs of such steps are drawn and compared with eager, in values, strides,
versions and aliasing; what is written so ends no segment."""

import random

import dycl
import pytest
import torch
from suite import check

VIEWS = ["{}[1:]", "{}[:, 1]", "{}[0]", "{}.t()", "{}.view(-1)", "{}[..., ::2]", "{}.unsqueeze(0)", "{}.diagonal()",
         "{}.reshape(4, 6)", "{}.narrow(1, 1, 2)", "{}.expand(2, 4, 6)", "{}.as_strided((2, 3), (6, 1), 2)"]
WRITES = ["{}.add_(1)", "{}.mul_(2.5)", "{}.zero_()", "{}.relu_()", "{}.copy_({} * 2)", "{}.fill_(3)", "{}.sub_({})",
          "{}.add_(number)", "{}.clamp_(-1, 1)", "{}[0] = 5", "{}[..., :1] = 7", "{}[0:2] += 1", "{}[..., 1] *= 3",
          "{}[0].mul_({}[0])", "{}[0:1] = {}[0:1]", "{}.addcmul_({}, {})", "{}.fill_diagonal_(2)"]


def drawn(draw):
    """The source of a program of x [4, 6] and a number."""
    lines, names = ["f = x * 2 + 1"], ["f"]
    for k in range(draw.randint(3, 9)):
        of = draw.choice(names)
        if draw.random() < 0.45:
            lines.append(f"v{k} = " + draw.choice(VIEWS).format(of))
            names.append(f"v{k}")
        else:
            write = draw.choice(WRITES)
            lines.append(write.format(*[of] * write.count("{}")))
        if draw.random() < 0.3:
            lines.append(f"r{k} = {draw.choice(names)} + 0.5")
            names.append(f"r{k}")
        if draw.random() < 0.2 and len(names) > 1:
            lines.append(f"del {names.pop(draw.randrange(len(names)))}")
    lines.append(f"return [{', '.join(names)}], [t._version for t in [{', '.join(names)}]]")
    body = "\n        ".join(lines)
    return (f"def program(x, number):\n    try:\n        {body}\n"
            "    except (RuntimeError, IndexError) as e:\n        return str(e)\n")


def aliases(result):
    """Which of them lie in the same memory, and where."""
    places = [(t.untyped_storage().data_ptr() if t.numel() else None, t.storage_offset()) for t in result]
    return [(i, j, b[1] - a[1]) for j, b in enumerate(places) for i, a in enumerate(places[:j])
            if a[0] and a[0] == b[0]]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_programs(seed, mode):
    draw = random.Random(f"{seed} {mode.__name__}")
    for _ in range(6):
        source, made = drawn(draw), {}
        if mode is torch.inference_mode:
            source = source.replace("t._version for", "t.dim() for")
        exec(source, made)
        program, accelerated = made["program"], dycl.accelerate(made["program"])
        for call in range(3):
            with mode():
                x, number = torch.randn(4, 6, generator=torch.Generator().manual_seed(call)), torch.tensor(float(call))
                want, got = program(x.clone(), number), accelerated(x.clone(), number)
            if isinstance(want, str):
                assert want == got, source
                break
            assert want[1] == got[1], source
            assert aliases(want[0]) == aliases(got[0]), source
            for a, b in zip(want[0], got[0]):
                assert a.stride() == b.stride() and torch.equal(a, b) and (a._base is None) == (b._base is None), source


def whole(program, *arguments):
    stats = check("program", program, arguments, "whole")
    assert stats["torch"] == 0 and stats["segments"] == stats["calls"], stats


def test_nothing_is_computed_for_a_write():
    def slices(x, y):
        f = x * 2
        f[1:3] += y
        f[:, 1] *= 3
        f[0].add_(f[3])
        return f.relu()

    def views(x, y):
        f = x + 1
        rows, flat = f[1:], f.view(-1)
        rows.mul_(2)
        flat[2:5] = 7
        f[0:2].copy_(y)
        return rows * 1, flat + f.sum()

    def step_by_step(x, y):
        h = torch.zeros(4, 6) + x
        for t in range(1, 6):
            h[:, t] += h[:, t - 1] * 0.5
        return h

    def parts(x, y):
        f = x * 2
        a, b = f.chunk(2, -1)
        a *= b
        f[:, 0].sub_(f[:, 5])
        f[::2].add_(f[1::2])
        return f

    layer = torch.nn.Linear(6, 6)

    def projected(x, y):  # what a linear layer answers is a view of something hidden
        f = layer(x.view(2, 2, 6))
        f[..., :2].sigmoid_()
        f[..., 2:4] *= 2
        return f.view(4, 6), f

    for program in (slices, views, step_by_step, parts, projected):
        whole(program, torch.randn(4, 6), torch.randn(2, 6))


def test_what_torch_refuses():
    def partly(x):
        f = x * 2
        f[1:].add_(f[:-1])
        return f

    def expanded(x):
        f = x * 2
        f[:1].expand(3, 6).add_(1)
        return f

    def strided(x):
        f = x[:1, :1] * 2
        f[...] = f.as_strided((1, 1), (2, 1), 0)  # the same element, by other strides
        return f

    for program in (partly, expanded, strided):
        accelerated = dycl.accelerate(program)
        for _ in range(3):
            with torch.no_grad():
                with pytest.raises(RuntimeError) as want:
                    program(torch.randn(4, 6))
                with pytest.raises(RuntimeError) as got:
                    accelerated(torch.randn(4, 6))
            assert str(want.value) == str(got.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_diagonals(dtype):
    def program(x, value):
        f, g = x * 1, x.t() * 1
        rows = f[1:]
        return f.fill_diagonal_(value), rows, g.fill_diagonal_(2)

    for shape in ((3, 3), (2, 5), (5, 2), (1, 1)):
        for value in (0, 1, -3):
            stats = check("diagonal", program, ((torch.randn(shape) * 4).to(dtype), value), f"{dtype} {shape} {value}")
            assert stats["torch"] == 0, stats
    for value in (0.5, 1e300, float("nan")):
        check("diagonal", program, ((torch.randn(3, 4) * 4).to(dtype), value), f"{dtype} {value}")
    check("three", lambda x: (x * 1).fill_diagonal_(1), (torch.ones(2, 2, 2, dtype=dtype),), "three")
    check("wrap", lambda x: (x * 1).fill_diagonal_(1, wrap=True), (torch.zeros(7, 2, dtype=dtype),), "wrap")


def test_many_views():
    """Rows one after the other, while all of them are there."""
    def program(x):
        f = x * 2
        for i, row in enumerate(f):
            row += i
        return f

    check("rows", program, (torch.randn(400, 5),), "many")


def test_large_parts_are_written_by_torch():
    def program(x):
        f = x * 2
        f[1:] += 1
        return f

    stats = check("large", program, (torch.randn(300, 300),), "large")
    assert stats["torch"] > 0, stats
