"""The profile database: what one process measured serves the next; whatever is wrong with the file, programs run as if there were none."""

import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import time

import pytest

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
    environment = {**os.environ, "DYCL_CHOOSE": "0", **({"DYCL_PROFILE": str(where)} if where is not None else {}), **more}
    if where is None:
        del environment["DYCL_PROFILE"]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(where, *arguments, warnings=0, **more):
    process = start(where, *arguments, **more)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err.count("RuntimeWarning") == warnings and "Traceback" not in err, err
    return out


def rows(path, what="count(*)"):
    with sqlite3.connect(path) as connection:
        return connection.execute(f"SELECT {what} FROM choices").fetchall()


def change(path, statement, *values):
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    connection.close()


def test_a_second_start_begins_where_the_first_one_ended(tmp_path):
    path = tmp_path / "deeper" / "profile.sqlite"
    assert "first: cold hits: 0" in run(path)
    kept = rows(path, "*")
    assert kept
    again = run(path)
    assert "first: tuned" in again and "hits: 0" not in again, again
    assert rows(path, "*") == kept, "nothing new: nothing is written"
    assert "first: cold" in run(path, 50), "another program"
    assert len(rows(path, "*")) > len(kept)


def test_an_explanation_writes_too(tmp_path):
    path = tmp_path / "profile.sqlite"
    program = PROGRAM + "dycl.explain(model)\nimport os; sys.stdout.flush(); os._exit(0)\n"  # nothing runs at the end of this process
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "DYCL_CHOOSE": "0", "DYCL_PROFILE": str(path)}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "first: cold" in done.stdout, done.stderr
    assert "first: tuned" in run(path)


def test_where_it_is(tmp_path):
    run("0", XDG_CACHE_HOME=str(tmp_path / "x"), HOME=str(tmp_path))
    assert not list(tmp_path.iterdir()), "off"
    run(None, XDG_CACHE_HOME=str(tmp_path / "x"), HOME=str(tmp_path))
    assert (tmp_path / "x" / "dycl" / "profile-1.sqlite").exists() and not (tmp_path / ".cache").exists()
    run(None, XDG_CACHE_HOME="not/absolute", HOME=str(tmp_path))
    assert (tmp_path / ".cache" / "dycl" / "profile-1.sqlite").exists()


def foreign(path):
    change(path, "CREATE TABLE others (a)")
    change(path, "INSERT INTO others VALUES (7)")


def cut(path):
    run(path)
    path.write_bytes(path.read_bytes()[:1500])


def newer(path):
    run(path)
    change(path, "PRAGMA user_version = 77")


def odd_rows(path):
    run(path)
    change(path, "UPDATE choices SET key = x'ff00ff'")


SPOILED = {
    "noise": lambda path: path.write_bytes(os.urandom(9000)),
    "text": lambda path: path.write_text("no database"),
    "cut off": cut,
    "of another program": foreign,
    "of another version": newer,
    "a folder": lambda path: path.mkdir(),
    "other types": odd_rows,
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_file_is_ignored_with_one_warning_and_left_alone(tmp_path, how):
    path = tmp_path / "profile.sqlite"
    SPOILED[how](path)
    before = path.read_bytes() if path.is_file() else None
    assert "first: cold hits: 0" in run(path, warnings=1)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    assert "hits: 0" in run(tmp_path / "file" / "profile.sqlite", warnings=1)  # no folder can be made there
    assert "hits: 0" in run("/proc/nowhere/profile.sqlite", warnings=1)


def test_a_file_that_may_only_be_read():
    drop = "    import os, sqlite3, numpy, dycl._core\n    if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"  # root may write everywhere
    program = PROGRAM.replace("    dycl.accelerate(model)\n", drop + "    dycl.accelerate(model)\n")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "profile.sqlite")
        run(path)
        before = path.read_bytes()
        path.chmod(0o444)
        pathlib.Path(folder).chmod(0o555)
        for width, warned in ((48, 0), (51, 1)):  # what is known is used; what is new cannot be kept
            environment = {**os.environ, "DYCL_CHOOSE": "0", "DYCL_PROFILE": str(path)}
            done = subprocess.run([sys.executable, "-c", program, str(width)], env=environment, capture_output=True, text=True, timeout=120)
            if done.stderr.count("Permission denied"):
                pytest.skip("dycl lies where another user may not look")
            assert done.returncode == 0 and done.stderr.count("RuntimeWarning") == warned, done.stderr
            assert ("first: tuned" if width == 48 else "first: cold") in done.stdout
        assert path.read_bytes() == before
        pathlib.Path(folder).chmod(0o755)


