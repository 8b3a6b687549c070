"""Steps of torch's optimizers as regions, against eager: parameters and state by value, dtype, strides, version and
identity, over all optimizers, options and forms that torch's own optim_db names, and where a step meets something
unusual: memory that is shared or exported, hooks, closures, errors, other threads and modes."""

import contextlib
import copy
import gc
import pickle
import threading
import weakref

import numpy
import pytest
import torch
from torch.optim import SGD, Adam, AdamW, NAdam, lr_scheduler
from torch.testing._internal.common_optimizers import optim_db

import dycl
from dycl import _core
from suite import one_thread, without_training  # noqa: F401 (fixtures)

SHAPES = [(4, 5), (3,), (1,), (), (2, 1, 3), (0, 2), (70, 130)]


def parameters(seed, dtypes=(torch.float32,), shapes=SHAPES, plain=False):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator).to(dtype) for dtype in dtypes for shape in shapes]
    if plain:
        return [torch.nn.Parameter(p) for p in made]
    made += [torch.randn(2, 3, 4, 5, generator=generator).to(memory_format=torch.channels_last),
             torch.randn(5, 4, generator=generator).T, torch.randn(4, 6, generator=generator)[:, ::2]]
    return [torch.nn.Parameter(p) for p in made]


def gradients(params, seed, skip=()):
    generator = torch.Generator().manual_seed(seed)
    for k, p in enumerate(params):
        p.grad = None if k in skip else torch.randn(p.shape, generator=generator).to(p.dtype)


class Model(torch.nn.Module):
    def __init__(self, params):
        super().__init__()
        self.all = torch.nn.ParameterList(params)


def sides(make, params):
    """(parameters, optimizer, model) in eager and accelerated. params: makes the same ones each time."""
    both = []
    for accelerated in (False, True):
        model = Model(params())
        optimizer = make(list(model.all))
        both.append((list(model.all), optimizer, model))
        if accelerated:
            dycl.accelerate(model), dycl.accelerate(optimizer)
    return both


def seen_gradient(x):
    """Versions of gradients say how often torch's engine summed in place."""
    return [what for i, what in enumerate(seen(x)) if i != 4]


def seen(x):
    """What is exact of a tensor, or of anything else in an optimizer's state."""
    if not isinstance(x, torch.Tensor):
        return type(x), x if not isinstance(x, (dict, list)) else len(x)
    return (type(x), x.dtype, x.shape, x.stride(), x._version, x.requires_grad, x.is_leaf, x._is_view(), x.grad is None)


def close(e, d, atol=1e-6):
    """A few roundings apart: sums of squares and quotients of each element by itself."""
    torch.testing.assert_close(d, e, rtol=2e-5, atol=atol, equal_nan=True)


def compare(eager, ours, atol=1e-6, state_atol=1e-6):
    for (e_params, e_optimizer, _), (d_params, d_optimizer, _) in [(eager, ours)]:
        for e, d in zip(e_params, d_params):
            assert seen(e) == seen(d)
            close(e.detach(), d.detach(), atol)
            if e.grad is not None:
                assert seen_gradient(e.grad) == seen_gradient(d.grad)
                close(e.grad, d.grad)
            e_state, d_state = e_optimizer.state.get(e, {}), d_optimizer.state.get(d, {})
            assert list(e_state) == list(d_state)
            for name in e_state:
                assert seen(e_state[name]) == seen(d_state[name]), name
                if isinstance(e_state[name], torch.Tensor):
                    close(e_state[name], d_state[name], state_atol)
        assert [{k: v for k, v in g.items() if k != "params"} for g in e_optimizer.param_groups] \
            == [{k: v for k, v in g.items() if k != "params"} for g in d_optimizer.param_groups]


def objects(side):
    params, optimizer, _ = side
    return [id(x) for x in params] + [id(v) for p in params for v in optimizer.state.get(p, {}).values()
                                      if isinstance(v, torch.Tensor)]


