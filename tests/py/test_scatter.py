"""Elements added where indices say, by a kernel of our own (exec/move/add.c): eager's sums, in eager's order."""

import random

import pytest
import torch
import torch.nn.functional as F

import dycl

DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def drawn(rnd, shape, dtype):
    """Not contiguous, expanded, or with gaps, as it falls."""
    if not dtype.is_floating_point:
        return torch.randint(-3 if dtype != torch.uint8 else 0, 100, shape).to(dtype)
    how = rnd.randrange(5)
    if how == 0 and shape:
        return torch.randn([2 * n for n in shape], dtype=dtype)[tuple(slice(None, None, 2) for _ in shape)]
    if how == 1 and shape:
        dim = rnd.randrange(len(shape))
        return torch.randn([1 if i == dim else n for i, n in enumerate(shape)], dtype=dtype).expand(shape)
    if how == 2:
        return torch.randn(shape[::-1], dtype=dtype).permute(list(range(len(shape)))[::-1])
    return torch.randn(shape, dtype=dtype)


def positions(rnd, shape, size, lowest=0):
    index = torch.randint(lowest, size, shape)
    if rnd.randrange(3) == 0 and shape:  # of rows
        dim = rnd.randrange(len(shape))
        index = index[tuple(slice(None) if i == dim else slice(0, 1) for i in range(len(shape)))].expand(shape)
    elif rnd.randrange(3) == 0 and len(shape) > 1:
        index = torch.randint(lowest, size, shape[::-1]).permute(*range(len(shape))[::-1])
    return index


def base(rnd, shape, dtype):
    how = rnd.randrange(4)
    if how == 0:
        return lambda x: torch.zeros(shape, dtype=dtype)
    if how == 1:
        return lambda x: torch.full(shape, 3, dtype=dtype)
    if how == 2:
        return lambda x: x + 1
    return lambda x: x


def scatter_add(rnd, dtype):
    rank = rnd.randrange(1, 5)
    shape = [rnd.choice((1, 2, 3, 7, 20)) for _ in range(rank)]
    dim = rnd.randrange(rank)
    source = [rnd.choice((1, 5, 40)) if i == dim else n for i, n in enumerate(shape)]
    index = [rnd.randrange(1, n + 1) if rnd.randrange(3) == 0 else n for n in source]
    begin, i, d = base(rnd, shape, dtype), positions(rnd, index, shape[dim]), dim - rnd.choice((0, rank))
    return lambda x, y: begin(x).scatter_add(d, i, y), drawn(rnd, shape, dtype), drawn(
        rnd, source, dtype)


def index_add(rnd, dtype):
    rank = rnd.randrange(1, 5)
    shape = [rnd.choice((1, 2, 3, 7, 20)) for _ in range(rank)]
    dim = rnd.randrange(rank)
    source = [rnd.choice((1, 5, 40)) if i == dim else n for i, n in enumerate(shape)]
    begin, i = base(rnd, shape, dtype), torch.randint(0, shape[dim], (2 * source[dim],))[::2]
    return lambda x, y: begin(x).index_add(dim, i, y), drawn(rnd, shape, dtype), drawn(rnd, source, dtype)


def key(rnd, shape, named):
    """Indices of some dimensions, that broadcast to each other."""
    common, indices = [rnd.choice((1, 3, 6)) for _ in range(rnd.randrange(0, 3))], []
    for dim, size in enumerate(shape):
        own = [1 if rnd.randrange(4) == 0 else n for n in common][rnd.randrange(len(common) + 1):]
        indices.append(positions(rnd, own, size, -size) if dim in named else slice(None))
    return tuple(indices)


