"""Tests under gcc's sanitizers, with builds of their own: `python tests/sanitized.py address [--quick] [FILE...]` runs
Python tests with the address and undefined-behaviour sanitizers, `python tests/sanitized.py thread [--quick]` the C
tests that use threads. Where the compiler has no sanitizer, or the machine is none that they run on, this says so and
is content."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "sanitized"

# What the quick run leaves out takes minutes each.
QUICK = ["composite", "hazards_values", "hazards_objects", "hazards_memory", "hazards_modes", "random_programs",
         "alias_programs", "loops", "paths", "write_through", "bind_view", "bind_index", "environment", "autograd",
         "train_norm", "train_in_place", "backward_cache", "overlap", "conv_gradients", "result_views", "reentry",
         "failing_replay", "result_class", "bind_einsum", "gradient_sharing", "extremes"]
REST = ["patched_functions", "asking", "refused_operands", "transformer_modules", "torch_c", "transforms", "shadows",
        "hazards_modules", "hazards_runtime", "models", "conv_dtypes", "bind_nn", "postpone", "ahead", "faults",
        "numpy", "threads", "methods", "gradients", "class_gradients", "image_gradients", "shared_gradients",
        "optimizers", "gradient_layouts", "recorded_gradients", "alias_histories", "overlapping_writes",
        "losses_outside", "train_optimizers", "norm_gradients", "pool_gradients"]
THREADS_QUICK = ["test_threads", "test_kern_steal", "test_kern_product", "test_plan_stress",
                 "test_autotune", "test_heap"]
THREADS_REST = ["test_pieces", "test_plan", "test_dnnl", "test_passes", "test_prefilter"]


def runtime(name):
    """The path of one of gcc's own libraries, or None."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip() \
        if shutil.which("gcc") else ""
    return os.path.realpath(found) if os.path.isabs(found) and os.path.exists(found) else None


def skip(why):
    print(f"sanitizers: nothing is run, {why}")
    sys.exit(0)


def works(flag, **environment):
    """Whether a program with this sanitizer starts here: some kernels lay memory out in a way that the runtime does not
    know."""
    PLACE.mkdir(parents=True, exist_ok=True)
    program = PLACE / "works"
    made = subprocess.run(["gcc", flag, "-x", "c", "-", "-o", program], input="int main(void) { return 0; }", text=True,
                          capture_output=True).returncode == 0
    return made and subprocess.run(unmoved() + [program], capture_output=True,
                                   env={**os.environ, **environment}).returncode == 0


def unmoved():
    """A prefix: memory is laid out as it always was, where that can be had."""
    tool = shutil.which("setarch")
    return [tool, "-R"] if tool and subprocess.run([tool, "-R", "true"], capture_output=True).returncode == 0 else []


def build():
    """The package with an extension of its own beside links to its Python files."""
    package = PLACE / "dycl"
    package.mkdir(parents=True, exist_ok=True)
    for path in (ROOT / "dycl").glob("*.py"):
        link = package / path.name
        if not link.is_symlink():
            link.symlink_to(path)
    environment = {**os.environ, "CC": "gcc", "DYCL_SANITIZE": "address,undefined",
                   "LDFLAGS": f"-Wl,-rpath,{os.path.join(sys.prefix, 'lib')}"}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", PLACE, "--build-temp", PLACE / "temp"]
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        sys.exit("sanitizers: the extension does not build")
    return package / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"


def address(names):
    library, cpp = runtime("libasan.so"), runtime("libstdc++.so")
    if not library or not cpp or not runtime("libubsan.so"):
        skip("gcc has no address sanitizer here")
    if not works("-fsanitize=address,undefined"):
        skip("programs with the address sanitizer do not start on this machine")
    build()
    environment = {
        # torch throws exceptions, which the sanitizer has to know of
        **os.environ, "PYTHONPATH": str(PLACE), "LD_PRELOAD": f"{library} {cpp}",
        "PYTHONMALLOC": "malloc", "DYCL_CHECK": "0",
        # what Python and torch keep until the end is theirs; memory that is refused is no error
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=64",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    tests = [str(ROOT / "tests" / "py" / f"test_{name}.py") for name in names]
    # from another folder: Python would find the ordinary package in this one; what a sanitizer says before it ends the
    # process is not captured
    command = unmoved() + [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not resident",
                           "--capture=sys", f"--rootdir={ROOT}", *tests]
    return subprocess.run(command, cwd=PLACE, env=environment).returncode


def thread(names):
    if not runtime("libtsan.so"):
        skip("gcc has no thread sanitizer here")
    if not works("-fsanitize=thread"):
        skip("programs with the thread sanitizer do not start on this machine")
    environment = {**os.environ, "CC": "gcc", "DYCL_SANITIZE": "thread", "OMP_NUM_THREADS": "3", "DYCL_CHECK": "0",
                   "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}
    command = unmoved() + [sys.executable, "setup.py", "--quiet", "ctest", f"--only={','.join(names)}",
                           "--timeout=1500"]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


def main(kind, *arguments):
    quick = "--quick" in arguments
    names = [name for name in arguments if name != "--quick"]
    if kind == "address":
        return address(names or (QUICK if quick else QUICK + REST))
    return thread(names or (THREADS_QUICK if quick else THREADS_QUICK + THREADS_REST))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
