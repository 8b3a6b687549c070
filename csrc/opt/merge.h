/* Joining two tile blocks. Private to csrc/opt. Ownership: dycl_readers owns its arrays. Threads: one at a time. */
#ifndef DYCL_OPT_MERGE_H
#define DYCL_OPT_MERGE_H

#include "opt/mapping.h"

#define DYCL_BLOCK_MEMBERS 47

/* The live nodes that read a root value, through any view: nodes[start[v] .. start[v + 1]]. */
typedef struct {
    uint32_t *start, *nodes;
} dycl_readers;

/* Makes b part of a and answers 1, or leaves both as they are and answers 0. Both are tile blocks that may grow. */
int dycl_merge(dycl_program *program, const dycl_readers *readers, uint32_t a, uint32_t b);

#endif
