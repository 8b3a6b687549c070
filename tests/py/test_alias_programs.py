"""Random programs of views, writes and reads in every combination, eager against dycl: every value bit by bit, every
size, stride, offset and version, which tensors are one object, which share memory at which distance, what was read on
the way, and the text of every error.

A program is a list of steps over a pool of tensors (its arguments, what it kept from its last call, and what the steps
made); a step takes any of them:

    make      new tensors: arithmetic, copies, factories, cat, comparisons, masks, other dtypes
    view      one view of a tensor, which may be a view: select, slices with steps, transpose, permute, expand, reshape,
              unfold, diagonal, as_strided, view of another dtype, detach, .data, T, whole slices, view_as, contiguous
              and to (the same object or a copy)
    parts     chunk, split, unbind, tensor_split, iteration: several views at once, also from torch's functions
    write     in place: arithmetic with numbers and tensors, fill, copy_, masks, index writes, augmented assignment,
              through .data
    setitem   x[...] = for integers, slices, ellipsis, None, masks, index tensors, with numbers and tensors
    out       out= of a tensor in the pool, fitting or not
    geometry  in place on the tensor and not its memory: t_, transpose_, squeeze_, unsqueeze_, resize_, as_strided_,
              set_ (of a tensor, of a storage), x.data = y, detach_
    read      item, bool, tolist, float, repr, len, numpy, equal, data_ptr, version, is_set_to, storage offset: at once,
              in the middle of anything
    branch    another step by a value that was computed
    array     NumPy arrays of tensors and tensors of arrays; writes through both sides
    keep      a tensor kept for the next call; between the calls some are written to outside
    forget    references let go: the base of a view, or a view of a base

Values are small integers (in float32, float64, int64 and bool), so that every operator is exact. A failing program is
made shorter until every step counts. DYCL_TEST_FULL=1 runs 10,000 programs, three calls each (new plan, tuned plan,
again); DYCL_TEST_SEED=n runs that one."""

import os
import random
import warnings

import numpy
import pytest
import torch
from suite import FULL, one_thread  # noqa: F401 (a fixture)

import dycl
from dycl import _core

dycl.accelerate(lambda: None)  # finds torch
PROGRAMS, EACH, CALLS = (10000 if FULL else 600), 50, 3
SEED = os.environ.get("DYCL_TEST_SEED")
LARGEST, POOL = 300, 24


def pick(items, r):
    return items[int(r * len(items))]


def small(r, n):
    return int(r * n)


def writable(x):
    return all(n < 2 or s for n, s in zip(x.shape, x.stride()))


def extent(x):
    return (x.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride()))) * x.element_size()


