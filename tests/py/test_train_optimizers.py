"""Optimizers in training: whose steps are ours without being asked, and what belongs to a step, against
eager: values, versions, identities and state, for every class whose steps run without their Python
(csrc/py/entry/update.h), in the ways in which programs use it."""

import copy
import itertools
import os
import pathlib
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import dycl
import started
from dycl import _core, _everywhere, _optimizer, _parts
from suite import one_thread  # noqa: F401 (a fixture)
from test_optimizers import compare, flat, gradients, losses_by_closure, overlapping, parameters, seen, sides, steps

SERVED = {
    "AdamW": [{}, {"amsgrad": True}, {"weight_decay": 0.0}, {"maximize": True}, {"betas": (0.0, 0.5)}],
    "Adam": [{}, {"weight_decay": 0.1}, {"amsgrad": True, "weight_decay": 0.1, "maximize": True},
             {"decoupled_weight_decay": True, "weight_decay": 0.1}, {"betas": (0.3, 0.999)}],
    "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            {"momentum": 0.9, "dampening": 0.5, "maximize": True}],
    "RMSprop": [{}, {"centered": True}, {"momentum": 0.9}, {"momentum": 0.9, "centered": True, "weight_decay": 0.1,
                                                            "maximize": True}],
    "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1}, {"initial_accumulator_value": 0.5, "maximize": True}],
    "Adadelta": [{}, {"weight_decay": 0.1, "maximize": True}],
    "Adamax": [{}, {"weight_decay": 0.1, "maximize": True}],
}
CASES = [(name, options) for name in SERVED for options in SERVED[name]]
NAMES = [f"{name}-{','.join(options)}" for name, options in CASES]


@pytest.fixture(autouse=True)
def no_models_of_others():
    yield
    _parts._models.clear()
    _core.optimizers_changed(False)


def maker(name, options, **more):
    return lambda given: getattr(torch.optim, name)(given, **{"lr": 0.01, **options, **more})


def updates(optimizer):
    try:
        return dycl.stats(optimizer)["updates"]
    except TypeError:
        return None


def both_by_model(make, params):
    """As test_optimizers.sides, where only the model is accelerated."""
    both = []
    for accelerated in (False, True):
        model = nn.Module()
        model.all = nn.ParameterList(params())
        both.append((list(model.all), make(list(model.all)), model))
        if accelerated:
            dycl.accelerate(model)
    return both


@pytest.mark.parametrize("name, options", CASES, ids=NAMES)
@pytest.mark.parametrize("form", [{}, {"foreach": True}, {"foreach": False}], ids=["", "foreach", "single"])
def test_a_step_without_its_python(name, options, form):
    both = both_by_model(maker(name, options, **form), lambda: parameters(3)[:-1])  # the last one has gaps
    for k in range(6):
        for params, optimizer, _ in both:
            gradients(params, k, skip=(1,))
            for p in params:  # in the parameter's order in memory, as autograd makes them
                p.grad = None if p.grad is None else torch.empty_like(p).copy_(p.grad).detach()
            optimizer.step()
        # RMSprop's momentum adds quotients of up to 1 / sqrt(1 - alpha) = 10, whose sums are up to 32 and cancel
        compare(*both, state_atol=32 * 2**-23 if name == "RMSprop" and "momentum" in options else 1e-6)
    assert updates(both[1][1]) >= 4  # the first makes the state


SETS = ("scalar", "avx2", "avx512")
# one in nine for each, others for the next
ON_SETS = [(*case, isa) for k, case in enumerate(CASES) for i, isa in enumerate(SETS)
           if k % 9 == i * 4 or os.environ.get("DYCL_TEST_FULL")]


@pytest.mark.parametrize("name, options, isa", ON_SETS, ids=[f"{n}-{','.join(o)}-{isa}" for n, o, isa in ON_SETS])
def test_every_instruction_set(name, options, isa):
    program = f"""
        import torch, dycl
        sizes = [1, 7, 8, 15, 16, 17, 33, 1000, 70001]
        def run(ours):
            torch.manual_seed(0)
            params = [torch.nn.Parameter(torch.randn(n)) for n in sizes]
            optimizer = torch.optim.{name}(params, **{{"lr": 0.01, **{options!r}}})
            if ours:
                dycl.accelerate(optimizer)
            for _ in range(4):
                for p in params:
                    p.grad = torch.randn_like(p)
                optimizer.step()
            assert not ours or dycl.stats(optimizer)["updates"] >= 3
            return params
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for e, d in zip(run(False), run(True)):
                torch.testing.assert_close(d, e, rtol=2e-5, atol=1e-6)
    """
    if isa != "scalar" and isa not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip("the processor has it not")
    started.run(["-c", textwrap.dedent(program)], check=True, env={**os.environ, "DYCL_ISA": isa, "DYCL_PROFILE": "0"})


