"""Language models, written by hand and those of transformers, tiny and with their own dropout."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from .program import BATCHES, Running, program

WORDS = 400


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        weights = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        weights = weights.masked_fill(torch.tril(torch.ones(t, t)) == 0, float("-inf"))
        y = self.drop(F.softmax(weights, -1)) @ v
        x = x + self.drop(self.out(y.transpose(1, 2).contiguous().view(b, t, c)))
        return x + self.drop(self.feed(self.norm2(x)))


class NanoGPT(nn.Module):
    def __init__(self, width=64, length=32):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.ModuleList(Block(width, 4) for _ in range(2)), nn.LayerNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)
        nn.init.normal_(self.words.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, ids, targets=None):
        x = self.words(ids) + self.places(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.view(-1, WORDS), targets.reshape(-1), ignore_index=-1)


@program("nanoGPT: tied words, a mask made anew, two micro batches, a rate that is set by hand")
def nanogpt(accelerate):
    model = accelerate(NanoGPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    passed = {"steps": 0}

    def step(*micro):
        passed["steps"] += 1
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * min(1, passed["steps"] / 10)
        total = 0.0
        for ids in micro:
            _, loss = model(ids[:, :-1], ids[:, 1:])
            loss = loss / len(micro)
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    class Passed:
        state_dict, load_state_dict = (lambda self: dict(passed)), (lambda self, state: passed.update(state))

    return Running(step, [tuple(torch.randint(WORDS, (2, 4, 33))) for _ in range(BATCHES)], model, optimizer, Passed())


class SkipGram(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.centre, self.around = nn.Embedding(2000, width), nn.Embedding(2000, width)

    def forward(self, centre, around, others):
        v = self.centre(centre)
        near = F.logsigmoid((v * self.around(around)).sum(1))
        far = F.logsigmoid(-torch.bmm(self.around(others), v.unsqueeze(2)).squeeze(2)).sum(1)
        return -(near + far).mean()


@program("word2vec: skip-gram, words to tell apart drawn by torch.multinomial, SGD")
def word2vec(accelerate):
    model = accelerate(SkipGram())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    often = torch.rand(2000) ** 0.75

    def step(centre, around):
        others = torch.multinomial(often, 5 * len(centre), replacement=True).view(len(centre), 5)
        optimizer.zero_grad()
        loss = model(centre, around, others)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [tuple(torch.randint(2000, (2, 128))) for _ in range(BATCHES)], model, optimizer)


class Translator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.core = nn.Transformer(width, 4, 1, 1, 128, 0.1, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        hidden = source == 0
        out = self.core(self.words(source) * 8, self.words(target) * 8, tgt_mask=mask, src_key_padding_mask=hidden,
                        memory_key_padding_mask=hidden)
        return self.head(out)


@program("nn.Transformer with masks and padding, label smoothing, Noam's schedule")
def translator(accelerate):
    model = accelerate(Translator())
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: 64**-0.5 * min((k + 1) ** -0.5, (k + 1) * 400**-1.5))
    criterion = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)

    def step(source, target):
        optimizer.zero_grad()
        out = model(source, target[:, :-1])
        loss = criterion(out.transpose(1, 2), target[:, 1:])
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.item()

    def padded(rows, length):
        ids = torch.randint(1, WORDS, (rows, length))
        return ids * (torch.arange(length) < torch.randint(length // 2, length + 1, (rows, 1)))

    return Running(step, [(padded(8, 16), padded(8, 17)) for _ in range(BATCHES)], model, optimizer, scheduler)


def library(model, accelerate, batches, rate=1e-4):
    """The step of a script around transformers."""
    model = accelerate(model.train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)

    def step(inputs):
        loss = model(**inputs).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return Running(step, [(inputs,) for inputs in batches], model, optimizer)


SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
         "vocab_size": WORDS, "max_position_embeddings": 66}


def texts(**more):
    """Words of several lengths, padded to the longest."""
    found = []
    for _ in range(BATCHES):
        ids = torch.randint(3, WORDS, (4, 32))
        mask = (torch.arange(32) < torch.randint(16, 33, (4, 1))).long()
        found.append({"input_ids": ids * mask + 1 - mask, "attention_mask": mask,
                      **{key: make(ids) for key, make in more.items()}})
    return found


@program("transformers' ELECTRA, which words were replaced")
def electra(accelerate):
    from transformers import ElectraConfig, ElectraForPreTraining

    return library(ElectraForPreTraining(ElectraConfig(**SIZES, embedding_size=32)), accelerate,
                   texts(labels=lambda ids: torch.randint(2, ids.shape)))


@program("transformers' ALBERT, shared layers, masked words")
def albert(accelerate):
    from transformers import AlbertConfig, AlbertForMaskedLM

    return library(AlbertForMaskedLM(AlbertConfig(**SIZES, embedding_size=32)), accelerate,
                   texts(labels=lambda ids: torch.where(torch.rand(ids.shape) < 0.15, ids, -100)))


@program("transformers' DistilBERT, sentences are classified")
def distilbert(accelerate):
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(dim=64, hidden_dim=128, n_layers=2, n_heads=4, vocab_size=WORDS,
                              max_position_embeddings=66, num_labels=3)
    return library(DistilBertForSequenceClassification(config), accelerate,
                   texts(labels=lambda ids: torch.randint(3, ids.shape[:1])))


@program("transformers' RoBERTa, words are tagged")
def roberta(accelerate):
    from transformers import RobertaConfig, RobertaForTokenClassification

    return library(RobertaForTokenClassification(RobertaConfig(**SIZES, num_labels=5)), accelerate,
                   texts(labels=lambda ids: torch.randint(5, ids.shape)))


@program("transformers' OPT, next words")
def opt(accelerate):
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(hidden_size=64, ffn_dim=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=WORDS,
                       max_position_embeddings=64, word_embed_proj_dim=64)
    return library(OPTForCausalLM(config), accelerate, texts(labels=lambda ids: ids))


@program("transformers' BLOOM, next words, ALiBi")
def bloom(accelerate):
    from transformers import BloomConfig, BloomForCausalLM

    return library(BloomForCausalLM(BloomConfig(hidden_size=64, n_layer=2, n_head=4, vocab_size=WORDS)), accelerate,
                   texts(labels=lambda ids: ids))


@program("transformers' Whisper, speech to words")
def whisper(accelerate):
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                           decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=WORDS,
                           max_source_positions=50, max_target_positions=32, num_mel_bins=40, pad_token_id=0,
                           bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
                           begin_suppress_tokens=None)
    return library(WhisperForConditionalGeneration(config), accelerate,
                   [{"input_features": torch.randn(2, 40, 100), "labels": torch.randint(3, WORDS, (2, 16))}
                    for _ in range(BATCHES)])


@program("transformers' CLIP, images and their texts")
def clip(accelerate):
    from transformers import CLIPConfig, CLIPModel

    text = {**SIZES, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0, "projection_dim": 32}
    image = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "image_size": 32, "patch_size": 8, "projection_dim": 32}
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=image, projection_dim=32))
    return library(model, accelerate, [{**inputs, "pixel_values": torch.randn(4, 3, 32, 32), "return_loss": True}
                                       for inputs in texts()])


@program("transformers' ViT-MAE, three quarters of the patches are hidden")
def vit_mae(accelerate):
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    config = ViTMAEConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                          decoder_hidden_size=48, decoder_num_hidden_layers=1, decoder_num_attention_heads=4,
                          decoder_intermediate_size=96, image_size=32, patch_size=4)
    return library(ViTMAEForPreTraining(config), accelerate,
                   [{"pixel_values": torch.randn(4, 3, 32, 32)} for _ in range(BATCHES)])


@program("transformers' Wav2Vec2, CTC")
def wav2vec2(accelerate):
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                            vocab_size=32, conv_dim=(32, 32, 32), conv_stride=(5, 4, 4), conv_kernel=(10, 8, 4),
                            num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, mask_time_length=4,
                            ctc_zero_infinity=True)
    return library(Wav2Vec2ForCTC(config), accelerate,
                   [{"input_values": torch.randn(2, 3200), "labels": torch.randint(1, 32, (2, 8))}
                    for _ in range(BATCHES)])
