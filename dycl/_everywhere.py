"""Every outermost module call of a program, without a change to it: ``dycl.accelerate_all``, and the wait for torch
that a script needs."""

import importlib.util
import sys

from dycl import _api, _optimizer, _parts

_ATTRIBUTE = "_compiled_call_impl"
_users = 0  # handles that are in force


def stand():
    """torch.nn.Module asks the descriptor from now on, which answers what the class did as long as nothing counts."""
    from torch import nn

    if nn.Module.__dict__.get(_ATTRIBUTE) is None:
        setattr(nn.Module, _ATTRIBUTE, _api._core.everywhere())


def _count(change):
    global _users
    _users += change
    if not _users and not _parts.are_watched():
        from torch import nn

        if nn.Module.__dict__.get(_ATTRIBUTE) is _api._core.everywhere():
            setattr(nn.Module, _ATTRIBUTE, None)
    _api._core.count_all_modules(_users > 0)
    _optimizer.count_all(_api._core, _users > 0)


class accelerate_all:
    """``dycl.accelerate_all()``: from now on every outermost call of any ``torch.nn.Module``, whenever it was made,
    runs as if the module had been given to :func:`dycl.accelerate`. torch need not be imported yet.

    Modules that were accelerated or compiled (``Module.compile``, ``torch.compile``, ``torch.jit``) keep their own way.
    Statistics and explanations are kept per module, while it lives; of many thousand modules, for those called lately.

    ``remove()`` ends it, as does leaving the ``with`` block when it is used as a context manager; ``dycl.disable()``
    suspends it.
    """

    def __init__(self):
        self._active = True
        if not _call_with_torch(self._install):
            self._waiting = True

    _waiting = False

    def _install(self):
        self._waiting = False
        if not self._active or not _api._setup():
            self._active = False
            return
        stand()
        _count(1)

    def remove(self):
        """From now on only what was given to ``dycl.accelerate`` is accelerated (unless another handle is in force).
        May be called again."""
        active, self._active = self._active, False
        if active and not self._waiting:
            _count(-1)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


# ---- torch, when it comes


def _call_with_torch(action):
    """Calls ``action()`` now when torch is imported (True), else right after its import (False)."""
    torch = sys.modules.get("torch")
    if torch is not None and not getattr(getattr(torch, "__spec__", None), "_initializing", False):
        action()
        return True
    if not any(isinstance(finder, _TorchFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchFinder())
    _TorchFinder.actions.append(action)
    return False


class _TorchFinder:
    """Finds nothing by itself: it asks the other finders for torch and has its loader call us when the module has been
    executed."""

    actions = []

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return spec
        loader = spec.loader
        execute = loader.exec_module

        def execute_and_tell(module):
            del loader.exec_module
            try:
                execute(module)
            except BaseException:
                sys.meta_path.insert(0, self)  # the program may try again
                raise
            actions, _TorchFinder.actions = _TorchFinder.actions, []
            for action in actions:
                action()

        # tracebacks of errors inside leave the import system's frames out, and this one is such a frame
        execute_and_tell.__code__ = execute_and_tell.__code__.replace(co_filename="<frozen importlib._bootstrap>",
                                                                      co_name="_call_with_frames_removed")
        loader.exec_module = execute_and_tell
        return spec
