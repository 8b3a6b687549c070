"""Views that the program holds while further results come from them: of parameters, of what was computed, of results
that are views here and none in torch or the reverse (products with vectors, stacks, convolutions without a batch).
Random programs in training; compared with eager are results, which of them have a history, gradients of leaves, what
hooks of what is held see, and gradients that are asked for there, also with a graph of their own."""

import random

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import one_thread  # noqa: F401
from test_gradients import agree



def _weights(y):
    return [y[0], y[1][:, :2], y[0, :, 0], y[1, :, 0]]


PRODUCERS = {
    "matrix-vector": (lambda x, y: torch.matmul(x, y[0, 0]), (2, 3, 4), (2, 3, 4)),
    "vector-matrix": (lambda x, y: torch.matmul(x[0, 0], y.mT), (2, 3, 4), (2, 3, 4)),
    "mv": (lambda x, y: torch.mv(x[0], y[0, 0]), (2, 3, 4), (2, 3, 4)),
    "stack": (lambda x, y: torch.stack((x, y), 1), (3, 4), (3, 4)),
    "stack last": (lambda x, y: torch.stack((x, y), -1), (3, 4), (3, 4)),
    "conv1d": (lambda x, y: F.conv1d(x[0], y), (1, 3, 6), (4, 3, 2)),
    "conv2d": (lambda x, y: F.conv2d(x[0], y), (1, 2, 5, 4), (3, 2, 2, 2)),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), (2, 3, 4), (2, 3, 4)),
    "linear": (lambda x, y: F.linear(x, y[0]), (2, 3, 4), (2, 3, 4)),
    "hstack": (lambda x, y: torch.hstack((x, y)), (3, 4), (3, 4)),
    "biased": (lambda x, y: F.linear(x, y[0], y[1, :, 0]), (2, 3, 4), (2, 3, 4)),
    "biased in rows": (lambda x, y: F.linear(x, y[0], y[1, 0]), (2, 3, 4), (2, 4, 4)),
    "product": (lambda x, y: x * y, (2, 3, 4), (2, 3, 4)),
    "leaf": (lambda x, y: x.transpose(0, 1), (2, 3, 4), (2, 3, 4)),
    "chunk": (lambda x, y: (x * y).chunk(2, -1)[1], (2, 3, 4), (2, 3, 4)),
    "instance norm": (lambda x, y: F.instance_norm(x * y), (2, 3, 4), (2, 3, 4)),
    "avg_pool1d": (lambda x, y: F.avg_pool1d(x * y, 2), (2, 3, 4), (2, 3, 4)),
    "adaptive_max_pool1d": (lambda x, y: F.adaptive_max_pool1d(x * y, 2), (3, 6), (3, 6)),
    "conv3d": (lambda x, y: F.conv3d(x[0], y), (1, 2, 3, 3, 3), (3, 2, 2, 2, 2)),
    "lstm": (lambda x, y: torch.lstm(x, (x.new_zeros(1, 4, 2),) * 2, _weights(y), True, 1, 0.0, False, False, True)[0],
             (4, 3, 4), (2, 8, 4)),
    "gru": (lambda x, y: torch.gru(x, x.new_zeros(1, 3, 2), _weights(y), True, 1, 0.0, False, False, False)[0],
            (4, 3, 4), (2, 6, 4)),
}


def _part(rng, size):
    first = rng.randrange(size)
    return slice(first, rng.randrange(first, size) + 1)


