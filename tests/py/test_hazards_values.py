"""What Python asks of a result inside a region: values, text, types, containers, copies, errors."""

import copy
import dataclasses
import math
import pickle
import typing
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dycl
from same import Programs, same, two


program = Programs()


@pytest.mark.parametrize("function, make, options", program.cases)
def test_values(function, make, options):
    same(function, make, **options)


# ---- values ----------------------------------------------------------------------------------------------------------


@program()
def numbers(x, y):
    a = (x + y).sum()
    n = (x > 0).sum()
    return (float(a), int(n), bool(a > 0), a.item(), n.item(), n.tolist(), a.tolist(), range(10)[n % 10],
            f"{a:.3f} {n}", complex(a), math.floor(n), round(n.item(), 1))


@program()
def not_numbers(x, y):
    a = x + y
    answers = []
    for ask in (bool, float, int, complex, lambda t: t.item(), lambda t: [1, 2][t], lambda t: a if t else None, hash,
                len, iter):
        try:
            ask(a)
            answers.append("answered")
        except Exception as error:  # noqa: BLE001
            answers.append((type(error), str(error)))
    return answers


@program()
def conversions_of_special_values(x, y):
    a = (x * 0).sum()
    answers = []
    for t in (a / 0, a + math.inf, -(a + math.inf), a - 0.5, (a + 3e9), a + 1e30):
        for ask in (int, bool, float, math.trunc, math.ceil):
            try:
                answers.append(ask(t))
            except Exception as error:  # noqa: BLE001
                answers.append((type(error), str(error)))
    return answers


@program()
def lists(x, y):
    a = (x + y > 0).long() - 1
    b = a.tolist()
    c, d = a.chunk(2)
    return (b, list(a[0]), [r.sum() for r in a], a.unbind(), [*c], sum(a), max(a[0]), min(r.sum() for r in d),
            sorted(a[0].tolist()), dict(enumerate(a[1])))


@program()
def text(x, y):
    a = (x > y).float() + 0
    b = a[0]
    print(a, b, a.sum(), a.t(), sep="\n")
    return (repr(a), str(b), f"{a}", "%s" % b, format(a.sum(), ".2f"), repr([b]), a.__class__.__name__,
            type(a).__name__, type(a).__qualname__, type(a).__module__)


@program()
def empty_and_0_dim(x, y):
    e = x[:0] + y[:0]
    s = x.sum() + 1
    return (e, s, e.sum(), len(e), e.tolist(), s.shape, e.mean(), s.dim(), e.numel(), [r for r in e], s.unsqueeze(0),
            repr(e), torch.cat([e, x]))


@program()
def metadata(x, y):
    a = (x + y).t()
    return (
        a.shape, a.size(), a.size(0), a.dtype, a.device, a.layout, a.stride(), a.ndim, a.dim(), a.numel(),
        a.is_contiguous(), a.requires_grad, a.grad,
        a.grad_fn, a.is_leaf, a.is_cuda, a.is_sparse, a.itemsize, a.nbytes, a.storage_offset(), a.element_size(),
        a.is_floating_point(), a._version,
        a.T.shape, a.mT.shape, a.H.shape, a.real.shape, a.is_complex(), a.type(), a.names, a.is_quantized, a.output_nr,
        a.retains_grad, a.is_shared(),
        a.has_names(), a.is_pinned(), torch.is_tensor(a), torch.is_storage(a), torch.numel(a),
        torch.is_floating_point(a), a.is_inference(), a.data.shape,
    )  # fmt: skip


@program()
def type_tests(x, y):
    a = x + y
    return isinstance(a, torch.Tensor), isinstance(a, torch.nn.Parameter), isinstance(a, torch.FloatTensor), isinstance(
        a, torch.LongTensor), issubclass(type(a), torch.Tensor), torch.overrides.is_tensor_like(a), callable(
            a), isinstance(a, typing.Iterable), isinstance(a, (list, tuple))


