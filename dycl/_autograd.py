"""The node of torch's autograd graph that stands for a part of a recorded segment (csrc/py/region/node.h).

Its gradients are computed by a plan, from what the node saved. Where a graph of the gradients is asked for
(`create_graph=True`), the graph that computes them is recorded as a call of its own (csrc/py/entry/second.h); the first
time, and where that or a plan cannot be, torch runs it operator by operator. What was saved needs a history for that.
What lies between the sources and the results gets one only then, from nodes of its own behind the sources: no program
ever sees these, and hooks of results must not be called for them."""

import functools

import torch
from torch._C import _functorch

from dycl import _core, _names, _replay


class Segment(torch.autograd.Function):
    """Its functions are C's (csrc/py/region/node.h)."""

    forward = staticmethod(_core.node_forward)  # (ctx, tape, results, saved, *sources): the results
    backward = staticmethod(_core.node_backward)


def _otherwise(ctx, saved, gradients, needed):
    """The gradients where a plan does not compute them."""
    if torch.is_grad_enabled():
        saved = _with_history(ctx, saved)
    return _gradients(ctx.tape, saved, gradients, needed)


class _Edge(torch.autograd.Function):
    """A tensor that leads where another one leads."""

    @staticmethod
    def forward(ctx, x, value):
        return value

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def _edge(x, value):
    return _node(_Edge, None)(x, value)


def _with_history(ctx, saved):
    """What was saved, with the history that it has."""
    tape, hidden, apart = ctx.tape, ctx.tape.hidden(), ctx.tape.apart()
    if not hidden and not apart:
        return saved
    if tape.shown:  # another pass through the same node: in eager, through the same nodes
        return tuple(ctx.shown.get(k, t) for k, t in enumerate(saved))
    sources = []
    for i, (node, _) in enumerate(ctx.next_functions):
        leaf = getattr(node, "variable", None)  # of AccumulateGrad
        sources.append(leaf if leaf is not None or not tape.edges else tape.edges.get(i))
    for i, k in tape.saved_sources():
        sources[i] = saved[k] if sources[i] is None else sources[i]
    shown = list(saved)
    for k, i, *place in apart:
        if not saved[k].requires_grad:  # else it has a history, which that of its views leads to
            part = _edge(sources[i], saved[k].detach().as_strided(*place))
            shown[k] = torch.as_strided_scatter(shown[k], part, *place)
    for k in hidden:
        shown[k] = saved[k].detach()
    for inner, results, places, kept in tape.inner():
        behind = [sources[i] if i < len(sources) else shown[i - len(sources)] for i in places]
        made = _node(Segment, None)(inner, tuple(shown[k] for k in results), tuple(shown[i] for i in kept), *behind)
        for k, tensor in zip(results, made):
            shown[k] = tensor
    # The node keeps them, not the tape, which they hold. It lets go of them with what it saved.
    ctx.shown, tape.shown = {k: shown[k] for k in (*hidden, *(row[0] for row in apart))}, True
    return tuple(shown)


def _gradients(tape, saved, gradients, needed):
    differentiated = torch.is_grad_enabled()
    found = _core.record_gradients(tape, saved, gradients, needed) if differentiated else \
        tape.backward(saved, gradients, needed)
    if found is None:
        if any(g is not None and g.layout is not torch.strided for g in gradients):
            dense = tuple(g if g is None or g.layout is torch.strided else g.to_dense() for g in gradients)
            return _gradients(tape, saved, dense, needed)
        batched = next((g for g in gradients if g is not None and _levels(g)), None)
        if batched is None:
            found = _run(tape, saved, gradients, needed)
            if differentiated:
                _core.learn_gradients(tape, saved, gradients, needed, tuple(found))
            return found
        return _one_by_one(*_levels(batched), tape, saved, gradients, needed)
    return found


def _again():
    """Raises what torch raises in a second pass through what was freed."""
    x = torch.ones((), requires_grad=True)
    with torch.enable_grad():
        y = x.exp()
    torch.autograd.grad(y, x)
    return y.grad_fn._saved_result


def _levels(tensor):
    """How to split a batch that vmap made (is_grads_batched=True is an older one), and how to make one; or None."""
    if _functorch.is_batchedtensor(tensor):
        level = _functorch.maybe_get_level(tensor)
        return lambda t: _functorch._remove_batch_dim(t, level, 1, 0), lambda t: _functorch._add_batch_dim(t, 0, level)
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    if level and "Batched" in str(torch._C._dispatch_keys(tensor)):  # a key that Python has no name for
        return lambda t: torch._remove_batch_dim(t, level, 1, 0), lambda t: torch._add_batch_dim(t, 0, level)
    return None


def _one_by_one(split, batch, tape, saved, gradients, needed):
    """Operators that lay out memory know no batches."""
    rows = [None if g is None else split(g) for g in gradients]
    count = max(len(r) for r in rows if r is not None)
    found = [_gradients(tape, saved, tuple(None if r is None else r[i % len(r)] for r in rows), needed)
             for i in range(count)]
    return [None if found[0][k] is None else batch(torch.stack([f[k] for f in found])) for k in range(len(needed))]


def _run(tape, saved, gradients, needed):
    """By torch, which records it where gradients are enabled."""
    nodes, values, outputs, strides, detached, ties = tape.graph(saved, gradients, needed)
    for number, wanted in strides:
        value = values.get(number)
        if value is not None and (value.stride() != wanted or value._is_zerotensor()):
            values[number] = torch.empty_strided(value.shape, wanted, dtype=value.dtype).copy_(value)
    wanted = [o for o in outputs if o is not None]
    history = dict.fromkeys([*wanted, *(node[1] for node in nodes)], 0) if torch.is_grad_enabled() else {}
    for number in detached:
        history.pop(number, None)
    behind = {}
    for gradient, of, nothing in ties if history else ():
        behind.setdefault(gradient, []).append((values[of], nothing))
    tied = {number: functools.partial(_tied, behind=tensors) for number, tensors in behind.items()}
    for number in tied.keys() & values.keys():
        values[number] = tied[number](values[number])
    found = iter(_replay.run(nodes, values, wanted, history, tied=tied))
    return [None if o is None else next(found) for o in outputs]


