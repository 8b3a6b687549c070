/* Where the rows of all tables are found in torch: one list of spellings, which the setup walks and tests read. */
#include <string.h>

#include "py/region/track.h"
#include "py/intercept/plain.h"
#include "py/intercept/table.h"

static dycl_binding *const tables[] = {
    dycl_bindings_elementwise, dycl_bindings_activation, dycl_bindings_view,     dycl_bindings_parts,
    dycl_bindings_move,        dycl_bindings_repeat,     dycl_bindings_reduce,   dycl_bindings_norms,
    dycl_bindings_softmax,     dycl_bindings_attention,  dycl_bindings_nn,       dycl_bindings_window,
    dycl_bindings_matmul,      dycl_bindings_create,     dycl_bindings_tensor,   dycl_bindings_index,
    dycl_bindings_gather,      dycl_bindings_resize,     dycl_bindings_sort,     dycl_bindings_write,
    dycl_bindings_recurrent,   dycl_bindings_random,     dycl_bindings_scatter,  dycl_bindings_values,
    dycl_bindings_words,       dycl_bindings_loss,       dycl_bindings_distance, dycl_bindings_transformer};
enum { TABLES = sizeof tables / sizeof *tables };

typedef enum { TORCH, TENSOR, FUNCTIONAL, NN, SPECIAL, LINALG, VF, OWNERS } owner;
static const char *const owner_names[OWNERS] = {
    "torch",         "torch.Tensor", "torch.nn.functional",        "torch._C._nn",
    "torch.special", "torch.linalg", "torch._C._VariableFunctions"};

/* How a place spells a row's name; a row has it when it has all of these places. The order decides which row serves a
 * callable that torch exports under several names, and which method the lazy type shows. */
static const struct {
    int places;
    owner owner;
    const char *before, *after;
    int in_place, swapped;
} spellings[] = {
    {DYCL_AT_TORCH, TORCH, "", "", 0, 0},
    {DYCL_AT_METHOD, TENSOR, "", "", 0, 0},
    {DYCL_AT_F, FUNCTIONAL, "", "", 0, 0},
    {DYCL_AT_NN, NN, "", "", 0, 0},
    {DYCL_AT_SPECIAL, SPECIAL, "", "", 0, 0},
    {DYCL_AT_LINALG, LINALG, "", "", 0, 0},
    {DYCL_AT_VF, VF, "", "", 0, 0},
    {DYCL_AT_NN, NN, "", "_", 1, 0}, /* where there is one */
    {DYCL_AT_INPLACE, TENSOR, "", "_", 1, 0},
    {DYCL_AT_INPLACE | DYCL_AT_TORCH, TORCH, "", "_", 1, 0},
    {DYCL_AT_DUNDER, TENSOR, "__", "__", 0, 0},
    {DYCL_AT_IDUNDER, TENSOR, "__i", "__", 1, 0},
    {DYCL_AT_RDUNDER, TENSOR, "__r", "__", 0, 1},
    {DYCL_AT_RSAME, TENSOR, "__r", "__", 0, 0},
};
enum { SPELLINGS = sizeof spellings / sizeof *spellings };

static PyObject *owners[OWNERS]; /* owned, for the life of the process */

/* The callable that a spelling names: new reference; NULL without an exception: this torch does not have it. */
static PyObject *spelled(const dycl_binding *row, int i, char *out_name, size_t room) {
    if ((row->places & spellings[i].places) != spellings[i].places) return NULL;
    snprintf(out_name, room, "%s%s%s", spellings[i].before, row->name, spellings[i].after);
    PyObject *callable = PyObject_GetAttrString(owners[spellings[i].owner], out_name);
    if (!callable) PyErr_Clear();
    return callable;
}

static int split_parameters(dycl_binding *row) {
    const char *at = row->parameters;
    row->positional_count = -1;
    while (*at) {
        size_t length = strcspn(at, " ");
        if (length == 1 && *at == '|') {
            row->positional_count = row->parameter_count;
        } else {
            PyObject *name = PyUnicode_FromStringAndSize(at, (Py_ssize_t)length);
            if (!name) return -1;
            PyUnicode_InternInPlace(&name);
            row->names[row->parameter_count++] = name;
        }
        at += length;
        while (*at == ' ') at++;
    }
    if (row->positional_count < 0) row->positional_count = row->parameter_count;
    return 0;
}

static int bind_row(dycl_binding *row) {
    char name[128];
    int result = split_parameters(row);
    row->whole = dycl_track_is_whole(row->name);
    for (int i = 0; i < SPELLINGS && result == 0; i++) {
        PyObject *callable = spelled(row, i, name, sizeof name);
        if (!callable) continue;
        int method = spellings[i].owner == TENSOR;
        if (method && PyFunction_Check(callable)) row->python = 1;
        if (method) dycl_plain_add_method(callable);
        if (!row->callable) row->callable = Py_NewRef(callable);
        result = dycl_binding_insert(callable, row, spellings[i].in_place, spellings[i].swapped);
        if (result == 0 && method)
            result = dycl_binding_add_method(name, callable, row, spellings[i].in_place, spellings[i].swapped);
        Py_DECREF(callable);
    }
    return result;
}

static int find_owners(void) {
    for (int i = 0; i < OWNERS; i++) {
        const char *at = owner_names[i];
        PyObject *o = Py_NewRef(dycl_py.torch);
        while (o && (at = strchr(at, '.'))) {
            char name[64];
            size_t length = strcspn(++at, ".");
            snprintf(name, sizeof name, "%.*s", (int)length, at);
            PyObject *next = PyObject_GetAttrString(o, name);
            Py_DECREF(o);
            o = next;
        }
        if (!o) return -1;
        owners[i] = o;
    }
    return 0;
}

int dycl_bindings_setup(void) {
    if (find_owners() < 0) return -1;
    for (int i = 0; i < TABLES; i++)
        for (dycl_binding *row = tables[i]; row->name; row++)
            if (bind_row(row) < 0) return -1;
    return 0;
}

PyObject *dycl_bindings_list(void) {
    char name[128];
    PyObject *list = PyList_New(0);
    for (int i = 0; i < TABLES && list && owners[0]; i++)
        for (const dycl_binding *row = tables[i]; list && row->name; row++)
            for (int k = 0; k < SPELLINGS && list; k++) {
                PyObject *callable = spelled(row, k, name, sizeof name), *item;
                if (!callable) continue;
                Py_DECREF(callable);
                item = Py_BuildValue("(sssss)", owner_names[spellings[k].owner], name, row->name, row->parameters,
                                     spellings[k].in_place  ? "in place"
                                     : spellings[k].swapped ? "swapped"
                                                            : "");
                if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
                Py_XDECREF(item);
            }
    return list;
}
