"""The order in which torch.einsum contracts more than two operands: that of the package opt_einsum, where it is
there."""

import functools

from torch.backends import opt_einsum


@functools.lru_cache(maxsize=1024)
def _path(equation, shapes, strategy):
    pairs = opt_einsum.get_opt_einsum().contract_path(equation, *shapes, shapes=True, optimize=strategy)[0]
    return tuple(position for pair in pairs for position in pair)


def order(equation, shapes):
    """Positions among what is left, two a step, whose result comes last: `torch.functional.einsum` asks the same for
    operands of these shapes (a tuple of tuples). None: from left to right, each result comes first."""
    if not (opt_einsum.enabled and opt_einsum.is_available()):
        return None
    return _path(equation, shapes, opt_einsum.strategy)
