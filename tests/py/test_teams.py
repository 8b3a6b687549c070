"""Threads: torch.set_num_threads is obeyed, whenever it is called and in whatever thread; small segments find out
whether a team pays."""

import os
import sys

import pytest

import started

START = """
import os, sys, threading, time, torch, dycl
from torch import nn

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
layers = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()), nn.Flatten(1), nn.Linear(8 * 32 * 32, 512), nn.GELU(), nn.LayerNorm(512),
          nn.Linear(512, 512), nn.Softmax(-1)]
model = dycl.accelerate(nn.Sequential(*layers).eval())
x = torch.rand(32, 8, 32, 32)
with dycl.disable(), torch.no_grad():
    expected = model(x)  # torch's own threads are there now

def calls(seconds=0.4, least=6):
    with torch.no_grad():
        end = time.monotonic() + seconds
        while time.monotonic() < end or least > 0:
            least -= 1
            result = model(x)
    return result  # nothing of torch runs here: it would tell this thread how many threads there may be

def others():
    \"\"\"Nanoseconds of processor time of every thread but this one and the main one, by thread.\"\"\"
    return {t: int(open(f"/proc/self/task/{t}/schedstat").read().split()[0]) for t in os.listdir("/proc/self/task") if int(t) not in (os.getpid(), threading.get_native_id())}

def busy(seconds=0.4):
    \"\"\"The processor time that other threads take while the model runs, as a share of this one's.\"\"\"
    calls()
    time.sleep(0.1)  # teams that are no longer used go to sleep
    before, mine = others(), time.thread_time()
    result = calls(seconds)
    mine = time.thread_time() - mine
    share = sum(t - before.get(k, 0) for k, t in others().items()) / 1e9 / mine
    assert torch.allclose(result, expected, rtol=1e-3, atol=1e-5)
    return share
"""


# where processor time is measured: the reference interpreter would take most of it, in one thread
UNCHECKED = {"DYCL_CHECK": "0"}


def run(program, *arguments, **more):
    environment = {**os.environ, "DYCL_CHOOSE": "0", "DYCL_AHEAD": "0", **more}
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"):
        environment.pop(name, None)
    done = started.run(["-c", START + program, *map(str, arguments)], env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_thread_from_the_start_means_no_other_thread_works():
    run("calls(); assert not others() or busy() < 0.05", 1, **UNCHECKED)


def test_a_change_between_calls_is_obeyed_and_goes_back_and_forth():
    run("""
shares = []
for threads in (2, 1, 2, 1, 3, 1, 2):
    torch.set_num_threads(threads)
    shares.append((threads, busy()))
for threads, share in shares:
    assert share < 0.05 if threads == 1 else share > 0.3, shares
""", 2, **UNCHECKED)


def test_plans_of_two_numbers_of_threads_are_kept():
    run("""
calls()
torch.set_num_threads(1)
calls()
before = dycl.stats(model)["plans"]
for _ in range(20):
    torch.set_num_threads(2); calls(0, 2)
    torch.set_num_threads(1); calls(0, 2)
assert dycl.stats(model)["plans"] <= before + 1, (before, dycl.stats(model)["plans"])
""", 2)


def test_another_thread_obeys_too():
    run("""
found = []
def work():
    found.append((busy(), torch.get_num_threads()))
thread = threading.Thread(target=work)
thread.start(); thread.join()
assert len(found) == 1 and found[0][0] < 0.05 and found[0][1] == 1, found
""", 1, **UNCHECKED)


@pytest.mark.parametrize("way", ("0", "1", "2"))
@pytest.mark.parametrize("threads", (2, 8))
def test_every_number_of_threads_that_could_be_chosen(way, threads):
    out = run("""
small = dycl.accelerate(nn.Sequential(nn.Linear(200, 300), nn.GELU(), nn.LayerNorm(300), nn.Linear(300, 70), nn.Softmax(-1)).eval())
y = torch.rand(64, 200)
with torch.no_grad():
    with dycl.disable():
        expected = small(y)
    for _ in range(300):
        assert torch.allclose(small(y), expected, rtol=1e-4, atol=1e-6)
print([line for line in dycl.explain(small).splitlines() if "threads:" in line])
""", threads, DYCL_MEASURE=way)
    wanted = ["all threads", "one thread", "a quarter of the threads"][int(way) % (3 if threads >= 8 else 2)]
    assert f"threads: {wanted}" in out, out


def test_it_is_measured_and_settles():
    out = run("""
small = dycl.accelerate(nn.Sequential(nn.Linear(200, 300), nn.GELU(), nn.LayerNorm(300), nn.Linear(300, 70), nn.Softmax(-1)).eval())
y = torch.rand(64, 200)
seen = []
with torch.no_grad():
    for i in range(300):
        small(y)
        seen += [line.partition("threads: ")[2].split(",")[0] for line in dycl.explain(small).splitlines() if "threads:" in line]
    plans = dycl.stats(small)["plans"]
print(seen[4:8], seen[-1], plans)
assert "being measured" in seen and seen[-1] in ("all threads", "one thread"), seen
assert plans == 1, "what lost is gone"
""", 2)
