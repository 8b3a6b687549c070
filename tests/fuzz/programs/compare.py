"""Runs a program in eager torch and through dycl, and says in what the two differ.

Compared, for each call: results and inputs afterwards (values, dtype, sizes, strides, offset, version, whether a view,
sharing of memory, identity), gradients, buffers and parameters of modules, what the program noted and printed, errors
(type and text), torch's random state."""

import contextlib
import dataclasses
import io
import warnings

import numpy as np
import torch

import dycl

from .program import Program

MODES = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "grad": contextlib.nullcontext}


@dataclasses.dataclass
class Outcome:
    """Of one call. result: (list of tensors and other things, log), or None after an error."""

    result: object
    error: tuple | None
    inputs: list
    modules: list
    printed: str
    random: bytes
    gradients: bool  # whether some may be among the tensors


@dataclasses.dataclass(frozen=True)
class Difference:
    kind: str  # "strides", "values", "error"...
    call: int
    text: str
    where: tuple = ()  # of differing values: a path that judges look up in other outcomes


def build(program: Program, accelerated=False):
    namespace = program.namespace()
    exec(compile(program.source(), "<program>", "exec"), namespace)  # noqa: S102
    function, modules = namespace["build"](dycl.accelerate) if accelerated else namespace["build"]()
    return function, modules, namespace["inputs"]


def call(function, modules, inputs, number, mode, seed, gradients=True):
    arguments = inputs(number)
    torch.default_generator.manual_seed(100 * seed + number)  # torch.manual_seed asks for a traceback
    printed, error, result = io.StringIO(), None, None
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed), MODES[mode]():
        warnings.simplefilter("ignore")
        try:
            result = function(*arguments)
        except Exception as e:  # noqa: BLE001
            error = (type(e).__name__, str(e))
    return Outcome(result, error, arguments, modules, printed.getvalue(), torch.get_rng_state().numpy().tobytes(),
                   gradients)


def outcomes(program: Program, accelerated):
    """One after the other, because the next call changes what modules hold; each is to be used before the next is asked
    for."""
    function, modules, inputs = build(program, accelerated)
    gradients = any(word in program.source() for word in ("backward(", "autograd.grad("))
    for number in range(program.calls):
        yield call(function, modules, inputs, number, program.mode, program.seed, gradients), function


# ---- what an outcome consists of


def leaves(outcome: Outcome):
    """(path, value) of everything; the structure shows in the paths."""

    def walk(path, x):
        if isinstance(x, (list, tuple)):
            yield (*path, "length"), len(x)
            for i, y in enumerate(x):
                yield from walk((*path, i), y)
        elif isinstance(x, dict):
            for k, y in x.items():
                yield from walk((*path, k), y)
        else:
            yield path, x.item() if isinstance(x, np.generic) else x

    yield from walk(("result",), outcome.result)
    for i, x in enumerate(outcome.inputs):
        yield ("input", i), x
        yield ("input", i, "grad"), x.grad if x.is_leaf else None
    for i, m in enumerate(outcome.modules):
        yield from walk(("module", i), dict(m.state_dict()))
        for name, p in m.named_parameters():
            yield ("module", i, name, "grad"), p.grad


def tensors(outcome):
    return [x for _, x in leaves(outcome) if isinstance(x, torch.Tensor)]


def storage(x):
    return x.untyped_storage().data_ptr() if x.layout == torch.strided and x.numel() else None


def relations(many):
    """Which is the same object as an earlier one, or lies in its memory, at which distance in bytes; each with the
    first of its kind."""
    table, objects, memories = [], {}, {}
    for i, a in enumerate(many):
        j = objects.setdefault(id(a), i)
        if j != i:
            table.append((i, j, "same"))
            continue
        memory = storage(a)
        j = i if memory is None else memories.setdefault(memory, i)
        if j != i:
            table.append((i, j, a.storage_offset() * a.element_size() - many[j].storage_offset()
                          * many[j].element_size()))
    return table


def bases(many):
    """Which of them is whose base; -1: a base that is none of them."""
    places = {}
    for i, a in enumerate(many):
        places.setdefault(id(a), i)
    found = [(i, a._base) for i, a in enumerate(many) if a.layout == torch.strided]
    return [(i, places.get(id(base), -1)) for i, base in found if base is not None]


ATTRIBUTES = ("dtype", "layout", "shape", "requires_grad", "is_leaf", "retains_grad")


def tensor_differs(e, d, gradients):
    """(kind, text) of what two tensors differ in besides their values, or None."""
    if type(e) is not type(d):
        return "type", f"{type(e)} and {type(d)}"
    for name in ATTRIBUTES:
        if (a := attribute(e, name)) != (b := attribute(d, name)):
            return name, f"{a} and {b}"
    if e.layout == torch.strided:
        if e.stride() != d.stride():
            return "strides", f"{e.stride()} and {d.stride()} of {tuple(e.shape)}"
        if e.storage_offset() != d.storage_offset():
            return "offset", f"{e.storage_offset()} and {d.storage_offset()}"
    if e.is_inference() != d.is_inference():
        return "inference", f"{e.is_inference()} and {d.is_inference()}"
    of_engine = gradients and perhaps_gradient(e)
    if not e.is_inference() and e._version != d._version and not of_engine:
        return "version", f"{e._version} and {d._version}"
    if e._is_view() != d._is_view() and not of_engine:
        return "view", f"{e._is_view()} and {d._is_view()}"
    a, b = (attribute(x, "grad_fn") for x in (e, d))
    if a != b if isinstance(a, str) else not same_node(a, b):
        return "grad_fn", f"{a} and {b}"
    return None


