"""The notebook extension: ``%load_ext dycl``, ``%dycl explain``, ``%dycl stats``, ``%unload_ext dycl``."""

import pprint

from dycl import _api
from dycl._everywhere import accelerate_all

_handle = None


def magic(line):
    """%dycl explain: what ran where in the last call, and why not. %dycl stats: its numbers. %dycl off, %dycl on:
    everything runs in torch, or not."""
    word = line.strip()
    if word in ("on", "off"):
        _api._set_disabled(word == "off")
    elif word in ("explain", "stats"):
        try:
            print(_api.explain() if word == "explain" else pprint.pformat(_api.stats(), sort_dicts=False))
        except LookupError as error:
            print(f"dycl: {error}")
    else:
        print("%dycl explain | stats | on | off")


def load(ipython):
    global _handle
    if _handle is None:
        _handle = accelerate_all()
    ipython.register_magic_function(magic, "line", "dycl")


def unload(ipython):
    global _handle
    if _handle is not None:
        _handle.remove()
        _handle = None
    ipython.magics_manager.magics["line"].pop("dycl", None)
