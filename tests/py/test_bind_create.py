"""Tensors made inside a region, conversions, properties and reads."""

import pytest
import torch

import dycl
from binding_check import check, check_error, tensor


X = tensor(2, 3)


def test_arange():
    check(lambda: (torch.arange(5), torch.arange(2, 7), torch.arange(7, 2, -2), torch.arange(0, 7, 3),
                   torch.arange(end=4), torch.arange(1, 4, step=2), torch.arange(0)))
    check(lambda: (torch.arange(5.0), torch.arange(1.0, 6.0, 2.0), torch.arange(0, 5, dtype=torch.float32),
                   torch.arange(3, dtype=torch.int32), torch.arange(4, dtype=torch.float64),
                   torch.arange(3, device="cpu"), torch.arange(3, device=torch.device("cpu"), requires_grad=False),
                   torch.arange(start=1, end=3)))
    check(lambda: (torch.arange(0, 1, 0.1), torch.arange(2.5)))
    check(lambda x: (torch.arange(x.shape[1], device=x.device)[None] + x.long()), X)
    check_error(lambda: torch.arange(3, 0))
    check_error(lambda: torch.arange(0, 3, 0))


def test_constants():
    check(lambda: (torch.zeros(2, 3), torch.zeros((2, 3)), torch.zeros(3, dtype=torch.int64), torch.zeros(()),
                   torch.ones(2, dtype=torch.bool), torch.ones([2, 2]), torch.zeros(0, 3),
                   torch.ones(size=(2,)), torch.zeros(2, 3, device="cpu", dtype=torch.float64), torch.zeros([])))
    check(lambda: (torch.full((2, 3), 1.5), torch.full((2,), 3), torch.full([2], True), torch.full((), float("-inf")),
                   torch.full((2,), 2, dtype=torch.float32), torch.full((3,), float("nan")),
                   torch.full((2,), 7, dtype=torch.uint8)))
    check(lambda x: (torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 2),
                     torch.zeros_like(x, dtype=torch.int64), torch.ones_like(x, dtype=torch.bool),
                     torch.full_like(x, 0.5)), X)
    check(lambda x: (torch.zeros_like(x), torch.ones_like(x, memory_format=torch.contiguous_format)), X.t())
    check(lambda x: (x.new_zeros(2, 2), x.new_zeros((3,)), x.new_ones(2), x.new_full((2, 2), 3),
                     x.new_zeros(2, dtype=torch.int64), x.new_ones(()), x.new_full((2,), 7, dtype=torch.int64)), X)
    check(lambda: (torch.eye(3), torch.eye(2, 4), torch.eye(3, dtype=torch.int64), torch.eye(0)))
    check(lambda: (torch.tensor(3.0), torch.tensor(3), torch.tensor(True), torch.scalar_tensor(2),
                   torch.tensor(2, dtype=torch.float32), torch.tensor(1.5, dtype=torch.float64), torch.tensor(-1)))
    check(lambda: (torch.tensor([1.0, 2.0]), torch.empty(0), torch.linspace(0, 1, 3)))
    check(lambda x: (torch.as_tensor(x), torch.as_tensor(x + 1), torch.as_tensor(2.5),
                     torch.as_tensor(x, dtype=torch.int64), torch.as_tensor(3, device="cpu")), X)
    check(lambda: (torch.zeros(1, 1, 1, 1, 1, 1, 1, 2, dtype=torch.int64),
                   X.new_ones(1, 1, 1, 1, 1, 1, 1, 2, dtype=torch.int64)))
    check(lambda: torch.zeros(1, 1, 1, 1, 1, 1, 1, 2, 1))
    check_error(lambda: torch.zeros(-1))
    check_error(lambda: torch.full((2,), 300, dtype=torch.uint8))
    check_error(lambda: torch.ones(2, 3, size=(2,)))


