"""Replay: a recorded segment run node by node in torch, from the tensors that feed it.

What a plan cannot run (no memory, no implementation, an operand that turned out otherwise) still has to give eager's
result or raise eager's error, and torch itself is the only one that knows both. `STEPS` has a row for every operator of
the registry (csrc/ir/ops.def, csrc/kern/kern.def) that can be recorded; tests/py/test_replay.py holds the two against
each other and runs recorded programs this way.

A row takes the node's operands (tensors of their recorded dtypes; None: an optional one that is absent) and `n`, the
node: its attributes as integers, and dtype, sizes and strides of its result. Numbers of the program are tensors of rank
0."""

import functools
import math
import struct
from typing import NamedTuple

import torch
import torch.nn.functional as F

from dycl import _core, _hosted

_HALF = (torch.bfloat16, torch.float16)


class Node(NamedTuple):
    """attrs: int64 words, doubles among them by their bits; dtype: position in _hosted.DTYPES."""

    name: str
    out: int
    operands: tuple
    attrs: tuple
    dtype: int
    sizes: tuple
    strides: tuple

    @property
    def type(self):
        return _hosted.DTYPES[self.dtype]


def run(nodes, values, outputs, history=None, names=None, errors=None, versions=None, tied=None):
    """Computes the values named by `outputs`.

    nodes: tuples as Node, in program order. values: from a value's number to its tensor, or to (number, dtype) for a
    number of the program; owned by this call. Returns tensors of their own (no view of each other or of an operand)
    with the recorded dtypes, sizes and strides. history: {number of a value that autograd has to record, for who
    differentiates the results (which then come with theirs): the version that it then shows}; gradients are disabled
    for all others. names: {number of an output that further outputs come from: what its node is called, as
    dycl._autograd.show takes it}. Raises what torch raises. errors: a list that takes it instead; what depends on an
    operator that raised is None then, and all else is computed. versions: the same as `history` of values that have
    none, 0 of those that it does not name; their count of writes is that of what autograd saved of them. Without it, it
    is their own. tied: {number of a value: what is done to it as soon as it is there}."""
    before = torch.is_grad_enabled()
    try:
        return _run(nodes, values, outputs, history or {}, names or {}, errors, versions, tied or {})
    finally:
        torch._C._set_grad_enabled(before)


def _run(nodes, values, outputs, history, names, errors, versions, tied):
    numbers = {number for number, value in values.items() if isinstance(value, tuple)}
    squares, lost = {}, set()  # what was squared and summed, by the sum; what an operator that raised leads to
    for number in numbers:
        values[number] = _number(values[number][0], _hosted.DTYPES[values[number][1]])
    last = {}  # a value is let go behind its last use, as in the program
    for i, node in enumerate(nodes):
        for operand in node[2]:
            last[operand] = i
    keep = set(outputs)
    for i, node in enumerate(nodes):
        n = Node(*node)
        operands = [None if o is None else values[o] for o in n.operands]
        known = lost.isdisjoint(n.operands)
        result = _try(errors, n, operands, history, names, numbers, squares, n.out in keep) if known else None
        if versions is not None and result is not None and n.out in keep and n.out not in history:
            _count(result, versions.get(n.out, 0))
        if result is None:
            lost.add(n.out)
        values[n.out] = tied[n.out](result) if n.out in tied else result
        del operands, result
        for operand in n.operands:
            if last.get(operand) == i and operand not in keep:
                values.pop(operand, None)
    return [values[o] if o in history or o in lost or versions is not None else values[o].data
            for o in outputs]  # .data: a count of writes of its own


def _count(result, version):
    if result._version != version:
        torch._C._autograd._unsafe_set_version_counter((result,), (version,))


def _result(n, operands, history, names, numbers, squares, kept):
    torch._C._set_grad_enabled(n.out in history)
    if n.name == "view" and n.out not in history and operands[0].requires_grad:
        operands = [operands[0].detach()]  # which is what the program has a view of
    in_place = _IN_PLACE.get(n.name) if history.get(n.out) and kept else None
    if in_place:
        result = in_place(n, _written(n, operands[0], history[n.out] - 1), *operands[1:])
    else:
        result = _as_one_function(n, operands, numbers, squares) if n.out in history else None
        result = STEPS[n.name](n, *operands) if result is None else result
    if n.name != "view":
        result = _conform(n, result, operands, kept)
        if n.out in history and kept:
            _count(result, history[n.out])
    return _shown(result, names[n.out]) if n.out in names else result


