#include "py/region/defer.h"

#include <string.h>

#include "base/alloc.h"
#include "opt/prefilter.h"
#include "py/cpython/collect.h"
#include "py/site/site.h"

struct dycl_deferred {
    uint32_t references;
    dycl_region *region;     /* borrowed: outlives its lazy tensors */
    dycl_segment *segment;   /* retained: its graph says how the values are made */
    uint32_t operand;        /* value of that graph, */
    dycl_handle kept;        /* owned: its tensor */
    PyObject *weight, *bias; /* owned; bias may be NULL */
};

#define MOST_OPERAND (INT64_C(1) << 22) /* elements of what is kept instead */
#define FIRST_TRIES  8                  /* a quarter may be asked for in the long run, these beside them */
#define TRY_AGAIN    256                /* occasions that are passed over where more were */

/* ---- Looking */

static int pays(dycl_site_stats *s) {
    if (4 * s->recalled <= s->deferred + FIRST_TRIES) return 1;
    return ++s->not_deferred % TRY_AGAIN == 0;
}

/* A parameter that torch counts all writes to. */
static int is_constant(const dycl_region *region, uint32_t value) {
    const dycl_value *v = &region->recorder.graph.values[value];
    return v->kind == DYCL_VALUE_FEED && v->root == value && region->feeds[v->source].token &&
           region->sources[v->source].object;
}

/* From the argmax to its product; 0: too many copies. */
static int collect(const dycl_graph *g, uint32_t argmax, dycl_deferral *p) {
    uint32_t value = dycl_node_operands(g, &g->nodes[argmax])[0];
    for (p->count = 0; p->count < DYCL_DEFER_CHAIN;) {
        uint32_t maker = dycl_graph_maker(g, value);
        p->roots[p->count++] = g->nodes[maker].out;
        value = dycl_node_operands(g, &g->nodes[maker])[0];
        if (maker == p->product) break;
    }
    p->operand = value;
    return p->roots[p->count - 1] == g->nodes[p->product].out;
}

/* Whether only the argmax and copies on its way read what would not be there. */
static int is_read_elsewhere(const dycl_graph *g, const dycl_deferral *p, uint32_t argmax) {
    for (uint32_t n = p->product + 1; n < g->node_count; n++) {
        const dycl_node *node = &g->nodes[n];
        if (n == argmax || node->op == DYCL_OP_view || dycl_defers(p, node->out)) continue;
        for (int i = 0; i < node->operand_count; i++) {
            uint32_t operand = dycl_node_operands(g, node)[i];
            if (operand != DYCL_NONE && dycl_defers(p, g->values[operand].root)) return 1;
        }
    }
    return 0;
}

static int suits(const dycl_region *region, const dycl_deferral *p, uint32_t argmax) {
    const dycl_graph *g = &region->recorder.graph;
    const uint32_t *operands = dycl_node_operands(g, &g->nodes[p->product]);
    uint32_t root = g->values[p->operand].root;
    if (!is_constant(region, operands[1]) || (operands[2] != DYCL_NONE && !is_constant(region, operands[2]))) return 0;
    if (g->values[root].kind != DYCL_VALUE_NODE || region->output_of[root] ||
        dycl_value_numel(&g->values[root]) > MOST_OPERAND)
        return 0;
    for (uint32_t i = 0; i < region->written_count; i++)
        if (dycl_defers(p, region->written[i].value)) return 0;
    return !is_read_elsewhere(g, p, argmax);
}

static void take_out(dycl_region *region, uint32_t *count, const dycl_deferral *p) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < *count; i++) {
        uint32_t root = region->outputs[i];
        region->output_of[root] = 0;
        if (dycl_defers(p, root)) continue;
        region->outputs[left++] = root;
        region->output_of[root] = left;
    }
    uint32_t kept = region->recorder.graph.values[p->operand].root;
    region->outputs[left++] = kept; /* at least one was taken out: there is room */
    region->output_of[kept] = left;
    *count = left;
}

void dycl_defer_look(dycl_region *region, uint32_t wanted, uint32_t *count, dycl_deferral *p) {
    const dycl_graph *g = &region->recorder.graph;
    p->count = 0;
    if (region->foreign) return;
    for (uint32_t n = g->node_count; n-- > 0;) {
        if (g->nodes[n].op != DYCL_OP_argmax || (p->product = dycl_prefilter_product(g, n)) == DYCL_NONE) continue;
        int held = 0;
        if (collect(g, n, p) && !dycl_defers(p, wanted) && suits(region, p, n)) {
            for (int i = 0; i < p->count; i++) held |= region->output_of[p->roots[i]] != 0;
        }
        if (held && pays(&region->site->stats))
            take_out(region, count, p);
        else
            p->count = 0;
        return;
    }
}

/* ---- Waiting */

