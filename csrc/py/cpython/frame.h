/* The Python function that is running. Ownership: as said. Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_FRAME_H
#define DYCL_PY_CPYTHON_FRAME_H

#include "py/cpython/thread.h"

#if DYCL_KNOWS_FRAME_FIELDS
#define Py_BUILD_CORE 1
#include "internal/pycore_frame.h"
#endif

/* Its code, without making a frame object. Borrowed, to be compared; NULL: none. */
static inline const PyObject *dycl_frame_code(void) {
#if DYCL_KNOWS_FRAME_FIELDS
    if (DYCL_KNOW(DYCL_KNOWS_FRAME_FIELDS)) {
        const _PyInterpreterFrame *frame = dycl_thread()->cframe->current_frame;
        return frame ? (const PyObject *)frame->f_code : NULL;
    }
#elif DYCL_KNOWS_FRAME
    if (DYCL_KNOW(DYCL_KNOWS_FRAME)) {
        struct _PyInterpreterFrame *frame = dycl_thread()->current_frame;
        PyObject *running = frame ? PyUnstable_InterpreterFrame_GetCode(frame) : NULL;
        Py_XDECREF(running);
        return running;
    }
#endif
    PyFrameObject *object = PyEval_GetFrame(); /* borrowed */
    PyCodeObject *code = object ? PyFrame_GetCode(object) : NULL;
    Py_XDECREF(code);
    return (const PyObject *)code;
}

/* Its variables as a dict of their own or the program's. New reference, or NULL. */
static inline PyObject *dycl_frame_variables(void) {
#if DYCL_HAS_FRAME_LOCALS
    return PyEval_GetFrameLocals(); /* PyFrame_GetLocals gives no dict any more */
#else
    PyFrameObject *frame = PyEval_GetFrame(); /* borrowed */
    return frame ? PyFrame_GetLocals(frame) : NULL;
#endif
}

/* Whether two code objects were compiled from the same function: one may be the other under a new name. */
static inline int dycl_code_is_a_copy(PyObject *code, PyObject *of) {
    const PyCodeObject *a = (const PyCodeObject *)code, *b = (const PyCodeObject *)of;
    return a == b || (a->co_firstlineno == b->co_firstlineno && a->co_filename == b->co_filename);
}

#endif
