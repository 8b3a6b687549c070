#include "py/region/laid.h"

#include <string.h>

#include "py/region/grow.h"
#include "py/region/track.h"
#include "record/build.h"

/* ---- What is computed in channels last */

static int same_sizes(const dycl_value *a, const dycl_value *b) {
    return a->rank == b->rank && !memcmp(a->sizes, b->sizes, (size_t)a->rank * sizeof *a->sizes);
}

/* The family's steps leave channels last where their operands lie so. */
static int follows(const dycl_graph *graph, const dycl_node *node, const uint8_t *last) {
    const uint32_t *operands = dycl_node_operands(graph, node);
    const dycl_value *out = &graph->values[node->out];
    if (dycl_op_is_batch_norm((dycl_op)node->op)) return last[operands[0]];
    switch (dycl_op_get((dycl_op)node->op)->family) {
    case DYCL_FAMILY_CONV: return 1;
    case DYCL_FAMILY_POOL: return last[operands[0]];
    case DYCL_FAMILY_EW:
        for (int i = 0; i < node->operand_count; i++)
            if (last[operands[i]] && same_sizes(&graph->values[operands[i]], out)) return 1;
        return 0;
    default: return 0;
    }
}

/* An image as torch lays it, with several channels and pixels: of others the two layouts are one. */
static int is_image(const dycl_value *v) {
    return v->rank == 4 && v->dtype == DYCL_F32 && v->canonical && v->sizes[1] > 1 && v->sizes[2] * v->sizes[3] > 1;
}

/* last: by value. */
static void mark(const dycl_graph *graph, uint8_t *last) {
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const dycl_node *node = &graph->nodes[n];
        if (is_image(&graph->values[node->out])) last[node->out] = (uint8_t)follows(graph, node, last);
    }
    for (uint32_t v = 0; v < graph->value_count; v++) /* who reads a view wants it as it was recorded */
        if (graph->values[v].root != v) last[graph->values[v].root] = last[v] = 0;
}

/* ---- The outputs */

static dycl_status lay(dycl_region *region, uint32_t nth) {
    uint32_t value = region->outputs[nth], laid;
    const int64_t channels_last = 2;
    dycl_status status = dycl_build_node(&region->recorder, DYCL_OP_laid, 1, &value, 1, &channels_last, &laid);
    if (status == DYCL_BAIL) return DYCL_OK; /* the recording is full */
    if (status != DYCL_OK) return status;
    DYCL_GROW(region->output_of, region->output_of_room, laid + 1);
    region->outputs[nth] = laid;
    region->output_of[laid] = nth + 1;
    return DYCL_OK;
}

dycl_status dycl_laid_outputs(dycl_region *region, uint32_t from, uint32_t end) {
    const dycl_graph *graph = &region->recorder.graph;
    dycl_status status = DYCL_OK;
    while (from < end && !is_image(&graph->values[region->outputs[from]])) from++; /* most programs have none */
    if (from == end) return DYCL_OK;
    uint8_t *last = dycl_alloc_zero(graph->value_count + 1);
    if (last)
        mark(graph, last);
    else
        status = DYCL_ERROR;
    for (uint32_t i = from; i < end && status == DYCL_OK; i++)
        if (last[region->outputs[i]]) status = lay(region, i);
    dycl_free(last);
    if (status == DYCL_OK && dycl_track_all(region) != 0) status = DYCL_ERROR;
    if (status == DYCL_ERROR && !PyErr_Occurred()) PyErr_NoMemory();
    return status;
}

void dycl_laid_forget(dycl_region *region, uint32_t from, uint32_t end) {
    const dycl_graph *graph = &region->recorder.graph;
    for (uint32_t i = from; i < end; i++) {
        uint32_t value = region->outputs[i];
        const dycl_node *node = &graph->nodes[graph->values[value].source];
        region->output_of[value] = 0;
        if (node->op == DYCL_OP_laid) region->output_of[dycl_node_operands(graph, node)[0]] = 0;
    }
}
