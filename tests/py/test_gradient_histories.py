"""Which history gradients have: torch computes several gradients in one function, and each of them has the history of
all that this function reads, whether or not its values depend on it. Compared are, for every choice of operands that
learn, which gradients can be differentiated again, and for which operands that gives nothing (None)."""

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F

import dycl
from samples import op_db
from suite import FULL, is_strided, map_tensors, one_thread, tensors_of  # noqa: F401 (a fixture)

dycl.accelerate(lambda: None)  # finds torch

MOST = 5  # operands that may learn
SAMPLES = 12 if FULL else 3
# An operator of torch's saves more than the formula here reads.
LEFT_OUT = {"nn.functional.nll_loss", "nn.functional.embedding_bag"}


def leaves_of(operands, learn):
    """Copies of the operands, of whose floating-point tensors those at the places `learn` learn; and these."""
    leaves = []

    def copied(t):
        t = t.detach().clone()
        if t.dtype.is_floating_point:
            leaves.append(t.requires_grad_(len(leaves) in learn))
        return t

    return map_tensors(copied, operands), leaves


def histories(program, operands, learn):
    operands, leaves = leaves_of(operands, learn)
    torch.manual_seed(1)
    wanted = [t for t in leaves if t.requires_grad]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = [r for r in tensors_of(program(*operands)) if r.requires_grad and r.dtype.is_floating_point]
            if not results or not all(map(is_strided, results)) or not all(t.numel() for t in wanted):
                return []
            once = torch.autograd.grad(results, wanted, list(map(torch.ones_like, results)), create_graph=True,
                                       allow_unused=True)
            again = [torch.autograd.grad(g.sum(), wanted, allow_unused=True, retain_graph=True)
                     for g in once if g is not None and g.requires_grad]
            return [g if g is None else g.requires_grad for g in once], [[g is None for g in gs] for gs in again]
        except NotImplementedError as error:
            return type(error).__name__, "is not implemented"
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            return type(error).__name__, str(error)


def compare(program, operands):
    count = sum(t.dtype.is_floating_point for t in tensors_of(operands))
    for size in range(1, count + 1):
        for learn in itertools.combinations(range(count), size):
            want, accelerated = histories(program, operands, learn), dycl.accelerate(program)
            if want and "is not implemented" in want[-1]:  # a second derivative of torch's: here there is one
                continue
            for run in range(2):
                assert histories(accelerated, operands, learn) == want, f"operands {learn} learn, run {run}"


@pytest.mark.parametrize("op", [op for op in op_db if torch.float32 in op.dtypes and op.supports_gradgrad
                                and op.full_name not in LEFT_OUT], ids=lambda op: op.full_name)
def test_operators(op):
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), SAMPLES):
        operands = sample.input, sample.args, sample.kwargs
        tensors = tensors_of(operands)
        if 1 <= sum(t.dtype.is_floating_point for t in tensors) <= MOST and all(map(is_strided, tensors)):
            compare(lambda first, args, kwargs: op.op(first, *args, **kwargs), operands)


def running(t):
    return torch.zeros(t.shape[1]), torch.ones(t.shape[1])


NORMS = {
    "layer": lambda x, w, b: F.layer_norm(x, x.shape[1:], w.view(-1, 1).expand(x.shape[1:]), b.view(-1, 1) * x[0]),
    "layer of rows": lambda x, w, b: F.layer_norm(x.transpose(1, -1), (4,), w, b),
    "group": lambda x, w, b: F.group_norm(x, 2, w, b),
    "batch": lambda x, w, b: F.batch_norm(x, *running(x), w, b, True),
    "batch of no statistics": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    "batch in evaluation": lambda x, w, b: F.batch_norm(x, *running(x), w, b),
    "instance": lambda x, w, b: F.instance_norm(x, None, None, w, b),
    "instance in evaluation": lambda x, w, b: F.instance_norm(x, *running(x), w, b, use_input_stats=False),
    "rms": lambda x, w, b: F.rms_norm(x.transpose(1, -1), (4,), w) + b,
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("affine", ["wb", "w", "b", ""])
def test_norms(name, affine):
    """Pending operands too, which are no leaves, and norms whose weight or bias is missing."""
    torch.manual_seed(0)
    operands = [torch.randn(2, 4, 6), torch.rand(4) + 0.5, torch.randn(4)]
    if name in ("layer", "rms") and affine != "wb":
        pytest.skip("it needs both")

    def program(x, w, b, pending):
        x, w, b = (t * 1 if pending else t for t in (x, w, b))
        return NORMS[name](x, w if "w" in affine else None, b if "b" in affine else None)

    for pending in (0, 1):
        compare(program, (*operands, pending))


def test_a_bias_that_is_only_named_may_be_written():
    """Since 2.14 a group norm's gradients have its bias's history, which torch has not saved."""
    def program(x, w, b):
        return F.group_norm(x, 2, w, b)

    seen = []
    for run in (program, dycl.accelerate(program)):
        torch.manual_seed(0)
        x, w, b = (torch.randn(s, requires_grad=True) for s in ((2, 4, 3), 4, 4))
        y = run(x, w, b)
        with torch.no_grad():
            b.mul_(2)
        slope, = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        seen.append([g is None for g in torch.autograd.grad(slope.square().sum(), [x, w, b], allow_unused=True)])
    assert seen[0] == seen[1]
