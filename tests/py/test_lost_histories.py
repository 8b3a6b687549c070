"""One of several views of a tensor that was written since: torch raises where the view is used, and nowhere else. Not
where the accelerated call ends, and also where nobody needs the result."""

import itertools

import pytest
import torch

import dycl

VIEWS = {
    "chunk": lambda x: x.chunk(2)[1], "only chunk": lambda x: x.chunk(1)[0], "split": lambda x: x.split(1)[0],
    "unbind": lambda x: x.unbind(0)[1], "iteration": lambda x: list(x)[0], "select": lambda x: x[0],
    "alias": lambda x: x.view(-1),
}  # fmt: skip
WRITES = {
    "through detach": lambda x, y, v: v.detach().mul_(3), "its base": lambda x, y, v: y.mul_(3),
    "its base's detach": lambda x, y, v: y.detach().add_(1), "data": lambda x, y, v: v.data.mul_(3),
    "nothing": lambda x, y, v: None,
}  # fmt: skip
USES = {
    "sum": lambda v: v * 2 + v, "join": lambda v: torch.hstack([v, v]),
    "product": lambda v: v.reshape(-1) @ v.reshape(-1),
    "view": lambda v: v.reshape(1, -1), "softmax": lambda v: v.softmax(-1), "hosted": lambda v: torch.sinh(v),
    "left to torch": lambda v: torch.digamma(v.abs() + 1), "detached": lambda v: v.detach() * 2,
}  # fmt: skip


def trace(run, pending, needed, enabled):
    x = torch.arange(1.0, 7).view(2, 3).requires_grad_()
    log = []
    try:
        with torch.set_grad_enabled(enabled):
            result = run(x, log, pending, needed)
        log.append(None if result is None else result.detach().tolist())
        if result is not None and result.requires_grad:
            result.sum().backward()
            log.append(None if x.grad is None else x.grad.tolist())
    except RuntimeError as error:
        log.append(str(error)[:60])
    return log


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("write", WRITES)
def test_torch_raises_where_it_is_used(view, write):
    for use in USES:
        def program(x, log, pending, needed):
            y = x * 1.0 if pending else x
            v = VIEWS[view](y)
            try:
                WRITES[write](x, y, v)
            except RuntimeError as error:
                log.append(("write", str(error)[:60]))
            result = None
            try:
                result = USES[use](v)
            except RuntimeError as error:
                log.append(("use", str(error)[:60]))
            log.append((x.detach() * 2).sum().item())
            return result if needed else None

        accelerated = dycl.accelerate(program)
        for pending, needed, enabled in itertools.product((False, True), (False, True), (True, False)):
            want = trace(program, pending, needed, enabled)
            for _ in range(2):
                assert trace(accelerated, pending, needed, enabled) == want, (use, pending, needed, enabled)
