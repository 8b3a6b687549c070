"""Views remember how they were made: one of several that a function makes at once, or without gradients, may not be
written with a history, nor shows a node where its base was written so. Every kind of view, of what is fed, of what is
pending and of what has a history, with and without gradients; compared with eager are nodes, versions and errors."""

import itertools

import pytest
import torch

import dycl
from suite import one_thread  # noqa: F401 (a fixture)

VIEWS = {
    "chunk": lambda x: x.chunk(2)[0],
    "split": lambda x: x.split(2)[1],
    "unbind": lambda x: x.unbind(0)[1],
    "iter": lambda x: next(iter(x)),
    "tensor_split": lambda x: x.tensor_split(2)[0],
    "unsafe_chunk": lambda x: x.unsafe_chunk(2)[0],
    "slice": lambda x: x[:2],
    "view": lambda x: x.view(2, 2),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "part of a part": lambda x: x.chunk(2)[0][:1],
    "view of a part": lambda x: x.view(2, 2).unbind(1)[1].unsqueeze(0),
    "transposed": lambda x: x.view(2, 2).T,
}
WRITES = {
    "mul_": lambda v, x, s: v.mul_(s),
    "+=": lambda v, x, s: v.__iadd__(s),
    "copy_": lambda v, x, s: v.copy_(s),
    "element": lambda v, x, s: v.__setitem__(..., s),
    "fill_": lambda v, x, s: v.fill_(s),
    "out": lambda v, x, s: torch.add(s, 1, out=v),
    "the base": lambda v, x, s: x.mul_(s),
    "the base by places": lambda v, x, s: x.__setitem__(torch.tensor([True, False, True, False]), s),
    "without a history": lambda v, x, s: v.mul_(2),
}
BASES = {"fed": lambda x, s: x, "pending": lambda x, s: x * 1, "with a history": lambda x, s: x * s}


def _seen(t):
    try:
        return type(t.grad_fn).__name__, t.is_leaf, t.requires_grad, t._is_view(), t._version, t.tolist()
    except RuntimeError as error:
        return str(error)


def _outcome(run):
    torch.manual_seed(0)
    try:
        return [_seen(t) for t in run(torch.randn(4), torch.randn(3, requires_grad=True))]
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("enabled", [False, True])
def test_written_with_a_history(view, enabled):
    for write, base, between in itertools.product(WRITES, BASES, (False, True)):
        def program(x, w):
            x = BASES[base](x, w.sum())
            with torch.set_grad_enabled(enabled):
                v = VIEWS[view](x)
            if between:
                v.sum().item()
            WRITES[write](v, x, (w * 2).sum())
            return v, x

        want, run = _outcome(program), dycl.accelerate(program)
        for _ in range(2):
            assert _outcome(run) == want, (write, base, between)


def test_parts_without_elements_of_views_that_are_no_box():
    """They have no gradient to lay out: the segment is not replayed, and the view shows its own node."""
    def program(x, part):
        root = x.exp()
        view = root[0:2, 1, None]
        return root, view, part(view)

    parts = [lambda v: v.roll((0, 1), (1, 0)), lambda v: torch.cat([v, v[:, :0]], 1),
             lambda v: torch.cat([v[:0], v[:, :0].reshape(0, 1, 4), v]), lambda v: v[:, 1:].sum() + v.sum()]
    for part in parts:
        x = torch.randn(3, 3, 4, requires_grad=True)
        accelerated = dycl.accelerate(lambda x, part=part: program(x, part))
        want, got = program(x, part), accelerated(x)
        assert [t.grad_fn.name() for t in want] == [t.grad_fn.name() for t in got]
        torch.testing.assert_close(torch.autograd.grad(got[2].sum(), x), torch.autograd.grad(want[2].sum(), x))
        assert dycl.stats(accelerated)["replays"] == 0