class Machine:
    """What a running program has: the steps are its methods (self, eight random numbers)."""

    def __init__(self, pool, state):
        self.pool, self.state, self.log, self.arrays = [*pool, *state], state, [], []

    def add(self, *tensors):
        for t in tensors:
            if isinstance(t, torch.Tensor) and t.numel() <= LARGEST and t.dim() <= 6 and len(self.pool) < POOL:
                self.pool.append(t)

    def drop_broken(self, error):
        """torch leaves a tensor behind that is larger than its memory when NumPy's memory cannot be resized."""
        if "resize storage" in str(error):
            for tensors in (self.pool, self.state):
                tensors[:] = [t for t in tensors if t.numel() == 0 or extent(t) <= t.untyped_storage().nbytes()]

    def one(self, r):
        return pick(self.pool, r)

    def like(self, x, r):
        """Another tensor that broadcasts to x, if there is one near."""
        start = small(r, len(self.pool))
        for y in self.pool[start:] + self.pool[:start]:
            if y.dim() <= x.dim() and all(n in (1, m) for n, m in zip(reversed(y.shape), reversed(x.shape))):
                return y
        return x

    def make(self, r):
        x = self.one(r[0])
        y = self.like(x, r[1])
        floating = x.dtype.is_floating_point
        bound = (lambda t: t.clamp(-512, 512) if t.dtype != torch.bool else t)
        self.add(
            pick(
                [
                    lambda: x.clone(),
                    lambda: x + 1,
                    lambda: bound(x + y),
                    lambda: bound(x * 2),
                    lambda: bound(x * y),
                    lambda: bound(3 - x) if x.dtype != torch.bool else ~x,
                    lambda: torch.maximum(x, y),
                    lambda: torch.relu(x) if x.dtype != torch.bool else x.logical_not(),
                    lambda: -x if x.dtype != torch.bool else x ^ y,
                    lambda: x.abs() if x.dtype != torch.bool else x & y,
                    lambda: torch.where(x > 0, x, y),
                    lambda: x > y,
                    lambda: x == 1,
                    lambda: x.double() if floating else x.float(),
                    lambda: x.long(),
                    lambda: x.to(torch.bool),
                    lambda: torch.cat([x, x], 0) if x.dim() else torch.stack([x, x]),
                    lambda: torch.stack([x, y.expand_as(x)], small(r[3], x.dim() + 1)),
                    lambda: torch.zeros_like(x),
                    lambda: torch.full((2, 3), 4.0),
                    lambda: torch.arange(6).view(2, 3),
                    lambda: torch.tensor([1.0, small(r[3], 9)]),
                    lambda: x.sum().clamp(-512, 512),
                    lambda: x.amax(small(r[3], x.dim())) if x.numel() and x.dim() else x + 0,
                    lambda: x.flip(0) if x.dim() else x.clone(),
                    lambda: x.repeat(*([2] * max(x.dim(), 1))),
                    lambda: x.masked_fill(x > 1, 0),
                    lambda: x.new_zeros(3),
                    lambda: torch.empty_like(x).fill_(2),
                    lambda: x.index_select(0, torch.tensor([0, x.shape[0] - 1])) if x.dim() and len(x) else x.clone(),
                    lambda: x.tril() if x.dim() > 1 else x.clone(),
                ],
                r[2],
            )()
        )

    def view(self, r):
        x = self.one(r[0])
        d = small(r[1], max(x.dim(), 1))
        e = small(r[2], max(x.dim(), 1))
        n = x.shape[d] if x.dim() else 1
        a, b = sorted((small(r[3], n + 1), small(r[4], n + 1)))
        room = x.untyped_storage().nbytes() // x.element_size()
        self.add(
            pick(
                [
                    lambda: x.transpose(d, e),
                    lambda: x.select(d, small(r[3], n)),
                    lambda: x[small(r[3], n)],
                    lambda: x[a:b],
                    lambda: x[..., :: 1 + small(r[3], 3)],
                    lambda: x.narrow(d, a, b - a),
                    lambda: x.unsqueeze(d),
                    lambda: x[None],
                    lambda: x[:, None] if x.dim() else x[None],
                    lambda: x.squeeze(),
                    lambda: x.squeeze(d),
                    lambda: x.view(-1),
                    lambda: x.view(x.shape),
                    lambda: x.reshape(-1),
                    lambda: x.reshape(-1, n),
                    lambda: x.flatten(),
                    lambda: x.permute(*range(1, x.dim()), 0) if x.dim() else x.permute(()),
                    lambda: x.movedim(d, e),
                    lambda: x.T if x.dim() == 2 else x[...],
                    lambda: x.mT,
                    lambda: x.t(),
                    lambda: x.expand(2, *x.shape),
                    lambda: x.expand_as(torch.zeros(2, *x.shape)),
                    lambda: torch.broadcast_to(x, (2, *x.shape)),
                    lambda: x.unfold(d, 2, 1 + small(r[3], 2)),
                    lambda: x.diagonal(),
                    lambda: x.as_strided((2, 2), (1, small(r[3], 3)), small(r[4], 2)) if room > 6 else x[...],
                    lambda: torch.as_strided(x, x.shape, x.stride()),
                    lambda: x.view(torch.int32) if x.dtype == torch.float32 else x.view(torch.int64)
                    if x.dtype == torch.float64 else x[:],
                    lambda: x.detach(),
                    lambda: x.data,
                    lambda: x[:],
                    lambda: x[...],
                    lambda: x.view_as(x),
                    lambda: x.contiguous(),
                    lambda: x.to(x.dtype),
                    lambda: x.float(),
                    lambda: x.requires_grad_(False),
                    lambda: torch.ravel(x),
                    lambda: torch.atleast_2d(x),
                    lambda: x[(slice(None),) * d + (slice(a, b, 2),)],
                    lambda: x[..., -1, :] if x.dim() > 1 else x[-1:],
                    lambda: x.swapaxes(d, e).unsqueeze(0).transpose(0, 1),
                    lambda: x.unflatten(d, (1, n)),
                ],
                r[5],
            )()
        )

    def parts(self, r):
        x = self.one(r[0])
        d = small(r[1], max(x.dim(), 1))
        made = pick(
            [
                lambda: x.chunk(2, d),
                lambda: x.split(2, d),
                lambda: torch.split(x, [1, x.shape[d] - 1], d),
                lambda: x.unbind(d),
                lambda: torch.unbind(x, d),
                lambda: x.tensor_split(2, d),
                lambda: list(x),
                lambda: torch.broadcast_tensors(x, torch.zeros(2, *x.shape)),
                lambda: (x[0], x[-1]),
                lambda: torch.meshgrid(x[:2], x[:2], indexing="ij"),
                lambda: x.hsplit(1),
            ],
            r[2],
        )()
        self.add(*made[:3])

    def write(self, r):
        x = self.one(r[0])
        y = self.like(x, r[1])
        number = pick([1, 2, -1, 0], r[3])
        boolean = x.dtype == torch.bool
        m = torch.arange(x.shape[0]) % 2 if x.dim() and len(x) else None

        def augmented(what):
            z = x
            if what == 0:
                z += number
            elif what == 1:
                z *= number
            elif what == 2:
                z -= y
            elif what == 3:
                z |= y
            else:
                z //= 2
            assert z is x

        # what torch does with memory that overlaps itself is not defined
        self.add(
            pick(
                [
                    lambda: x.add_(number) if not boolean else x.logical_not_(),
                    lambda: x.mul_(number),
                    lambda: x.sub_(y),
                    lambda: x.add_(y).clamp_(-512, 512),
                    lambda: x.mul_(y).clamp_(-512, 512),
                    lambda: x.neg_(),
                    lambda: x.abs_(),
                    lambda: x.relu_() if not boolean else x.zero_(),
                    lambda: torch.relu_(x) if not boolean else x.fill_(True),
                    lambda: x.zero_(),
                    lambda: x.fill_(number),
                    lambda: x.fill_(y.reshape(-1)[0]) if y.numel() else x,
                    lambda: x.copy_(y),
                    lambda: x.copy_(self.one(r[1])),
                    lambda: x.clamp_(min=0) if not boolean else x,
                    lambda: x.masked_fill_(x > 0, number),
                    lambda: x.masked_fill_(y.to(torch.bool), 1),
                    lambda: x.index_fill_(0, m, number) if m is not None else x,
                    lambda: x.index_add_(0, m, torch.ones_like(x)) if m is not None else x,
                    lambda: x.scatter_(0, torch.zeros_like(x, dtype=torch.long), number) if x.dim() else x,
                    lambda: augmented(0),
                    lambda: augmented(1),
                    lambda: augmented(2),
                    lambda: augmented(3),
                    lambda: augmented(4),
                    lambda: x.data.add_(1) if not boolean else x.data.zero_(),
                    lambda: x.detach().mul_(2) if not boolean else x.detach().fill_(True),
                    lambda: x.view(-1).add_(1) if not boolean else x.view(-1).zero_(),
                    lambda: x[0].copy_(y.reshape(-1)[0]),
                    lambda: x.t().add_(1) if not boolean else x.t().logical_not_(),
                    lambda: x.tril_(),
                    lambda: x.where(x > 0, y).copy_(x),
                    lambda: x.lt_(1),
                    lambda: x.maximum(y).sub_(x),
                    lambda: torch.nn.functional.relu(x, inplace=True),
                    lambda: torch.nn.functional.threshold(x, 1, 0, inplace=True) if not boolean else x,
                    lambda: torch.nn.init.ones_(x),
                    lambda: x.index_put_((m,), torch.ones((), dtype=x.dtype)) if m is not None else x,
                    lambda: torch._foreach_add_([x, y], 1) or x,
                    lambda: x.untyped_storage().copy_(x.clone().untyped_storage()) and x if x.is_contiguous()
                    and x.storage_offset() == 0 and room_is_own(x) else x,
                ],
                r[2],
            )()
        )

    def setitem(self, r):
        x = self.one(r[0])
        n = x.shape[0] if x.dim() else 1
        a, b = sorted((small(r[1], n + 1), small(r[3], n + 1)))
        key = pick(
            [
                lambda: 0,
                lambda: -1,
                lambda: slice(a, b),
                lambda: slice(None, None, 2),
                lambda: ...,
                lambda: (..., 0),
                lambda: (slice(None), 0),
                lambda: None,
                lambda: (None, slice(a, b)),
                lambda: x > 0,
                lambda: torch.tensor([0, n - 1]),
                lambda: [0],
                lambda: (slice(None), torch.tensor([0])),
                lambda: torch.tensor(0),
                lambda: True,
                lambda: (),
            ],
            r[2],
        )()
        value = pick(
            [
                lambda: 1,
                lambda: 2.0,
                lambda: True,
                lambda: self.one(r[4]),
                lambda: self.like(x, r[4]),
                lambda: torch.tensor(3.0),
                lambda: x[key],
                lambda: x[key] + 1,
                lambda: self.one(r[4]).sum().clamp(-9, 9),
            ],
            r[5],
        )()
        x[key] = value

    def out(self, r):
        x, out = self.one(r[0]), self.one(r[1])
        y = self.like(x, r[3])
        if relations([x, out, y]):  # reading what is being written is not defined
            x, y = x.clone(), y.clone()
        operator = pick(
            [
                lambda: torch.add(x, y, out=out),
                lambda: torch.sub(x, 1, out=out),
                lambda: torch.mul(x, 2, out=out),
                lambda: torch.neg(x, out=out),
                lambda: torch.maximum(x, y, out=out),
                lambda: torch.clamp(x, 0, 9, out=out),
                lambda: torch.cat([x, x], out=out),
                lambda: torch.stack([x, x], out=out),
                lambda: torch.sum(x, 0, out=out) if x.dtype.is_floating_point else torch.abs(x, out=out),
                lambda: torch.gt(x, y, out=out),
                lambda: torch.where(x > 0, x, y, out=out),
                lambda: torch.amax(x, 0, out=out),
                lambda: torch.index_select(x, 0, torch.tensor([0]), out=out),
                lambda: torch.zeros(x.shape, out=out),
                lambda: torch.add(out, 1, out=out),
            ],
            r[2],
        )
        shape = out.shape
        try:
            made = operator()
        except ERRORS:
            if out.shape != shape and extent(out) <= out.untyped_storage().nbytes():
                out.zero_()  # resized, and nothing written
            raise
        assert made is out
        self.add(made)

    def geometry(self, r):
        x, y = self.one(r[0]), self.one(r[1])
        d, e = small(r[3], max(x.dim(), 1)), small(r[4], max(x.dim(), 1))
        own = y.untyped_storage()

        def data():
            x.data = y

        made = pick(
            [
                lambda: x.t_(),
                lambda: x.transpose_(d, e),
                lambda: x.swapaxes_(d, e),
                lambda: x.squeeze_(),
                lambda: x.unsqueeze_(d),
                lambda: x.resize_(2, 3).fill_(1),
                lambda: x.resize_(x.shape),
                lambda: x.resize_as_(y).fill_(2),
                lambda: x.as_strided_(x.shape, x.stride()),
                lambda: x.set_(y),
                lambda: x.set_(own, 0, (1,), (1,)) if own.nbytes() >= 8 and x.dtype == y.dtype else x,
                lambda: x.set_() if small(r[5], 4) == 0 else x,
                data,
                lambda: x.detach_(),
            ],
            r[2],
        )()
        assert made is None or made is x
        self.add(made)

    def read(self, r):
        x, y = self.one(r[0]), self.one(r[1])
        self.log.append(
            pick(
                [
                    lambda: x.reshape(-1)[0].item(),
                    lambda: bool(x.sum() > 0),
                    lambda: x.tolist(),
                    lambda: float(x.sum()),
                    lambda: int(x.amax()),
                    lambda: repr(x),
                    lambda: len(x),
                    lambda: x.numpy().copy().tolist(),
                    lambda: torch.equal(x, y),
                    lambda: x.data_ptr() == y.data_ptr(),
                    lambda: x._version,
                    lambda: (x.storage_offset(), x.stride(), x.shape, x.is_contiguous(), x.dtype),
                    lambda: x.is_set_to(y),
                    lambda: x.untyped_storage().nbytes(),
                    lambda: x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr(),
                    lambda: x is y,
                    lambda: [t.shape for t in x],
                    lambda: x.any().item(),
                    lambda: 1 in x,
                    lambda: x.nonzero().tolist(),
                    lambda: x[x > 0].tolist(),
                    lambda: hash(x) == id(x),
                    lambda: x._is_view(),
                    lambda: f"{x.sum().item():g}",
                    lambda: numpy.asarray(x).sum().item(),
                ],
                r[2],
            )()
        )

    def branch(self, r):
        x = self.one(r[0])
        value = x.sum().item() if r[1] < 0.5 else bool((x > 0).any())
        self.log.append(value)
        getattr(self, "write" if value > 0 else "view")([r[3], r[4], r[5], r[6], r[7], r[2], r[0], r[1]])

    def array(self, r):
        x = self.one(r[0])
        if self.arrays and r[1] < 0.5:
            a = pick(self.arrays, r[3])
            if r[2] < 0.4 and a.size and a.flags.writeable:
                a[...] = small(r[4], 5) if a.dtype == bool else a + 1
            elif r[2] < 0.7:
                self.log.append(a.tolist())
            else:
                self.add(torch.from_numpy(a))
        else:
            a = pick([lambda: x.numpy(), lambda: numpy.asarray(x), lambda: x.detach().numpy(),
                      lambda: numpy.ones((2, 3), numpy.float32), lambda: x.__array__()], r[2])()
            self.arrays.append(a)
            if r[3] < 0.5:
                self.add(torch.from_numpy(a))

    def keep(self, r):
        x = self.one(r[0])
        if len(self.state) < 3:
            self.state.append(x)
        else:
            self.state[small(r[1], 3)] = x

    def forget(self, r):
        if len(self.pool) > 3:
            del self.pool[small(r[0], len(self.pool))]


