"""Generation in ONNX Runtime and OpenVINO: the model's step is exported with its key/value cache, a greedy loop goes
around it.

The export is transformers' own (transformers.exporters), which is what a user of these libraries has today: for ONNX
Runtime with its fusions for the CPU (grouped attention that appends to the cache, packed projections), for OpenVINO
with the cache as state of the compiled model. A model with a decoder only is one graph, for any number of tokens behind
a cache of any length, hence also for the prompt behind an empty one. A model with an encoder is three: the encoder, the
first step, which also makes the keys and values of the encoder's result, and the steps after it. Only the last
position's logits are computed, as in generate().
"""

import functools
import os
import tempfile

import numpy

CACHE = "past_key_values."


def export(exporter, config, model, example):
    """Programs by name (step; with an encoder also encoder and first), and the shape of an empty cache by the tensor's
    name."""
    import torch
    from transformers.exporters.exporter_dynamo import get_auto_dynamic_shapes
    from transformers.exporters.utils import decompose_for_generation, get_leaf_tensors

    mask = torch.ones_like(example)
    encoder = model.config.is_encoder_decoder
    parts = decompose_for_generation(model, {"input_ids": example, "attention_mask": mask}, multi_token_decode=True)
    wanted = {"step": parts["decode"]}
    if encoder:
        wanted["first"] = parts["prefill"]
        wanted["encoder"] = (model.get_encoder(), {"input_ids": example, "attention_mask": mask})
    else:
        parts["decode"][1]["logits_to_keep"] = 1
    empty = {}
    for name, tensor in get_leaf_tensors(parts["decode"][1]).items():
        if name.startswith(CACHE):
            empty[name] = (*tensor.shape[:2], 0, tensor.shape[3])
    found = {}
    for name, (part, inputs) in wanted.items():
        # use_cache and return_dict are so anyway
        inputs = {key: value for key, value in inputs.items() if not isinstance(value, bool)}
        found[name] = exporter.export(part, inputs,
                                      config(dynamic_shapes=lengths(get_auto_dynamic_shapes(inputs)))).program
    return found, empty


def lengths(shapes):
    """Of all dimensions those that vary here, a sequence's: the third of the cache's tensors, the second of the
    others."""
    if isinstance(shapes, dict) and shapes and all(isinstance(key, int) for key in shapes):
        place = 2 if len(shapes) == 4 else 1
        return {place: shapes[place]}
    if isinstance(shapes, dict):
        return {key: lengths(value) for key, value in shapes.items()}
    return type(shapes)(map(lengths, shapes)) if isinstance(shapes, (list, tuple)) else shapes


def cached(name):
    """The cache's tensor that an input or output of this name is, or None."""
    place = name.find(CACHE)
    return name[place:] if place >= 0 else None


def feed(names, ids, before, source=None, hidden=None):
    """The inputs of a graph other than its cache. ids go in behind `before` others; an encoder was given source and
    made hidden."""
    made = {
        "input_ids": lambda: ids,
        "decoder_input_ids": lambda: ids,
        "position_ids": lambda: numpy.arange(before, before + ids.shape[1], dtype=numpy.int64)[None],
        "attention_mask": lambda: numpy.ones((1, before + ids.shape[1] if source is None else source.shape[1]),
                                             numpy.int64),
        "logits_to_keep": lambda: numpy.array(1, numpy.int64),
        "beam_idx": lambda: numpy.zeros(1, numpy.int32),
        "encoder_outputs.last_hidden_state": lambda: hidden,
    }
    return {name: made[name]() for name in names}


