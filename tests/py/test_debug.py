"""What DYCL_LOG and dycl.debug.graph show: texts that parse again to the same graph, on their way through Python's
logging, whose handlers may run any code."""

import random
import re
import subprocess
import sys
import textwrap

import pytest
import test_environment
import test_op_db
import test_random_programs
import torch
import torch.nn.functional as F
from samples import op_db
from suite import lot

import dycl
from dycl import _core


def texts(accelerated, show="all", calls=1):
    """(what it is, the lines of its graph without their comments) of each text."""
    out = []
    for part in dycl.debug.graph(accelerated, show, calls).split("\n\n"):
        head, _, body = part.partition("\n")
        out.append((head, "".join(line.partition("  #")[0] + "\n" for line in body.splitlines()
                                  if line.startswith("%"))))
    return out


def numbered(text):
    """The values numbered without gaps, which is how a graph prints."""
    names = {name: f"%{i}" for i, name in enumerate(re.findall(r"^(%\d+) =", text, re.MULTILINE))}
    return re.sub(r"%\d+", lambda m: names[m[0]], text)


def parses(accelerated):
    """Every text parses and prints as it stood. How many there were."""
    found = texts(accelerated)
    for head, body in found:
        assert _core.graph_reprint(body) == numbered(body), head
        if head.endswith("as recorded:"):
            assert ":=" not in body and numbered(body) == body, "what is recorded lies as inferred"
    return sum(bool(body) for _, body in found)


def run(function, *arguments, calls=3):
    accelerated = dycl.accelerate(function)
    with torch.no_grad():
        for _ in range(calls):
            accelerated(*arguments)
    return accelerated


# ---- The texts


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_parse_again(seed):
    rng = random.Random(seed)
    program = test_random_programs.program_of(test_random_programs.steps(rng))
    shapes = [tuple(rng.randint(1, 7) for _ in range(rng.randint(1, 4))) for _ in range(2)]
    torch.manual_seed(seed)
    accelerated = run(lambda: program(torch.randn(shapes[0]), torch.randn(shapes[1])))
    parses(accelerated)


@pytest.mark.parametrize("op", [op for op in op_db if torch.float32 in op.dtypes
                                and lot("text", op.full_name) % 3 == 0], ids=lambda op: op.full_name)
@pytest.mark.filterwarnings("ignore")
def test_samples_of_operators_parse_again(op):
    samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=False))
    samples = sorted(samples, key=lambda s: lot(s.summary()))[:3]
    for s in samples:
        for _, form in (("chain", test_op_db._chain(op.op)), ("view", test_op_db._chain(op.op, test_op_db._gaps))):
            try:
                accelerated = run(form, s.input, s.args, s.kwargs, calls=2)
            except Exception:  # noqa: BLE001  what such a sample is, test_op_db looks at
                continue
            parses(accelerated)


def test_each_pass_appears():
    def function(x, y):
        a = (x + y) * (x + y) + (y + x).exp().softmax(-1) - x.neg().neg()
        return torch.cat([a, (F.gelu(x) * 2 + 1).transpose(0, 1).contiguous().tanh().transpose(0, 1)])

    accelerated = run(function, torch.rand(16, 32), torch.rand(16, 32))
    heads = [re.sub(r"segment \w+", "segment", head) for head, _ in texts(accelerated)]
    tuned = [name for name, _, tuned in test_environment.PASSES if tuned == "1"]
    assert heads[:2] == ["# ran 3 times; ended by: end of the accelerated call", "# segment, as recorded:"]
    assert heads[2:-1] == [f"# segment, after {name} (tuned plan):" for name in tuned]
    assert heads[-1].startswith("# segment, tuned plan: ") and parses(accelerated) == len(heads) - 2
    bodies = dict(zip(heads, (body for _, body in texts(accelerated))))
    assert ":=" in bodies["# segment, after join (tuned plan):"], "a part of the concatenation lies in it"
    assert "gelu_mul" in bodies["# segment, after combine (tuned plan):"] \
        and "gelu_mul" not in bodies["# segment, after fuse (tuned plan):"]
    assert "square" in bodies["# segment, after simplify (tuned plan):"]
    assert len(bodies["# segment, after cse (tuned plan):"]) < len(bodies["# segment, as recorded:"])


def test_what_the_last_calls_ran():
    def function(x, big):
        return (x * 2).sum() if big else (x + 1).tanh()

    accelerated = dycl.accelerate(function)
    with torch.no_grad():
        for big in (True, True, False):
            accelerated(torch.rand(4), big)

    def ran(calls):
        return [("tanh" in body, "sum" in body) for head, body in texts(accelerated, "graph", calls)
                if "recorded" in head]

    assert ran(1) == [(True, False)] and sorted(ran(2)) == sorted(ran(9)) == [(False, True), (True, False)]
    assert [head.split(", ")[1] for head, _ in texts(accelerated, "order")[1:]] == ["after order (cold plan):"]
    with pytest.raises(ValueError, match="fuze is no topic: the topics are graph, dce, .*plan, and"):
        dycl.debug.graph(accelerated, "fuse,fuze")
    with pytest.raises(ValueError, match="calls is 1 or more"):
        dycl.debug.graph(accelerated, calls=0)
    with pytest.raises(TypeError):
        dycl.debug.graph(len)


def test_nothing_ran():
    assert dycl.debug.graph(dycl.accelerate(lambda x: x)) == "# no segment ran\n"


