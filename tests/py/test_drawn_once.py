"""Random numbers of a call that dycl begins and torch has to run are drawn once: where what is recorded turns out to
have no gradient here, where a tensor may not be written."""

import dycl
import pytest
import torch
import torch.nn.functional as F
from torch import nn

LSTM = nn.LSTM(4, 4, 2, dropout=0.5)
DRAWS = {
    "dropout": lambda x: F.dropout(x, 0.3), "dropout in place": lambda x: F.dropout(x, 0.3, inplace=True),
    "alpha": lambda x: F.alpha_dropout(x, 0.3, True), "features": lambda x: F.dropout2d(x[None, None], 0.3)[0, 0],
    "alpha in place": lambda x: F.alpha_dropout(x, 0.3, True, True), "all": lambda x: F.dropout(x, 1.0),
    "rrelu": lambda x: F.rrelu(x, training=True), "rrelu in place": lambda x: F.rrelu(x, training=True, inplace=True),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.4)[0],
    "lstm": lambda x: LSTM(x)[0], "gumbel": lambda x: F.gumbel_softmax(x), "like": lambda x: x * torch.rand_like(x),
    "normal": lambda x: x + torch.randn(x.shape), "bernoulli": lambda x: x * torch.bernoulli(x.sigmoid().detach()),
    "normal in place": lambda x: x.normal_() * 2, "uniform in place": lambda x: x.uniform_() * 2,
    "bernoulli in place": lambda x: x.bernoulli_(0.5) * 2,
}


def learned():
    return torch.ones(1, requires_grad=True)


def of_a_result(x, draw):
    return draw(x * learned())


def of_a_view_whose_base_was_written(x, draw):
    part = x[-2:]
    x -= learned()
    return draw(part)


def of_a_base_whose_view_was_written(x, draw):
    x[:1] -= learned()
    return draw(x)


def of_a_view(x, draw):
    return draw((x * learned())[1:])


def of_a_transposed_result(x, draw):
    return draw((x.t() * learned()).t())


def of_what_is_read_twice(x, draw):
    y = x * learned()
    z = y * y
    return draw(y) + 0 * z.detach()


def of_what_is_saved(x, draw):
    y = (x * learned()).exp()
    return draw(y)


def of_a_view_without_gradients(x, draw):
    y = x * learned()
    with torch.no_grad():
        return draw(y[1:])


def of_expanded(x, draw):
    return draw((x[:1] * learned()).expand(4, 4))


def of_half(x, draw):
    return draw((x * learned()).bfloat16()).float()


def of_double(x, draw):
    return draw((x * learned()).double()).float()


def outcome(program, draw, x):
    torch.manual_seed(3)
    found = []
    for _ in range(3):
        try:
            y = program(x.clone(), draw)
            found.append((y.detach().clone(), y.requires_grad))
            if y.requires_grad:
                y.sum().backward()
        except (RuntimeError, ValueError) as error:
            found.append((str(error).splitlines()[0],))
        found.append(torch.rand(1))
    return found


FORMS = [f for name, f in list(globals().items()) if name.startswith("of_")]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("draw", DRAWS)
def test_draws(draw, form):
    x = torch.linspace(-1, 1, 16).view(4, 4)
    want, got = outcome(form, DRAWS[draw], x), outcome(dycl.accelerate(form), DRAWS[draw], x)
    for a, b in zip(got, want, strict=True):
        if isinstance(b, tuple):
            assert a[1:] == b[1:] and type(a[0]) is type(b[0])
            a, b = a[0], b[0]
        if isinstance(b, str):
            assert a == b
        else:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
