"""Exchange of arrays with NumPy: what comes out of a region, what goes in, and whose memory it is. Each program runs
eager and accelerated."""

import gc
import pathlib
import sys
import weakref

import dycl
import started
import numpy as np
import pytest
import torch
from same import Programs, same, two

program = Programs()


@pytest.mark.parametrize("function, make, options", program.cases)
def test_exchange(function, make, options):
    same(function, make, **options)


def facts(array, tensor=None):
    """Everything that a program can see of an array over a tensor's memory, besides its elements."""
    flags = array.flags
    known = [type(array), array.dtype, array.shape, array.strides, flags.writeable, flags.owndata, flags.aligned,
             flags.c_contiguous, flags.f_contiguous,
             type(array.base), array.base is tensor]  # fmt: skip
    if isinstance(array.base, torch.Tensor):
        base = array.base
        known += [base.shape, base.stride(), base.dtype, base.requires_grad, base.is_leaf, base._is_view(),
                  base._base is None, base.is_inference(), vars(base)]
        known += [base.untyped_storage().resizable(), base.untyped_storage().nbytes()]
    if tensor is not None:
        known += [array.ctypes.data == tensor.data_ptr(), tensor.untyped_storage().resizable()]
        known += [] if tensor.is_inference() else [tensor._version]
    return known


def error_of(function):
    try:
        return function()
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)


# ---- out of the region -----------------------------------------------------------------------------------------------