@program()
def identity_and_hash(x, y):
    a, b = x + y, x - y
    d = {a: 1, b: 2, x: 3}
    s = {a, b, a, x}
    c = a
    return (d[a], d[b], d[x], len(s), hash(a) == hash(c), hash(a) == id(a), a is c, a in s, id(a) == id(c),
            [k.sum() for k in d])


@program()
def membership(x, y):
    a, s = x + y, (x * 0).sum()
    answers = [a is None, a == None, a != None, s in [s, 1], 0.0 in [s], None in [None, a]]  # noqa: E711
    for ask in (lambda: a in [x, y], lambda: x in [a], lambda: a == "text", lambda: a in (None, 3),
                lambda: [1, a].index(a), lambda: a == [1], lambda: s in a, lambda: 100.0 in a):
        try:
            answers.append(ask())
        except Exception as error:  # noqa: BLE001
            answers.append((type(error), str(error)))
    return answers


@program()
def comparisons(x, y):
    a = x + y
    return (a == a, a != x, 0 < a, a < 0.5, (a > 0) & (x > 0), ~(a > 0), (a > 0) | (x > 0), a.eq(0).any(),
            (a == a).all(), torch.equal(a, a), torch.allclose(a, x))


@program()
def reflected(x, y):
    a = x + y
    return (1 - a, 2 / a, 2**a, 1 + a, 3 * a, 7 // (a.abs() + 1), 7 % (a.abs() + 1), True + a, x - a,
            np.float64(2) + a.double(), abs(a), -a, +a, a**2, a**-1)


@program()
def dtype_mixes(x, y):
    i = torch.arange(6)
    b = i > 2
    return i + 1, i + 1.5, x + i, b + b, b + 1, i / 2, i * True, x.double() + x, i.int() + i, x \
        + np.float32(1), (x > 0) * x, i.float().half() + 1, x.bfloat16() * 2, i // 2, x.to(torch.int32) \
            + 1, torch.tensor(2.0) * i, i + torch.tensor(2.5, dtype=torch.float64)


@program()
def complex_results(x, y):
    z = torch.complex(x, y)
    return (z + x, (z * z.conj()).real, z.abs(), torch.view_as_real(z) + 1, torch.fft.fft(x + y).abs(), z.conj(),
            z.imag.neg())


@program()
def exotic_layouts(x, y):
    s = (x * (x > 0)).to_sparse()
    return s, s + s, torch.sparse.mm(s, (x + y).t()), (x + y).to_sparse().to_dense(), torch.quantize_per_tensor(
        x + y, 0.1, 0, torch.qint8).dequantize(), (x + y).to("meta").shape


# ---- containers ------------------------------------------------------------------------------------------------------


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclasses.dataclass
class Record:
    value: torch.Tensor
    parts: list


class Slots:
    __slots__ = ("a",)


@program()
def containers(x, y):
    a = x + y
    s = Slots()
    s.a = a * 2
    return ({"a": a, "nested": [a.t(), (a[0], {"b": a.sum()})]}, Pair(a, a + 1), Record(a, [a, x]), torch.max(a, 1),
            a.topk(2), [s.a], iter([a]).__next__(), frozenset([a]) == frozenset([a]))


@program()
def model_output(x, y):
    from transformers.modeling_outputs import BaseModelOutput

    o = BaseModelOutput(last_hidden_state=x + y, hidden_states=(x * 2, y * 2))
    return o, o[0], o.to_tuple(), list(o.keys()), o["last_hidden_state"] is o.last_hidden_state


@program()
def keyword_arguments(x, y):
    def inner(*args, scale=1, **rest):
        return [a * scale for a in args], {k: v + 1 for k, v in rest.items()}

    return inner(x + y, x, scale=(x * 0 + 2), extra=y - x)


# ---- copies and pickles ----------------------------------------------------------------------------------------------