def steps(both, count=5, skip=(), atol=1e-6):
    before = None
    for k in range(count):
        for side in both:
            gradients(side[0], k, skip)
            side[1].step()
        compare(*both, atol)
        now = objects(both[1])
        assert before in (None, now)
        before = now


FORMS = [{}, {"foreach": True}, {"fused": True}, {"maximize": True}, {"differentiable": True}]
CASES = [(info, k) for info in optim_db for k in range(len(info.optim_inputs_func(device="cpu")))
         if not info.step_requires_closure and not info.only_supports_sparse_grads]


@pytest.mark.parametrize("info, which", CASES, ids=[f"{info.optim_cls.__name__}-{k}" for info, k in CASES])
def test_every_optimizer(info, which):
    given = info.optim_inputs_func(device="cpu")[which].kwargs
    recorded = 0
    for form in FORMS:
        two = [(4, 5), (1, 3), (70, 130)]
        some = [s for s in SHAPES if 0 not in s or info.optim_cls.__name__ != "Adafactor"]  # it divides by their size
        muon = info.optim_cls.__name__ == "Muon"
        make = lambda given_to: info.optim_cls([p for p in given_to if not muon or p.ndim == 2],  # noqa: E731
                                               **{**given, **form})
        params = lambda: parameters(1, shapes=two if muon else some)  # noqa: E731
        try:
            both = sides(make, params)
        except (TypeError, ValueError, RuntimeError):
            continue  # this optimizer has no such form
        errors = []
        for side in sides(make, params):
            try:
                gradients(side[0], 0)
                side[1].step()
            except Exception as error:  # noqa: BLE001
                errors.append((type(error), str(error)))
        if errors:
            assert errors[0] == errors[1] and len(errors) == 2
            continue
        # Muon multiplies in bfloat16: a rounding of f32 before it becomes one of bfloat16. Eager moves by 0.007 lr in
        # five steps when its gradients move by a unit in the last place; a step that is missing moves it by 0.1 lr.
        atol = 5 * float(both[0][1].param_groups[0]["lr"]) / 256 if muon else 1e-6
        steps(both, skip=(1,), atol=atol)
        with contextlib.suppress(TypeError):  # another function steps in this form
            recorded += dycl.stats(both[1][1])["recorded"]
    assert recorded > 0


def test_a_step_is_one_segment_and_one_pass_for_each_parameter():
    both = sides(lambda p: NAdam(p, lr=1e-2), lambda: parameters(3, shapes=[(64, 64), (64,), (128, 64)], plain=True))
    steps(both, 6)
    stats = dycl.stats(both[1][1])
    assert stats["torch"] == 0 and stats["replays"] == 0
    both[1][1].step()
    assert dycl.stats(both[1][1])["segments"] - stats["segments"] == 1
    text = dycl.explain(both[1][1])
    plan = text[text.rindex("tuned plan:") :]
    assert plan.splitlines()[0].split()[2] == "3"


def test_whose_optimizers_step_as_regions(without_training):  # noqa: F811
    def recorded(optimizer):
        gradients(optimizer.param_groups[0]["params"], 0)
        optimizer.step()
        try:
            return dycl.stats(optimizer)["recorded"]
        except TypeError:
            return None

    model = Model(parameters(0))
    optimizer, other = SGD(model.parameters(), lr=0.1), SGD(Model(parameters(0)).parameters(), lr=0.1)
    dycl.accelerate(model)
    assert recorded(optimizer) is None and recorded(other) is None
    assert dycl.accelerate(optimizer) is optimizer  # after it has stepped
    assert recorded(optimizer) and recorded(other) is None
    with dycl.accelerate_all():
        assert recorded(other) is None
    step = dycl.accelerate(lambda: optimizer_of_function.step())
    optimizer_of_function = dycl.accelerate(SGD(Model(parameters(0)).parameters(), lr=0.1))
    gradients(optimizer_of_function.param_groups[0]["params"], 0)
    step()
    assert dycl.stats(step)["recorded"] >= 9
    before = dycl.stats(optimizer)["recorded"]
    with dycl.disable():
        assert recorded(optimizer) == before


