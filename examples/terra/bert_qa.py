"""BERT for question answering (SQuAD): a long passage falls into overlapping windows, and plain Python looks for the
best span among them."""

import collections
import math
import random
from dataclasses import dataclass

import torch
from torch import nn
from transformers import BertConfig, BertForQuestionAnswering

CONFIG = {"vocab_size": 5000, "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4,
          "intermediate_size": 1024}
CLS, SEP, PAD = 101, 102, 0
WINDOW, STRIDE, BATCH = 64, 32, 2
BEST, LONGEST_ANSWER = 10, 12

Prediction = collections.namedtuple("Prediction", ["window", "start", "end", "start_logit", "end_logit"])


@dataclass
class Window:
    tokens: list
    segments: list
    first: int  # where the passage begins in the window
    offset: int  # where the window begins in the passage
    start: int = 0
    end: int = 0


@dataclass
class Example:
    question: list
    passage: list
    answer: tuple


def build():
    return BertForQuestionAnswering(BertConfig(**CONFIG))


def windows_of(example):
    found = []
    room = WINDOW - len(example.question) - 3
    offset = 0
    while True:
        part = example.passage[offset : offset + room]
        tokens = [CLS] + example.question + [SEP] + part + [SEP]
        first = len(example.question) + 2
        window = Window(tokens, [0] * first + [1] * (len(part) + 1), first, offset)
        start, end = (position - offset for position in example.answer)
        if 0 <= start and end < len(part):
            window.start, window.end = start + first, end + first
        found.append(window)
        if offset + room >= len(example.passage):
            return found
        offset += STRIDE


def tensors(windows):
    longest = max(len(window.tokens) for window in windows)
    pad = [longest - len(window.tokens) for window in windows]
    return {
        "input_ids": torch.tensor([w.tokens + [PAD] * p for w, p in zip(windows, pad)]),
        "token_type_ids": torch.tensor([w.segments + [0] * p for w, p in zip(windows, pad)]),
        "attention_mask": torch.tensor([[1] * len(w.tokens) + [0] * p for w, p in zip(windows, pad)]),
    }


def inputs(seed):
    chance = random.Random(seed)
    while True:
        question = [chance.randrange(200, 5000) for _ in range(chance.choice((6, 10)))]
        passage = [chance.randrange(200, 5000) for _ in range(chance.choice((45, 80, 110)))]
        start = chance.randrange(len(passage) - 5)
        yield Example(question, passage, (start, start + chance.randrange(5)))


def best_indexes(logits, count):
    ordered = sorted(enumerate(logits), key=lambda x: x[1], reverse=True)
    return [index for index, _ in ordered[:count]]


def predictions(windows, starts, ends):
    found = []
    for number, (window, start_logits, end_logits) in enumerate(zip(windows, starts, ends)):
        for start in best_indexes(start_logits, BEST):
            for end in best_indexes(end_logits, BEST):
                if start >= len(window.tokens) - 1 or end >= len(window.tokens) - 1 or start < window.first:
                    continue
                if end < start or end - start + 1 > LONGEST_ANSWER:
                    continue
                found.append(Prediction(number, start, end, start_logits[start], end_logits[end]))
    return sorted(found, key=lambda p: p.start_logit + p.end_logit, reverse=True)


@torch.no_grad()
def infer(model, batch):
    model.eval()
    windows = windows_of(batch)
    starts, ends = [], []
    for i in range(0, len(windows), BATCH):
        outputs = model(**tensors(windows[i : i + BATCH]))
        for row in range(len(outputs.start_logits)):
            starts.append(outputs.start_logits[row].tolist())
            ends.append(outputs.end_logits[row].tolist())
    ranked = predictions(windows, starts, ends)[:BEST]
    scores = [p.start_logit + p.end_logit for p in ranked]
    weights = [math.exp(score - scores[0]) for score in scores]
    answers = []
    for p, weight in zip(ranked, weights):
        window = windows[p.window]
        begin = window.offset + p.start - window.first
        answers.append((begin, begin + p.end - p.start, weight / sum(weights)))
    return answers


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-5, eps=1e-8)


def train(model, optim, batch):
    windows = windows_of(batch)[:BATCH]
    model.train()
    optim.zero_grad()
    outputs = model(**tensors(windows), start_positions=torch.tensor([w.start for w in windows]),
                    end_positions=torch.tensor([w.end for w in windows]))
    outputs.loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optim.step()
    return outputs.loss.item()


def main():
    torch.manual_seed(0)
    model = build()
    optim = optimizer(model)
    for step, batch in zip(range(5), inputs(0)):
        print(f"step {step}: loss {train(model, optim, batch):.4f}")
    print("answer", batch.answer, "best spans", infer(model, batch)[:3])


if __name__ == "__main__":
    main()