def index_put(rnd, dtype):
    shape = [rnd.choice((1, 2, 3, 7, 20)) for _ in range(rnd.randrange(1, 5))]
    named = rnd.randrange(1, len(shape) + 1)
    indices = key(rnd, shape, range(named))
    picked = list(torch.empty(shape)[indices].shape)
    value = [1 if rnd.randrange(5) == 0 else n for n in picked][rnd.choice((0, 0, len(picked) // 2)):]
    begin = base(rnd, shape, dtype)
    return lambda x, y: begin(x).index_put(indices[:named], y, accumulate=True), drawn(rnd, shape, dtype), drawn(
        rnd, value, dtype)


def compare(f, *operands, exact=True):
    run = dycl.accelerate(f)
    want = f(*operands)
    for _ in range(4):
        got = run(*operands)
        assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
        if exact:
            assert torch.equal(got, want), (got, want)
        else:
            torch.testing.assert_close(got, want)
    return dycl.stats(run)


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("make", (scatter_add, index_add, index_put))
def test_sums_are_those_of_eager(make, threads):
    """Bit for bit with one thread: the same elements in the same order. Of several, torch adds in no fixed one."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in range(120):
            rnd = random.Random(f"{make.__name__} {seed}")
            torch.manual_seed(seed)
            f, x, y = make(rnd, rnd.choice(DTYPES))
            # in which order torch walks dimensions of index_put depends on strides
            compare(f, x, y, exact=make is scatter_add and threads == 1 or not x.is_floating_point())
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", (1, 2))
def test_gradients_of_drawn_keys(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in range(100):
            rnd = random.Random(seed)
            torch.manual_seed(seed)
            shape = [rnd.choice((1, 2, 3, 7, 20)) for _ in range(rnd.randrange(1, 5))]
            at = key(rnd, shape, rnd.sample(range(len(shape)), rnd.randrange(1, len(shape) + 1)))
            x = drawn(rnd, shape, torch.float64)
            g = drawn(rnd, x[at].shape, torch.float64)
            run = dycl.accelerate(lambda x: x[at])
            for _ in range(4):
                want, got = (torch.autograd.grad(f(leaf), leaf, g)[0] for f in (lambda x: x[at], run)
                             for leaf in (x.clone().requires_grad_(),))
                assert got.stride() == want.stride()
                torch.testing.assert_close(got, want)
    finally:
        torch.set_num_threads(before)


J, K, L = torch.tensor([3, 0, 3, 3, 1]), torch.tensor([[0, 2, -1], [2, 2, -3]]), torch.tensor([-1])
READS = {
    "gather": lambda x: x.gather(1, K % 3), "gather of columns": lambda x: x.gather(0, J[:, None].expand(5, 6)),
    "gather of fewer": lambda x: x.gather(0, K % 2), "index_select": lambda x: x.index_select(0, J),
    "index_select of columns": lambda x: x.index_select(1, J), "x[J]": lambda x: x[J], "x[:, J]": lambda x: x[:, J],
    "x[J, J2]": lambda x: x[J, J - 1], "x[K]": lambda x: x[K], "x[K, L]": lambda x: x[K, L],
    "x[:, None][J, :, J]": lambda x: x[:, None][J, :, J], "take": lambda x: x.take(K),
    "embedding": lambda x: F.embedding(J, x), "embedding of a matrix": lambda x: F.embedding(K % 4, x),
    "embedding, padded": lambda x: F.embedding(J, x, padding_idx=3),
    "embedding, padded from the end": lambda x: F.embedding(J, x, padding_idx=-1),
    "embedding, by counts": lambda x: F.embedding(J, x, scale_grad_by_freq=True),
    "windows": lambda x: x.unfold(1, 3, 1), "nothing": lambda x: x[J[:0]]}


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("name", READS)
def test_gradients_of_what_is_read(name, dtype):
    read = READS[name]
    for x in (torch.randn(4, 6, dtype=dtype), torch.randn(6, 4, dtype=dtype).t()):
        g = torch.randn(200, dtype=dtype)
        run = dycl.accelerate(read)
        for _ in range(4):
            grads = []
            for f in (read, run):
                leaf = x.clone().requires_grad_()
                y = f(leaf)
                y.backward(g[:y.numel()].view(y.shape))
                grads.append(leaf.grad)
            assert grads[0].stride() == grads[1].stride()
            torch.testing.assert_close(grads[1], grads[0], rtol=1e-6, atol=1e-6)
            second = []
            for f in (read, run):
                leaf = x.clone().requires_grad_()
                y = f(leaf)
                back = g[:y.numel()].view(y.shape).clone().requires_grad_()
                first, = torch.autograd.grad(y, leaf, back, create_graph=True)
                second.append(torch.autograd.grad(first.square().sum(), back)[0])
            torch.testing.assert_close(second[1], second[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape, count", (((300, 64), 900), ((40, 1000), 300), ((5000, 16), 4000), ((1, 4000), 70)))
@pytest.mark.parametrize("threads", (1, 2))
def test_large_tables(shape, count, threads):
    """Rows and columns shared by threads; zeros of both signs, infinities, NaN; a row that nothing is added to."""
    index = torch.randint(0, max(shape[0] - 1, 1), (count,))
    y = torch.randn(count, shape[1])
    y[0, :4] = torch.tensor([-0.0, 0.0, torch.inf, torch.nan])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for f in (lambda y: torch.zeros(shape).index_add(0, index, y),
                  lambda y: torch.ones(shape).index_add(0, index, y),
                  lambda y: torch.zeros(shape[::-1]).scatter_add(1, index.expand(shape[1], count), y.t()),
                  lambda y: torch.zeros(shape).scatter_add(0, (y > 0).long(), y) if shape[0] > 1 else y * 1):
            run = dycl.accelerate(f)
            for _ in range(4):
                got, want = run(y), f(y)
                torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-5, atol=1e-5)
                assert torch.equal(got.signbit() & (got == 0), want.signbit() & (want == 0))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bad", (-1, 4, 2**40))
@pytest.mark.parametrize("name, f", (
    ("scatter_add", lambda x, i: torch.zeros(4, 4).scatter_add(0, i[:, None].expand(3, 4), x)),
    ("index_add", lambda x, i: torch.zeros(4, 4).index_add(0, i, x)),
    ("index_put", lambda x, i: torch.zeros(4, 4).index_put((i,), x, accumulate=True)),
    ("embedding", lambda x, i: F.embedding(i, x)), ("gather", lambda x, i: x.gather(0, i[:, None])),
    ("index_select", lambda x, i: x.index_select(0, i))))
def test_errors_are_those_of_eager(name, f, bad):
    good = torch.tensor([0, 1, 2])
    run = dycl.accelerate(f)
    x = torch.randn(4 if name in ("embedding", "gather", "index_select") else 3, 4, requires_grad=True)
    for _ in range(3):
        run(x, good)
    i = torch.tensor([0, bad, 1])
    try:
        want = f(x, i)
    except Exception as error:  # of any kind: it has to be the same
        with pytest.raises(type(error)) as caught:
            run(x, i)
        assert str(caught.value) == str(error)
    else:
        assert torch.equal(run(x, i), want)


def test_what_is_added_to_is_left_alone():
    x, i, y = torch.randn(5, 6), torch.tensor([1, 1, 4]), torch.randn(3, 6)
    def f(x, y):
        z = x * 2
        added = z.index_add(0, i, y)
        return z, added, z.scatter_add(0, i[:, None].expand(3, 6), y) + z
    run, kept = dycl.accelerate(f), x.clone()
    for _ in range(4):
        for got, want in zip(run(x, y), f(x, y), strict=True):
            torch.testing.assert_close(got, want)
    assert torch.equal(x, kept)


def test_the_kernel_is_our_own():
    """Nothing of it is a step of torch's, and zeros are none at all."""
    x, i = torch.randn(5, 6, requires_grad=True), torch.tensor([1, 1, 4])
    def f(x):
        return torch.zeros(5, 6).scatter_add(0, i[:, None].expand(3, 6), x[i] * 2)
    run = dycl.accelerate(f)
    for _ in range(6):
        run(x).sum().backward()
    text = str(dycl.explain(run))
    assert "add at" in text and "torch step" not in text
