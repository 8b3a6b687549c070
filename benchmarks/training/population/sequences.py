"""Recurrent and convolutional networks over sequences: classified, tagged, translated, forecast."""

import random

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from .program import BATCHES, Running, program, supervised

WORDS = 500


def sentences(count, longest, classes):
    """Padded words, their numbers, a class for each: as a collate function gives them."""
    rows = [torch.randint(1, WORDS, (random.randrange(longest // 2, longest + 1),)) for _ in range(count)]
    lengths = torch.tensor([len(row) for row in rows])
    return pad_sequence(rows, batch_first=True), lengths, torch.randint(classes, (count,))


class PackedGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 64, padding_idx=0)
        self.gru, self.head = nn.GRU(64, 64, batch_first=True, bidirectional=True), nn.Linear(128, 5)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.words(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, h = self.gru(packed)
        return self.head(torch.cat([h[0], h[1]], 1))


@program("bidirectional GRU over packed sequences, Adam, a plateau schedule")
def packed_gru(accelerate):
    model = accelerate(PackedGRU())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=50)

    def step(ids, lengths, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids, lengths), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step(loss.item())
        return loss.item()

    return Running(step, [sentences(8, 24, 5) for _ in range(BATCHES)], model, optimizer, scheduler)


class MaskedLSTM(nn.Module):
    """Means over what is no padding."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 64, padding_idx=0)
        self.lstm = nn.LSTM(64, 96, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(96, 5)

    def forward(self, ids):
        mask = (ids != 0).unsqueeze(-1).float()
        out, _ = self.lstm(self.words(ids))
        return self.head((out * mask).sum(1) / mask.sum(1))


@program("two layers of LSTM over padded sequences, dropout, RMSprop")
def padded_lstm(accelerate):
    model = accelerate(MaskedLSTM())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    batches = [(ids, y) for ids, _, y in (sentences(8, 24, 5) for _ in range(BATCHES))]
    return Running(supervised(model, optimizer, F.cross_entropy, clip=1.0), batches, model, optimizer)


class CRF(nn.Module):
    """A linear chain: its partition by dynamic programming, in a Python loop."""

    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(0.1 * torch.randn(tags, tags))
        self.start, self.end = nn.Parameter(0.1 * torch.randn(tags)), nn.Parameter(0.1 * torch.randn(tags))

    def forward(self, emissions, tags, mask):
        return (self.partition(emissions, mask) - self.score(emissions, tags, mask)).mean()

    def partition(self, emissions, mask):
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.size(1)):
            following = torch.logsumexp(alpha[:, :, None] + self.transitions + emissions[:, t, None], 1)
            alpha = torch.where(mask[:, t, None], following, alpha)
        return torch.logsumexp(alpha + self.end, 1)

    def score(self, emissions, tags, mask):
        rows = torch.arange(len(tags))
        score = self.start[tags[:, 0]] + emissions[rows, 0, tags[:, 0]]
        for t in range(1, tags.size(1)):
            move = self.transitions[tags[:, t - 1], tags[:, t]] + emissions[rows, t, tags[:, t]]
            score = score + move * mask[:, t]
        return score + self.end[tags[rows, mask.sum(1) - 1]]


class Tagger(nn.Module):
    def __init__(self, tags=9):
        super().__init__()
        self.words, self.lstm = nn.Embedding(WORDS, 48, padding_idx=0), nn.LSTM(48, 32, 1, batch_first=True,
                                                                                bidirectional=True)
        self.emit, self.crf = nn.Linear(64, tags), CRF(tags)

    def forward(self, ids, tags):
        return self.crf(self.emit(self.lstm(self.words(ids))[0]), tags, ids != 0)


@program("bidirectional LSTM and CRF, SGD")
def crf_tagger(accelerate):
    model = accelerate(Tagger())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, weight_decay=1e-4)

    def step(ids, tags):
        model.zero_grad()
        loss = model(ids, tags)
        loss.backward()
        optimizer.step()
        return loss.item()

    found = [sentences(6, 20, 5)[0] for _ in range(BATCHES)]
    return Running(step, [(ids, torch.randint(9, ids.shape)) for ids in found], model, optimizer)


class PackedTagger(nn.Module):
    """Packed and padded again; tags of words by a linear layer."""

    def __init__(self, tags=9):
        super().__init__()
        self.words, self.drop = nn.Embedding(WORDS, 48, padding_idx=0), nn.Dropout(0.3)
        self.lstm, self.head = nn.LSTM(48, 48, bidirectional=True, batch_first=True), nn.Linear(96, tags)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.drop(self.words(ids)), lengths, True, False)
        out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(self.drop(out))


@program("tagger over packed sequences, tags counted with NumPy")
def tagger(accelerate):
    model = accelerate(PackedTagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    hits = []

    def step(ids, lengths, tags):
        optimizer.zero_grad()
        out = model(ids, lengths)
        loss = F.cross_entropy(out.flatten(0, 1), tags.flatten(), ignore_index=-100)
        loss.backward()
        optimizer.step()
        guess, truth = out.detach().argmax(-1).numpy(), tags.numpy()
        hits[:] = [numpy.mean(guess[truth != -100] == truth[truth != -100])]
        return loss.item()

    batches = []
    for _ in range(BATCHES):
        ids, lengths, _ = sentences(8, 20, 5)
        batches.append((ids, lengths, torch.randint(9, ids.shape).masked_fill(ids == 0, -100)))
    return Running(step, batches, model, optimizer)


class TextCNN(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.convs = nn.ModuleList(nn.Conv2d(1, 32, (size, width)) for size in (3, 4, 5))
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(96, 5)

    def forward(self, ids):
        x = self.words(ids).unsqueeze(1)
        found = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        return self.head(self.dropout(torch.cat([F.max_pool1d(f, f.size(2)).squeeze(2) for f in found], 1)))


@program("TextCNN (Kim), Adadelta, a limit on weights' norms")
def textcnn(accelerate):
    model = accelerate(TextCNN())
    optimizer = torch.optim.Adadelta(model.parameters())

    def step(ids, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.head.weight.copy_(torch.renorm(model.head.weight, 2, 0, 3.0))
        return loss.item()

    return Running(step, [(torch.randint(WORDS, (16, 32)), torch.randint(5, (16,))) for _ in range(BATCHES)], model,
                   optimizer)


class CharRNN(nn.Module):
    def __init__(self, letters=80, width=128):
        super().__init__()
        self.letters, self.lstm = nn.Embedding(letters, 32), nn.LSTM(32, width, 1)
        self.head = nn.Linear(width, letters)

    def forward(self, x, state):
        out, state = self.lstm(self.letters(x), state)
        return self.head(out), state


@program("CharRNN, truncated: the state goes from batch to batch, detached")
def charrnn(accelerate):
    model = accelerate(CharRNN())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step(text):
        state, total = (torch.zeros(1, 8, 128), torch.zeros(1, 8, 128)), 0.0
        for begin in range(0, 32, 16):
            optimizer.zero_grad()
            state = tuple(s.detach() for s in state)
            out, state = model(text[begin : begin + 16], state)
            loss = F.cross_entropy(out.view(-1, 80), text[begin + 1 : begin + 17].reshape(-1))
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            total += loss.item()
        return total / 2

    return Running(step, [(torch.randint(80, (33, 8)),) for _ in range(BATCHES)], model, optimizer)


class Cell(nn.Module):
    """A plain RNN written by hand, with layer norm."""

    def __init__(self, width=64):
        super().__init__()
        self.inside, self.around, self.norm = nn.Linear(8, width), nn.Linear(width, width), nn.LayerNorm(width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = torch.zeros(len(x), self.around.in_features)
        for t in range(x.shape[1]):
            h = torch.tanh(self.norm(self.inside(x[:, t]) + self.around(h)))
        return self.head(h).squeeze(-1)


@program("a recurrent cell by hand with layer norm, the adding problem, RAdam")
def adding_rnn(accelerate):
    model = accelerate(Cell())
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3)
    return Running(supervised(model, optimizer, F.mse_loss, clip=1.0),
                   [(torch.rand(16, 24, 8), torch.rand(16)) for _ in range(BATCHES)], model, optimizer)
