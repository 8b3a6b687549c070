"""Operators that raise because of a value, between others that are recorded: in their own line, with torch's message,
and what is recorded before and after them has its values."""

import itertools
import math
import warnings

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import warn_always  # noqa: F401 (a fixture)
from tolerance import bounds

NUMBERS, PLACES = [1.0, 2.0, 3.0, 4.0], [0, 1, 2, 3]
OUTSIDE = [0, 1, 2, 9], [0, -1, 2, 3], [0, -9, 1, 1]
TARGETS = [0, 1, 0, 0], [0, 2, 0, 0], [0, -1, 0, 0], [-100, 1, 0, 0], [-100, -100, 0, 0]
SHARES = [0.5, 0.1, 0.2, 1.0], [0.5, 2.0, 0.1, 0.1], [0.5, -1.0, 0.1, 0.1], [math.nan, 0.1, 0.2, 0.3], [0.0] * 4
ODD = [math.inf, 1, 2, 3], [math.nan, 1, 2, 3], [-math.inf, math.inf, 0, 0]
MATRICES = [2, 1, 1, 2], [1, 2, 2, 1], [0, 0, 0, 0], [-1, 0, 0, -1]
ZEROS = [1, 2, 3, 4], [0, 2, 3, 4], [-1, 2, 3, 4]


def square(x):
    return x.view(2, 2)


def written(x, key, value):
    y = x + 1
    y[key] = value
    return y


def asserted(x):
    if not (x > 0).all():
        raise AssertionError("no")
    return x


# of the bags of embedding_bag one at most is wrong: torch's threads race with the errors of two
IN_PLACES = {
    "index_select": lambda x, i: x.index_select(0, i), "gather": lambda x, i: x.gather(0, i), "key": lambda x, i: x[i],
    "keys": lambda x, i: square(x)[i[:2], i[2:]], "element": lambda x, i: x[i[3]], "take": lambda x, i: x.take(i),
    "take_along_dim": lambda x, i: x.take_along_dim(i, 0), "put": lambda x, i: x.put(i, x * 2),
    "index_add": lambda x, i: x.index_add(0, i, x * 2), "index_add_": lambda x, i: (x + 1).index_add_(0, i, x * 2),
    "index_add twice": lambda x, i: x.index_add(0, i, x, alpha=2), "index_copy": lambda x, i: x.index_copy(0, i, x * 2),
    "index_fill": lambda x, i: x.index_fill(0, i, 7), "index_put": lambda x, i: x.index_put((i,), x * 2),
    "adding": lambda x, i: x.index_put((i,), x * 2, accumulate=True), "scatter": lambda x, i: x.scatter(0, i, x * 2),
    "scatter 3": lambda x, i: x.scatter(0, i, 3.0), "scatter_add": lambda x, i: x.scatter_add(0, i, x * 2),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, x * 2, "amax"), "rows": lambda x, i: written(x, i, x * 3),
    "numbers": lambda x, i: written(x, i, 5), "number": lambda x, i: written(x, i[3], 5), "one_hot": lambda x, i:
    F.one_hot(i, 4), "bincount": lambda x, i: torch.bincount(i), "repeat": lambda x, i: x.repeat_interleave(i),
    "embedding": lambda x, i: F.embedding(i, square(x)), "embedding_bag": lambda x, i:
    F.embedding_bag(i, x.view(4, 1), torch.tensor([0, 2])), "list": lambda x, i: [1, 2, 3, 4][i[3]],
}
WITH_TARGETS = {
    "nll": lambda x, i: F.nll_loss(square(x), i[:2]), "each": lambda x, i:
    F.nll_loss(square(x), i[:2], reduction="none"),
    "cross_entropy": lambda x, i: F.cross_entropy(square(x), i[:2]), "smooth": lambda x, i:
    F.cross_entropy(square(x), i[:2], label_smoothing=0.1), "margin": lambda x, i:
    F.multi_margin_loss(square(x), i[:2]),
}
WITH_SHARES = {
    "bce": lambda x, i: F.binary_cross_entropy(x, torch.ones(4)), "bernoulli": lambda x, i: torch.bernoulli(x),
    "multinomial": lambda x, i: torch.multinomial(x, 2), "normal": lambda x, i: torch.normal(0.0, x),
    "poisson": lambda x, i: torch.poisson(x), "quantile": lambda x, i: torch.quantile(torch.arange(5.0), x.detach()),
    "gaussian": lambda x, i: F.gaussian_nll_loss(torch.zeros(4), torch.ones(4), x), "dropout": lambda x, i:
    F.dropout(x, x[1].item()), "categorical": lambda x, i: torch.distributions.Categorical(x).sample(),
}
WITH_ODD = {
    "histc": lambda x, i: torch.histc(x.detach(), 4), "int": lambda x, i: int(x[0]), "sqrt": lambda x, i:
    math.sqrt(x[0]), "assert": lambda x, i: asserted(x), "_assert": lambda x, i: torch._assert((x > 0).all(), "no"),
    "async": lambda x, i: torch._assert_async((x > 0).all()), "full": lambda x, i: torch.full((2,), x[0].item(),
    dtype=torch.int64), "arange": lambda x, i: torch.arange(x[1].item(), x[0].item()), "item": lambda x, i: x.item(),
    "if": lambda x, i: 1 if x > 0 else 2, "tensor": lambda x, i: torch.tensor([x[0]], dtype=torch.int64),
}
OF_MATRICES = {
    "cholesky": lambda x, i: torch.linalg.cholesky(square(x)), "inv": lambda x, i: torch.linalg.inv(square(x)),
    "solve": lambda x, i: torch.linalg.solve(square(x), torch.ones(2)), "det": lambda x, i: torch.linalg.det(square(x)),
}
OF_INTEGERS = {
    "floor": lambda x, i: 7 // i, "mod": lambda x, i: 7 % i, "fmod": lambda x, i: torch.fmod(i + 5, i),
    "pow": lambda x, i: 2 ** i,
    "power": lambda x, i: i ** i[0].item(), "trunc": lambda x, i: torch.div(i + 5, i, rounding_mode="trunc"),
    "split": lambda x, i: x.split(i.tolist()), "view": lambda x, i: x.view(i[0].item(), -1), "scattered": lambda x, i:
    x.masked_scatter(i > 0, x[:2]), "narrow": lambda x, i: x.narrow(0, i[0], 2), "range": lambda x, i:
    torch.arange(i[0], i[1], i[0]), "byte": lambda x, i: i.to(torch.uint8) + i[0].item(),
    "kth": lambda x, i: x.kthvalue(i[0].item())[0], "range of ints": lambda x, i: list(range(0, 9, i[0])),
}
KINDS = [(IN_PLACES, (), OUTSIDE), (WITH_TARGETS, (), TARGETS), (WITH_SHARES, SHARES, ()), (WITH_ODD, ODD, ()),
         (OF_MATRICES, MATRICES, ()), (OF_INTEGERS, (), ZEROS)]
