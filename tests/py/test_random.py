"""Random operators: the numbers, the generator's state after each of them and everything else as in eager, and the
segment goes on."""

import random

import pytest
import torch
import torch.nn.functional as F
from same import same
from torch import nn

import dycl


def numbers():
    return (torch.rand(3, 4, 5, 6),)


# One draw each, of a lazy tensor x; what the segment needs not end for.
FACTORIES = {
    "rand": lambda x: torch.rand(3, 4),
    "rand spread": lambda x: torch.rand(2, 3, dtype=torch.float64),
    "rand of a size": lambda x: torch.rand(x.shape),
    "randn": lambda x: torch.randn((17, 3)),
    "randn names": lambda x: torch.randn(size=(5,), device="cpu"),
    "randint": lambda x: torch.randint(3, 9, (4, 4)),
    "randint high": lambda x: torch.randint(7, (3,), dtype=torch.int32),
    "randperm": lambda x: torch.randperm(11),
    "normal of numbers": lambda x: torch.normal(1.0, 2.0, (3, 5)),
    "linspace": lambda x: torch.linspace(-1, 1, 7),
    "linspace integers": lambda x: torch.linspace(0, 9, steps=4, dtype=torch.int64),
    "logspace": lambda x: torch.logspace(0, 2, 5, base=3.0),
    "arange of fractions": lambda x: torch.arange(0.1, 2, 0.3),
    "list": lambda x: torch.tensor([[1.5, 2], [3, 4]]),
    "list of integers": lambda x: torch.tensor([1, 2, 3]),
    "list, as_tensor": lambda x: torch.as_tensor([1.0, 2.0]),
    "hann": lambda x: torch.hann_window(9),
    "kaiser": lambda x: torch.kaiser_window(8, beta=5.0),
    "indices": lambda x: torch.tril_indices(4, 5, -1),
    "rand_like": lambda x: torch.rand_like(x),
    "rand_like, another dtype": lambda x: torch.rand_like(x, dtype=torch.float64),
    "rand_like, strided": lambda x: torch.rand_like(x.transpose(0, 2)),
    "rand_like, expanded": lambda x: torch.rand_like(x[:, :1].expand(3, 4, 5, 6)),
    "rand_like, channels last": lambda x: torch.rand_like(x.contiguous(memory_format=torch.channels_last)),
    "rand_like, with a format": lambda x: torch.rand_like(x.permute(0, 2, 3, 1), memory_format=torch.contiguous_format),
    "randn_like": lambda x: torch.randn_like(input=x[0]),
    "randint_like": lambda x: torch.randint_like(x, 3, 8),
    "randint_like high": lambda x: torch.randint_like(x, high=5),
    "generator": lambda x: torch.rand(3, generator=torch.Generator().manual_seed(3)),
    "own generator twice": lambda x: (lambda g: [torch.randn(2, generator=g), torch.randn(3, generator=g),
                                                 torch.rand_like(x, generator=g)])(torch.Generator().manual_seed(5)),
}

IN_PLACE = {
    "uniform": lambda t: t.uniform_(-1, 2),
    "normal": lambda t: t.normal_(1, 3),
    "normal, keywords": lambda t: t.normal_(mean=1, std=0.5, generator=torch.Generator().manual_seed(2)),
    "bernoulli": lambda t: t.bernoulli_(0.3),
    "bernoulli, default": lambda t: t.bernoulli_(),
    "exponential": lambda t: t.exponential_(),
    "cauchy": lambda t: t.cauchy_(0.5, 2),
    "log_normal": lambda t: t.log_normal_(),
    "geometric": lambda t: t.geometric_(0.4),
    "random": lambda t: t.random_(),
    "random to": lambda t: t.random_(10),
    "random from to": lambda t: t.random_(3, 10),
}

TARGETS = {
    "empty": lambda x: torch.empty(3, 7),
    "empty_like": lambda x: torch.empty_like(x),
    "new_empty": lambda x: x.new_empty((2, 1, 9)),
    "computed before": lambda x: x + 1,
    "strided": lambda x: torch.empty_like(x.permute(2, 0, 3, 1)),
    "channels last": lambda x: (x * 2).contiguous(memory_format=torch.channels_last),
    "drawn": lambda x: torch.rand(4, 4),
    "integers": lambda x: torch.zeros(20, dtype=torch.int64),
    "one element": lambda x: torch.empty(1),
    "none": lambda x: torch.empty(0, 3),
}

