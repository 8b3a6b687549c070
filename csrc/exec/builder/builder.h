/* Turns the blocks of a program into steps. Private to csrc/exec.
 *
 * Ownership: a dycl_builder borrows the plan; what it allocates for itself dies with dycl_builder_free. Threads: one at
 * a time. Protocol: while a step is being built, dycl_make_read/_write say what it touches, then dycl_make_step appends
 * it. */
#ifndef DYCL_EXEC_BUILDER_BUILDER_H
#define DYCL_EXEC_BUILDER_BUILDER_H

#include "exec/plan/memory.h"
#include "exec/plan/step.h"

typedef struct {
    uint32_t step, slot, write;
} dycl_touch;

typedef struct {
    dycl_plan *plan;
    dycl_program *program;
    dycl_slot *slots;
    uint32_t slot_count, slot_room;
    dycl_touch *touches; /* in the order of the steps */
    uint32_t touch_count, touch_room;
    int failed; /* a touch could not be noted, or is outside its slot; the message is set */
    uint32_t *touch_start;
    uint32_t block;                /* being built */
    uint32_t choice, variant;      /* of what scratch is made now; variant 0: of none */
    uint32_t *dense;               /* value -> slot of a contiguous copy made earlier, or DYCL_NONE */
    struct dycl_blocked **blocked; /* root value -> its other layout (blocked.h), or NULL */
    uint32_t *laid;                /* value -> the output that is the same, laid otherwise, or DYCL_NONE; NULL: none */
    struct dycl_lower *lower;      /* state of one tile block (tile/lower.h) */
} dycl_builder;

dycl_status dycl_builder_init(dycl_builder *b, dycl_plan *plan);
void dycl_builder_free(dycl_builder *b);

void *dycl_plan_alloc(dycl_plan *plan, size_t size); /* zeroed, from the plan's arena; NULL when out of memory */
dycl_status dycl_make_slot(dycl_builder *b, size_t bytes, uint32_t *out_slot);
void dycl_make_serial(dycl_builder *b); /* the last step runs on one thread and may run beside others */
/* Memory that keeps its contents from run to run. */
dycl_status dycl_make_kept(dycl_builder *b, size_t bytes, uint32_t *out_slot);
/* Scratch memory of the step being built. */
dycl_status dycl_make_scratch(dycl_builder *b, size_t bytes, dycl_ref *out);
/* From here until the step is made: scratch of its first, second, ... variant. Only one of them runs, so that their
 * memory may be the same. */
void dycl_make_variant(dycl_builder *b, uint32_t variant);
dycl_status dycl_make_step(dycl_builder *b, dycl_step_fn run, void *args, const char *kernel, double cost);
/* A step on the way to the one that is being built, as a copy of an operand is: what was said before `begun` (the
 * touch_count when it began) belongs to that one, and lives until then. */
dycl_status dycl_make_aside(dycl_builder *b, uint32_t begun, dycl_step_fn run, void *args, const char *kernel,
                            double cost);
dycl_status dycl_make_prim(dycl_builder *b,
                           dycl_prim *prim); /* the plan takes the reference, and the last step shows it */
/* The plan takes the reference, and the step made last shows what was measured. NULL is allowed. */
dycl_status dycl_make_autotune(dycl_builder *b, dycl_autotune *autotune);
dycl_ref dycl_make_ref(const dycl_builder *b, uint32_t value); /* a value's first element */
/* What DYCL_OP_laid lays: the root of its operand where a pass found the two to be the same. */
uint32_t dycl_make_laid_of(const dycl_builder *b, const dycl_node *node);
/* Both want a result of the same call: attribute 0 says which. */
int dycl_make_is_sibling(const dycl_graph *g, const dycl_node *node, const dycl_node *other);

static inline const dycl_value *dycl_make_value(const dycl_builder *b, uint32_t v) {
    return &b->program->graph.values[v];
}

/* A value as a tensor in memory: what a view, a copy made on the way or an output comes down to. */
typedef struct {
    dycl_ref ref;
    dycl_dtype dtype;
    int rank;
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
} dycl_tensor;
void dycl_make_tensor(const dycl_builder *b, uint32_t value, dycl_tensor *out);
/* What the step being built touches. Its slots must have these bytes: else dycl_make_step refuses, which is a bug, and
 * the segment runs in torch. */
