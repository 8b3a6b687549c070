"""What is known to differ from eager, with reasons: documented in docs/correctness.md ("Known differences"), or being
mended (temporary).

Each entry: (name, reason, whether a difference is of this kind). A difference that one of them explains is counted
under its name and not reported."""

import math
import re


def _attention(program, difference):
    return re.search("scaled_dot_product_attention|Multihead|TransformerEncoder",
                     program.source()) and _not_finite(difference)


def _not_finite(difference):
    return difference.kind in ("values", "printed", "structure", "noted") and re.search("nan|inf", difference.text)


def _has_infinities(program):
    """In what it is given: what is compared later shows none."""
    return re.search('"(special|huge)"', program.source())


def _names_stale_size(program, difference):
    sides = re.findall(r"index -?\d+ is out of bounds for dimension 0 with size", difference.text)
    return len(sides) == 2 and sides[0] == sides[1]


def _advice_about_views(program, difference):
    both = "A view was created in no_grad mode and its base or another view of its base has been modified inplace"
    return difference.text.count(both) == 2 and "returns multiple views" in difference.text


def _gradient_of_ones(program, difference):
    """Strides of a gradient where its size is 1."""
    found = re.findall(r"\(([\d, ]*)\)", difference.text)
    if difference.kind != "strides" or len(found) != 3 or not re.search(r"backward\(|autograd\.grad", program.source()):
        return False
    eager, ours, sizes = ([int(n) for n in part.split(",") if n.strip()] for part in found)
    return all(n == 1 or a == b for a, b, n in zip(eager, ours, sizes))


def _noted_of_gradient(program, difference):
    """The sixth thing that is noted is a version, the seventh whether it is a view."""
    return difference.kind == "noted" and re.search(r", [56]\): \w+ and \w+$", difference.text) \
        and re.search(r"backward\(|autograd\.grad", program.source())


def _version_of_written_gradient(program, difference):
    """What the engine counted shows where a gradient is written, and gets a history itself."""
    source = program.source()
    return difference.kind == "version" and any(
        re.search(rf"\b{name} [^ =]+=|\b{name}\.\w+_\(|\b{name}\[.*\] [-+*/]?= |\.\w+_\({name}\b", source)
        for name in re.findall(r"(\w+) = \w+\.grad\b", source))


def _sizes_of_what_was_saved(program, difference):
    """The same elements, of which torch saved a view."""
    sides = re.findall(r"modified by an inplace operation: \[torch\.\w+ \[([\d, ]*)\]", difference.text)
    sizes = [[int(n) for n in re.findall(r"\d+", side)] for side in sides]
    return len(sizes) == 2 and sizes[0] != sizes[1] and math.prod(sizes[0]) == math.prod(sizes[1])


def _gradients_where_a_pass_raises(program, difference):
    if difference.kind != "type" or "'grad')" not in difference.text:
        return False
    from . import compare

    written = "modified by an inplace operation"
    return any(written in f"{outcome.error} {outcome.printed} {outcome.result}"
               for outcome, _ in compare.outcomes(program, False))


def _rejected_draws(program, difference):
    return difference.kind in ("values", "printed") and re.search("_standard_gamma|poisson", program.source())


TEMPORARY = [
    ("attention", "masks with empty rows, NaN and infinities in attention: torch's kernels differ among each other",
     _attention),
    ("interpolate", "infinities times weights of zero",
     lambda p, d: re.search("interpolate|Upsample", p.source()) and _not_finite(d)),
]
LASTING = [
    ("gelu", "gelu of an infinity is NaN where torch's oneDNN path computes it",
     lambda p, d: "gelu" in p.source().lower() and (_not_finite(d) or d.kind == "structure" and _has_infinities(p))),
    ("base", "a view of a detached alias has the original as its _base; one of a result that is a view in dycl (stack) "
             "has what was computed", lambda p, d: d.kind == "base"
     and ("-1" in d.text or re.search(r"detach|\.data\b|numpy", p.source()))),
    ("size of a scalar", "the message about an index into a tensor without dimensions names a size that torch reads "
                         "behind its sizes", _names_stale_size),
    ("cdist", "the distance of points that are equal but for rounding is what cancellation leaves",
     lambda p, d: "cdist" in p.source() and d.kind == "values"),
    ("alpha", "a factor of a product so large that torch's terms overflow, and its sums do not here",
     lambda p, d: re.search(r"alpha=-?\d*\.?\d*e[+]?[23]\d", p.source()) and _not_finite(d)),
    ("several views", "torch's advice about a view that must not be written names the function (split, unbind) that "
                      "made several at once; dycl made each by itself", _advice_about_views),
    ("noted", "versions of gradients, and whether they are views, are each formula's own", _noted_of_gradient),
    ("engine's sums", "versions of gradients that are written afterwards", _version_of_written_gradient),
    ("sizes of what was saved", "torch's products save views: rows of several dimensions as one matrix, a vector as a "
                                "row", _sizes_of_what_was_saved),
    ("a pass that raises", "what was written in place ends a backward pass: other leaves have their gradients by then, "
                           "or not", _gradients_where_a_pass_raises),
    ("as strided", "views whose history a replay made are named AsStridedBackward0",
     lambda p, d: d.kind == "grad_fn" and re.search(r" and <AsStridedBackward0 ", d.text)),
    ("draws", "how many numbers are drawn until one is not rejected hangs on the last bits of the parameters",
     _rejected_draws),
    ("ones", "strides of dimensions of size 1 in gradients that torch's kernels lay out in their own way",
     _gradient_of_ones),
    ("fmod", "torch's vectors answer NaN where the quotient overflows, its scalars behind them do not",
     lambda p, d: re.search("fmod|remainder|mod\\(| % ", p.source()) and _not_finite(d)),
    ("bends at NaN", "gradients of activations at a NaN: torch's vectors and its scalars behind them differ",
     lambda p, d: re.search(r"(?i)\b[cs]?elu|relu6|hard(swish|tanh|shrink)", p.source())
     and re.search(r"backward\(|autograd\.grad", p.source()) and d.kind in ("values", "printed")
     and (_not_finite(d) or _has_infinities(p))),
    ("var_mean", "the mean beside a variance is NaN in torch where a value is infinite",
     lambda p, d: re.search("(var|std)_mean", p.source()) and (_not_finite(d) or _has_infinities(p))),
]


def known(program, difference):
    """The name of the entry, or None."""
    for name, _, holds in TEMPORARY + LASTING:
        if holds(program, difference):
            return name
    return None