def test_nothing_is_kept_of_an_optimizer():
    model = dycl.accelerate(Model(parameters(0)))
    optimizer = dycl.accelerate(Adam(model.parameters()))
    gradients(list(model.all), 0)
    for _ in range(3):
        optimizer.step()
    dead = [weakref.ref(optimizer), weakref.ref(model), weakref.ref(next(iter(optimizer.state.values()))["exp_avg"])]
    del optimizer, model
    gc.collect()
    assert [d() for d in dead] == [None] * 3


def test_what_is_seen_of_the_step_function():
    model = dycl.accelerate(Model(parameters(0)))
    optimizer = dycl.accelerate(Adam(model.parameters()))
    assert vars(optimizer).keys() == vars(Adam([torch.zeros(1)])).keys()
    gradients(list(model.all), 0)
    optimizer.step()
    assert "step" not in vars(optimizer) and type(optimizer).step.__module__ == "torch.optim.adam"
    again = pickle.loads(pickle.dumps(optimizer.state_dict()))
    other = copy.deepcopy(optimizer)
    optimizer.load_state_dict(again)
    assert other.state_dict().keys() == again.keys()


# ---- Memory

def flat(count=4, size=15):
    """Parameters that are pieces of one block, as FSDP and DeepSpeed make them."""
    block = torch.randn(count * size, generator=torch.Generator().manual_seed(5))
    return [torch.nn.Parameter(block[k * size : (k + 1) * size].view(3, 5)) for k in range(count)]


def overlapping():
    block = torch.randn(40, generator=torch.Generator().manual_seed(5))
    return [torch.nn.Parameter(block[:20]), torch.nn.Parameter(block[10:30])]


def one_gradient_for_all():
    params = parameters(2, shapes=[(3, 4), (3, 4)])[:2]
    return params


@pytest.mark.parametrize("make", [lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), lambda p: AdamW(p)],
                         ids=["sgd", "adamw"])
@pytest.mark.parametrize("params", [flat, overlapping], ids=["pieces", "overlapping"])
def test_parameters_in_one_block(make, params):
    both = sides(make, params)
    steps(both)
    stats = dycl.stats(both[1][1])
    assert stats["recorded"] > 0 and (stats["torch"] == 0 or params is overlapping)


@pytest.mark.parametrize("grad", [
    lambda p: p.detach(),  # the parameter's own memory
    lambda p: p.detach().T.contiguous().T,
    lambda p: p.detach().expand_as(p),
    lambda p: torch.ones(()).expand_as(p),
    lambda p: torch.ones(p.shape).to(torch.float32)[...],
], ids=["itself", "strides", "expanded", "one element", "view"])
def test_unusual_gradients(grad):
    both = sides(lambda p: SGD(p, lr=0.1, momentum=0.9), lambda: [torch.nn.Parameter(torch.randn(
        3, 4, generator=torch.Generator().manual_seed(1)))])
    for _ in range(4):
        for params, optimizer, _model in both:
            params[0].grad = grad(params[0])
            optimizer.step()
        for e, d in zip(both[0][0], both[1][0]):
            assert seen(e) == seen(d)
            close(e.detach(), d.detach())


def test_a_shared_gradient_and_one_that_is_state():
    both = sides(lambda p: SGD(p, lr=0.1, momentum=0.9), one_gradient_for_all)
    for k in range(4):
        for params, optimizer, _ in both:
            shared = torch.full((3, 4), 1.0 + k)
            params[0].grad = params[1].grad = shared
            optimizer.step()  # the first momentum buffer is a clone of the gradient
        compare(*both)