int dycl_defer_keep(dycl_region *region, const dycl_deferral *p, dycl_segment *segment) {
    const dycl_graph *g = &region->recorder.graph;
    const uint32_t *operands = dycl_node_operands(g, &g->nodes[p->product]);
    struct dycl_deferred *made = dycl_alloc(sizeof *made);
    dycl_handle kept =
        made ? dycl_abi_copy_handle(region->handles[region->output_of[g->values[p->operand].root] - 1]) : NULL;
    if (!kept) {
        dycl_free(made);
        PyErr_NoMemory();
        return -1;
    }
    *made = (struct dycl_deferred){
        .references = 1, .region = region, .segment = segment, .operand = p->operand, .kept = kept};
    dycl_segment_retain(segment);
    made->weight = Py_NewRef(region->sources[g->values[operands[1]].source].object);
    made->bias = operands[2] == DYCL_NONE ? NULL : Py_NewRef(region->sources[g->values[operands[2]].source].object);
    region->deferred++;
    region->site->stats.deferred++;
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        dycl_lazy *lazy = dycl_lazy_of(o);
        if (lazy->epoch != region->epoch || lazy->real || !dycl_defers(p, g->values[lazy->value].root)) continue;
        lazy->deferred = made;
        made->references++;
    }
    dycl_defer_release(made);
    return 0;
}

void dycl_defer_release(struct dycl_deferred *p) {
    if (--p->references) return;
    PyObject *weight = p->weight, *bias = p->bias;
    dycl_handle kept = p->kept;
    p->region->deferred--;
    dycl_segment_release(p->segment);
    dycl_free(p);
    dycl_abi_delete(kept);
    Py_DECREF(weight);
    Py_XDECREF(bias);
}

const dycl_value *dycl_defer_value(const dycl_lazy *lazy) {
    return &lazy->deferred->segment->graph.values[lazy->value];
}

/* ---- Recalling */

typedef struct {
    dycl_region *region;
    const struct dycl_deferred *from;
    uint32_t *now; /* per value of the old graph: the new one, or DYCL_NONE */
} recording;

static dycl_status again(recording *r, uint32_t value, uint32_t *out);

static dycl_status node_again(recording *r, const dycl_node *node, uint32_t *out) {
    const dycl_graph *g = &r->from->segment->graph;
    uint32_t operands[3];
    dycl_status status;
    if (node->operand_count > 3) return dycl_build_bail(&r->region->recorder, DYCL_BAIL_operator);
    for (int i = 0; i < node->operand_count; i++) {
        uint32_t operand = dycl_node_operands(g, node)[i];
        operands[i] = DYCL_NONE;
        if (operand != DYCL_NONE) DYCL_TRY(again(r, operand, &operands[i]));
    }
    return dycl_build_node(&r->region->recorder, (dycl_op)node->op, node->operand_count, operands, node->attr_count,
                           dycl_node_attrs(g, node), out);
fail:
    return status;
}

/* A value of the old segment's graph in the one that is recorded now. */
static dycl_status again(recording *r, uint32_t value, uint32_t *out) {
    const dycl_graph *g = &r->from->segment->graph;
    const dycl_value *v = &g->values[value];
    dycl_status status;
    if ((*out = r->now[value]) != DYCL_NONE) return DYCL_OK;
    if (value == g->values[r->from->operand].root) {
        DYCL_TRY(dycl_region_feed(r->region, r->from->kept, out));
    } else if (v->kind == DYCL_VALUE_FEED) { /* the weight, a matrix, or the bias, a vector: nothing else is reached */
        DYCL_TRY(dycl_region_feed_object(r->region, v->rank > 1 ? r->from->weight : r->from->bias, out));
    } else {
        DYCL_TRY(node_again(r, &g->nodes[v->source], out));
    }
    r->now[value] = *out;
    return DYCL_OK;
fail:
    return status;
}

static struct dycl_deferred *first_waiting(const dycl_region *region) {
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next)
        if (dycl_lazy_of(o)->deferred) return dycl_lazy_of(o)->deferred;
    return NULL;
}

/* Those that wait for the same become pending together, so that views of one another stay what they are. */
static dycl_status recall_one(dycl_region *region, struct dycl_deferred *p) {
    uint32_t value, values = p->segment->graph.value_count;
    recording r = {.region = region, .from = p, .now = dycl_alloc(values * sizeof *r.now)};
    dycl_status status = DYCL_OK;
    if (!r.now) return dycl_error_set("out of memory");
    memset(r.now, 0xff, values * sizeof *r.now);                      /* DYCL_NONE */
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) { /* first all of them, then it is done */
        if (dycl_lazy_of(o)->deferred == p) DYCL_TRY(again(&r, dycl_lazy_of(o)->value, &value));
    }
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        dycl_lazy *lazy = dycl_lazy_of(o);
        if (lazy->deferred != p) continue;
        lazy->value = r.now[lazy->value];
        lazy->epoch = region->epoch;
        lazy->deferred = NULL;
        p->references--; /* not the last: the caller has one */
    }
    region->site->stats.recalled++;
fail:
    dycl_free(r.now);
    return status;
}

int dycl_defer_recall(dycl_region *region) {
    struct dycl_deferred *done[DYCL_DEFER_MOST + 1], *p;
    int count = 0;
    dycl_status status = DYCL_OK;
    dycl_collect_hold(); /* no finalizer ends the segment in between */
    while (status == DYCL_OK && count <= DYCL_DEFER_MOST && (p = first_waiting(region))) {
        p->references++;
        done[count++] = p;
        status = recall_one(region, p);
    }
    dycl_collect_release();
    if (status != DYCL_OK && !PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "dycl: a value that was postponed cannot be made");
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    while (count) dycl_defer_release(done[--count]);
    PyErr_Restore(type, value, traceback);
    return status == DYCL_OK ? 0 : -1;
}
