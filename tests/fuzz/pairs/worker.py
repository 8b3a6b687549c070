"""Cases in processes of their own, so that one that crashes does not end the run, and each chunk has its instruction
set, ways and threads.

Memory is filled with a pattern when it is allocated and freed (glibc): what a kernel forgets to write is not by chance
what was there before.
"""

import dataclasses
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[3]
PATIENCE = 120  # seconds without a word: the case hangs

# tests/py/conftest.py says why MKL's vector functions are first called by one thread
_WARM_UP = "acos asin atan cos erf erfc erfinv exp expm1 log log10 log1p log2 sin sqrt tan tanh"


@dataclasses.dataclass(frozen=True)
class Setting:
    """isa: of DYCL_ISA; measure: of DYCL_MEASURE, or None: measured; threads: torch's."""

    isa: str
    measure: int | None
    threads: int

    def options(self):
        return f"--isa {self.isa} --threads {self.threads}" + (
            f" --measure {self.measure}" if self.measure is not None else ""
        )

    def environment(self):
        found = dict(
            os.environ, DYCL_ISA=self.isa, DYCL_CHOOSE="0", DYCL_PROFILE="0", OMP_NUM_THREADS=str(self.threads)
        )
        found["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        found["GLIBC_TUNABLES"] = "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0"
        found.pop("DYCL_MEASURE", None)
        if self.measure is not None:
            found["DYCL_MEASURE"] = str(self.measure)
        return found


def serve():
    """The process: {"module", "threads", "cases"} on its input, a line for each case before and after it on its
    output."""
    import faulthandler
    import importlib
    import warnings

    import torch

    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    work = json.load(sys.stdin)
    torch.set_num_threads(1)
    for function in _WARM_UP.split():
        for dtype in (torch.float32, torch.float64):
            getattr(torch, function)(torch.full((1,), 0.5, dtype=dtype))
    torch.set_num_threads(work["threads"])
    warnings.simplefilter("ignore")
    module = importlib.import_module(work["module"])
    faulthandler.enable()
    for i, case in enumerate(work["cases"]):
        print(json.dumps({"begin": i}), file=out)
        faulthandler.dump_traceback_later(PATIENCE - 30)
        print(json.dumps({"end": i, **module.run_case(*case)}), file=out)


def run_chunk(module, cases, setting, patience=PATIENCE):
    """Runs the cases: yields (case, what `run_case` of the module answered). A process that dies is {"outcome":
    "crash"}, one that hangs {"outcome": "hang"}; what follows runs in a new one."""
    done = 0
    while done < len(cases):
        work = {"module": module, "threads": setting.threads, "cases": cases[done:]}
        process = subprocess.Popen(
            [sys.executable, "-c", "from tests.fuzz.pairs.worker import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=setting.environment(),
            text=True,
            cwd=ROOT,
        )
        noise = []
        reader = threading.Thread(target=lambda: noise.append(process.stderr.read()[-4000:]), daemon=True)
        reader.start()
        process.stdin.write(json.dumps(work))
        process.stdin.close()
        said_lines = queue.Queue()
        speaker = threading.Thread(
            target=lambda: [*map(said_lines.put, process.stdout), said_lines.put(None)], daemon=True
        )
        speaker.start()
        begun, hung = -1, False
        while True:
            try:
                line = said_lines.get(timeout=patience if begun >= 0 else PATIENCE)
            except queue.Empty:
                hung = True
                process.kill()
                break
            if line is None:
                break
            said = json.loads(line)
            if "begin" in said:
                begun = said["begin"]
            else:
                yield cases[done + said.pop("end")], said
        status = process.wait()
        reader.join()
        speaker.join()
        process.stdout.close()
        process.stderr.close()
        if status == 0:
            return
        if begun < 0:
            raise RuntimeError(f"the process did not begin: {noise}")
        yield (
            cases[done + begun],
            {"outcome": "hang" if hung else "crash", "text": f"exit status {status}\n{''.join(noise)}"},
        )
        done += begun + 1
