"""The one list of known differences from eager in the suites that we did not write, each with its reason.

A case that stands here must differ: its test fails when it no longer does (a strict xfail). What is not in the list
must be equal.
"""

import pytest

# (suite, name of the case, form or None for every form) -> why
KNOWN = {}


def marks(suite, name, form=None):
    """For pytest.param(..., marks=...)."""
    reason = KNOWN.get((suite, name, form), KNOWN.get((suite, name, None)))
    return [pytest.mark.xfail(reason=reason, strict=True, raises=AssertionError)] if reason else []


def is_known(suite, name, form=None):
    return bool(marks(suite, name, form))
