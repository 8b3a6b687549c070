#include "py/cpython/compat.h"

#include "base/env.h"
#include "py/cpython/dict.h"
#include "py/cpython/thread.h"

int dycl_public_api;
_Thread_local PyThreadState *dycl_thread_in_region;

int dycl_cpython_setup(void) {
#ifdef Py_GIL_DISABLED
    PyErr_SetString(PyExc_ImportError, "dycl does not support free-threaded builds of CPython: it relies on the GIL. "
                                       "Use the ordinary build of this version.");
    return -1;
#endif
    static const char *const words[] = {"0", "1"};
    dycl_public_api = dycl_env_choice("DYCL_PUBLIC_API", words, 2) == 1;
    dycl_dict_setup();
    return 0;
}
