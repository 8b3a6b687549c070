"""What torch runs faster goes to torch, and what dycl runs faster stays: by measurement, with results that are the same
either way."""

import os

import started

PROGRAM = """
import torch, dycl
from torch import nn

def tiny(x):
    return x.view(-1)

class Unrepresented(nn.Module):  # every operator is left to torch, and each breaks the segment
    def forward(self, x):
        for _ in range(20):
            x = torch.special.airy_ai(x)
        return x

model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))]).eval()
x = torch.rand(8, 64)
with torch.no_grad():
    wanted = [tiny(x), Unrepresented()(x), model(x)]
    calls = [dycl.accelerate(tiny), dycl.accelerate(Unrepresented()), dycl.accelerate(model)]
    for call, expected in zip(calls, wanted):
        for _ in range(400):
            torch.testing.assert_close(call(x), expected, rtol=1e-5, atol=1e-5)
slow, left, fast = [dycl.stats(call) for call in calls]
assert slow["plain_faster"] > 200, slow
assert left["plain_faster"] > 200, left
assert fast["calls"] > 300 and fast["plain_faster"] < 100, fast
assert "torch from now on" in dycl.explain(calls[0])
assert "recorded from now on" in dycl.explain(calls[2])
"""


def assert_eventually(program):
    """Decisions by measured times: other work on the machine may spoil one attempt, not each of four."""
    for _ in range(4):
        done = run(program, DYCL_CHOOSE="1", DYCL_CHECK="0")  # a checked plan is never the faster way
        if done.returncode == 0:
            return
    raise AssertionError(done.stderr)


def run(program, **environment):
    space = {**os.environ, **environment}
    return started.run(["-c", program], env=space, timeout=120)


def test_each_callable_finds_its_better_way():
    assert_eventually(PROGRAM)


def test_off_means_always_recorded():
    program = ("import torch, dycl\nf = dycl.accelerate(lambda x: x + 1)\nwith torch.no_grad():\n"
               "    [f(torch.zeros(2)) for _ in range(200)]\nprint(dycl.stats(f)['calls'])")
    assert run(program, DYCL_CHOOSE="0").stdout.strip() == "200"
    assert int(run(program, DYCL_CHOOSE="1").stdout) < 200


HOPELESS = """
import torch, dycl
from torch import nn

class Unrepresented(nn.Module):
    def forward(self, x):
        for _ in range(20):
            x = torch.special.airy_ai(x)
        return x

class NeverTheSame(nn.Module):  # each call takes a path of its own
    calls = 0

    def forward(self, x):
        self.calls += 1
        for i in range(12):
            x = x.tanh() if self.calls >> i & 1 else x * 0.5
        return x

x = torch.rand(8, 64)
with torch.no_grad():
    left = dycl.accelerate(Unrepresented())
    for _ in range(40):
        left(x)
    assert dycl.stats(left)["plain_faster"] > 30, dycl.stats(left)  # after three calls, not only after 24
    text = dycl.explain(left)
    assert "torch from now on (backed off), the other way is tried again after" in text and "most operators are left to torch" in text, text
    assert "hardly repeat" not in text
    new = dycl.accelerate(NeverTheSame())
    for _ in range(300):
        new(x)
text = dycl.explain(new)
assert "paths or shapes hardly repeat" in text and "left to torch" not in text.splitlines()[2], text
"""


def test_hopeless_programs_back_off_and_say_so():
    assert_eventually(HOPELESS)


def test_explain_of_a_program_with_very_many_paths_stays_short():
    program = HOPELESS[: HOPELESS.index("    left = ")] + """
    new = dycl.accelerate(NeverTheSame())
    for _ in range(300):
        new(x)
text = dycl.explain(new)
assert len(text) < 200000 and "more segments" in text, len(text)
"""
    done = run(program, DYCL_CHOOSE="0")  # all of them recorded, whichever way is faster
    assert done.returncode == 0, done.stderr


DRIFT = """
import time, torch, dycl

class Holder:
    wait = 0.0

def program(x):  # recorded is faster, until it waits
    y = x + 1
    if Holder.wait and type(y) is not torch.Tensor:
        time.sleep(Holder.wait)
    for _ in range(20):
        y = y * 2 + 1
    return y

f = dycl.accelerate(program)
x = torch.rand(200)
with torch.no_grad():
    for _ in range(2000):
        f(x)
    before = dycl.stats(f)
    assert before["calls"] > 1900, before
    Holder.wait = 0.001
    for _ in range(1500):
        f(x)
after = dycl.stats(f)
assert after["calls"] - before["calls"] < 1000, (before, after)
"""


def test_a_way_that_became_slower_is_looked_at_sooner():
    assert_eventually(DRIFT)


MANY_PATHS = """
import random, torch, dycl  # one thread: where others want the cores too, a team waits for its slowest
from torch import nn

torch.set_num_threads(1)
layers = [layer for _ in range(6) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())]
model, chance = dycl.accelerate(nn.Sequential(*layers).eval()), random.Random(0)
with torch.no_grad():
    for _ in range(1000):  # the size is another one at each call; every one comes back
        model(torch.rand(1, 8, 16, 8 + chance.randrange(100)))
stats = dycl.stats(model)
assert stats["calls"] > 900, stats
x = torch.rand(8, 64)

class New(nn.Module):  # no path ever comes back, and torch is faster
    def forward(self, x, n):
        return torch.cumprod(x.reshape(-1)[:n] + 1, 0)

model = dycl.accelerate(New())
with torch.no_grad():
    for n in range(1000):
        model(x, n % 500 + 1)
        x = torch.rand(8, 65 + n)
stats = dycl.stats(model)
assert stats["plain_faster"] > 600, stats
"""


def test_a_path_that_was_new_says_nothing_about_the_others():
    assert_eventually(MANY_PATHS)
