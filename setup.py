"""Build of the extension module dycl._core: plain C11, oneDNN, OpenMP; no torch header, no C++.

Commands beyond setuptools' own:
    python setup.py build_ext --inplace     what `make` runs; recompiles only what changed
    python setup.py ctest [--only NAME]     compiles and runs tests/c/test_*.c against the core's objects
    python setup.py lint [--cc clang]       a second compiler's opinion, syntax only
    python setup.py compile_commands        writes compile_commands.json, for clangd and its kin
    python setup.py fuzz [--seconds 60]     clang's libFuzzer on plans, under sanitizers (tests/fuzz/plan_fuzz.c)

Environment:
    ONEDNN_ROOT       a oneDNN to use instead of the wheel's (include/oneapi/dnnl/dnnl.h and lib/libdnnl.so*)
    CC, CFLAGS, LDFLAGS   compiler and flags added after ours
    DYCL_JOBS         compilations at a time (default: the processors this process may use)
    DYCL_WERROR=1     warnings are errors
    DYCL_BUILD_DEBUG=1    -Og -g -DDYCL_DEBUG=1
    DYCL_SANITIZE     e.g. address,undefined; thread: the C tests only
"""

import filecmp
import glob
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

from setuptools import Command, Extension, find_packages, setup
from setuptools.command.build_ext import build_ext as setuptools_build_ext

ROOT = os.path.dirname(os.path.abspath(__file__))
ONEDNN_MINIMUM = (3, 2)
ONEDNN_WHEELS = ("onednn-devel-cpu-gomp", "onednn-cpu-gomp")

WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes",
            "-Werror=implicit-function-declaration"]  # what links without it cannot be loaded
# -ffp-contract=off: a fused multiply-add where the source has two roundings would make the ISA builds differ from each
# other.
BASE_FLAGS = ["-std=c11", "-ffp-contract=off", "-fno-math-errno", "-fopenmp", "-fvisibility=hidden", "-fPIC",
              "-pthread"]
# Where a kernel begins within a line of the cache must not depend on what else the library has: a byte more elsewhere
# moved loops of the same instructions by 16 bytes, and a chain of elementwise operators took 5% longer.
# -fno-trapping-math: a choice between two results is no branch, for nobody asks which exceptions were raised; loops
# with branches do not become vectors.
KERNEL_FLAGS = ["-falign-functions=64", "-fno-trapping-math"]


def fail(message):
    raise SystemExit(f"dycl: {message}")


def isa_of(source):
    """The set of instructions that a source is compiled for: kern/<family>__<set>.c."""
    found = re.search(r"__(\w+)\.c$", source)
    return found and found.group(1)


def isa_flags():
    """The compiler's flags by set of instructions, of those that this machine's family of processors may have."""
    with open(os.path.join(ROOT, "csrc", "base", "isa.def"), encoding="utf-8") as file:
        text = file.read().replace("\\\n", "")
    rows = re.findall(r'ROW\(x, y, \w+,\s*(\w+),[^;]*?"(\w*)",\s*"([^"]*)"\)', text)
    return {name: flags.split() for name, machine, flags in rows if machine in ("", platform.machine())}


def switched_on(name):
    return os.environ.get(name, "") not in ("", "0")


# ---------------------------------------------------------------------------------------------------- oneDNN


class OneDNN:
    """Where oneDNN's headers and shared library are, and where they will be at run time."""

    def __init__(self, include, library, rpath):
        self.include = include
        self.library = library
        self.rpath = rpath  # None: the wheel's, found relative to the installed module


def shared_library(candidates):
    """The versioned file where there is one: it is what the linker records and what the runtime wheel surely has."""
    found = [path for path in candidates if re.search(r"/libdnnl\.so(\.\d+)*$", path) and os.path.exists(path)]
    return min(found, key=lambda path: (".so.3" not in path, len(path)), default=None)


