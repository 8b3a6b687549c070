"""Replay: every operator of the registry can be run in torch, recorded programs give the same results that way, and
what no plan can run is replayed, with torch's errors."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import dycl
import started
from dycl import _core, _replay
from suite import FULL

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", ".."))
from tests.fuzz.pairs import registry  # noqa: E402

NEVER_RECORDED = ["fma", *registry.combined_rows()]  # what rewriting makes


def test_every_operator_has_a_row():
    assert set(_replay.STEPS) == set(_core.operators()) - set(NEVER_RECORDED)


OPERATORS = """add sub mul div where clamp exp log1p tanh sigmoid logsigmoid pow remainder floor_divide
bitwise_left_shift nn.functional.gelu nn.functional.elu
nn.functional.softplus nn.functional.leaky_relu sum mean prod amax argmax var any all norm cumsum softmax log_softmax
cat nn.functional.pad tril index_select
gather index_put scatter nn.functional.embedding full arange sort topk histc matmul nn.functional.linear
nn.functional.layer_norm nn.functional.group_norm
nn.functional.batch_norm nn.functional.conv2d nn.functional.conv_transpose2d nn.functional.max_pool2d
nn.functional.avg_pool2d
nn.functional.adaptive_avg_pool2d nn.functional.interpolate nn.functional.scaled_dot_product_attention"""
SUITES = [("test_op_db.py", "test_operator"), *[("test_models.py", "not branches")] * FULL, ("test_bind_nn.py", ""),
          ("test_bind_recurrent.py", ""), ("test_random_programs.py", ""), ("test_metadata.py", ""),
          ("test_bind_resize.py", ""), ("test_train_in_place.py", "random_programs and 1"),
          ("test_autograd_programs.py", "random_programs and (40 or 80 or 95)"), ("test_result_views.py", "3 or 7"),
          ("test_recorded_gradients.py", "zeros or losses or one_segment")]


@pytest.mark.parametrize("suite, chosen", SUITES)
def test_recorded_programs_replayed(suite, chosen):
    """A selection of op_db; DYCL_TEST_FULL=1: all of it."""
    command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", os.path.join(HERE, suite), "-k",
               chosen]
    environment = dict(os.environ, DYCL_REPLAY="1")
    if not FULL:
        environment["DYCL_TEST_OPERATORS"] = " ".join(OPERATORS.split())
    done = started.run(command, env=environment)
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.fixture
def replaying():
    _core.set_replaying(True)
    yield
    _core.set_replaying(False)


def test_replays_are_counted_and_explained(replaying):
    accelerated = dycl.accelerate(lambda x: (x + 1).sum())
    with torch.no_grad():
        x = torch.randn(3, 4)
        torch.testing.assert_close(accelerated(x), (x + 1).sum())
    assert dycl.stats(accelerated)["replays"] == 1
    assert "operator by operator in torch" in dycl.explain(accelerated)


def test_results_are_tensors_of_their_own(replaying):
    """Versions, aliasing, strides: as those of a plan's results."""

    def program(x):
        y = x.transpose(0, 1).contiguous()
        z = y + 0
        z[0] = 7
        return y, z, z.view(-1), y.detach(), torch.relu(y)

    x = torch.randn(3, 4)
    with torch.no_grad():
        expected, got = program(x), dycl.accelerate(program)(x)
    for e, g in zip(expected, got):
        assert torch.equal(e, g) and e.stride() == g.stride() and e._version == g._version \
            and (e._base is None) == (g._base is None)
        assert not g.requires_grad and g.untyped_storage().nbytes() == e.untyped_storage().nbytes()
    shared = lambda t: [[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a in t]
                        for b in t]  # noqa: E731
    assert shared(got) == shared(expected)


