"""Gradients of gradients through dycl against torch's: the operators and samples of test_gradients.py, as they are and
rounded to a coarse grid; and what autograd's hooks see behind what a pass does not reach.

Compared are which gradients there are, and the gradients by leaves and cotangents of a random sum of the gradients."""

import gc
import warnings
import weakref

import pytest
import torch
from torch import nn

import dycl
from suite import FULL, is_strided, lot, one_thread, tensors_of  # noqa: F401 (a fixture)
from test_gradients import _alone, _between, _cases, _double, _samples, agree, fresh_operands

dycl.accelerate(lambda: None)  # finds torch


FORMS = (_alone, _between)


def learns(t):
    return isinstance(t, torch.Tensor) and t.requires_grad and t.dtype.is_floating_point


def outcome(program, sample, grid):
    """Gradients of gradients, None where there are none; or the error's type."""
    leaves, operands = fresh_operands(sample, grid)
    torch.manual_seed(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [r for r in tensors_of(program(*operands)) if learns(r)]
            torch.manual_seed(2)
            came = [torch.randn(r.shape, dtype=r.dtype, requires_grad=True) for r in results]
            wanted = [t for t in leaves if learns(t)]
            if not results or not all(map(is_strided, results)) or not wanted or not all(t.numel() for t in wanted):
                return []
            once = torch.autograd.grad(results, wanted, came, create_graph=True, allow_unused=True)
            total = [(g * torch.randn(g.shape, dtype=g.dtype)).sum() for g in once if g is not None and g.requires_grad]
            if not total:
                return [g is None or g.detach() for g in once]
            return [*(g is None for g in once), *torch.autograd.grad(sum(total), [*wanted, *came], allow_unused=True)]
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return [type(error).__name__]


# Where a formula of torch's and its parts differ on the grid, in the second derivative only: operator, why.
KNOWN = {
    "nn.functional.prelu": "at 0, where it bends",
    "pow": "a base below 0, whose logarithm is a NaN that torch's own formula multiplies with 0 in some places",
    "nn.functional.multi_head_attention_forward": "saturated weights: differences of numbers that are nearly equal",
}


def zero(t):
    """What nothing reaches is as good as zeros: an operator of torch's answers one, its parts the other."""
    return t is None or isinstance(t, torch.Tensor) and not (t.abs() > 1e-30).any()


def compare(program, sample, grid, what):
    want = outcome(program, sample, grid)
    accelerated = dycl.accelerate(program)
    for run in range(2):
        got = outcome(accelerated, sample, grid)
        assert len(want) == len(got), f"{what}, run {run}: {want} and {got}"
        for i, (a, b) in enumerate(zip(want, got)):
            if isinstance(a, (bool, str)):
                assert a == b, f"{what}, run {run}, {i}: {a} and {b}"
            elif not (zero(a) and zero(b)) and not agree(a, b):
                truth = outcome(program, _double(sample), grid)[i] if a.dtype == torch.float32 else a
                assert ((b - truth).abs().max() <= 4 * (a - truth).abs().max()).item(), \
                    f"{what}, run {run}, {i}: {a} and {b}"


@pytest.mark.parametrize("op, dtype", [p for p in _cases() if p.values[0].supports_gradgrad])
def test_operators(op, dtype):
    for i, sample in _samples(op, dtype):
        for form in FORMS if FULL else (FORMS[lot(op.full_name, dtype, i) % 2],):
            for grid in ("",) if op.full_name in KNOWN else ("", "grid"):
                compare(form(op.op), sample, grid, f"sample {i} {form.__name__} {grid}")


# An operator of torch's saves more than the formula here reads, and its gradient has the history of that.
SAVED_BY_TORCH = {"nn.functional.nll_loss", "nn.functional.embedding_bag"}


def histories(program, sample):
    """Of gradients that come from constants: which have a history. Each of them is differentiated alone."""
    leaves, operands = fresh_operands(sample, "")
    torch.manual_seed(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [r for r in tensors_of(program(*operands)) if learns(r)]
            wanted = [t for t in leaves if learns(t)]
            if not results or not all(map(is_strided, results)) or not wanted or not all(t.numel() for t in wanted):
                return []
            once = torch.autograd.grad(results, wanted, list(map(torch.ones_like, results)), create_graph=True,
                                       allow_unused=True)
            for g in once:
                if g is not None and g.requires_grad:
                    torch.autograd.grad(g.sum(), wanted, allow_unused=True, retain_graph=True)
            return [None if g is None else g.requires_grad for g in once]
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return [type(error).__name__]


@pytest.mark.parametrize("op, dtype", [p for p in _cases() if p.values[0].supports_gradgrad
                                       and p.values[0].full_name not in SAVED_BY_TORCH])
def test_gradients_of_constants_have_histories_where_torchs_have(op, dtype):
    """torch computes several gradients in one function: each has the history of all that this reads."""
    for i, sample in _samples(op, dtype):
        program = _alone(op.op)
        want, accelerated = histories(program, sample), dycl.accelerate(program)
        for run in range(2):
            assert histories(accelerated, sample) == want, f"sample {i}, run {run}"


def test_a_branch_beside_has_no_history():
    """What comes to both branches of a sum is a constant still, whatever the other branch's function reads."""
    seen = []
    for wrap in (lambda f: f, dycl.accelerate):
        torch.manual_seed(0)
        norm, conv = nn.LayerNorm(4), nn.Conv2d(1, 1, 1)
        for run in (wrap(lambda x, h: x * 1 + norm(h * 1)), wrap(lambda x, h: x * 1 + conv(h * 1))):
            x, h = (torch.randn(2, 1, 4, 4, requires_grad=True) for _ in range(2))
            y = run(x, h)
            seen.append([g is not None and g.requires_grad for g in torch.autograd.grad(
                y, [x, h, *norm.parameters(), *conv.parameters()], torch.ones_like(y), create_graph=True,
                allow_unused=True)])
    assert seen[2:] == seen[:2] and not any(s[0] for s in seen)


def test_hooks_behind_what_no_pass_reaches():
    """Results of one call that share a trunk: a backward pass from one of them does not go to what only the other one
    needs. Neither are hooks called there, nor does a function before it make zeros of nothing."""
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            notes.append("doubles")
            return gradient * 2

    def program(x, beside):
        shared = torch.tanh(trunk(x))
        return torch.sin(shared) * shared, torch.exp(shared) * second * beside

    seen = []
    for wrap in (lambda f: f, dycl.accelerate):
        torch.manual_seed(0)
        notes, trunk = [], nn.Linear(3, 3)
        second, leaf = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        second.register_hook(lambda g: notes.append(("hook", g is None)))
        second.register_post_accumulate_grad_hook(lambda p: notes.append(("accumulated", p.grad is None)))
        trunk.weight.register_hook(lambda g: notes.append("trunk"))
        run = wrap(program)
        for which in (0, 1, 0):
            run(torch.randn(2, 3), Doubles.apply(leaf))[which].sum().backward()
            notes.append((second.grad is None, leaf.grad is None, trunk.weight.grad.sum().item()))
        seen.append(notes)
    for a, b in zip(*seen, strict=True):
        assert a == b or (a[:2] == b[:2] and abs(a[2] - b[2]) < 1e-4), (a, b)
    assert seen[1].count("doubles") == 1 and ("hook", True) not in seen[1]


@pytest.mark.parametrize("held", [1, 2, 5])
def test_edges_that_stand_for_results_before(held):
    """A result that further ones come from is where their second gradients lead, though no node saves it."""
    def program(x):
        kept = []
        for _ in range(5):
            x = torch.tanh(x * 1.01 + 0.1)
            kept.append(x)
        return kept[-held:]

    seen = []
    for function in (program, dycl.accelerate(program)):
        x, hooked = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_(), []
        results = function(x)
        results[0].register_hook(lambda g: hooked.append(g.detach()))  # noqa: B023
        first, = torch.autograd.grad(results[-1].sum(), x, create_graph=True)
        second, = torch.autograd.grad(first.square().sum(), x, retain_graph=True)
        between, = torch.autograd.grad((first * results[0]).sum(), results[0])
        seen.append([first.detach(), second, between, *hooked])
    torch.testing.assert_close(seen[1], seen[0])


def test_nodes_of_results_are_let_go():
    """The edges keep nodes, not results; and no node outlives what the program holds."""
    run = dycl.accelerate(lambda x: (y := torch.tanh(x * 2), torch.tanh(y * 3)))
    for _ in range(3):
        y, z = run(torch.ones(4, requires_grad=True))
    memory, node, other = weakref.ref(y.untyped_storage()), weakref.ref(y.grad_fn), weakref.ref(z.grad_fn)
    last = z.grad_fn
    del y, z
    gc.collect()
    assert node() is not None and other() is last
    del last
    gc.collect()
    assert node() is None and other() is None and memory() is None