def test_types_of_python_as_dtypes():
    x = torch.randn(3, 4)
    for kind in (int, float, bool):
        check(lambda x: (torch.tensor(2, dtype=kind), torch.zeros(3, dtype=kind), torch.full((2,), 1, dtype=kind),
                         x.to(dtype=kind), torch.zeros_like(x, dtype=kind)), x)
    check(lambda x: (x.sum(0, dtype=float), torch.arange(4, dtype=float), (x > 0).cumsum(0, dtype=int)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_deterministic_algorithms_fill_what_is_empty(dtype):
    """torch.use_deterministic_algorithms(True): memory that nobody wrote holds NaN, or the largest integer."""
    makers = [lambda x: torch.empty(2, 3, dtype=dtype), lambda x: torch.empty(size=(3,), dtype=dtype),
              lambda x: torch.empty_like(x * 2, dtype=dtype), lambda x: (x + 1).new_empty(4, dtype=dtype),
              lambda x: torch.empty_like(x.t(), dtype=dtype), lambda x: (x + 1).to(dtype).clone().resize_(50),
              lambda x: torch.empty_strided((2, 2), (1, 2), dtype=dtype)]
    functions = [dycl.accelerate(make) for make in makers]
    for enabled in (True, False, True):
        torch.use_deterministic_algorithms(enabled)
        try:
            with torch.no_grad():
                for make, function in zip(makers, functions):
                    want, got = make(X), function(X)
                    assert want.shape == got.shape and want.stride() == got.stride() and want.dtype == got.dtype
                    assert not enabled or torch.equal(want.nan_to_num(7), got.nan_to_num(7))
        finally:
            torch.use_deterministic_algorithms(False)


def test_fill_in_place():
    def function(x):
        y = x * 2
        z = y.zero_()
        w = x + 1
        return z is y, y, w.fill_(3), w.fill_(2.5) is w

    check(function, X)
    check(lambda x: (x.zero_(), x.fill_(1)), X, left=None)


def test_to():
    for x in (X, X.t(), tensor(2, 3, dtype=torch.int64), X.expand(2, 2, 3)):
        check(lambda x: (x.to(torch.float32), x.to(torch.int64), x.to("cpu"), x.to(torch.device("cpu")),
                         x.to("cpu", torch.float64), x.to(device="cpu"), x.to(dtype=torch.bool), x.to(x),
                         x.to(x.long()),
                         x.to(torch.float32, copy=True), x.to(x, copy=True), x.to("cpu", copy=True),
                         x.to(torch.int32, True), x.to(torch.float64, False, True), x.to(tensor=x),
                         x.to(device=None, dtype=torch.int64)), x)
        check(lambda x: (x.type(torch.float32), x.type(torch.int64), x.type(dtype=torch.float64), x.type(),
                         x.type_as(x), x.type_as(x.bool()), x.cpu(), x.float(), x.long()), x)
    check(lambda x: (x.to(torch.float16), x.to(torch.bfloat16)), X)
    check(lambda x: (x + 1).to(torch.float32).to("cpu"), X)
    check_error(lambda x: x.to("nonsense"), X)
    check(lambda x: x.to(), X)


def test_properties():
    def function(x):
        y = x + x
        return [(t.size(), t.size(0), t.size(-1), t.dim(), t.ndimension(), t.numel(), t.nelement(), t.stride(),
                 t.stride(1), t.element_size(), t.is_floating_point(), t.is_contiguous(), t.is_complex(),
                 t.get_device(), t.is_same_size(x), len(t), torch.numel(t), torch.is_floating_point(t),
                 torch.is_complex(t), t.shape, t.dtype, t.is_signed(), t.size(dim=1)) for t in (x, y, y.t(), y[0:0])]

    for dtype in (torch.float32, torch.int64, torch.bool):
        check(function, X.to(dtype))
    check_error(lambda x: (x + 1).size(2), X)
    check_error(lambda x: len(x), torch.tensor(1.0))
    check_error(lambda x: len(x + 1), torch.tensor(1.0))


def test_values():
    def function(x):
        total = x.sum()
        first = x[0, 0]
        return (total.item(), float(total), int(total), bool(total), total.tolist(), x.tolist(), (x + 1).tolist(),
                (x > 2).tolist(), first.item(), x[:, 0].tolist(), (x + 1)[0, 1].item(),
                (x > 2)[0, 0].item(), x.long()[0, 1].item(), x.argmax().item(), [0, 1, 2, 3, 4, 5, 6, 7][x.argmax()],
                total.is_nonzero())

    check(function, X)
    check(lambda x: "positive" if x.sum() > 0 else "negative", X)
    check(lambda x: "positive" if x.sum() > 0 else "negative", -X)
    check_error(lambda x: x.item(), X)
    check_error(lambda x: (x + 1).item(), X)
    check_error(lambda x: bool(x + 1), X)
    check_error(lambda x: int(x.sum()), X + float("nan"))
    check_error(lambda x: [1, 2, 3][x.sum()], X)


def test_requires_grad():
    check(lambda x: (lambda y: (y.requires_grad_(False) is y, y))(x + 1), X)


def test_tensor_of_nothing():
    check(lambda x: torch.cat([torch.tensor([], dtype=x.dtype, device=x.device), x.reshape(-1)]), torch.randn(3, 4))
    check(lambda x: (torch.tensor([]), x + 1), torch.randn(2))


LIES = {"rows": lambda t: t, "turned": lambda t: t.transpose(1, 2), "steps": lambda t: t[:, ::2],
        "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
        "expanded": lambda t: t[:, :1].expand(2, 4, 4, 5),
        "one": lambda t: torch.as_strided(t, (1, 1), (0, 7)), "none": lambda t: t[:, :0].transpose(2, 3)}


@pytest.mark.parametrize("copy", (False, True))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.int64, "cpu"))
@pytest.mark.parametrize("lies", LIES)
def test_conversions_into_rows(lies, dtype, copy):
    x = LIES[lies](torch.randn(2, 4, 4, 5)).detach().requires_grad_()
    for before in (1, 2):
        def program(x):
            y = (x * before if before > 1 else x).to(dtype, memory_format=torch.contiguous_format, copy=copy)
            return y * 1, y

        def outcome(f):
            _, y = f(x)
            found = [y.dtype, y.stride(), y is x, y._version, y.grad_fn and y.grad_fn.name(), y.tolist()]
            if y.requires_grad:
                g, = torch.autograd.grad((y * torch.arange(y.numel()).view(y.shape)).sum(), x)
                found += [g.tolist(), g.stride()]
            return found

        run = dycl.accelerate(program)
        for _ in range(2):
            assert outcome(run) == outcome(program)
        assert dycl.stats(run)["torch"] == 0, dycl.explain(run)
