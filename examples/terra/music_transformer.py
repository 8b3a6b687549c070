"""Music Transformer (Huang et al., ICLR 2019): relative global attention by skewing, over MIDI events; generation
samples one event after the other.

The sequence is as long as what was generated so far, each layer notes the lengths it saw in attributes, and the next
event is drawn from a distribution.
"""

import math
import random

import numpy as np
import torch
import torch.distributions as dist
import torch.nn.functional as F
from torch import nn

VOCABULARY = 388 + 2
PAD = VOCABULARY - 1
THRESHOLD = 64  # generation sees at most this many events
NEW_EVENTS = 12


def sequence_mask(length, max_length):
    x = torch.arange(max_length, dtype=length.dtype, device=length.device)
    return x.unsqueeze(0) < length.unsqueeze(1)


def look_ahead_mask(size, trg):
    """1 where a position must not look: later events and padding."""
    future = ~sequence_mask(torch.arange(1, size + 1), size)
    padding = (trg == PAD)[:, None, None, :]
    return future | padding


class DynamicPositionEmbedding(nn.Module):
    def __init__(self, embedding_dim, max_seq):
        super().__init__()
        table = np.array(
            [
                [math.sin(pos * math.exp(-math.log(10000) * i / embedding_dim)
                          * math.exp(math.log(10000) / embedding_dim * (i % 2)) + 0.5 * math.pi
                          * (i % 2)) for i in range(embedding_dim)]
                for pos in range(max_seq)
            ]
        )
        self.positional_embedding = torch.from_numpy(table).unsqueeze(0).to(torch.float32)

    def forward(self, x):
        return x + self.positional_embedding[:, : x.size(1), :].to(x.device, dtype=x.dtype)


class RelativeGlobalAttention(nn.Module):
    def __init__(self, h, d, max_seq):
        super().__init__()
        self.len_k = None
        self.len_q = None
        self.max_seq = max_seq
        self.h = h
        self.d = d
        self.dh = d // h
        self.Wq = nn.Linear(d, d)
        self.Wk = nn.Linear(d, d)
        self.Wv = nn.Linear(d, d)
        self.fc = nn.Linear(d, d)
        self.E = nn.Parameter(torch.randn(max_seq, self.dh))

    def heads(self, x):
        return torch.reshape(x, (x.size(0), x.size(1), self.h, -1)).permute(0, 2, 1, 3)

    def forward(self, inputs, mask=None):
        q, k, v = (self.heads(w(x)) for w, x in zip((self.Wq, self.Wk, self.Wv), inputs))
        self.len_k = k.size(2)
        self.len_q = q.size(2)
        E = self.left_embedding(self.len_q)
        QE = torch.einsum("bhld,md->bhlm", [q, E])
        QE = self.qe_masking(QE)
        Srel = self.skewing(QE)
        QKt = torch.matmul(q, k.permute(0, 1, 3, 2))
        logits = QKt + Srel
        logits = logits / math.sqrt(self.dh)
        if mask is not None:
            logits += (mask.to(torch.int64) * -1e9).to(logits.dtype)
        weights = F.softmax(logits, -1)
        attention = torch.matmul(weights, v)
        out = attention.permute(0, 2, 1, 3)
        out = torch.reshape(out, (out.size(0), -1, self.d))
        return self.fc(out), weights

    def left_embedding(self, len_q):
        return self.E[max(0, self.max_seq - len_q) :, :]

    def skewing(self, tensor):
        padded = F.pad(tensor, [1, 0, 0, 0, 0, 0, 0, 0])
        reshaped = torch.reshape(padded, [padded.size(0), padded.size(1), padded.size(-1), padded.size(-2)])
        Srel = reshaped[:, :, 1:, :]
        if self.len_k > self.len_q:
            Srel = F.pad(Srel, [0, 0, 0, 0, 0, 0, 0, self.len_k - self.len_q])
        elif self.len_k < self.len_q:
            Srel = Srel[:, :, :, : self.len_k]
        return Srel

    @staticmethod
    def qe_masking(qe):
        mask = sequence_mask(torch.arange(qe.size()[-1] - 1, qe.size()[-1] - qe.size()[-2] - 1, -1), qe.size()[-1])
        return (~mask).to(qe.dtype) * qe


