"""Models of transformers as they come: what the library's code does around the layers (masks, caches, windows that are
rolled, experts) is part of the step. Small, and nothing is dropped, so that all peers compute the same losses."""

import torch

from ..workload import BATCHES, Task, Training, own_loss
from .transformer import WORDS, next_word

SMALL = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 2, "num_attention_heads": 8,
         "num_key_value_heads": 2, "vocab_size": WORDS, "max_position_embeddings": 64}


def words(model):
    return Task([model], next_word, [(torch.randint(3, WORDS, (4, 64)),) for _ in range(BATCHES)])


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return words(LlamaForCausalLM(LlamaConfig(**SMALL)))


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    return words(MixtralForCausalLM(MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)))


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    return words(T5ForConditionalGeneration(T5Config(
        d_model=256, d_kv=32, d_ff=512, num_layers=2, num_heads=8, vocab_size=WORDS, dropout_rate=0.0,
        decoder_start_token_id=0)))


labelled = own_loss(lambda images, labels: {"pixel_values": images, "labels": labels})


def swin():
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(image_size=64, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4,
                        num_labels=10, drop_path_rate=0.0)
    return Task([SwinForImageClassification(config)], labelled,
                [(torch.randn(4, 3, 64, 64), torch.randint(10, (4,))) for _ in range(BATCHES)])


WORKLOADS = [
    Training("llama", "transformers Llama, 2 layers of 256, 8 heads share 2 of keys, 4x64", llama),
    Training("mixtral", "transformers Mixtral, the same with 2 of 4 experts, 4x64", mixtral),
    Training("t5", "transformers T5, 2 and 2 layers of 256, 4x64", t5),
    Training("swin", "transformers Swin, 2 stages, 4x3x64x64", swin),
]