def test_several_processes_at_a_time(tmp_path):
    path = tmp_path / "profile.sqlite"
    processes = [start(path, width) for width in (20, 21, 22, 23, 20, 21)]
    for process in processes:
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0 and "Warning" not in err, err
    for width in (20, 21, 22, 23):
        assert "first: tuned" in run(path, width)


def test_a_file_is_read_in_one_state(tmp_path, monkeypatch):
    """Another process that makes the file between two of our questions must not let it look like somebody else's."""
    from dycl import _profile

    path = tmp_path / "profile.sqlite"
    path.touch()
    monkeypatch.setattr(_profile, "_path", str(path))

    connect = sqlite3.connect

    class Interrupted(sqlite3.Connection):
        def execute(self, statement, *arguments):
            if statement.startswith("SELECT count"):  # the application's number was asked for before
                other = connect(path, timeout=0, isolation_level=None)
                try:
                    for step in ("BEGIN IMMEDIATE", f"PRAGMA application_id = {_profile.APPLICATION}", "PRAGMA user_version = 1", "CREATE TABLE choices (a)", "COMMIT"):
                        other.execute(step)
                except sqlite3.OperationalError:  # it has to wait
                    pass
                other.close()
            return super().execute(statement, *arguments)

    monkeypatch.setattr(sqlite3, "connect", lambda *arguments, **more: connect(*arguments, **{"factory": Interrupted, **more}) if more.get("uri") else connect(*arguments, **more))
    connection = _profile._open(create=False)
    assert connection is None or connection.close() is None


def test_a_locked_file_is_done_without(tmp_path):
    path = tmp_path / "profile.sqlite"
    run(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    begin = time.monotonic()
    assert "first: cold hits: 0" in run(path)
    assert time.monotonic() - begin < 60
    connection.execute("ROLLBACK")
    connection.close()
    assert "first: tuned" in run(path)


def test_other_machines_and_old_choices_do_not_count(tmp_path):
    path = tmp_path / "profile.sqlite"
    run(path)
    change(path, "UPDATE choices SET noted = noted - 40 * 86400")
    assert "first: cold hits: 0" in run(path)
    assert min(rows(path, "noted"))[0] > time.time() - 86400, "measured again"
    change(path, "UPDATE choices SET machine = 'another' || machine")
    assert "first: cold hits: 0" in run(path)
    assert len(rows(path, "DISTINCT machine")) == 2


def test_the_file_stays_small(tmp_path, monkeypatch):
    from dycl import _api, _profile

    _api._setup()
    monkeypatch.setattr(_profile, "_core", _api._core)
    monkeypatch.setattr(_profile, "_path", str(tmp_path / "profile.sqlite"))
    monkeypatch.setattr(_profile, "ROWS", 100)
    for i in range(30):
        _profile._write([(f"key {i} {k}", "way", 1.0) for k in range(10)])
    kept = {key for (key,) in rows(tmp_path / "profile.sqlite", "key")}
    assert 70 <= len(kept) <= 110 and {f"key 29 {k}" for k in range(10)} <= kept


def test_importing_dycl_does_not_touch_it(tmp_path):
    path = tmp_path / "profile.sqlite"
    path.write_text("no database")
    program = "import dycl, sys; assert 'sqlite3' not in sys.modules and 'torch' not in sys.modules; print('ok')"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "DYCL_PROFILE": str(path)}, capture_output=True, text=True, timeout=60)
    assert done.stdout == "ok\n" and not done.stderr, done.stderr


def test_a_forked_child_and_its_parent_both_write(tmp_path):
    program = PROGRAM.replace("with torch.no_grad():", "import os\nchild = os.fork()\nif child == 0: width, x = 30, torch.rand(4, 30); model = nn.Sequential(nn.Linear(30, 9), nn.Tanh()).eval()\nwith torch.no_grad():")
    program += "if child: assert os.waitpid(child, 0)[1] == 0\n"
    path = tmp_path / "profile.sqlite"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "DYCL_PROFILE": str(path), "DYCL_CHOOSE": "0"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert len(rows(path, "*")) == 2