def room_is_own(x):
    return x.untyped_storage().nbytes() == x.numel() * x.element_size()


KINDS = ["make"] * 4 + ["view"] * 5 + ["parts"] + ["write"] * 5 + ["setitem"] * 2 + ["out", "geometry"] + ["read"] * 2 \
    + ["branch", "array", "keep", "forget"]
# what a step may raise: what torch and Python reject
ERRORS = (RuntimeError, IndexError, ValueError, TypeError, OverflowError)


def plan_of(seed):
    rng = random.Random(seed)
    shapes = [tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 3))) for _ in range(2)]
    dtypes = [rng.choice([torch.float32, torch.float32, torch.float64, torch.int64, torch.bool]) for _ in range(2)]
    steps = [(rng.choice(KINDS), [rng.random() for _ in range(8)]) for _ in range(rng.randint(4, 24))]
    return shapes, dtypes, steps, rng.random() < 0.15, rng.random() < 0.3


def program_of(steps):
    def program(arguments, state):
        machine = Machine(arguments, state)
        for kind, numbers in steps:
            try:
                getattr(machine, kind)(numbers)
            except ERRORS as error:
                machine.drop_broken(error)
                # without C++ frames
                machine.log.append((kind, type(error).__name__, str(error).split("\nException raised from")[0]))
        return machine.pool, machine.log, machine.arrays

    return program


