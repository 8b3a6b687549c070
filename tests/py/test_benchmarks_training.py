"""The benchmark of training: each program's losses in all forms that can be had here, what begins anew, and its
tables."""

import importlib
import pathlib
import random
import subprocess
import sys

import numpy
import pytest
import torch

from suite import FULL

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
workloads = importlib.import_module("benchmarks.training.workloads")
peers = importlib.import_module("benchmarks.training.peers")
jobs = importlib.import_module("benchmarks.training.job")
report = importlib.import_module("benchmarks.training.report")
worker = importlib.import_module("benchmarks.worker")
timing = importlib.import_module("benchmarks.timing")
limit = importlib.import_module("benchmarks.limit")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SHORT = timing.Plan(rounds=1, pause=0.0, warm=0.0, block=0.01, least=1, starts=1, settle=0.0, patience=120.0)


def losses(name, peer, again=False):
    """Of the steps that are compared; also of the same steps after the parameters were put back."""
    job = jobs.Job(name, peer, torch.get_num_threads(), None)
    first = job.first()["outputs"]
    return first, job.outputs()["outputs"] if again else None


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


LONG = {"gpt2", "llama", "mixtral", "t5"}  # 10 s each


@pytest.mark.parametrize("name", [n for n in workloads.BY_NAME if FULL or n not in LONG])
def test_losses_are_eagers(name):
    """Also in the second run, when dycl knows the program: other plans, and what was packed is old."""
    tolerance = workloads.BY_NAME[name].tolerance
    expected, _ = losses(name, "eager")
    assert len(expected) == jobs.COMPARED and all(numpy.isfinite(loss).all() for loss in expected)
    assert timing.difference(expected[:1] * jobs.COMPARED, expected) > 10 * tolerance  # it trains
    for peer in ("fused", "dycl"):
        for found in losses(name, peer, again=True):
            assert timing.difference(expected, found) <= tolerance, peer


@pytest.mark.parametrize("name", ["mlp", "cells", "cnn", "adamw-mlp", "skipnet", "vae", "tree-lstm", "moe",
                                  "swin", *["bert"] * FULL])
def test_losses_in_jax(name):
    """Or the reason why there is no such step."""
    pytest.importorskip("jax")
    written = importlib.import_module("benchmarks.training.jax_steps").NOT_WRITTEN
    if name in written:
        with pytest.raises(NotImplementedError, match=written[name]):
            losses(name, "jax")
        return
    expected, _ = losses(name, "eager")
    for found in losses(name, "jax", again=True):
        assert timing.difference(expected, found) <= workloads.BY_NAME[name].tolerance


