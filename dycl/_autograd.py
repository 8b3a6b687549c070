"""The node of torch's autograd graph that stands for a part of a recorded segment (csrc/py/region/tape.h).

Its gradients are computed by a plan, from what the node saved. Where a graph of the gradients is asked for
(`create_graph=True`), or no plan can be made, the recording runs again in torch, which differentiates it."""

import torch
from torch._C import _functorch

from dycl import _core, _names, _replay


class Segment(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tape, results, saved, *sources):
        ctx.set_materialize_grads(False)  # None says that nothing came; zeros would reach the parameters
        ctx.tape = tape
        ctx.save_for_backward(*saved)
        return results

    @staticmethod
    def backward(ctx, *gradients):
        saved = ctx.saved_tensors if ctx.tape.once else ()  # which is an error where they were freed
        needed = ctx.needs_input_grad[3:]
        if all(g is None for g in gradients):
            return (None,) * (3 + len(needed))
        if torch.is_grad_enabled():
            return None, None, None, *_differentiate(ctx.tape, gradients, needed, True)
        found = ctx.tape.backward(saved, gradients, needed)
        return None, None, None, *(found or _differentiate(ctx.tape, gradients, needed, False))


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


def attach(tape, results, saved, sources, names):
    """Gives results (computed, without a history yet) a node behind sources. names: ((name of the node that the result
    shows, which output of it it is), which call that was), or None: the program does not see it."""
    if len(results) == 1 and (names[0] is None or names[0][0][1] == 0):
        _alone(_node(Segment, names[0] and names[0][0][0]), tape, results, saved, *sources)
    else:
        _alone(_attach_several, tape, results, saved, sources, names)


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
    """What torch computed with a history, as the program sees it: tensors that show nodes of these names."""
    shown = [r.detach() if name else r for r, name in zip(results, names)]
    _alone(_show, shown, results, names)
    return tuple(shown)


def _differentiate(tape, gradients, needed, create_graph):
    """By torch, through the recording. Sources that are operands of each other are taken for different tensors."""
    nodes, values, results, sources, history = tape.recorded()
    with torch.enable_grad():
        wanted = []
        for number, need in zip(sources, needed):
            values[number] = torch.ops.aten.alias(values[number]) if create_graph else \
                values[number].detach().requires_grad_()
            if need:
                wanted.append(values[number])
        made = _replay.run(nodes, values, results, history)
        pairs = [(m, g) for m, g in zip(made, gradients) if g is not None]
        found = iter(torch.autograd.grad([m for m, _ in pairs], wanted, [g for _, g in pairs],
                                         create_graph=create_graph, allow_unused=True))
    return [next(found) if need else None for need in needed]


_core.set_names(_names.name, _names.operand, _names.view, show)
