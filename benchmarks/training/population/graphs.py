"""Graphs, sets and trees: where an index, or the data, says who is computed with whom."""

import random

import torch
from torch import nn
from torch.nn import functional as F

from .program import BATCHES, Running, program, supervised


def edges(nodes, count):
    """Both ways, and from each node to itself."""
    a, b = torch.randint(nodes, (2, count))
    own = torch.arange(nodes)
    return torch.stack([torch.cat([a, b, own]), torch.cat([b, a, own])])


class GCN(nn.Module):
    def __init__(self, inside=64, width=48, classes=7):
        super().__init__()
        self.first, self.second = nn.Linear(inside, width, bias=False), nn.Linear(width, classes, bias=False)
        self.biases = nn.ParameterList([torch.zeros(width), torch.zeros(classes)])

    @staticmethod
    def gather(x, source, target):
        degree = torch.zeros(len(x)).index_add_(0, target, torch.ones(len(target)))
        share = (degree[source] * degree[target]).rsqrt()
        return torch.zeros_like(x).index_add_(0, target, x[source] * share[:, None])

    def forward(self, x, graph):
        x = F.relu(self.gather(self.first(x), *graph) + self.biases[0])
        x = F.dropout(x, 0.5, self.training)
        return F.log_softmax(self.gather(self.second(x), *graph) + self.biases[1], dim=1)


@program("GCN on one graph, labels of some nodes, sums by index_add_")
def gcn(accelerate):
    model = accelerate(GCN())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    x, y, graph, train = torch.randn(400, 64), torch.randint(7, (400,)), edges(400, 1200), torch.rand(400) < 0.3

    def step():
        optimizer.zero_grad()
        out = model(x, graph)
        loss = F.nll_loss(out[train], y[train])
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [()], model, optimizer)


class GAT(nn.Module):
    """Softmax over the edges that come in, by scatter_reduce."""

    def __init__(self, inside, heads, width):
        super().__init__()
        self.heads, self.width, self.lin = heads, width, nn.Linear(inside, heads * width, bias=False)
        self.of_source = nn.Parameter(0.1 * torch.randn(heads, width))
        self.of_target = nn.Parameter(0.1 * torch.randn(heads, width))

    def forward(self, x, graph):
        source, target = graph
        h = self.lin(x).view(-1, self.heads, self.width)
        e = F.leaky_relu((h * self.of_source).sum(-1)[source] + (h * self.of_target).sum(-1)[target], 0.2)
        index = target[:, None].expand_as(e)
        most = torch.full((len(x), self.heads), float("-inf")).scatter_reduce(0, index, e.detach(), "amax")
        e = torch.exp(e - most[target])
        total = torch.zeros(len(x), self.heads).scatter_add_(0, index, e)
        weights = F.dropout(e / total[target], 0.2, self.training)
        return torch.zeros_like(h).index_add_(0, target, h[source] * weights[..., None]).flatten(1)


class GATs(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GAT(32, 4, 12), GAT(48, 1, 5)

    def forward(self, x, graph):
        return self.second(F.elu(self.first(x, graph)), graph)


@program("GAT: attention along edges, several graphs in turn")
def gat(accelerate):
    model = accelerate(GATs())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)

    batches = [(torch.randn(n, 32), edges(n, 3 * n), torch.randint(5, (n,))) for n in (200, 240, 180, 220)]
    return Running(supervised(model, optimizer, F.cross_entropy), batches, model, optimizer)


class Sage(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.own, self.others = nn.Linear(inside, outside), nn.Linear(inside, outside, bias=False)

    def forward(self, x, neighbours):
        return self.own(x[: len(neighbours)]) + self.others(x[neighbours].mean(1))


class SageNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Sage(48, 64), Sage(64, 6)

    def forward(self, x, far, near):
        return self.second(F.normalize(F.relu(self.first(x, far)), dim=1), near)


@program("GraphSAGE: neighbours are drawn anew at each step")
def graphsage(accelerate):
    model = accelerate(SageNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    features, labels = torch.randn(2000, 48), torch.randint(6, (2000,))

    def step():
        nodes = torch.randperm(2000)[:500]
        far, near = torch.randint(500, (160, 8)), torch.randint(160, (32, 8))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features[nodes], far, near), labels[nodes[:32]])
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [()], model, optimizer)


class Messages(nn.Module):
    """Gilmer et al., 2017: messages by a network of both ends, a GRU cell, a sum for each molecule."""

    def __init__(self, width=32):
        super().__init__()
        self.atoms, self.message = nn.Embedding(10, width), nn.Sequential(nn.Linear(2 * width + 4, width), nn.ReLU())
        self.update, self.read = nn.GRUCell(width, width), nn.Linear(width, 1)

    def forward(self, atoms, source, target, bonds, molecule, count):
        h = self.atoms(atoms)
        for _ in range(3):
            m = self.message(torch.cat([h[source], h[target], bonds], 1))
            h = self.update(torch.zeros_like(h).index_add(0, target, m), h)
        return torch.zeros(count, 1).index_add(0, molecule, self.read(h)).squeeze(1)


def molecules(count):
    sizes = [random.randrange(5, 15) for _ in range(count)]
    starts = [sum(sizes[:i]) for i in range(count)]
    pairs = torch.tensor([[s + random.randrange(n), s + random.randrange(n)] for s, n in zip(starts, sizes)
                          for _ in range(2 * n)])
    molecule = torch.repeat_interleave(torch.arange(count), torch.tensor(sizes))
    return (torch.randint(10, (sum(sizes),)), *pairs.T.contiguous(), torch.rand(len(pairs), 4), molecule, count,
            torch.randn(count))


