"""Two layers of 256 on 4 sequences of 64. Nothing is dropped, so that all peers compute the same losses."""

import torch
from torch import nn
from torch.nn import functional as F

from ..workload import BATCHES, Task, Training, own_loss, supervised

WORDS = 8000


def bert():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Task([model], supervised(F.mse_loss),
                [(torch.randn(4, 64, 256), torch.randn(4, 64, 256)) for _ in range(BATCHES)])


next_word = own_loss(lambda ids: {"input_ids": ids, "labels": ids})


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=WORDS, n_positions=64, n_embd=256, n_layer=2, n_head=4, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    return Task([GPT2LMHeadModel(config)], next_word, [(torch.randint(WORDS, (4, 64)),) for _ in range(BATCHES)])


WORKLOADS = [
    Training("bert", "BERT-like encoder, 2 layers of 256, 4x64", bert),
    Training("gpt2", "transformers GPT-2, 2 layers of 256, 4x64", gpt2),
]
