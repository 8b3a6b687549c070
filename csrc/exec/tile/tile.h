/* Tile programs: a block of elementwise, cast and row-wise operators in one pass over tiles that stay in the caches.
 *
 * The space is `rows` x `columns`; a tile is R whole rows or a piece of one. A location is where an operand of an
 * instruction lies during a tile: memory used in place, a register (a tile-sized or row-count-sized piece of
 * per-thread scratch) or one element. Instructions hold resolved kernels.
 *
 * Ownership: a program lives in its plan's arena. Threads: immutable; each thread has its own registers. */
#ifndef DYCL_EXEC_TILE_TILE_H
#define DYCL_EXEC_TILE_TILE_H

#include "exec/plan/step.h"

#define DYCL_TILE_LOCATIONS    250
#define DYCL_TILE_INSTRUCTIONS 500
#define DYCL_TILE_OUTER        8

typedef enum {
    DYCL_AT_NONE,     /* NULL */
    DYCL_AT_REGISTER, /* base: offset in the thread's scratch */
    DYCL_AT_ONE,      /* one element, or a whole row that every row uses: does not move */
    DYCL_AT_LINEAR,   /* memory: + row * row_bytes + column * column_bytes */
    DYCL_AT_ODOMETER, /* memory whose rows do not lie at one stride */
    DYCL_AT_PART      /* one element for each tile, in the program's parts */
} dycl_tile_at;

typedef struct {
    dycl_ref ref;
    int64_t row_bytes, column_bytes;
    int64_t offset;       /* REGISTER: bytes into the scratch */
    uint32_t strides;     /* ODOMETER: where they begin among the program's, bytes, one for each outer dimension */
    uint8_t at, constant; /* constant: ref.offset is an index into the program's constants */
} dycl_tile_location;

typedef enum {
    DYCL_DO_EW,        /* fn over all elements of the tile at once */
    DYCL_DO_EW_ROWS,   /* fn row by row: some operand is per row or repeats in every row */
    DYCL_DO_EW_ROW,    /* fn over one element a row */
    DYCL_DO_EW_COLUMN, /* fn over one row, that all rows use */
    DYCL_DO_EW_ONE,    /* fn over one element, that all use */
    DYCL_DO_RED,       /* red row by row */
    DYCL_DO_RED_TILE,  /* red over all elements of the tile */
    DYCL_DO_ROW,       /* row by row */
    DYCL_DO_LOAD,      /* strided memory into a register, columns x rows */
    DYCL_DO_LOAD_ROW,  /* one element a row into a register */
    DYCL_DO_STORE,     /* register to strided memory */
    DYCL_DO_STORE_ROW
} dycl_tile_do;

typedef struct {
    uint8_t what, element, arity;
    uint8_t unused;
    uint8_t dst, a, b, c;                     /* locations; b, c of a missing operand are `missing` */
    int64_t dst_step, a_step, b_step, c_step; /* bytes from one row to the next */
    int64_t stride;                           /* LOAD, STORE: elements */
    double eps;
    union {
        dycl_ew_fn ew;
        dycl_red_fn red;
        dycl_row_fn row;
    } fn;
} dycl_tile_instruction;

/* What each tile adds up, and where the sum of all goes. How tiles are cut depends on the shape only. */
typedef struct {
    int adds; /* 0: there is none */
    dycl_dtype dtype;
    dycl_ref parts, sum;
    double divisor; /* of a mean; 0: none */
    uint8_t location;
} dycl_tile_sum;

typedef struct {
    int64_t rows, columns;
    int64_t tile_rows, tile_columns;
    int64_t row_tiles, column_tiles;
    int outer; /* dimensions of the rows */
    int64_t outer_sizes[DYCL_TILE_OUTER];
    int location_count, moving_count, instruction_count;
    const uint8_t *moving;
    const int64_t *strides;
    dycl_tile_location *locations;
    dycl_tile_instruction *instructions;
    const dycl_scalar *constants;
    dycl_ref scratch;
    size_t scratch_bytes; /* per thread */
    dycl_tile_sum total;
    int threads;
    double nanoseconds; /* of one thread, as estimated */
} dycl_tile_program;

dycl_status dycl_tile_run(const dycl_step *step, dycl_plan *plan);

#endif