# ---- Whose

def stepped(optimizer):
    gradients([p for g in optimizer.param_groups for p in g["params"]], 0)
    optimizer.step()
    gradients([p for g in optimizer.param_groups for p in g["params"]], 1)
    optimizer.step()
    return updates(optimizer)


def test_whose_optimizers_are_ours():
    model, other = nn.Linear(3, 4), nn.Linear(3, 4)
    before = Adam(model.parameters())
    assert stepped(before) is None
    nested = nn.Sequential(nn.ReLU(), nn.Sequential(model))
    assert dycl.accelerate(nested) is nested
    after, others = Adam(model.parameters()), Adam(other.parameters())
    assert stepped(after) and stepped(before) and stepped(others) is None
    assert stepped(copy.deepcopy(after)) is None  # of a copied model's parameters
    dycl.accelerate(other)
    assert stepped(others)
    count = updates(others)
    with dycl.disable():
        stepped(others)
    assert updates(others) == count
    stepped(others)
    assert updates(others) > count


def test_every_optimizer_under_accelerate_all():
    model = nn.Linear(3, 4)
    optimizer = Adam(model.parameters())
    handle = _everywhere.accelerate_all()
    assert stepped(optimizer)
    count = updates(optimizer)
    handle.remove()
    stepped(optimizer)
    assert updates(optimizer) in (None, count)


def test_an_optimizer_of_an_accelerated_function():
    model = nn.Linear(3, 4)
    optimizer = Adam(model.parameters())

    @dycl.accelerate
    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    for _ in range(4):
        step(torch.randn(2, 3))
    assert updates(optimizer)


def test_an_optimizer_of_what_an_accelerated_function_reads():
    """A loss function is accelerated, whose model dycl never gets; or a part of the model, and not its first one."""
    model, other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), nn.Linear(3, 4)
    mine, others = Adam(model.parameters()), Adam(other.parameters())
    loss = dycl.accelerate(lambda x: model(x).square().sum())
    stepped(mine)
    assert updates(mine) is None  # before anything was recorded
    for _ in range(4):
        mine.zero_grad()
        loss(torch.randn(2, 3)).backward()
        mine.step()
        stepped(others)
    assert updates(mine) == 4 and updates(others) is None
    again = Adam(nn.Linear(3, 4).parameters())
    assert stepped(again) is None

    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    both = Adam([*first.parameters(), *last.parameters()])
    dycl.accelerate(last)
    for _ in range(4):
        both.zero_grad()
        last(first(torch.randn(2, 3))).sum().backward()
        both.step()
    assert updates(both)


def test_without_being_asked_nothing_changes():
    program = """
        import torch, dycl
        model = dycl.accelerate(torch.nn.Linear(3, 4))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            model.weight.grad = torch.ones(4, 3)
            optimizer.step()
        try:
            print(dycl.stats(optimizer)["updates"])
        except TypeError:
            print("none")
    """
    said = {}
    for value in ("0", "1"):
        said[value] = started.run(["-c", textwrap.dedent(program)], check=True,
                                  env={**os.environ, "DYCL_TRAIN": value, "DYCL_PROFILE": "0"}).stdout
    assert said == {"0": "none\n", "1": "2\n"}


def test_gradients_go_without_python(monkeypatch):
    """torch's zero_grad labels itself for the profiler in each call, as long as it is what runs."""
    labels, record_function = [], torch.autograd.profiler.record_function

    def label(name, *args):
        labels.append(name)
        return record_function(name, *args)

    def labelled(optimizer, **how):
        for p in params:
            p.grad = torch.ones_like(p)
        with monkeypatch.context() as m:
            m.setattr(torch.autograd.profiler, "record_function", label)
            optimizer.zero_grad(**how)
        found, labels[:] = len(labels), []
        return found, [p.grad is None for p in params[:2]]

    model = nn.Linear(3, 4)
    params = [*model.parameters(), torch.zeros(2)]
    own = type("Own", (Adam,), {"zero_grad": lambda self, **how: super(own, self).zero_grad(**how)})
    ours, theirs, others = Adam(params), Adam(params), own(params)
    assert labelled(ours) == (1, [True, True])  # no step so far
    dycl.accelerate(model)
    assert stepped(ours) and stepped(theirs) and stepped(others) is not None
    for optimizer in ours, theirs, others:
        assert labelled(optimizer) == labelled(optimizer, set_to_none=True) == (0, [True, True])
        assert labelled(optimizer, set_to_none=False) == (1, [False, False])
        assert [p.grad.sum().item() for p in params] == [0, 0, 0]
    eager = Adam([nn.Parameter(torch.ones(3))])
    assert labelled(eager)[0] == 1
    with torch.profiler.profile() as profile:
        ours.zero_grad()
    assert "Optimizer.zero_grad#Adam.zero_grad" in {event.name for event in profile.events()}
    with dycl.disable():
        assert labelled(ours) == (1, [True, True])
    monkeypatch.setitem(ours.param_groups[0], "params", tuple(params))
    assert labelled(ours) == (1, [True, True])