WAYS = {
    "numpy": lambda a: a.numpy(),
    "force": lambda a: a.numpy(force=True),
    "not forced": lambda a: a.numpy(force=False),
    "array": lambda a: a.__array__(),
    "array of None": lambda a: a.__array__(None),
    "array of dtype": lambda a: a.__array__(np.float64),
    "array of its own dtype": lambda a: a.__array__(dtype=a.numpy().dtype),
    "asarray": np.asarray,
    "asarray float64": lambda a: np.asarray(a, dtype=np.float64),
    "array copy": np.array,
    "array no copy": lambda a: np.array(a, copy=False),
    "ascontiguous": np.ascontiguousarray,
}
TENSORS = {
    "result": lambda x, y: x + y,
    "view of a result": lambda x, y: (x + y)[1:, ::2],
    "transposed": lambda x, y: (x + y).t(),
    "expanded": lambda x, y: (x + y)[:, :1].expand(4, 6),
    "0-dim": lambda x, y: (x + y).sum(),
    "empty": lambda x, y: (x + y)[:0],
    "argument": lambda x, y: x,
    "view of an argument": lambda x, y: x[2],
    "double": lambda x, y: (x + y).double(),
    "int64": lambda x, y: (x * 9).long(),
    "int32": lambda x, y: (x * 9).int(),
    "int16": lambda x, y: (x * 9).short(),
    "int8": lambda x, y: (x * 9).to(torch.int8),
    "uint8": lambda x, y: (x.abs() * 9).to(torch.uint8),
    "bool": lambda x, y: x > y,
    "bfloat16": lambda x, y: (x + y).bfloat16(),
    "half": lambda x, y: (x + y).half(),
    "complex": lambda x, y: torch.complex(x + y, y),
    "conjugate": lambda x, y: torch.complex(x + y, y).conj(),
    "negative bit": lambda x, y: torch.complex(x + y, y).conj().imag,
    "sparse": lambda x, y: (x + y).to_sparse(),
    "meta": lambda x, y: (x + y).to("meta"),
    "written in place": lambda x, y: (x + y).add_(1).mul_(y),
    "detached": lambda x, y: x.detach(),
    "parameter": lambda x, y: torch.nn.Parameter(x + y),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tensor", TENSORS)
@pytest.mark.parametrize("way", WAYS)
def test_arrays_of_tensors(way, tensor):
    def exchanged(x, y):
        waiting = x * 2
        a = TENSORS[tensor](x, y)
        also = a * 2 if tensor not in ("sparse", "meta") else None
        n = error_of(lambda: WAYS[way](a))
        if not isinstance(n, np.ndarray):
            return n, waiting, also
        if n.size and tensor != "expanded":
            n[...] = 1
        return waiting, also, a * 2, n.copy(), facts(n, a), (x * 1, y * 1)

    same(exchanged, two, recorded=None)
    same(exchanged, two, recorded=None, grad=True)
    with torch.inference_mode():
        same(exchanged, two, recorded=None)


@program()
def written_on_both_sides(x, y):
    a = x + y
    b = a * 2
    n = a.numpy()
    n[0] = 5
    c = a * 2
    a.add_(1)
    d = n.copy()
    a[1] = 7
    e = n.copy()
    n[2] = -1
    return a, b, c, d, e, n, a.sum(), facts(n, a)


@program()
def written_after_the_region(x, y):
    a = x + y
    return a, a.numpy(), np.asarray(a[1])


def test_memory_is_shared_after_the_region():
    for function in (written_after_the_region, dycl.accelerate(written_after_the_region)):
        with torch.no_grad():
            a, n, row = function(*two())
        assert type(a) is torch.Tensor and np.shares_memory(n, row)
        a.zero_()
        assert not n.any() and not row.any()
        row[:] = 3
        assert a[1].tolist() == [3] * 6 and a.sum() == 18
        with pytest.raises(RuntimeError, match="resize storage that is not resizable"):
            a.resize_(100)


@program()
def not_resizable_afterwards(x, y):
    a, b = x + y, x - y
    n = a.numpy()
    m = np.asarray(b[0])
    return (error_of(lambda: a.resize_(100)), error_of(lambda: b.resize_(100)), a.resize_(2, 3), n, m,
            error_of(lambda: a.untyped_storage().resize_(0)))


@program()
def every_array_has_a_base_of_its_own(x, y):
    a = x + y
    n, m = a.numpy(), a.numpy()
    n.base.t_()
    n.base.mark = 1
    return n.base is m.base, n.base.shape, a.shape, a * 2, n, vars(m.base), vars(a), np.shares_memory(n, m)


@program()
def versions_are_shared_with_the_base(x, y):
    a = x + y
    n = a.numpy()
    before = a._version
    n.base.add_(1)
    a.mul_(2)
    return a, before, a._version, n.base._version, n


@program()
def read_by_what_waits(x, y):
    a = x + y
    bool(a.sum() > 0)
    b, v = a * 2, a[1:]
    c = v.exp()
    n = v.numpy()
    n *= 0
    return a, b, c, v * 1, v + a[:3]


@program()
def aliases_of_an_argument(x, y):
    b = x + 1
    n = x.view(-1).detach().numpy()
    n[:3] = 8
    c = x + 1
    x[0, 1] = -4
    return b, c, n, x.numpy(), facts(n, x)


@program()
def ways_to_call_it_wrong(x, y):
    a = x + y
    return [error_of(f) for f in (lambda: (a * 1).numpy(True), lambda: (a * 1).numpy(force=1),
                                  lambda: (a * 1).numpy(force=None), lambda: (a * 1).numpy(out=None),
                                  lambda: (a * 1).__array__(np.float64, 1), lambda: (a * 1).__array__("what"),
                                  lambda: x.numpy(3), lambda: x.__array__(5),
                                  lambda: torch.Tensor.numpy(), lambda: torch.Tensor.numpy(3),
                                  lambda: torch.Tensor.numpy(a * 1, force=True))]


def weight():
    return torch.nn.Linear(6, 4), torch.randn(3, 6)


@program(weight)
def gradients_are_asked_for(linear, x):
    a = x * 2
    with torch.enable_grad():
        b = [error_of(lambda t=t: t.numpy()) for t in (linear.weight, linear.weight * 1, linear.weight.t(), a)]
    return b, linear.weight.numpy(), linear.weight.detach().numpy(), error_of(lambda: linear(x).numpy())


@program(weight, calls=5, like="matmul")
def packed_weight_is_written(linear, x):
    a = linear(x)
    linear.weight.detach().numpy()[0] += 1
    b = linear(x)
    linear.bias.data.t().numpy()[1] = 3
    return a, b, linear(x + 1)


KEPT = []


def test_arrays_keep_their_memory():
    def keep(x, y):
        a = x + y
        KEPT.append(weakref.ref(a))
        return a.numpy(), a[1].numpy()

    accelerated = dycl.accelerate(keep)
    x, y = two()
    with torch.no_grad():
        n, m = accelerated(x, y)
    gc.collect()
    assert KEPT.pop()() is None
    for _ in range(50):
        torch.empty(4, 6).fill_(-7)
    np.testing.assert_array_equal(n, (x + y).numpy())
    np.testing.assert_array_equal(m, (x + y)[1].numpy())
    base = weakref.ref(n.base)
    del n
    assert base() is None and np.shares_memory(m, m.base.numpy())


def test_nothing_grows():
    def exchange(x, i):
        a = x + i
        n = a.numpy()
        n[0] = 1
        return (np.asarray(a * np.float64(2)), torch.as_tensor(n), torch.tensor(n), x.numpy(),
                (a + np.int64(3)).__array__(np.float64))

    accelerated, x = dycl.accelerate(exchange), torch.randn(64)
    counted = (torch.Tensor, np.ndarray, np.dtype(np.float32), np.dtype(np.float64), x, None, True, torch.as_tensor,
               torch.tensor)
    with torch.no_grad():
        for i in range(300):
            accelerated(x, i)
        gc.collect()
        objects, references = len(gc.get_objects()), [sys.getrefcount(o) for o in counted]
        for i in range(3000):
            accelerated(x, i)
        gc.collect()
    assert abs(len(gc.get_objects()) - objects) < 60
    assert all(abs(sys.getrefcount(o) - n) < 60 for o, n in zip(counted, references))


def test_it_is_not_left_to_torch():
    def exchange(x, y):
        a = x + y
        b = a * np.float64(2) + np.int64(1)
        return a.numpy(), np.asarray(b), torch.tensor(KEPT), x.numpy()

    accelerated = dycl.accelerate(exchange)
    with torch.no_grad():
        for _ in range(3):
            accelerated(*two())
    stats = dycl.stats(accelerated)
    assert stats["torch"] == 0 and stats["recorded"] == 4 * 3, stats


# ---- into the region -------------------------------------------------------------------------------------------------


def arrays():
    return torch.randn(4, 6), np.arange(24, dtype=np.float32).reshape(4, 6)


@program(arrays)
def tensors_of_arrays(x, a):
    b = x * 2
    s, t, u = torch.from_numpy(a), torch.as_tensor(a), torch.tensor(a)
    c = s + t + u + b
    a[0] = 9
    d = s + t + u
    t[1] = 4
    e = s + a[1, 0]
    s.add_(x)
    return b, c, d, e, s, t, u, a, t.data_ptr() == a.ctypes.data, u.data_ptr() == a.ctypes.data


@program(arrays)
def options_of_tensors_of_arrays(x, a):
    return [error_of(f) for f in (lambda: torch.as_tensor(a, dtype=torch.float64),
                                  lambda: torch.as_tensor(a, device="cpu"),
                                  lambda: torch.as_tensor(a, torch.float32, torch.device("cpu")),
                                  lambda: torch.tensor(a, dtype=torch.int64),
            lambda: torch.tensor(data=a), lambda: torch.as_tensor(data=a.T), lambda: torch.as_tensor(a[1:, ::2]),
            lambda: torch.tensor(a, requires_grad=True), lambda: torch.as_tensor(a[0, 0]), lambda: torch.tensor(a[0]),
            lambda: torch.as_tensor(np.float32(3)), lambda: torch.tensor(np.int32(3)), lambda: torch.asarray(a),
            lambda: torch.asarray(a, copy=True), lambda: torch.Tensor(a), lambda: torch.FloatTensor(a),
            lambda: x.new_tensor(a),
            lambda: torch.as_tensor([a, a]), lambda: torch.stack([torch.from_numpy(a), x + 1]))], x * 2  # fmt: skip


@program(arrays)
def arrays_that_are_no_tensors(x, a):
    b = x + 1
    frozen = a.copy()
    frozen.flags.writeable = False
    odd = (a[::-1], a.astype(">f4"), np.array(["a"]), np.array([object()]), np.array([b], dtype=object),
           a.astype(np.uint16), a.astype(np.float16), np.datetime64(3, "s"), frozen,
           np.ma.masked_array(a), np.asmatrix(a), np.rec.array(a), np.zeros((2, 0)), np.array(5.0))  # fmt: skip
    results = [error_of(lambda o=o, f=f: f(o)) for o in odd for f in (torch.as_tensor, torch.tensor, torch.from_numpy)]
    results += [error_of(f) for f in (lambda: torch.as_tensor(a, device="nowhere"), lambda: torch.as_tensor(a, dtype=3),
                                      lambda: torch.tensor(a, what=1), lambda: torch.tensor(a, b))]
    return [(type(r[0]), "..." if "0x" in str(r) else r) if isinstance(r, tuple) else r for r in results], b


def test_nothing_is_computed_for_a_tensor_of_an_array():
    def program(x, a):
        b = x + 1
        s, t = torch.as_tensor(a), torch.tensor(a)
        return b * 2, s, t

    accelerated = dycl.accelerate(program)
    with torch.no_grad():
        for _ in range(3):
            accelerated(*arrays())
    stats = dycl.stats(accelerated)
    assert stats["segments"] == 3 and stats["torch"] == 0, stats


# ---- operands --------------------------------------------------------------------------------------------------------

OPERATORS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "pow": lambda a, b: a**b,
    "and": lambda a, b: a & b,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "torch.add": torch.add,
    "torch.mul": torch.mul,
    "method": lambda a, b: a.mul(b) if isinstance(a, torch.Tensor) else b.mul(a),
    "alpha": lambda a, b: torch.add(a, a, alpha=b) if isinstance(a, torch.Tensor) else torch.add(b, b, alpha=a),
    "where": lambda a, b: torch.where(a > 0, a, b) if isinstance(a, torch.Tensor) else torch.where(b > 0, a, b),
    "clamp": lambda a, b: a.clamp(min=b) if isinstance(a, torch.Tensor) else b.clamp(a),
    "maximum": lambda a, b: torch.maximum(a, b),
    "full": lambda a, b: torch.full((2,), b if isinstance(a, torch.Tensor) else a),
    "masked": lambda a, b: a.masked_fill(a > 0, b) if isinstance(a, torch.Tensor) else b.masked_fill(b > 0, a),
}
SCALARS = [2.5, 2, True, False, 0, -1, 2**40, float("inf"), np.float64(2.5), np.float32(0.1), np.float16(3),
           np.int64(3), np.int32(-2), np.int16(5), np.int8(4), np.uint8(7), np.uint16(7), np.uint32(7),
           np.uint64(2**63 + 5),
           np.bool_(True), np.longdouble(2.5), np.complex64(1 + 2j), np.complex128(3j), np.float64("nan"),
           np.float32("inf"), np.str_("a"), np.int64(2**62), np.longlong(3)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool], ids=str)
