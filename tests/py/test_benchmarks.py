"""The benchmark: its programs of many calls and what other libraries make of them, its limits, and what its tables are
made of."""

import importlib
import pathlib
import random
import sys

import dycl
import numpy
import pytest
import torch

from suite import FULL

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
peers = importlib.import_module("benchmarks.peers")
workloads = importlib.import_module("benchmarks.workloads")
generation = importlib.import_module("benchmarks.workloads.generation")
decoding = importlib.import_module("benchmarks.decoding")
limit = importlib.import_module("benchmarks.limit")
report = importlib.import_module("benchmarks.report")
timing = importlib.import_module("benchmarks.timing")
slices = importlib.import_module("benchmarks.slices")
operators = importlib.import_module("benchmarks.operators")
operator_rows = importlib.import_module("benchmarks.operator_rows")


def small():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=1000, n_positions=64))


def test_names():
    assert len(workloads.BY_NAME) == len(workloads.WORKLOADS) and {"gpt2-generate", "llama-generate",
                                                                   "mixtral-generate", "t5-generate", "convnext",
                                                                   "swin"} <= set(workloads.BY_NAME)


def test_a_program_of_many_calls():
    torch.manual_seed(0)
    program, prompts = generation.generation(small, 5, 7)()
    program.eval()
    with torch.no_grad():
        expected = program(prompts[0])
        assert expected.shape == (1, 12) and peers.model_of(program) is program.model
        accelerated = peers.dycl(program, prompts[0], 2)
        assert accelerated is program and torch.equal(program(prompts[0]), expected)
        assert dycl.stats(program.model)["calls"] == 1  # of generate
        with pytest.raises(TypeError, match="program of many calls"):
            peers.BY_NAME["jit"].prepare(program, prompts[0], 2)


def encoder_and_decoder():
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(vocab_size=1000, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4,
                                               decoder_start_token_id=0))


@pytest.mark.parametrize("make", [small] + [encoder_and_decoder] * FULL)
@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_exported_steps_make_the_same_tokens(library, make):
    """Also for a prompt of another length than the one that it was exported with, and again after another prompt."""
    for needed in (library, "onnxscript") if library == "onnxruntime" else (library,):
        pytest.importorskip(needed)
    torch.manual_seed(0)
    program, prompts = generation.generation(make, 9, 6)()
    program.eval()
    with torch.no_grad():
        prompts.append(torch.randint(3, 1000, (1, 5)))
        prompts.append(prompts[0])
        expected = [program(prompt).numpy() for prompt in prompts]
        call = peers.BY_NAME[library].prepare(program, prompts[0], 2)
        got = [call(prompt) for prompt in prompts]
    assert timing.difference(expected, got) == 0.0


def test_the_greedy_loop():
    """A backend that counts: what goes into each step, behind how many others, and what comes out."""
    seen = []

    class Backend:
        def begin(self, ids):
            seen.append(("begin", ids.tolist()))

        def step(self, ids, before):
            seen.append((ids.tolist(), before))
            logits = numpy.zeros((1, ids.shape[1], 50), numpy.float32)
            logits[0, -1, ids[0, -1] + 1] = 1
            return logits

    program = torch.nn.Module()
    program.tokens, program.model = 3, torch.nn.Module()
    program.model.config = type("Config", (), {"is_encoder_decoder": False, "decoder_start_token_id": 7})
    call = decoding.greedy(program, Backend())
    assert call(torch.tensor([[5, 9]])).tolist() == [[5, 9, 10, 11, 12]]
    assert seen == [("begin", [[5, 9]]), ([[5, 9]], 0), ([[10]], 2), ([[11]], 3)]
    program.model.config.is_encoder_decoder = True
    seen.clear()
    found = decoding.greedy(program, Backend())(torch.tensor([[5, 9]]))
    assert found.tolist() == [[7, 8, 9, 10]] and found.dtype == numpy.int64
    assert seen == [("begin", [[5, 9]]), ([[7]], 0), ([[8]], 1), ([[9]], 2)]