@program("message passing over molecules of any size, another batch each time")
def message_passing(accelerate):
    model = accelerate(Messages())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(*batch):
        *inputs, y = batch
        optimizer.zero_grad()
        loss = F.huber_loss(model(*inputs), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [molecules(12) for _ in range(8)], model, optimizer)


class PointNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 32, 1), nn.ReLU(), nn.Conv1d(32, 64, 1), nn.ReLU())
        self.turned = nn.Linear(64, 9)
        self.turned.weight.data.mul_(0.1)
        self.points = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 128, 1),
                                    nn.BatchNorm1d(128), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, classes))

    def forward(self, x):
        turn = self.turned(torch.max(self.turn(x), 2)[0]).view(-1, 3, 3) + torch.eye(3)
        x = torch.bmm(x.transpose(2, 1), turn).transpose(2, 1)
        return self.head(torch.max(self.points(x), 2)[0]), turn


@program("PointNet: maxima over points, a learnt rotation that is held orthogonal")
def pointnet(accelerate):
    model = accelerate(PointNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 200, 0.7)

    def step(x, y):
        optimizer.zero_grad()
        out, turn = model(x)
        apart = torch.norm(torch.bmm(turn, turn.transpose(2, 1)) - torch.eye(3), dim=(1, 2)).mean()
        loss = F.cross_entropy(out, y) + 1e-3 * apart
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.item()

    return Running(step, [(torch.randn(8, 3, 128), torch.randint(10, (8,))) for _ in range(BATCHES)], model, optimizer,
                   scheduler)


class DeepSets(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(4, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU())
        self.all = nn.Sequential(nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 1))

    def forward(self, sets):
        return torch.stack([self.all(self.each(one).sum(0)) for one in sets]).squeeze(-1)


@program("DeepSets: a list of sets of any size, one at a time")
def deepsets(accelerate):
    model = accelerate(DeepSets())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = []
    for _ in range(8):
        sets = [torch.rand(random.randrange(3, 20), 4) for _ in range(12)]
        batches.append((sets, torch.stack([one.max() for one in sets])))
    return Running(supervised(model, optimizer, F.l1_loss), batches, model, optimizer)


class Induced(nn.Module):
    """Lee et al., 2019: some learnt points attend to the set, the set attends to them."""

    def __init__(self, width=48, points=8):
        super().__init__()
        self.points = nn.Parameter(0.3 * torch.randn(1, points, width))
        self.to_points, self.from_points = (nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2))
        self.norm, self.feed = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        seeds = self.points.expand(len(x), -1, -1)
        h, _ = self.to_points(seeds, x, x)
        y, _ = self.from_points(x, seeds + h, seeds + h)
        y = self.norm(x + y)
        return y + F.relu(self.feed(y))


class SetTransformer(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed, self.blocks = nn.Linear(2, width), nn.Sequential(Induced(width), Induced(width))
        self.seed, self.pool = nn.Parameter(torch.randn(1, 4, width)), nn.MultiheadAttention(width, 4, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.blocks(self.embed(x))
        return self.head(self.pool(self.seed.expand(len(x), -1, -1), x, x)[0])


def mixture_loss(found, x):
    """Likelihood of points under a mixture of Gaussians that was found for them."""
    weights, centres = F.log_softmax(found[..., 0], 1), found[..., 1:]
    near = -0.5 * (x[:, :, None] - centres[:, None]).pow(2).sum(-1)
    return -torch.logsumexp(near + weights[:, None], 2).mean()


@program("set transformer: clusters of points, attention with weights")
def set_transformer(accelerate):
    model = accelerate(SetTransformer())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    found = [torch.randn(8, 40, 2) + 3 * torch.randn(8, 1, 2) for _ in range(BATCHES)]
    return Running(supervised(model, optimizer, mixture_loss), [(x, x) for x in found], model, optimizer)


class Stack(nn.Module):
    """A tensor for each node of a parse, made by shifting and reducing."""

    def __init__(self, width=48):
        super().__init__()
        self.words, self.join = nn.Embedding(200, width), nn.Linear(2 * width, width)
        self.gate, self.head = nn.Linear(2 * width, width), nn.Linear(width, 5)

    def forward(self, words, actions):
        leaves, stack = list(self.words(words).unbind(0))[::-1], []
        for action in actions:
            if action == "shift":
                stack.append(leaves.pop())
            else:
                right, left = stack.pop(), stack.pop()
                both = torch.cat([left, right])
                share = torch.sigmoid(self.gate(both))
                stack.append(share * torch.tanh(self.join(both)) + (1 - share) * (left + right) / 2)
        return self.head(stack[0])


def parse(words):
    actions, height, left = [], 0, words
    while left or height > 1:
        if left and (height < 2 or random.random() < 0.5):
            actions, height, left = actions + ["shift"], height + 1, left - 1
        else:
            actions, height = actions + ["reduce"], height - 1
    return torch.randint(200, (words,)), actions, torch.randint(5, ())


@program("shift-reduce parses: every sentence has its own structure")
def shift_reduce(accelerate):
    model = accelerate(Stack())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)

    batches = [parse(random.randrange(6, 20)) for _ in range(12)]
    return Running(supervised(model, optimizer, F.cross_entropy), batches, model, optimizer)
