"""Every operator of Python with operands that a tensor does not take, or that answer themselves: the errors, their
messages and what comes back are eager's."""

import decimal
import fractions
import operator

import dycl
import numpy
import pytest
import torch


class Refuses:
    def __repr__(self):
        return "Refuses"

    def refuse(self, other):
        return NotImplemented

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __matmul__ = __rmatmul__ = __and__ = __rand__ = __lt__ = refuse


class Answers:
    def reflected(self, other):
        return "reflected", isinstance(other, torch.Tensor)

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rmatmul__ = __rpow__ = reflected
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = reflected

    def compared(self, other):
        return "compared", isinstance(other, torch.Tensor)

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = compared
    __hash__ = None

    def written(self, other):
        return "written", isinstance(other, torch.Tensor)

    __iadd__ = __imul__ = __imatmul__ = __iand__ = written


OPERANDS = {
    "int": lambda: 2, "large": lambda: 2**70, "float": lambda: 1.5, "complex": lambda: 1j, "bool": lambda: True,
    "str": lambda: "a", "bytes": lambda: b"a", "None": lambda: None, "list": lambda: [1, 2], "tuple": lambda: (1.0,),
    "dict": dict, "object": object, "Fraction": lambda: fractions.Fraction(1, 3), "Decimal": lambda:
    decimal.Decimal(2), "float32": lambda: numpy.float32(2), "int64": lambda: numpy.int64(3), "array": lambda:
    numpy.ones(3), "slice": lambda: slice(0, 1), "type": lambda: int, "Refuses": Refuses, "Answers": Answers,
    "dtype": lambda: torch.float32, "Size": lambda: torch.Size([3]), "function": lambda: len,
}
NAMES = "add sub mul truediv floordiv mod matmul pow and_ or_ xor lshift rshift".split()
FUNCTIONS = ([(getattr(operator, name), turned) for name in [*NAMES, *"lt le gt ge eq ne".split()]
              for turned in (False, True)] +
             [(getattr(operator, "i" + name.rstrip("_")), turned) for name in NAMES for turned in (False, True)])


def outcome(call, *args):
    try:
        result = call(*args)
    except Exception as error:  # noqa: BLE001: it has to be eager's
        return type(error), str(error)
    if isinstance(result, torch.Tensor):
        return result.dtype, result.shape, result._version, repr(result.tolist())
    return "object" if type(result) is object else repr(result)


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.filterwarnings("ignore")
def test_operators(operand):
    for function, turned in FUNCTIONS:
        def program(x):
            y, other = x.clone(), OPERANDS[operand]()
            return function(other, y) if turned else function(y, other)

        ours = dycl.accelerate(program)
        for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64):
            x = torch.arange(3).to(dtype)
            message = [outcome(f, x) for f in (program, ours)]
            assert message[0] == message[1] or operand == "object" and str(message[0]).count("object at"), function


@pytest.mark.parametrize("number", [-2**63, -2**62 - 1, -2**62, 2**62, 2**63])
def test_integers_that_are_no_sizes(number):
    def program(x):
        return x.clone().roll(number, 0)

    x, ours = torch.arange(3.0), dycl.accelerate(program)
    for _ in range(2):
        assert outcome(ours, x) == outcome(program, x)


class HandsOn:
    """Has what its tensor has, torch's protocol too."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __getattr__(self, name):
        return getattr(self.tensor, name)

    def __radd__(self, other):
        return "reflected", isinstance(other, torch.Tensor)

    def __rmatmul__(self, other):
        return other @ self.tensor


class HasItself:
    """The attribute is the object's own."""

    def __init__(self, tensor):
        self.__torch_function__ = lambda function, types, args=(), kwargs=None: (function.__name__, len(args))

    def sum(self):
        return 0


@pytest.mark.parametrize("kind", [HandsOn, HasItself])
@pytest.mark.parametrize("pending", [False, True])
def test_what_has_the_protocol_without_its_class(kind, pending):
    """As an operand of its own tensor, of another one that waits, and of one that does not."""
    def program(x):
        y = x * 2
        other = kind(y * 3 if pending else y)
        return [outcome(function, z) for z in (y, x * 4, x) for function in (
            lambda z: z + other, lambda z: z @ other, lambda z: z - other, lambda z: z < other,
            lambda z: z.__add__(other), lambda z: torch.add(z, other), lambda z: torch.stack([z, other]),
            lambda z: torch.nn.functional.relu(other), lambda z: z.add_(other), lambda z: (other.sum() + z).shape,
            lambda z: torch.add(z, z, out=other))]

    x, ours = torch.ones(2, 2), dycl.accelerate(program)
    for _ in range(2):
        assert ours(x) == program(x)
