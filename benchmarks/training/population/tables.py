"""Tables and recommendations; networks whose way depends on what they are given."""

import torch
from torch import nn
from torch.nn import functional as F

from .program import BATCHES, Running, program, supervised


class DLRM(nn.Module):
    def __init__(self, tables=6, rows=1000, width=16):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + (tables + 1) * tables // 2, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense, indices, offsets):
        x = self.bottom(dense)
        all_of = torch.stack([x] + [bag(i, o) for bag, i, o in zip(self.bags, indices, offsets)], 1)
        products = torch.bmm(all_of, all_of.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1)).squeeze(1)


@program("DLRM: bags of embeddings, products of pairs, Adagrad")
def dlrm(accelerate):
    model = accelerate(DLRM())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)

    def step(dense, indices, offsets, y):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(dense, indices, offsets), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    batches = [(torch.rand(64, 13), [torch.randint(1000, (192,)) for _ in range(6)],
                [torch.arange(0, 192, 3) for _ in range(6)], torch.randint(0, 2, (64,)).float())
               for _ in range(BATCHES)]
    return Running(step, batches, model, optimizer)


class Factors(nn.Module):
    def __init__(self, users=800, items=600, width=32):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.of_user, self.of_item = nn.Embedding(users, 1), nn.Embedding(items, 1)

    def forward(self, user, item):
        found = (self.users(user) * self.items(item)).sum(1)
        return found + self.of_user(user).squeeze(1) + self.of_item(item).squeeze(1)


@program("matrix factorisation with biases, squared error and L2 of what was used, SGD")
def matrix_factorisation(accelerate):
    model = accelerate(Factors())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(user, item, rating):
        optimizer.zero_grad()
        loss = F.mse_loss(model(user, item), rating)
        loss = loss + 1e-3 * (model.users(user).pow(2).mean() + model.items(item).pow(2).mean())
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randint(800, (256,)), torch.randint(600, (256,)), torch.rand(256) * 4 + 1)
                          for _ in range(BATCHES)], model, optimizer)


@program("factors with sparse gradients and SparseAdam, pairs that are ranked (BPR)")
def sparse_ranking(accelerate):
    users, items = accelerate(nn.Embedding(800, 32, sparse=True)), accelerate(nn.Embedding(600, 32, sparse=True))
    optimizer = torch.optim.SparseAdam([*users.parameters(), *items.parameters()], lr=1e-2)

    def step(user, liked, other):
        optimizer.zero_grad()
        u = users(user)
        loss = -F.logsigmoid((u * items(liked)).sum(1) - (u * items(other)).sum(1)).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randint(800, (128,)), torch.randint(600, (128,)), torch.randint(600, (128,)))
                          for _ in range(BATCHES)], users, items, optimizer)


class TabTransformer(nn.Module):
    def __init__(self, sizes=(10, 20, 5, 40, 8), numbers=6, width=32):
        super().__init__()
        self.columns = nn.ModuleList(nn.Embedding(n, width) for n in sizes)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, batch_first=True)
        self.encoder, self.norm = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.LayerNorm(numbers)
        self.head = nn.Sequential(nn.Linear(width * len(sizes) + numbers, 64), nn.SELU(), nn.Linear(64, 2))

    def forward(self, kinds, numbers):
        x = torch.stack([column(kinds[:, i]) for i, column in enumerate(self.columns)], 1)
        return self.head(torch.cat([self.encoder(x).flatten(1), self.norm(numbers)], 1))


@program("TabTransformer: columns attend to each other, weighted classes, a cosine with restarts")
def tab_transformer(accelerate):
    model = accelerate(TabTransformer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 50)
    weights = torch.tensor([0.3, 0.7])

    def step(kinds, numbers, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(kinds, numbers), y, weight=weights)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.item()

    batches = [(torch.stack([torch.randint(n, (32,)) for n in (10, 20, 5, 40, 8)], 1), torch.randn(32, 6),
                torch.randint(2, (32,))) for _ in range(BATCHES)]
    return Running(step, batches, model, optimizer, scheduler)


class DeepFM(nn.Module):
    """Factorisation machine and MLP over one table of embeddings with offsets."""

    def __init__(self, fields=10, each=100, width=8):
        super().__init__()
        self.register_buffer("offsets", torch.arange(fields) * each)
        self.linear, self.factors = nn.Embedding(fields * each, 1), nn.Embedding(fields * each, width)
        self.deep = nn.Sequential(nn.Linear(fields * width, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2),
                                  nn.Linear(64, 1))
        nn.init.xavier_uniform_(self.factors.weight)

    def forward(self, x):
        x = x + self.offsets
        v = self.factors(x)
        machine = 0.5 * (v.sum(1) ** 2 - (v**2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.linear(x).sum(1) + machine + self.deep(v.flatten(1))).squeeze(1)


@program("DeepFM: clicks, binary cross entropy of shares, Adam")
def deepfm(accelerate):
    model = accelerate(DeepFM())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    return Running(supervised(model, optimizer, F.binary_cross_entropy),
                   [(torch.randint(100, (128, 10)), torch.randint(0, 2, (128,)).float()) for _ in range(BATCHES)],
                   model, optimizer)


class Experts(nn.Module):
    """The best expert of each row, as far as there is room (Switch), and a loss that spreads the rows."""

    def __init__(self, width=64, experts=4, room=40):
        super().__init__()
        self.gate, self.room = nn.Linear(width, experts), room
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, width))
                                     for _ in range(experts))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        shares = F.softmax(self.gate(x), -1)
        best, chosen = shares.max(-1)
        out, counts = x.clone(), []
        for i, expert in enumerate(self.experts):
            rows = (chosen == i).nonzero().flatten()
            counts.append(rows.numel())
            if rows.numel() > self.room:
                rows = rows[: self.room]
            if rows.numel():
                out[rows] = x[rows] + expert(x[rows]) * best[rows, None]
        spread = (torch.tensor(counts) / len(x) * shares.mean(0)).sum() * len(counts)
        return self.head(out).squeeze(-1), spread


@program("experts with room for some rows each (Switch), a loss that spreads them")
def switch_experts(accelerate):
    model = accelerate(Experts())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        out, spread = model(x)
        loss = F.mse_loss(out, y) + 0.01 * spread
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randn(128, 64), torch.randn(128)) for _ in range(BATCHES)], model, optimizer)


class EarlyExit(nn.Module):
    """Rows that are sure enough leave; training goes on with the others."""

    def __init__(self, width=96, classes=4):
        super().__init__()
        self.inside = nn.Linear(32, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4))
        self.exits = nn.ModuleList(nn.Linear(width, classes) for _ in range(4))

    def forward(self, x):
        h, found, rows = self.inside(x), [], torch.arange(len(x))
        for block, leave in zip(self.blocks, self.exits):
            h = h + block(h)
            out = leave(h)
            found.append((rows, out))
            stay = F.softmax(out, -1).max(-1)[0] < 0.5
            if not stay.any():
                break
            h, rows = h[stay], rows[stay]
        return found


@program("early exits: fewer rows in every layer, a loss at each exit")
def early_exit(accelerate):
    model = accelerate(EarlyExit())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    depths = []

    def step(x, y):
        optimizer.zero_grad()
        found = model(x)
        depths[:] = [len(rows) for rows, _ in found]
        loss = sum(F.cross_entropy(out, y[rows]) for rows, out in found) / len(found)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randn(48, 32), torch.randint(4, (48,))) for _ in range(BATCHES)], model, optimizer)