DROPOUTS = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout, all": lambda x: F.dropout(x, 1.0),
    "dropout, none": lambda x: F.dropout(x, 0.0),
    "dropout in place": lambda x: F.dropout(x.relu(), 0.4, True, True),
    "dropout, transposed": lambda x: F.dropout(x.transpose(1, 3), 0.3),
    "dropout, expanded": lambda x: F.dropout(x[..., :1].expand(3, 4, 5, 6), 0.3),
    "dropout, double": lambda x: F.dropout(x.double(), 0.3),
    "dropout, empty": lambda x: F.dropout(x[:0], 0.3),
    "torch.dropout": lambda x: torch.dropout(x, 0.7, train=True),
    "dropout_": lambda x: torch.dropout_(x + 1, 0.7, True),
    "dropout_ of ones": lambda x: torch.dropout_(x[:1, :1, :1].clone() + 1, 0.5, True),
    "dropout1d": lambda x: F.dropout1d(x[0], 0.5),
    "dropout2d": lambda x: F.dropout2d(x, 0.5),
    "dropout2d in place": lambda x: F.dropout2d(x * 2, 0.5, inplace=True),
    "dropout2d, channels last": lambda x: F.dropout2d(x.contiguous(memory_format=torch.channels_last), 0.5),
    "dropout3d": lambda x: F.dropout3d(x.unsqueeze(2), 0.5),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, True),
    "alpha_dropout in place": lambda x: F.alpha_dropout(x * 1.5, 0.3, True, True),
    "alpha_dropout, all": lambda x: F.alpha_dropout(x, 1.0, True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.3, True),
    "feature_alpha_dropout in place": lambda x: F.feature_alpha_dropout(x + 0, 0.3, True, True),
    "infinite": lambda x: F.dropout(x / 0, 1.0),
    # dimensions of size 1 with any stride: noise is scaled in place, so that it goes on lying as it was drawn
    "one dimension of size 1": lambda x: F.dropout(x[:1], 0.3),
    "dropout, odd strides": lambda x: F.dropout(x[:1, :, :2, :1].permute(3, 1, 0, 2), 0.3),
    "alpha_dropout, odd strides": lambda x: F.alpha_dropout(x[:1, :, :, :1].transpose(1, 2), 0.3, True),
    "alpha_dropout, one": lambda x: F.alpha_dropout(x[:1, :1], 0.3, True),
    "feature_alpha_dropout, odd strides": lambda x: F.feature_alpha_dropout(x[:, :, :1].transpose(0, 1), 0.3, True),
}

MODULES = {
    "Dropout": lambda: nn.Dropout(0.3),
    "Dropout1d": lambda: nn.Sequential(nn.Flatten(2), nn.Dropout1d(0.3)),
    "Dropout2d": lambda: nn.Dropout2d(0.3),
    "Dropout3d": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Dropout3d(0.3)),
    "AlphaDropout": lambda: nn.AlphaDropout(0.3),
    "FeatureAlphaDropout": lambda: nn.FeatureAlphaDropout(0.3),
    "in place": lambda: nn.Sequential(nn.Hardtanh(), nn.Dropout(0.2, inplace=True), nn.ReLU()),
}

# The probabilities are values: these are computed first.
OF_VALUES = {
    "multinomial": lambda x: torch.multinomial(x.reshape(-1, 6).softmax(-1), 3),
    "multinomial, method": lambda x: x.reshape(-1, 6).softmax(-1).multinomial(2, replacement=True),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli, method": lambda x: x.sigmoid().bernoulli(generator=torch.Generator().manual_seed(1)),
    "bernoulli, plain": lambda x: torch.bernoulli(torch.full((4,), 0.5)),
    "normal": lambda x: torch.normal(x, x.abs() + 0.1),
    "normal, mean": lambda x: torch.normal(x, 2.0),
    "poisson": lambda x: torch.poisson(x.abs()),
    "linspace of tensors": lambda x: torch.linspace(x.amin(), x.amax(), 5),
}


def around(draw):
    """The draw amidst recorded operators, which read its results and go on."""

    def program(x):
        before = (x * 2).sin() + 1
        drawn = draw(x * 1.0)
        states.append(torch.get_rng_state().tolist())
        tensors = drawn if isinstance(drawn, list) else [drawn]
        after = [t * 2 + 1 for t in tensors]
        return before, drawn, after, before + 1, torch.rand(2)

    states = []
    return program, states


def check(draw, segments=1):
    program, states = around(draw)
    stats = same(program, numbers)
    assert states[: len(states) // 2] == states[len(states) // 2 :], "other generator states on the way"
    if segments is not None:
        assert stats["segments"] <= segments * stats["calls"] and stats["torch"] == 0, stats


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name):
    check(FACTORIES[name])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name, target):
    def draw(x):
        t = TARGETS[target](x)
        kept = t + 1 if target == "computed before" else t
        result = IN_PLACE[name](t)
        assert result is t
        return [t, kept]

    try:
        with torch.no_grad():
            draw(torch.rand(3, 4, 5, 6))
    except RuntimeError:  # not for integers
        same(draw, numbers, recorded=None)
    else:
        check(draw)


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout(name):
    check(DROPOUTS[name])