# ---- What is left to torch

LEFT = {
    "fused": (lambda p: AdamW(p, fused=True), {}),
    "tensor lr": (lambda p: AdamW(p, lr=torch.tensor(0.01)), {}),
    "subclass": (type("Own", (AdamW,), {}), {}),
    "bool lr": (lambda p: SGD(p, lr=True), {}),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_the_step_function(name):
    make, _ = LEFT[name]
    both = both_by_model(make, lambda: parameters(3, shapes=[(4, 5), (3,)], plain=True))
    steps(both, 4)
    assert updates(both[1][1]) == 0


def test_functions_that_are_others_now(monkeypatch):
    both = both_by_model(lambda p: AdamW(p), lambda: parameters(3, shapes=[(4, 5)], plain=True))
    steps(both, 3)
    count, called = updates(both[1][1]), []
    original = AdamW._init_group
    owner = next(c for c in AdamW.__mro__ if "_init_group" in vars(c))  # AdamW itself once torch.compile was used
    monkeypatch.setattr(owner, "_init_group", lambda self, *a: called.append(1) or original(self, *a))
    steps(both, 1)
    assert len(called) == 2 and updates(both[1][1]) == count > 0


def test_functions_that_torch_compile_wraps():
    both = both_by_model(lambda p: AdamW(p), lambda: parameters(3, shapes=[(4, 5)], plain=True))
    steps(both, 3)
    count = updates(both[1][1])
    torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(2))
    steps(both, 1)
    assert hasattr(AdamW._init_group, "_torchdynamo_orig_callable")
    assert updates(both[1][1]) == count + 1 > 1


@pytest.mark.parametrize("params", [flat, overlapping], ids=["pieces", "overlapping"])
def test_memory_that_parameters_share(params):
    both = both_by_model(lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), params)
    steps(both)
    assert (updates(both[1][1]) > 0) == (params is flat)


def test_shared_state_and_gradients_that_are_parameters():
    both = both_by_model(lambda p: SGD(p, lr=0.1, momentum=0.9), lambda: parameters(3, shapes=[(3,), (3,)], plain=True))
    for k in range(4):
        for params, optimizer, _ in both:
            params[0].grad = torch.full((3,), 1.0 + k)
            params[1].grad = params[0].detach()  # what the first update writes, the second reads
            optimizer.step()
            optimizer.state[params[1]]["momentum_buffer"] = optimizer.state[params[0]]["momentum_buffer"]
        compare(*both)
    assert updates(both[1][1]) == 0


def test_errors():
    for spoil in (lambda o: o.param_groups[0].update(betas=(1.0, 0.9)), lambda o: o.param_groups[0].update(lr="x"),
                  lambda o: o.param_groups[0].pop("eps"), lambda o: o.param_groups[0].update(eps="x"),
                  lambda o: o.state[o.param_groups[0]["params"][1]].pop("exp_avg")):
        both = both_by_model(lambda p: AdamW(p), lambda: parameters(3, shapes=[(4, 5), (3,)], plain=True))
        steps(both, 3)
        errors = []
        for params, optimizer, _ in both:
            gradients(params, 9)
            spoil(optimizer)
            with pytest.raises(Exception) as caught:
                optimizer.step()
            errors.append((caught.type, str(caught.value)))
        assert errors[0] == errors[1]
        for e, d in zip(both[0][0], both[1][0]):
            assert seen(e) == seen(d)
            torch.testing.assert_close(d, e, rtol=2e-5, atol=1e-6)


# ---- What belongs to a step

def clip_norm(params, *_):
    torch.nn.utils.clip_grad_norm_(params, 0.5)


def clip_value(params, *_):
    torch.nn.utils.clip_grad_value_(params, 0.1)


def total_norm(params, *_):
    norm = torch.nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])
    torch.nn.utils.clip_grads_with_norm_(params, 0.5, norm)


