"""What was found out by measuring on this machine, kept between processes: a small file in the user's cache folder.

It holds hints only: nothing in it can change a result. So it is disposable, and whatever is wrong with it leaves dycl
working as if there were none. ``DYCL_PROFILE=0`` does without, ``DYCL_PROFILE=path`` puts it elsewhere.

One line says what the file is and the checksum of the rest; the rest is JSON. It is never written in place: a whole new
file is renamed over it, so that a process that is killed at any moment leaves the old one or the new one, and nobody
has to repair anything before reading. The new file, while it is being written, is also the lock among processes: it
goes with the process that holds it, and another one writes it anew.
"""

import atexit
import errno
import fcntl
import json
import os
import stat
import time
import warnings
import zlib

NAME = b"dycl profile "
VERSION = 2  # of the format; also in the file's name, so that versions do not meet
ROWS = 5000  # of all machines and versions together; the oldest go
BYTES = 16 << 20  # more is nothing that we wrote
DAYS = 30  # then a choice is measured again
WAIT = 0.5  # seconds for another process that writes

_core = None
_path = None  # None: nothing is kept
_warned = False


def path():
    """Where the file is, or None."""
    from dycl import _environment

    wanted = _environment.profile()
    if wanted:
        return os.path.realpath(wanted)  # a new file replaces what a link points to, not the link
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(folder):
        folder = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.realpath(os.path.join(folder, "dycl", f"profile-{VERSION}")) if wanted is None \
        and os.path.isabs(folder) else None


def start(core):
    """Called once, when dycl is first used: takes over what is known, and keeps what will be found out at the end of
    the process."""
    global _core, _path
    _core, _path = core, path()
    if _path is None:
        return
    try:
        since = time.time() - DAYS * 86400
        known = _read().get(machine(), {})
        _core.profile_remember([(key, way) for key, (way, _, noted) in known.items() if noted > since])
    except Exception as error:  # noqa: BLE001: no file of ours, or none that may be read
        _give_up(error)
        return
    atexit.register(save)


def _give_up(error):
    global _path, _warned
    where, _path = _path, None
    if not _warned:
        _warned = True
        warnings.warn(f"dycl keeps nothing of what it measures, because of {where}: {error} (remove the file, or set "
                      f"DYCL_PROFILE to 0 or to another path)",
                      RuntimeWarning, stacklevel=7)


def machine():
    """What choices depend on beside their keys: the processor, how many of its cores may be used, and what runs
    there."""
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
    return ", ".join([fields.get("model name", "?").strip(),
                      "-".join(fields.get(name, "?").strip() for name in ("cpu family", "model", "stepping")),
                      f"flags {zlib.crc32(' '.join(flags).encode()):08x}", f"cores {len(os.sched_getaffinity(0))}",
                      f"dycl {__version__}",
                      f"build {build.st_size:x}.{build.st_mtime_ns:x}", f"oneDNN {_core.info()['onednn']}"])


# ---- Reading


def _contents():
    """The file's bytes, b"" where there is none. Raises where it is not an ordinary file: opening a FIFO or a device
    may wait for ever or do harm."""
    try:
        if not stat.S_ISREG(os.stat(_path).st_mode):
            raise ValueError("not an ordinary file")
        file = os.open(_path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return b""
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("not an ordinary file")
        if found.st_size > BYTES:
            raise ValueError("not a profile of dycl")
        data = b""
        # a file of /proc says 0 and may be read for ever
        while len(data) < found.st_size and (part := os.read(file, found.st_size - len(data))):
            data += part
        return data
    finally:
        os.close(file)


def _read():
    """{machine: {key: [way, microseconds, noted]}}. A file of ours that is damaged counts as empty, and is replaced;
    raises where it is not ours."""
    data = _contents()
    if not data.strip(b"\0"):  # nothing came to the disk before the machine stopped
        return {}
    head, _, body = data.partition(b"\n")
    if not head.startswith(NAME):
        raise ValueError("not a profile of dycl")
    version, _, checksum = head[len(NAME):].partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        return {}
    if version != b"%d" % VERSION:
        raise ValueError("a profile of another version of dycl")
    known = json.loads(body)
    if not isinstance(known, dict) or not all(isinstance(rows, dict) and all(_is_row(row) for row in rows.values())
                                              for rows in known.values()):
        raise ValueError("not a profile of dycl")
    return known


def _is_row(row):
    return isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) and isinstance(row[2], float)


# ---- Writing


def save():
    """Writes what is new: at the end of the process, and when an explanation is asked for, which takes its time
    anyway."""
    if _path is None:
        return
    written = False
    try:
        rows = _core.profile_take()
        written = not rows or _write(rows)
    except Exception as error:  # noqa: BLE001: as in start
        _give_up(error)
    finally:
        if not written:  # another process was too slow, or somebody pressed Ctrl-C: the next time
            _core.profile_untake()


def _write(rows):
    """Whether it was written; False: others were writing all the time."""
    os.makedirs(os.path.dirname(_path), mode=0o700, exist_ok=True)
    name, file = _lock()
    if file is None:
        return False
    try:
        data = _encode(_merge(_read(), rows))
        _keep_owner(file)
        os.ftruncate(file, 0)
        while data:
            data = data[os.write(file, data):]
        os.replace(name, _path)
    except BaseException:
        try:
            os.unlink(name)
        except OSError:
            pass
        raise
    finally:
        os.close(file)
    return True


def _lock():
    """The new file's name and descriptor, locked. A descriptor of None: others had it for too long."""
    name, until = _path + ".new", time.monotonic() + WAIT
    while True:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise ValueError(f"{name} is not an ordinary file")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), os.stat(name)):
                return name, file
        except FileNotFoundError:  # whoever had it before us has renamed it: the name is free
            pass
        except OSError as error:
            # no locks here: at worst, what another process writes now is lost
            if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL):
                os.close(file)
                return _unlocked()
            if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                os.close(file)
                raise
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        if time.monotonic() > until:
            return name, None
        time.sleep(0.002)


def _unlocked():
    name = f"{_path}.{os.getpid()}.new"
    return name, os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)


def _keep_owner(file):
    """A file that may not be written stays; one that is replaced keeps its mode and (root may see to it) its owner."""
    try:
        found = os.stat(_path)
    except FileNotFoundError:
        return
    if not os.access(_path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    os.fchmod(file, stat.S_IMODE(found.st_mode))
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        try:
            os.fchown(file, found.st_uid, found.st_gid)
        except PermissionError:
            pass


def _merge(known, rows):
    now = time.time()
    own = known.setdefault(machine(), {})
    for key, way, nanoseconds in rows:
        own[key] = (way, nanoseconds / 1000, now)
    if sum(map(len, known.values())) > ROWS:
        last = sorted((row[2] for entries in known.values() for row in entries.values()), reverse=True)[ROWS * 3 // 4]
        known = {name: {key: row for key, row in entries.items() if row[2] > last or row[2] == now and entries is own}
                 for name, entries in known.items()}
    return {name: entries for name, entries in known.items() if entries}


def _encode(known):
    body = json.dumps(known, separators=(",", ":")).encode()
    return b"%s%d %08x\n%s" % (NAME, VERSION, zlib.crc32(body), body)
