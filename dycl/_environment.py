"""The environment variables whose names begin with DYCL_. A value that dycl does not know is told once, and so is a
name that looks like one of these: a setting that silently does nothing is worse than none. Programs go on as if it were
not set; only DYCL_DISABLE then counts as 1."""

import os
import warnings

_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")

# Who reads them: the core (csrc/base/env.h, asked by `_core.environment`), this package, and the build and the tests.
NAMES = {
    "core": ("DYCL_AHEAD", "DYCL_CHECK", "DYCL_ISA", "DYCL_LOG", "DYCL_MEASURE", "DYCL_PUBLIC_API"),
    "package": ("DYCL_CHOOSE", "DYCL_DISABLE", "DYCL_PROFILE", "DYCL_REPLAY", "DYCL_TRAIN", "DYCL_TRUST_TORCH"),
    "build": ("DYCL_BUILD_DEBUG", "DYCL_JOBS", "DYCL_SANITIZE", "DYCL_WERROR"),
    "benchmarks": ("DYCL_BENCH_BEFORE",),
    "tests": ("DYCL_TEST_FULL", "DYCL_TEST_PYMEM", "DYCL_TEST_OPERATORS", "DYCL_TEST_SEED"),
}

RENAMED = {"DYCL_DEBUG": "DYCL_LOG"}


def switch(name, unknown=None):
    """True, False or (not set, or neither: which ``tell`` complains of) ``unknown``."""
    value = os.environ.get(name, "").strip().lower()
    return True if value in _ON else False if value in _OFF else unknown if value else None


def disabled():
    """Whoever sets DYCL_DISABLE at all wants it, unless the value says no."""
    return bool(switch("DYCL_DISABLE", unknown=True))


def always_records():
    """DYCL_CHOOSE=0: no call is given to torch because that is faster."""
    return switch("DYCL_CHOOSE") is False


def trains():
    """DYCL_TRAIN=0: what needs gradients runs in torch."""
    return switch("DYCL_TRAIN") is not False


def replays():
    """DYCL_REPLAY=1: what is recorded runs node by node in torch."""
    return switch("DYCL_REPLAY") is True


def trusts_torch():
    """DYCL_TRUST_TORCH=1: a torch that dycl's tests do not know is not proven first. For tests of such a torch, and for
    the proof itself."""
    return switch("DYCL_TRUST_TORCH") is True


def profile():
    """None: as usual; False: none is kept; or where the file is to be."""
    value = os.environ.get("DYCL_PROFILE", "")
    return {True: None, False: False}.get(switch("DYCL_PROFILE", unknown=value or None), value or None)


def complaints(core):
    """What is wrong, as texts."""
    found = list(core.environment())
    for name, taken in (("DYCL_DISABLE", "taken as 1"), ("DYCL_CHOOSE", "ignored"), ("DYCL_REPLAY", "ignored"),
                        ("DYCL_TRAIN", "ignored"), ("DYCL_TRUST_TORCH", "ignored")):
        if switch(name, unknown="") == "":
            found.append(f"{name}={os.environ[name]:.60} is {taken}: it may be 0 or 1")
    known = [name for names in NAMES.values() for name in names]
    for name in sorted(os.environ):
        if name.startswith("DYCL_") and name not in known:
            import difflib

            near = [RENAMED[name]] if name in RENAMED else difflib.get_close_matches(name, known, 1, 0.8)
            if near:  # others may have variables of their own that begin so
                found.append(f"{name} is ignored: is {near[0]} meant?")
    return found


def tell(core):
    for text in complaints(core):
        warnings.warn(f"dycl: {text}", RuntimeWarning, stacklevel=6)
