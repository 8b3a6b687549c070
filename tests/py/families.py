"""Small models of the transformers families and of torch's recurrent layers, from configurations with random weights:
what dycl has to record whole.

`python tests/py/test_coverage.py` runs them all and writes docs/coverage.md."""

from dataclasses import dataclass
from typing import Callable

import torch
from torch import nn

SEED = 11


@dataclass(frozen=True)
class Case:
    build: Callable  # () -> module
    inputs: Callable  # () -> dict of keyword arguments
    generate: dict = None  # arguments of generate(); None: a forward call


def transformer(model, config, **settings):
    def build():
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**settings))

    return build


def tokens(vocabulary, *shape, padded=0, **more):
    """Random tokens; padded: so many of the second row's first ones are padding, as a mask says."""

    def inputs():
        given = {"input_ids": torch.randint(3, vocabulary, shape)}
        if padded:
            mask = torch.ones(shape, dtype=torch.long)
            mask[1, :padded] = 0
            given["attention_mask"] = mask
        return {**given, **{name: value() for name, value in more.items()}}

    return inputs


def numbers(name, *shape):
    return lambda: {name: torch.randn(shape)}


GREEDY = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
WIDTH = 32
DECODER = dict(vocab_size=64, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=64)
IMAGE = numbers("pixel_values", 2, 3, 32, 32)

BERT = transformer("BertForSequenceClassification", "BertConfig", vocab_size=64, hidden_size=WIDTH,
                   intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
GPT2 = transformer("GPT2LMHeadModel", "GPT2Config", vocab_size=64, n_embd=WIDTH, n_layer=2, n_head=4, n_positions=64)
LLAMA = transformer("LlamaForCausalLM", "LlamaConfig", **DECODER)
MISTRAL = transformer("MistralForCausalLM", "MistralConfig", **DECODER, sliding_window=6)
MIXTRAL = transformer("MixtralForCausalLM", "MixtralConfig", **DECODER, num_local_experts=4, num_experts_per_tok=2)
T5 = transformer("T5ForConditionalGeneration", "T5Config", vocab_size=64, d_model=WIDTH, d_kv=8, d_ff=48, num_layers=2,
                 num_heads=4, decoder_start_token_id=0)
WHISPER = transformer(
    "WhisperForConditionalGeneration", "WhisperConfig",
    vocab_size=64, d_model=WIDTH, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
    num_mel_bins=16, max_source_positions=20, max_target_positions=32, decoder_start_token_id=1, pad_token_id=0,
    bos_token_id=1, eos_token_id=2, begin_suppress_tokens=None,
    suppress_tokens=None,
)  # fmt: skip
VIT = transformer("ViTForImageClassification", "ViTConfig", hidden_size=WIDTH, intermediate_size=48,
                  num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)
SWIN = transformer("SwinForImageClassification", "SwinConfig", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2],
                   num_heads=[2, 4], window_size=4)
CONVNEXT = transformer("ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[8, 16, 24, 32],
                       depths=[1, 1, 2, 1])
RESNET = transformer("ResNetForImageClassification", "ResNetConfig", embedding_size=8, hidden_sizes=[8, 16, 24, 32],
                     depths=[1, 1, 2, 1])
SEGFORMER = transformer(
    "SegformerForSemanticSegmentation", "SegformerConfig",
    depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16,
    num_labels=5,
)  # fmt: skip
MAMBA = transformer("MambaForCausalLM", "MambaConfig", vocab_size=64, hidden_size=WIDTH, state_size=8,
                    num_hidden_layers=2)


def clip():
    import transformers

    half = dict(hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    text, vision = dict(half, vocab_size=64, max_position_embeddings=16,
                        eos_token_id=63), dict(half, image_size=32, patch_size=8)
    return transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))


def detr():
    import transformers

    backbone = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                                         out_features=["stage4"])
    return transformers.DetrForObjectDetection(
        transformers.DetrConfig(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone,
            d_model=WIDTH, encoder_layers=1, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
            num_queries=10,
        )
    )  # fmt: skip