def test_loops_in_pieces_and_methods():
    def loop(x, n):
        for i in range(n):
            x = torch.tanh(x @ x) + 1
        return x

    accelerated = dycl.accelerate(loop)
    with torch.no_grad():
        for n in (5, 9, 14):
            accelerated(torch.rand(4, 4), n)
    heads = [head for head, _ in texts(accelerated)]
    assert any(", in pieces" in head for head in heads) and any(head.startswith("# piece ") for head in heads)
    parses(accelerated)

    class Model(torch.nn.Module):
        def forward(self, x):
            return x * 2

        @torch.no_grad()
        def generate(self, x):
            return self(x).exp()

    model = dycl.accelerate(Model())
    model.generate(torch.rand(3))
    assert "exp" in texts(model, "graph")[1][1]


def test_it_changes_nothing():
    """Nor does looking make plans, or say twice what it said once."""
    accelerated = run(lambda x: (x + 1).softmax(-1), torch.rand(4, 5))
    before = dycl.stats(accelerated), dycl.info()
    first = dycl.debug.graph(accelerated)
    assert dycl.debug.graph(accelerated) == first and (dycl.stats(accelerated), dycl.info()) == before


def test_texts_that_are_none():
    for text in ("%0 = feed", "%1 = neg %0", "%0 = feed f32[2]{1}\n%4 = neg %0 := f32[2]{1} of %9 + 0"):
        with pytest.raises(ValueError):
            _core.graph_reprint(text)


def test_the_documented_example():
    blocks = re.findall(r"^```(?:python)?\n(.*?)^```$", (test_environment.ROOT / "docs" / "debug.md").read_text(),
                        re.MULTILINE | re.DOTALL)
    program, shown = (block for block in blocks if "dycl.debug.graph" in block or "as recorded" in block)
    said = start("import os; os.environ['DYCL_MEASURE'] = '0'\n" + program).stdout
    assert re.sub(r"segment \w+", "", said).split() == re.sub(r"segment \w+", "", shown).split()


# ---- On their way through logging


def start(program, **variables):
    return test_environment.start(textwrap.dedent(program), DYCL_CHOOSE="0", **variables)


def test_loggers_of_topics():
    out = start("""
        import logging, torch, dycl
        class Keep(logging.Handler):
            def emit(self, record):
                seen.append((record.name, record.levelname, record.getMessage().splitlines()[0].split(", ", 1)[1]))
        seen = []
        logging.getLogger("dycl").addHandler(Keep())
        f = dycl.accelerate(lambda x: x + 1)
        with torch.no_grad():
            f(torch.ones(3))
        print(*seen, sep="\\n")
        """, DYCL_LOG="graph,order,plan")
    assert out.stdout.splitlines() == ["('dycl.graph', 'DEBUG', 'as recorded:')",
                                       "('dycl.order', 'DEBUG', 'after order (cold plan):')",
                                       "('dycl.plan', 'DEBUG', 'cold plan: 1 steps, workspace 0 bytes, 0 runs')"]
    assert not out.stderr, "the program's own handler is enough"


def test_handlers_run_behind_the_call():
    """A handler that computes with tensors and calls the model meets no region, and its failure is not the call's."""
    out = start("""
        import logging, torch, dycl
        from dycl import _core
        class Handler(logging.Handler):
            def emit(self, record):
                depths.append((torch._C._len_torch_function_stack(), type((torch.ones(2) + 1)) is torch.Tensor))
                g(torch.ones(len(depths)))
                raise RuntimeError("of the handler")
            handle = emit
        depths = []
        logging.getLogger("dycl").addHandler(Handler())
        f, g = dycl.accelerate(lambda x: (x + 1).sum().item()), dycl.accelerate(lambda x: x * 2)
        def bad(x):
            x = x + 1
            raise KeyError("of the program")
        b = dycl.accelerate(lambda x: bad(x).sum().item())
        with torch.no_grad():
            print(f(torch.ones(3)), set(depths), len(depths) > 0)
            try:
                def late(x):
                    (x * 3).sum().item()
                    raise KeyError("of the program")
                dycl.accelerate(late)(torch.ones(4))
            except KeyError as error:
                print(error)
        """, DYCL_LOG="graph")
    assert out.stdout.splitlines() == ["6.0 {(0, True)} True", "'of the program'"]


def test_an_interrupt_in_a_handler_ends_the_call():
    out = start("""
        import logging, torch, dycl
        class Handler(logging.Handler):
            def emit(self, record):
                if "cold plan" in record.getMessage():
                    raise KeyboardInterrupt
        logging.getLogger("dycl").addHandler(Handler())
        f = dycl.accelerate(lambda x: x + 1)
        with torch.no_grad():
            try:
                f(torch.ones(3))
            except KeyboardInterrupt:
                print("interrupted")
            print(f(torch.ones(3)).tolist())
        """, DYCL_LOG="plan")
    assert out.stdout.splitlines() == ["interrupted", "[2.0, 2.0, 2.0]"]


def test_threads_that_make_plans():
    out = start("""
        import logging, threading, torch, dycl
        names = []
        class Handler(logging.Handler):
            def emit(self, record):
                names.append(record.getMessage().count("as recorded"))
        logging.getLogger("dycl").addHandler(Handler())
        dycl.accelerate(len)
        def work(i):
            f = dycl.accelerate(lambda x: (x + i).tanh())
            with torch.no_grad():
                for n in range(1, 30):
                    f(torch.ones(n, i + 1))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(len(names), set(names))
        """, DYCL_LOG="graph")
    assert out.stdout.split()[0] == str(4 * 29) and out.stdout.split()[1] == "{1}"


def test_nobody_imports_logging_handlers_unasked():
    out = start("""
        import logging, dycl, torch
        dycl.accelerate(lambda x: x)(torch.ones(1))
        print(logging.getLogger("dycl").handlers, logging.getLogger("dycl").level)
        """)
    assert out.stdout == "[] 0\n"
