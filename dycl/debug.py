"""To look inside: ``dycl.debug.graph(model)``. What ran where and how long it took says ``dycl.explain``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dycl import _api

__all__ = ["graph"]


def graph(target: Callable[..., Any] | None = None, show: str = "all", calls: int = 1) -> str:
    """The segments that the last calls of an accelerated callable ran, as text: as they were recorded, what each pass
    made of them, and the plan: which step runs on which kernel. Behind each the graphs of its backward passes. Without
    ``target``, of what was called last.

    Args:
        target: what ``dycl.accelerate`` was given, or gave back.
        show: topics with commas between them, as in the environment variable ``DYCL_LOG``: ``graph``, ``plan``, names
            of passes, or ``all``.
        calls: how many of the last calls.

    The text of a graph has one line a value, ``%2 = add %0 %1 : f32[2,3]{3,1}``: its operator, operands and attributes,
    and behind the colon dtype, sizes and strides. ``#`` begins a comment.

    Raises:
        TypeError: ``target`` was not accelerated.
        ValueError: a topic that is not known, or ``calls`` below 1.
        LookupError: there was no accelerated call, or what was called is gone.
    """
    if calls < 1:
        raise ValueError(f"calls is 1 or more, not {calls}")
    site = _api._need_site(target)
    if site is None or isinstance(_api._ready, str):
        return f"# dycl does not accelerate here, programs run in torch: {_api._ready}\n"
    texts = _api._core.show(site, show, calls)
    return "\n".join(text for _, text in texts) if texts else "# no segment ran\n"