AROUND = {"": lambda *_: None, "clip norm": clip_norm, "clip value": clip_value, "total norm": total_norm}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_training(name, around, set_to_none):
    """Schedulers, groups that come later, saved and loaded state, averages by hand and by AveragedModel, hooks."""
    runs = []
    for accelerated in (False, True):
        torch.manual_seed(0)
        model = Net()
        options = {**SERVED[name][-1], "lr": 0.02}
        optimizer = getattr(torch.optim, name)(model.layers[0].parameters(), **options)
        if accelerated:
            dycl.accelerate(model)
        scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 10)
        swa, average = AveragedModel(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        ema = [p.detach().clone() for p in model.parameters()]
        log = []
        optimizer.register_step_pre_hook(lambda o, a, k, log=log: log.append("before"))
        optimizer.register_step_post_hook(
            lambda o, a, k, log=log, model=model: log.append(model.layers[0].weight.sum().item()))
        for k in range(9):
            if k == 3:
                optimizer.add_param_group({"params": list(model.layers[2].parameters()), "lr": 0.1})
                scheduler = lr_scheduler.StepLR(optimizer, 2)
            if k == 5:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            optimizer.zero_grad(set_to_none=set_to_none)
            held = model.layers[0].weight.grad
            loss = model(torch.ones(2, 6) * k).square().mean()
            loss.backward()
            assert set_to_none or k == 0 or model.layers[0].weight.grad is held
            AROUND[around](list(model.parameters()))
            held = model.layers[0].weight.grad
            optimizer.step()
            scheduler.step()
            assert model.layers[0].weight.grad is held
            with torch.no_grad():
                for e, p in zip(ema, model.parameters()):
                    e.mul_(0.9).add_(p, alpha=0.1)
            swa.update_parameters(model), average.update_parameters(model)
            log.append(loss.item())
        runs.append((list(model.parameters()), optimizer, ema, [*swa.parameters(), *average.parameters()], log))
        if accelerated:
            assert updates(optimizer) >= 5
    eager, ours = runs
    assert [x for x in eager[4] if isinstance(x, str)] == [x for x in ours[4] if isinstance(x, str)]
    for e, d in itertools.chain(zip(eager[0], ours[0]), zip(eager[2], ours[2]), zip(eager[3], ours[3])):
        assert seen(e) == seen(d)
        torch.testing.assert_close(d, e, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(*(torch.tensor([x for x in run[4] if not isinstance(x, str)]) for run in runs),
                               rtol=1e-3, atol=1e-4)


def test_scaled_gradients():
    both = both_by_model(lambda p: SGD(p, lr=0.1, momentum=0.9), lambda: parameters(10, plain=True))
    scalers = [torch.amp.GradScaler("cpu", init_scale=4.0) for _ in both]
    for k in range(5):
        for (params, optimizer, _), scaler in zip(both, scalers):
            optimizer.zero_grad()
            loss = sum((p.sin() * (1 + k)).sum() for p in params) * (float("inf") if k == 2 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        compare(*both)
    assert updates(both[1][1]) >= 2 and scalers[0].get_scale() == scalers[1].get_scale()


def test_closures():
    for make in (lambda p: SGD(p, lr=0.05), lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3)):
        both = both_by_model(make, lambda: parameters(9, shapes=[(4, 5), (3,)], plain=True))
        torch.testing.assert_close(*losses_by_closure(both), rtol=1e-4, atol=1e-5)


def test_a_step_that_is_watched_is_pythons():
    both = both_by_model(lambda p: AdamW(p), lambda: parameters(3, shapes=[(4, 5)], plain=True))
    steps(both, 3)
    count, names = updates(both[1][1]), []
    sys.setprofile(lambda frame, event, arg: names.append(frame.f_code.co_name))
    try:
        both[1][1].step()
    finally:
        sys.setprofile(None)
    assert "_single_tensor_adam" in names and updates(both[1][1]) == count


def test_written_parameters_raise_in_the_backward_pass():
    errors = []
    for accelerated in (False, True):
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        optimizer = SGD(model.parameters(), lr=0.1)
        if accelerated:
            dycl.accelerate(model)
        gradients(list(model.parameters()), 0)
        loss = model(torch.ones(2, 3, requires_grad=True)).sum()
        optimizer.step()
        with pytest.raises(RuntimeError) as caught:
            loss.backward()
        errors.append("modified by an inplace operation" in str(caught.value))
    assert errors == [True, True]


def test_sides_still_compare():
    steps(sides(lambda p: AdamW(p), lambda: parameters(3)), 3)