def _try(errors, *arguments):
    """None: it raises. Once more before that: it may have been a signal handler."""
    if errors is None:
        return _result(*arguments)
    for _ in range(2):
        try:
            return _result(*arguments)
        except Exception as error:
            errors.append(error.with_traceback(None))
    return None


def _as_one_function(n, operands, numbers, squares):
    """Where torch differentiates a function of which the operator is a part, or which it is with a number: that one."""
    if n.name == "sumsq":
        squares[n.out] = operands[0], n
    elif n.name == "sqrt" and n.operands[0] in squares:
        x, of = squares[n.operands[0]]
        dims = [d for d in range(x.dim()) if of.attrs[0] >> d & 1]
        return torch.linalg.vector_norm(x, 2, dims, bool(of.attrs[1])) if dims or not x.dim() else None
    elif n.name in ("maximum", "minimum") and numbers.intersection(n.operands):
        x, bound = operands if n.operands[1] in numbers else operands[::-1]
        return (torch.clamp_min if n.name == "maximum" else torch.clamp_max)(x, bound.item())
    return None


def _shown(result, name):
    from dycl import _autograd  # which replays, too

    return _autograd.show((result,), (name,))[0]


def _conform(n, result, operands, owned):
    """As the node says that it lies, in memory that is no operand's."""
    if n.type in _HALF and result.dtype == torch.float32:  # of one element and a number, which is one of float32 here
        result = result.to(n.type)
    if result.dtype != n.type or tuple(result.shape) != n.sizes:
        raise SystemError(f"dycl: replaying {n.name} gave {result.dtype} {tuple(result.shape)} instead of {n.type} "
                          f"{n.sizes}")
    mine = result.stride() == n.strides and result.storage_offset() == 0 and \
        not any(o is not None and _share(o, result) for o in operands)
    whole = not owned or result.untyped_storage().nbytes() == result.numel() * result.element_size()
    if mine and whole:
        return result
    return torch.empty_strided(n.sizes, n.strides, dtype=n.type).copy_(result)


def _written(n, x, version):
    """What an operator in place, whose node keeps the result, writes: it remembers the version that it leaves."""
    base = torch.empty_strided(n.sizes, n.strides, dtype=n.type).copy_(x)
    torch._C._autograd._unsafe_set_version_counter((base,), (version,))
    return base


def _share(a, b):
    return torch._C._is_alias_of(a, b)  # by the storage: one without elements has no address


def _f64(word):
    return struct.unpack("d", struct.pack("q", word))[0]


# ---- Elementwise -----------------------------------------------------------------------------------------------------


def _number(value, dtype):
    return torch.tensor(value, dtype=torch.float32 if dtype in _HALF else dtype)  # as kernels of these dtypes take it


def _is_number(x):
    """A number of the program, or a tensor that may as well be one."""
    return not x.dim() and not x.requires_grad


def _silu_grad(gradient, x):
    """As torch has it where it is to be differentiated: its own operator has no derivative."""
    s = torch.sigmoid(x)
    return gradient * s * (1 + x * (1 - s))


def _ew(function):
    return lambda n, *operands: function(*operands)


def _rounded_once(function):
    """What torch does in one kernel, for operators that are several here."""
    return lambda n, *operands: function(*(x.float() if x.dtype in _HALF else x for x in operands)).to(n.type)


_SAME_NAME = """neg abs sign square exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan tanh erf
sigmoid relu floor ceil round trunc frac
    isnan isinf isfinite logical_not bitwise_not add sub mul div remainder fmod pow atan2 maximum minimum fmax fmin eq
    ne lt le gt ge logical_and logical_or
    logical_xor bitwise_and bitwise_or bitwise_xor copysign where""".split()

STEPS = {name: _ew(getattr(torch, name)) for name in _SAME_NAME}
STEPS |= {name: _ew(getattr(F, name))
          for name in "logsigmoid relu6 gelu silu mish hardswish hardsigmoid softsign".split()}
