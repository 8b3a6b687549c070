"""Operators of torch's test database whose operands have no elements along one dimension: how results and asked
gradients lie, what they show of autograd's graph, which errors and warnings there are."""

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F

import dycl
from samples import op_db
from suite import FULL, map_tensors, node_of, one_thread, tensors_of, warn_always  # noqa: F401 (fixtures)

SAMPLES = 12 if FULL else 3
# without meaning, drawn, or not defined for nothing: LAPACK's, and kernels of torch's that crash
LEFT_OUT = ("empty", "rand", "normal", "bernoulli", "multinomial", "lobpcg", "svd", "pca", "jiterator", "linalg",
            "sparse", "geqrf", "ormqr", "lu", "eig", "qr", "cholesky", "pinverse", "ctc", "det", "solve", "inverse",
            "matrix_exp", "pdist", "segment_reduce", "attention_for_cpu")
# of dimensions of size 1 asked gradients may have other strides, and so may those of layers that are one operator here
LAID_OTHERWISE = ("stack", "nn.functional.multi_head_attention_forward")
SPARSE = ("nn.functional.embedding", "nn.functional.embedding_bag")  # sparse gradients are dense behind a segment

dycl.accelerate(lambda: None)  # finds torch


def look(t):
    return tuple(t.shape), t.stride(), t.storage_offset(), t.dtype, t._version, node_of(t), t._is_view(), t.output_nr


def outcome(program):
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            results, gradients = program()
            seen = [look(t) for t in tensors_of(results)], [None if t is None else look(t)[:4] for t in gradients]
        except Exception as error:  # noqa: BLE001: it has to be eager's
            seen = type(error).__name__, str(error)
    return seen, [(str(w.message), w.filename, w.lineno) for w in caught]


def without(t, dim, size):
    """Nothing of the dimension of that size, at its place or else the first."""
    fits = [d for d in range(t.dim()) if t.shape[d] == size]
    return t.narrow(dim if dim in fits else fits[0], 0, 0).clone() if fits else t.clone()


def of(op, operands, pending):
    def leaf(leaves, t):
        t = t.clone()
        if t.dtype.is_floating_point:
            leaves.append(t.requires_grad_())
        return t * 1 if pending and t.dtype.is_floating_point else t

    def program():
        leaves = []
        first, args, kwargs = map_tensors(lambda t: leaf(leaves, t), operands)
        result = op.op(first, *args, **kwargs)
        outputs = [t for t in tensors_of(result) if t.requires_grad]
        if op.name in LAID_OTHERWISE or not outputs or kwargs.get("sparse") and op.name in SPARSE:
            return result, []
        return result, torch.autograd.grad(outputs, leaves, [torch.ones_like(t) for t in outputs], allow_unused=True)

    return program


@pytest.mark.parametrize("op", [op for op in op_db if torch.float32 in op.dtypes and
                                not any(name in op.name for name in LEFT_OUT)], ids=lambda op: op.full_name)
def test_operators(op):
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), SAMPLES):
        tensors = tensors_of(sample.input)
        for dim in range(tensors[0].dim() if tensors else 0):
            operands = map_tensors(lambda t: without(t, dim, tensors[0].shape[dim]),
                                   (sample.input, sample.args, sample.kwargs))
            for pending in (False, True):
                program = of(op, operands, pending)
                expected, accelerated = outcome(program), dycl.accelerate(program)
                for run in range(2):
                    assert outcome(accelerated) == expected, f"dimension {dim}, pending {pending}, run {run}"


@pytest.mark.parametrize("dim", range(3))
@pytest.mark.parametrize("shape", [(0, 2, 2), (2, 0, 2), (2, 2, 0)])
def test_parts_of_a_stack(shape, dim):
    def program():
        parts = [torch.zeros(shape, requires_grad=True) for _ in range(2)]
        result = torch.stack(parts, dim)
        return result, torch.autograd.grad(result, parts, torch.ones_like(result))

    assert outcome(dycl.accelerate(program)) == outcome(program)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 3, 0), (0, 0), (1, 0)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("learns", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)])
def test_layers_without_inputs(shape, biased, learns):
    def program():
        x, weight, bias = operands = torch.zeros(shape), torch.zeros(4, 0), torch.ones(4)
        leaves = [t.requires_grad_() for t, needs in zip(operands[:2 + biased], learns) if needs]
        result = F.linear(x, weight, bias if biased else None) * 2
        gradients = torch.autograd.grad(result, leaves, torch.ones_like(result)) if leaves else []
        return [result, *[g.tolist() for g in gradients]], gradients

    assert outcome(dycl.accelerate(program)) == outcome(program)
