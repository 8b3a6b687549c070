/* For test_faults.py: Python's allocations that one shared object asks for (through any of Python's functions, but not
 * through the interpreter's loop or another library) are counted, and some of them fail. What torch asks for for itself
 * does not count: its argument parser does not survive it. */
#define _GNU_SOURCE
#include <Python.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <string.h>

enum { DEPTH = 24, KNOWN = 1 << 16 };
typedef enum { NOBODY, PYTHON, OURS, OTHERS } owner;

static PyMemAllocatorEx behind[3];
static const char *object_name;
static long asked, first, last;
static int active;
static struct {
    void *address;
    owner whose;
} known[KNOWN];

static owner ask(void *address) {
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname) return OTHERS;
    if (strstr(info.dli_fname, object_name)) return OURS;
    if (strstr(info.dli_fname, "pymem")) return PYTHON;
    if (!strstr(info.dli_fname, "python")) return OTHERS;
    if (strstr(info.dli_fname, ".so") && !strstr(info.dli_fname, "libpython"))
        return OTHERS; /* an extension in a folder of that name */
    /* and CPython 3.11's compiler does not survive it either */
    return info.dli_sname &&
                   (!strncmp(info.dli_sname, "_PyEval_EvalFrame", 17) || !strncmp(info.dli_sname, "PyRun_", 6))
               ? OTHERS
               : PYTHON;
}

static owner whose(void *address) {
    size_t at = ((size_t)address * 0x9e3779b97f4a7c15u) >> 48;
    while (known[at].address && known[at].address != address) at = (at + 1) % KNOWN;
    if (!known[at].address) {
        known[at].address = address;
        known[at].whose = ask(address);
    }
    return known[at].whose;
}

static int fails(void) {
    void *frames[DEPTH];
    if (!active) return 0;
    active = 0; /* what follows may allocate */
    int count = backtrace(frames, DEPTH), is_ours = 0;
    for (int i = 1; i < count; i++) {
        owner o = whose(frames[i]);
        if (o == PYTHON) continue;
        is_ours = o == OURS;
        break;
    }
    active = 1;
    if (!is_ours) return 0;
    long n = asked++;
    return n >= first && n < last;
}

static void *hook_malloc(void *context, size_t size) {
    PyMemAllocatorEx *b = context;
    return fails() ? NULL : b->malloc(b->ctx, size);
}
static void *hook_calloc(void *context, size_t count, size_t size) {
    PyMemAllocatorEx *b = context;
    return fails() ? NULL : b->calloc(b->ctx, count, size);
}
static void *hook_realloc(void *context, void *block, size_t size) {
    PyMemAllocatorEx *b = context;
    return fails() ? NULL : b->realloc(b->ctx, block, size);
}
static void hook_free(void *context, void *block) {
    PyMemAllocatorEx *b = context;
    b->free(b->ctx, block);
}

void pymem_install(const char *name) {
    object_name = name;
    void *frames[4];
    backtrace(frames, 4);                        /* loads what it needs */
    for (int domain = 1; domain < 3; domain++) { /* not the raw one: it is used without the GIL */
        PyMem_GetAllocator((PyMemAllocatorDomain)domain, &behind[domain]);
        PyMem_SetAllocator((PyMemAllocatorDomain)domain,
                           &(PyMemAllocatorEx){&behind[domain], hook_malloc, hook_calloc, hook_realloc, hook_free});
    }
}

void pymem_begin(long nth, long how_many) {
    first = nth;
    last = nth + how_many;
    asked = 0;
    active = 1;
}

long pymem_end(void) {
    active = 0;
    return asked;
}
