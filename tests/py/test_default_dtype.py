"""Programs whose default dtype is float64, as those of physics and Gaussian processes: what floats of Python and
functions of integers become, hangs on it. float16 and bfloat16 are left to torch."""

import contextlib

import dycl
import pytest
import torch
import torch.nn.functional as F
from known import is_known
from samples import op_db
from suite import check, one_thread  # noqa: F401 (a fixture)
from test_op_db import UNINITIALISED, _bound, _chain, _function, _samples

dycl.accelerate(lambda: None)  # finds torch


@contextlib.contextmanager
def default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _cases():
    for op in op_db:
        for dtype in (torch.int64, torch.bool, torch.float64):
            name = f"{op.full_name}-{str(dtype).removeprefix('torch.')}"
            if dtype in op.supported_dtypes("cpu") and _bound(op) and not is_known("op_db", name):
                yield pytest.param(op, dtype, id=name)


@pytest.mark.parametrize("op, dtype", list(_cases()))
def test_operator(op, dtype):
    with default(torch.float64):
        for sample in _samples(op, dtype, True):
            for form in (_function, _chain):
                check(op.full_name, form(op.op), (sample.input, sample.args, sample.kwargs), sample.summary,
                      values=op.name not in UNINITIALISED)


def created(x):
    n = x.long()
    return (torch.zeros(3), torch.ones(2, 2) + x.sum(), torch.full((2,), 0.5), torch.full((2,), 1), torch.eye(3),
            torch.arange(0.0, 4.0), torch.arange(4) / 3, torch.tensor(0.1) * n, torch.tensor([]), torch.rand(3),
            torch.randn(2), torch.linspace(0, 1, 5), torch.scalar_tensor(2), torch.bernoulli(torch.full((4,), 0.5)))


def promoted(x):
    n = x.long()
    return (n * 0.1, n.sqrt(), n.sigmoid() + 1, torch.where(n > 0, 0.5, 0.1), torch.where(n > 0, n, 0.1), n == 0.1,
            torch.add(n, n, alpha=2) * 0.1, n.float() * 0.1, n ** -1.5, n.logsumexp(0), torch.pow(0.1, n),
            torch.atan2(n, n), torch.logaddexp(n * 0.1, n * 0.3), torch.div(n, 3), n.true_divide(7), (n > 0) * 0.1,
            F.one_hot(n.abs() % 3, 3) * 0.3, torch.lerp(n * 0.1, n * 0.2, 0.3), n.clamp(0.5),
            torch.maximum(n, torch.tensor(0.1)), torch.nan_to_num(n * 0.1), n.abs().lgamma(), n.i0(), n.sinc(),
            torch.special.ndtr(n), torch.special.erfcx(n))


def switched(x):
    n = x.long()
    before = n * 0.1
    with default(torch.float64):
        inside = n * 0.1 + torch.ones(1)
        with default(torch.float32):
            innermost = n * 0.1 + torch.ones(1)
        with default(torch.bfloat16):
            narrow = n * 0.1 + torch.ones(1)
        again = n / 3
    return before, inside, innermost, narrow, again, n / 3


def by_type(x):
    torch.set_default_tensor_type(torch.DoubleTensor)
    try:
        return x.long() * 0.1
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
@pytest.mark.parametrize("first", (torch.float32, torch.float64))
@pytest.mark.parametrize("program", (created, promoted, switched, by_type))
def test_program(program, first):
    other = torch.float64 if first == torch.float32 else torch.float32
    fast = dycl.accelerate(lambda x: program(x))
    x = torch.randn(7) * 3
    narrow = [torch.bfloat16] if program is not promoted else []  # torch.special has none of it
    for dtype in (first, first, first, other, other, first, *narrow, other):
        with default(dtype):
            torch.manual_seed(1)
            wanted = program(x)
            torch.manual_seed(1)
            got = fast(x)
        assert [t.dtype for t in got] == [t.dtype for t in wanted]
        torch.testing.assert_close(got, wanted, rtol=1e-5 if program is promoted else 0, atol=0, equal_nan=True)


def test_it_is_recorded():
    fast = dycl.accelerate(lambda x: (x.long() * 0.1).exp() + 1)
    with default(torch.float64):
        for _ in range(3):
            assert fast(torch.randn(8)).dtype == torch.float64
    stats = dycl.stats(fast)
    assert stats["plain_calls"] == 0 and stats["recorded"] >= 9


def trained(accelerate, optimizer):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.LayerNorm(16), torch.nn.Dropout(0.2),
                                torch.nn.Linear(16, 3))
    step = optimizer(model.parameters())
    if accelerate:
        model = dycl.accelerate(model)
    losses = []
    for _ in range(6):
        loss = F.cross_entropy(model(torch.randn(8, 6)), torch.randint(3, (8,)))
        step.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(p.detach() for p in model.parameters())]


OPTIMIZERS = {"sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), "adamw": lambda p: torch.optim.AdamW(p, 1e-2),
              "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training(optimizer):
    with default(torch.float64):
        wanted, got = trained(False, optimizer), trained(True, optimizer)
        assert all(t.dtype == torch.float64 for t in got)
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)
