"""Generation: a program of many calls of a model, with a cache that grows. What a tool takes is the model; the loop
around it is transformers'.

Tokens are what is compared, and no other is right; so the inputs are those whose choices are clear: rounding must not
decide between two tokens."""

import torch
from torch import nn

from .workload import Workload

PROMPTS = 2
PROBED = 8


class Generate(nn.Module):
    def __init__(self, model, tokens):
        super().__init__()
        self.model = model
        self.tokens = tokens
        model.generation_config.eos_token_id = None  # every call makes as many tokens

    def program(self, prompt, **more):
        mask = torch.ones_like(prompt)
        return self.model.generate(prompt, attention_mask=mask, max_new_tokens=self.tokens, do_sample=False,
                                   pad_token_id=0, **more)

    def forward(self, prompt):
        return self.program(prompt)


@torch.no_grad()
def clearest(model):
    """Of some prompts those in which the chosen tokens lead by most."""
    vocabulary = model.model.config.vocab_size
    length = model.prompt
    found = []
    for _ in range(PROBED):
        prompt = torch.randint(3, vocabulary, (1, length))
        scores = model.program(prompt, output_scores=True, return_dict_in_generate=True).scores
        best = torch.stack(scores).topk(2).values
        found.append((float((best[..., 0] - best[..., 1]).min()), prompt))
    return [prompt for _, prompt in sorted(found, key=lambda pair: -pair[0])[:PROMPTS]]


def generation(make, prompt, tokens):
    def build():
        model = Generate(make(), tokens)
        model.prompt = prompt
        return model, [torch.randint(3, 1000, (1, prompt)) for _ in range(PROMPTS)]

    return build


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=6))


DECODER = dict(hidden_size=768, num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=4,
               max_position_embeddings=512, bos_token_id=1, eos_token_id=2)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**DECODER, intermediate_size=2048, vocab_size=32000))


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    settings = dict(DECODER, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2)
    return MixtralForCausalLM(MixtralConfig(**settings, intermediate_size=1024, vocab_size=8000, num_local_experts=8,
                                            num_experts_per_tok=2))


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(vocab_size=8000, d_model=512, d_kv=64, d_ff=2048, num_layers=6,
                                               num_heads=8, decoder_start_token_id=0))


WORKLOADS = [
    Workload("gpt2-generate", "transformers GPT-2, 6 layers, generate 48 tokens, greedy, batch 1",
             generation(gpt2, 16, 48), 2.0, tolerance=0.0, calibrate=clearest),
    Workload("llama-generate", "Llama-like, 6 layers of 768, generate 32 tokens, greedy, batch 1",
             generation(llama, 16, 32), 2.0, tolerance=0.0, calibrate=clearest),
    Workload("mixtral-generate", "Mixtral-like, 4 layers of 512, 2 of 8 experts, prompt 64, 24 tokens, greedy, batch 1",
             generation(mixtral, 64, 24), None, tolerance=0.0, calibrate=clearest),
    Workload("t5-generate", "T5-small-like, 6 layers of 512, 64 tokens to 24, greedy, batch 1", generation(t5, 64, 24),
             None, tolerance=0.0, calibrate=clearest),
]
