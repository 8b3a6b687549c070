"""The same training steps in JAX, written by hand: one jitted function of the state, whose memory it is given, and of a
batch. The parameters begin as those of torch's models, so that losses can be compared.

Programs whose structure is known only from the data have no jitted step that is equal; VAE draws other random numbers.
"""

import functools

import jax
import numpy
from jax import lax
from jax import numpy as jnp

NOT_WRITTEN = {
    **dict.fromkeys(("llama", "mixtral", "t5", "swin"), "its layers are the library's, and written for torch"),
    "skipnet": "which blocks run, and which parameters get a gradient, depends on the data",
    "tree-lstm": "the structure depends on the data: a compilation for each tree",
    "tree-new": "the structure depends on the data: a compilation for each tree",
    "moe": "the shapes depend on the data",
    "vae": "JAX draws other random numbers: losses could not be compared",
}


# ---- AdamW, as torch's


def adamw(p, g, m, v, t, lr, betas, decay, eps=1e-8):
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g * g
    denominator = jnp.sqrt(v / (1 - betas[1] ** t)) + eps
    return p * (1 - lr * decay) - lr / (1 - betas[0] ** t) * m / denominator, m, v


def update(gradients, state, lr=1e-3, betas=(0.9, 0.999), decay=1e-2):
    t = state["t"] + 1
    new = {key: adamw(state["p"][key], gradients[key], state["m"][key], state["v"][key], t, lr, betas, decay)
           for key in state["p"]}
    p, m, v = ({key: value[k] for key, value in new.items()} for k in range(3))
    return {"p": p, "m": m, "v": v, "t": t}


def begin(parameters):
    zeros = {key: jnp.zeros_like(value) for key, value in parameters.items()}
    return {"p": parameters, "m": zeros, "v": {key: jnp.zeros_like(value) for key, value in parameters.items()},
            "t": jnp.zeros((), jnp.float32)}


def arrays(named):
    return {name: jnp.array(tensor.detach().numpy()) for name, tensor in named}


# ---- Parts of models; p[name] is a parameter


def linear(x, p, name):
    return x @ p[f"{name}weight"].T + p[f"{name}bias"]


def layer_norm(x, p, name, eps=1e-5):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + eps) * p[f"{name}weight"] + p[f"{name}bias"]


def heads(q, k, v, count, causal):
    def apart(x):
        return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)

    scores = apart(q) @ apart(k).swapaxes(2, 3) / numpy.sqrt(q.shape[-1] // count)
    if causal:
        scores = jnp.where(jnp.tri(q.shape[1], dtype=bool), scores, -jnp.inf)
    return (jax.nn.softmax(scores, -1) @ apart(v)).transpose(0, 2, 1, 3).reshape(q.shape)


def conv(x, p, name, stride=1, padding=0):
    """Images are kept channels last, which is what XLA is faster with; the weights are torch's, turned in the step."""
    weight = p[f"{name}weight"].transpose(2, 3, 1, 0)
    y = lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2,
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + p[f"{name}bias"] if f"{name}bias" in p else y


def conv_transposed(x, p, name, stride, padding):
    weight = p[f"{name}weight"]
    edge = weight.shape[2] - 1 - padding
    return lax.conv_general_dilated(x, jnp.flip(weight, (2, 3)).transpose(2, 3, 0, 1), (1, 1), [(edge, edge)] * 2,
                                    lhs_dilation=(stride, stride), dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool(x, window, stride, padding=0):
    edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, window, window, 1), (1, stride, stride, 1), edges)


def batch_norm(x, p, stats, name, eps=1e-5):
    """Also the new running statistics."""
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    count = x.size // x.shape[-1]
    stats = {**stats, f"{name}running_mean": 0.9 * stats[f"{name}running_mean"] + 0.1 * mean,
             f"{name}running_var": 0.9 * stats[f"{name}running_var"] + 0.1 * variance * count / (count - 1)}
    return (x - mean) * lax.rsqrt(variance + eps) * p[f"{name}weight"] + p[f"{name}bias"], stats


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def last(images):
    return images.transpose(0, 2, 3, 1)