def test_numbers(operator, dtype):
    f = OPERATORS[operator]

    def program(x):
        results = []
        for scalar in SCALARS:
            for g in (lambda: f(x.clone(), scalar), lambda: f(scalar, x.clone()), lambda: f(x, scalar)):
                results.append(error_of(g))
        return results

    same(program, lambda: ((torch.arange(24).reshape(4, 6) % 7).to(dtype),), calls=1, recorded=None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", OPERATORS)
def test_arrays_as_operands(operator):
    f = OPERATORS[operator]

    def program(x, a):
        b, results = x + 1, []
        for array in (a, a.astype(np.float64), a.astype(np.int64), a[0], np.array(2.0, dtype=np.float32), a[:0]):
            for g in (lambda: f(b.clone(), array), lambda: f(array, b.clone()), lambda: f(x, array)):
                results.append(error_of(g))
        return results, b, x * 1, a

    same(program, arrays, calls=2)


@program(arrays, recorded=None)
def in_place_operands(x, a):
    b, c, d = x + 1, x + 2, x > 0
    first = error_of(lambda: b.add_(np.float64(2)))
    b += np.float32(1)
    a += b.numpy()
    second = error_of(lambda: c.mul_(a))
    third = error_of(lambda: d.logical_and_(np.bool_(True)))
    return (b, c, d, first, second, third, a, error_of(lambda: c.copy_(a)), error_of(lambda: np.add(a, 1, out=c)),
            error_of(lambda: np.add(c, 1, out=a)))


@program(arrays)
def functions_of_numpy(x, a):
    b = x + 1
    return [error_of(f) for f in (lambda: np.add(b * 1, 1), lambda: np.add(a, b * 1), lambda: np.exp(b * 1),
                                  lambda: np.sum(b * 1), lambda: np.sum(b * 1, axis=1),
                                  lambda: np.mean(b * 1, axis=0, keepdims=True),
                                  lambda: np.max(b * 1), lambda: np.concatenate([b * 1, a]), lambda: np.stack([b, b]),
                                  lambda: np.matmul(a, (b * 1).T), lambda: np.greater(b * 1, 0),
                                  lambda: np.dot(a[0], b[0] * 1),
                                  lambda: np.where(b > 0, b * 1, a), lambda: np.reshape(b * 1, (6, 4)),
                                  lambda: np.transpose(b * 1), lambda: np.allclose(b * 1, a),
                                  lambda: np.array_equal(b * 1, b * 1),
                                  lambda: np.shape(b * 1), lambda: np.ndim(b * 1), lambda: float(np.float32(b.sum())),
                                  lambda: np.float64((b * 1)[0, 0]), lambda: np.squeeze((b * 1)[:1]),
                                  lambda: np.clip(b * 1, 0, 1), lambda: np.argmax(b * 1), lambda: np.cumsum(b * 1, 0),
                                  lambda: list(np.array_split(b * 1, 2)), lambda: np.full((2,), (b * 1).sum()),
                                  lambda: np.array([b.sum(), b.mean()]), lambda: np.array([(b * 1)[0], (b * 1)[1]]),
                                  lambda: np.isnan(b * 1).any())]


@program(arrays)
def indices_of_numpy(x, a):
    b, rows, mask = x + 1, np.array([0, 2, -1]), a[:, 0] > 3
    results = [b[rows], b[rows, 1], b[:, rows], b[rows[:, None], rows], b[mask], b[np.int64(1)],
               b[np.int32(1), np.int64(-1)], b[: np.int64(2)], b[np.array(2)], b[a > 5], b[None, rows]]
    results += [error_of(f) for f in (lambda: b[np.array([7])], lambda: b[np.array([1.5])], lambda: b[np.int64(9)],
                                      lambda: b[np.float32(1)], lambda: b[np.bool_(True)], lambda: b[a],
                                      lambda: b[rows.astype(np.uint16)])]
    rows[:] = 1
    b[rows[:1]] = 0
    b[np.int64(0), np.array([1, 2])] = a[0, 1:3]
    return (results, b, x[rows], b.index_select(0, torch.from_numpy(rows)), b.sum(np.int64(0)),
            b.reshape(np.int64(6), np.int32(4)), error_of(lambda: b.sum(np.float32(0))))


# ---- without NumPy ---------------------------------------------------------------------------------------------------


def test_without_numpy():
    code = """
import sys, warnings
sys.modules["numpy"] = None
warnings.simplefilter("ignore")
import torch, dycl
f = lambda x: (x + 1) * 2
def g(x):
    a = x + 1
    try:
        return a.numpy()
    except RuntimeError as error:
        return str(error)
x = torch.ones(3)
with torch.no_grad():
    fast = dycl.accelerate(f)
    assert fast(x).tolist() == f(x).tolist() and dycl.stats(fast)["recorded"] == 2
    assert dycl.accelerate(g)(x) == g(x) and "not available" in g(x), g(x)
    fast = dycl.accelerate(lambda x: (x + 1) * object())
    try:
        fast(x)
    except TypeError:
        print("fine")
"""
    done = started.run(["-c", code], cwd=pathlib.Path(__file__).parents[2])
    assert done.returncode == 0 and done.stdout == "fine\n", done.stderr
