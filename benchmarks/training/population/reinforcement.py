"""Agents: small worlds in NumPy, networks that are asked one state at a time and trained on batches."""

import copy
import random

import numpy
import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

from .program import Running, program


class Pole:
    """The cart and its pole (Barto et al., 1983)."""

    def __init__(self):
        self.state = numpy.zeros(4)

    def reset(self):
        self.state = numpy.random.uniform(-0.05, 0.05, 4)
        return self.state.astype(numpy.float32)

    def step(self, action):
        x, v, angle, turn = self.state
        force = 10.0 if action == 1 else -10.0
        sine, cosine = numpy.sin(angle), numpy.cos(angle)
        pushed = (force + 0.05 * turn**2 * sine) / 1.1
        faster = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        self.state = self.state + 0.02 * numpy.array([v, pushed - 0.05 * faster * cosine / 1.1, turn, faster])
        over = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21)
        return self.state.astype(numpy.float32), 1.0, over


def replay(count, states, act):
    return [(numpy.random.randn(states).astype(numpy.float32), act(), random.random(),
             numpy.random.randn(states).astype(numpy.float32), random.random() < 0.1) for _ in range(count)]


class QNet(nn.Module):
    def __init__(self, states=4, actions=2, width=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(states, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.advantage = nn.Linear(width, 1), nn.Linear(width, actions)

    def forward(self, x):
        h = self.layers(x)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(-1, keepdim=True)


@program("dueling DQN: acts in a world, learns from a replay of NumPy arrays, a target net")
def dqn(accelerate):
    net = QNet()
    target = copy.deepcopy(net)
    net, target = accelerate(net), accelerate(target)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    memory, world = replay(500, 4, lambda: random.randrange(2)), Pole()

    def act(state, epsilon):
        if random.random() < epsilon:
            return random.randrange(2)
        with torch.no_grad():
            return net(torch.from_numpy(state).unsqueeze(0)).argmax(1).item()

    def step():
        state = world.reset()
        for _ in range(8):
            action = act(state, 0.2)
            state, _, over = world.step(action)
            if over:
                state = world.reset()
        s, a, r, s2, done = map(numpy.array, zip(*random.sample(memory, 32)))
        s, s2 = torch.from_numpy(s), torch.from_numpy(s2)
        q = net(s).gather(1, torch.from_numpy(a)[:, None]).squeeze(1)
        with torch.no_grad():
            best = target(s2).gather(1, net(s2).argmax(1, keepdim=True)).squeeze(1)
            y = torch.from_numpy(r).float() + 0.99 * best * (1 - torch.from_numpy(done).float())
        loss = F.smooth_l1_loss(q, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 100)
        optimizer.step()
        if random.random() < 0.1:
            target.load_state_dict(net.state_dict())
        return loss.item()

    return Running(step, [()], net, target, optimizer)


class ActorCritic(nn.Module):
    def __init__(self, states=4, actions=2):
        super().__init__()
        self.affine, self.action, self.value = nn.Linear(states, 128), nn.Linear(128, actions), nn.Linear(128, 1)

    def forward(self, x):
        h = F.relu(self.affine(x))
        return F.softmax(self.action(h), dim=-1), self.value(h)


@program("actor and critic: an episode of single states, as in torch's example")
def actor_critic(accelerate):
    model, world = accelerate(ActorCritic()), Pole()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        state, saved, rewards = world.reset(), [], []
        for _ in range(20):
            shares, value = model(torch.from_numpy(state).float())
            choice = Categorical(shares)
            action = choice.sample()
            saved.append((choice.log_prob(action), value))
            state, reward, over = world.step(action.item())
            rewards.append(reward)
            if over:
                break
        total, returns = 0.0, []
        for reward in rewards[::-1]:
            total = reward + 0.99 * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-5)
        policy = [-log * (r - value.item()) for (log, value), r in zip(saved, returns)]
        values = [F.smooth_l1_loss(value, r.view(1)) for (_, value), r in zip(saved, returns)]
        optimizer.zero_grad()
        loss = torch.stack(policy).sum() + torch.stack(values).sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [()], model, optimizer)


