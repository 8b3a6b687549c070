"""The arguments beside the tensors of torch's test database in other forms: what is no int but has an index, numbers of
NumPy, subclasses, tensors, iterators, None. Results and errors are eager's, also where torch refuses them."""

import enum
import functools
import inspect
import itertools
import re
import warnings

import numpy
import pytest
import torch

import dycl
from samples import op_db
from suite import FULL, compare_leaf, copy_of, map_tensors, one_thread  # noqa: F401 (a fixture)
from tolerance import bounds

SAMPLES = 25 if FULL else 8
UNSTABLE = ("batch_norm", "empty", "rand", "normal", "bernoulli", "multinomial", "lobpcg", "svd", "pca", "jiterator",
            "resize_")

dycl.accelerate(lambda: None)  # finds torch


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __repr__(self):
        return "Index"


class Text(str):
    pass


class Number(float):
    pass


class Tuple(tuple):
    pass


class List(list):
    pass


@functools.cache
def member(value):
    return enum.IntEnum("Member", {"one": value}).one


def names_nothing(value):
    return None


def real_tensor(value):
    return torch.tensor(float(value))


def one_element(value):
    return torch.tensor([value])


def indices(values):
    return tuple(Index(value) for value in values)


def tensors(values):
    return [torch.tensor(value) for value in values]


def reals(values):
    return [float(value) for value in values]


def zero(t):
    return torch.tensor(0) * 1


def one(t):
    return torch.tensor(1)


def is_true(t):
    return torch.tensor(True)


def one_element_of(t):
    return t.reshape(-1)[:1] * 1


FORMS = {
    bool: (numpy.bool_, int, float, torch.tensor, names_nothing),
    int: (numpy.int64, numpy.uint8, numpy.bool_, numpy.array, Index, member, float, bool, torch.tensor, real_tensor,
          one_element, names_nothing),
    float: (numpy.float32, numpy.float64, numpy.array, Number, int, complex, str, torch.tensor, one_element,
            names_nothing),
    str: (Text, str.upper, names_nothing),
    torch.dtype: (str, names_nothing),
}
OF_SIZES = (list, tuple, torch.Size, Tuple, List, numpy.array, torch.tensor, iter, indices, tensors, reals,
            names_nothing)
OF_TENSOR = (zero, one, is_true, one_element_of, names_nothing, torch.Tensor.tolist, torch.Tensor.numpy,
             torch.Tensor.int)
OF_TENSORS = (list, tuple, Tuple, List, iter, names_nothing)

LEFT_OUT = {  # the text of the error says it of an element of a tuple
    "sum_to_size": (real_tensor, one_element)}


def forms_of(argument):
    if isinstance(argument, (tuple, list)) and argument:
        if all(type(item) is int for item in argument):
            return OF_SIZES
        return OF_TENSORS if all(isinstance(item, torch.Tensor) for item in argument) else ()
    return OF_TENSOR if isinstance(argument, torch.Tensor) else FORMS.get(type(argument), (names_nothing,))


def parameters_of(function):
    """The names that the function's signature has, or torch's schemas, each in its order."""
    try:
        return [list(inspect.signature(function).parameters)]
    except (TypeError, ValueError):
        packet = getattr(torch.ops.aten, function.__name__, None)
        schemas = [getattr(packet, name)._schema for name in packet.overloads()] if packet else []
        return [[argument.name for argument in schema.arguments] for schema in schemas]


def outcome(program, *operands):
    try:
        return program(*operands)
    except Exception as error:  # noqa: BLE001: it has to be eager's
        # of a pending tensor among sizes the message may speak as of an element of a tuple
        text = str(error).replace("but found element of type Tensor at pos 0", "not Tensor")
        return type(error).__name__, re.sub("0x[0-9a-f]+", "", text)


def compare_outcomes(expected, actual, tolerance):
    assert type(expected) is type(actual)
    if isinstance(expected, (tuple, list)):
        assert len(expected) == len(actual)
        for e, a in zip(expected, actual):
            compare_outcomes(e, a, tolerance)
    elif isinstance(expected, torch.Tensor):
        compare_leaf(expected, actual, tolerance)
    else:
        assert expected == actual or expected != expected


def placed(sample, place, name, form):
    """args, kwargs with one of them in another form, made anew, as an iterator is used up by a call."""
    args, kwargs = map_tensors(copy_of, list(sample.args)), map_tensors(copy_of, dict(sample.kwargs))
    if name is None:
        args[place] = form(args[place])
    elif place is None:
        kwargs[name] = form(kwargs.get(name))
    else:
        kwargs[name] = form(args[place])
        del args[place:]
    return args, kwargs


def variants(function, sample):
    """(place, name, form): of a positional argument, which may be given by its name as the last one, or of a name."""
    overloads = parameters_of(function)
    for place, argument in enumerate(sample.args):
        names = {names[place + 1] for names in overloads if len(names) > place + 1} - {"args", "kwargs"}
        yield from itertools.product([place], [None, *sorted(names - sample.kwargs.keys())], forms_of(argument))
    for name, argument in sample.kwargs.items():
        yield from ((None, name, form) for form in forms_of(argument))
    names = set().union(*overloads) - {"self", "input", "args", "kwargs"} - sample.kwargs.keys()
    yield from ((None, name, names_nothing) for name in sorted(names))


@pytest.mark.parametrize("op", [op for op in op_db if torch.float32 in op.dtypes and
                                not any(name in op.name for name in UNSTABLE)], ids=lambda op: op.full_name)
def test_operators(op):
    seen = set()
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), SAMPLES):
        for variant in variants(op.op, sample):
            if variant in seen or variant[-1] in LEFT_OUT.get(op.name, ()):
                continue
            seen.add(variant)

            def program(operand, variant=variant):
                args, kwargs = placed(sample, *variant)
                return op.op(map_tensors(lambda t: t * 1, operand), *args, **kwargs)

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected, actual = outcome(program, sample.input), outcome(dycl.accelerate(program), sample.input)
            compare_outcomes(expected, actual, lambda dtype: bounds(op.name, dtype))
