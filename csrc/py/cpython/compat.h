/* Which internals of CPython are known here, by version: the one file that a new Python touches. Each row has a
 * way through the public API, which is taken where the internal is not known, and everywhere when
 * DYCL_PUBLIC_API=1 stands in the environment (tests) or is defined at build time: slower, never wrong. The other
 * headers of this folder ask these rows, never for a version. docs/pythons.md says what each is.
 *
 * Threads: dycl_public_api is written once, at import. */
#ifndef DYCL_PY_CPYTHON_COMPAT_H
#define DYCL_PY_CPYTHON_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000
#error "dycl needs CPython 3.11 or newer"
#endif

#ifdef DYCL_PUBLIC_API
#define DYCL_PYTHON 0
#else
#define DYCL_PYTHON (PY_VERSION_HEX >> 16) /* 0x030C: 3.12 */
#endif

#define DYCL_KNOWN(first, last) (DYCL_PYTHON >= (first) && DYCL_PYTHON <= (last))

/* Rows: the first and the last version that was looked at, and what is known of them. */
#define DYCL_KNOWS_DIGITS       DYCL_KNOWN(0x030B, 0x030B) /* ob_digit; PyUnstable_Long_CompactValue since 3.12 */
#define DYCL_KNOWS_DICT_VERSION DYCL_KNOWN(0x030B, 0x030D) /* ma_version_tag, gone in 3.14 */
#define DYCL_KNOWS_DICT_SPLIT   DYCL_KNOWN(0x030D, 0x030D) /* ... which does not change while values lie in an object */
#define DYCL_KNOWS_DICT_PLACE   DYCL_KNOWN(0x030B, 0x030D) /* _PyObject_GetDictPtr, tp_weaklistoffset */
#define DYCL_KNOWS_DICT_VALUES  DYCL_KNOWN(0x030C, 0x030C) /* attributes of an object that has no dict yet */
#define DYCL_KNOWS_DICT_WORD    DYCL_KNOWN(0x030C, 0x030D) /* the third word before an object: dict or values */
#define DYCL_KNOWS_TYPE_VERSION DYCL_KNOWN(0x030B, 0x030D) /* tp_version_tag, _PyType_Lookup */
#define DYCL_KNOWS_FRAME_FIELDS DYCL_KNOWN(0x030B, 0x030C) /* the thread state's cframe, and its frame's f_code */
#define DYCL_KNOWS_FRAME        DYCL_KNOWN(0x030D, 0x030D) /* the thread state's current_frame, and the same */
#define DYCL_KNOWS_COLLECTOR    DYCL_KNOWN(0x030B, 0x030D) /* whether the collector is enabled, a number */
#define DYCL_KNOWS_TRACERS      DYCL_KNOWN(0x030B, 0x030E) /* c_tracefunc and c_profilefunc in the thread state */

#define DYCL_HAS_DICT_WATCHERS (PY_VERSION_HEX >= 0x030C0000) /* public since then: */
#define DYCL_HAS_COMPACT_INT   (PY_VERSION_HEX >= 0x030C0000)
#define DYCL_HAS_TYPE_DICT     (PY_VERSION_HEX >= 0x030C0000)
#define DYCL_HAS_MONITORING    (PY_VERSION_HEX >= 0x030C0000)
#define DYCL_HAS_WEAKREF_GET   (PY_VERSION_HEX >= 0x030D0000)
#define DYCL_HAS_FRAME_LOCALS  (PY_VERSION_HEX >= 0x030D0000)
#define DYCL_HAS_INLINE_VALUES (PY_VERSION_HEX >= 0x030D0000) /* the values of a __dict__ may lie in its object */

extern int dycl_public_api; /* nothing is known: DYCL_PUBLIC_API=1 in the environment */
#define DYCL_KNOW(row) ((row) && __builtin_expect(!dycl_public_api, 1))

int dycl_cpython_setup(void); /* at import: 0, or -1 with an exception where this Python cannot be served */

#endif