STEPS |= {
    "copy": _ew(torch.clone),
    "cut": lambda n, x: x.detach().clone(),
    "gelu_tanh": lambda n, x: F.gelu(x, approximate="tanh"),
    "floor_div": lambda n, x, y: torch.div(x, y, rounding_mode="floor"),  # floor_divide has no gradient
    "trunc_div": lambda n, x, y: torch.div(x, y, rounding_mode="trunc"),
    "shift_left": _ew(torch.bitwise_left_shift),
    "shift_right": _ew(torch.bitwise_right_shift),
    "mul": _rounded_once(torch.mul),
    "lerp": _rounded_once(torch.lerp),
    "leaky_relu": lambda n, x, slope: F.leaky_relu(x, slope.item()) if _is_number(slope)
    else torch._prelu_kernel(x, slope),
    "elu": lambda n, x, alpha: F.elu(x, alpha.item()),
    "celu": lambda n, x, alpha: F.celu(x, alpha.item()),
    "hardshrink": lambda n, x, bound: F.hardshrink(x, bound.item()),
    "hardtanh": lambda n, x, low, high: F.hardtanh(x, low.item(), high.item()),
    "relu_grad": lambda n, gradient, y: torch.ops.aten.threshold_backward(gradient, y, 0),
    "gelu_grad": lambda n, gradient, x: torch.ops.aten.gelu_backward(gradient, x),
    "gelu_tanh_grad": lambda n, gradient, x: torch.ops.aten.gelu_backward(gradient, x, approximate="tanh"),
    "silu_grad": lambda n, gradient, x: _silu_grad(gradient, x),
    "relu6_grad": lambda n, gradient, x: torch.ops.aten.hardtanh_backward(gradient, x, 0, 6),
    "hardswish_grad": _ew(torch.ops.aten.hardswish_backward),
    "hardsigmoid_grad": _ew(torch.ops.aten.hardsigmoid_backward),
    "logsigmoid_grad": lambda n, gradient, x: torch.ops.aten.log_sigmoid_backward(gradient, x,
                                                                                 (-x.detach().abs()).exp()),
    "selu_grad": lambda n, gradient, x: torch.ops.aten.elu_backward(gradient, 1.6732632423543772, 1.0507009873554805, 1,
                                                                    False, x),
    "leaky_relu_grad": lambda n, gradient, x, slope: torch.where(x > 0, gradient, gradient * slope)
    if not _is_number(slope) else torch.ops.aten.leaky_relu_backward(gradient, x, slope.item(), False),
    "threshold_grad": lambda n, gradient, x, bound: torch.ops.aten.threshold_backward(gradient, x, bound.item()),
    "below_grad": lambda n, gradient, x, bound: torch.where(x < bound, gradient, 0),
    "hardshrink_grad": lambda n, gradient, x, bound: torch.ops.aten.hardshrink_backward(gradient, x, bound.item()),
    "elu_grad": lambda n, gradient, x, alpha: torch.ops.aten.elu_backward(gradient, alpha.item(), 1, 1, False, x),
    "celu_grad": lambda n, gradient, x, alpha: torch.ops.aten.elu_backward(gradient, alpha.item(), 1, 1 / alpha.item(),
                                                                           False, x),
    "softplus_grad": lambda n, gradient, x, threshold: torch.ops.aten.softplus_backward(gradient, x, 1,
                                                                                        threshold.item()),
    "clamp": lambda n, x, low, high: torch.clamp(x, low.item(), high.item()) if _is_number(low) and _is_number(high)
    else torch.clamp(x, low, high),
    "add_scaled": lambda n, x, y, z: torch.add(x, y, alpha=z.item()) if _is_number(z) else torch.addcmul(x, y, z),
    "softplus": lambda n, x, beta, threshold: F.softplus(x, beta.item(), threshold.item()),
    "threshold": lambda n, x, threshold, value: F.threshold(x, threshold.item(), value.item()),
}

# Whose node keeps the result: where the program had it in place, and the result has a history.
_IN_PLACE = {name: lambda n, x, written=getattr(torch, name + "_"): written(x)
             for name in "exp exp2 expm1 sqrt rsqrt reciprocal tan tanh sigmoid relu".split()}
_IN_PLACE |= {
    "leaky_relu": lambda n, x, slope: torch._prelu_kernel(x, slope) if not _is_number(slope)
    else F.leaky_relu(x, slope.item(), inplace=True),
    "elu": lambda n, x, alpha: F.elu(x, alpha.item(), inplace=True),
    "celu": lambda n, x, alpha: F.celu(x, alpha.item(), inplace=True),
    "hardtanh": lambda n, x, low, high: F.hardtanh(x, low.item(), high.item(), inplace=True),
}

