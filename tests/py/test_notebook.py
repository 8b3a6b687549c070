"""%load_ext dycl in a notebook that a real kernel executes."""

import os

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

MODEL = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2)).eval()
x = torch.rand(4, 8)
with torch.no_grad():
    y = model(x)
y
"""


def execute(*cells, directory, monkeypatch, **environment):
    """The text that each cell showed (printed and displayed)."""
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    for name, value in {"PYTHONPATH": path, "IPYTHONDIR": str(directory), **environment}.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3",
                   resources={"metadata": {"path": str(directory)}}).execute()
    shown = []
    for cell in notebook.cells:
        texts = [o["text"] if o.output_type == "stream" else o["data"]["text/plain"] for o in cell.outputs
                 if o.output_type in ("stream", "execute_result")]
        shown.append("".join(texts))
    return shown


def test_a_notebook(tmp_path, monkeypatch):
    shown = execute(
        "%load_ext dycl",
        "%dycl explain",
        MODEL,
        "%dycl explain",
        "%dycl stats",
        "%dycl off\nwith torch.no_grad(): again = model(x)\n%dycl on\nimport "
        "dycl\nprint(dycl.stats(model)['plain_disabled'], torch.allclose(again, y), type(model).__call__.__name__)",
        "def own(x):\n    return x.exp() + 1\nown = dycl.accelerate(own)\nwith torch.no_grad(): own(x)\n%dycl explain",
        "%dycl",
        "%reload_ext dycl",
        "with torch.no_grad(): model(x)\nprint(dycl.stats(model)['calls'])",
        "%unload_ext dycl",
        "with torch.no_grad(): print(torch.allclose(model(x), y))\nprint(dycl.stats(model)['calls'], "
        "nn.Module.__dict__['_compiled_call_impl'], 'dycl' in get_ipython().magics_manager.magics['line'])",
        directory=tmp_path,
        monkeypatch=monkeypatch,
    )
    assert shown[0] == "" and "no accelerated call yet" in shown[1]
    assert shown[2].startswith("tensor([[")
    assert "1 calls recorded" in shown[3] and "linear" in shown[3] and "gelu" in shown[3]
    assert "'calls': 1" in shown[4] and "'recorded': 3" in shown[4]
    assert shown[5].strip() == "1 True _wrapped_call_impl"
    assert "exp" in shown[6] and "linear" not in shown[6]
    assert "explain | stats | on | off" in shown[7] and shown[8] == ""
    assert shown[9].strip() == "2"
    assert shown[11].split() == ["True", "2", "None", "False"]


def test_results_are_those_of_a_notebook_without(tmp_path, monkeypatch):
    cells = [MODEL, "model(torch.ones(1, 8)).sum().backward()\nmodel[0].weight.grad.sum()", "sorted(vars(model))"]
    assert execute("%load_ext dycl", *cells, directory=tmp_path,
                   monkeypatch=monkeypatch)[1:] == execute(*cells, directory=tmp_path, monkeypatch=monkeypatch)


def test_disabled_by_the_environment(tmp_path, monkeypatch):
    shown = execute("%load_ext dycl", MODEL, "%dycl stats", directory=tmp_path, monkeypatch=monkeypatch,
                    DYCL_DISABLE="1")
    assert "'calls': 0" in shown[2] and "'plain_disabled': 1" in shown[2]


def test_errors_are_the_users(tmp_path, monkeypatch):
    with pytest.raises(CellExecutionError, match="mat1 and mat2 shapes cannot be multiplied"):
        execute("%load_ext dycl", MODEL, "model(torch.ones(1, 9))", directory=tmp_path, monkeypatch=monkeypatch)