def find_onednn():
    root = os.environ.get("ONEDNN_ROOT")
    if root:
        root = os.path.abspath(root)
        include = os.path.join(root, "include")
        library = shared_library(glob.glob(f"{root}/lib/libdnnl.so*") + glob.glob(f"{root}/lib64/libdnnl.so*"))
        if not os.path.exists(os.path.join(include, "oneapi/dnnl/dnnl.h")) or not library:
            fail(f"ONEDNN_ROOT={root} has no include/oneapi/dnnl/dnnl.h or no lib/libdnnl.so: "
                 "point it at an installed oneDNN, or unset it to use the wheel.")
        found = OneDNN(include, library, os.path.dirname(library))
    else:
        include = library = None
        for name in ONEDNN_WHEELS:
            try:
                files = metadata.distribution(name).files or []
            except metadata.PackageNotFoundError:
                continue
            paths = [os.path.realpath(str(entry.locate())) for entry in files if "dnnl" in entry.name]
            for path in paths:
                if path.endswith("/include/oneapi/dnnl/dnnl.h") and os.path.exists(path):
                    include = path[: -len("/oneapi/dnnl/dnnl.h")]
            # realpath would follow the links libdnnl.so -> libdnnl.so.3; wheels hold copies, so the names stay.
            library = library or shared_library(paths)
        if not include or not library:
            fail("oneDNN was not found. Install its wheels into this environment\n"
                 f"    {sys.executable} -m pip install {ONEDNN_WHEELS[0]}\n"
                 f"or set ONEDNN_ROOT to an OpenMP build of oneDNN >= {ONEDNN_MINIMUM[0]}.{ONEDNN_MINIMUM[1]} "
                 "(include/oneapi/dnnl/dnnl.h and lib/libdnnl.so*).")
        found = OneDNN(include, library, None)
    check_onednn(found)
    return found


def check_onednn(found):
    def header(name):
        with open(os.path.join(found.include, "oneapi/dnnl", name), encoding="utf-8") as file:
            return file.read()

    text = header("dnnl_version.h")
    version = tuple(int(re.search(rf"#define DNNL_VERSION_{part}\s+(\d+)", text).group(1))
                    for part in ("MAJOR", "MINOR"))
    if version[0] != ONEDNN_MINIMUM[0] or version < ONEDNN_MINIMUM:
        fail(f"oneDNN {version[0]}.{version[1]} in {found.include} does not fit: "
             f"{ONEDNN_MINIMUM[0]}.{ONEDNN_MINIMUM[1]} or a later {ONEDNN_MINIMUM[0]}.x is needed.")
    runtime = re.search(r"#define DNNL_CPU_RUNTIME\s+(\w+)", header("dnnl_config.h"))
    if runtime and runtime.group(1) != "DNNL_RUNTIME_OMP":
        fail(f"the oneDNN in {found.include} was built for {runtime.group(1)}; dycl needs an OpenMP build "
             "(DNNL_CPU_RUNTIME=OMP), as torch and oneDNN must share one pool of threads.")


# ---------------------------------------------------------------------------------------------------- toolchain


RECORDING = ("csrc/py/", "csrc/ir/", "csrc/record/")


