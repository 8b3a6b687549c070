/* State of lowering one block to a tile program. Private to build.c and lower.c.
 *
 * Ownership: lives for one block. Threads: one at a time. */
#ifndef DYCL_EXEC_TILE_LOWER_H
#define DYCL_EXEC_TILE_LOWER_H

#include "exec/builder/builder.h"
#include "exec/tile/tile.h"

#define DYCL_LOWER_MEMORY 100
#define DYCL_LOWER_NODES  64
#define DYCL_LOWER_ABSENT INT32_MIN

typedef enum { DYCL_KIND_FULL, DYCL_KIND_ROW, DYCL_KIND_COLUMN, DYCL_KIND_ONE } dycl_lower_kind;

/* Memory that the block reads or writes. */
typedef struct {
    dycl_ref ref;
    dycl_dtype dtype;
    int store;
    int64_t strides[DYCL_SPACE_RANK]; /* elements, along the space */
    int64_t column_stride, row_bytes;
    int last;             /* node that reads it last */
    int location, loaded; /* locations, 0: none yet; loaded: its copy in a register */
    int loaded_register;
    dycl_lower_kind kind;
    int direct, dense, linear;
} dycl_lower_memory;

typedef struct {
    uint32_t node;
    int operand_count;
    int operand[3]; /* >= 0: node of the block; < 0: memory -1 - operand; ABSENT */
    int store;      /* memory, or -1 */
    int last;       /* node that reads it last */
    int row_level, row_result;
    int location, reg; /* reg: register number, or -1 */
} dycl_lower_node;

typedef struct dycl_lower {
    dycl_builder *b;
    dycl_space space;
    int64_t row;
    int adds_parts;                  /* dycl_program_adds_parts: the row is the whole space, in tiles as they come */
    const struct dycl_blocked *flat; /* all operands lie in this layout, and so will the results */
    const dycl_layout *strided;      /* results lie like this operand (channels last), and operands as they are */
    int memory_count, node_count, after_count, constant_count, stride_count;
    int register_count[2], free_count[2]; /* full registers and one-element-a-row ones */
    double cost;                          /* nanoseconds for an element of the space */
    dycl_tile_program program;
    /* from here on, only what the counts cover is set */
    dycl_lower_memory memory[DYCL_LOWER_MEMORY];
    dycl_lower_node nodes[DYCL_LOWER_NODES];
    dycl_tensor after_from[DYCL_LOWER_NODES], after_to[DYCL_LOWER_NODES];
    dycl_tile_location locations[DYCL_TILE_LOCATIONS];
    dycl_tile_instruction instructions[DYCL_TILE_INSTRUCTIONS];
    int64_t strides[DYCL_TILE_LOCATIONS * DYCL_TILE_OUTER];
    dycl_scalar constants[DYCL_LOWER_NODES];
    int free_list[2][DYCL_TILE_LOCATIONS], register_location[2][DYCL_TILE_LOCATIONS];
} dycl_lower;

/* Classes of registers. */
#define FULL_CLASS 0
#define ROW_CLASS  1

/* shape.c */
dycl_status dycl_lower_shape(dycl_lower *l); /* rows, columns and tiles; memory may be copied for it */
void dycl_lower_classify(dycl_lower *l, dycl_lower_memory *m);
dycl_status dycl_lower_place(dycl_lower *l, dycl_lower_memory *m); /* its location */
dycl_status dycl_lower_location(dycl_lower *l, dycl_tile_location at, int *out);

dycl_status dycl_lower_instructions(dycl_lower *l); /* lower.c; the following are parts of it */
dycl_tile_instruction *dycl_lower_emit(dycl_lower *l, dycl_tile_do what);
dycl_status dycl_lower_take(dycl_lower *l, int class, int *out_register);
void dycl_lower_give(dycl_lower *l, int class, int number);
int64_t dycl_lower_pitch(const dycl_lower *l, int class, dycl_dtype dtype); /* of the rows of a register */

/* Between memory and registers (lower_move.c). */
dycl_status dycl_lower_load(dycl_lower *l, const dycl_lower_memory *m, int to); /* element by element */
dycl_status dycl_lower_store(dycl_lower *l, const dycl_lower_memory *m, int from);
dycl_status dycl_lower_widen(dycl_lower *l, const dycl_lower_memory *m); /* to f32, where m says */
dycl_status dycl_lower_narrow(dycl_lower *l, const dycl_lower_memory *m, int from);
dycl_status dycl_lower_round(dycl_lower *l, const dycl_lower_node *entry, const dycl_node *node, dycl_dtype half);

/* lower_finish.c */
double dycl_lower_cost(dycl_op op, dycl_dtype dtype);
void dycl_lower_offer_sharing(dycl_lower *l, int index);
dycl_status dycl_lower_finish(dycl_lower *l);

#endif
