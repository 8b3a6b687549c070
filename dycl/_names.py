"""What torch calls the nodes of its graph, for those that dycl makes in their place (csrc/py/region/called.h).

torch is asked once for a kind of call: the function that the program called runs on the meta device, with operands of
the same sizes, strides and dtypes, and the node of its result says its name."""

import contextlib
import types

import torch

_KEPT = (lambda x: x, lambda x: x)


def name(function, both, nth, in_place):
    """(name of the node of the nth tensor among what function(*both[0], **both[1]) answers, or of its first operand;
    which output of the node it is). None: it has none. Raises what torch raises."""
    args, kwargs = tuple(map(_moved, both[0])), {name: _moved(o) for name, o in both[1].items()}
    with _undisturbed():
        if function is torch.nn.functional.scaled_dot_product_attention:
            args, kwargs = _attended(*args, **kwargs)
        if function is torch.Tensor.__getitem__:
            args = args[0], _picked(args[1])
        result = _call(function, args, kwargs)
    if in_place:
        result, nth = result if isinstance(result, torch.Tensor) else args[0], 0  # None: __setitem__
    found = _tensors(result)[nth]
    return None if found.grad_fn is None else (type(found.grad_fn).__name__, found.output_nr)


def _call(function, args, kwargs):
    if isinstance(function, types.GetSetDescriptorType):
        return function.__get__(args[0])
    result = function(*args, **kwargs)
    return list(result) if hasattr(result, "__next__") else result


def _attended(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
    """Which kernel attention chooses depends on the device: it is asked on the CPU, with one row a head. With dropout
    it chooses none, and would draw numbers."""
    if dropout_p == 0 and query.dim() == 4:
        query, key, value = (_one_row(t, 2) for t in (query, key, value))
        attn_mask = attn_mask if attn_mask is None else _one_row(attn_mask, attn_mask.dim() - 1, attn_mask.dim() - 2)
    return (query, key, value, attn_mask, dropout_p, *args), kwargs


def _one_row(t, *dims):
    dims = {*dims, t.dim() - 4}  # and one batch
    sizes = [min(size, 1) if d in dims else size for d, size in enumerate(t.shape)]
    apart = t.dim() and t.shape[-1] > 1 and t.stride(-1) != 1
    made = torch.zeros(*sizes, 2 if apart else 1, dtype=t.dtype, device="cpu")[..., 0]
    return made.requires_grad_(t.requires_grad)


def _picked(index):
    """An index of one integer in a tensor selects, as the integer does."""
    if isinstance(index, tuple):
        return tuple(map(_picked, index))
    is_one = isinstance(index, torch.Tensor) and index.dim() == 0 and index.dtype not in (torch.bool, torch.uint8)
    return 0 if is_one else index


def _moved(argument):
    """The operands are not on the device that the program names."""
    if isinstance(argument, (str, torch.device)) and str(argument).startswith("cpu"):
        return "meta"
    return argument


def _tensors(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for item in result for t in _tensors(item)] if isinstance(result, (tuple, list)) else []


def _untransformed():
    """Outside of the transforms of torch.func that were entered."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return contextlib.nullcontext()
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


@contextlib.contextmanager
def _plainly():
    """With gradients, whatever is entered by now."""
    with torch.inference_mode(False), torch.enable_grad(), _untransformed():
        yield


@contextlib.contextmanager
def _undisturbed():
    """The program's hooks on saved tensors see nothing of it, and no modes that it has entered."""
    hooked = torch._C._autograd._saved_tensors_hooks_is_enabled()  # not within transforms
    with _plainly():
        if hooked:
            torch._C._autograd._push_saved_tensors_default_hooks(*_KEPT)
        try:
            yield
        finally:
            if hooked:
                torch._C._autograd._pop_saved_tensors_default_hooks()


def operand(dtype, sizes, strides, history, bare, written):
    """Stands for an operand of a call. bare: without memory; written: the call writes into it, so it is no leaf."""
    if not bare:
        return torch.empty((), dtype=dtype).expand(sizes)
    with _plainly():
        made = torch.empty_strided(sizes, strides, dtype=dtype, device="meta", requires_grad=bool(history))
        return made.clone() if history and written else made


def view(of, base, sizes, strides, offset):
    """A view of base whose last node has this name; None where that is not known. offset: elements from base's own."""
    last = _LAST.get(of)
    if last is None:
        return None
    if tuple(base.shape) != sizes or base.stride() != strides or offset:
        base = base.as_strided(sizes, strides, base.storage_offset() + offset)
    return last(base)


_LAST = {  # what gives a tensor that lies as its operand
    "ViewBackward0": lambda x: x.view(x.shape),
    "AliasBackward0": torch.ops.aten.alias,
    "ExpandBackward0": lambda x: x.expand(x.shape),
    "PermuteBackward0": lambda x: x.permute(*range(x.dim())),
    "TransposeBackward0": lambda x: x.transpose(0, 0),
    "TBackward0": lambda x: x.t().t(),
    "SqueezeBackward0": lambda x: None if 1 in x.shape else x.unsqueeze(0).squeeze(),
    "SqueezeBackward1": lambda x: x.unsqueeze(0).squeeze(0),
    "SqueezeBackward2": lambda x: x.unsqueeze(0).squeeze((0,)),
    "SelectBackward0": lambda x: x.unsqueeze(0).select(0, 0),
    "SliceBackward0": lambda x: torch.ops.aten.slice(x),
    "UnsqueezeBackward0": lambda x: x.select(x.shape.index(1), 0).unsqueeze(x.shape.index(1)) if 1 in x.shape else None,
}
