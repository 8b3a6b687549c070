"""Generation of models that were loaded in bfloat16: eager, recorded, and the float32 model with precision="bf16".

    python -m benchmarks.half [--only llama,gpt2] [--tokens 32] [--rounds 15] [--threads 2]

The rounds interleave; milliseconds a token, minima and medians over the rounds, four of which come before for warming
up.
"""

import argparse
import copy
import statistics
import time

import torch

import dycl

from .workloads import generation

MODELS = {"llama": generation.llama, "gpt2": generation.gpt2}
WARM_UP = 4


def variants(model):
    half = copy.deepcopy(model).to(torch.bfloat16)
    made = {"eager": half, "recorded": dycl.accelerate(copy.deepcopy(half))}
    try:
        made['precision="bf16"'] = dycl.accelerate(copy.deepcopy(model), precision="bf16")
    except RuntimeError:  # the processor has no instructions for it
        pass
    return made


def measure(name, tokens, rounds):
    """Seconds a token of each round, by variant."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    model.generation_config.eos_token_id = None
    prompt = torch.randint(3, 1000, (1, 16))
    options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": tokens, "do_sample": False,
               "pad_token_id": 0}
    models = variants(model)
    times = {variant: [] for variant in models}
    for _ in range(rounds + WARM_UP):
        for variant, each in models.items():
            began = time.perf_counter()
            with torch.no_grad():
                each.generate(prompt, **options)
            times[variant].append((time.perf_counter() - began) / tokens)
    return {variant: all_of[WARM_UP:] for variant, all_of in times.items()}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.half", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| model | | minimum, ms | median, ms | eager / it, minima |\n|---|---|---:|---:|---:|")
    for name in options.only.split(","):
        times = measure(name, options.tokens, options.rounds)
        for variant, each in times.items():
            print(f"| {name} | {variant} | {1e3 * min(each):.2f} | {1e3 * statistics.median(each):.2f} "
                  f"| {min(times['eager']) / min(each):.2f}x |")


if __name__ == "__main__":
    main()