@program()
def copies(x, y):
    a = x + y
    a.tag = "tagged"
    b, c, d = copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))
    e, f = copy.deepcopy([a, a, a.t()])[:2]
    g = a.clone()
    a.add_(1)
    return a, b, c, d, e, e is f, g, c is a, type(b).__name__


@program()
def saved(x, y):
    import io

    a = x + y
    buffer = io.BytesIO()
    torch.save({"a": a, "v": a[1:]}, buffer)
    buffer.seek(0)
    back = torch.load(buffer)
    return back["a"], back["v"], a


@program()
def parameters_made(x, y):
    a = x + y
    p = torch.nn.Parameter(a)
    q = torch.nn.Parameter((x - y)[0], requires_grad=False)
    b = torch.nn.Buffer(x * 2)
    m = torch.nn.Module()
    m.p, m.q, m.b = p, q, b
    m.register_buffer("c", x * y)
    a.add_(1)
    return (a, p, q, b, type(p).__name__, isinstance(p, torch.nn.Parameter), [n for n, _ in m.named_parameters()], m,
            (p * 2).requires_grad, p.is_leaf)


@program()
def subclassed(x, y):
    class Mine(torch.Tensor):
        pass

    a = (x + y).as_subclass(Mine)
    b = torch.Tensor._make_subclass(Mine, x * 2)
    return (type(a).__name__, type(a + 1).__name__, (a + x).as_subclass(torch.Tensor), b.as_subclass(torch.Tensor),
            type(b[0]).__name__)


@program()
def constructors(x, y):
    a = (x + y)[0]
    s = a.sum()
    return torch.tensor([s, s.item()]), torch.tensor(a.tolist()), torch.as_tensor(a), torch.stack([a, a]), torch.Tensor(
        a), torch.tensor([[float(s)]]), a.new_zeros(3), a.new_tensor([1.0]), torch.zeros_like(a), torch.full(
            (2,), s.item()), torch.full((2,), 1.0) * s, torch.scalar_tensor(s), torch.asarray(a) is a


@program()
def warned(x, y):
    a = x + y
    warnings.warn("by the program", stacklevel=1)
    return F.softmax(a), (a[0:1] + 0).std(0), a.unsqueeze(0).T.shape, F.mse_loss(a, x[:1]), torch.tensor(
        a), F.dropout2d(a.unsqueeze(0),
                        training=False), torch.nn.functional.tanh(a), F.upsample(a[None, None], scale_factor=2).shape


# ---- errors ----------------------------------------------------------------------------------------------------------


class Operand:
    """Says what Python asks it."""

    def __init__(self, answer):
        self.asked, self.answer = [], answer

    def ask(self, name, other):
        self.asked.append((name, type(other)))
        return self.answer if self.answer is NotImplemented else (name, other)


for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    for prefix in ("", "r", "i"):
        setattr(Operand, f"__{prefix}{name}__", lambda self, other, name=prefix + name: self.ask(name, other))
for name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(Operand, f"__{name}__", lambda self, other, name=name: self.ask(name, other))
OPERATORS = "+ - * / // % ** @ & | ^ < <= == != > >=".split()


@pytest.mark.parametrize("answer", [NotImplemented, None], ids=["refuses", "answers"])
@pytest.mark.parametrize("sign", OPERATORS + [sign + "=" for sign in OPERATORS[:11] if sign != "@"])
def test_operands_of_other_classes(sign, answer):
    if sign in ("/", "/=") and answer is NotImplemented:
        pytest.skip("torch's __rtruediv__ is Python code, which torch's mode protocol calls again when it answers "
                    "NotImplemented")
    space = {}
    statement = f"a {sign} b" if sign[-1] == "=" and sign not in OPERATORS else f"a = a {sign} b"
    exec(f"def f(a, b):\n    try:\n        {statement}\n    except Exception as error:\n        a = type(error), "
         f"str(error)\n    return a", space)

    def asked(x, y):
        results = []
        for left in (True, False):
            other, a = Operand(answer), (x > y).long() + 1
            results += [space["f"](other, a) if left else space["f"](a, other), other.asked]
        return [r.asked if isinstance(r, Operand) else r for r in results], x * 2

    same(asked, two)


