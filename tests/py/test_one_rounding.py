"""What torch rounds once because its compiler contracts a product and a sum: nearly nothing is left of both, and the
rounding decides about its sign and its root."""

import dycl
import pytest
import torch

SIZES = (1, 3, 7, 16, 37, 64)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("value", (1, -1, -0.5))
@pytest.mark.parametrize("form", ("plain", "method", "in place"))
def test_addcmul(form, value, dtype):
    def program(a, b, c):
        if form == "plain":
            return torch.addcmul(a, b, c, value=value) * 1
        if form == "method":
            return a.addcmul(b, c, value=value) * 1
        return a.clone().addcmul_(b, c, value=value) * 1

    fast = dycl.accelerate(program)
    with torch.no_grad():
        for size in SIZES:
            b, c = torch.randn(size, dtype=dtype), torch.randn(size, dtype=dtype)
            a = -value * b * c
            for _ in range(3):
                assert torch.equal(fast(a, b, c), program(a, b, c))
            assert torch.equal(fast(a, a, c[:1]), program(a, a, c[:1]))


@pytest.mark.parametrize("alpha", (0.0, 0.5, 0.99))
@pytest.mark.parametrize("foreach", (False, True))
def test_centered_rmsprop(foreach, alpha):
    results = []
    for accelerate in (False, True):
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.ones(size)) for size in SIZES]
        gradients = [torch.randn(size) for size in SIZES]
        optimizer = torch.optim.RMSprop(parameters, lr=1e-2, alpha=alpha, centered=True, foreach=foreach)
        if accelerate:
            dycl.accelerate(optimizer)
        for _ in range(30):
            for p, g in zip(parameters, gradients):
                p.grad = g.clone()
            optimizer.step()
        results.append(torch.cat([p.detach() for p in parameters]))
    torch.testing.assert_close(results[1], results[0], equal_nan=True, rtol=1e-5, atol=1e-6)
