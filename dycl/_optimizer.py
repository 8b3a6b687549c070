"""Optimizers that were given to dycl.accelerate: torch's own step as regions (csrc/py/entry/optimizer.h)."""

_watching = False


def add(core, optimizer):
    global _watching
    if not _watching:
        core.watch_steps(list(_steps()))
        _watching = True
    core.add_optimizer(optimizer)


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
