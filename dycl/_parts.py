"""Parts of accelerated models that are called outside of their model's call: methods other than forward (encode and
decode of a VAE, a training step of Lightning's) call them, or the program does."""

import weakref

_SITE = "_compiled_call_impl"
_models = {}  # address -> weak reference: models that were given to dycl.accelerate
_watching = False


def add_model(core, model):
    """Outermost calls of its parts are regions from now on."""
    global _watching
    address = id(model)
    _models[address] = weakref.ref(model, lambda _: _models.pop(address, None))
    if not _watching:
        from dycl import _everywhere

        core.ask_parts(_options)
        _everywhere.stand()
        _watching = True
    core.parts_changed()


def are_watched():
    return _watching


def accelerated(core):
    """The models that still are."""
    for reference in list(_models.values()):
        model = reference()
        if model is not None and isinstance(vars(model).get(_SITE), core.Site):
            yield model


def within(model):
    """Its modules, itself among them, without the modules' own code."""
    return (module for _, module in _named(model))


def _named(model):
    seen, waiting = set(), [("", model)]
    while waiting:
        name, module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        yield name, module
        children = vars(module).get("_modules", {}).items()
        waiting += [(f"{name}.{child}" if name else child, part) for child, part in children]


def explained(core, model):
    """What `dycl.explain` says of the parts of what it was asked about: lines behind its own text, or an empty one."""
    from torch import nn

    if not isinstance(model, nn.Module):
        return ""
    lines = []
    for name, part in _named(model):
        site = None if part is model else core.site_of(part)
        if isinstance(site, core.Site):
            stats = core.stats(site)
            lines.append(f"  {name}: {stats['calls']} calls recorded, {stats['plain_calls']} ran in torch as a whole\n")
    head = "\nparts that were called outside of a call of the model (dycl.explain of each says more):\n"
    return head + "".join(sorted(lines)) if lines else ""


def _options(module):
    """The options of the accelerated model that the module is a part of. None: it is a part of none, or alone not worth
    a region."""
    from dycl import _core

    if _is_small(module):
        return None
    for model in accelerated(_core):
        if any(part is module for part in within(model)):
            return vars(model)[_SITE]._options
    return None


def _is_small(module):
    """One operator, which gains nothing from being recorded."""
    from torch import nn

    return (type(module).__module__.startswith("torch.nn.modules.") and not vars(module).get("_modules")
            and not isinstance(module, nn.RNNBase))