# ---- Losses: (parameters, statistics, *batch) -> loss, statistics


def mlp(p, stats, x, y):
    for k in range(0, 8, 2):
        x = jax.nn.gelu(linear(x, p, f"{k}."), approximate=False)
    return jnp.square(x - y).mean(), stats


def cells(p, stats, x, labels):
    def cell(carry, step):
        h, c = carry
        i, f, g, o = jnp.split(step @ p["cell.weight_ih"].T + p["cell.bias_ih"] + h @ p["cell.weight_hh"].T
                               + p["cell.bias_hh"], 4, 1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zeros = jnp.zeros((x.shape[1], 128))
    (h, _), _ = lax.scan(cell, (zeros, zeros), x)
    return cross_entropy(linear(h, p, "head."), labels), stats


def bert(p, stats, x, y):
    for k in range(2):
        at = f"layers.{k}."
        q, key, v = jnp.split(x @ p[f"{at}self_attn.in_proj_weight"].T + p[f"{at}self_attn.in_proj_bias"], 3, -1)
        x = layer_norm(x + linear(heads(q, key, v, 4, False), p, f"{at}self_attn.out_proj."), p, f"{at}norm1.")
        x = layer_norm(x + linear(jax.nn.relu(linear(x, p, f"{at}linear1.")), p, f"{at}linear2."), p, f"{at}norm2.")
    return jnp.square(x - y).mean(), stats


def gpt2(p, stats, ids):
    def product(x, name):  # transformers keeps these weights the other way round
        return x @ p[f"{name}weight"] + p[f"{name}bias"]

    words = p["transformer.wte.weight"]
    x = words[ids] + p["transformer.wpe.weight"][: ids.shape[1]]
    for k in range(2):
        at = f"transformer.h.{k}."
        q, key, v = jnp.split(product(layer_norm(x, p, f"{at}ln_1."), f"{at}attn.c_attn."), 3, -1)
        x = x + product(heads(q, key, v, 4, True), f"{at}attn.c_proj.")
        inner = jax.nn.gelu(product(layer_norm(x, p, f"{at}ln_2."), f"{at}mlp.c_fc."), approximate=True)
        x = x + product(inner, f"{at}mlp.c_proj.")
    logits = layer_norm(x, p, "transformer.ln_f.") @ words.T
    return cross_entropy(logits[:, :-1], ids[:, 1:]), stats


def cnn(p, stats, x, labels):
    x = last(x)
    for k in (0, 3):
        x = max_pool(jax.nn.relu(conv(x, p, f"{k}.", padding=1)), 2, 2)
    return cross_entropy(linear(x.transpose(0, 3, 1, 2).reshape(len(x), -1), p, "7."), labels), stats


def resnet(p, stats, x, labels):
    x, stats = batch_norm(conv(last(x), p, "0.", 2, 3), p, stats, "1.")
    x = max_pool(jax.nn.relu(x), 3, 2, 1)
    for k, stride in ((4, 1), (5, 2), (6, 2)):
        y, stats = batch_norm(conv(x, p, f"{k}.first.", stride, 1), p, stats, f"{k}.norms.0.")
        y, stats = batch_norm(conv(jax.nn.relu(y), p, f"{k}.second.", 1, 1), p, stats, f"{k}.norms.1.")
        x = jax.nn.relu(y + (conv(x, p, f"{k}.around.", stride) if stride > 1 else x))
    return cross_entropy(linear(x.mean((1, 2)), p, "9."), labels), stats


LOSSES = {"mlp": mlp, "cells": cells, "bert": bert, "gpt2": gpt2, "cnn": cnn, "resnet": resnet}


# ---- DCGAN: two models, each with its optimizer


def generate(p, stats, x):
    x = last(x)
    for k, stride, padding in ((0, 1, 0), (3, 2, 1), (6, 2, 1)):
        x, stats = batch_norm(conv_transposed(x, p, f"{k}.", stride, padding), p, stats, f"{k + 1}.")
        x = jax.nn.relu(x)
    return jnp.tanh(conv_transposed(x, p, "9.", 2, 1)), stats


def discriminate(p, stats, x):
    x = jax.nn.leaky_relu(conv(x, p, "0.", 2, 1), 0.2)
    for k in (2, 5):
        x, stats = batch_norm(conv(x, p, f"{k}.", 2, 1), p, stats, f"{k + 1}.")
        x = jax.nn.leaky_relu(x, 0.2)
    return jax.nn.sigmoid(conv(x, p, "8.").reshape(-1)), stats


def logarithm(x):  # torch's loss does not go below
    return jnp.maximum(jnp.log(x), -100).mean()


def dcgan_step(state, real, noise):
    generator, discriminator = state["generator"], state["discriminator"]

    def of_discriminator(p, fake):
        on_real, stats = discriminate(p, state["of discriminator"], last(real))
        on_fake, stats = discriminate(p, stats, fake)
        return -logarithm(on_real) - logarithm(1 - on_fake), stats

    def of_generator(fake, p, stats):
        found, stats = discriminate(p, stats, fake)
        return -logarithm(found), stats

    adam = functools.partial(update, lr=2e-4, betas=(0.5, 0.999), decay=0.0)
    fake, back, of_generated = jax.vjp(lambda p: generate(p, state["of generator"], noise), generator["p"],
                                       has_aux=True)
    (loss, stats), gradients = jax.value_and_grad(of_discriminator, has_aux=True)(discriminator["p"], fake)
    discriminator = adam(gradients, discriminator)
    (fooled, stats), gradient = jax.value_and_grad(of_generator, has_aux=True)(fake, discriminator["p"], stats)
    state = {"generator": adam(back(gradient)[0], generator), "discriminator": discriminator,
             "of generator": of_generated, "of discriminator": stats}
    return state, (loss, fooled)


def dcgan_begin(task):
    state = {}
    for name, model in zip(("generator", "discriminator"), task.models):
        state[name], state[f"of {name}"] = begin(arrays(model.named_parameters())), statistics(model)
    return state


# ---- Steps


def statistics(model):
    return arrays((name, value) for name, value in model.named_buffers() if "running" in name)


def supervised(loss):
    def step(state, *batch):
        (value, stats), gradients = jax.value_and_grad(loss, has_aux=True)(state["p"], state["stats"], *batch)
        return {**update(gradients, state), "stats": stats}, value

    def begin_of(task):
        model, = task.models
        return {**begin(arrays(model.named_parameters())), "stats": statistics(model)}

    return step, begin_of


def optimizer_alone(state):
    new = {**update(state["gradients"], state), "gradients": state["gradients"]}
    return new, next(iter(new["p"].values())).ravel()[:100].sum()


def optimizer_begin(task):
    model, = task.models
    gradients = arrays((name, p.grad) for name, p in model.named_parameters())
    return {**begin(arrays(model.named_parameters())), "gradients": gradients}


class Steps:
    def __init__(self, task, step, begin):
        self.step, self.begin = jax.jit(step, donate_argnums=0), begin
        self.state = begin(task)

    def __call__(self, batch):
        self.state, losses = self.step(self.state, *(tensor.numpy() for tensor in batch))
        return tuple(map(float, losses)) if isinstance(losses, tuple) else float(losses)

    def reset(self, task):
        self.state = self.begin(task)


def prepare(task):
    if task.name in NOT_WRITTEN:
        raise NotImplementedError(NOT_WRITTEN[task.name])
    if task.name in LOSSES:
        return Steps(task, *supervised(LOSSES[task.name]))
    if task.name == "dcgan":
        return Steps(task, dcgan_step, dcgan_begin)
    return Steps(task, optimizer_alone, optimizer_begin)