def relations(tensors):
    return [
        (i, j, "same" if a is b else a.storage_offset() * a.element_size() - b.storage_offset() * b.element_size())
        for i, a in enumerate(tensors)
        for j, b in enumerate(tensors[:i])
        if a is b or (a.untyped_storage().nbytes() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())
    ]


def version(x):
    try:
        return x._version
    except RuntimeError:  # inference tensors, and what took their place in another tensor, have none
        return None


def facts(x):
    return type(x), x.dtype, x.shape, x.stride(), x.storage_offset(), x.requires_grad, x.is_inference(), version(
        x), x._is_view(), vars(x)


def compare(want, got):
    (want_pool, want_log, want_arrays), (got_pool, got_log, got_arrays) = want, got
    assert str(got_log) == str(want_log), f"read: eager {want_log}\n      dycl  {got_log}"  # as text: nan is nan
    assert len(got_pool) == len(want_pool)
    for i, (w, g) in enumerate(zip(want_pool, got_pool)):
        assert facts(g) == facts(w), f"tensor {i}: eager {facts(w)}\n          dycl  {facts(g)}"
        if not torch.equal(g, w):
            assert numpy.array_equal(g.numpy(), w.numpy(), equal_nan=w.dtype.is_floating_point), \
                f"tensor {i}: eager {w}\ndycl {g}"
    assert relations(got_pool) == relations(want_pool), \
        f"memory: eager {relations(want_pool)}\n        dycl  {relations(got_pool)}"
    for w, g in zip(want_arrays, got_arrays):
        assert w.dtype == g.dtype and w.strides == g.strides and w.tobytes() == g.tobytes(), \
            f"array: eager {w}, dycl {g}"
    shared = [[[t.numel() and t.data_ptr() == a.ctypes.data for t in p] for a in arrays]
              for p, arrays in ((want_pool, want_arrays), (got_pool, got_arrays))]
    assert shared[0] == shared[1], f"arrays on tensors: eager {shared[0]}, dycl {shared[1]}"


