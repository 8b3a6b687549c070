"""Whether dycl may work with a torch that its own tests do not know: a self-test, run once for a build of torch and
kept beside the profile.

dycl reads torch's memory layouts and answers for torch's operators, so a new torch is proven, not assumed: small
programs (_selftest.py, _selftest_train.py) run in eager and through dycl, three times each and more (a segment is seen
new, as a plan of the first kind and as a tuned one), and what a program can see of them must agree. They run in a
process of their own: a torch that dycl misreads may end it. Whatever goes wrong means that programs run in torch; where
only training does, what needs gradients does.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

from dycl import _environment, _profile

WAIT = 300  # seconds for the self-test; it takes half of one, and torch's import some more
FORMAT = 2  # of what is kept


def failure(torch, core, trains):
    """None where this torch is proven, or what failed, as a text. The second answer: whether it was found out just
    now. trains: whether what needs gradients is recorded."""
    if _environment.trusts_torch():
        return None, False
    key, place = _key(torch, core, trains), _place()
    known = _kept(place, key)
    if known is not None:
        return known or None, False
    found = _try(trains)
    _keep(place, key, found)
    return found or None, True


# ---- What is kept: the builds and what failed with them


def _key(torch, core, trains):
    """What the proof depends on: torch's and dycl's builds, the interpreter."""
    marks = [FORMAT, torch.__version__, getattr(torch.version, "git_version", ""), sys.version,
             torch.backends.cpu.get_cpu_capability(), trains]
    for path in (core.__file__, torch._C.__file__,
                 os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")):
        try:
            build = os.stat(path)
            marks += [path, build.st_size, build.st_mtime_ns]
        except OSError:
            marks.append(path)
    return hashlib.sha256(repr(marks).encode()).hexdigest()[:32]


def _place():
    """The folder of proofs, or None: where no profile is kept, no proof is."""
    profile = _profile.path()
    return os.path.join(os.path.dirname(profile), "proofs") if profile else None


def _kept(place, key):
    """"" : proven; a text: what failed; None: not known."""
    try:
        with open(os.path.join(place, key), encoding="utf-8") as file:
            found = json.loads(file.read(4096))["failed"]
        return found if isinstance(found, str) else None
    except (OSError, TypeError, ValueError, KeyError):  # there is none, or it is damaged: proven again
        return None


def _keep(place, key, failed):
    try:
        os.makedirs(place, exist_ok=True)
        new = os.path.join(place, f"{key}.{os.getpid()}")
        with open(new, "w", encoding="utf-8") as file:
            json.dump({"failed": failed, "when": int(time.time())}, file)
        os.replace(new, os.path.join(place, key))
    except (OSError, TypeError):  # the next process proves it again
        pass


# ---- The process


def _try(trains):
    """What failed, "" for nothing."""
    if not sys.executable:
        return "there is no interpreter to run the self-test with"
    space = {name: value for name, value in os.environ.items() if not name.startswith("DYCL_") or name == "DYCL_ISA"}
    space |= {"DYCL_PROFILE": "0", "DYCL_CHOOSE": "0", "DYCL_TRUST_TORCH": "1", "DYCL_TRAIN": str(int(trains))}
    code = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dycl import _selftest; _selftest.main()"
    places = [os.fsdecode(place) for place in sys.path if isinstance(place, (str, bytes))]  # what imports look at
    try:
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, json.dumps(places)], env=space,
                              capture_output=True, text=True, errors="replace", timeout=WAIT,
                              stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        return "the self-test does not end"
    except OSError as error:
        return f"the self-test does not start: {error}"
    answers = [line.partition(_MARK)[2] for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode < 0:
        return f"the self-test ends with signal {-done.returncode}"
    if done.returncode or len(answers) != 1:
        return f"the self-test ends with status {done.returncode}: {done.stderr.strip()[-200:]}"
    return json.loads(answers[0])


_MARK = "dycl self-test: "