VIEWS = {
    "unsqueeze": lambda v, rng: v.unsqueeze(rng.randrange(v.dim() + 1)),
    "transpose": lambda v, rng: v.transpose(0, -1),
    "flatten": lambda v, rng: v.flatten(),
    "slice": lambda v, rng: v[_part(rng, v.shape[0])] if v.dim() else v,
    "last": lambda v, rng: v[..., _part(rng, v.shape[-1])] if v.dim() else v,
    "select": lambda v, rng: v[-1] if v.dim() > 1 else v,
    "split": lambda v, rng: v.chunk(2)[0] if v.dim() else v,
    "expand": lambda v, rng: v.expand(2, *v.shape),
    "permute": lambda v, rng: v.permute(*rng.sample(range(v.dim()), v.dim())),
}
USES = {
    "times": lambda v: v * 2,
    "sum": lambda v: v.sum(),
    "exp": lambda v: (v * 0.1).exp(),
    "cat": lambda v: torch.cat((v, v)) if v.dim() else v + 1,
    "product": lambda v: v @ v.mT if v.dim() > 1 else v.square(),
    "linear": lambda v: F.linear(v, torch.ones(2, v.shape[-1], dtype=v.dtype)) if v.dim() else v.tanh(),
}


def _program(seed):
    rng = random.Random(seed)
    make, *sizes = PRODUCERS[rng.choice(sorted(PRODUCERS))]
    chains = [[rng.choice(sorted(VIEWS)) for _ in range(rng.randrange(1, 4))] for _ in range(rng.randrange(1, 4))]
    uses, states = [rng.choice(sorted(USES)) for _ in chains], [rng.random() for _ in chains]
    shown = rng.random() < 0.8

    def program(x, y):
        v = make(x, y)
        held, results = [v] * shown, []
        for chain, use, state in zip(chains, uses, states):
            of = v
            for step in chain:
                of = VIEWS[step](of, random.Random(f"{state} {step}"))
                if random.Random(f"{state} {step} held").random() < 0.3:
                    held.append(of)
            results.append(USES[use](of))
        return held, results

    return program, sizes


def _outcome(run, sizes, way):
    torch.manual_seed(3)
    dtype = torch.float64 if way == "differentiated" else torch.float32  # rounding grows from derivative to derivative
    x, y = (torch.randn(s, dtype=dtype, requires_grad=True) for s in sizes)
    (held, results), seen = run(x, y), []
    looks = [(r.requires_grad, r.stride(), type(r.grad_fn).__name__, r._is_view()) for r in (*held, *results)]
    total = sum(r.sin().sum() for r in results)
    if way in ("asked", "differentiated"):
        graph = way == "differentiated"
        found = torch.autograd.grad(total, [*held, x, y], allow_unused=True, create_graph=graph)
        if graph:
            again = sum(g.square().sum() for g in found if g is not None)
            found += torch.autograd.grad(again, [x, y], allow_unused=True)
    else:
        for i, h in enumerate(held if way == "hooked" else ()):
            h.register_hook(lambda g, i=i: seen.append((i, g.clone())))
            h.retain_grad()
        total.backward()
        seen.sort(key=lambda pair: pair[0])  # of branches beside each other, any may come first
        found = (x.grad, y.grad, *(g for _, g in seen), *(h.grad for h in held if h.retains_grad))
    return looks, [*held, *results], found


def near(a, b):
    """In double precision, of derivatives of derivatives: far above rounding, far below any mistake."""
    if a is None or b is None or a.dtype != torch.float64:
        return agree(a, b)
    return bool((a - b).abs().max() <= 1e-10 * a.abs().max().clamp(min=1)) and a.shape == b.shape


@pytest.mark.parametrize("batch", range(16))
def test_views_that_are_held(batch):
    for seed in range(15 * batch, 15 * batch + 15):
        program, sizes = _program(seed)
        run = dycl.accelerate(program)
        for way in ("backward", "hooked", "asked", "differentiated"):
            want = _outcome(program, sizes, way)
            for _ in range(2):
                got = _outcome(run, sizes, way)
                if dycl.stats(run)["replays"]:  # views are as_strided there
                    assert [look[:2] for look in got[0]] == [look[:2] for look in want[0]], f"program {seed}, {way}"
                else:
                    assert got[0] == want[0], f"program {seed}, {way}"
                for kind in (1, 2):
                    for i, (a, b) in enumerate(zip(want[kind], got[kind], strict=True)):
                        assert near(a, b), f"program {seed}, {way}: {i} of {('results', 'gradients')[kind - 1]}"