class Toolchain:
    """Compiles C files to objects under build/obj/<variant>, and only those whose source, headers or flags changed."""

    def __init__(self, force=False, cc=None):
        if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
            fail(f"Linux on x86-64 is supported; this is {sys.platform} on {platform.machine()}.")
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            fail("free-threaded builds of CPython are not supported: dycl relies on the GIL. Use the ordinary build of "
                 "this version.")
        self.cc = shlex.split(cc or os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[:1]
        if not shutil.which(self.cc[0]):
            self.cc = ["gcc"] if shutil.which("gcc") else ["cc"]
        if not shutil.which(self.cc[0]):
            fail("no C compiler was found. Install one (on Debian or Ubuntu: apt-get install gcc python3-dev) or set "
                 "CC.")
        self.force = force
        self.onednn = find_onednn()
        self.isa_flags = isa_flags()
        self.sanitize = os.environ.get("DYCL_SANITIZE", "")
        self.debug = switched_on("DYCL_BUILD_DEBUG")
        if self.sanitize:
            self.mode = ["-O1", "-g", "-fno-omit-frame-pointer", f"-fsanitize={self.sanitize}", "-DDYCL_DEBUG=1"]
            if "undefined" in self.sanitize:
                self.mode.append("-fno-sanitize-recover=undefined")
            self.variant = "sanitize-" + self.sanitize.replace(",", "-")
        elif self.debug:
            self.mode = ["-Og", "-g", "-DDYCL_DEBUG=1"]
            self.variant = "debug"
        else:
            self.mode = ["-O2"]
            self.variant = "release"
        self.variant += f"-{sys.implementation.cache_tag}"
        # Recording an operator crosses a dozen small functions in as many files; gcc inlines them across files
        # (ISA-specific kernels stay out).
        gcc = os.path.basename(self.cc[0]).startswith(("gcc", "cc", "x86_64-linux-gnu-gcc"))
        self.lto = ["-flto=auto"] if gcc and self.mode == ["-O2"] else []
        self.warnings = WARNINGS + (["-Werror"] if switched_on("DYCL_WERROR") else [])
        self.extra = shlex.split(os.environ.get("CFLAGS", ""))
        self.directory = os.path.join(ROOT, "build", "obj", self.variant)
        self.contents = {}  # digests of the files read so far
        self.jobs = int(os.environ.get("DYCL_JOBS") or len(os.sched_getaffinity(0)))

    def flags(self, source):
        flags = BASE_FLAGS + self.mode + self.warnings + [f"-I{os.path.join(ROOT, 'csrc')}", "-isystem",
                                                          self.onednn.include]
        flags += self.isa_flags.get(isa_of(source), [])
        relative = os.path.relpath(source, ROOT)
        if relative.startswith("csrc/kern/"):
            flags += KERNEL_FLAGS
        if relative.startswith("csrc/py/"):
            import numpy

            flags += ["-isystem", sysconfig.get_path("include"), "-isystem", numpy.get_include()]
        else:
            flags += [f"-I{os.path.join(ROOT, 'tests/c')}"] if relative.startswith("tests/") else []
        # What assert() checks costs in the core; in a test it is the test.
        if not relative.startswith("tests/") and not self.debug and not self.sanitize:
            flags.append("-DNDEBUG")
            if relative.startswith(RECORDING):
                flags += self.lto
        return flags + self.extra

    def object_of(self, source):
        return os.path.join(self.directory, os.path.relpath(source, ROOT)[:-2] + ".o")

    def compile(self, sources):
        """Objects of the sources, in their order."""
        self.contents.clear()
        stale = [source for source in sources if self.is_stale(source)]
        failed = []
        with ThreadPoolExecutor(max(1, self.jobs)) as pool:
            for source, result in zip(stale, pool.map(self.compile_one, stale)):
                print(f"cc [{self.variant}] {os.path.relpath(source, ROOT)}", flush=True)
                sys.stderr.write(result.stderr)
                if result.returncode:
                    failed.append(os.path.relpath(source, ROOT))
        if failed:
            fail(f"{len(failed)} of {len(stale)} files did not compile: {' '.join(failed)}")
        return [self.object_of(source) for source in sources]

    def command(self, source):
        target = self.object_of(source)
        return self.cc + self.flags(source) + ["-MMD", "-MF", target[:-2] + ".d", "-c", source, "-o", target]

    def compile_one(self, source):
        target = self.object_of(source)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        command = self.command(source)
        remove(target + ".key")
        begin = time.time_ns()
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        # A file that was written meanwhile may not be what the compiler read: without a key the next build compiles
        # again.
        if not result.returncode and all(os.stat(path).st_mtime_ns < begin for path in self.dependencies(source)):
            write(target + ".key", self.key(source))
        return result

    def dependencies(self, source):
        """The source and the headers that the compiler opened; oneDNN's, NumPy's and Python's are known by their
        paths."""
        return read(self.object_of(source)[:-2] + ".d").replace("\\\n", " ").partition(": ")[2].split() or [source]

    def key(self, source):
        """What the object depends on, by content: times of files say little after a checkout, a copy or an unpacked
        archive."""
        return digest(self.command(source) + [self.content(path) for path in self.dependencies(source)])

    def content(self, path):
        if path not in self.contents:
            with open(path, "rb") as file:
                self.contents[path] = hashlib.sha256(file.read()).hexdigest()
        return self.contents[path]

    def is_stale(self, source):
        target = self.object_of(source)
        if self.force or not os.path.exists(target):
            return True
        try:
            return read(target + ".key") != self.key(source)
        except FileNotFoundError:  # a header is gone
            return True

    def openmp(self):
        """The thread sanitizer gets a runtime that it can look into (tests/c/threads); it has to serve oneDNN too."""
        return ["-rdynamic" if self.sanitize == "thread" else "-fopenmp"]

    def link(self, objects, target, shared, rpaths):
        """Links when an object or the command changed; replaces the file, never writes into one that may be mapped."""
        command = self.cc + (["-shared"] if shared else []) + ["-pthread", *self.openmp()]
        if self.sanitize:
            command.append(f"-fsanitize={self.sanitize}")
        command += (["-O2"] + self.lto if self.lto else [])
        command += objects + [self.onednn.library, "-lm", "-Wl,-z,relro,-z,now,--enable-new-dtags"]
        command += [f"-Wl,-rpath,{path}" for path in rpaths]
        self.make(command + shlex.split(os.environ.get("LDFLAGS", "")), objects, target)

    def merge(self, objects, target):
        """One object of them, so that many programs are linked with what is optimised as a whole only once."""
        if not self.lto:
            return objects
        self.make(self.cc + ["-r", "-O2", *self.lto, "-flinker-output=nolto-rel", *objects], objects, target)
        return [target]

    def make(self, command, objects, target):
        newest = max(os.stat(path).st_mtime_ns for path in objects)
        if (not self.force and os.path.exists(target) and os.stat(target).st_mtime_ns > newest
                and read(target + ".cmd") == digest(command)):
            return
        print(f"ld [{self.variant}] {os.path.relpath(target, ROOT)}", flush=True)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if subprocess.run(command + ["-o", target + ".new"]).returncode:
            fail(f"{os.path.relpath(target, ROOT)} did not link.")
        os.replace(target + ".new", target)
        write(target + ".cmd", digest(command))


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def remove(path):
    if os.path.exists(path):
        os.remove(path)


def digest(command):
    return hashlib.sha256("\0".join(command).encode()).hexdigest()


def sources(core_only=False):
    found = sorted(glob.glob(os.path.join(ROOT, "csrc", "**", "*.c"), recursive=True))
    python = os.path.join(ROOT, "csrc", "py") + os.sep
    sets = isa_flags()
    return [path for path in found if not (core_only and path.startswith(python))
            and (not isa_of(path) or isa_of(path) in sets)]


# ---------------------------------------------------------------------------------------------------- commands


class build_ext(setuptools_build_ext):
    def build_extension(self, ext):
        tools = Toolchain(force=bool(self.force))
        found = sources()
        if not any(path.endswith("csrc/py/module.c") for path in found):
            fail("csrc/py/module.c is missing: this is not a whole source tree.")
        # The runtime wheel puts libdnnl.so.3 into <prefix>/lib; the module lies in
        # <prefix>/lib*/pythonX.Y/site-packages/dycl, or, after `pip install --target DIR`, in DIR/dycl with the library
        # in DIR/lib.
        rpaths = ["$ORIGIN/../../../../lib", "$ORIGIN/../../..", "$ORIGIN/../lib"]
        if tools.onednn.rpath:
            rpaths.insert(0, tools.onednn.rpath)
        elif self.in_source_tree:
            rpaths.insert(0, os.path.join(sys.prefix, "lib"))
        flavour = "-inplace" if self.in_source_tree else ""
        linked = os.path.join(tools.directory, f"_core{flavour}{sysconfig.get_config_var('EXT_SUFFIX')}")
        tools.link(tools.compile(found), linked, shared=True, rpaths=rpaths)
        replace(linked, self.get_ext_fullpath(ext.name))

    def run(self):
        # setuptools clears self.inplace while it builds, so keep what was asked for.
        self.in_source_tree = bool(self.inplace or getattr(self, "editable_mode", False))
        super().run()

    def copy_extensions_to_source(self):
        for ext in self.extensions:
            built = os.path.join(self.build_lib, self.get_ext_filename(self.get_ext_fullname(ext.name)))
            replace(built, os.path.join(ROOT, *ext.name.split(".")) + sysconfig.get_config_var("EXT_SUFFIX"))


def replace(source, target):
    """Copies unless equal, by renaming: a Python that has the old module mapped goes on undisturbed."""
    if os.path.exists(target) and filecmp.cmp(source, target, shallow=False):
        return
    os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
    shutil.copy(source, target + ".new")
    os.replace(target + ".new", target)


class ctest(Command):
    description = "compile and run the C tests against the core's objects"
    user_options = [("only=", None, "run the test programs whose name contains this, or one of these with commas "
                                    "between"),
                    ("build-only", None, "do not run them"), ("timeout=", None, "seconds a program may take (300)")]
    boolean_options = ["build-only"]

    def initialize_options(self):
        self.only, self.build_only, self.timeout = None, False, 300

    def finalize_options(self):
        self.timeout = float(self.timeout)

    def run(self):
        tools = Toolchain()
        core = tools.compile(sources(core_only=True))
        tests = sorted(glob.glob(os.path.join(ROOT, "tests", "c", "test_*.c")))
        helpers = sorted(set(glob.glob(os.path.join(ROOT, "tests", "c", "*.c"))) - set(tests))
        if tools.sanitize == "thread":
            helpers += glob.glob(os.path.join(ROOT, "tests", "c", "threads", "*.c"))
        tests = [path for path in tests if not self.only
                 or any(part in os.path.basename(path) for part in self.only.split(","))]
        objects = tools.compile(helpers + tests)
        shared, own = objects[: len(helpers)], objects[len(helpers):]
        rpaths = [os.path.dirname(tools.onednn.library)]
        core = tools.merge(core, os.path.join(tools.directory, "core.o"))
        programs = [test[:-2] for test in own]
        with ThreadPoolExecutor(max(1, tools.jobs)) as pool:
            list(pool.map(lambda test: tools.link([test] + shared + core, test[:-2], shared=False, rpaths=rpaths), own))
            failed = [] if self.build_only else [name for name in pool.map(self.run_one, programs) if name]
        if failed:
            fail(f"{len(failed)} of {len(programs)} C test programs failed: {' '.join(failed)}")
        print(f"C tests: {len(programs)} programs {'built' if self.build_only else 'passed'}", flush=True)

    def run_one(self, program):
        name = os.path.basename(program)
        # What oneDNN and the OpenMP runtime keep until the process ends is theirs.
        suppressions = os.path.join(os.path.dirname(program), "lsan.supp")
        write(suppressions, "leak:libdnnl\nleak:libgomp\n")
        environment = dict(os.environ)
        environment.setdefault("LSAN_OPTIONS", f"suppressions={suppressions}:print_suppressions=0")
        environment.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
        # As many programs as cores run at a time, each with a team: idle workers that spin would starve the others.
        environment.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            done = subprocess.run([program], cwd=ROOT, env=environment, timeout=self.timeout, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            code, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            code, output = f"no end after {self.timeout:g} s", error.stdout or b""
        # In one piece: others run at the same time.
        print(f"== {name}\n{output.decode(errors='replace')}" + (f"== {name} FAILED ({code})\n" if code else ""),
              end="", flush=True)
        return name if code else None


def borrowed_omp():
    """A folder with omp.h, which is each compiler's own file: a clang without its OpenMP package borrows gcc's."""
    folder = os.path.join(ROOT, "build", "omp")
    header = subprocess.run(["gcc", "-print-file-name=include/omp.h"], stdout=subprocess.PIPE, text=True).stdout.strip()
    if os.path.exists(header):
        os.makedirs(folder, exist_ok=True)
        write(os.path.join(folder, "omp.h"), re.sub(r", __malloc__ \(omp_free\)|__malloc__ \(omp_free\), ", "",
                                                    read(header)))
    return folder


class compile_commands(Command):
    description = "write compile_commands.json: what the build calls the compiler with, for each C file"
    user_options = []

    def initialize_options(self):
        pass

    def finalize_options(self):
        pass

    def run(self):
        tools = Toolchain()
        found = sources() + sorted(glob.glob(os.path.join(ROOT, "tests", "c", "*.c")))
        rows = [{"directory": ROOT, "file": source, "output": tools.object_of(source),
                 "arguments": tools.command(source)}
                for source in found]
        write(os.path.join(ROOT, "compile_commands.json"), json.dumps(rows, indent=1) + "\n")
        print(f"compile_commands.json: {len(rows)} files", flush=True)


class lint(Command):
    description = "let a second compiler look at all C files, syntax only"
    user_options = [("cc=", None, "the compiler (clang)")]

    def initialize_options(self):
        self.cc = "clang"

    def finalize_options(self):
        pass

    def run(self):
        tools = Toolchain(cc=self.cc)
        borrowed = borrowed_omp()
        failed = 0
        for source in sources():
            command = tools.cc + tools.flags(source) + ["-idirafter", borrowed, "-fsyntax-only", source]
            failed += subprocess.run(command).returncode != 0
        if failed:
            fail(f"{self.cc} objects to {failed} files.")
        print(f"{self.cc}: no objection", flush=True)


class FuzzToolchain(Toolchain):
    """clang with libFuzzer. Its OpenMP runtime would be a second one beside oneDNN's: pragmas are read over, one thread
    is what the fuzzer wants."""

    def __init__(self, cc):
        super().__init__(cc=cc)
        self.sanitize = "fuzzer,address,undefined"
        self.variant = f"fuzz-{sys.implementation.cache_tag}"
        self.mode = ["-O1", "-g", "-fno-omit-frame-pointer", "-DDYCL_DEBUG=1", "-idirafter", borrowed_omp(),
                     f"-I{os.path.join(ROOT, 'tests/c')}"]
        self.lto, self.warnings = [], []  # clang reads over pragmas, so that much looks unused: `lint` is for that
        self.directory = os.path.join(ROOT, "build", "obj", self.variant)

    def flags(self, source):
        # Kernels take minutes with the undefined-behaviour sanitizer; and offsets from NULL are what empty tensors
        # have.
        kernels = os.path.relpath(source, ROOT).startswith("csrc/kern/")
        sanitizers = ["-fsanitize=fuzzer-no-link,address" + ("" if kernels else ",undefined"),
                      "-fno-sanitize-recover=undefined", "-fno-sanitize=pointer-overflow"]
        return [flag for flag in super().flags(source) if flag != "-fopenmp"] + sanitizers

    def openmp(self):
        gomp = subprocess.run(["gcc", "-print-file-name=libgomp.so"], stdout=subprocess.PIPE, text=True).stdout.strip()
        return f"-L{os.path.dirname(gomp)}", "-lgomp"


class fuzz(Command):
    description = "build the plan fuzzer with clang and run it; what it finds lies in build/fuzz"
    user_options = [("cc=", None, "the compiler (clang)"), ("seconds=", None, "how long (60)"),
                    ("corpus=", None, "folder of graphs (build/fuzz/corpus)"),
                    ("input=", None, "run this one graph instead")]

    def initialize_options(self):
        self.cc, self.seconds, self.input = "clang", 60, None
        self.corpus = os.path.join(ROOT, "build", "fuzz", "corpus")

    def finalize_options(self):
        self.seconds = int(self.seconds)

    def run(self):
        tools = FuzzToolchain(self.cc)
        objects = tools.compile(sources(core_only=True) + [os.path.join(ROOT, "tests", "fuzz", "plan_fuzz.c")])
        program = os.path.join(tools.directory, "plan_fuzz")
        tools.link(objects, program, shared=False, rpaths=[os.path.dirname(tools.onednn.library)])
        os.makedirs(self.corpus, exist_ok=True)
        found = os.path.join(ROOT, "build", "fuzz", "found-")
        options = ["-max_len=6000", "-rss_limit_mb=6000", "-timeout=60", "-print_final_stats=1",
                   f"-max_total_time={self.seconds}", f"-artifact_prefix={found}"]
        # What oneDNN and the OpenMP runtime keep is theirs; memory that is refused is no error.
        environment = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
                       "UBSAN_OPTIONS": "print_stacktrace=1", **os.environ}
        if subprocess.run([program] + ([self.input] if self.input else options + [self.corpus]), cwd=ROOT,
                          env=environment).returncode:
            fail(f"the plan fuzzer found something: {found}*")


class CoreExtension(Extension):
    """Sources are found when the build runs, so that a new C file needs no edit here."""

    def __init__(self):
        super().__init__("dycl._core", [os.path.relpath(path, ROOT) for path in sources()])


setup(
    packages=find_packages(ROOT, include=["dycl", "dycl.*"]) or ["dycl"],
    ext_modules=[CoreExtension()],
    cmdclass={"build_ext": build_ext, "compile_commands": compile_commands, "ctest": ctest, "lint": lint, "fuzz": fuzz},
    zip_safe=False,
)