def test_memory_that_numpy_sees():
    both = sides(lambda p: Adam(p), lambda: parameters(7))
    arrays = [[p.detach().numpy() for p in side[0]] for side in both]
    for k in range(4):
        for side in both:
            gradients(side[0], k)
            side[1].step()
        for e, d in zip(*arrays):
            numpy.testing.assert_allclose(e, d, rtol=2e-5, atol=1e-6)
    compare(*both)


def test_parameters_of_several_dtypes():
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64)
    for make in (lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: AdamW(p)):
        both = sides(make, lambda: parameters(4, dtypes, [(4, 5), (3,)]))
        for k in range(4):
            for side in both:
                gradients(side[0], k)
                side[1].step()
            for e, d in zip(both[0][0], both[1][0]):
                assert seen(e) == seen(d)
                torch.testing.assert_close(d, e)


def test_sparse_gradients():
    both = sides(lambda p: SGD(p, lr=0.1), lambda: [torch.nn.Parameter(torch.ones(6, 3))])
    for params, optimizer, _ in both * 3:
        params[0].grad = torch.sparse_coo_tensor([[1, 4]], torch.ones(2, 3), (6, 3), check_invariants=True)
        optimizer.step()
    assert torch.equal(both[0][0][0], both[1][0][0]) and both[0][0][0]._version == both[1][0][0]._version


def test_infinities_and_nan():
    both = sides(lambda p: AdamW(p), lambda: parameters(6))
    for k in range(4):
        for params, optimizer, _ in both:
            gradients(params, k)
            params[0].grad[0, 0], params[0].grad[1, 1], params[0].grad[2, 2] = numpy.inf, numpy.nan, 1e30
            optimizer.step()
        compare(*both)


# ---- The program around it

def test_schedulers_groups_and_saved_state():
    def make(params):
        return AdamW([{"params": params[:3]}, {"params": params[3:], "lr": 1e-3, "weight_decay": 0.0}], lr=1e-2)

    both = sides(make, lambda: parameters(8))
    schedulers = [lr_scheduler.OneCycleLR(side[1], max_lr=0.1, total_steps=12) for side in both]
    for k in range(8):
        for side, scheduler in zip(both, schedulers):
            gradients(side[0], k)
            side[1].step()
            scheduler.step()
            if k == 3:
                side[1].load_state_dict(copy.deepcopy(side[1].state_dict()))
            if k == 5:
                side[1].add_param_group({"params": [torch.nn.Parameter(torch.ones(3))]})
                schedulers = [lr_scheduler.ConstantLR(s[1]) for s in both] if side is both[1] else schedulers
        compare(*both)


def test_hooks_look_at_what_was_stepped():
    both, logs = sides(lambda p: Adam(p), lambda: parameters(9)), ([], [])
    for (params, optimizer, _), log in zip(both, logs):
        optimizer.register_step_pre_hook(lambda o, a, k, p=params, log=log: log.append(p[0].sum().item()))
        optimizer.register_step_post_hook(lambda o, a, k, p=params, log=log: log.append(p[0].detach().numpy().sum()))
        for k in range(4):
            gradients(params, k)
            optimizer.step()
            log.append(params[0].sum().item())
    close(*(torch.tensor(log, dtype=torch.float32) for log in logs))
    compare(*both)


def losses_by_closure(both):
    """What four steps with a closure answer, of each side."""
    losses = ([], [])
    for (params, optimizer, _), log in zip(both, losses):
        def closure(params=params, optimizer=optimizer):
            optimizer.zero_grad()
            loss = sum((p * p).sum() for p in params)
            loss.backward()
            return loss

        for _ in range(4):
            log.append(optimizer.step(closure).item())
    return [torch.tensor(log) for log in losses]


def test_a_closure_is_the_program():
    both = sides(lambda p: SGD(p, lr=0.05), lambda: parameters(9))
    close(*losses_by_closure(both))
    compare(*both)