def fails(make=two):
    """Registers a program whose error must be eager's: type, message, line."""
    return program(make, recorded=None)


@fails()
def shapes_do_not_match(x, y):
    a = x + y
    b = a.t()
    return a + b


@fails()
def product_does_not_match(x, y):
    a = x + y
    return (
        a
        @ a
    )


@fails()
def linear_does_not_match(x, y):
    return F.linear(x + y, torch.ones(3, 5))


@fails()
def module_does_not_match(x, y):
    m = torch.nn.Linear(5, 3)
    h = x + y
    return m(h)


@fails()
def view_does_not_fit(x, y):
    return (x + y).view(5, -1)


@fails()
def view_of_strided(x, y):
    a = (x + y).t()
    return a.view(-1)


@fails()
def index_out_of_range(x, y):
    return (x + y)[7]


@fails()
def embedding_out_of_range(x, y):
    i = (x.abs() * 0 + 9).long()
    return F.embedding(i, y)


@fails()
def dimension_out_of_range(x, y):
    return (x + y).sum(3)


@fails()
def wrong_dtype(x, y):
    return torch.bitwise_and(x + y, x)


@fails()
def bool_subtraction(x, y):
    return (x > y) - (y > x)


@fails()
def no_such_attribute(x, y):
    a = x + y
    return a.no_such_attribute


@fails()
def no_such_argument(x, y):
    return (x + y).sum(dim=0, banana=True)


@fails()
def not_a_tensor(x, y):
    return torch.add(x + y, "text")


@fails()
def unsupported_operand(x, y):
    return (x + y) + object()


@fails()
def called(x, y):
    return (x + y)()


@fails()
def multi_element_truth(x, y):
    a = x + y
    if a > 0:
        return 1
    return 2


@fails()
def too_many_to_unpack(x, y):
    a, b = x + y
    return a, b


@fails()
def error_inside_the_error(x, y):
    try:
        (x + y) @ x
    except RuntimeError as error:
        raise ValueError(f"shape {(x + y).shape}") from error


@fails()
def in_place_dtype_error(x, y):
    a = (x > y).long()
    a += 0.5
    return a


@fails()
def item_assignment_error(x, y):
    a = x + y
    a[9] = 1


@fails()
def user_error_with_a_tensor(x, y):
    a = x + y
    raise KeyError(f"{a.sum() > -1000}")


@fails()
def endless_recursion(x, y):
    def down(t):
        return down(t + 1)

    try:
        down(x)
    except RecursionError as error:
        return type(error)


@fails()
def assertion(x, y):
    a = x + y
    if not (a == a + 1).all():
        raise AssertionError("sums differ")


@program()
def exceptions_as_control_flow(x, y):
    out = []
    for i in range(4):
        a = x * i
        try:
            if a.sum() > 0:
                raise StopIteration(a)
            out.append(a[i + 2])
        except StopIteration as stop:
            out.append(stop.value)
        except IndexError as error:
            out.append(str(error))
        finally:
            out.append(a.mean())
    return out


def test_truths_of_other_bytes():
    """A view of bytes as bool: what Python reads of an element is 0 or 1, whatever the byte is."""
    readers = (float, int, bool, complex, torch.Tensor.item, torch.Tensor.tolist, repr, lambda t: [3, 4][t],
               lambda t: t.numpy().tolist(), lambda t: (t.float().item(), t.sum().item()))
    for reader in readers:
        function = lambda x: reader((x * 2).byte().view(torch.bool)[1])  # noqa: B023, E731
        accelerated, x = dycl.accelerate(function), torch.tensor([0.0, 3.0])
        with torch.no_grad():
            for _ in range(3):
                assert repr(accelerated(x)) == repr(function(x))
