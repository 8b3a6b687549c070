#include "py/modules/instance.h"

PyObject *dycl_global_hooks[4];

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
    Py_XDECREF(module);
    return result;
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
