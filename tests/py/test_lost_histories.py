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


PLAIN = {"pending": lambda t: None, "hook": lambda t: t.register_hook(lambda g: None), "node": lambda t: t.grad_fn}


@pytest.mark.parametrize("of_base", PLAIN)
@pytest.mark.parametrize("of_part", PLAIN)
def test_torch_raises_each_time(of_base, of_part):
    """Also where another operator that raised or has no gradient read the view before."""
    def program(x, log, pending, needed):
        y = x * 2.0
        PLAIN[of_base](y)
        parts = VIEWS[view](y), y.unbind(0)[0]
        PLAIN[of_part](parts[0])
        y.add_(1)
        kept = []  # and not computed before the end
        for use in (lambda v: v > 1, lambda v: v.sum(), lambda v: v * 2):
            for part in parts * 2:
                try:
                    kept.append(use(part))
                except RuntimeError as error:
                    log.append((len(kept), str(error)))
        log += [t.tolist() for t in kept]

    for view in VIEWS:
        accelerated = dycl.accelerate(program)
        want = trace(program, True, False, True)
        for _ in range(2):
            assert trace(accelerated, True, False, True) == want, view


IN_PLACE = {
    "add_": lambda v: v.add_(1), "zero_": lambda v: v.zero_(), "relu_": lambda v: v.relu_(),
    "copy_": lambda v: v.copy_(torch.ones(2, 3)), "masked_fill_": lambda v: v.masked_fill_(v > 0, 1.0),
    "lerp_": lambda v: v.lerp_(torch.ones(2, 3), 0.5), "item": lambda v: v.__setitem__(0, 1.0),
    "addmm_": lambda v: v.addmm_(torch.ones(2, 2), torch.ones(2, 3)), "unsqueeze_": lambda v: v.unsqueeze_(0),
    "index_fill_": lambda v: v.index_fill_(0, torch.tensor([0]), 1.0), "uniform_": lambda v: v.uniform_(),
}  # fmt: skip
BEFORE = {
    "nothing": lambda v: None, "compared": lambda v: (v > 0).sum().item(), "read": lambda v: v.detach().tolist(),
    "used": lambda v: v * 2, "asked": lambda v: v.is_leaf,
}  # fmt: skip


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("write", IN_PLACE)
def test_a_view_older_than_its_bases_history(write, before):
    """A leaf, which torch writes nothing in place, until somebody looks for its node."""
    weight = torch.full((3,), 2.0, requires_grad=True)

    def program(x, log, pending, needed):
        x = x.detach() * 1.0 if pending else x.detach().clone()
        v = x[1:3]
        x.mul_(weight)
        log.append(v.requires_grad)
        BEFORE[before](v)
        IN_PLACE[write](v)
        return x

    def run(program, pending):
        torch.manual_seed(1)
        log = []
        try:
            return program(torch.arange(12.0).view(4, 3), log, pending, True).tolist(), log
        except RuntimeError as error:
            return str(error), log

    accelerated = dycl.accelerate(program)
    for pending in (False, True):
        want = run(program, pending)
        for _ in range(2):
            assert run(accelerated, pending) == want
