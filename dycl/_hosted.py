"""The host's operators (csrc/ir/hosted.def) as calls of torch: what replay does with a node of one."""

import functools
import struct

import torch

DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
          torch.bfloat16, torch.float16]  # in the order of base/dtype.h


class Parameter:
    """One of ``name:kind=default`` in hosted.def."""

    def __init__(self, text, keyword):
        self.name, rest = text.split(":", 1)
        kind, equals, self.default = rest.partition("=")
        self.kind, self.keyword, self.optional = kind[0], keyword, bool(equals)
        self.words = kind[2:].rstrip(")").split(",") if kind[0] == "w" else None
        self.copies = int(kind[1:]) if kind[1:].isdigit() else 0

    @property
    def is_tensor(self):
        return self.kind in "toT"


def parameters(text):
    """The parameters of a row, in the schema's order."""
    found, keyword = [], False
    for token in text.split():
        if token == "|":
            keyword = True
        else:
            found.append(Parameter(token, keyword))
    return found


def _f64(word):
    return struct.unpack("d", struct.pack("q", word))[0]


def _argument(p, words):
    """The value of a parameter, taken from the front of the list of words."""
    first = words.pop(0)
    if p.kind == "i":
        return first
    if p.kind == "f":
        return _f64(first)
    if p.kind == "b":
        return bool(first)
    if p.kind == "w":
        return p.words[first]
    if p.kind == "d":
        return None if first < 0 else DTYPES[first]
    if p.kind in "jg":
        value = words.pop(0)
        return None if not first else value if p.kind == "j" else _f64(value)
    if first < 0:
        return None
    values = [words.pop(0) for _ in range(first)]
    return [_f64(v) for v in values] if p.kind == "r" else values


def arguments(text, operands, attrs):
    """(positional, by name) of the call behind a node's operands and attributes."""
    words, operands, positional, named = list(attrs[3 + 2 * attrs[2] :]), list(operands), [], {}
    found = parameters(text)
    listed = len(operands) - sum(p.kind in "to" for p in found)
    for p in found:
        if p.kind == "T":
            value = [operands.pop(0) for _ in range(listed)]
        else:
            value = operands.pop(0) if p.is_tensor else _argument(p, words)
        if p.keyword:
            named[p.name] = value
        else:
            positional.append(value)
    assert not words and not operands, (text, attrs)
    return positional, named


def _run(schema, overload, text, n, *operands):
    positional, named = arguments(text, operands, n.attrs)
    result = getattr(getattr(torch.ops.aten, schema), overload or "default")(*positional, **named)
    if isinstance(result, (tuple, list)):
        result = result[n.attrs[0]]
    return result.to(DTYPES[n.dtype])  # written in place, a result takes the dtype of its target


def steps(rows, suffix=""):
    """rows: (name, schema, overload, results, parameters), as dycl._core.hosted() has them. suffix: "_" for the
    operators in place, whose first operand is written."""
    return {name: functools.partial(_run, schema + suffix, overload, text) for name, schema, overload, _, text in rows}
