"""What a step leaves of the gradients: torch's forms for lists write some of them, and a program that adds to them
afterwards, or clips them late, sees it."""

import dycl
import pytest
import torch

FORMS = [("SGD", dict(momentum=momentum, nesterov=nesterov, weight_decay=decay, maximize=maximize))
         for momentum, nesterov in ((0, False), (0.5, False), (0.5, True)) for decay in (0, 0.1)
         for maximize in (False, True)]
FORMS += [(name, {"weight_decay": decay, "maximize": maximize})
          for name in ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD")
          for decay in (0, 0.1) for maximize in (False, True)]
FORMS += [("Rprop", {}), ("Rprop", {"maximize": True}), ("RMSprop", {"centered": True, "momentum": 0.9})]


def steps(accelerate, name, options, zeroes):
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(5))]
    optimizer = getattr(torch.optim, name)(parameters, lr=0.01, **options)
    if accelerate:
        dycl.accelerate(optimizer)
    seen = []
    for _ in range(4):
        for p in parameters:
            gradient = torch.randn(p.shape)
            p.grad = gradient if p.grad is None or zeroes else p.grad.add_(gradient)
        versions = [p.grad._version for p in parameters]
        optimizer.step()
        seen += [p.grad.clone() for p in parameters] + [p.detach().clone() for p in parameters]
        seen.append(torch.tensor([p.grad._version - before for p, before in zip(parameters, versions)]))
    return seen


@pytest.mark.parametrize("zeroes", (False, True))
@pytest.mark.parametrize("foreach", (False, True))
@pytest.mark.parametrize("name, options", FORMS)
def test_gradients_after_a_step(name, options, foreach, zeroes):
    options = options | {"foreach": foreach}
    torch.testing.assert_close(steps(True, name, options, zeroes), steps(False, name, options, zeroes))
