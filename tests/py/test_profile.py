"""The profile: what one process measured serves the next; whatever is wrong with the file, programs run as if there
were none."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

import started

from dycl import _profile
from suite import FULL

PROGRAM = """
import sys, torch, dycl
from torch import nn

torch.manual_seed(0)
width = int(sys.argv[1]) if len(sys.argv) > 1 else 48
model = nn.Sequential(nn.Linear(width, 70), nn.GELU(), nn.LayerNorm(70), nn.Linear(70, 3)).eval()
x = torch.rand(4, width)
with torch.no_grad():
    expected = model(x)
    dycl.accelerate(model)
    model(x)
    first = dycl.explain(model)
    for _ in range(8):
        assert torch.allclose(model(x), expected, rtol=1e-5, atol=1e-5)
print("first:", "tuned" if "tuned plan" in first else "cold" if "cold plan" in first else first, "hits:", dycl.info()["profile_hits"])
"""


def start(where, *arguments, **more):
    environment = {**os.environ, "DYCL_CHOOSE": "0", **({"DYCL_PROFILE": str(where)} if where is not None else {}),
                   **more}
    if where is None:
        del environment["DYCL_PROFILE"]
    return started.start(["-c", PROGRAM, *arguments], env=environment)


def run(where, *arguments, warnings=0, **more):
    process = start(where, *arguments, **more)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err.count("RuntimeWarning") == warnings and "Traceback" not in err, err
    return out


SHORT = """
import sys
from dycl import _core, _profile
class Core:
    __file__, info, profile_remember = _core.__file__, _core.info, _core.profile_remember
    profile_take, profile_untake = lambda: [("key", "way", 1.0)], lambda: None
