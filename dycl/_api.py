"""The public functions. Everything that runs per call is in the C extension dycl._core."""

import functools
import sys
import threading
import types
import warnings

from dycl import _environment, _log, _optimizer, _parts, _profile

TESTED_TORCH = ("2.13.",)  # whose memory layout and results dycl's own tests know; others are proven (_proof)


# The extension module, once _load() found it: oneDNN and OpenMP read the environment when they are loaded, and a script
# under `python -m dycl` may still set it.
_core = None
_core_error = None  # why there is none
_disabled = False  # dycl.disable() came before the extension module
_MISSING = object()
_SITE = "_compiled_call_impl"  # torch.nn.Module's own hook: what _wrapped_call_impl calls instead of _call_impl
_ready = None  # None: not tried; True; or the reason why programs run in torch
_starting = threading.RLock()


def _load():
    """The extension module, or None with the error kept: `import dycl` never fails for that."""
    global _core, _core_error
    if _core is None and _core_error is None:
        try:
            from dycl import _core as found
        except ImportError as error:
            found, _core_error = _load_with_torch(), error
        _core = found
        if _core is not None:
            _core.set_disabled(_disabled)
    return _core


def _load_with_torch():
    """A system without libgomp: torch brings one."""
    try:
        import torch  # noqa: F401

        from dycl import _core as found

        return found
    except ImportError:
        return None


def _setup():
    """Finds torch and what dycl needs in it, once. True, or False after one warning: programs then run in torch."""
    if _ready is None:
        with _starting:  # the second thread waits: half a set-up is none
            _setup_once()
    return _ready is True


def _setup_once():
    global _ready
    if _ready is None:
        try:
            import torch
        except ImportError as error:
            raise ImportError("dycl.accelerate needs torch: pip install torch") from error
        try:
            _start(torch)
            _ready = True
        except (ImportError, AttributeError, RuntimeError, OSError, MemoryError) as error:
            _ready = str(error) or type(error).__name__
            warnings.warn(f"dycl does not accelerate here, programs run in torch: {error}", RuntimeWarning,
                          stacklevel=4)


def _start(torch):
    if _load() is None:
        absent = " (is oneDNN installed? pip install onednn-cpu-gomp)" if "dnnl" in str(_core_error) else ""
        raise ImportError(f"{_core_error}{absent}")
    trains = _environment.trains()
    if not torch.__version__.startswith(TESTED_TORCH):
        trains = _prove(torch, trains)
    _core.setup()
    from dycl import _replay

    _core.set_replay(_replay.run)
    if _environment.replays():  # is a plan wrong, or what was recorded?
        _core.set_replaying(True)
    if trains:
        from dycl import _autograd

        _core.set_tracking(_autograd.attach)
        _optimizer.follow_models(_core)
    if _environment.disabled():
        _set_disabled(True)
    if _environment.always_records():  # what tests and micro-benchmarks of the recorder need
        _core.set_choosing(False)
    _environment.tell(_core)
    _log.start(_core)
    _profile.start(_core)


def _prove(torch, trains):
    """Whether what needs gradients may be recorded. Raises where nothing may."""
    from dycl import _proof

    failed, new = _proof.failure(torch, _core, trains)
    if failed and trains and not _proof.failure(torch, _core, False)[0]:
        warnings.warn(f"dycl was not tested with torch {torch.__version__}, and its self-test of training fails: "
                      f"{failed}; what needs gradients runs in torch", RuntimeWarning, stacklevel=6)
        return False
    if failed:
        raise RuntimeError(f"torch {torch.__version__} is none that dycl was tested with, and its self-test fails: "
                           f"{failed}")
    if new:
        warnings.warn(f"dycl was not tested with torch {torch.__version__}; its self-test passed, so it accelerates "
                      f"(this is said once)", RuntimeWarning, stacklevel=6)
    return trains


_WANTS_BF16 = {"f32": False, "float32": False, "torch.float32": False, "bf16": True, "bfloat16": True,
               "torch.bfloat16": True}


def _wants_bf16(pack, precision):
    """Whether bfloat16 is asked for. Raises where the request makes no sense, on any machine."""
    if not isinstance(pack, bool):
        raise TypeError(f"pack is True or False, not {pack!r}")
    wanted = _WANTS_BF16.get(str(precision)) if isinstance(precision, str) or type(precision).__name__ == "dtype" \
        else None
    if wanted is None:
        raise ValueError(f"precision is 'f32' or 'bf16' ('float32', 'bfloat16', or one of torch's two dtypes), not "
                         f"{precision!r}")
    if wanted and not pack:
        raise ValueError(
            "precision='bf16' keeps the weights a second time, in bfloat16: it does not go with pack=False")
    return wanted


