"""Methods of an accelerated module that torch.no_grad decorates: a call is one region, and nothing else about them
changes."""

import copy
import gc
import inspect
import pickle
import types
import weakref

import dycl
import pytest
import torch
from same import compare
from torch import nn

from dycl import _core


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

    @torch.no_grad()
    def loop(self, x, steps: int = 3):
        """Runs the model several times."""
        for _ in range(steps):
            x = self(x) + x
            if x.sum() > 1e6:
                break
        return x

    @torch.no_grad
    def without_parentheses(self, x):
        return self(x) * 2

    @torch.inference_mode()
    def inferred(self, x):
        return self(x) * 2

    @torch.enable_grad()
    def graded(self, x):
        return self(x) * 2

    def plain(self, x):
        return self(x) * 2

    @torch.no_grad()
    def pieces(self, x):
        for i in range(3):
            yield self(x) + i

    @classmethod
    @torch.no_grad()
    def of_class(cls, x):
        return x * 2

    @property
    @torch.no_grad()
    def bias(self):
        return self.first.bias * 2


class Below(Model):
    @torch.no_grad()
    def loop(self, x, steps=2):
        return super().loop(x, steps) - 1


@pytest.fixture
def model():
    return dycl.accelerate(Model())


@pytest.fixture
def x():
    return torch.randn(2, 6)


def fresh(model):
    return copy.deepcopy(model)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("cls, name", [(Model, "loop"), (Model, "without_parentheses"), (Below, "loop")])
def test_a_call_is_one_region(cls, name, grad, x):
    model = dycl.accelerate(cls())
    plain = fresh(model)
    with torch.set_grad_enabled(grad):
        for _ in range(3):
            want, got = getattr(plain, name)(x), getattr(model, name)(x)
            compare(want, got, name, "matmul")
            assert torch.is_grad_enabled() == grad
    stats = dycl.stats(model)
    assert stats["calls"] == 3 and stats["recorded"] > 0 and stats["torch"] == 0, stats
    assert f"method {name}" in dycl.explain(model)
    assert dycl.stats(getattr(model, name)) == {**stats, "packed_bytes": dycl.stats(model)["packed_bytes"],
                                                "plans": dycl.stats(model)["plans"],
                                                "plain_nested": dycl.stats(getattr(model, name))["plain_nested"],
                                                "plain_calls": dycl.stats(getattr(model, name))["plain_calls"]}


@pytest.mark.parametrize("name", ["inferred", "graded", "plain", "of_class", "__call__", "forward", "train"])
def test_other_methods_are_what_they_were(name, model):
    assert getattr(model, name) == types.MethodType(getattr(Model, name), model) or name == "of_class"
    assert inspect.isfunction(getattr(model, name).__func__)


def test_results_of_other_methods(model, x):
    plain = fresh(model)
    with torch.no_grad():
        compare([*plain.pieces(x)], [*model.pieces(x)], "pieces", "matmul")
        compare(plain.bias, model.bias, "bias", "matmul")
        compare(plain.plain(x), model.plain(x), "plain", "matmul")
    compare(plain.inferred(x), model.inferred(x), "inferred", "matmul")
    want, got = plain.graded(x), model.graded(x)
    torch.testing.assert_close(got, want)
    got.sum().backward()
    assert model.first.weight.grad is not None


def test_it_looks_like_a_method(model):
    method = model.loop
    assert type(method) is types.MethodType and inspect.ismethod(method) and callable(method)
    assert method.__self__ is model and method == model.loop and hash(method) == hash(model.loop) \
        and method != model.without_parentheses
    assert method.__name__ == "loop" and method.__doc__ == "Runs the model several times." \
        and method.__qualname__ == "Model.loop" and method.__module__ == __name__
    assert inspect.signature(method) == inspect.signature(Model().loop) and method.__wrapped__ is Model.loop
    assert Model.loop is Model.__dict__["loop"] and not hasattr(Model.loop, "_options")
    assert "loop" not in vars(model) and set(vars(model)) - set(vars(Model())) <= {"_compiled_call_impl"}
    assert Model().loop.__func__ is Model.loop  # of an instance that is not accelerated


def test_an_attribute_of_the_instance_goes_first(model, x):
    model.loop = lambda x: "mine"
    assert model.loop(x) == "mine"
    del model.loop
    assert torch.is_tensor(model.loop(x))