class _Tied(torch.autograd.Function):
    """A gradient that torch computes in one function that reads `behind`: it has their histories too, and the second
    derivative there is zero, or nothing."""

    @staticmethod
    def forward(ctx, gradient, nothing, *behind):
        ctx.looks = [None if none else (t.shape, t.dtype) for t, none in zip(behind, nothing)]
        made = gradient.clone()
        return made if made.stride() == gradient.stride() else gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None, *[look and torch.zeros(look[0], dtype=look[1]) for look in ctx.looks]


def _tied(gradient, behind):
    behind = [(t, nothing) for t, nothing in behind if t.requires_grad]
    if not behind:
        return gradient
    tensors, nothing = zip(*behind)
    return super(torch.autograd.Function, _Tied).apply(gradient, nothing, *tensors)


class _Shown(torch.autograd.Function):
    """Stands in front of a node of several results: what the program called shows a node of its own, as in eager.
    outputs: its results, None between them where others of the call are none of the segment's."""

    @staticmethod
    def forward(ctx, outputs, *behind):
        ctx.set_materialize_grads(False)
        ctx.places = [i for i, output in enumerate(outputs) if output is not None]
        return outputs

    @staticmethod
    def backward(ctx, *gradients):
        return None, *[gradients[i] for i in ctx.places]


def _apply_of(function, name):
    """What makes a node of a function, under a name of torch's."""
    made = type(function.__name__, (function,), {}) if name else function
    if name:
        shown = made._backward_cls
        shown.__name__ = shown.__qualname__ = name
        shown.__module__ = "builtins"  # where classes are that C++ registers
        if name in ("CopySlices", "CopyBackwards"):  # those whose nodes call themselves otherwise than their classes
            shown.name = lambda self: f"torch::autograd::{name}"
    if function is Segment:
        made._backward_cls.apply = _core.node_apply  # what torch's engine calls, without BackwardCFunction's Python
    return super(torch.autograd.Function, made).apply  # what was recorded belongs to no transform of functorch


_applies = {}  # by function and name; torch has some hundreds of names


def _node(function, name):
    found = _applies.get((function, name))
    if found is None:
        found = _applies[function, name] = _apply_of(function, name)
    return found


def _alone(function, *args):
    """Calls it with gradients, which may be disabled by now, and outside of a transform that was entered."""
    enabled, allowed = torch.is_grad_enabled(), _functorch.get_single_level_autograd_function_allowed()
    torch._C._set_grad_enabled(True)
    _functorch.set_single_level_autograd_function_allowed(True)
    try:
        function(*args)
    finally:
        _functorch.set_single_level_autograd_function_allowed(allowed)
        torch._C._set_grad_enabled(enabled)


def attach(tape, results, saved, sources, open_sources, names):
    """Gives results (computed, without a history yet) a node behind sources. names: ((name of the node that the result
    shows, which output of it it is), which call that was), or None: the program does not see it. open_sources:
    positions of those that cannot be found again by what is saved."""
    if open_sources:
        edges = {i: sources[i] for i in open_sources if not sources[i].is_leaf}
        if edges:
            _alone(_keep_edges, tape, edges)
    if len(results) == 1 and (names[0] is None or names[0][0][1] == 0):
        _alone(_node(Segment, names[0] and names[0][0][0]), tape, results, saved, *sources)
    else:
        _alone(_attach_several, tape, results, saved, sources, names)


def _keep_edges(tape, edges):
    tape.edges = {i: _edge(x, torch.empty_strided(x.shape, (0,) * x.dim(), dtype=x.dtype)) for i, x in edges.items()}


def _attach_several(tape, results, saved, sources, names):
    behind = [r.detach() if name else r for r, name in zip(results, names)]
    known = {id(r): b for r, b in zip(results, behind)}  # the node keeps what is its own, not what stands before it
    _node(Segment, None)(tape, tuple(behind), tuple(known.get(id(s), s) for s in saved), *sources)
    _show(results, behind, names)


def _show(results, behind, names):
    """Results show nodes of these names in front of what has their histories. Those of one call may be outputs of one
    node."""
    nodes = []
    for result, stand_in, name in zip(results, behind, names):
        if not name:
            continue
        (name, output), call = name
        found = next((n for n in nodes if n[:2] == (name, call) and output not in n[2]), None)
        if found is None:
            nodes.append(found := (name, call, {}))
        found[2][output] = result, stand_in
    for name, _, found in nodes:
        outputs = [found.get(i, (None,))[0] for i in range(max(found) + 1)]
        _node(_Shown, name)(tuple(outputs), *[found[i][1] for i in sorted(found)])


def show(results, names):
    """What torch computed with a history, as the program sees it: tensors that show nodes of these names. Those that do
    already stay what they are: their hooks belong to the node, which may keep the result."""
    names = [None if name and (type(r.grad_fn).__name__, r.output_nr) == name[0] else name
             for r, name in zip(results, names)]
    shown = [r.detach() if name else r for r, name in zip(results, names)]
    _alone(_show, shown, results, names)
    return tuple(shown)


_core.set_nodes(lambda name: _node(Segment, name), _otherwise, _again)
_core.set_names(_names.name, _names.operand, _names.view, show)