class Policy(nn.Module):
    def __init__(self, states=8, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(states, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.mean, self.value = nn.Linear(64, actions), nn.Linear(64, 1)
        self.deviation = nn.Parameter(torch.zeros(actions))

    def forward(self, x):
        h = self.body(x)
        return Normal(self.mean(h), self.deviation.exp()), self.value(h).squeeze(-1)


@program("PPO: advantages in a loop, two epochs of minibatches, an early stop by the divergence")
def ppo(accelerate):
    model = accelerate(Policy())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, eps=1e-5)

    def step(states, rewards, over):
        with torch.no_grad():
            found, values = model(states)
            actions = found.sample()
            before = found.log_prob(actions).sum(-1)
        advantages, following = torch.zeros_like(rewards), 0.0
        for t in reversed(range(len(rewards) - 1)):
            delta = rewards[t] + 0.99 * values[t + 1] * (1 - over[t]) - values[t]
            advantages[t] = following = delta + 0.99 * 0.95 * (1 - over[t]) * following
        returns = advantages + values
        for _ in range(2):
            for index in torch.randperm(len(states)).split(32):
                found, value = model(states[index])
                change = found.log_prob(actions[index]).sum(-1) - before[index]
                ratio, gain = change.exp(), advantages[index]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                loss = policy + 0.5 * F.mse_loss(value, returns[index]) - 0.01 * found.entropy().sum(-1).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
            if ((ratio - 1) - change).mean().item() > 0.02:
                break
        return loss.item()

    batches = [(torch.randn(64, 8), torch.randn(64), (torch.rand(64) < 0.05).float()) for _ in range(4)]
    return Running(step, batches, model, optimizer)


class Squashed(nn.Module):
    def __init__(self, states=8, actions=2):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(states, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.mean, self.log = nn.Linear(64, actions), nn.Linear(64, actions)

    def forward(self, x):
        h = self.body(x)
        found = Normal(self.mean(h), self.log(h).clamp(-20, 2).exp())
        u = found.rsample()
        a = torch.tanh(u)
        return a, (found.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)).sum(-1)


class Twin(nn.Module):
    def __init__(self, states=8, actions=2):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(states + actions, 64), nn.ReLU(), nn.Linear(64, 64),
                                                nn.ReLU(), nn.Linear(64, 1)) for _ in range(2))

    def forward(self, s, a):
        x = torch.cat([s, a], -1)
        return [net(x).squeeze(-1) for net in self.nets]


@program("SAC: twin critics, a squashed actor, a learnt temperature, three optimizers")
def sac(accelerate):
    actor, critics = Squashed(), Twin()
    target = copy.deepcopy(critics).requires_grad_(False)
    actor, critics, target = accelerate(actor), accelerate(critics), accelerate(target)
    heat = nn.ParameterList([nn.Parameter(torch.zeros(1))])
    optimizers = [torch.optim.Adam(m.parameters(), lr=3e-4) for m in (actor, critics, heat)]
    of_actor, of_critics, of_heat = optimizers

    def step(s, a, r, s2):
        alpha = heat[0].exp().detach()
        with torch.no_grad():
            a2, log = actor(s2)
            y = r + 0.99 * (torch.min(*target(s2, a2)) - alpha * log)
        of_critics.zero_grad()
        loss = sum(F.mse_loss(q, y) for q in critics(s, a))
        loss.backward()
        of_critics.step()
        made, log = actor(s)
        of_actor.zero_grad()
        (alpha * log - torch.min(*critics(s, made))).mean().backward()
        of_actor.step()
        of_heat.zero_grad()
        (-heat[0] * (log.detach() - 2)).mean().backward()
        of_heat.step()
        with torch.no_grad():
            for kept, p in zip(target.parameters(), critics.parameters()):
                kept.mul_(0.995).add_(0.005 * p)
        return loss.item()

    batches = [(torch.randn(64, 8), torch.rand(64, 2) * 2 - 1, torch.randn(64), torch.randn(64, 8)) for _ in range(4)]
    return Running(step, batches, actor, critics, target, heat, *optimizers)
