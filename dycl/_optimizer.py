"""Whose optimizers' steps are ours, and what they consist of (csrc/py/entry/optimizer.h)."""

import inspect
import sys

from dycl import _parts

_watching = _following = False
# Versions of torch whose steps were read, and are these: the others' are recorded operator by operator.
_SERVED_TORCH = ("2.12.", "2.13.", "2.14.", "2.15.")
# Their classes, and the modules of torch.optim where these are defined.
_SERVED = {"Adam": "adam", "AdamW": "adam", "SGD": "sgd", "RMSprop": "rmsprop", "Adagrad": "adagrad",
           "Adadelta": "adadelta", "Adamax": "adamax"}


def add(core, optimizer):
    """The steps of this optimizer are ours from now on."""
    watch(core)
    core.add_optimizer(optimizer)


def watch(core):
    """torch.optim's step functions are asked for, once."""
    global _watching
    if _watching:
        return
    core.watch_steps(list(_steps()))
    import torch

    if torch.__version__.startswith(_SERVED_TORCH):
        core.serve({**_served(), **_served_clipping()})
        core.watch_zero_grad(inspect.unwrap(torch.optim.Optimizer.zero_grad))
        # its norm differs with the number of lanes, and from what it is
        sample = (torch.arange(20003, dtype=torch.float64, device="cpu") * 0.7548776662).frac().float()
        core.watch_clipping(*_clipping(), sample, torch.linalg.vector_norm(sample).item())
    _watching = True


def follow_models(core):
    """Optimizers of accelerated models count, too."""
    global _following
    watch(core)
    core.ask_optimizers(_belongs)
    _following = True


def add_model(core):
    """A model was accelerated: its optimizers, made before or after, count from now on, where they do."""
    if _following:
        core.optimizers_changed(_everything)


_everything = False


def count_all(core, on):
    """Whether all optimizers count."""
    global _everything
    _everything = on and _following
    core.optimizers_changed(_everything)


def _belongs(optimizer):
    """Whether the optimizer's first parameter is one of an accelerated model."""
    from dycl import _core

    groups = vars(optimizer).get("param_groups")
    first = next((p for group in groups for p in group["params"]), None) if groups else None
    return first is not None and any(_has(model, first) for model in _parts.accelerated(_core))


def _has(model, parameter):
    return any(p is parameter for module in _parts.within(model) for p in vars(module).get("_parameters", {}).values())


def _steps():
    """The step functions of torch.optim's classes, below the wrapper that Optimizer puts around each."""
    from torch.optim import Optimizer

    classes = [Optimizer]
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        step = vars(cls).get("step")
        if cls is not Optimizer and f"{cls.__module__}.".startswith("torch.optim.") and step is not None:
            yield step.__wrapped__ if getattr(step, "hooked", False) else step


def _served():
    """Classes, and where the functions stand that their steps consist of: ((module's dict or class, name), ...)."""
    import torch
    from torch import optim

    found = {}
    for name, module in _SERVED.items():
        cls = getattr(optim, name)
        called = _called([inspect.unwrap(cls.step), cls._init_group], vars(sys.modules[f"torch.optim.{module}"]), cls)
        # its state is found by the hash of a tensor
        found[cls] = ((cls, "_init_group"), (torch.Tensor, "__hash__"), *called)
    return found


def _clipping():
    """torch's functions that clip gradients, below the wrapper that disables gradients."""
    from torch.nn import utils

    return inspect.unwrap(utils.clip_grad_norm_), inspect.unwrap(utils.clip_grad_value_)


def _served_clipping():
    return {function: tuple(_called([function], function.__globals__)) for function in _clipping()}


def _called(functions, *places):
    """What the functions call by its name, of these places and torch's operators on lists, and what that calls."""
    import torch

    waiting, seen = list(functions), {"_init_group"}
    while waiting:
        for name in _names(getattr(waiting.pop(), "__code__", None)) - seen:
            seen.add(name)
            place = next((place for place in places if callable(_found(place, name))), None)
            if place is not None:
                waiting.append(inspect.unwrap(_found(place, name)))
            elif name.startswith("_foreach_") and hasattr(torch, name):
                place = vars(torch)
            if place is not None:
                yield place, name


def _found(place, name):
    dicts = [place] if isinstance(place, dict) else [vars(base) for base in place.__mro__]
    return next((d[name] for d in dicts if name in d), None)


def _names(code):
    """What code, and what is defined in it, calls by its name, or looks up."""
    if code is None:
        return set()
    return set(code.co_names).union(*(_names(inner) for inner in code.co_consts if hasattr(inner, "co_names")))
