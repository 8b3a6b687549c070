"""What was found out by measuring on this machine, kept between processes: a small SQLite file in the user's cache folder.

It holds hints only: nothing in it can change a result. So it is disposable, and whatever is wrong with it (damaged, of another program, not to be
read or written) leaves dycl working as if there were none, after one warning. ``DYCL_PROFILE=0`` does without, ``DYCL_PROFILE=path`` puts it elsewhere.
"""

import atexit
import os
import time
import warnings

APPLICATION = 0x6479636C  # "dycl", in the file's header
VERSION = 1  # of the schema; also in the file's name, so that versions do not meet
ROWS = 5000  # of all machines and versions together; the oldest go
DAYS = 30  # then a choice is measured again
WAIT = 0.5  # seconds for another process that writes

_core = None
_path = None  # None: nothing is kept
_warned = False


def path():
    """Where the file is, or None."""
    wanted = os.environ.get("DYCL_PROFILE", "")
    if wanted:
        return None if wanted == "0" else os.path.abspath(wanted)
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(folder):
        folder = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(folder, "dycl", f"profile-{VERSION}.sqlite") if os.path.isabs(folder) else None


def start(core):
    """Called once, when dycl is first used: takes over what is known, and keeps what will be found out at the end of the process."""
    global _core, _path
    _core, _path = core, path()
    if _path is None:
        return
    try:
        import sqlite3  # noqa: F401
    except ImportError:  # a Python without it
        _path = None
        return
    if os.path.exists(_path):
        try:
            _core.profile_remember(_load())
        except Exception as error:  # noqa: BLE001: SQLite's errors, a file that is no file, rows of other types
            _give_up(error)
            return
    atexit.register(save)


def _give_up(error):
    global _path, _warned
    where, _path = _path, None
    if not _warned:
        _warned = True
        warnings.warn(f"dycl keeps nothing of what it measures, because of {where}: {error} (remove the file, or set DYCL_PROFILE to 0 or to another path)",
                      RuntimeWarning, stacklevel=6)


def machine():
    """What choices depend on beside their keys: the processor, how many of its cores may be used, and what runs there."""
    from dycl import __version__

    cpu = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            cpu = file.read(8192).partition("\n\n")[0]
    except OSError:
        pass
    fields = dict(line.replace("\t", "").split(":", 1) for line in cpu.splitlines() if ":" in line)
    flags = sorted(fields.get("flags", "").split())
    build = os.stat(_core.__file__)
    import zlib

    return ", ".join([fields.get("model name", "?").strip(), "-".join(fields.get(name, "?").strip() for name in ("cpu family", "model", "stepping")),
                      f"flags {zlib.crc32(' '.join(flags).encode()):08x}", f"cores {len(os.sched_getaffinity(0))}", f"dycl {__version__}",
                      f"build {build.st_size:x}.{build.st_mtime_ns:x}", f"oneDNN {_core.info()['onednn']}"])


def _open(create):
    """A connection to a file that is ours. Made anew each time, so that none goes through a fork."""
    import sqlite3
    from urllib.parse import quote

    connection = sqlite3.connect(f"file:{quote(_path)}?mode={'rwc' if create else 'ro'}", uri=True, timeout=WAIT, isolation_level=None)
    try:
        connection.execute("BEGIN")  # one state of the file: another process may be making it
        (application,), (version,) = connection.execute("PRAGMA application_id").fetchone(), connection.execute("PRAGMA user_version").fetchone()
        empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not (application == APPLICATION and version == VERSION or create and empty and application == 0):
            if not create and empty and application == 0:  # another process is just making it
                connection.close()
                return None
            raise ValueError("not a profile of dycl")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _load():
    import sqlite3

    connection = None
    try:
        connection = _open(create=False)
        if connection is None:
            return []
        since = time.time() - DAYS * 86400
        return connection.execute("SELECT key, way FROM choices WHERE machine = ? AND noted > ? ORDER BY noted DESC LIMIT ?", (machine(), since, ROWS)).fetchall()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):  # for longer than WAIT: this process measures for itself
            return []
        raise
    finally:
        if connection is not None:
            connection.close()


def save():
    """Writes what is new: at the end of the process, and when an explanation is asked for, which takes its time anyway."""
    if _path is None:
        return
    rows = _core.profile_take()
    if not rows:
        return
    try:
        _write(rows)
    except Exception as error:  # noqa: BLE001: as in start
        if "locked" in str(error):
            _core.profile_untake()
        else:
            _give_up(error)


def _write(rows):
    os.makedirs(os.path.dirname(_path), mode=0o700, exist_ok=True)
    connection = _open(create=True)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("CREATE TABLE IF NOT EXISTS choices (machine TEXT, key TEXT, way TEXT, microseconds REAL, noted REAL, PRIMARY KEY (machine, key)) WITHOUT ROWID")
        name, now = machine(), time.time()
        connection.executemany("INSERT OR REPLACE INTO choices VALUES (?, ?, ?, ?, ?)", [(name, key, way, ns / 1000, now) for key, way, ns in rows])
        count = connection.execute("SELECT count(*) FROM choices").fetchone()[0]
        if count > ROWS:
            oldest = connection.execute("SELECT noted FROM choices ORDER BY noted DESC LIMIT 1 OFFSET ?", (ROWS * 3 // 4,)).fetchone()[0]
            connection.execute("DELETE FROM choices WHERE noted <= ? AND NOT (machine = ? AND noted = ?)", (oldest, name, now))
        connection.execute("COMMIT")
    finally:
        connection.close()  # rolls back what is not committed
