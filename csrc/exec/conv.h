/* Convolutions and pooling as steps. Private to csrc/exec. Ownership: arguments live in the plan's arena. Threads: as steps. */
#ifndef DYCL_EXEC_CONV_H
#define DYCL_EXEC_CONV_H

#include "exec/builder.h"

typedef struct {
    dycl_prim *prim; /* borrowed from the plan */
    dycl_ref src, weights, bias, dst, scratch;
    dycl_ref repacked; /* where weights that are no constant are packed at each run */
    uint32_t packed;   /* slot of the packed constant, or DYCL_NONE */
    int has_bias, post_count;
    int has_post[DYCL_MAX_POST_OPS];
    dycl_ref post[DYCL_MAX_POST_OPS];
} dycl_conv_args;

void dycl_conv_describe(dycl_conv_desc *d, const dycl_tensor *x, const dycl_tensor *w, const dycl_tensor *out, const int64_t *attrs);
double dycl_conv_cost(const dycl_conv_desc *d);

#endif