@pytest.mark.parametrize("sizes", [(0, 4), (3, 0), (3, 4)])
def test_copies_of_views_without_elements(replaying, sizes):
    """What has no elements has no address either, so that who shares it must be seen by the storage."""

    def program(x):
        y = x + 1
        views = y[:, :y.shape[1] // 2], y[y.shape[0] // 2:], y[:, y.shape[1] // 2:], y.t(), y.expand(2, *y.shape)
        return y, *views, *[f(v) for v in views for f in COPIES]

    x = torch.randn(sizes)
    with torch.no_grad():
        expected, got = program(x), dycl.accelerate(program)(x)
    for e, g in zip(expected, got, strict=True):
        assert (e.storage_offset(), e.stride(), e._version) == (g.storage_offset(), g.stride(), g._version)
        assert e.untyped_storage().nbytes() == g.untyped_storage().nbytes()
    alias = lambda t: [[torch._C._is_alias_of(a, b) for a in t] for b in t]  # noqa: E731
    assert alias(got) == alias(expected)


COPIES = [torch.clone, torch.Tensor.contiguous, lambda v: v.reshape(-1), lambda v: v.flip(0), lambda v: v.roll(1, 0),
          lambda v: v.repeat(*[1] * v.dim()), lambda v: torch.cat([v]), lambda v: v.to(torch.float32, copy=True),
          torch.triu, lambda v: F.pad(v, (0, 0)), lambda v: torch.where(v > 0, v, v), torch.relu, F.dropout]


def test_grad_mode_and_history(replaying):
    """Recorded without gradients, computed where they are on: no history."""
    weight = torch.nn.Parameter(torch.randn(4, 4))

    def program(x):
        with torch.no_grad():
            y = x @ weight
        with torch.enable_grad():
            assert y.sum().item() is not None
        return y

    with torch.no_grad():
        y = dycl.accelerate(program)(torch.randn(2, 4))
    assert not y.requires_grad and y.grad_fn is None


def test_versions_are_there_before_torch_remembers_them(replaying):
    """linear adds a bias that is not contiguous in place: torch's graph saves a product's operand at that version."""
    bias = torch.randn(1).expand(2)
    weight = torch.randn(2, 1, requires_grad=True)

    def program(x):
        y = torch.nn.functional.linear(x, weight, bias)
        return y, y * y

    for x in (torch.randn(2, 3, 1), torch.randn(2, 0, 1)):
        (want, square), (got, ours) = program(x), dycl.accelerate(program)(x)
        assert want._version == got._version == 1
        torch.testing.assert_close(torch.autograd.grad(ours.sum(), weight), torch.autograd.grad(square.sum(), weight))


BETWEEN = {  # functions that are recorded as several operators, or as another
    "roll": lambda x: x.roll(1, 0), "repeat": lambda x: x.repeat(2, 1), "clone": lambda x: x.clone(),
    "rot90": lambda x: x.rot90(), "linear": lambda x: F.linear(x, x[:2]), "silu": F.silu,
    "baddbmm": lambda x: torch.baddbmm(x[None], x[None], x[None, :, :3].mT.contiguous() @ x[None]),
    "var": lambda x: x.var(1), "stack": lambda x: torch.stack([x, x]), "square": torch.square, "frac": torch.frac}


@pytest.mark.parametrize("rows", [3, 0])
@pytest.mark.parametrize("name", BETWEEN)
def test_results_between_show_their_nodes(replaying, name, rows):
    """A result that others come from has its function's node, whose hooks are called on the way back."""

    def program(x):
        y = BETWEEN[name](x * 2)
        return y, y * 3, y.detach()

    x = torch.randn(3, 3, requires_grad=True)
    seen = []
    for function in (program, dycl.accelerate(program)):
        try:
            y, z, _ = function(x[:rows])
        except RuntimeError as error:
            seen.append(str(error))
            continue
        hooked = []
        y.register_hook(lambda g: hooked.append(g.clone()))
        gradient, = torch.autograd.grad(z.sum(), x)
        seen.append((y.grad_fn.name(), z.grad_fn.name(), len(hooked), torch.stack([*hooked, z]).tolist(),
                     gradient.tolist()))
    assert seen[0] == seen[1]


TOO_LARGE = {
    "broadcast": lambda x: x.expand(2**40, 4) + 1,
    "overflow": lambda x: (x.expand(2**62, 4) * 2).sum(),
    "view": lambda x: (x + 1).expand(2**62, 4)[3:5],
    "factory": lambda x: torch.zeros(2**40, 4) + x,
    "join": lambda x: torch.cat([x.expand(2**34, 4)] * 4),
    "repeat": lambda x: (x + 1).repeat(2**40, 1),
    "range": lambda x: torch.arange(2**45) + 1,
    "product": lambda x: (x[:, None] + 1).expand(4, 2**36).mT @ (x + 1)[None].expand(4, 4),
    "reduced": lambda x: (x.expand(2**36, 4) + 1).cumsum(0),
}


def failed(program, x):
    with pytest.raises(RuntimeError) as caught:
        program(x)
    lines, traceback = [], caught.value.__traceback__
    while traceback:
        if traceback.tb_frame.f_code.co_filename == __file__:
            lines.append(traceback.tb_lineno)
        traceback = traceback.tb_next
    return type(caught.value), str(caught.value), lines[-1]


@pytest.mark.parametrize("name", TOO_LARGE)
def test_results_that_no_memory_holds(name):
    """torch's message, at the line of the operator."""
    x = torch.randn(4)
    with torch.no_grad():
        accelerated = dycl.accelerate(TOO_LARGE[name])
        assert failed(accelerated, x) == failed(TOO_LARGE[name], x)
        assert failed(accelerated, x) == failed(TOO_LARGE[name], x)


LIMITED = """
import resource, sys, torch, dycl
program = lambda x: torch.cat([x * 2, x + 1]).square().sum(0)
accelerated = dycl.accelerate(program)
x = torch.ones(2**20, 4)
with torch.no_grad():
    expected = program(x)
    for _ in range(3):
        assert torch.allclose(accelerated(x), expected)
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    large = torch.ones(2**24, 4)  # 256 MB, and each of the results as much
    # between what two and three of them take, far from both: `used` counts what may be given back meanwhile
    resource.setrlimit(resource.RLIMIT_AS, (used + (640 << 20), -1))
    outcomes = []
    for f in (program, accelerated):
        try:
            outcomes.append(f(large).sum().item())
        except RuntimeError as error:
            outcomes.append(str(error))
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    assert "can't allocate memory" in outcomes[0], outcomes
    assert outcomes[1] == outcomes[0] or isinstance(outcomes[1], float), outcomes
    assert torch.allclose(accelerated(x), expected)
"""


def test_no_memory_in_a_plan():
    """eager's error, or a result where dycl needs less than eager; and the next call is right."""
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)])
def test_gradients_of_bounds_of_rank_0(wanted):
    """Tensors, and no numbers, of which a replay of clamp had made them."""
    outcomes = []
    for function in (torch.clamp, dycl.accelerate(lambda *operands: torch.clamp(*operands))):
        operands = [torch.tensor(value, requires_grad=bool(wants))
                    for value, wants in zip(([1.0, 2.0, 3.0, 4.0], 1.5, 3.5), wanted)]
        function(*operands).sum().backward()
        outcomes.append([x.grad for x in operands])
    for got, want in zip(outcomes[1], outcomes[0]):
        assert (got is None) == (want is None) and (got is None or torch.equal(got, want))
