"""An operator that raises while its segment is replayed: what does not depend on it has its value, what does raises
torch's error again, whenever it is used, and no tensor is left in between."""

import copy
import gc
import pickle
import signal
import threading
import weakref

import pytest
import torch

import dycl
import started
from dycl import _core, _replay


class Refused(RuntimeError):
    pass


@pytest.fixture
def erf_raises(monkeypatch):
    def step(n, x):
        raise Refused("no erf", 7)

    monkeypatch.setitem(_replay.STEPS, "erf", step)
    _core.set_replaying(True)
    yield
    _core.set_replaying(False)


USES = {
    "item": lambda t: t.sum().item(), "list": lambda t: t.tolist(), "repr": repr, "format": lambda t: f"{t}",
    "add": lambda t: t + 1, "radd": lambda t: 1 + t, "function": lambda t: torch.mul(t, 2),
    "second": lambda t: torch.ones(4) + t, "linear": lambda t: torch.nn.functional.linear(t, torch.ones(4, 4)),
    "in place": lambda t: t.add_(1), "written": lambda t: torch.zeros(4).copy_(t), "numpy": lambda t: t.numpy(),
    "shape": lambda t: t.shape, "stride": lambda t: t.stride(), "requires": lambda t: t.detach(),
    "view": lambda t: t.view(2, 2), "index": lambda t: t[0], "key": lambda t: t.__setitem__(0, 1),
    "bool": lambda t: bool(t.all()), "copy": copy.deepcopy, "pickle": pickle.dumps, "len": len,
    "iterate": list, "data": lambda t: t.data, "pointer": lambda t: t.data_ptr(),
    "out": lambda t: torch.add(1, 1, out=t),
    "cat": lambda t: torch.cat([t, t]), "namespace": lambda t: torch.ops.aten.add(t, t), "real": lambda t: t.real,
    "set": lambda t: setattr(torch.zeros(4), "data", t), "module": lambda t: torch.nn.Linear(4, 4)(t),
    "parameter": lambda t: torch.nn.Parameter(t).sum(), "size": lambda t: t.size(0), "T": lambda t: t.mT,
    "backward": lambda t: t.sum().backward(), "type": lambda t: t.double(), "dlpack": torch.utils.dlpack.to_dlpack,
    "custom": lambda t: torch.einsum("i,i->", t, t), "storage": lambda t: t.untyped_storage(),
    "version": lambda t: t._version, "where": lambda t: torch.where(t > 0, 1, 0),
    "equal": lambda t: torch.equal(t, t),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("where", ["caught", "behind"])
def test_each_use_of_what_is_lost_raises_the_error(erf_raises, use, grad, where):
    kept = []

    def program(x):
        kept.extend([x + 1, torch.erf(x) + 1, x * 3])
        if where == "caught":
            with pytest.raises(Refused):
                kept[0].tolist()
            for _ in range(2):
                with pytest.raises(Refused) as raised:
                    USES[use](kept[1])
                assert raised.value.args == ("no erf", 7)
            return (kept[2] * 2).tolist()
        return None

    accelerated, x = dycl.accelerate(program), torch.ones(4, requires_grad=grad)
    if where == "caught":
        assert accelerated(x) == [6.0] * 4
    else:
        with pytest.raises(Refused):
            accelerated(x)
    for _ in range(2):
        with pytest.raises(Refused) as raised:
            USES[use](kept[1])
        assert raised.value.args == ("no erf", 7)
    assert kept[0].tolist() == [2.0] * 4 and (kept[2] + 1).tolist() == [4.0] * 4
    assert type(kept[0]) is type(kept[2]) is torch.Tensor
    assert kept[0].requires_grad == grad
    if grad:
        (kept[0] * kept[2]).sum().backward()
        assert x.grad.tolist() == [9.0] * 4


def test_first_error_is_raised_once_and_the_call_goes_on(erf_raises):
    def program(x):
        y = x + 1
        z = torch.erf(x) * 2
        try:
            s = (y + z).sum().item()
        except Refused:
            s = None
        return s, y * 2, y.sum().item()

    for _ in range(3):
        s, doubled, total = dycl.accelerate(program)(torch.ones(4))
        assert s is None and doubled.tolist() == [4.0] * 4 and total == 8.0


def test_lost_tensors_die_like_others(erf_raises):
    kept, died = [], []

    def program(x):
        y = torch.erf(x)
        weakref.finalize(y, died.append, "y")
        kept.append(y)

    with pytest.raises(Refused):
        dycl.accelerate(program)(torch.ones(4))
    with pytest.raises(Refused):
        kept[0].item()
    gc.collect()
    assert not died
    kept.clear()
    assert died == ["y"]


@pytest.mark.parametrize("grad", [False, True])
def test_views_and_writes(erf_raises, grad):
    kept = []

    def program(x):
        y = x * 2
        view = y[1:]
        y.mul_(3)
        z = x + 2
        kept.extend([y, view, y.t(), torch.erf(x)])
        kept.extend([kept[3][:2], z])
        z.add_(kept[3])
        (x - 1).tolist()

    x = torch.ones(4, requires_grad=grad)
    with pytest.raises(Refused):
        dycl.accelerate(program)(x)
    y, view, transposed, *lost = kept
    assert y.tolist() == transposed.tolist() == [6.0] * 4 and view.tolist() == [6.0] * 3
    assert y._version == view._version == 1
    with torch.no_grad():
        y.fill_(5)
    assert view.tolist() == [5.0] * 3 and transposed.tolist() == [5.0] * 4
    for t in lost:
        with pytest.raises(Refused):
            t.tolist()


@pytest.mark.parametrize("training", [False, True])
def test_buffers(erf_raises, training):
    """Those that an operator behind the error would have written keep their values."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)
            self.late = torch.nn.BatchNorm1d(4)

        def forward(self, x):
            return self.late(torch.erf(self.norm(x)))

    model = Model().train(training)
    expected = copy.deepcopy(model)
    accelerated, x = dycl.accelerate(model), torch.arange(8.0).view(2, 4)
    with torch.no_grad(), pytest.raises(Refused):
        accelerated(x)
    with torch.no_grad():
        expected.norm(x)
    torch.testing.assert_close(model.norm.state_dict(), expected.norm.state_dict())
    torch.testing.assert_close(model.late.running_mean, expected.late.running_mean)


def test_optimizer(erf_raises):
    p, q = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))

    def step(x):
        p.grad, q.grad = x * 2, torch.erf(x)
        torch.optim.SGD([p, q], lr=0.5).step()

    with pytest.raises(Refused):
        dycl.accelerate(step)(torch.ones(3))
    assert p.tolist() in ([0.0] * 3, [1.0] * 3) and q.tolist() == [1.0] * 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Refused])
@pytest.mark.parametrize("grad", [False, True])
def test_handler_that_raises_meanwhile(monkeypatch, error, grad):
    """It is no operator's error: nothing is lost."""
    kept, due = [], [True]

    def handler(*_):
        raise error("handler")

    def step(n, x):
        if due:
            due.clear()
            signal.raise_signal(signal.SIGUSR1)
        return torch.erf(x)

    def program(x):
        kept.extend([x + 1, torch.erf(x), x * 2])

    monkeypatch.setitem(_replay.STEPS, "erf", step)
    before = signal.signal(signal.SIGUSR1, handler)
    _core.set_replaying(True)
    try:
        with pytest.raises(error):
            dycl.accelerate(program)(torch.ones(4, requires_grad=grad))
    finally:
        _core.set_replaying(False)
        signal.signal(signal.SIGUSR1, before)
    assert not due
    for t, expected in zip(kept, (torch.full((4,), 2.0), torch.erf(torch.ones(4)), torch.full((4,), 2.0))):
        torch.testing.assert_close(t.detach(), expected)


def test_another_thread_asks(erf_raises):
    """The error is raised in the thread whose call it is."""
    kept, seen = [], []

    def ask():
        for t in kept:
            try:
                seen.append(t.tolist())
            except Refused as error:
                seen.append(error.args)

    def program(x):
        kept.extend([x + 1, torch.erf(x)])
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return (x * 3).tolist()

    with pytest.raises(Refused):
        dycl.accelerate(program)(torch.ones(2))
    assert seen == [[2.0, 2.0], ("no erf", 7)]


MEMORY = """
import resource, torch, dycl
torch.set_num_threads(1)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30), -1))
for grad in (False, True):
    for how in ("behind", "caught"):
        for call in range(3):
            kept = []
            def program(x):
                kept.append(x + 1)
                kept.append(x.expand(2**30, 4) + 1)
                kept.append(kept[0] * 2)
                kept.append(kept[1].sum())
                if how == "caught":
                    try:
                        kept[3].item()
                    except RuntimeError as error:
                        assert "allocate" in str(error)
                    else:
                        raise AssertionError
                    return kept[2] + 1
            accelerated = dycl.accelerate(program)
            try:
                assert accelerated(torch.ones(4, requires_grad=grad)).tolist() == [5.0] * 4 and how == "caught"
            except RuntimeError as error:
                assert how == "behind" and "allocate" in str(error), error
            assert kept[0].tolist() == [2.0] * 4 and kept[2].tolist() == [4.0] * 4
            for t in (kept[1], kept[3]):
                try:
                    t.sum().item()
                except RuntimeError as error:
                    assert "allocate" in str(error), error
                else:
                    raise AssertionError
"""


def test_too_little_memory():
    done = started.run(["-c", MEMORY])
    assert done.returncode == 0, done.stdout[-3000:]


def test_another_thread_sets_data():
    """The C setter takes what is recorded in another thread."""
    made = []

    def use(t):
        z = torch.zeros(4)
        z.data = t
        made.append(z)

    def program(x):
        y = x + 1
        thread = threading.Thread(target=use, args=(y,))
        thread.start()
        thread.join()
        return y

    dycl.accelerate(program)(torch.ones(4))
    assert made[0].tolist() == [2.0] * 4