def test_other_tokens_are_wrong():
    """A token next to the right one is no rounding."""
    for name in ("gpt2-generate", "llama-generate", "mixtral-generate", "t5-generate"):
        result = timing.Result("peer")
        want = numpy.array([[50000, 50001]])
        timing.judge(result, [want], {"outputs": [want + [0, 1]]}, workloads.BY_NAME[name].tolerance,
                     "the first result")
        assert result.state == "wrong"


def test_weights_read_by_a_program():
    torch.manual_seed(0)
    program, prompts = generation.generation(small, 5, 7)()
    program.eval()
    with torch.no_grad():
        work = limit.work(program, program.model, prompts)
    matrices = sum(p.numel() for name, p in program.model.named_parameters() if "wte" not in name and "wpe" not in name)
    # the embedding's own rows are few, the head's weight is the same tensor
    head = program.model.transformer.wte.weight.numel()
    assert work["steps"] == 7
    assert 4 * (matrices + head) <= work["step_bytes"] <= 4 * (matrices + head) + 4 * 2 * 5 * 32
    assert 7 * 4 * (matrices + head) <= work["bytes"] <= 7 * work["step_bytes"]
    assert limit.needed(work, True)["kind"] == limit.READ and limit.needed(work, False) is None


def test_experts_without_rows_are_not_read():
    class Mixture(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = torch.nn.Parameter(torch.randn(4, 8, 16))

        def forward(self, x):
            return torch._grouped_mm(x, self.experts, offs=torch.tensor([0, 2, 2, 3], dtype=torch.int32))

    model = Mixture()
    with torch.no_grad():
        assert limit.work(model, model, [torch.randn(3, 8)])["bytes"] == 4 * 8 * 16 * 4 / 2


def test_products_of_a_model():
    """As torch's own counter counts them (to 2.14 it leaves out the CPU's attention: two products more); each
    implementation gives the same numbers."""
    from torch.utils.flop_counter import FlopCounterMode

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(4, 16, 3, stride=2, padding=1, groups=2)
            self.linear = torch.nn.Linear(16, 24, bias=False)

        def forward(self, x):
            x = self.linear(self.conv(x).flatten(2).transpose(1, 2))
            q = x.view(1, -1, 3, 8).transpose(1, 2)
            return torch.nn.functional.scaled_dot_product_attention(q, q, q) + (q @ q.transpose(2, 3)) @ q

    torch.manual_seed(0)
    model, inputs = Model().eval(), [torch.randn(1, 4, 10, 12)]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*inputs)
    with torch.no_grad():
        work = limit.work(model, model, inputs)
        attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        counted = attention in counter.get_flop_counts()["Global"]
        assert work["flop"] == counter.get_total_flops() + (0 if counted else 2 * 3 * 30 * 30 * (8 + 8))
        assert sorted(key[0] for key, _ in work["products"]) == ["attention", "bmm", "bmm", "conv", "mm"]
        for key, _ in work["products"]:
            found = limit.implementations(key)
            results = [call() for call in found.values()]
            assert len(results) >= 2
            if key[0] in ("mm", "conv"):
                for result in results[1:]:
                    torch.testing.assert_close(result, results[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_loops_read_all_and_multiply(threads):
    loops = limit.Machine(threads)
    for count in (1, 1000, 4096 * 8, 123457):
        memory = limit.aligned(count)
        memory[-1] = 3.0
        loops.sum.value = 0
        assert loops.read(memory) >= 0 and loops.sum.value == count + 2
    assert loops.multiply_adds(0.01) > 1e8


def result(name, milliseconds, state="right", **more):
    return timing.Result(name, state=state, blocks=[[1e6 * milliseconds] * 3], **more)


def test_steady_state_is_found():
    found = result("peer", 10, ends=[2.0, 2.5, 2.52, 2.58, 2.6, 2.62, 2.64], inputs=2)
    assert found.settled_s == 2.5  # one slow round after it is noise: the median of three counts
    assert result("peer", 10, ends=[2.0, 2.5, 3.0], inputs=2).settled_s is None
    assert result("peer", 10, ends=[2.0, 2.02, 2.04], inputs=1).settled_s is None
    assert result("peer", 10).settled_s is None


def test_scaling_and_limit_in_the_tables():
    workload = workloads.BY_NAME["bert"]
    two = {"eager": result("eager", 60), "dycl": result("dycl", 40, ends=[0.3, 0.34, 0.38, 0.42]),
           "inductor": result("inductor", 50, ends=[30.0, 30.05, 30.1, 30.15]),
           "openvino": result("openvino", 42), "jit": result("jit", 30, state="wrong"),
           "limit": result("limit", 38, state="limit", reason=limit.PRODUCTS)}
    one = {"eager": result("eager", 100), "dycl": result("dycl", 72), "inductor": result("inductor", 60),
           "openvino": result("openvino", 80), "jit": result("jit", 60)}
    found, best = report.scaling(two, one)
    assert best == "openvino" and "jit" not in found and found["dycl"] == 1.8 and round(found["openvino"], 3) == 1.905
    told = report.summary(workload, two)
    assert told["best_peer"] == "openvino" and round(told["dycl_to_limit_median"], 3) == 1.053
    assert told["steady_s"] == 0.3 and told["steady_of_inductor_s"] == 30.0
    run = {"machine": {"cpu": "x", "cpus": 2, "python": "3", "system": "y"}, "threads": 2, "versions": {},
           "limit": {"error": "no compiler"},
           "plan": {"rounds": 3, "starts": 1, "patience": 180.0}, "results": [(workload, two)],
           "scaling": {"bert": one}}
    text = report.markdown(run)
    assert "1.05 of 38 ms" in text and "| 0.3 / 30 |" in text
    assert "| 1.67x | 1.8x | 1.2x | - | 1.9x | openvino | no |" in text
    assert report.as_json(run)["workloads"]["bert"]["scaling"]["dycl"] == 1.8


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


def test_slices_alternate_and_their_ratio_has_an_interval():
    rng = random.Random(0)
    ours, theirs = slices.compare(workloads.BY_NAME["chain-small"], "eager", 1, 0.3, rng)
    assert len(ours) == len(theirs) >= 3 and min(ours + theirs) > 0
    same = [[1.1 * rng.uniform(0.8, 1.25) for _ in range(400)] for _ in range(4)]
    middle, low, high = slices.interval(same, rng)
    assert low < middle < high and low < 1.13 and high > 1.08 and high - low < 0.1
    apart = [[k * ratio for ratio in ratios] for k, ratios in zip((0.9, 0.97, 1.03, 1.1), same)]
    middle, wide_low, wide_high = slices.interval(apart, rng)
    assert wide_high - wide_low > 2 * (high - low)  # four starts that differ say less than four that agree
    assert slices.interval([[0.9, 0.9], [0.9]], rng) == (0.9, 0.9, 0.9)


@pytest.mark.parametrize("shape", operators.SHAPES)
def test_operators_are_of_all_shapes(shape):
    rows = operator_rows.rows(operators.SHAPES[shape])
    assert len(rows) > 150 and ("conv2d" in rows) == (len(operators.SHAPES[shape]) == 4)
    for name, (function, x) in rows.items():
        assert function(x).numel() > 0, name
    assert set(rows) <= set(operator_rows.names()) and len(operator_rows.names()) == len(set(operator_rows.names()))


def test_operators_alone():
    """Both passes of both are timed, of what has no gradient one; what is slower by more than a call's own time is
    found."""
    x = torch.rand(64, 64)
    row = operators.measure("mul", lambda x: x * 2, x, "64x64", 0.0)
    assert len(row.ours) == len(row.eager) == 2 and min(row.ours + row.eager) > 0 and row.torch == 0
    assert operators.measure("eq", lambda x: x == 2, x, seconds=0.0).ratios[1] is None
    row.ours, row.eager = [100.0, 1.0], [50.0, 0.5]
    assert row.ratios == (0.5, 0.5, 0.5) and row.slower(0.97) == [(0.5, "mul 64x64 forward")]
    assert not row.slower(0.5) and str(row).startswith("| mul | 64x64 | 0.50 | 0.50 | 0.50 | 100 + 1 | 50 + 0 | 0 |")