CASES = [(name, function, [(x, i) for x in (NUMBERS, *numbers) for i in (PLACES, *places)])
         for functions, numbers, places in KINDS for name, function in functions.items()]


def program_of(caught, recorded):
    def program(function, x, i, kept, log):
        a, j = (x * 1.0, i + 0) if recorded else (x, i)
        b = torch.tanh(a * 0.1)
        kept.append(b)
        try:
            y = function(a, j)
            log.append("done")
        except Exception as error:  # noqa: BLE001: it has to be eager's
            log.append((type(error), str(error)))
            if not caught:
                raise
            y = None
        kept.extend([b * 2 + b.sum(), y])
        return kept[-2] - 1

    return program


def outcome(program, function, numbers, places, grad):
    """All that the program sees, at the end and afterwards."""
    kept, log = [], []
    x = torch.tensor(numbers, dtype=torch.float32, requires_grad=grad)
    torch.manual_seed(3)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            kept.append(program(function, x, torch.tensor(places), kept, log))
        except Exception as error:  # noqa: BLE001: it has to be eager's
            traceback = error.__traceback__
            while traceback:
                if traceback.tb_frame.f_code.co_name == "program":
                    log.append(traceback.tb_lineno)
                    kept += [traceback.tb_frame.f_locals[name] for name in "ajb"]
                traceback = traceback.tb_next
    tensors = [t for t in kept if isinstance(t, torch.Tensor)]
    differentiable = [t for t in tensors if t.requires_grad]
    if differentiable:
        sum(t.sum() for t in differentiable).backward()
    log += [str(w.message) for w in warned] + [(t.requires_grad, t.dtype, type(t)) for t in tensors]
    return log, [repr(o) for o in kept if not isinstance(o, (torch.Tensor, tuple))], \
        [t.detach().clone() for t in tensors] + [torch.zeros(0) if x.grad is None else x.grad, torch.rand(2)]


@pytest.mark.parametrize("name, function, values", CASES, ids=[case[0] for case in CASES])
def test_errors_of_values(name, function, values):
    rtol, atol = bounds("sum", torch.float32)
    for grad, caught, recorded in itertools.product((False, True), repeat=3):
        ours = dycl.accelerate(program_of(caught, recorded))
        for given in values * 3:
            want, got = (outcome(p, function, *given, grad) for p in (program_of(caught, recorded), ours))
            assert got[:2] == want[:2], (given, grad, caught, recorded)
            assert len(got[2]) == len(want[2])
            for a, b in zip(got[2], want[2]):
                torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
