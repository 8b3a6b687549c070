/* DNNFusion's mapping types (Niu et al., PLDI 2021, section 3): how the elements of an operator's result depend on
 * those of an operand, and which two operators may become one. Ownership: none, constant data. Threads: any. */
#ifndef DYCL_OPT_MAPPING_H
#define DYCL_OPT_MAPPING_H

#include "opt/program.h"

typedef enum { DYCL_FUSE_YES, DYCL_FUSE_MEASURE, DYCL_FUSE_NEVER } dycl_fuse_verdict;

typedef struct {
    uint8_t mapping; /* dycl_mapping of the two together; as the first where they are never fused */
    uint8_t verdict; /* dycl_fuse_verdict */
} dycl_fuse_cell;

#define DYCL_MAP_COUNT 5
extern const dycl_fuse_cell dycl_fuse_table[DYCL_MAP_COUNT][DYCL_MAP_COUNT]; /* [first][second] */

/* The type of a node seen from its operand i, in a block whose unit is a row of `row` elements (0 or 1: an element): an
 * operand of other size than the result is broadcast, whatever the registry says, and an operator on whole rows maps a
 * row to a row. */
dycl_mapping dycl_mapping_of_edge(const dycl_program *program, uint32_t node, int i, int64_t row);

#endif