void dycl_make_read(dycl_builder *b, const dycl_tensor *t);
void dycl_make_write(dycl_builder *b, const dycl_tensor *t);
void dycl_make_read_at(dycl_builder *b, dycl_ref ref, size_t bytes);
void dycl_make_write_at(dycl_builder *b, dycl_ref ref, size_t bytes);
size_t dycl_tensor_bytes(const dycl_tensor *t); /* from its first element to one past the last */
int dycl_tensor_contiguous(const dycl_tensor *t);
int dycl_tensor_channels_last(const dycl_tensor *t); /* rank 4, dense */
int64_t dycl_tensor_numel(const dycl_tensor *t);
/* The value contiguous: itself, or a copy (a step of its own). */
dycl_status dycl_make_contiguous(dycl_builder *b, uint32_t value, dycl_tensor *out);
/* An output that a kernel writes contiguously: the value itself, or a temporary; `finish` copies that to its place. */
dycl_status dycl_make_target(dycl_builder *b, uint32_t value, dycl_tensor *out);
dycl_status dycl_make_finish(dycl_builder *b, uint32_t value, const dycl_tensor *target);
dycl_status dycl_make_copy(dycl_builder *b, const dycl_tensor *from, const dycl_tensor *to); /* same sizes and dtype */
/* A result that begins as a copy of x, which is dense and lies as it does: none where nobody needs x any more. */
dycl_status dycl_make_begin(dycl_builder *b, const dycl_tensor *x, const dycl_tensor *to);
/* An operator of the host that our own kernel runs; BAIL: it does not (ir/added.h). */
dycl_status dycl_make_added(dycl_builder *b, const dycl_node *node);
dycl_status dycl_make_loss(dycl_builder *b, const dycl_node *node); /* the same (ir/losses.h) */
/* The same for steps that compute floats of 16 bits in f32 (tile/half.c): the value itself, or a dense copy in f32;
 * room for a result in f32, which `finish` rounds. Of other dtypes nothing is copied. */
dycl_status dycl_make_computed(dycl_builder *b, uint32_t value, dycl_tensor *out);
dycl_status dycl_make_widened(dycl_builder *b, uint32_t value, dycl_tensor *as); /* as: the value, or a copy of it */
dycl_status dycl_make_computed_alike(dycl_builder *b, uint32_t value, dycl_tensor *out); /* strides as the value's */
dycl_status dycl_make_computed_target(dycl_builder *b, uint32_t value, dycl_tensor *out);
dycl_status dycl_make_rounded(dycl_builder *b, uint32_t value, const dycl_tensor *target);

/* Whether a constant may be kept in another form than the program's own. */
static inline int dycl_make_may_pack(const dycl_builder *b) {
    return !(b->program->graph.options & DYCL_OPTION_NO_PACK);
}
/* How a constant's packed form is found at run time; *out is NULL when the value cannot be a constant or may not be
 * packed. scaled: factors of as->channels output channels are multiplied in. */
dycl_status dycl_make_packing(dycl_builder *b, const dycl_tensor *weights, const dycl_weights *as, int scaled,
                              dycl_packing **out);
void dycl_plan_shrink(dycl_plan *plan);         /* when its steps are made: no room for more */
void *dycl_plan_grow(void *block, size_t size); /* dycl_realloc with a message */

dycl_status dycl_make_places(dycl_builder *b); /* of all slots, behind the last step */

dycl_status dycl_make_tile(dycl_builder *b, const dycl_block *block);
/* A row-wise operator alone, over rows that lie side by side; DYCL_BAIL: they do not. */
dycl_status dycl_make_row_columns(dycl_builder *b, const dycl_block *block);
dycl_status dycl_make_whole(dycl_builder *b); /* all blocks, where the plan is a backend's */
/* ---- One builder a family; each appends the steps of the current block. */
#define DYCL_FAMILY(NAME, name, ...) dycl_status dycl_steps_##name(dycl_builder *b, const dycl_block *block);
#include "ir/family.def"
#undef DYCL_FAMILY

#endif
