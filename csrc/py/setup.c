#include "py/setup.h"

#include "py/bind/hosted.h"
#include "py/cpython/collect.h"
#include "py/cpython/trace.h"
#include "py/entry/hint.h"
#include "py/entry/loss.h"
#include "py/entry/method.h"
#include "py/intercept/hosted_rows.h"
#include "py/intercept/mode.h"
#include "py/intercept/overrides.h"
#include "py/intercept/plain.h"
#include "py/intercept/replaced.h"
#include "py/intercept/slots.h"
#include "py/intercept/table.h"
#include "py/intercept/tensor_method.h"
#include "py/intercept/uncounted.h"
#include "py/intercept/watch.h"
#include "py/memory/constant.h"
#include "py/memory/foreign.h"
#include "py/memory/owners.h"
#include "py/modules/stock.h"
#include "py/region/lazy.h"
#include "py/region/tape.h"
#include "py/torch/abi.h"
#include "py/torch/answers.h"
#include "py/torch/host.h"
#include "py/torch/own_code.h"
#include "py/torch/wanted.h"

/* Once: what was half done is not done again, as torch's types know of it by then. */
int dycl_py_setup(void) {
    static int tried;
    if (dycl_py.ready) return 0;
    if (tried) {
        PyErr_SetString(PyExc_RuntimeError, "setting up failed before");
        return -1;
    }
    tried = 1;
    if (dycl_collect_setup()) {
        PyErr_NoMemory();
        return -1;
    }
    if (!dycl_py.torch && !(dycl_py.torch = PyImport_ImportModule("torch"))) return -1;
    if (dycl_state_find() < 0 || dycl_abi_setup(dycl_py.torch) < 0 || dycl_answers_setup() < 0 ||
        dycl_owners_setup() < 0 || dycl_foreign_setup() < 0 || dycl_constant_setup(dycl_uncounted_watch()) < 0 ||
        dycl_lazy_setup() < 0 || dycl_slots_install(dycl_py.lazy_type) < 0 || dycl_bindings_setup() < 0 ||
        dycl_hosted_setup() < 0 || dycl_mode_setup() < 0 || dycl_modules_setup() < 0 || dycl_method_setup() < 0 ||
        dycl_watch_setup() < 0 || dycl_hint_setup() < 0 || dycl_loss_watch() < 0 || dycl_tape_setup() < 0)
        return -1;
    dycl_host_setup();
    dycl_trace_setup();
    dycl_own_code_setup();
    if (dycl_wanted_setup() < 0) return -1;
    dycl_overrides_setup();
    dycl_plain_setup();
    dycl_slots_bind();
    if (dycl_tensor_method_install(dycl_py.lazy_type) < 0) return -1;
    PyType_Modified(dycl_py.lazy_type);
    if (dycl_replaced_setup() < 0) return -1;
    dycl_py.ready = 1;
    return 0;
}