def _bits(pack, bf16):
    """What a site is made with. Raises where this machine cannot."""
    options = 0 if pack else _core.NO_PACK
    if bf16:
        if not _core.info()["bf16"]:
            raise RuntimeError("precision='bf16' needs a processor with AVX512_BF16 (or AMX), and DYCL_ISA must not "
                               "exclude it")
        options |= _core.BF16
    return options


def accelerate(target=_MISSING, *, pack=True, precision="f32"):
    """Makes a model or a function run through dycl. Without a target: a decorator, ``@dycl.accelerate(pack=False)``.

    Args:
        target: a ``torch.nn.Module`` (any; the very same object is returned, with its state, hooks and type untouched),
            or a Python callable that computes with torch tensors (a wrapper with the same signature is returned), or
            an optimizer of ``torch.optim`` (the very same object is returned; its steps are equal to eager's up to
            rounding, which training amplifies). The optimizers of what is accelerated need not be given.
        pack: whether weights may be kept a second time in the form that products and convolutions read best. ``False``:
            no such copies, so that memory stays at eager's; calls that need gradients run in torch then.
        precision: ``"f32"`` (or ``"float32"``, ``torch.float32``), or ``"bf16"`` (``"bfloat16"``, ``torch.bfloat16``):
            parameters are read as bfloat16 by products and convolutions, which accumulate in float32; tensors stay
            float32 for the program. Relative errors are about 1e-2 then, and calls that need gradients run in torch.
            Needs AVX512_BF16.

    What a call inside an accelerated call does is decided by the outermost one. Accelerating again with other options
    replaces them.

    Returns:
        ``target`` itself for a module; for another callable an object that is called like it.

    Raises:
        TypeError: ``target`` is neither a module nor an optimizer nor callable.
        ImportError: torch is not installed.
        RuntimeError: ``precision="bf16"`` on a processor without it.
        ValueError: an unknown precision, or ``bf16`` together with ``pack=False``.

    Calls give what eager torch gives: results (up to floating-point rounding), side effects, errors, aliasing and
    object identity. Where gradients are required, what was recorded goes back through dycl, too; with ``DYCL_TRAIN=0``
    such calls run in torch. Of a module's other methods those that ``torch.no_grad`` decorates (transformers'
    ``generate``) run through dycl as a whole when they are called on the module that was accelerated.
    ``copy.deepcopy`` and pickling of an accelerated module give a plain one, as for ``torch.compile``.
    """
    bf16 = _wants_bf16(pack, precision)
    if target is _MISSING:
        return functools.partial(accelerate, pack=pack, precision=precision)
    ready = _setup()
    from torch import nn, optim

    options = _bits(pack, bf16) if ready else 0
    site = _site_of(target) if ready else None
    if isinstance(target, nn.Module):
        if ready and (site is None or site._options != options):
            vars(target)[_SITE] = _core.site(None, target, options)  # past a __setattr__ of its own
            _parts.add_model(_core, target)
            _optimizer.add_model(_core)
        return target
    if isinstance(target, optim.Optimizer):
        if ready:
            _optimizer.add(_core, target)
        return target
    if isinstance(target, type) or not callable(target):
        raise TypeError(f"dycl.accelerate takes a torch.nn.Module or a function, not {type(target).__name__}")
    if not ready or site is not None and site._options == options:
        return target
    if site is target:
        target = site.__wrapped__
    return _wrapper(target, options)


def _wrapper(function, options):
    site = _core.site(function, None, options)
    functools.update_wrapper(site, function)
    return site


def copied(function, options):
    """What pickles and copies of accelerated bound methods and callable objects make anew."""
    return _wrapper(function, options) if _setup() else function


def _site_of(target):
    """The site behind an accelerated callable, or None."""
    if _core is None:
        return None
    if isinstance(target, _core.Site):
        return target
    if isinstance(target, types.MethodType) and isinstance(target.__func__, _core.Site):
        return target.__func__
    site = getattr(target, "__dict__", {}).get(_SITE)
    if site is None:
        site = _core.site_of(target)
    return site if isinstance(site, _core.Site) else None