class Recurrent(nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.layer = kind(12, 16, **settings)

    def forward(self, x, state=None):
        out, state = self.layer(x, state)
        return out, state


def recurrent(kind, **settings):
    return lambda: Recurrent(kind, **settings)


SEQUENCE = numbers("x", 5, 3, 12)

CASES = {
    "BERT": Case(BERT, tokens(64, 2, 9)),
    "BERT, padded": Case(BERT, tokens(64, 2, 9, padded=4)),
    "GPT-2": Case(GPT2, tokens(64, 2, 9)),
    "GPT-2, padded": Case(GPT2, tokens(64, 2, 9, padded=4)),
    "GPT-2, generate": Case(GPT2, tokens(64, 2, 5), GREEDY),
    "Llama": Case(LLAMA, tokens(64, 2, 9)),
    "Llama, padded": Case(LLAMA, tokens(64, 2, 9, padded=4)),
    "Llama, generate": Case(LLAMA, tokens(64, 2, 5), GREEDY),
    "Llama, generate, static cache": Case(LLAMA, tokens(64, 2, 5),
                                          {**GREEDY, "cache_implementation": "static", "disable_compile": True}),
    "Mistral": Case(MISTRAL, tokens(64, 2, 9)),
    "Mistral, generate": Case(MISTRAL, tokens(64, 2, 5), GREEDY),
    "Mixtral": Case(MIXTRAL, tokens(64, 2, 9)),
    "Mixtral, generate": Case(MIXTRAL, tokens(64, 2, 5), GREEDY),
    "T5": Case(T5, tokens(64, 2, 9, decoder_input_ids=lambda: torch.randint(3, 64, (2, 4)))),
    "T5, generate": Case(T5, tokens(64, 2, 9, padded=4), GREEDY),
    "Whisper": Case(WHISPER, lambda: {"input_features": torch.randn(2, 16, 40),
                                      "decoder_input_ids": torch.randint(3, 64, (2, 4))}),
    "Whisper, generate": Case(WHISPER, numbers("input_features", 2, 16, 40), GREEDY),
    "ViT": Case(VIT, IMAGE),
    "Swin": Case(SWIN, IMAGE),
    "ConvNeXt": Case(CONVNEXT, IMAGE),
    "ResNet": Case(RESNET, IMAGE),
    "CLIP": Case(clip, tokens(64, 2, 9, padded=0, pixel_values=lambda: torch.randn(2, 3, 32, 32))),
    "CLIP, padded": Case(clip, tokens(64, 2, 9, padded=4, pixel_values=lambda: torch.randn(2, 3, 32, 32))),
    "DETR": Case(detr, numbers("pixel_values", 2, 3, 64, 64)),
    "SegFormer": Case(SEGFORMER, numbers("pixel_values", 2, 3, 64, 64)),
    "Mamba": Case(MAMBA, tokens(64, 2, 9)),
    "Mamba, generate": Case(MAMBA, tokens(64, 2, 5), GREEDY),
    "nn.RNN": Case(recurrent(nn.RNN, num_layers=2), SEQUENCE),
    "nn.RNN, relu": Case(recurrent(nn.RNN, nonlinearity="relu", bias=False), SEQUENCE),
    "nn.LSTM": Case(recurrent(nn.LSTM, num_layers=2), SEQUENCE),
    "nn.LSTM, both directions": Case(recurrent(nn.LSTM, bidirectional=True, batch_first=True), SEQUENCE),
    "nn.LSTM, projection": Case(recurrent(nn.LSTM, proj_size=7), SEQUENCE),
    "nn.GRU": Case(recurrent(nn.GRU, num_layers=2), SEQUENCE),
    "nn.GRU, both directions": Case(recurrent(nn.GRU, bidirectional=True),
                                    lambda: {"x": torch.randn(5, 12), "state": torch.randn(2, 16)}),
}


def program(name):
    """The module of a case, and a function that runs the case on it (or on a copy of it): the same result each time."""
    case = CASES[name]
    torch.manual_seed(SEED)
    module = case.build().eval().requires_grad_(False)
    inputs = case.inputs()
    if case.generate is None:
        return module, lambda module: module(**inputs)
    return module, lambda module: module.generate(**inputs, **case.generate)