class OnnxRuntime:
    """Bound inputs and outputs: a step's cache stays in the library's own memory and goes into the next step as it
    is."""

    def __init__(self, programs, empty, save, options):
        import onnxruntime

        self.value = onnxruntime.OrtValue.ortvalue_from_numpy
        self.empty = {name: self.value(numpy.empty(shape, numpy.float32)) for name, shape in empty.items()}
        self.sessions, self.inputs, self.outputs = {}, {}, {}
        with tempfile.TemporaryDirectory() as directory:
            for name in list(programs):
                path = os.path.join(directory, f"{name}.onnx")
                save(programs.pop(name), path)
                session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
                self.sessions[name] = session
                self.inputs[name] = [i.name for i in session.get_inputs()]
                # A step hands on the encoder's keys and values as it was given them: only the first step is asked for
                # those.
                self.outputs[name] = [o.name for o in session.get_outputs() if name == "first"
                                      or not (cached(o.name) or "").startswith(CACHE + "cross")]

    def run(self, name, cache, **given):
        session = self.sessions[name]
        binding = session.io_binding()
        plain = [i for i in self.inputs[name] if not cached(i)]
        for key, value in feed(plain, **given).items():
            binding.bind_ortvalue_input(key, self.value(value) if isinstance(value, numpy.ndarray) else value)
        for key in self.inputs[name]:
            if cached(key):
                binding.bind_ortvalue_input(key, cache[cached(key)])
        for key in self.outputs[name]:
            binding.bind_output(key, "cpu")
        session.run_with_iobinding(binding)
        return dict(zip(self.outputs[name], binding.get_outputs()))

    def begin(self, ids):
        self.cache = dict(self.empty)
        self.source = self.hidden = None
        if "encoder" in self.sessions:
            self.hidden = self.run("encoder", {}, ids=ids, before=0)["last_hidden_state"]
            self.source = ids

    def step(self, ids, before):
        name = "first" if self.hidden is not None and not before else "step"
        found = self.run(name, self.cache, ids=ids, before=before, source=self.source, hidden=self.hidden)
        for key, value in found.items():
            if cached(key):
                self.cache[cached(key)] = value
        return found["logits"].numpy()


def relax(program):
    """The keys and values of the encoder's result are state as long as the example's; the first step sets them, of any
    length."""
    import openvino

    variables = {variable.get_info().variable_id: variable for variable in program.get_variables()}
    for operator in program.get_ops():
        if operator.get_type_name() == "ReadValue" and (cached(operator.get_variable_id())
                                                        or "").startswith(CACHE + "cross"):
            variable = variables[operator.get_variable_id()]
            info = variable.get_info()
            shape = list(info.data_shape)
            info.data_shape = openvino.PartialShape([*shape[:2], openvino.Dimension(-1), shape[3]])
            variable.update(info)
            operator.set_arguments([])
    program.validate_nodes_and_infer_types()


class OpenVino:
    """The step's cache is state of its request; the first step of a model with an encoder fills it. Tensors are shared,
    not copied."""

    def __init__(self, programs, settings):
        import openvino

        self.tensor = openvino.Tensor
        core = openvino.Core()
        self.requests, self.inputs = {}, {}
        relax(programs["step"])
        for name, program in programs.items():
            compiled = core.compile_model(program, "CPU", settings)
            self.requests[name] = compiled.create_infer_request()
            self.inputs[name] = [port.get_any_name() for port in compiled.inputs]
        # A variable is called by what comes in and what goes out.
        self.states = {cached(state.name).partition("output.")[0]: state
                       for state in self.requests["step"].query_state()}

    def run(self, name, **given):
        return self.requests[name].infer(feed(self.inputs[name], **given), share_inputs=True, share_outputs=True)

    def begin(self, ids):
        self.requests["step"].reset_state()
        self.source = self.hidden = None
        if "encoder" in self.requests:
            self.hidden = self.run("encoder", ids=ids, before=0)["last_hidden_state"]
            self.source = ids

    def step(self, ids, before):
        name = "first" if self.hidden is not None and not before else "step"
        found = self.run(name, ids=ids, before=before, source=self.source, hidden=self.hidden)
        if name == "first":
            for port, value in found.items():
                if cached(port.get_any_name()):
                    self.states[cached(port.get_any_name())].state = self.tensor(value, shared_memory=True)
        return found["logits"]


def greedy(program, backend):
    """As many tokens as the program makes, each the best of its step: what generate() gives, from the backend's
    steps."""
    config = program.model.config
    start = numpy.array([[config.decoder_start_token_id]], numpy.int64) if config.is_encoder_decoder else None

    def call(prompt):
        ids = prompt.numpy()
        found = [ids if start is None else start]
        backend.begin(ids)
        before = 0
        for _ in range(program.tokens):
            logits = backend.step(found[-1], before)
            before += found[-1].shape[1]
            found.append(logits[:, -1].argmax(-1).reshape(1, 1))
        return numpy.concatenate(found, 1)

    return call


def onnxruntime(program, example, options):
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    exporter = OnnxExporter()
    programs, empty = export(exporter, functools.partial(OnnxConfig, ort_fusions="cpu"), program.model, example)
    return greedy(program, OnnxRuntime(programs, empty, exporter.save_program, options))


def openvino(program, example, settings):
    from transformers.exporters.exporter_openvino import OpenVINOConfig, OpenVINOExporter

    programs, _ = export(OpenVINOExporter(), OpenVINOConfig, program.model, example)
    return greedy(program, OpenVino(programs, settings))
