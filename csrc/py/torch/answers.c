#include "py/torch/answers.h"

#include "grad/backward.h"

dycl_torch_answers dycl_torch_answer;

/* No mode of the program sees the questions, and none of its settings changes the answers. */
static const char before[] = "import torch\n"
                             "from torch.nn import functional as F\n"
                             "def o(*sizes): return torch.ones(sizes, dtype=torch.float32, device='cpu')\n"
                             "def slope(f, x):\n"
                             "  with torch.enable_grad():\n"
                             "    x = x.requires_grad_()\n"
                             "    return torch.autograd.grad(f(x, o(1)), x)[0].item()\n"
                             "def reaches(f):\n"
                             "  with torch.enable_grad():\n"
                             "    x, y = o(1, 1).requires_grad_(), o(1).requires_grad_()\n"
                             "    x, = torch.autograd.grad(f(x, y), x, create_graph=True)\n"
                             "    return torch.autograd.grad(x, y, allow_unused=True)[0] is not None\n"
                             "with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), "
                             "torch.inference_mode(False), torch.no_grad(), torch.autocast('cpu', enabled=False):\n";

static const char *const questions[] = {
#define DYCL_ROW(name, question) "  " #name " = " question "\n",
    DYCL_TORCH_ANSWERS(DYCL_ROW)
#undef DYCL_ROW
};

static int answer(PyObject *space, const char *name, int *out) {
    PyObject *found = PyDict_GetItemString(space, name);
    *out = found ? PyObject_IsTrue(found) : -1;
    return *out < 0 ? -1 : 0;
}

int dycl_answers_setup(void) {
    PyObject *space = PyDict_New(), *code = PyUnicode_FromString(before), *done = NULL;
    int result = -1;
    for (size_t i = 0; code && i < sizeof questions / sizeof *questions; i++)
        PyUnicode_AppendAndDel(&code, PyUnicode_FromString(questions[i]));
    const char *text = code ? PyUnicode_AsUTF8(code) : NULL;
    if (space && text && PyDict_SetItemString(space, "__builtins__", PyEval_GetBuiltins()) == 0)
        done = PyRun_String(text, Py_file_input, space, space);
    if (done) {
        result = 0;
#define DYCL_ROW(name, question)                                                                                       \
    if (result == 0) result = answer(space, #name, &dycl_torch_answer.name);
        DYCL_TORCH_ANSWERS(DYCL_ROW)
#undef DYCL_ROW
    }
    dycl_grad_rule = (dycl_grad_rules){.bounds_share = dycl_torch_answer.bounds_share,
                                       .fmax_shares = dycl_torch_answer.fmax_shares,
                                       .fmax_as_maximum = dycl_torch_answer.fmax_as_maximum,
                                       .group_norm_ties = dycl_torch_answer.group_norm_ties};
    Py_XDECREF(done);
    Py_XDECREF(code);
    Py_XDECREF(space);
    return result;
}
