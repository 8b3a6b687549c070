"""The benchmark's programs of many calls: what a tool is given, and that the clearest prompts are taken."""

import importlib
import pathlib
import sys

import dycl
import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
peers = importlib.import_module("benchmarks.peers")
workloads = importlib.import_module("benchmarks.workloads")
generation = importlib.import_module("benchmarks.workloads.generation")


def small():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=1000, n_positions=64))


def test_names():
    assert len(workloads.BY_NAME) == len(workloads.WORKLOADS) and {"gpt2-generate", "llama-generate", "mixtral-generate", "t5-generate", "convnext", "swin"} <= set(workloads.BY_NAME)


def test_a_program_of_many_calls():
    torch.manual_seed(0)
    program, prompts = generation.generation(small, 5, 7)()
    program.eval()
    with torch.no_grad():
        expected = program(prompts[0])
        assert expected.shape == (1, 12) and peers.model_of(program) is program.model
        accelerated = peers.dycl(program, prompts[0], 2)
        assert accelerated is program and torch.equal(program(prompts[0]), expected)
        assert dycl.stats(program.model)["calls"] == 7
        for name in ("jit", "onnxruntime", "openvino"):
            with pytest.raises((TypeError, ImportError)):
                peers.BY_NAME[name].prepare(program, prompts[0], 2)


def test_one_call_is_given_whole():
    model = workloads.transformer.Only(torch.nn.Linear(2, 2), "logits")
    assert peers.model_of(model) is model and peers.one_call(model) is model


def test_clearest_prompts():
    torch.manual_seed(0)
    program, _ = generation.generation(small, 5, 7)()
    program.eval()

    def lead(prompt):
        scores = torch.stack(program.program(prompt, output_scores=True, return_dict_in_generate=True).scores)
        best = scores.topk(2).values
        return float((best[..., 0] - best[..., 1]).min())

    chosen = generation.clearest(program)
    others = [torch.randint(3, 1000, (1, 5)) for _ in range(generation.PROBED)]
    assert len(chosen) == generation.PROMPTS and min(map(lead, chosen)) > sorted(map(lead, others))[len(others) // 2]
