"""What torch calls the nodes of its graph, for those that dycl makes in their place (csrc/py/region/called.h).

torch is asked once for a kind of call: the function that the program called runs with operands of the same strides and
dtypes, and the node of its result says its name. Views are made on the meta device, with operands of the same sizes.
Everything else is computed on the CPU, from zeros whose sizes are at most two, or eight, where the function takes such;
else as large as they are: torch's meta kernels import its compiler and sympy when the first one is called, for a second
and a half, and are asked only where all else raises."""

import contextlib
import math
import numbers
import threading
import types
import warnings

import torch
from dycl import _core

_KEPT = (lambda x: x, lambda x: x)
_MOST = 2**24  # elements that are made for it


class Look:
    """Stands for an operand of a call. written: the call writes into it, so it is no leaf."""

    def __init__(self, dtype, sizes, strides, history, written):
        self.dtype, self.sizes, self.strides, self.history, self.written = dtype, sizes, strides, history, written

    def bare(self):
        """Without memory; a number, which torch tells from a tensor, has its own."""
        if not self.sizes:
            return self.zeros(1)
        return self._with_history(torch.empty_strided(self.sizes, self.strides, dtype=self.dtype, device="meta"))

    def zeros(self, most):
        """With memory, laid out in the same order; its sizes are most at most."""
        return self.shrunk([min(n, most) for n in self.sizes])

    def shrunk(self, sizes):
        # where elements overlap, torch's iterator takes the shorter of two dimensions for the inner one
        order = sorted(range(len(self.sizes)), key=lambda i: (-self.strides[i], -self.sizes[i]))
        dense, step = True, 1
        for i in reversed(order):
            dense &= self.sizes[i] == 1 or self.strides[i] == step
            step *= self.sizes[i]
        kept = [1 if self.strides[i] == 0 else sizes[i] for i in order]
        made = torch.zeros(kept if dense or not kept else [*kept[:-1], 2 * kept[-1]], dtype=self.dtype, device="cpu")
        made = made if dense or not kept else made[..., ::2]
        made = made.permute([order.index(i) for i in range(len(order))])
        return self._with_history(made.expand(sizes).detach())

    def _with_history(self, made):
        if self.history:
            made.requires_grad_()
        return made.clone() if self.history and self.written else made


def operand(dtype, sizes, strides, history, bare, written):
    """For called.c: an operand of a call that is made again. bare: for `name`."""
    if not bare:
        return torch.empty((), dtype=dtype).expand(sizes)
    return Look(dtype, sizes, strides, history, written)


def name(function, both, nth, in_place):
    """(name of the node of the nth tensor among what function(*both[0], **both[1]) answers, or of its first operand;
    which output of the node it is). None: it has none. Raises what torch raises."""
    if function is torch.nn.functional.scaled_dot_product_attention:
        return _asked(function, both, nth, in_place, Look.bare)
    looks, drawn = _looks(both), torch.default_generator.get_state()
    bare = [Look.bare]
    small = [lambda look, most=most: look.zeros(most) for most in (2, 8)]
    if sum(math.prod(look.sizes) for look in looks) <= _MOST:
        small.append(lambda look: look.zeros(_MOST))
    ways = bare + small if _makes_views(function, both) else small + bare
    if function is torch.Tensor.__setitem__:  # whether a slice is all there is hangs on the sizes
        ways = small[1::-1] + bare if _looks(both[0][1]) else bare + small
    if function in _LAYERS:
        both, ways = _few_steps(*both), [lambda look: look.shrunk(look.sizes)]
    try:
        found = _first_of(ways, function, both, nth, in_place)
        if function is torch.Tensor.__setitem__ and found and found[0] == "CopyBackwards":
            x, _, value = both[0]
            if isinstance(value, numbers.Number):  # the meta device copies it, the CPU fills with it
                found = _asked(function, ((x, ..., value), {}), nth, in_place, small[0])
        return found
    finally:
        if threading.active_count() == 1 or _may_draw(function):
            torch.default_generator.set_state(drawn)


_DRAWS = ("dropout", "rrelu", "attention", "rnn", "gru", "lstm", "rand", "normal", "bernoulli", "multinomial",
          "poisson", "gumbel", "gamma", "binomial", "dirichlet", "fractional", "exponential", "cauchy", "geometric",
          "uniform_")