@pytest.mark.parametrize("name", ["mlp", "cells", "cnn", "tree-lstm", "vae", "moe"])
def test_a_weight_that_is_not_trained_is_seen(name):
    expected, _ = losses(name, "eager")
    job = jobs.Job(name, "eager", torch.get_num_threads(), None)
    build = job.target

    def frozen():
        task = build()
        matrices = [p for p in task.models[0].parameters() if p.dim() > 1]
        matrices[len(matrices) // 2].register_hook(torch.zeros_like)
        return task

    job.target = frozen
    assert timing.difference(expected, job.first()["outputs"]) > workloads.BY_NAME[name].tolerance


def test_structures_differ_between_steps():
    random.seed(0)
    structures = importlib.import_module("benchmarks.training.workloads.structures")
    trees = [repr(structures.random_sentence()[0]) for _ in range(50)]
    assert len(set(trees)) == 50 and len({tree.count("(") for tree in trees}) > 5
    model, taken = workloads.build("skipnet"), set()
    optimizer = model.optimizer(model.models[0].parameters())
    for batch in model.batches * 2:
        model.step(model.models[0], optimizer, *batch)
        taken.add(tuple(p.grad is None for p in model.models[0].parameters()))
    assert len(taken) > 2  # paths through the blocks


def test_training_begins_anew():
    """Before each sixteenth round, for every peer: all make the same steps."""
    job = jobs.Job("mlp", "eager", 1, None)
    job.first()
    first = [p.clone() for p in job.model.models[0].parameters()]
    now = list(job.call.task.models[0].parameters())
    assert not torch.equal(first[0], now[0])
    job.renew()
    assert all(map(torch.equal, first, now))
    job.call(job.inputs[0])
    job.renew()
    assert not torch.equal(first[0], now[0]) and torch.equal(first[0], job.model.models[0][0].weight)


PEAKS = """
import torch
from benchmarks.training import job as jobs
held = []
before = jobs.kilobytes("RssAnon")
assert jobs.peak(lambda: held.append(torch.ones(1 << 24))) - before > 60_000
found = jobs.Job("adamw-large", "eager", 1, None).memory()  # two averages of 40 MB
assert found["first"] > 70_000 and found["later"] > 70_000, found
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_is_seen():
    """In a process of its own: one that let go of much memory takes that first."""
    subprocess.run([sys.executable, "-c", PEAKS], check=True, cwd=pathlib.Path(__file__).resolve().parents[2])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_loop_updates_all(threads):
    loops = limit.Machine(threads)
    for count in (1, 1000, 4096 * 8 + 5):
        arrays = [limit.aligned(count) for _ in range(4)]
        assert loops.update(*arrays) >= 0
        assert torch.equal(arrays[0], torch.ones(count)) and all(torch.equal(a, torch.ones(count)) for a in arrays[1:])
        arrays[0].fill_(5)
        loops.update(*arrays)
        assert all(torch.equal(a, torch.full((count,), 2.0)) for a in arrays[1:])


def test_a_run_in_processes():
    """One workload from end to end, with a peer that fails: its reason stands in the table."""
    said = []
    memory = importlib.import_module("benchmarks.training.memory")
    workload = workloads.BY_NAME["tree-lstm"]
    results = timing.run(workload, ["dycl", "jax"], 1, SHORT, said.append)
    memory.measure(workload, results, 1, SHORT, said.append)
    assert [r.state for r in results.values()] == ["right", "right", "failed"], said
    run = {"machine": {"cpu": "x", "cpus": 2, "python": "3", "system": "y"}, "threads": 1, "versions": {},
           "plan": {"rounds": 1, "starts": 1, "patience": 120.0}, "results": [(workload, results)]}
    text = report.markdown(run)
    assert "structure depends on the data" in text or "No module named 'jax'" in text
    entry = report.as_json(run)["workloads"]["tree-lstm"]["peers"]
    assert entry["dycl"]["state"] == "right" and entry["jax"]["state"] == "failed"
    assert set(entry["eager"]["details"]["peak_kib"]) == {"first", "later"}


def test_columns():
    workload = workloads.BY_NAME["adamw-large"]

    def result(name, ms, **more):
        return timing.Result(name, blocks=[[ms * 1e6] * 3], first_s=0.01, **more)

    results = {"eager": result("eager", 15), "fused": result("fused", 6), "dycl": result("dycl", 5),
               "inductor": result("inductor", 4, state="wrong"), "jax": result("jax", 10),
               "limit": result("limit", 4, state="limit")}
    for name, first in (("eager", 2048), ("dycl", 1024)):
        results[name].details["peak_kib"] = {"first": first, "later": first}
    assert report.row(workload, results)[1:] == ["15", "6", "5", "3x", "1.2x", "2x (jax 10)", "1.25 of 4 ms", "10 / 10",
                                                 "1 / 2", "1 / 2"]
    assert report.row(workload, {"eager": results["eager"]})[3] == "-"


def test_curves_beside_double_precision():
    curves = importlib.import_module("benchmarks.training.curves")
    found = curves.measure("mlp", 6, torch.get_num_threads())
    assert [len(found[side]) for side in ("eager", "dycl", "double")] == [6, 6, 6]
    assert len(set(found["eager"])) == 6  # each step has a batch of its own
    assert curves.distance(found["dycl"], found["double"]) < 1e-5
    assert curves.rows({"mlp": found})[-1].count("never") == 2
    found["dycl"][3] *= 1.01
    assert "| 3 | never |" in curves.rows({"mlp": found})[-1]
