"""Python functions that stand where ``_wrapped_call_impl`` and ``_call_impl`` of ``torch.nn.Module`` stand while a
module of a region is called.

Each pair takes a fixed number of arguments and hands them on, without torch's questions, which
csrc/py/modules/composite.c has answered by then. Their
code says the same file, names and lines as torch's, so that tracebacks, ``warnings.warn(stacklevel=...)`` and
``inspect`` see what they see in eager.
"""

import ast
import functools
import inspect
import keyword
import sys
import types

_WRAPPED, _CALL = "_wrapped_call_impl", "_call_impl"
# where they are left for the next frame
_RETURNS = {_WRAPPED: "self._call_impl(*args, **kwargs)", _CALL: "forward_call(*args, **kwargs)"}


@functools.cache
def _place(name):
    """The ``return`` statement of torch's method, as a syntax tree with torch's lines and columns. None: this torch is
    written differently."""
    from torch import nn

    lines, first = inspect.getsourcelines(getattr(nn.Module, name))
    tree = ast.parse("if 1:\n" + "".join(lines))  # an indented method may stand there
    ast.increment_lineno(tree, first - 2)
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) == _RETURNS[name]:
            return node
    return None


def find():
    """Whether torch's methods are what this module knows. False: modules are called as torch calls them."""
    try:
        return _place(_WRAPPED) is not None and _place(_CALL) is not None
    except (OSError, TypeError, SyntaxError):  # no source
        return False


def _stand_in(name, parameters, call, following=None):
    """A function that only returns ``call``, in the place of torch's method ``name``; ``following`` is what it may call
    as ``following``."""
    from torch import nn

    original, place = getattr(nn.Module, name), _place(name)
    tree = ast.parse(f"def enclosing(following):\n def {name}({', '.join(parameters)}, /):\n  return {call}\n return "
                     f"{name}")
    method = tree.body[0].body[0]
    method.lineno, method.end_lineno = original.__code__.co_firstlineno, place.end_lineno
    for node in ast.walk(method.body[0]):
        if hasattr(node, "lineno"):
            ast.copy_location(node, place if isinstance(node, ast.Return) else place.value)
    scope = {}
    exec(compile(tree, original.__code__.co_filename, "exec"), scope)
    made = scope["enclosing"](following)
    code = made.__code__.replace(co_qualname=original.__code__.co_qualname)
    return types.FunctionType(code, original.__globals__, name, None, made.__closure__)


def make(count, names):
    """A function of a module, ``count`` positional arguments and those called ``names``, all given by position, that
    calls ``module.forward`` with them. None when a name cannot be written in a call, or when this torch is not what
    this module knows."""
    if not find() or "self" in names or not all(name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
                                                for name in names):
        return None
    places = [f"_{i}" for i in range(count + len(names))]
    arguments = places[:count] + [f"{name}={place}" for name, place in zip(names, places[count:])]
    inner = _stand_in(_CALL, ["self", *places], f"self.forward({', '.join(arguments)})")
    return _stand_in(_WRAPPED, ["self", *places], f"following({', '.join(['self', *places])})", inner)


class Probe:
    """Called as torch's modules are; ``count()`` says how many references an instance, an argument and a named argument
    have in ``forward``."""

    _compiled_call_impl = None

    def _wrapped_call_impl(self, *args, **kwargs):
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        else:
            return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        forward_call = self.forward
        if forward_call:
            return forward_call(*args, **kwargs)

        def inner():  # they are cells in torch's too
            nonlocal args, kwargs

        return inner

    __call__ = _wrapped_call_impl

    def forward(self, x, *, y):
        return sys.getrefcount(self), sys.getrefcount(x), sys.getrefcount(y)

    @classmethod
    def count(cls):
        probe, x, y = cls(), object(), object()
        return probe(x, y=y)