# ---- Elements in other places ----------------------------------------------------------------------------------------


def _view(n, x):
    rank = len(n.sizes)
    return torch.as_strided(x, n.sizes, n.attrs[1 + rank : 1 + 2 * rank], x.storage_offset() + n.attrs[0])


def _pad(n, x, value):
    rank = len(n.sizes)
    return F.pad(x, [n.attrs[side * rank + d] for d in reversed(range(rank)) for side in (0, 1)], value=value.item())


def _index_put(n, x, index, source):
    out = x.clone()
    out[index.long()] = source
    return out


def _view_put(n, x, source):
    out = torch.empty_strided(n.sizes, n.strides, dtype=n.type).copy_(x)
    rank = (len(n.attrs) - 1) // 2
    torch.as_strided(out, n.attrs[1 : 1 + rank], n.attrs[1 + rank :], n.attrs[0]).copy_(source)
    return out


def _iota(n, start, step):
    wide = torch.float64 if n.type.is_floating_point else torch.int64
    return (torch.arange(n.sizes[0], dtype=wide) * step.to(wide) + start.to(wide)).to(n.type)


STEPS |= {
    "cast": lambda n, x: x.to(n.type),
    "view": _view,
    "contiguous": lambda n, x: x,  # _conform copies
    "laid": lambda n, x: x,
    "cat": lambda n, *parts: torch.cat(parts, n.attrs[0]),
    "pad": _pad,
    "tril": lambda n, x: torch.tril(x, n.attrs[0]),
    "triu": lambda n, x: torch.triu(x, n.attrs[0]),
    "full": lambda n, value: torch.full(n.sizes, value.item(), dtype=n.type),
    "iota": _iota,
    "embedding": lambda n, table, index: F.embedding(index, table, n.attrs[0] if n.attrs[0] >= 0 else None)
    if table.dim() == 2 else table[index.long()],
    "index_select": lambda n, x, index: torch.index_select(x, n.attrs[0], index),
    "gather": lambda n, x, index: torch.gather(x, n.attrs[0], index),
    "index_put": _index_put,
    "view_put": _view_put,
}

# ---- Reductions and norms --------------------------------------------------------------------------------------------


def _reduction(function, one_at_once=False):
    """function(n, x, dims) reduces these dimensions; none is all of them to torch, and some functions take only one:
    function(n, x, dim)."""

    def reduce(n, x):
        dims = [d for d in range(x.dim()) if n.attrs[0] >> d & 1]
        if not dims:
            x, dims = x.unsqueeze(-1), [-1]
        if one_at_once:
            if len(dims) > 1:
                rest = [d for d in range(x.dim()) if d not in dims]
                x, dims = x.permute(rest + dims).flatten(len(rest)), [-1]
            dims = dims[0]
        return function(n, x, dims).to(n.type).reshape(n.sizes)

    return reduce


def _batch_stats(n, x, mean, variance):
    running = [None if t is None else t.clone() for t in (mean, variance)]
    results = torch.native_batch_norm(x.detach(), None, None, *running, True, *map(_f64, n.attrs[1:]))
    return (*results[1:], *running)[n.attrs[0]]


def _batch_norm_back(n, gradient, x, mean, deviation, weight):
    wanted = [which == n.attrs[0] for which in range(3)]
    return torch.ops.aten.native_batch_norm_backward(gradient, x, weight, None, None, mean, deviation, True,
                                                     _f64(n.attrs[1]), wanted)[n.attrs[0]]


def _norm_back(n, gradient, x, has_mean):
    def mean(t):
        return t.mean(n.attrs[0], keepdim=True)

    centred = x - mean(x) if has_mean else x
    scale = torch.rsqrt(mean(centred.square()) + _f64(n.attrs[1]))
    normed = centred * scale
    plain = mean(gradient) if has_mean else 0
    return (gradient - plain - normed * mean(gradient * normed)) * scale


