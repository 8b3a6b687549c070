#include "py/modules/instance.h"

PyObject *dycl_global_hooks[4];

static PyObject *holder; /* borrowed: the dict of the module where they stand, which stays */
static uint64_t holder_seen;

static const char *const global_names[4] = {"_global_forward_hooks", "_global_forward_pre_hooks",
                                            "_global_backward_hooks", "_global_backward_pre_hooks"};
static const char *const hook_texts[4] = {"_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
                                          "_backward_pre_hooks"};
static PyObject *hook_names[4], *compiled_name; /* owned: interned */

int dycl_instance_setup(void) {
    PyObject *module = PyImport_ImportModule("torch.nn.modules.module");
    int result = module ? 0 : -1;
    for (int i = 0; i < 4 && result == 0; i++) {
        dycl_global_hooks[i] = PyObject_GetAttrString(module, global_names[i]);
        hook_names[i] = PyUnicode_InternFromString(hook_texts[i]);
        if (!dycl_global_hooks[i] || !PyDict_Check(dycl_global_hooks[i]) || !hook_names[i]) result = -1;
    }
    compiled_name = PyUnicode_InternFromString("_compiled_call_impl");
    if (!compiled_name) result = -1;
    if (result == 0) holder = PyModule_GetDict(module);
    Py_XDECREF(module);
    return result;
}

void dycl_instance_refresh(void) {
    uint64_t now = dycl_dict_version(holder);
    if (__builtin_expect(now == holder_seen, 1)) return;
    holder_seen = now;
    for (int i = 0; i < 4; i++) {
        PyObject *found = PyDict_GetItemString(holder, global_names[i]);
        /* what is no dict may hold anything: the module's own is not empty */
        PyObject *hooks = found && PyDict_Check(found) ? found : holder;
        Py_SETREF(dycl_global_hooks[i], Py_NewRef(hooks));
    }
}

int dycl_instance_read(dycl_instance *instance, PyObject *module, PyObject *dict) {
    instance->module = NULL;
    if (PyDict_GetItem(dict, compiled_name) || PyDict_GetItem(dict, dycl_py.call_impl_name)) return 0;
    for (int i = 0; i < 4; i++) {
        instance->hooks[i] = PyDict_GetItem(dict, hook_names[i]);
        if (!instance->hooks[i] || !PyDict_Check(instance->hooks[i])) return 0;
    }
    instance->dict = dict;
    instance->dict_version = dycl_dict_version(dict);
    instance->type_version = dycl_type_version(Py_TYPE(module));
    instance->module = module;
    return 1;
}
