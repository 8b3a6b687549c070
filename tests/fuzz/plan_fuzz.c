/* libFuzzer on graphs in their text form: parser, verifier, passes, plans of every kind, runs, against the reference
 * interpreter (DYCL_CHECK, which is on in this build). A first line "# seed" says what feeds the graph. Built and run
 * by `make fuzz FUZZ="plans ..."`. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/half.h"
#include "exec/plan/plan.h"
#include "exec/plan/workspace.h"
#include "mutate.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
int LLVMFuzzerInitialize(int *count, char ***arguments);

/* Before anything asks for them. */
int LLVMFuzzerInitialize(int *count, char ***arguments) {
    (void)count, (void)arguments;
    setenv("DYCL_CHECK", "1e8", 0);
    setenv("OMP_NUM_THREADS", "1", 0);
    return 0;
}

static char *text_of(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    return text;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    rnd();
    if (!below(8)) return LLVMFuzzerMutate(data, size, room);
    dycl_graph g;
    dycl_graph_init(&g);
    char *text = text_of(data, size), *printed = NULL, *end = text + size;
    if (!below(3)) /* some lines less */
        for (int64_t lines = below(6); lines > 0 && end > text;) lines -= *--end == '\n';
    *end = 0;
    if (dycl_graph_parse(text, &g) != DYCL_OK) dycl_graph_reset(&g);
    mutate(&g);
    size_t made = 0;
    if (dycl_graph_print(&g, &printed) == DYCL_OK)
        made = (size_t)snprintf((char *)data, room, "# %u\n%s", (unsigned)below(1000), printed);
    dycl_free(printed);
    dycl_graph_free(&g);
    free(text);
    return made && made < room ? made : LLVMFuzzerMutate(data, size, room);
}

/* ---- What feeds a graph */

static void fill(dycl_dtype dtype, void *memory, int64_t extent, int style) {
    for (int64_t i = 0; i < extent; i++) {
        int64_t whole = below(7) - (dtype == DYCL_U8 || dtype == DYCL_BOOL || style == 1 ? 0 : 3);
        double number = style == 2 ? (double)rnd_float() * 3 : (double)whole / 4;
        if (style == 3 && !below(16)) number = (double[]){INFINITY, -INFINITY, NAN, -0.0, 1e30, 1e-30}[below(6)];
        switch (dtype) {
        case DYCL_F32: ((float *)memory)[i] = (float)number; break;
        case DYCL_F64: ((double *)memory)[i] = number; break;
        case DYCL_BF16:
        case DYCL_F16: ((uint16_t *)memory)[i] = dycl_half_of(dtype, (float)number); break;
        case DYCL_I64: ((int64_t *)memory)[i] = whole; break;
        case DYCL_I32: ((int32_t *)memory)[i] = (int32_t)whole; break;
        case DYCL_I16: ((int16_t *)memory)[i] = (int16_t)whole; break;
        case DYCL_I8: ((int8_t *)memory)[i] = (int8_t)whole; break;
        case DYCL_U8: ((uint8_t *)memory)[i] = (uint8_t)whole; break;
        default: ((uint8_t *)memory)[i] = whole > 0;
        }
    }
}

typedef struct {
    void *feeds[64], *outputs[64];
    dycl_feed feed[64];
    dycl_scalar scalars[64];
    uint32_t output[64];
    int output_count;
} inputs;

static int small(const dycl_graph *g) {
    if (g->value_count > 64 || g->node_count == 0) return 0;
    for (uint32_t v = 0; v < g->value_count; v++)
        if (dycl_value_numel(&g->values[v]) > MOST_ELEMENTS || dycl_value_extent(&g->values[v]) > 4 * MOST_ELEMENTS)
            return 0;
    return 1;
}

static size_t bytes_of(const dycl_value *v) {
    return (size_t)dycl_value_extent(v) * dycl_dtype_size((dycl_dtype)v->dtype);
}

static void make_inputs(const dycl_graph *g, inputs *in) {
    memset(in, 0, sizeof *in);
    int style = (int)below(4);
    for (uint32_t i = 0; i < g->feed_count; i++) {
        const dycl_value *v = &g->values[g->feeds[i]];
        in->feeds[i] = malloc(bytes_of(v) + 1);
        fill((dycl_dtype)v->dtype, in->feeds[i], dycl_value_extent(v), style);
        in->feed[i] = (dycl_feed){in->feeds[i], below(2) ? 1 + i : 0, 1};
    }
    for (uint32_t i = 0; i < g->scalar_count; i++) { /* one of 16 bits is held as f32 */
        dycl_dtype dtype = (dycl_dtype)g->values[g->scalars[i]].dtype;
        fill(dycl_dtype_computed(dtype), &in->scalars[i], 1, style);
        if (dycl_dtype_is_half(dtype)) in->scalars[i].f32 = dycl_half_round(dtype, in->scalars[i].f32);
    }
    int last = 0; /* the last values are what nobody reads: outputs always, others at random */
    for (uint32_t v = g->value_count; v-- > 0;) {
        const dycl_value *value = &g->values[v];
        if (value->kind != DYCL_VALUE_NODE || value->root != v || !(last++ == 0 || !below(3))) continue;
        in->outputs[in->output_count] = malloc(bytes_of(value) + 1);
        in->output[in->output_count++] = v;
    }
}

static void free_inputs(const dycl_graph *g, inputs *in) {
    for (uint32_t i = 0; i < g->feed_count; i++) {
        dycl_pack_forget(1 + i);
        free(in->feeds[i]);
    }
    for (int i = 0; i < in->output_count; i++) free(in->outputs[i]);
}

static void must_be_right(dycl_status status, const dycl_graph *g, const char *what) {
    char *text = NULL;
    if (status == DYCL_OK || status == DYCL_BAIL) return;
    fprintf(stderr, "%s: %s\n", what, dycl_error_message());
    if (dycl_graph_print(g, &text) == DYCL_OK) fputs(text, stderr);
    abort();
}

/* The parser gives back what the printer wrote. */
static void round_trip(const dycl_graph *g) {
    char *text = NULL;
    dycl_graph again;
    dycl_graph_init(&again);
    must_be_right(dycl_graph_print(g, &text), g, "print");
    must_be_right(dycl_graph_parse(text, &again), g, "parse");
    if (!dycl_graph_equal(g, &again)) must_be_right(dycl_error_set("the text form is another graph"), g, "round trip");
    dycl_graph_free(&again);
    dycl_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = text_of(data, size);
    dycl_graph g;
    inputs in;
    dycl_graph_init(&g);
    random_state = 88172645463325252u + (text[0] == '#' ? strtoull(text + 1, NULL, 10) : 0) * 7919;
    rnd();
    if (dycl_graph_parse(text, &g) == DYCL_OK && small(&g)) {
        round_trip(&g);
        if (!below(8)) g.options = DYCL_OPTION_NO_PACK;
        make_inputs(&g, &in);
        for (int mode = 0; mode < 3 && in.output_count; mode++) {
            dycl_plan *plan = NULL;
            dycl_status status = dycl_plan_create(&g, in.output, in.output_count, (dycl_plan_mode)mode, &plan);
            must_be_right(status, &g, "plan");
            for (int run = 0; run < 3 && status == DYCL_OK; run++)
                must_be_right(status = dycl_plan_run(plan, in.feed, in.scalars, in.outputs), &g, "run");
            dycl_plan_release(plan);
        }
        free_inputs(&g, &in);
    }
    dycl_graph_free(&g);
    free(text);
    return 0;
}
