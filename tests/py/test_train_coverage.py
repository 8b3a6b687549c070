"""What transformers' families leave to torch where they train: the small models of families.py, and decoders whose last
layer has the weights of the first (GPT-2 as it comes). Compared with eager are losses and gradients over some steps;
and nothing is left to torch but what is listed, no segment runs operator by operator there."""

import copy
import inspect
import warnings

import families
import pytest
import torch

import dycl
from suite import one_thread, tensors_of  # noqa: F401 (a fixture)
from test_models import compare

STEPS = 4

# What torch has to run in the last step, by case: nothing may be added to any other case.
LEFT = {
    "nn.LSTM, projection": 1,  # torch warns about them
}

SHARED = {
    name: families.Case(families.transformer(model, config, **{**families.DECODER, **more}), families.tokens(64, 2, 9))
    for name, model, config, more in (
        ("Llama, shared weights", "LlamaForCausalLM", "LlamaConfig", {"tie_word_embeddings": True}),
        ("Qwen 3", "Qwen3ForCausalLM", "Qwen3Config", {"tie_word_embeddings": True, "head_dim": 8}),
        ("Gemma", "GemmaForCausalLM", "GemmaConfig", {"head_dim": 8}),
        ("StableLM", "StableLmForCausalLM", "StableLmConfig", {}),
    )
}
CASES = {**{name: case for name, case in families.CASES.items() if case.generate is None}, **SHARED}


def loss_of(model, inputs):
    found = model(**inputs)
    if getattr(found, "loss", None) is not None:
        return found.loss
    return next(t for t in tensors_of(dict(found) if isinstance(found, dict) else found)
                if t.requires_grad).square().mean()


@pytest.mark.parametrize("name", CASES)
def test_training(name):
    case = CASES[name]
    torch.manual_seed(families.SEED)
    module, inputs = case.build().train(), case.inputs()
    takes = inspect.signature(module.forward).parameters
    if "labels" in takes and "input_ids" in inputs:
        rows = inputs["input_ids"]
        inputs["labels"] = rows[:, 0] % 2 if "Classification" in type(module).__name__ else \
            inputs.get("decoder_input_ids", rows).clone()
    copied = copy.deepcopy(module)
    model = dycl.accelerate(copied)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(STEPS):
            before = dycl.stats(model)["torch"] if step else 0
            losses = []
            for each, run in ((module, module), (copied, model)):
                each.zero_grad()
                torch.manual_seed(step)  # dropout, and layers that are left out at random
                losses.append(loss_of(run, inputs))
                losses[-1].backward()
            compare(losses[0].detach(), losses[1].detach(), f"{name}, step {step}")
            for (key, a), b in zip(module.named_parameters(), copied.parameters(), strict=True):
                assert (a.grad is None) == (b.grad is None), key
                if a.grad is not None:  # sums of some thousand terms that cancel
                    worst, size = (a.grad - b.grad).abs().max(), a.grad.abs().max()
                    assert worst <= 3e-4 * size + 1e-6, (step, key, worst, size)
    stats = dycl.stats(model)
    assert stats["replays"] == stats["backward_replays"] == 0, dycl.explain(model)
    assert stats["torch"] - before == LEFT.get(name, 0), dycl.explain(model)