@pytest.mark.parametrize("name", MODULES)
def test_modules_in_training(name):
    module = MODULES[name]()
    check(lambda x: module(x))


@pytest.mark.parametrize("name", OF_VALUES)
def test_of_values(name):
    """The segment ends where the probabilities are computed, and nothing is left to torch."""
    check(OF_VALUES[name], 2)


WRONG = {
    "probability": lambda x: F.dropout(x, 1.5),
    "probability of torch": lambda x: torch.dropout(x, -1.0, True),
    "integers": lambda x: F.dropout(x.long(), 0.5),
    "no features": lambda x: torch.feature_dropout(x.reshape(-1), 0.5, True),
    "sizes": lambda x: torch.rand(-1),
    "bernoulli": lambda x: torch.bernoulli(x + 2),
    "bernoulli_": lambda x: x.bernoulli_(1.5),
    "multinomial": lambda x: torch.multinomial(x.reshape(-1) * 0, 2),
    "randint": lambda x: torch.randint(5, 5, (2,)),
    "standard deviation": lambda x: torch.normal(x, -x.abs()),
    "a view": lambda x: x.expand(2, 3, 4, 5, 6).uniform_(),
    "too few": lambda x: torch.dropout(x),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    check(WRONG[name], None) if name == "a view" else same(lambda x: (x * 2, WRONG[name](x * 1.0)), numbers,
                                                           recorded=None)


# ---- Seeds and states inside the region


def seeds(x):
    y = x + 1
    torch.manual_seed(7)
    a = torch.rand(3)
    state = torch.get_rng_state()
    b = torch.randn_like(y)
    torch.set_rng_state(state)
    c = torch.randn_like(y)
    with torch.random.fork_rng():
        torch.manual_seed(9)
        d = F.dropout(y, 0.5)
    e = torch.rand(2)
    g = torch.Generator()
    g.manual_seed(11)
    f = torch.randperm(6, generator=g)
    return a, b, c, d, e, f, (b == c).all(), torch.initial_seed(), g.get_state()


def shared_memory(x):
    """Draws into memory that others see are torch's."""
    y = x + 1
    view = y[1:]
    before = view * 2
    y.normal_()
    x.uniform_()  # an argument
    z = torch.empty(6)
    z[2:5].exponential_()
    z[:2] = 0
    z[5:] = 0
    return y, view, before, x + 0, z


def versions(x):
    y = x + 1
    counts = [y._version]
    for draw in (lambda: y.uniform_(), lambda: y.mul_(2), lambda: y.normal_(), lambda: torch.dropout_(y, 0.5, True),
                 lambda: torch.alpha_dropout_(y, 0.5, True)):
        draw()
        counts.append(y._version)
    return y, counts, torch.rand(2)._version, torch.alpha_dropout(y, 0.5, True)._version


def drop_path(x):
    """Stochastic depth, as timm and torchvision write it."""
    for keep in (0.9, 0.5):
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        mask.div_(keep)
        x = x.sin() * mask
        noise = keep + torch.rand((x.shape[0], 1, 1, 1), dtype=x.dtype, device=x.device)
        x = x.div(keep) * noise.floor_()
    return x


def samples(x):
    """torch.distributions and F.gumbel_softmax."""
    d = torch.distributions
    return [
        F.gumbel_softmax(x, tau=0.5, hard=True),
        d.Normal(x, x.exp(), validate_args=False).sample(),
        d.Normal(x, 1.0).rsample((2,)),
        d.Categorical(logits=x[0, 0]).sample((3,)),
        d.Bernoulli(logits=x).sample(),
        d.Uniform(x - 1, x + 1).sample(),
        d.Gamma(x + 1, 1.0).sample(),
        d.Laplace(x, 1.0).sample(),
    ]


def decoding(x):
    """One token after the other, each drawn from what the last one gave."""
    state, tokens = x.reshape(-1, 6), []
    for _ in range(4):
        p = (state * 3).softmax(-1)
        token = torch.multinomial(p, 1)
        tokens.append(token)
        state = state.roll(1, -1) + F.one_hot(token.squeeze(1), 6)
    return torch.cat(tokens, 1)


def indices(x):
    """Positions that were drawn are used as such: their range is known."""
    order = torch.randperm(x.shape[1])
    picks = torch.randint(0, 5, (7,))
    return (x[:, order], x.index_select(2, picks), x.gather(3, torch.randint_like(x, 6, dtype=torch.int64)),
            order.argsort())


@pytest.mark.parametrize("function", [seeds, shared_memory, versions, drop_path, samples, decoding, indices],
                         ids=lambda f: f.__name__)
def test_programs(function):
    same(function, numbers)


def test_a_training_network_is_one_segment():
    """Transformer layers in training mode without gradients: nine draws, one segment."""
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.GELU(), nn.Dropout(0.2),
                                          nn.LayerNorm(8)) for _ in range(4)])
    stats = same(lambda x: model(x), lambda: (torch.rand(4, 8),), like="matmul")
    assert stats["segments"] == stats["calls"] and stats["torch"] == 0, stats


