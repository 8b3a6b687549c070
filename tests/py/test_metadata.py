"""What a result tells about itself besides its values: its version, whether it is a view, the strides of what is empty
or has sizes of 1, the sign of zeros; and errors that depend on dtypes. Each program runs in eager torch and
accelerated."""

import operator
import random

import pytest
import torch
import torch.nn.functional as F
from same import same

import dycl


def facts(result):
    tensors = [t for t in result if isinstance(t, torch.Tensor)]
    return [(t._version, t._is_view(), t.stride(), t.shape, torch.signbit(t).tolist()) for t in tensors]


def check(program, *arguments):
    accelerated = dycl.accelerate(program)
    with torch.no_grad():
        for _ in range(3):
            eager, ours = program(*[a.clone() for a in arguments]), accelerated(*[a.clone() for a in arguments])
            assert facts(ours) == facts(eager)
    assert dycl.stats(accelerated)["recorded"] > 0


def view_outlives_written_base(x):
    base = x + 1
    base.mul_(2)
    base.relu_()
    view = base.view(-1)
    del base
    return (view,)


def write_through_view_after_writes(x):
    base = x + 1
    base.mul_(2)
    view = base[0]
    view.copy_(x[1])  # left to torch
    return base, view


def written_again_after_a_fetch(x):
    y = x + 1
    y.mul_(2)
    y.sum().item()
    y.mul_(2)
    return (y,)


def products_of_vectors(x):
    weight = x.t()
    return (
        x[0] @ weight,
        F.linear(x[0], x),
        F.linear(weight[:, 0], x, x[:, 0]),
        F.linear(torch.stack([x, x]).transpose(0, 1), x, x[:, 0]),
        F.linear(x, x, x[:, 0]),
        F.max_pool1d(x, 2),
        F.max_pool1d(x[None], 2),
    )


def copies_are_no_views(x):
    return (x.repeat(2, 2), x.t().reshape(-1), x.t().flatten(), x.reshape(-1), x.tile(3), F.max_pool1d(x, 2),
            torch.ravel(x.t()), x.ravel(), x.detach(), (x + 1).detach())


def repeated_is_detached_in_place(x):
    return (x.repeat(2, 2).detach_(),)


def strides_of_masked_fill(x):
    y = x.t()
    return y.masked_fill(y > 0, 1), x[:1].t().masked_fill(x[:1].t() > 0, 1), x.masked_fill(y[:1].t() > 0, 2.0)


def strides_of_stack(x):
    y = x.t()[None, :1]
    z = x[:, :1].reshape(2, 2, 1).mT  # unsqueezed, its strides look like channels_last
    same_rank = torch.stack([x.view(1, 2, 4, 2).permute(0, 3, 1, 2)] * 2, 1)
    return (torch.stack([y, y], 2), torch.stack([x.t(), x.t()], 1), torch.stack([z, z], -1), torch.stack([z, z], 0),
            torch.stack([z, z], 1), same_rank)


def zeros_keep_their_sign(x):
    zero = x * 0
    y = torch.cat([zero, -zero])
    return (y.clamp(min=0), y.clamp(max=0), y.clamp(0, 0), y.clamp(-0.0, 1), F.hardtanh(y, 0, 1), y.relu(),
            y.double().clamp(min=0), y.double().clamp(0, 1))


PROGRAMS = [
    view_outlives_written_base,
    write_through_view_after_writes,
    written_again_after_a_fetch,
    products_of_vectors,
    copies_are_no_views,
    repeated_is_detached_in_place,
    strides_of_masked_fill,
    strides_of_stack,
    zeros_keep_their_sign,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program):
    check(program, torch.randn(4, 4))


@pytest.mark.parametrize("sizes", [(0, 2), (2, 0), (2, 0, 3), (1, 0, 1), (3, 2, 0, 1)])
def test_strides_of_the_empty(sizes):
    def program(x, y):
        z = x.unsqueeze(0)
        return (x + 0, z + 0, z * 2, z + z, x.clone(), y.clone(), y + 1, y + x, y.float(), y.relu(), -z, z + y,
                x.mT.unsqueeze(0) - 1)

    order = list(reversed(range(len(sizes))))
    check(program, torch.randn(sizes), torch.randn([sizes[i] for i in order]).permute(order))


def test_an_alias_keeps_its_own_shape():
    """`resize_` and `t_` change one tensor object and not those that share its memory."""

    def program(x):
        a = x + 1
        b = a.detach()
        b.mul_(2)
        b.resize_(2, 2)
        c = a.detach()
        c.t_()
        return a, b, c

    check(program, torch.randn(4, 4))


def test_subtraction_of_bool():
    def program(x, mask):
        log = []
        for f in (
            lambda: x - mask,
            lambda: mask - x,
            lambda: (x + 1) - (x > 0),
            lambda: (x + 1).sub_(x > 0),
            lambda: x - True,
            lambda: True - (x + 1),
            lambda: torch.sub(x, mask, alpha=2),
            lambda: torch.rsub(mask, x),
            lambda: (x > 0) - 1,
        ):
            try:
                log.append(f())
            except RuntimeError as error:
                log.append(str(error))
        return x + 1, log

    same(program, lambda: (torch.randn(3), torch.tensor([True, False, True])))


