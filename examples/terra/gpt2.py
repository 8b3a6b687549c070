"""GPT-2 (Radford et al., 2019): language-model training, and sampling with temperature, top-k and top-p, one token at a
time with the keys and values kept."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

CONFIG = {"vocab_size": 5000, "n_positions": 256, "n_embd": 256, "n_layer": 6, "n_head": 4, "bos_token_id": 0,
          "eos_token_id": 0}
NEW_TOKENS = 16
TEMPERATURE, TOP_K, TOP_P = 0.9, 50, 0.95


def build():
    return GPT2LMHeadModel(GPT2Config(**CONFIG))


def inputs(seed):
    chance = random.Random(seed)
    while True:
        length = chance.choice((8, 16, 24, 48))
        yield torch.tensor([[chance.randrange(1, CONFIG["vocab_size"]) for _ in range(length)] for _ in range(2)])


def top_k_top_p_filtering(logits, top_k, top_p, filter_value=-float("inf")):
    """Only the k most likely tokens, and of these as many as make up the probability p (nucleus)."""
    top_k = min(top_k, logits.size(-1))
    if top_k > 0:
        indices_to_remove = logits < torch.topk(logits, top_k)[0][..., -1, None]
        logits[indices_to_remove] = filter_value
    if top_p > 0.0:
        sorted_logits, sorted_indices = torch.sort(logits, descending=True)
        cumulative_probs = torch.cumsum(F.softmax(sorted_logits, dim=-1), dim=-1)
        sorted_indices_to_remove = cumulative_probs > top_p
        sorted_indices_to_remove[..., 1:] = sorted_indices_to_remove[..., :-1].clone()
        sorted_indices_to_remove[..., 0] = 0
        indices_to_remove = sorted_indices[sorted_indices_to_remove]
        logits[indices_to_remove] = filter_value
    return logits


@torch.no_grad()
def infer(model, batch):
    """Continues one prompt until the end of the text or long enough."""
    model.eval()
    generated, past, token = batch[0].tolist(), None, batch[:1]
    for _ in range(NEW_TOKENS):
        outputs = model(token, past_key_values=past, use_cache=True)
        past = outputs.past_key_values
        next_token_logits = outputs.logits[0, -1, :] / TEMPERATURE
        filtered_logits = top_k_top_p_filtering(next_token_logits, TOP_K, TOP_P)
        token = torch.multinomial(F.softmax(filtered_logits, dim=-1), num_samples=1)
        if token.item() == CONFIG["eos_token_id"]:
            break
        generated.append(token.item())
        token = token[None]
    return generated


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=5e-5)


def train(model, optim, batch):
    model.train()
    loss = model(batch, labels=batch).loss
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optim.step()
    optim.zero_grad()
    return loss.item()


def main():
    torch.manual_seed(0)
    model = build()
    optim = optimizer(model)
    for step, batch in zip(range(5), inputs(0)):
        print(f"step {step}: loss {train(model, optim, batch):.4f}")
    print("generated", infer(model, batch)[batch.size(1) :])


if __name__ == "__main__":
    main()
