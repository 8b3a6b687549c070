"""A warning names the line of the program that caused it, as in eager. So warnings of several lines are several."""

import warnings

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dycl

X, Y, IMAGE = torch.randn(3, 4), torch.randn(4), torch.randn(1, 2, 4, 4)

WARNED = {
    "mse_loss": lambda: F.mse_loss(X * 1, Y), "l1_loss": lambda: F.l1_loss(X, Y * 1, reduction="none"),
    "smooth_l1_loss": lambda: F.smooth_l1_loss(X, Y), "huber_loss": lambda: F.huber_loss(X, Y * 1),
    "module": lambda: nn.MSELoss()(X * 1, Y), "numbers": lambda: F.mse_loss(X.sum(), Y[:1]),
    "ranks": lambda: F.l1_loss(X[:, 0], X[:, :1]), "by name": lambda: F.mse_loss(target=Y, input=X * 1),
    "softmax": lambda: F.softmax(X * 1), "softmin": lambda: F.softmin(X), "log_softmax": lambda: F.log_softmax(X * 1),
    "softmax module": lambda: nn.Softmax()(X), "size_average": lambda: F.mse_loss(X, X * 1, size_average=True),
    "kl_div": lambda: F.kl_div(X, X.abs()), "upsample": lambda: F.upsample(IMAGE * 1, scale_factor=2),
    "grid_sample": lambda: F.grid_sample(IMAGE, torch.zeros(1, 3, 3, 2)), "dropout2d": lambda: F.dropout2d(X * 1),
    "std": lambda: (X[:1, :1] * 1).std(), "tensor": lambda: torch.tensor(X * 1),
    "errors": lambda: F.mse_loss(X, Y[:3]), "resize": lambda: X.resize(12), "resize_as": lambda: X.resize_as(X * 1),
    "resize of a result": lambda: (X * 1).resize(4, 3), "kaiming_uniform_": lambda: nn.init.kaiming_uniform_(X[:0]),
    "kaiming_uniform_ of a result": lambda: nn.init.kaiming_uniform_((X * 1)[:, :0])}


def seen(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function()
        except RuntimeError as error:
            result = str(error)
    return result, [(w.category, str(w.message), w.filename, w.lineno) for w in caught]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("what", WARNED)
def test_places_of_warnings(what, gradients):
    program, before = WARNED[what], torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with torch.set_grad_enabled(gradients):
            want, places = seen(program)
            accelerated = dycl.accelerate(lambda: program())
            for _ in range(3):
                torch.manual_seed(1)
                got, ours = seen(accelerated)
                assert ours == places and places
                assert isinstance(got, str) == isinstance(want, str)
    finally:
        torch.set_warn_always(before)


def test_warnings_that_are_errors():
    accelerated = dycl.accelerate(lambda x: F.mse_loss(x * 1, Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="target size"):
            accelerated(X)


def test_initialization_of_results():
    def program(x):
        values = [x * 1, x * 2, x * 3, x * 4]
        same = [nn.init.uniform_(values[0], 1, 2) is values[0], nn.init.normal_(values[1]) is values[1],
                nn.init.constant_(values[2], 3) is values[2], nn.init.kaiming_uniform_(values[3]) is values[3]]
        return [v + 1 for v in values], values, [v._version for v in values], same

    accelerated = dycl.accelerate(program)
    for x in (X, X.clone().requires_grad_()):
        for _ in range(3):
            torch.manual_seed(1)
            results, values, versions, same = program(x)
            torch.manual_seed(1)
            ours = accelerated(x)
            assert all(same) and ours[3] == same and ours[2] == versions
            for want, got in zip(results + values, ours[0] + ours[1]):
                assert torch.equal(want, got) and type(want.grad_fn).__name__ == type(got.grad_fn).__name__