def test_data_of_an_inference_tensor():
    """Such a tensor has no version counter, and torch refuses views of it where they are made."""

    def program(x):
        with torch.inference_mode():
            y = torch.ones(2, 2)
            x.data = y + 1
        try:
            return x.view(-1) + 1
        except RuntimeError as error:
            return str(error)

    same(program, lambda: (torch.zeros(2, 2),), recorded=None)


COMPARISONS = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
INSTRUCTIONS = [
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]
METHODS = [lambda a, b, name=f"__{f.__name__}__": getattr(a, name)(b) for f in COMPARISONS]
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
LOGIC = [operator.and_, operator.or_, operator.xor]


def laid_out(sizes, rng):
    """A tensor of these sizes whose strides come in any order, with gaps."""
    order = rng.sample(range(len(sizes)), len(sizes))
    gap = rng.choice([1, 1, 2])
    x = torch.randint(1, 4, [sizes[i] * (gap if i == order[-1] else 1) for i in order]).float()
    return x[..., ::gap].permute([order.index(i) for i in range(len(sizes))])


@pytest.mark.parametrize("functions", [COMPARISONS, INSTRUCTIONS, METHODS, ARITHMETIC, LOGIC],
                         ids=["function", "instruction", "method", "arithmetic", "logic"])
def test_the_first_operand_orders_the_strides(functions):
    """Python asks the lazy tensor first, wherever it stands in a comparison; torch takes the strides' order from the
    operand that stands first."""

    def program(x, y, parameter):
        made = []
        for plain, lazy in ((x, y * 1), (y, x * 1)):
            if functions is LOGIC:
                plain, lazy = plain > 1, lazy > 1
            for f in functions:
                made += [f(plain, lazy), f(lazy, plain), f(lazy, lazy.detach()), f(plain[:1], lazy),
                         f(lazy[..., :1], plain), f(plain, lazy[0])]
                if functions is not LOGIC:
                    made += [f(lazy, parameter), f(parameter, lazy)]
        return made

    rng = random.Random(f"{functions[0]}")
    differ = 0
    for _ in range(25):
        sizes = [rng.randint(1, 4) for _ in range(rng.randint(2, 4))]
        x, y, parameter = (laid_out(sizes, rng) for _ in range(3))
        arguments = x, y, torch.nn.Parameter(parameter, requires_grad=False)
        accelerated = dycl.accelerate(program)
        with torch.no_grad():
            differ += sum((x > y).stride() != (y < x).stride() for x, y in ((x, y), (y, x)))
            for _ in range(2):
                eager, ours = program(*arguments), accelerated(*arguments)
                assert facts(ours) == facts(eager)
                assert all(torch.equal(a, b) for a, b in zip(ours, eager))
        assert dycl.stats(accelerated)["recorded"] > 0
    assert differ > 0


def test_an_error_names_the_operands_in_order():
    def program(x, y):
        log = []
        for f in INSTRUCTIONS + COMPARISONS:
            for a, b in ((x, y + 1), (y + 1, x), (torch.nn.Parameter(x), y + 1), (y + 1, torch.nn.Parameter(x))):
                try:
                    f(a, b)
                except RuntimeError as error:
                    log.append(str(error))
        return y * 2, log

    same(program, lambda: (torch.zeros(3), torch.ones(4)))


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 3, 1, 1), (2, 1, 4, 5)])
def test_channels_last_goes_on_behind_a_normalisation(sizes):
    norm, pixels = torch.nn.BatchNorm2d(sizes[1]).eval(), torch.nn.MaxPool2d(1)

    def program(x, y):
        z = norm(x)
        return z + y, y * z, z * 2, pixels(x) - x, norm(x + y).relu()

    x = torch.randn(sizes).contiguous(memory_format=torch.channels_last)
    check(program, x, torch.randn(sizes).contiguous(memory_format=torch.channels_last))
    check(program, x, torch.randn(sizes))


@pytest.mark.parametrize("seed", range(40))
def test_products_with_an_operand_that_requires_a_gradient(seed):
    """torch multiplies from the other side then, gradients enabled or not, and some results lie transposed."""
    rng = random.Random(seed)
    for _ in range(10):
        rows, inner, columns = rng.choice([0, 1, 1, 3]), rng.choice([0, 1, 4]), rng.choice([0, 1, 1, 3])
        batches = [[rng.choice([1, 2]) for _ in range(rng.choice([0, 0, 1, 1, 2]))] for _ in range(2)]
        a, b = torch.randn(*batches[0], rows, inner), torch.randn(*batches[1], inner, columns)
        a = a.mT.clone().mT if rng.random() < 0.3 else a
        b = b.mT.clone().mT if rng.random() < 0.3 else b
        a, b = (torch.nn.Parameter(t) if rng.random() < 0.5 else t for t in (a, b))
        program = rng.choice([lambda a, b: a @ b, torch.matmul, lambda a, b: a.abs() @ b, lambda a, b: a @ b.abs()])
        with torch.no_grad():
            want, got = program(a, b), dycl.accelerate(lambda a, b: program(a, b))(a, b)
        described = [(tuple(t.shape), t.stride(), t.requires_grad) for t in (a, b)]
        assert got.stride() == want.stride(), described
        torch.testing.assert_close(got, want)
