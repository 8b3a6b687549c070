"""``python -m dycl script.py args...`` and ``python -m dycl -m module args...``: what python itself would do, with
every outermost module call accelerated (``dycl.accelerate_all``). A directory or a zip file with a ``__main__.py`` is a
script too."""

import code
import importlib.machinery
import io
import os
import pkgutil
import runpy
import sys
import types

from dycl._everywhere import accelerate_all

USAGE = ("usage: python -m dycl script.py|- [arguments]\n       python -m dycl -m module [arguments]\n"
         "       python -m dycl --help | --version")
HELP = """
Runs a program as python itself would, with every outermost call of a torch module accelerated
(dycl.accelerate_all), and the steps of torch's optimizers. What cannot be represented runs in torch. Environment:
DYCL_DISABLE=1 runs everything in torch, DYCL_PROFILE=0 keeps nothing of what is measured,
DYCL_ISA=scalar|avx2|avx512 bounds the kernels; docs/environment.md has all of them."""


def new_main():
    """The module that the program finds as ``__main__``, as python makes it."""
    module = types.ModuleType("__main__")
    module.__dict__.update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = module
    return module.__dict__


def code_of(path):
    try:
        with io.open_code(path) as file:
            code = pkgutil.read_code(file)  # a .pyc file
            if code is not None:
                return code
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        sys.exit(2)
    return compile(source, path, "exec", dont_inherit=True)


def run_script(name):
    path = os.getcwd() if name == "." else os.path.join(os.getcwd(), name)  # not normalised: as python leaves it
    space = new_main()
    if os.path.exists(path) and pkgutil.get_importer(path) is not None:  # a directory or an archive: its __main__
        sys.path[0:not sys.flags.safe_path] = [path]
        runpy._run_module_as_main("__main__", False)
        return
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    loader = importlib.machinery.SourcelessFileLoader if path.endswith(".pyc") else importlib.machinery.SourceFileLoader
    space.update(__file__=path, __cached__=None, __loader__=loader("__main__", path))
    exec(code_of(path), space)


def run_stdin():
    """The program that standard input has. Modules are looked for in the working directory."""
    space = new_main()
    space.update(__file__="<stdin>", __cached__=None, __loader__=importlib.machinery.BuiltinImporter)
    if not sys.flags.safe_path:
        sys.path[0] = ""
    if sys.stdin.isatty():
        code.interact(local=space)
    else:
        exec(compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True), space)


def run_module(name):
    new_main()
    sys.argv[0] = "-m"  # until it is found
    runpy._run_module_as_main(name)


def report_without_us(error):
    """The interpreter reports the error, with the traceback that it would have without this file."""
    report, traceback = sys.excepthook, error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next

    def hook(kind, value, _):
        sys.last_traceback = traceback
        sys.excepthook = report
        report(kind, value.with_traceback(traceback), traceback)

    sys.excepthook = hook


def version():
    """Of dycl and of what it works with, without importing torch."""
    import importlib.metadata

    from dycl import __version__, info

    def installed(name):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            return f"no {name}"

    found = info()
    core = f"oneDNN {found['onednn']}, kernels for {found['isa']}" if "onednn" in found else "no extension module"
    return f"dycl {__version__} ({core}, {installed('torch')}, Python {found['python']})"


def main():
    arguments = sys.argv[1:]
    as_module = arguments[:1] == ["-m"]
    sys.argv[:] = arguments[as_module:]
    if not sys.argv:
        print(USAGE, file=sys.stderr)
        sys.exit(2)
    if arguments[0] in ("-h", "--help"):
        print(USAGE, HELP, sep="\n")
        sys.exit(0)
    if arguments[0] == "--version":
        print(version())
        sys.exit(0)
    accelerate_all()
    try:
        if as_module:
            run_module(sys.argv[0])
        else:
            run_stdin() if sys.argv[0] == "-" else run_script(sys.argv[0])
    except SystemExit:
        raise
    except BaseException as error:
        report_without_us(error)
        raise


if __name__ == "__main__":
    main()
