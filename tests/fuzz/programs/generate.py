"""A whole program from a seed: 3 to 40 steps over the vocabulary of bindings and what else programs do."""

import functools
import random
import re

from dycl import _core

from . import calls, draw, steps_memory  # noqa: F401 (adds to STEPS)
from .steps import STEPS

# weights of a call of a bound operator beside those of steps.py: few other steps make long segments
BOUND = (75, 75, 300, 1500)


@functools.cache
def spellings():
    """By row, so that a row with many spellings is not drawn more often."""
    rows = {}
    for spelling in _core.rows():
        rows.setdefault((spelling[2], spelling[3]), []).append(tuple(spelling))
    return list(rows.values())


def floats_of(seed):
    """What a model is loaded in, for a whole program: most are float32."""
    return random.Random(f"floats {seed}").choices(["torch.float32", "torch.bfloat16", "torch.float16"], [80, 14, 6])[0]


def draw_program(seed, rows=None):
    rng = random.Random(f"program {seed}")
    rows = rows or spellings()
    mode = rng.choices(["no_grad", "grad", "inference"], [75, 17, 8])[0]
    d = draw.Draw(rng, mode=mode, reuse=rng.choice([0.6, 0.8, 0.95]), lazy=rng.choice([0.1, 0.4, 0.7]),
                  keep_errors=0.15, values=rng.choice([None, None, "grid", "normal"]), floats=floats_of(seed),
                  edges=rng.choice([0, 0.1, 0.3, 0.9]))
    # Arguments that need gradients; without, the program may make leaves of its own.
    d.leaves = rng.random() < {"grad": 0.4, "no_grad": 0.15, "inference": 0}[mode]
    few = rng.random() < 0.4
    favourites = rng.sample(rows, 12)
    size = rng.randint(3, 12) if few else rng.randint(8, 40)
    for _ in range(rng.choice([1, 2, 3])):
        shape = d.shape(1, 4)
        d.input(shape, d.floats if rng.random() < 0.8 else d.dtype(), plain=True)
    if d.leaves:
        d.input(d.shape(1, 3), d.floats, plain=True, grad=True)
    bound, tries = rng.choice(BOUND), 0
    while len(d.steps) < size and tries < 4 * size:
        tries += 1
        if rng.random() * (bound + sum(STEPS.values())) < bound:
            calls.emit(d, rng.choice(rng.choice(favourites if rng.random() < 0.5 else rows)), spoil=0.01)
        else:
            rng.choices(list(STEPS), list(STEPS.values()))[0](d)
    names = [n for n in d.pool if n[0] == "v"]
    share = rng.choice([0.3, 0.6, 1.0])
    d.returned = [n for n in names if rng.random() < share] or names[-1:]
    sizes = sorted({n for i in d.inputs for n in i.sizes if n > 1})
    other = (n := rng.choice(sizes), n + rng.choice([1, -1, 2])) if sizes and rng.random() < 0.3 else None
    if any(re.search(r"lstm|gru|rnn", s.text) for s in d.steps):
        other = None  # torch reads behind weights of such sizes
    if any(i.of for i in d.inputs):
        other = None  # places in memory that would not be there
    form = "module" if rng.random() < (0.5 if d.modules else 0.05) else "function"
    return d.program(other=other, form=form, seed=rng.randrange(1000), calls=rng.choice([3, 4, 4, 5]))

