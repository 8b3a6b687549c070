"""Who is measured. A peer turns a model and an example input into a callable; its library is imported only then.

prepare(model, example, threads) -> callable(tensor) -> tensor or array. Raising is an answer: the peer is shown as
failed.
"""

import os
import sys
import tempfile
from dataclasses import dataclass
from typing import Callable

from . import decoding


@dataclass(frozen=True)
class Peer:
    name: str
    title: str
    prepare: Callable


def model_of(program):
    """What a tool takes: the model that a program of many calls is made of, or the one that is called."""
    return getattr(program, "model", program) if hasattr(program, "program") else program


def one_call(model):
    if model_of(model) is not model:
        raise TypeError("takes one call of a model, not a program of many calls of different shapes")
    return model


def eager(model, example, threads):
    return model


def dycl(model, example, threads):
    import dycl as library

    library.accelerate(model_of(model))
    return model


def before(model, example, threads):
    """dycl as another checkout has it, built in place there: what a change gained or lost, in one run with what it is
    now."""
    if "DYCL_BENCH_BEFORE" not in os.environ:
        raise OSError("DYCL_BENCH_BEFORE names no checkout")
    sys.path.insert(0, os.environ["DYCL_BENCH_BEFORE"])
    return dycl(model, example, threads)


def inductor(model, example, threads):
    model_of(model).compile()
    return model


def inductor_max(model, example, threads):
    import torch
    import torch._inductor.config

    torch._inductor.config.freezing = True
    if model_of(model) is not model:
        # A cache of one size, as transformers advises for compiled models: every step has the same shapes.
        model.model.generation_config.cache_implementation = "static"
    model_of(model).compile(mode="max-autotune")
    return model


def jit(model, example, threads):
    import torch

    return torch.jit.freeze(torch.jit.trace(one_call(model), example))


def export_onnx(model, example, path):
    import torch

    try:
        torch.onnx.export(model, (example,), path, dynamo=True, optimize=True, verbose=False)
    except Exception as error:
        # The older exporter takes some models that the newer one does not; where it fails too, the newer one's reason
        # counts.
        try:
            torch.onnx.export(model, (example,), path, dynamo=False)
        except Exception:
            raise error from None


def onnxruntime(model, example, threads):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    if model_of(model) is not model:
        return decoding.onnxruntime(model, example, options)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "model.onnx")
        export_onnx(model, example, path)
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x.numpy()})[0]


def openvino(model, example, threads):
    import openvino as ov

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    if model_of(model) is not model:
        return decoding.openvino(model, example, settings)
    converted = ov.convert_model(model, example_input=example)
    converted.reshape(list(example.shape))
    compiled = ov.Core().compile_model(converted, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda x: request.infer([x.numpy()], share_inputs=True, share_outputs=True)[0]


PEERS = [
    Peer("eager", "torch eager", eager),
    Peer("dycl", "dycl", dycl),
    Peer("before", "dycl before", before),
    Peer("inductor", "torch.compile", inductor),
    Peer("inductor-max", "torch.compile, max-autotune, freezing; generation with a static cache", inductor_max),
    Peer("jit", "torch.jit.freeze(trace)", jit),
    Peer("onnxruntime", "ONNX Runtime", onnxruntime),
    Peer("openvino", "OpenVINO", openvino),
]
BY_NAME = {peer.name: peer for peer in PEERS}


def versions(names):
    """What is installed of what was asked for; reads metadata, imports nothing."""
    from importlib import metadata

    wanted = ["torch", "numpy", "transformers"] + [name for name in ("dycl", "onnxruntime", "openvino", "jax")
                                                   if name in names]
    if "onnxruntime" in names:
        wanted += ["onnx", "onnxscript"]
    found = {}
    for name in wanted:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
