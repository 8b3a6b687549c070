"""dycl: dynamic deep-learning programs, fast on CPUs.

    import dycl
    model = dycl.accelerate(model)      # the same object; everything else goes on as before

Python goes on running the program. Its tensor operators are recorded instead of executed one by one, cut into segments
where Python needs a value, fused and run as native code (imperative-symbolic co-execution: Kim et al., Terra, NeurIPS
2021, sections 3 and 4). What cannot be represented runs in torch, as it would have without dycl.
"""

from dycl import debug
from dycl._api import accelerate, disable, enable, explain, info, stats
from dycl._everywhere import accelerate_all

__all__ = ["accelerate", "accelerate_all", "debug", "disable", "enable", "explain", "info", "stats"]
__version__ = "0.1.0"


def load_ipython_extension(ipython):
    """``%load_ext dycl``: every outermost module call of the notebook is accelerated; ``%dycl explain`` and ``%dycl
    stats`` show the last one."""
    from dycl import _notebook

    _notebook.load(ipython)


def unload_ipython_extension(ipython):
    """``%unload_ext dycl``: as if it had never been loaded."""
    from dycl import _notebook

    _notebook.unload(ipython)