def attempt(x):
    try:
        x.fill_(1)
    except RuntimeError as error:  # a tensor of inference mode, or a view of one
        return str(error)
    return None


def run_program(shapes, dtypes, steps, inference, gaps, replaces=False):
    """Runs it eager and accelerated; AssertionError where they differ. replaces: as an optimizer's step."""
    program = program_of(steps)
    accelerated = _core.site(program, None, 0, True) if replaces else dycl.accelerate(program)
    states = [], []
    for call in range(CALLS):
        sides = []
        for run, state in zip((program, accelerated), states):
            generator = torch.Generator().manual_seed(call)
            arguments = [torch.randint(-3, 5, (*shape, 2) if gaps else shape, generator=generator).to(dtype)
                         for shape, dtype in zip(shapes, dtypes)]
            if gaps:
                arguments = [a[..., 0] for a in arguments]
            with torch.inference_mode(inference), torch.no_grad():
                sides.append(run(arguments, state))
        try:
            compare(*sides)
        except AssertionError as error:
            raise AssertionError(f"call {call}: {error}") from None
        with torch.no_grad():  # the program outside writes to what was kept
            if call == 0 and states[0] and writable(states[0][0]):
                done = [attempt(state[0]) for state in states]
                assert done[0] == done[1], f"a write outside: {done}"
    return dycl.stats(accelerated)