def _need_site(target):
    """The site of a target, or of the last call. None: nothing is accelerated here at all."""
    site = _site_of(target) if target is not None else _core and _core.last_site()
    if site is None and isinstance(_ready, str) and (target is None or callable(target)):
        return None
    if site is None and target is None:
        raise LookupError("no accelerated call yet, or what was called is gone")
    if site is None:
        raise TypeError(f"not accelerated by dycl: {type(target).__name__}")
    return site


def _counts_of_nothing():
    names = ("calls plain_calls plain_grad plain_mode plain_disabled plain_nested plain_faster recorded torch beside "
             "segments ahead replays updates nodes backward_passes backward_replays backward_twice saved_bytes "
             "graph_vertices case_selects packed_bytes plans postponed recalled")
    return {**dict.fromkeys(names.split(), 0), "bails": {}, "flushes": {}}


def stats(target=None):
    """What an accelerated callable did so far, as a dict of counts; without ``target``, the one that was called last
    (not from inside another).

    Keys: ``calls`` (that ran as regions), ``plain_calls`` (that ran in torch as a whole) with its parts ``plain_grad``
    (gradients required, and not recorded), ``plain_mode`` (autocast, another torch function mode, tracing...),
    ``plain_disabled``, ``plain_nested`` (inside another region), ``plain_faster`` (measured: torch runs this callable
    faster, or is being tried); ``recorded`` (operators recorded), ``torch`` (operators that ran in torch inside
    regions, after what was pending), ``beside`` (that torch ran at once beside it), ``segments`` (executed),
    ``replays`` (of these, run node by node in torch, because no plan could), ``updates`` (steps of an optimizer that
    ran as one loop over all parameters, without its Python), ``nodes`` (of autograd's graph, that results of segments
    got), ``backward_passes`` (through one of these nodes each), ``backward_replays`` (of these, run operator by
    operator in torch), ``backward_twice`` (of these, because the gradients are to be differentiated themselves),
    ``saved_bytes`` (what the last call that made nodes keeps for its backward pass and for nothing else: neither
    results nor what came from outside), ``ahead`` (segments computed while they were recorded), ``postponed`` (products
    of which only the largest element was wanted, left out) and ``recalled`` (of these, computed later because they were
    asked for), ``graph_vertices`` and ``case_selects`` (of the TraceGraph), ``packed_bytes`` (memory of packed weights)
    and ``plans`` (alive), both of the whole process, and two dicts by reason: ``bails`` (operators left to torch) and
    ``flushes`` (ends of segments).

    Raises:
        TypeError: ``target`` was not accelerated.
        LookupError: there was no accelerated call, or what was called is gone.
    """
    site = _need_site(target)
    return _core.stats(site) if site is not None else _counts_of_nothing()


def explain(target=None):
    """What ran where, and why not, as text: per segment its operators, fused blocks, kernels and last times
    (microseconds), the case selects, and each operator that was left to torch with the reason and its source line. In
    training also what autograd sees of a segment, what is kept for the backward pass, and per backward pass its plan
    and what it computes again instead of having it kept. Of a model also which of its parts were called on their own.
    Without ``target``, of what was called last (not from inside another). From the first call of ``explain`` on, steps
    are timed.

    Raises:
        TypeError: ``target`` was not accelerated.
        LookupError: there was no accelerated call, or what was called is gone.
    """
    site = _need_site(target)
    if site is None or isinstance(_ready, str):
        return f"dycl does not accelerate here, programs run in torch: {_ready}"
    _profile.save()
    text = _core.explain(site)
    text += _parts.explained(_core, target)
    _core.set_timing(True)
    return text


def _set_disabled(on):
    """The former state."""
    global _disabled
    before, _disabled = _disabled, on
    return _core.set_disabled(on) if _core is not None else before


class disable:
    """``dycl.disable()``: from now on every call runs in torch, until ``dycl.enable()``; as a context manager, inside
    the ``with`` block only. The environment variable ``DYCL_DISABLE=1`` does the same from the start. Holds for all
    threads of the process."""

    def __init__(self):
        self._before = _set_disabled(True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        _set_disabled(self._before)


def enable():
    """Ends ``dycl.disable()``."""
    _set_disabled(False)


def info():
    """A dict: ``isa`` (instruction set of dycl's own kernels), ``onednn`` (version), ``segments`` (plans kept),
    ``plan_bytes`` (memory that plans and segments take, about), ``profile`` (what is known by measuring, from this and
    from earlier processes), ``profile_hits`` (how often that was of use), ``backwards`` (graphs of gradients that were
    built so far), ``python`` (version)."""
    return {**(_core.info() if _load() is not None else {}), "python": sys.version.split()[0]}