def test_clipping_averaging_and_scaling():
    from torch.optim.swa_utils import AveragedModel

    both = sides(lambda p: SGD(p, lr=0.1, momentum=0.9), lambda: parameters(10))
    averages = [AveragedModel(side[2]) for side in both]
    scalers = [torch.amp.GradScaler("cpu", init_scale=4.0) for _ in both]
    for k in range(5):
        norms = []
        for (params, optimizer, model), average, scaler in zip(both, averages, scalers):
            optimizer.zero_grad(set_to_none=k % 2 == 0)
            loss = sum((p.sin() * (1 + k)).sum() for p in params)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norms.append(torch.nn.utils.clip_grad_norm_(params, 1.0))
            scaler.step(optimizer)
            scaler.update()
            average.update_parameters(model)
        close(*norms)
        compare(*both)
        for e, d in zip(averages[0].parameters(), averages[1].parameters()):
            close(e.detach(), d.detach())


def test_errors_leave_what_was_done_before_them():
    both = sides(lambda p: SGD(p, lr=0.1, momentum=0.9), lambda: parameters(11, shapes=[(3, 4), (3,), (2, 2)]))
    steps(both, 3)
    texts = []
    for params, optimizer, _ in both:
        gradients(params, 5)
        optimizer.state[params[1]]["momentum_buffer"] = torch.ones(7)
        with pytest.raises(RuntimeError) as caught:
            optimizer.step()
        texts.append(str(caught.value))
        optimizer.state[params[1]]["momentum_buffer"] = torch.ones(3)
    assert texts[0] == texts[1]
    compare(*both)
    steps(both, 3)


def test_parameters_that_need_no_writing():
    both = sides(lambda p: SGD(p, lr=0.1), lambda: parameters(12))
    for params, optimizer, _ in both:
        for p in params:
            p.grad = None
        optimizer.step()
    compare(*both)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, contextlib.nullcontext, torch.inference_mode])
def test_modes(mode):
    both = sides(lambda p: Adam(p), lambda: parameters(13))
    steps(both, 2)
    errors = []
    for k in range(3):
        for params, optimizer, _ in both:
            gradients(params, k)
            with mode():
                try:
                    optimizer.step()
                    errors.append(None)
                except RuntimeError as error:
                    errors.append(str(error))
    assert errors[::2] == errors[1::2]
    if mode is not torch.inference_mode:
        compare(*both)


class Own(SGD):
    """Somebody's optimizer: its step is not torch's."""

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            with torch.no_grad():
                p.add_(p.grad, alpha=-1.0)
        return super().step()


def test_an_optimizer_of_ones_own():
    both = sides(lambda p: Own(p, lr=0.1), lambda: parameters(14))
    for k in range(4):
        for side in both:
            gradients(side[0], k)
            side[1].step()
        compare(*both)


def test_functions_that_train():
    both = sides(lambda p: AdamW(p), lambda: parameters(15))
    functions = []
    for params, optimizer, _ in both:
        def train(params=params, optimizer=optimizer):
            optimizer.zero_grad()
            loss = sum((p.cos() * p).sum() for p in params)
            loss.backward()
            optimizer.step()
            return params[0] * 2, loss.item()

        functions.append(train)
    functions[1] = dycl.accelerate(functions[1])
    for _ in range(12):
        (e, e_loss), (d, d_loss) = (f() for f in functions)
        close(e.detach(), d.detach())
        assert abs(e_loss - d_loss) < 1e-4
        compare(*both)

    def average(params, others):  # a step between what is recorded
        total = [p * 2 for p in params]
        others.step()
        return [t + p for t, p in zip(total, params)]

    ours = dycl.accelerate(average)
    for k in range(4):
        for (params, optimizer, _), function in zip(both, (average, ours)):
            gradients(params, k)
            with torch.no_grad():
                functions[function is ours] = function(params, optimizer)
        for e, d in zip(*functions):
            close(e, d)
        compare(*both)