def _group_norm_back(n, gradient, x, weight):
    """As torch writes both of them, which makes a difference to infinities."""
    which, groups = n.attrs[0], n.attrs[1] or 1
    sizes = (x.shape[0], groups, x.shape[1] // groups, x.shape[2])
    gradient, x = gradient.reshape(sizes), x.reshape(sizes)
    if which == 2:
        return gradient.sum((0, 3)).reshape(n.sizes)
    mean = x.mean((2, 3), keepdim=True)
    scale = torch.rsqrt((x - mean).square().mean((2, 3), keepdim=True) + _f64(n.attrs[2]))
    factor = 1 if weight is None else weight.reshape(1, groups, -1, 1)
    if n.attrs[1] == 0:
        normed = (x - mean) * scale
        if which == 1:
            return (gradient * normed).sum((0, 3)).reshape(n.sizes)
        gradient = gradient * factor
        plain, along = (t.mean((2, 3), keepdim=True) for t in (gradient, gradient * normed))
        return ((gradient - plain - normed * along) * scale).reshape(n.sizes)
    along, plain = (gradient * x).sum(3, keepdim=True), gradient.sum(3, keepdim=True)
    if which == 1:
        return ((along - plain * mean) * scale).sum(0).reshape(n.sizes)
    along, plain = ((t * factor).sum(2, keepdim=True) / (sizes[2] * sizes[3]) for t in (along, plain))
    slope = (plain * mean - along) * (scale * scale * scale)
    return (scale * factor * gradient + slope * x + (-slope * mean - plain * scale)).reshape(n.sizes)


STEPS |= {
    "sum": _reduction(lambda n, x, dims: torch.sum(x, dims, dtype=n.type)),
    "mean": _reduction(lambda n, x, dims: torch.mean(x, dims)),
    "prod": _reduction(lambda n, x, dim: torch.prod(x, dim, dtype=n.type), True),
    "amax": _reduction(lambda n, x, dims: torch.amax(x, dims)),
    "amin": _reduction(lambda n, x, dims: torch.amin(x, dims)),
    "all": _reduction(lambda n, x, dims: torch.all(x, dims)),
    "any": _reduction(lambda n, x, dims: torch.any(x, dims)),
    "argmax": _reduction(lambda n, x, dim: torch.argmax(x, dim), True),
    "argmin": _reduction(lambda n, x, dim: torch.argmin(x, dim), True),
    "sumsq": _reduction(lambda n, x, dims: torch.sum(x * x, dims, dtype=n.type)),
    "sumabs": _reduction(lambda n, x, dims: torch.sum(torch.abs(x), dims, dtype=n.type)),
    "var": _reduction(lambda n, x, dims: torch.var(x, dims, correction=_f64(n.attrs[2]))),
    "std": _reduction(lambda n, x, dims: torch.std(x, dims, correction=_f64(n.attrs[2]))),
    "softmax": lambda n, x: torch.softmax(x, n.attrs[0]),
    "log_softmax": lambda n, x: torch.log_softmax(x, n.attrs[0]),
    "cumsum": lambda n, x: torch.cumsum(x, n.attrs[0], dtype=n.type),
    "layer_norm": lambda n, x, weight, bias: F.layer_norm(x, x.shape[x.dim() - n.attrs[0] :], weight, bias,
                                                          _f64(n.attrs[1])),
    "rms_norm": lambda n, x, weight: F.rms_norm(x, x.shape[x.dim() - n.attrs[0] :], weight, _f64(n.attrs[1])),
    "layer_norm_back": lambda n, gradient, x: _norm_back(n, gradient, x, True),
    "rms_norm_back": lambda n, gradient, x: _norm_back(n, gradient, x, False),
    "softmax_back": lambda n, gradient, y: torch._softmax_backward_data(gradient, y, n.attrs[0], n.type),
    "log_softmax_back": lambda n, gradient, y: torch._log_softmax_backward_data(gradient, y, n.attrs[0], n.type),
    "batch_norm": lambda n, x, mean, var, weight, bias: F.batch_norm(x, mean, var, weight, bias, False, 0.0,
                                                                     _f64(n.attrs[0])),
    # with the statistics of x itself, so that what has a history goes back through them
    "batch_norm_train": lambda n, x, mean, deviation, weight, bias: torch.native_batch_norm(
        x, weight, bias, None, None, True, 0.0, _f64(n.attrs[0]))[0],
    "batch_stats": _batch_stats,
    "batch_norm_back": _batch_norm_back,
    "group_norm_back": _group_norm_back,
    "group_norm": lambda n, x, weight, bias: F.group_norm(x, n.attrs[0], weight, bias, _f64(n.attrs[1])),
}

# ---- Products, windows, attention ------------------------------------------------------------------------------------


def _grouped(n, x, weights, ends):
    out = torch.zeros(n.sizes, dtype=n.type)
    begin = 0
    for weight, end in zip(weights, ends.tolist()):
        if end > begin:
            out[begin:end] = x[begin:end] @ weight
        begin = max(begin, end)
    return out


def _recurrent(n, x, weight, bias, state, cell):
    """Gates in torch's order; states of all steps in one row, behind them the last cell (LSTM), or what is kept."""
    kind, states, kept = n.attrs[0], [None] * len(x), [None] * len(x)
    for t in reversed(range(len(x))) if n.attrs[1] else range(len(x)):
        gates = F.linear(state, weight, bias)
        if kind == 3:
            (r, u, fed), (xr, xu, xnew) = gates.chunk(3, 1), x[t].chunk(3, 1)
            r, u = torch.sigmoid(r + xr), torch.sigmoid(u + xu)
            new = torch.tanh(xnew + r * fed)
            state = new + u * (state - new)
            kept[t] = r, u, new, fed
        elif kind == 2:
            i, f, g, o = (gates + x[t]).chunk(4, 1)
            i, f, g, o = kept[t] = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
            cell = f * cell + i * g
            state = o * torch.tanh(cell)
        else:
            state = (torch.tanh, torch.relu)[kind](gates + x[t])
        states[t] = state
    if n.attrs[2]:
        return torch.stack([torch.cat(gates, 1) for gates in kept])
    return torch.cat([torch.stack(states).flatten()] + ([] if cell is None else [cell.flatten()]))


def _recurrent_back(n, kept, weight, states, cell, gradient):
    """The gradients of what inputs gave to the gates, of the first state, of the first cell (LSTM), and of what states
    gave (GRU), in one row."""
    kind, of = n.attrs[0], states if kept is None else kept
    count, batch, width = len(of), of.shape[1], weight.shape[1]
    steps = range(count)[::-1] if n.attrs[1] else range(count)
    gates = [None if kept is None else kept[t].chunk(4, 1) for t in range(count)]
    given, carry = gradient[:count * batch * width].view(count, batch, width), torch.zeros(batch, width)
    by_input, by_state, d_cell, cells = [None] * count, [None] * count, None, [cell]
    if kind == 2:
        d_cell = gradient[count * batch * width:].view(batch, width)
        for i, f, g, _ in (gates[t] for t in steps):
            cells.append(f * cells[-1] + i * g)
    for step, t in reversed(list(enumerate(steps))):
        d, kept_part = given[t] + carry, 0
        if kind == 2:
            (i, f, g, o), squashed = gates[t], torch.tanh(cells[step + 1])
            d_cell = d_cell + d * o * (1 - squashed * squashed)
            by_input[t] = torch.cat([d_cell * g * (1 - i) * i, d_cell * cells[step] * (1 - f) * f,
                                     d_cell * i * (1 - g * g), d * squashed * (1 - o) * o], 1)
            d_cell = d_cell * f
        elif kind == 3:
            r, u, new, fed = gates[t]
            kept_part = d * u
            d_new = (d - kept_part) * (1 - new * new)
            both = [d_new * fed * (1 - r) * r, d * (states[t] - new) * (1 - u) * u]
            by_input[t], by_state[t] = torch.cat([*both, d_new], 1), torch.cat([*both, d_new * r], 1)
        else:
            y = states[t]
            by_input[t] = torch.where(y <= 0, torch.zeros_like(d), d) if kind else d * (1 - y * y)
        carry = kept_part + (by_state if kind == 3 else by_input)[t] @ weight
    parts = [torch.stack(by_input), carry] + ([d_cell] if kind == 2 else []) + (by_state if kind == 3 else [])
    return torch.cat([part.flatten() for part in parts])


def _resize(n, x):
    kind, flags, height, width = n.attrs[:4]
    scales, align = [_f64(word) or None for word in n.attrs[4:]], [bool(flags & 1)] if kind > 1 else []
    nn = torch._C._nn
    if flags & 2:  # one spatial dimension, which torch resamples otherwise than a second one of size 1
        function = (nn.upsample_nearest1d, nn._upsample_nearest_exact1d, nn.upsample_linear1d)[kind]
        return function(x.squeeze(2), (width,), *align, scales[1]).unsqueeze(2)
    function = (nn.upsample_nearest2d, nn._upsample_nearest_exact2d,
                nn.upsample_bilinear2d, nn.upsample_bicubic2d)[kind]
    return function(x, (height, width), *align, *scales)


def _conv2d_back(n, x, gradient):
    size = [gradient.shape[1], x.shape[1] // n.attrs[6], *n.attrs[7:9]]
    return torch.nn.grad.conv2d_weight(x, size, gradient, n.attrs[:2], n.attrs[2:4], n.attrs[4:6],
                                       n.attrs[6]).contiguous()


def _max_pool2d_back(n, x, gradient):
    window = n.attrs[:2], n.attrs[2:4], n.attrs[4:6], n.attrs[6:8], bool(n.attrs[8])
    indices = torch.ops.aten.max_pool2d_with_indices(x, *window)[1]
    return torch.ops.aten.max_pool2d_with_indices_backward(gradient, x, *window, indices)


def _attention(n, q, k, v, mask):
    for _ in range(4 - n.attrs[2]):  # with as many dimensions as the program's, torch takes the way that it took there
        q, k, v = q[0], k[0], v[0]
    gqa = {"enable_gqa": True} if q.dim() > 2 and q.shape[-3] != k.shape[-3] else {}
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=bool(n.attrs[0]), scale=_f64(n.attrs[1]),
                                          **gqa).reshape(n.sizes)


STEPS |= {
    "linear": lambda n, x, weight, bias: F.linear(x, weight, bias),
    "matmul": lambda n, a, b: torch.matmul(a, b),
    "grouped_matmul": _grouped,
    "recurrent": _recurrent,
    "recurrent_back": _recurrent_back,
    "conv2d": lambda n, x, w, bias: F.conv2d(x, w, bias, n.attrs[:2], n.attrs[2:4], n.attrs[4:6], n.attrs[6]),
    "conv_transpose2d": lambda n, x, w, bias: F.conv_transpose2d(x, w, bias, n.attrs[:2], n.attrs[2:4], n.attrs[7:9],
                                                                 n.attrs[6], n.attrs[4:6]),
    "conv2d_back": _conv2d_back,
    "max_pool2d": lambda n, x: F.max_pool2d(x, n.attrs[:2], n.attrs[2:4], n.attrs[4:6], n.attrs[6:8], bool(n.attrs[8])),
    "max_pool2d_back": _max_pool2d_back,
    "avg_pool2d": lambda n, x: F.avg_pool2d(x, n.attrs[:2], n.attrs[2:4], n.attrs[4:6], bool(n.attrs[6]),
                                            bool(n.attrs[7])),
    "adaptive_avg_pool2d": lambda n, x: F.adaptive_avg_pool2d(x, n.attrs),
    "avg_pool2d_back": lambda n, x, gradient: torch.ops.aten.avg_pool2d_backward(
        gradient, x, n.attrs[:2], n.attrs[2:4], n.attrs[4:6], bool(n.attrs[6]), bool(n.attrs[7]), None),
    "adaptive_avg_pool2d_back": lambda n, x, gradient: torch.ops.aten._adaptive_avg_pool2d_backward(gradient, x),
    "resize2d": _resize,
    "attention": _attention,
    "argsort": lambda n, x: torch.sort(x, dim=n.attrs[0], descending=bool(n.attrs[1]), stable=bool(n.attrs[2])).indices,
    "argtopk": lambda n, x: torch.topk(x, n.attrs[1], n.attrs[0], bool(n.attrs[2]), bool(n.attrs[3])).indices,
    "histc": lambda n, x: torch.histc(x, n.attrs[0], _f64(n.attrs[1]), _f64(n.attrs[2])),
}

STEPS |= _hosted.steps(_core.hosted())


def _logit_back(kernel, n, gradient, x):
    """torch's kernel has no derivative: for gradients that are differentiated, torch composes them."""
    if not torch.is_grad_enabled():
        return kernel(n, gradient, x)
    given, eps = n.attrs[-2], _f64(n.attrs[-1])
    inside = (x >= (eps if given else 0.0)).logical_and(x <= (1 - eps if given else 1.0))
    return torch.where(inside, gradient / (x * (1.0 - x)), x.new_full((), 0.0 if given else math.nan))


STEPS["aten_logit_backward"] = functools.partial(_logit_back, STEPS["aten_logit_backward"])
_IN_PLACE |= _hosted.steps((row for row in _core.hosted() if row[0] == "aten_scatter_reduce"), "_")