def perhaps_gradient(e):
    """Gradients are summed in place or not: eager's engine decides by who else holds them. Whether they are views of
    what nobody sees is each formula's own."""
    return attribute(e, "is_leaf") is True and attribute(e, "requires_grad") is False


def same_node(e, d):
    """Nodes are dycl's, under the names of eager's."""
    if e is not None and d is not None:
        return type(e).__name__ == type(d).__name__ and e.name().split("::")[-1] == d.name().split("::")[-1]
    return type(e) is type(d)


def attribute(x, name):
    """Its text where torch refuses to tell, as of a view that was made without gradients and written with them."""
    try:
        return getattr(x, name)
    except RuntimeError as error:
        return str(error)


def first_different(e, d):
    """The elements that are not equal, eight at most; those that are NaN or infinite on one side first."""
    e, d = (x.detach().flatten() for x in (e, d))
    e, d = (x.to(ODD.get(x.dtype, x.dtype)) for x in (e, d))
    places = ((e != d) & ~((e != e) & (d != d))).nonzero().flatten().tolist()
    places = sorted(places, key=lambda i: bool(e[i].isfinite() and d[i].isfinite()))[:8]
    return f"{[e[i].item() for i in places]} and {[d[i].item() for i in places]} at {places} of {e.numel()}"


# torch compares these not at all, or the bytes of bool
ODD = {torch.bool: torch.uint8, torch.complex32: torch.complex64, torch.uint16: torch.int64, torch.uint32: torch.int64}


def has_memory(x):
    """torch leaves `out=` with new sizes and the old memory where the operator then raises."""
    extent = 1 + x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, x.stride()))
    return x.numel() == 0 or x.untyped_storage().nbytes() >= extent * x.element_size()


def equal(e, d):
    """The same values; a NaN equals a NaN, zeros of both signs are equal here."""
    if e.layout != torch.strided or e.is_nested or not (has_memory(e) and has_memory(d)):
        return True
    e, d = e.detach(), d.detach()
    if e.dtype in ODD:
        e, d = e.to(ODD[e.dtype]), d.to(ODD[e.dtype])
    if torch.equal(e, d):
        return True
    if not (e.is_floating_point() or e.is_complex()):
        return False
    return bool(torch.isclose(e, d, rtol=0, atol=0, equal_nan=True).all()) if e.dtype.itemsize >= 4 \
        else torch.equal(e.nan_to_num(7.0), d.nan_to_num(7.0))


def _first_different(eager, ours):
    for (p, a), (q, b) in zip(eager, ours):
        if p != q or (not isinstance(a, torch.Tensor) and p[-1] != "length" and a != b):
            return f"{p}: {a!r} and {q}: {b!r}"[:500]
    return f"{len(eager)} and {len(ours)} values"


def differences(number, e: Outcome, d: Outcome):
    """Everything in which two outcomes of a call differ; values only where they are not the same, which a judge decides
    on."""
    if e.error != d.error:
        kind = "error" if e.error is None or d.error is None else "error type" if e.error[0] != d.error[0] \
            else "error text"
        yield Difference(kind, number, f"eager: {e.error}\ndycl:  {d.error}")
        return
    eager, ours = list(leaves(e)), list(leaves(d))
    if [p for p, _ in eager] != [p for p, _ in ours]:
        yield Difference("structure", number, _first_different(eager, ours), ("structure",))
        return
    for (path, a), (_, b) in zip(eager, ours):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            found = tensor_differs(a, b, e.gradients)
            if found:
                yield Difference(found[0], number, f"{path}: {found[1]}")
            if a.shape == b.shape and a.dtype == b.dtype and not equal(a, b):
                yield Difference("values", number, f"{path}: {first_different(a, b)}", path)
        elif type(a) is not type(b):
            yield Difference("type", number, f"{path}: {type(a)} and {type(b)}")
        elif isinstance(a, np.ndarray):
            if (a.dtype, a.shape, a.strides) != (b.dtype, b.shape, b.strides):
                yield Difference("strides", number,
                                 f"{path}: {a.dtype, a.shape, a.strides} and {b.dtype, b.shape, b.strides}")
            elif not np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
                yield Difference("values", number, f"{path}: {a} and {b}"[:300], path)
        elif isinstance(a, (float, complex)):
            if a != b and (a == a or b == b):
                yield Difference("values", number, f"{path}: {a} and {b}", path)
        elif a != b:
            kind = "values" if isinstance(a, (bool, int, str)) and not _is_metadata(path, e) else "noted"
            yield Difference(kind, number, f"{path}: {a!r} and {b!r}"[:1500], path)
    if relations(tensors(e)) != relations(tensors(d)):
        yield Difference("aliasing", number, f"{relations(tensors(e))} and {relations(tensors(d))}"[:600])
    elif bases(tensors(e)) != bases(tensors(d)):
        yield Difference("base", number, f"{bases(tensors(e))} and {bases(tensors(d))}"[:600])
    if e.printed != d.printed:
        yield Difference("printed", number, f"{e.printed[:300]!r} and {d.printed[:300]!r}", ("printed",))
    if e.random != d.random:
        yield Difference("random state", number, "")


def _is_metadata(path, outcome):
    """Whether a number of the log stands in a note of shape, strides and the like: those are exact."""
    if "noted" in path:
        return True
    if len(path) < 4 or path[1] != 1:
        return False
    entry = outcome.result[1][path[2]]
    return isinstance(entry, tuple) and len(entry) == 8 and isinstance(entry[3], torch.dtype)
