"""Compares an accelerated function with eager torch: values, types, dtypes, strides, identity of objects and sharing of
memory."""

import copy
import math

import dycl
import torch


def tensor(*sizes, dtype=torch.float32):
    """Every element another number."""
    return torch.arange(math.prod(sizes)).reshape(sizes).to(dtype)


def leaves(tree):
    if isinstance(tree, (tuple, list)):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [tree]


def same_shape_of_tree(a, b):
    if isinstance(a, (tuple, list)) or isinstance(b, (tuple, list)):
        assert type(a) is type(b) and len(a) == len(b), (a, b)
        for x, y in zip(a, b):
            same_shape_of_tree(x, y)


def relations(tensors):
    """Which tensors are one object, and which share memory at which distance."""
    table = []
    for a in tensors:
        for b in tensors:
            shared = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() \
                and a.untyped_storage().nbytes() > 0
            table.append((a is b, shared, a.storage_offset() - b.storage_offset() if shared else None))
    return table


def compare(expected, actual, what):
    same_shape_of_tree(expected, actual)
    for e, a in zip(leaves(expected), leaves(actual)):
        assert type(a) is type(e), (what, type(a), type(e))
        if not isinstance(e, torch.Tensor):
            assert a == e or (a != a and e != e), (what, a, e)
            continue
        assert a.dtype == e.dtype and a.shape == e.shape, (what, a.dtype, a.shape, e.dtype, e.shape)
        assert a.stride() == e.stride(), (what, "strides", a.stride(), e.stride())
        assert torch.equal(a, e) or torch.allclose(a, e, rtol=0, atol=0, equal_nan=True), (what, a, e)


def inputs_of(inputs):
    made = copy.deepcopy(inputs)
    for a, b in zip(inputs, made):
        if isinstance(a, torch.Tensor):
            assert a.stride() == b.stride()
    return made


def left_to_torch(stats):
    """Operators that torch runs each time: not those that it shows once (py/torch/form.h)."""
    return stats["torch"] - stats["bails"].get("first", 0)


def check(function, *inputs, left=0, runs=3):
    """Runs `function(*inputs)` in torch and accelerated; `left`: operators that may be left to torch (None: any
    number)."""
    accelerated = dycl.accelerate(function)
    with torch.no_grad():
        for _ in range(runs):
            ours, theirs = inputs_of(inputs), inputs_of(inputs)
            expected = function(*theirs)
            actual = accelerated(*ours)
            compare(expected, actual, function)
            compare(theirs, ours, function)
            tensors = [[t for t in leaves([*side, out]) if isinstance(t, torch.Tensor)]
                       for side, out in ((theirs, expected), (ours, actual))]
            assert relations(tensors[0]) == relations(tensors[1]), \
                (function, "aliasing", relations(tensors[0]), relations(tensors[1]))
    stats = dycl.stats(accelerated)
    assert stats["calls"] == runs, stats
    if left is not None:
        assert left_to_torch(stats) == left * runs, (stats["torch"], stats["bails"])
    return stats


def check_error(function, *inputs):
    """Both raise the same error."""
    with torch.no_grad():
        messages = []
        for call in (function, dycl.accelerate(function)):
            try:
                call(*inputs_of(inputs))
            except Exception as error:  # noqa: BLE001
                messages.append((type(error), str(error)))
            else:
                messages.append(None)
    assert messages[0] is not None and messages[0] == messages[1], messages