def _may_draw(function):
    """Whether it may draw numbers when it is called again. Where it does not, what changed the generator meanwhile are
    other threads, whose numbers must not come once more."""
    name = getattr(function, "__name__", "")
    return any(part in name for part in _DRAWS)


def _first_of(ways, function, both, nth, in_place):
    for way in ways[:-1]:
        with contextlib.suppress(*_core.FORGIVEN):
            return _asked(function, both, nth, in_place, way)
    return _asked(function, both, nth, in_place, ways[-1])


_LAYERS = {torch.rnn_tanh, torch.rnn_relu, torch.gru, torch.lstm}
_NUMPYS = {"x", "a", "x1"}  # NumPy's names for the first operand, which torch's functions take


def _few_steps(args, kwargs):
    """Operands of a recurrent layer with two steps and two rows at most. Weights stay as large as they are: torch takes
    the parts of smaller ones from behind their end, without a look."""
    kwargs = {"input" if name in _NUMPYS else name: value for name, value in kwargs.items()}
    both = kwargs | dict(zip(("input", "hx"), args))
    x, state = both["input"], both["hx"]
    both["input"] = x.shrunk([min(2, n) for n in x.sizes[:2]] + list(x.sizes[2:]))
    few = [look.shrunk([look.sizes[0], min(2, look.sizes[1]), look.sizes[2]]) for look in _looks(state)]
    both["hx"] = type(state)(few) if isinstance(state, (tuple, list)) else few[0]
    by_place = [both.pop(name) for name, _ in zip(("input", "hx"), args)]
    return (*by_place, *args[2:]), both


def _looks(argument):
    if isinstance(argument, Look):
        return [argument]
    parts = argument.values() if isinstance(argument, dict) else argument if isinstance(argument, (tuple, list)) else ()
    return [look for part in parts for look in _looks(part)]


_VIEWS = set("""
    __getitem__ adjoint as_strided atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to chunk contiguous
    detach diagonal dsplit expand expand_as flatten hsplit moveaxis movedim narrow permute ravel reshape reshape_as
    select split split_with_sizes squeeze swapaxes swapdims t tensor_split transpose unbind unflatten unfold unsqueeze
    view view_as vsplit __iter__ pad
""".split())


def _makes_views(function, both):
    """Its meta kernel is C++, and its arguments are sizes."""
    if isinstance(function, types.GetSetDescriptorType):
        return True
    if getattr(function, "__name__", "").removesuffix("_") not in _VIEWS:
        return False
    return function is not torch.Tensor.__getitem__ or not _looks(both[0][1:])


def _made(argument, way):
    """With tensors in place of looks; the operands are not on the device that the program names."""
    if isinstance(argument, Look):
        return way(argument)
    if isinstance(argument, (str, torch.device)) and str(argument).startswith("cpu"):
        return "meta" if way is Look.bare else argument
    if isinstance(argument, (tuple, list)):
        return type(argument)(_made(part, way) for part in argument)
    return argument


def _asked(function, both, nth, in_place, way):
    with _undisturbed():
        args = tuple(_made(argument, way) for argument in both[0])
        kwargs = {name: _made(argument, way) for name, argument in both[1].items()}
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


_here = threading.local()  # silent: this thread's warnings are not the program's


def _not_here(shown):
    def show(message):
        if not getattr(_here, "silent", False):
            shown(message)

    show.of_dycl = True
    return show


@contextlib.contextmanager
def _silent():
    """Filters stay: what was warned of before would be told once more after another filter. Other threads' warnings are
    shown: what shows them is the process's, so it is replaced once."""
    if not hasattr(warnings._showwarnmsg, "of_dycl"):
        warnings._showwarnmsg = _not_here(warnings._showwarnmsg)
    before, _here.silent = getattr(_here, "silent", False), True
    try:
        yield
    finally:
        _here.silent = before


@contextlib.contextmanager
def _undisturbed():
    """The program's hooks on saved tensors see nothing of it, no modes that it has entered; it hears no warnings."""
    hooked = torch._C._autograd._saved_tensors_hooks_is_enabled()  # not within transforms
    with _silent(), torch.inference_mode(False), torch.enable_grad(), _untransformed():
        if hooked:
            torch._C._autograd._push_saved_tensors_default_hooks(*_KEPT)
        try:
            yield
        finally:
            if hooked:
                torch._C._autograd._pop_saved_tensors_default_hooks()


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
