/* The classes of torch.nn whose calls are recorded at once: what is read of a module, and what its forward records.
 *
 * Ownership: the table is filled once and stays. Threads: GIL held. */
#ifndef DYCL_PY_MODULES_STOCK_KINDS_H
#define DYCL_PY_MODULES_STOCK_KINDS_H

#include "py/modules/instance.h"
#include "py/region/region.h"

/* A module's configuration, read once and valid while its __dict__ and its _parameters did not change (CPython's dict
 * version tags). */
typedef struct {
    dycl_instance instance;
    PyObject *parameters, *buffers; /* borrowed from the module's dict */
    uint64_t parameters_version, buffers_version;
    PyObject *tensors[4]; /* borrowed: weight, bias, running mean, running variance; NULL: absent */
    int64_t ints[7];
    int int_count; /* of the modules that record_weighted serves */
    double real;
    int flag;
} dycl_stock_config;

struct dycl_stock;
typedef dycl_status (*dycl_stock_record)(dycl_region *region, const struct dycl_stock *kind, const dycl_stock_config *c,
                                         PyObject *input, uint32_t *out);
typedef int (*dycl_stock_read)(const struct dycl_stock *kind, PyObject *dict,
                               dycl_stock_config *c); /* 1, or 0 when this configuration is not served */

typedef struct dycl_stock {
    const char *name;
    dycl_stock_read read;
    dycl_stock_record record;
    int op;
    PyTypeObject *type;
    PyObject *forward;            /* torch's own */
    const char *function, *given; /* of torch.nn.functional, and the attributes that it is given; | before names */
    PyObject *callable, *names, *keywords; /* owned: that function, interned names, and the last of them as keywords */
} dycl_stock;

enum { DYCL_STOCK_LINEAR, DYCL_STOCK_COUNT = 17 };
extern dycl_stock dycl_stocks[DYCL_STOCK_COUNT];

#endif