def fails(plan, replaces):
    try:
        run_program(*plan, replaces)
    except AssertionError as error:
        return error
    return None


def shorter(plan, replaces):
    """The same failure with as few steps as possible."""
    shapes, dtypes, steps, inference, gaps = plan
    at = 0
    while at < len(steps):
        fewer = steps[:at] + steps[at + 1 :]
        if fails((shapes, dtypes, fewer, inference, gaps), replaces):
            steps = fewer
        else:
            at += 1
    return shapes, dtypes, steps, inference, gaps


def seeds():
    return [range(int(SEED), int(SEED) + 1)] if SEED else [range(i, i + EACH) for i in range(0, PROGRAMS, EACH)]


@pytest.mark.parametrize("replaces", [False, True], ids=["program", "step"])
@pytest.mark.parametrize("chosen", seeds(), ids=lambda chosen: f"{chosen.start}")
def test_programs(chosen, replaces):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorded = 0
        for seed in chosen:
            plan = plan_of(seed)
            try:
                recorded += run_program(*plan, replaces)["recorded"]
            except AssertionError:
                plan = shorter(plan, replaces)
                raise AssertionError(f"DYCL_TEST_SEED={seed}: {plan}\n{fails(plan, replaces)}") from None
        assert recorded > 0 or SEED
