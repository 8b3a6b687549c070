"""Programs whose structure or shapes depend on the data: recursion over trees, and experts that get what is routed to
them."""

import random

import torch
from torch import nn
from torch.nn import functional as F

from ..workload import BATCHES, Task, Training, supervised

WORDS, CLASSES, TREES = 500, 5, 16


def random_tree(leaves):
    """Pairs of pairs of words."""
    if leaves == 1:
        return random.randrange(WORDS)
    left = random.randrange(1, leaves)
    return random_tree(left), random_tree(leaves - left)


def random_sentence():
    return random_tree(random.randrange(8, 17)), torch.tensor([random.randrange(CLASSES)])


class TreeLSTM(nn.Module):
    """The child-sum tree-LSTM (Tai et al., ACL 2015), recursive."""

    def __init__(self, width=128):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, width), nn.Linear(width, CLASSES)
        self.of_input, self.of_sum = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width, bias=False)
        self.forget_input, self.forget_child = nn.Linear(width, width), nn.Linear(width, width, bias=False)

    def node(self, tree):
        if isinstance(tree, int):
            x, children = self.words(torch.tensor([tree])), []
            total = torch.zeros_like(x)
        else:
            children = [self.node(child) for child in tree]
            total = sum(h for h, _ in children)
            x = torch.zeros_like(total)
        i, o, u = (self.of_input(x) + self.of_sum(total)).chunk(3, 1)
        c = torch.sigmoid(i) * torch.tanh(u)
        for h, state in children:
            c = c + torch.sigmoid(self.forget_input(x) + self.forget_child(h)) * state
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, tree):
        return self.head(self.node(tree)[0])


def tree_lstm():
    return Task([TreeLSTM()], supervised(F.cross_entropy), [random_sentence() for _ in range(TREES)])


def tree_new():
    """Each step has a tree that no step had before."""
    step = supervised(F.cross_entropy)
    return Task([TreeLSTM()], lambda model, optimizer: step(model, optimizer, *random_sentence()), [()] * TREES)


class Mixture(nn.Module):
    """Two of eight experts for each row; the loop over the experts is that of transformers' mixtures."""

    def __init__(self, width=128, experts=8):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.norm = nn.LayerNorm(width)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
                                     for _ in range(experts))

    def forward(self, x):
        rows = self.norm(x)
        weights, chosen = torch.topk(F.softmax(self.router(rows), dim=-1), 2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        found = torch.zeros_like(x)
        of_experts = F.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        for expert, of_expert in zip(self.experts, of_experts):
            place, row = torch.where(of_expert)
            if len(row):
                found.index_add_(0, row, expert(rows[row]) * weights[row, place, None])
        return x + found


def moe():
    batches = [(torch.randn(128, 128), torch.randn(128, 16)) for _ in range(BATCHES)]
    return Task([nn.Sequential(Mixture(), Mixture(), nn.Linear(128, 16))], supervised(F.mse_loss), batches)


WORKLOADS = [
    Training("tree-lstm", f"tree-LSTM, recursive, {TREES} trees of 8 to 16 words in turn, 128 wide", tree_lstm),
    Training("tree-new", "the same, each step a new tree", tree_new),
    Training("moe", "mixture of experts, 2 layers, 2 of 8, 128 rows of 128", moe),
]
