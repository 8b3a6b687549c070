"""What torch rounds once because its compiler contracts a product and a sum: nearly nothing is left of both, and the
rounding decides about its sign and its root."""

import dycl
import pytest
import torch

SIZES = (1, 3, 7, 16, 37, 64)


@pytest.mark.parametrize("alpha", (0.5, 0.99))
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