_profile.start(Core)
print("known:", _core.info()["profile"])
"""


def short(where, warnings=0):
    """A process that reads the profile and has something to write at its end, without the time that torch needs; what
    it knew."""
    done = subprocess.run([sys.executable, "-c", SHORT], env={**os.environ, "DYCL_PROFILE": str(where)},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr.count("RuntimeWarning") == warnings \
        and "Traceback" not in done.stderr, \
        done.stderr
    return int(done.stdout.split()[-1])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """This process with a profile of its own, whose file is not there yet: its path."""
    from dycl import _api

    assert _api._setup()
    path = tmp_path / "here" / "profile"
    monkeypatch.setattr(_profile, "_core", _api._core)
    monkeypatch.setattr(_profile, "_path", str(path))
    return path


def choices(path):
    """{(machine, key): [way, microseconds, noted]}, with all that makes the file a right one."""
    head, _, body = path.read_bytes().partition(b"\n")
    assert head == b"dycl profile %d %08x" % (_profile.VERSION, _profile.zlib.crc32(body))
    return {(name, key): row for name, rows in json.loads(body).items() for key, row in rows.items()}


def change(path, edit):
    """The file with its choices as edit() leaves them."""
    known = json.loads(path.read_bytes().partition(b"\n")[2])
    edit(known)
    path.write_bytes(_profile._encode(known))


def test_a_second_start_begins_where_the_first_one_ended(tmp_path):
    path = tmp_path / "deeper" / "profile"
    assert "first: cold hits: 0" in run(path)
    kept = choices(path)
    assert kept and list(path.parent.iterdir()) == [path], "and nothing else lies there"
    again = run(path)
    assert "first: tuned" in again and "hits: 0" not in again, again
    assert choices(path) == kept, "nothing new: nothing is written"
    assert "first: cold" in run(path, 50), "another program"
    assert choices(path).items() > kept.items()


def test_an_explanation_writes_too(tmp_path):
    path = tmp_path / "profile"
    # nothing runs at the end of this process
    program = PROGRAM + "dycl.explain(model)\nimport os; sys.stdout.flush(); os._exit(0)\n"
    done = started.run(["-c", program], env={**os.environ, "DYCL_CHOOSE": "0", "DYCL_PROFILE": str(path)}, timeout=120)
    assert done.returncode == 0 and "first: cold" in done.stdout, done.stderr
    assert "first: tuned" in run(path)


def test_where_it_is(tmp_path):
    run("0", XDG_CACHE_HOME=str(tmp_path / "x"), HOME=str(tmp_path))
    assert not list(tmp_path.iterdir()), "off"
    run(None, XDG_CACHE_HOME=str(tmp_path / "x"), HOME=str(tmp_path))
    assert (tmp_path / "x" / "dycl" / "profile-2").exists() and not (tmp_path / ".cache").exists()
    run(None, XDG_CACHE_HOME="not/absolute", HOME=str(tmp_path))
    assert (tmp_path / ".cache" / "dycl" / "profile-2").exists()


@pytest.mark.parametrize("value, expected", [("0", None), ("off", None), ("1", "/x/dycl/profile-2"),
                                             ("", "/x/dycl/profile-2"), ("/y/z", "/y/z"), ("y", os.path.realpath("y"))])
def test_what_the_variable_says(monkeypatch, value, expected):
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("DYCL_PROFILE", value)
    assert _profile.path() == expected


# ---- Files that are not as they should be


def cut(path):
    run(path)
    path.write_bytes(path.read_bytes()[:-20])


def flipped(path):
    run(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


DAMAGED = {"empty": lambda path: path.touch(), "zeros": lambda path: path.write_bytes(bytes(5000)), "cut off": cut,
           "a bit flipped": flipped}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_file_of_ours_is_replaced_in_silence(tmp_path, how):
    path = tmp_path / "profile"
    DAMAGED[how](path)
    assert "first: cold hits: 0" in run(path)
    assert choices(path)
    assert "first: tuned" in run(path)


def newer(path):
    body = b"whatever"
    path.write_bytes(b"dycl profile 77 %08x\n%s" % (_profile.zlib.crc32(body), body))


def sqlite(path):
    import sqlite3

    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE others (a)")
    connection.close()


def socket_file(path):
    before = os.getcwd()
    os.chdir(path.parent)  # its name may not be long
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(before)


def huge(path):
    path.write_bytes(b"dycl profile 2 00000000\n")
    os.truncate(path, 1 << 40)  # nothing but a hole


def loop(path):
    path.symlink_to(path.with_name("other"))
    path.with_name("other").symlink_to(path)


SPOILED = {
    "noise": lambda path: path.write_bytes(os.urandom(9000)),
    "text": lambda path: path.write_text("no profile"),
    "of another program": sqlite,
    "of another version": newer,
    "a folder": lambda path: path.mkdir(),
    "a fifo": lambda path: os.mkfifo(path),
    "a socket": socket_file,
    "links in a ring": loop,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "huge": huge,
    "rows of other types": lambda path: path.write_bytes(_profile._encode({"machine": [1, 2]})),
    "keys of other types": lambda path: path.write_bytes(
        _profile._encode({_profile.machine(): {"key": [{}, "x", "y"]}})),
    "no table": lambda path: path.write_bytes(_profile._encode([[[]]])),
    "deep": lambda path: path.write_bytes(b"dycl profile 2 %08x\n%s" % (_profile.zlib.crc32(b"[" * 200000),
                                                                        b"[" * 200000)),
}


@pytest.mark.parametrize("how", SPOILED)
def test_what_is_not_ours_is_left_alone_after_one_warning(here, how):
    here.parent.mkdir()
    SPOILED[how](here)
    before = here.read_bytes() if here.is_file() and how != "huge" else None
    if how in ("noise", "a fifo"):
        assert "first: cold hits: 0" in run(here, warnings=1)
    assert short(here, warnings=1) == 0
    assert (here.read_bytes() if here.is_file() and how != "huge" else None) == before
    assert len(list(here.parent.iterdir())) == 1 + (how == "links in a ring")


@pytest.mark.parametrize("name", ["/dev/full", "/dev/null", "/dev/zero", "/dev/tty", "/proc/kmsg", "/proc/self/mem",
                                  "/proc/nowhere/profile", "/dev/stdin/profile"])
def test_devices_and_files_of_the_kernel(name):
    assert short(name, warnings=1) == 0


@pytest.mark.parametrize("how", [name for name in SPOILED if name != "huge"])
def test_the_same_where_the_new_file_would_be_written(here, how):
    here.parent.mkdir()
    name = here.with_name("profile.new")
    SPOILED[how](name)
    silent = name.is_file() and not name.is_symlink()  # what lies there under this name was left behind
    assert short(here, warnings=0 if silent else 1) == 0
    assert here.exists() == silent and short(here, warnings=0 if silent else 1) == silent


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    short(tmp_path / "file" / "profile", warnings=1)  # no folder can be made there
    short(tmp_path / ("n" * 254), warnings=1)


def test_a_full_disk(tmp_path):
    path = tmp_path / "profile"
    run(path)
    before = path.read_bytes()
    # the same error as of a full one
    program = PROGRAM.replace("import sys,", "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, "
                                             "100))\nimport sys,")
    environment = {**os.environ, "DYCL_CHOOSE": "0", "DYCL_PROFILE": str(path)}
    done = subprocess.run([sys.executable, "-c", program, "51"], env=environment, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0 and done.stderr.count("RuntimeWarning") == 1 and "Traceback" not in done.stderr, \
        done.stderr
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_file_that_may_only_be_read():
    # root may write everywhere
    drop = ("    import os, sqlite3, numpy, dycl._core\n"
            "    if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n")
    program = PROGRAM.replace("    dycl.accelerate(model)\n", drop + "    dycl.accelerate(model)\n")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "profile")
        run(path)
        before = path.read_bytes()
        pathlib.Path(folder).chmod(0o777)
        path.chmod(0o444)
        for folder_mode in (0o555, 0o777):
            pathlib.Path(folder).chmod(folder_mode)
            for width, warned in ((48, 0), (51, 1)):  # what is known is used; what is new cannot be kept
                environment = {**os.environ, "DYCL_CHOOSE": "0", "DYCL_PROFILE": str(path)}
                done = started.run(["-c", program, str(width)], env=environment, timeout=120)
                if done.stderr.count("Permission denied: '/") and "RuntimeWarning" not in done.stderr:
                    pytest.skip("dycl lies where another user may not look")
                assert done.returncode == 0 and done.stderr.count("RuntimeWarning") == warned, done.stderr
                assert ("first: tuned" if width == 48 else "first: cold") in done.stdout
        assert path.read_bytes() == before and len(list(path.parent.iterdir())) == 1
        pathlib.Path(folder).chmod(0o755)


def test_a_link_stays_one_and_a_mode_is_kept(here):
    here.parent.mkdir()
    here.symlink_to("elsewhere")
    assert run(here) and choices(here)
    os.chmod(here, 0o660)
    assert run(here, 51)
    assert here.is_symlink() and here.resolve().name == "elsewhere" and here.stat().st_mode & 0o777 == 0o660
    assert "first: tuned" in run(here) and "first: tuned" in run(here, 51)


@pytest.mark.parametrize("seed", range(400 if FULL else 40))
def test_random_damage(here, seed):
    """Read and written again in this process: never an error, and a right file with what is new wherever it was
    ours."""
    chance = random.Random(seed)
    for n in range(3):
        assert _profile._write([(f"key {n} {k}", "way", 1.0) for k in range(20)])
    data = bytearray(here.read_bytes())
    for _ in range(chance.choice([1, 1, 2, 30])):
        kind, at = chance.randrange(5), chance.randrange(len(data) + 1)
        if kind == 0:
            data[at:] = b""
        elif kind == 1 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            data[at:at] = chance.randbytes(chance.randrange(1, 40))
        elif kind == 3:
            del data[at:at + chance.randrange(1, 40)]
        else:
            data[at:at + 64] = bytes(64)
        if not data:
            break
    here.write_bytes(data)
    ours = data.startswith(b"dycl profile ") or not data.strip(b"\0")
    try:
        known = _profile._read()
    except ValueError:
        assert not ours
    else:
        assert ours and known == {}
        assert _profile._write([("new", "way", 1.0)]) and len(choices(here)) == 1


# ---- Several processes


def test_several_processes_at_a_time(tmp_path):
    path = tmp_path / "profile"
    processes = [start(path, width) for width in (20, 21, 22, 23, 20, 21)]
    for process in processes:
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0 and "Warning" not in err, err
    for width in (20, 21, 22, 23):
        assert "first: tuned" in run(path, width)


WRITER = """
import os, sys, time
from dycl import _core, _profile
_profile._core, _profile._path = _core, sys.argv[1]
print("ready", flush=True)
for n in range(int(sys.argv[3])):
    if not _profile._write([(f"{sys.argv[2]} {n} {k} " + 200 * "x", "way", 1.0) for k in range(3)]): print("locked", flush=True)
