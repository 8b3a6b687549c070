"""BERT for sequence classification (Devlin et al., NAACL 2019), fine-tuned as in the tutorials: batches as long as
their longest text, metrics in NumPy."""

import random

import numpy as np
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

CONFIG = {"vocab_size": 5000, "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4,
          "intermediate_size": 1024, "num_labels": 2}
CLS, SEP, PAD = 101, 102, 0


def build():
    return BertForSequenceClassification(BertConfig(**CONFIG))


def collate(texts):
    """Text as long as the longest, to the next multiple of 8."""
    length = (max(map(len, texts)) + 7) // 8 * 8
    ids = np.full((len(texts), length), PAD, dtype=np.int64)
    mask = np.zeros((len(texts), length), dtype=np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = 1
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


def inputs(seed):
    chance = random.Random(seed)
    while True:
        longest = chance.choice((24, 40, 64))
        texts = [[CLS] + [chance.randrange(200, 5000) for _ in range(chance.randrange(longest - 8, longest) - 2)]
                 + [SEP] for _ in range(4)]
        yield collate(texts), torch.tensor([chance.randrange(2) for _ in texts])


def flat_accuracy(preds, labels):
    pred_flat = np.argmax(preds, axis=1).flatten()
    labels_flat = labels.flatten()
    return np.sum(pred_flat == labels_flat) / len(labels_flat)


@torch.no_grad()
def infer(model, batch):
    encoded, labels = batch
    model.eval()
    outputs = model(**encoded)
    logits = outputs.logits.detach().cpu().numpy()
    return logits, flat_accuracy(logits, labels.to("cpu").numpy())


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=2e-5, eps=1e-8)


def train(model, optim, batch):
    encoded, labels = batch
    model.train()
    model.zero_grad()
    loss = model(**encoded, labels=labels).loss
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optim.step()
    return loss.item(), norm.item()


def main():
    torch.manual_seed(0)
    model = build()
    optim = optimizer(model)
    total = 0.0
    for step, batch in zip(range(5), inputs(0)):
        loss, _ = train(model, optim, batch)
        total += loss
        print(f"step {step}: loss {loss:.4f}, mean {total / (step + 1):.4f}")
    logits, accuracy = infer(model, batch)
    print("logits", np.round(logits, 4).tolist(), "accuracy", accuracy)


if __name__ == "__main__":
    main()