def test_models_that_train_in_threads():
    results = {}

    def train(key, accelerated):
        model = Model(parameters(key))
        optimizer = AdamW(model.parameters())
        if accelerated:
            dycl.accelerate(model), dycl.accelerate(optimizer)
        for k in range(30):
            gradients(list(model.all), k)
            optimizer.step()
        results[key, accelerated] = [p.detach().clone() for p in model.all]

    threads = [threading.Thread(target=train, args=(key, a)) for key in range(4) for a in (False, True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for key in range(4):
        for e, d in zip(results[key, False], results[key, True]):
            close(e, d)


def test_inference_after_a_step_sees_the_new_weights():
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    dycl.accelerate(models[1])
    optimizers = [Adam(m.parameters(), lr=0.05) for m in models]
    dycl.accelerate(optimizers[1])
    x = torch.randn(8, 16)
    for _ in range(6):
        for m, o in zip(models, optimizers):
            o.zero_grad()
            m(x).square().mean().backward()
            o.step()
        with torch.no_grad():
            for _ in range(3):  # weights are packed once they stay
                torch.testing.assert_close(models[1](x), models[0](x), rtol=1e-4, atol=1e-5)


# ---- What may be computed in place (csrc/exec/tile/in_place.c), and what only beside it

REPLACING = {
    "read after it was written": lambda a, b: (a.mul_(2), b.add_(a)),
    "both from both": lambda a, b: (lambda s: (a.copy_(b * 2), b.copy_(s)))(a + 1),
    "exchanged": lambda a, b: (lambda s, t: (a.copy_(t), b.copy_(s)))(a * 1.5, b * 0.5),
    "turned": lambda a, b: (a.copy_(a.T * 2), b.add_(1)),
    "rows from others": lambda a, b: (a.add_(a[:1] * 2), b.mul_(a[:, :1])),
    "sums of itself": lambda a, b: (a.sub_(a.mean(0)), b.div_(b.sum())),
    "a product with itself": lambda a, b: (a.copy_(a @ b), b.copy_(a @ a)),
    "softmax of itself": lambda a, b: (a.copy_(a.softmax(-1)), b.copy_(b.cumsum(0))),
    "the old value is kept": lambda a, b: (lambda old: (a.add_(1), b.copy_(old)))(a.clone()),
    "a result of the old and the new": lambda a, b: (lambda old: (a.mul_(3), b.copy_(old + a)))(a * 1.0),
    "gathered": lambda a, b: (a.copy_(a.flip(0) + 1), b.copy_(b.roll(1, 1) * 2)),
    "twice": lambda a, b: (a.add_(b), b.add_(a), a.mul_(b), b.sub_(a)),
    "its own transpose": lambda a, b: (a.add_(a.t() * 1), b.mul_(0.5).add_(b.t() * 1.5)),
    "its own first row": lambda a, b: (a.sub_(a[:1] * 2), b.add_(torch.cat((b[1:], b[:1])))),
    "a function of itself and its transpose": lambda a, b: (a.copy_((a.t().exp() - a).tanh()), b.add_(a.t() * b.t())),
}


@pytest.mark.parametrize("name, size", [(name, size) for name in REPLACING for size in (5, 96, 300)
                                        if size < 300 or "product" not in name])  # whose rounding grows with the size
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_written_is_not_read_again(name, size, threads):
    def program(a, b):
        with torch.no_grad():
            REPLACING[name](a, b)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    ours = _core.site(program, None, 0, True)
    dycl.accelerate(program)
    generator = torch.Generator().manual_seed(1)
    start = [torch.randn(size, size, generator=generator) for _ in range(2)]
    for _ in range(4):
        pairs = [[x.clone() for x in start] for _ in range(2)]
        for function, pair in zip((program, ours), pairs):
            function(*pair)
        for e, d in zip(*pairs):
            torch.testing.assert_close(d, e, rtol=1e-4, atol=1e-4)
            assert e._version == d._version
    assert dycl.stats(ours)["torch"] == 0
    torch.set_num_threads(before)