class EncoderLayer(nn.Module):
    def __init__(self, d_model, rate, h, max_seq):
        super().__init__()
        self.rga = RelativeGlobalAttention(h=h, d=d_model, max_seq=max_seq)
        self.FFN_pre = nn.Linear(d_model, d_model // 2)
        self.FFN_suf = nn.Linear(d_model // 2, d_model)
        self.layernorm1 = nn.LayerNorm(d_model, eps=1e-6)
        self.layernorm2 = nn.LayerNorm(d_model, eps=1e-6)
        self.dropout1 = nn.Dropout(rate)
        self.dropout2 = nn.Dropout(rate)

    def forward(self, x, mask=None):
        attn_out, w = self.rga([x, x, x], mask)
        attn_out = self.dropout1(attn_out)
        out1 = self.layernorm1(attn_out + x)
        ffn_out = F.relu(self.FFN_pre(out1))
        ffn_out = self.FFN_suf(ffn_out)
        ffn_out = self.dropout2(ffn_out)
        return self.layernorm2(out1 + ffn_out), w


class MusicTransformer(nn.Module):
    def __init__(self, embedding_dim=256, num_layer=6, max_seq=256, dropout=0.1):
        super().__init__()
        self.max_seq = max_seq
        self.embedding_dim = embedding_dim
        self.embedding = nn.Embedding(VOCABULARY, embedding_dim)
        self.pos_encoding = DynamicPositionEmbedding(embedding_dim, max_seq)
        self.enc_layers = nn.ModuleList([EncoderLayer(embedding_dim, rate=dropout, h=embedding_dim // 64,
                                                      max_seq=max_seq) for _ in range(num_layer)])
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(embedding_dim, VOCABULARY)

    def decode(self, x, mask):
        weights = []
        x = self.embedding(x.to(torch.long))
        x *= math.sqrt(self.embedding_dim)
        x = self.pos_encoding(x)
        x = self.dropout(x)
        for layer in self.enc_layers:
            x, w = layer(x, mask)
            weights.append(w)
        return self.fc(x), weights

    def forward(self, x, length=None):
        if self.training:
            logits, _ = self.decode(x, look_ahead_mask(x.size(1), x))
            return logits.contiguous()
        return self.generate(x, length).contiguous()

    def generate(self, prior, length):
        decode_array = prior
        result_array = prior
        for _ in range(length):
            if decode_array.size(1) >= THRESHOLD:
                decode_array = decode_array[:, 1:]
            logits, _ = self.decode(decode_array, look_ahead_mask(decode_array.size(1), decode_array))
            pdf = dist.OneHotCategorical(probs=logits.softmax(-1)[:, -1])
            result = pdf.sample().argmax(-1).unsqueeze(-1)
            decode_array = torch.cat((decode_array, result), dim=-1)
            result_array = torch.cat((result_array, result), dim=-1)
        return result_array


def build():
    return MusicTransformer()


def inputs(seed):
    """A batch of pieces, some shorter than the others and filled up."""
    generator = torch.Generator().manual_seed(seed)
    chance = random.Random(seed)
    while True:
        length = chance.choice((24, 32, 40))
        events = torch.randint(0, VOCABULARY - 2, (2, length + 1), generator=generator)
        events[1, length - chance.randrange(1, 8) :] = PAD
        yield events[:, :-1], events[:, 1:]


@torch.no_grad()
def infer(model, batch):
    events, _ = batch
    model.eval()
    return model(events[:1], NEW_EVENTS)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)


def train(model, optim, batch):
    events, target = batch
    model.train()
    optim.zero_grad()
    logits = model(events)
    loss = F.cross_entropy(logits.view(-1, VOCABULARY), target.reshape(-1), ignore_index=PAD, label_smoothing=0.1)
    loss.backward()
    optim.step()
    with torch.no_grad():
        known = target != PAD
        accuracy = (logits.argmax(-1)[known] == target[known]).float().mean().item()
    return loss.item(), accuracy


def main():
    torch.manual_seed(0)
    model = build()
    optim = optimizer(model)
    for step, batch in zip(range(5), inputs(0)):
        loss, accuracy = train(model, optim, batch)
        print(f"step {step}: loss {loss:.4f}, accuracy {accuracy:.3f}")
    print("generated", infer(model, batch)[0, -NEW_EVENTS:].tolist())


if __name__ == "__main__":
    main()