def test_a_replaced_method_is_taken(x):
    class Local(Model):
        pass

    model = dycl.accelerate(Local())
    model.loop(x)
    Local.loop = torch.no_grad()(lambda self, x: "new")
    assert model.loop(x) == "new"
    Local.loop = lambda self, x: "newer"
    assert model.loop(x) == "newer" and inspect.isfunction(model.loop.__func__)


def test_copies_and_pickles_are_plain(model, x):
    want = model.loop(x)
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert inspect.isfunction(other.loop.__func__)
        torch.testing.assert_close(other.loop(x), want)
    again = pickle.loads(pickle.dumps(model.loop))
    assert again.__name__ == "loop" and again.__self__ is not model
    torch.testing.assert_close(again(x), want)


def test_errors_and_frames(model, x):
    def error_of(method):
        with pytest.raises(TypeError) as caught:
            method(x, 1, 2, 3)
        return str(caught.value)

    assert error_of(model.loop) == error_of(fresh(model).loop)

    def frames(method):
        with pytest.raises(RuntimeError) as caught:
            method(torch.randn(2, 7))
        return [(f.frame.code.name) for f in caught.traceback][:4], str(caught.value)

    assert frames(model.loop)[1] == frames(fresh(model).loop)[1]
    assert frames(model.loop)[0][:3] == frames(fresh(model).loop)[0][:3]


def test_disabled_and_nested(model, x):
    want = fresh(model).loop(x)
    with dycl.disable():
        assert torch.equal(model.loop(x), want)
    assert dycl.stats(model)["calls"] == 0

    @dycl.accelerate
    def outer(x):
        assert inspect.isfunction(model.loop.__func__)
        return model.loop(x)

    with torch.no_grad():
        torch.testing.assert_close(outer(x), want)
    assert dycl.stats(outer)["calls"] == 1 and dycl.stats(model)["calls"] == 0


def test_options_are_the_models(x):
    model = dycl.accelerate(Model(), pack=False)
    for _ in range(4):
        model.loop(x)
    assert model.loop.__func__._options == model._compiled_call_impl._options != 0
    dycl.accelerate(model)
    assert model.loop.__func__._options == 0


def test_the_model_dies():
    model = dycl.accelerate(Model())
    model.loop(torch.randn(2, 6))
    weak = weakref.ref(model)
    enabled = gc.isenabled()
    gc.disable()
    del model
    assert weak() is None  # at once: no cycle holds it
    if enabled:
        gc.enable()


def generation_model():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(11)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=9000, n_positions=64)).eval()
    model.generation_config.pad_token_id = 0
    return model


MODES = {
    "greedy": {},
    "stops early": {"eos_token_id": list(range(3000))},
    "scores": {"output_scores": True, "output_logits": True, "return_dict_in_generate": True},
    "hidden states": {"output_hidden_states": True, "output_attentions": True, "return_dict_in_generate": True},
    "sampled": {"do_sample": True, "top_k": 40, "temperature": 0.8},
    "beams": {"num_beams": 3},
    "processors": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 4},
    "batch": {"rows": 3},
    "without a cache": {"use_cache": False},
    "from scores": {"stopping_criteria": True},
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_generation(mode, grad):
    plain = generation_model()
    model = dycl.accelerate(copy.deepcopy(plain))
    options = dict(MODES[mode])
    prompt = torch.randint(1, 9000, (options.pop("rows", 1), 7))
    seen = []
    if options.get("stopping_criteria"):
        options["stopping_criteria"] = [lambda ids, scores: torch.full((ids.shape[0],), ids.shape[1] > 12,
                                                                       dtype=torch.bool)]

    def run(which, call):
        torch.manual_seed(call)
        seen.append(which)
        return which.generate(prompt + call, attention_mask=torch.ones_like(prompt), max_new_tokens=8,
                              **{"do_sample": False, **options})

    with torch.set_grad_enabled(grad):
        for call in range(4):
            want, got = run(plain, call), run(model, call)
            assert torch.is_grad_enabled() == grad
            if isinstance(want, torch.Tensor):
                assert torch.equal(want, got), (call, want, got)
                continue
            assert torch.equal(want.sequences, got.sequences)
            for name in ("scores", "logits", "hidden_states", "attentions"):
                if want.get(name) is not None:
                    compare(want[name], got[name], name, "matmul")
    stats = dycl.stats(model)
    assert stats["calls"] == 4 and stats["recorded"] > 500, stats
    if mode == "greedy":
        # without a kernel that prefilters, the product is computed at once
        postponed = stats["postponed"] >= 20 or _core.info()["isa"] == "scalar"
        assert postponed and stats["recalled"] == 0 and stats["torch"] == 0, stats