def test_threads_of_torch_draw_the_same():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        same(lambda x: (F.dropout(x, 0.5), torch.randn(100000), torch.rand_like(x)), lambda: (torch.rand(300, 400),))
    finally:
        torch.set_num_threads(threads)


def test_what_requires_gradients_is_torchs():
    def program(x):
        with torch.enable_grad():
            w = torch.rand(4, requires_grad=True)
            y = (w * torch.rand(4)).sum()
            y.backward()
        return w.detach(), w.grad, x + 1

    same(program, lambda: (torch.rand(4),), recorded=None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
def test_dtypes_that_are_not_represented(dtype):
    """They stay torch's, and no segment ends for drawing them."""
    stats = same(lambda x: (x * 2, torch.randn(5, dtype=dtype), torch.zeros(3, dtype=dtype), x + 1), numbers)
    assert stats["segments"] == stats["calls"] and stats["torch"] == 0, stats


# ---- Programs that nobody picked by hand


def generated(seed):
    """A program of draws, arithmetic, writes, fetches and seeds over a few tensors."""


    def program(x):
        rng, kept = random.Random(seed), [x * 1.0, x + 1]
        for _ in range(25):
            t = rng.choice(kept)
            step = rng.randrange(14)
            if step == 0:
                kept.append(torch.rand_like(t))
            elif step == 1:
                kept.append(F.dropout(t, rng.choice([0.1, 0.5, 1.0]), inplace=rng.random() < 0.3))
            elif step == 2:
                t.uniform_(-1, 1)
            elif step == 3:
                kept.append(torch.empty_like(t).normal_())
            elif step == 4:
                kept.append(t * torch.rand(t.shape[-1]) if t.ndim else t + 1)
            elif step == 5:
                kept.append(t.transpose(0, -1))
            elif step == 6:
                t.mul_(0.5)
            elif step == 7:
                kept.append(torch.bernoulli(t.detach().sigmoid()))
            elif step == 8:
                torch.manual_seed(rng.randrange(100))
            elif step == 9:
                kept.append(F.alpha_dropout(t, 0.2, True))
            elif step == 10:
                kept.append(t[..., 1:] if t.shape[-1] > 2 else t + 0.5)
            elif step == 11:
                kept.append(t + t.sum().item() * 1e-6)
            elif step == 12:
                kept.append(t.sin())
            else:
                kept.append(t[torch.randperm(t.shape[0])])
            if len(kept) > 8:
                del kept[0]
        return kept, torch.rand(1)

    return program


@pytest.mark.parametrize("seed", range(40))
def test_generated_programs(seed):
    same(generated(seed), lambda: (torch.rand(3, 4, 5),), recorded=None)


def test_dycl_draws_in_the_same_call_as_torch():
    """Region or torch: any call may be either, and the sequence of numbers goes on."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    x = torch.rand(2, 4)
    with torch.no_grad():
        torch.manual_seed(3)
        want = [model(x) for _ in range(6)]
        accelerated = dycl.accelerate(lambda x: model(x))
        torch.manual_seed(3)
        got = []
        for i in range(6):
            if i % 2:
                with dycl.disable():
                    got.append(accelerated(x))
            else:
                got.append(accelerated(x))
    for a, b in zip(want, got):
        torch.testing.assert_close(a, b)


def test_drawn_into_a_view_of_what_nobody_sees():
    def program(x):
        t = torch.repeat_interleave(x.neg(), 1)  # a view of its flat form
        u = torch.repeat_interleave(x.exp(), 1).add_(1)
        return [t.cauchy_(), u.normal_()]

    x, call = torch.rand(4, 3), dycl.accelerate(program)
    with torch.no_grad():
        for f in (program, call, call):
            assert [(t._is_view(), t._version) for t in f(x)] == [(True, 1), (True, 2)]
