"""Arguments that lie in each other's memory, and views that overlap: what is read before and after a write through
another of them."""

from . import layout
from .draw import name_of
from .program import Input
from .steps import step


def over(d, name):
    """Sizes, strides and an offset of something in the memory of this tensor."""
    x = d[name]
    first = x.storage_offset()
    most = x.untyped_storage().nbytes() // x.element_size()
    for _ in range(6):
        shape = layout.some_shape(d.rng, d.pick(1, 1, 2, 2, 3)) if d.chance(0.6) else tuple(x.shape)
        strides = d.pick(layout.contiguous(shape), layout.some_strides(d.rng, shape)[0],
                         tuple(d.pick(1, 1, 2, 3) for _ in shape))
        offset = d.pick(0, first, first + 1, 2)
        if offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides) if n) <= most:
            return shape, strides, offset
    return None


def lies_as_made(d, made):
    """Not in other memory since (`x.data = y`, `resize_`): the program finds its arguments where they were made."""
    with d.eager():
        new = eval(made.text(), d.namespace)  # noqa: S307
    return place(d[made.name]) == place(new)


def place(x):
    return x.shape, x.stride(), x.storage_offset(), x.dtype, x.untyped_storage().nbytes()


@step(4)
def shared_argument(d):
    """Another argument in an argument's memory."""
    owners = [i.name for i in d.inputs if not i.of and not i.grad and i.name in d.pool and d[i.name].numel()
              and lies_as_made(d, i)]
    if not owners or len(d.inputs) > 12:
        return
    owner = d.rng.choice(owners)
    found = over(d, owner)
    if found is None:
        return
    name = f"x{len(d.inputs)}"
    made = Input(name, *found, name_of(d[owner].dtype), 0, "grid", of=owner)
    with d.eager():
        d.namespace[name] = d.pool[name] = eval(made.text(), d.namespace)  # noqa: S307
    d.inputs.append(made)
    written(d, owner, name)


@step(5)
def overlapping(d):
    """Views of one memory, read and written in turn."""
    x = d.tensor(least=1)
    if d.chance(0.5):
        x = d.result(f"{x} * 2", "simple")
        if x is None or x not in d.pool:
            return
    n = d[x].shape[0] if d[x].dim() else 0
    found = over(d, x) if n else None
    forms = [f"{x}[1:]", f"{x}[:-1]", f"{x}[::2]", f"{x}.flip(0)", f"{x}.unfold(0, 2, 1)", f"{x}.view(-1)",
             f"{x}.T", f"{x}[None].expand(3, *{x}.shape)", f"{x}.narrow(0, 0, {max(n - 1, 0)})", f"{x}.reshape(-1)[1:]",
             f"{x}.diagonal()", f"{x}.movedim(0, -1)"]
    if found is not None:
        forms += [f"{x}.as_strided({found[0]}, {found[1]}, {found[2]})"] * 4
    made = d.result(d.rng.choice(forms), "view")
    if made is not None and made in d.pool:
        written(d, x, made)


def written(d, one, other):
    """Reads of both around writes to one of them."""
    reads = []
    for _ in range(d.pick(1, 2, 2, 3)):
        target = d.pick(one, other)
        if d.chance(0.7):
            reads.append(d.result(d.pick(f"{one} * 2", f"{other} + 1", f"{other}.sum()", f"{one}.clone()", f"-{other}",
                                         f"torch.relu({one})", f"{other}.cumsum(0)"), "simple"))
        source = d.pick(one, other, d.partner(target), *(r for r in reads if r in d.pool))
        d.step(d.pick(f"{target}.mul_({d.number()})", f"{target}.add_({source})", f"{target}[...] = {source}",
                      f"{target}.copy_({source})", f"{target}[1:] = {target}[:-1]", f"{target}[1:] += {target}[:-1]",
                      f"{target}.fill_({d.number()})", f"{target}[0] = {d.number()}", f"{target}.relu_()",
                      f"{target}[..., ::2].neg_()", f"{target}.zero_()", f"{target}[{target} > 0] = 1"), "write")
    d.result(d.pick(f"{one} * 3", f"{other}.sum(-1)", f"{other}.abs()", f"{one} + 0"), "simple")
