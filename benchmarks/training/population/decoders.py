"""Networks that answer step by step, and look back at what they read: attention, pointers, a memory."""

import random

import torch
from torch import nn
from torch.nn import functional as F

from .program import BATCHES, Running, program, supervised

WORDS = 500


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.score = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, h, states):
        scores = self.score(torch.tanh(self.query(h)[:, None] + self.key(states))).squeeze(-1)
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights[:, None], states).squeeze(1), weights


class Seq2Seq(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width)
        self.encoder, self.cell = nn.GRU(width, width, batch_first=True), nn.GRUCell(2 * width, width)
        self.attention, self.out = Attention(width), nn.Linear(2 * width, WORDS)

    def forward(self, source, target, forcing=0.5):
        states, h = self.encoder(self.source(source))
        h, word, outs = h[0], target[:, 0], []
        for t in range(1, target.size(1)):
            context, _ = self.attention(h, states)
            h = self.cell(torch.cat([self.target(word), context], 1), h)
            out = self.out(torch.cat([h, context], 1))
            outs.append(out)
            word = target[:, t] if random.random() < forcing else out.argmax(1)
        return torch.stack(outs, 1)


@program("translation: GRU, Bahdanau attention, a coin decides on teacher forcing")
def seq2seq(accelerate):
    model = accelerate(Seq2Seq())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=0)

    def step(source, target):
        optimizer.zero_grad()
        out = model(source, target)
        loss = criterion(out.reshape(-1, WORDS), target[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        return loss.item()

    batches = [(torch.randint(1, WORDS, (8, 12)), torch.randint(0, WORDS, (8, 12))) for _ in range(BATCHES)]
    return Running(step, batches, model, optimizer)


class PointerNet(nn.Module):
    """Which point comes next; those that were chosen are masked."""

    def __init__(self, width=64):
        super().__init__()
        self.embed, self.encoder = nn.Linear(2, width), nn.LSTM(width, width, batch_first=True)
        self.decoder, self.start = nn.LSTMCell(width, width), nn.Parameter(torch.zeros(width))
        self.attention = Attention(width)

    def forward(self, points, order):
        x = self.embed(points)
        states, (h, c) = self.encoder(x)
        h, c, given, loss = h[0], c[0], self.start.expand(len(points), -1), 0.0
        mask, rows = torch.zeros(points.shape[:2], dtype=torch.bool), torch.arange(len(points))
        for t in range(order.shape[1]):
            h, c = self.decoder(given, (h, c))
            found = self.attention
            scores = found.score(torch.tanh(found.query(h)[:, None] + found.key(states))).squeeze(-1)
            logits = scores.masked_fill(mask, float("-inf"))
            loss = loss + F.nll_loss(F.log_softmax(logits, -1), order[:, t])
            mask = mask.clone()
            mask[rows, order[:, t]] = True
            given = x[rows, order[:, t]]
        return loss / order.shape[1]


@program("pointer network, sorts points, masks in place")
def pointer_net(accelerate):
    model = accelerate(PointerNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    found = [torch.rand(8, 10, 2) for _ in range(BATCHES)]
    batches = [(points, points[..., 0].argsort(1)) for points in found]
    return Running(supervised(model, optimizer), batches, model, optimizer)


class TuringMachine(nn.Module):
    """A controller that addresses a memory by content and by shifting (Graves et al., 2014)."""

    def __init__(self, width=8, slots=16, cells=12, hidden=48):
        super().__init__()
        self.controller = nn.LSTMCell(width + cells, hidden)
        self.address = nn.ModuleList(nn.Linear(hidden, cells + 6) for _ in range(2))
        self.erase, self.add, self.out = nn.Linear(hidden, cells), nn.Linear(hidden, cells), nn.Linear(hidden, width)
        self.initial, self.hidden = nn.Parameter(0.05 * torch.randn(slots, cells)), hidden
        self.cells = cells

    def weights(self, head, h, memory, before):
        key, beta, gate, shift, gamma = self.address[head](h).split([self.cells, 1, 1, 3, 1], 1)
        near = F.softmax(F.softplus(beta) * F.cosine_similarity(memory, torch.tanh(key)[:, None], -1), 1)
        gate, shift = torch.sigmoid(gate), F.softmax(shift, 1)
        w = gate * near + (1 - gate) * before
        w = shift[:, :1] * w.roll(1, 1) + shift[:, 1:2] * w + shift[:, 2:] * w.roll(-1, 1)
        w = w ** (1 + F.softplus(gamma))
        return w / (w.sum(1, keepdim=True) + 1e-8)

    def forward(self, x):
        memory = self.initial.expand(len(x), -1, -1)
        h = c = torch.zeros(len(x), self.hidden)
        read, outs = torch.zeros(len(x), self.cells), []
        reading = writing = torch.eye(len(self.initial))[0].expand(len(x), -1)
        for t in range(x.shape[1]):
            h, c = self.controller(torch.cat([x[:, t], read], 1), (h, c))
            writing, reading = self.weights(0, h, memory, writing), self.weights(1, h, memory, reading)
            erased = torch.einsum("bn,bc->bnc", writing, torch.sigmoid(self.erase(h)))
            memory = memory * (1 - erased) + torch.einsum("bn,bc->bnc", writing, self.add(h))
            read = torch.einsum("bn,bnc->bc", reading, memory)
            outs.append(self.out(h))
        return torch.stack(outs, 1)


@program("neural Turing machine, copies bits, RMSprop with momentum")
def turing_machine(accelerate):
    model = accelerate(TuringMachine())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, alpha=0.95, momentum=0.9)
    found = [torch.randint(0, 2, (8, 10, 8)).float() for _ in range(BATCHES)]
    return Running(supervised(model, optimizer, F.binary_cross_entropy_with_logits, clip=10.0),
                   [(bits, bits.flip(1)) for bits in found], model, optimizer)
