"""One forward call of models from transformers, from configurations with random weights."""

import torch
from torch import nn

from .workload import INPUTS, Workload


class Only(nn.Module):
    """One tensor in, one tensor out, which is what every exporter takes."""

    def __init__(self, model, result):
        super().__init__()
        self.model = model
        self.result = result

    def forward(self, x):
        return getattr(self.model(x), self.result)


def resnet50():
    from transformers import ResNetConfig, ResNetForImageClassification

    return (Only(ResNetForImageClassification(ResNetConfig()), "logits"),
            [torch.randn(1, 3, 224, 224) for _ in range(INPUTS)])


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=6)
    model = Only(BertModel(config), "last_hidden_state")
    return model, [torch.randint(0, config.vocab_size, (1, 128)) for _ in range(INPUTS)]


def vit():
    from transformers import ViTConfig, ViTModel

    model = Only(ViTModel(ViTConfig(num_hidden_layers=6)), "last_hidden_state")
    return model, [torch.randn(1, 3, 224, 224) for _ in range(INPUTS)]


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=6, use_cache=False)
    model = Only(GPT2LMHeadModel(config), "logits")
    return model, [torch.randint(0, config.vocab_size, (1, 128)) for _ in range(INPUTS)]


def convnext():
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return (Only(ConvNextForImageClassification(ConvNextConfig()), "logits"),
            [torch.randn(1, 3, 224, 224) for _ in range(INPUTS)])


def swin():
    from transformers import SwinConfig, SwinForImageClassification

    return (Only(SwinForImageClassification(SwinConfig()), "logits"),
            [torch.randn(1, 3, 224, 224) for _ in range(INPUTS)])


WORKLOADS = [
    Workload("resnet50", "transformers ResNet-50, 1x3x224x224", resnet50, 1.45),
    Workload("bert", "transformers BERT, 6 layers, 1x128", bert, 1.2),
    Workload("vit", "transformers ViT, 6 layers, 1x3x224x224", vit, 1.2),
    Workload("gpt2", "transformers GPT-2, 6 layers, forward, 1x128", gpt2, None),
    Workload("convnext", "transformers ConvNeXt-T, 1x3x224x224", convnext, None),
    Workload("swin", "transformers Swin-T, 1x3x224x224", swin, None),
]