"""


def writer(path, name, times):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(name), str(times)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    return process


def test_nothing_that_others_write_is_lost(here):
    processes = [writer(here, name, 15) for name in "abcd"]
    locked = 0
    for process in processes:
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0 and not err, err
        locked += out.count("locked")
    assert len(choices(here)) == 3 * (60 - locked) and locked < 20 and list(here.parent.iterdir()) == [here]


def test_kills_at_any_moment(here):
    """Children of this process write and are killed: afterwards the file is one that some of them wrote, whole, and
    nobody has to wait or to warn."""
    assert _profile._write([(f"first {k}" + 200 * "x", "way", 1.0) for k in range(300)])
    chance, written, cut_short = random.Random(7), set(), 0
    for n in range(1000 if FULL else 60):
        child = os.fork()
        if child == 0:
            try:
                for k in range(1000):
                    _profile._write([(f"{n} {k} " + 200 * "x", "way", 1.0)])
            finally:
                os._exit(1)
        time.sleep(chance.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        cut_short += here.with_name("profile.new").exists()
        begin = time.monotonic()
        known = {key for _, key in choices(here)}
        assert known >= written and time.monotonic() - begin < 5
        written = known if len(known) < 2000 else set()
        if len(known) >= 2000:
            here.unlink()
            assert _profile._write([(f"again {k}" + 200 * "x", "way", 1.0) for k in range(300)])
    assert cut_short > 5, "some were hit while they wrote"
    assert _profile._write([("last", "way", 1.0)]) and list(here.parent.iterdir()) == [here]
    assert short(here) == len(choices(here)) - 1, "known, without a word"


def test_a_writer_that_stands_still_is_done_without(here):
    import fcntl

    run(here)
    before = here.read_bytes()
    with open(str(here) + ".new", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        begin = time.monotonic()
        assert "first: tuned" in run(here), "reading waits for nobody"
        assert "first: cold" in run(here, 51) and time.monotonic() - begin < 60
        assert here.read_bytes() == before
    assert "first: cold" in run(here, 51)
    assert "first: tuned" in run(here, 51)


def test_where_there_are_no_locks(here, monkeypatch):
    def flock(file, what):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(_profile.fcntl, "flock", flock)
    for n in range(3):
        assert _profile._write([(f"key {n}", "way", 1.0)])
    assert len(choices(here)) == 3


def test_what_could_not_be_written_is_written_later(here, monkeypatch):
    core, lock = _profile._core, _profile._lock
    taken = core.profile_take()
    core.profile_untake()
    monkeypatch.setattr(_profile, "_lock", lambda: ("", None))
    _profile.save()
    monkeypatch.setattr(_profile, "_lock", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    if taken:
        with pytest.raises(KeyboardInterrupt):
            _profile.save()
    monkeypatch.setattr(_profile, "_lock", lock)
    assert [row[0] for row in core.profile_take()] == [row[0] for row in taken]
    core.profile_untake()


# ---- What is kept


def test_other_machines_and_old_choices_do_not_count(tmp_path):
    path = tmp_path / "profile"
    run(path)

    def age(known):
        for rows in known.values():
            for row in rows.values():
                row[2] -= 40 * 86400

    change(path, age)
    assert "first: cold hits: 0" in run(path)
    assert min(noted for _, _, noted in choices(path).values()) > time.time() - 86400, "measured again"
    change(path, lambda known: known.update({"another" + name: known.pop(name) for name in list(known)}))
    assert "first: cold hits: 0" in run(path)
    assert len({name for name, _ in choices(path)}) == 2


def test_the_file_stays_small(here, monkeypatch):
    monkeypatch.setattr(_profile, "ROWS", 100)
    for i in range(30):
        _profile._write([(f"key {i} {k}", "way", 1.0) for k in range(10)])
    kept = {key for _, key in choices(here)}
    assert 70 <= len(kept) <= 110 and {f"key 29 {k}" for k in range(10)} <= kept


def test_importing_dycl_does_not_touch_it(tmp_path):
    path = tmp_path / "profile"
    path.write_text("no profile")
    program = "import dycl, sys; assert 'torch' not in sys.modules; print('ok')"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "DYCL_PROFILE": str(path)},
                          capture_output=True, text=True, timeout=60)
    assert done.stdout == "ok\n" and not done.stderr, done.stderr


def test_a_forked_child_and_its_parent_both_write(tmp_path):
    program = PROGRAM.replace("with torch.no_grad():", "import os\nchild = os.fork()\nif child == 0: width, x = 30, "
                                                       "torch.rand(4, 30); model = nn.Sequential(nn.Linear(30, 9), "
                                                       "nn.Tanh()).eval()\nwith torch.no_grad():")
    program += "if child: assert os.waitpid(child, 0)[1] == 0\n"
    path = tmp_path / "profile"
    done = started.run(["-c", program], env={**os.environ, "DYCL_PROFILE": str(path), "DYCL_CHOOSE": "0"}, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert len(choices(path)) == 2
