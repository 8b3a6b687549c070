"""The node of torch's autograd graph that stands for a part of a recorded segment (csrc/py/region/tape.h).

Its gradients are computed by a plan, from what the node saved. Where a graph of the gradients is asked for
(`create_graph=True`), or no plan can be made, the recording runs again in torch, which differentiates it."""

import torch
from torch._C import _functorch

from dycl import _replay


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


_apply = super(torch.autograd.Function, Segment).apply  # what was recorded belongs to no transform of functorch


def attach(tape, results, saved, sources):
    """Gives results (computed, without a history yet) a node behind sources. Gradients may be disabled by now, and
    a transform entered."""
    enabled, allowed = torch.is_grad_enabled(), _functorch.get_single_level_autograd_function_allowed()
    torch._C._set_grad_enabled(True)
    _functorch.set_single_level_autograd_function_allowed(True)
    try:
        _apply(tape, results, saved, *sources)
    finally:
        _functorch.set_single_level_autograd_function_allowed(allowed)
        torch._C._set_grad_enabled(enabled)


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
