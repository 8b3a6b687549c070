#include "py/region/inner.h"

#include <string.h>

#include "base/alloc.h"
#include "exec/cache/backwards.h"
#include "py/region/reach.h"
#include "py/region/replay.h"

/* Hidden values that get their histories from one tape: the first one in the program, and those that come of it. A pass
 * through any of them frees what lies behind the first, in eager too. */
typedef struct {
    const dycl_tape *of;
    uint32_t *members; /* owned: positions among what is saved, in the order of the program */
    uint32_t *from;    /* owned: values at which they end: sources, and hidden values of other groups */
    uint32_t count, from_count;
} group;

static uint32_t value_of(const group *g, uint32_t nth) { return g->of->saved[g->members[nth]]; }

static int has_member(const group *g, uint32_t value) {
    for (uint32_t i = 0; i < g->count; i++)
        if (value_of(g, i) == value) return 1;
    return 0;
}

static int is_source(const dycl_tape *t, uint32_t value) {
    return dycl_tape_place(value, t->sources, t->source_count) < t->source_count;
}

/* Marks what comes of the value, through what has a history. NULL: no memory. */
static uint8_t *come_of(const dycl_tape *t, uint32_t value) {
    const dycl_graph *graph = &t->of->segment->graph;
    uint8_t *comes = dycl_alloc_zero(graph->value_count + 1);
    if (!comes) return NULL;
    comes[value] = 1;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const dycl_node *node = &graph->nodes[n];
        uint32_t beside = dycl_grad_leads_beside(graph, node);
        if (!t->of->tracked[node->out]) continue;
        if (beside != DYCL_NONE) comes[node->out] |= comes[beside];
        for (int i = 0; i < node->operand_count; i++)
            if (dycl_node_operands(graph, node)[i] != DYCL_NONE)
                comes[node->out] |= comes[dycl_node_operands(graph, node)[i]];
    }
    return comes;
}

/* The group of the first hidden value that is in none yet. grouped: by position among the hidden. */
static int find_group(const dycl_tape *t, uint8_t *grouped, group *g) {
    uint32_t first = 0;
    while (grouped[first]) first++;
    g->of = t;
    g->members = dycl_alloc((t->hidden_count + 1) * sizeof *g->members);
    g->from = dycl_alloc(((size_t)t->source_count + t->hidden_count + 1) * sizeof *g->from);
    uint32_t value = t->saved[t->hidden[first]];
    uint8_t *comes = come_of(t, value);
    if (!g->members || !g->from || !comes) {
        PyErr_NoMemory();
        dycl_free(comes);
        return -1;
    }
    int apart = is_source(t, value); /* a feed that was set apart: its history is its own */
    for (uint32_t i = first; i < t->hidden_count; i++) {
        uint32_t v = t->saved[t->hidden[i]];
        if (grouped[i] || !comes[v] || (i > first && (apart || is_source(t, v)))) continue;
        grouped[i] = 1;
        g->members[g->count++] = t->hidden[i];
    }
    dycl_free(comes);
    if (apart) {
        g->from[g->from_count++] = value;
        return 0;
    }
    memcpy(g->from, t->sources, t->source_count * sizeof *g->from);
    g->from_count = t->source_count;
    for (uint32_t i = 0; i < t->hidden_count; i++) {
        uint32_t v = t->saved[t->hidden[i]];
        if (!has_member(g, v) && !is_source(t, v)) g->from[g->from_count++] = v;
    }
    return 0;
}

static void free_group(group *g) {
    dycl_free(g->members);
    dycl_free(g->from);
}

/* What leads to the members. */
static dycl_status look_behind(const group *g, dycl_gradients **out) {
    const dycl_tape *t = g->of;
    uint32_t *results = dycl_alloc((g->count + 1) * sizeof *results);
    if (!results) return DYCL_ERROR;
    for (uint32_t i = 0; i < g->count; i++) results[i] = value_of(g, i);
    const dycl_backward_job job = {.graph = &t->of->segment->graph,
                                   .numbers = t->of->scalars,
                                   .tracked = t->of->tracked,
                                   .results = results,
                                   .sources = g->from,
                                   .result_count = g->count,
                                   .source_count = g->from_count};
    dycl_status status = dycl_backwards_get(t->of->segment, &job, 1, out);
    dycl_free(results);
    return status == DYCL_OK ? (*out)->status : status;
}

static int is_seen(const group *g) {
    int seen = 0;
    for (uint32_t i = 0; i < g->of->hidden_count; i++)
        if (has_member(g, g->of->saved[g->of->hidden[i]])) seen |= g->of->seen[i] != 0;
    return seen;
}

/* Whether torch saves something between the members and where they end. */
static int saves_behind(const group *g) {
    const dycl_tape *t = g->of;
    const dycl_graph *graph = &t->of->segment->graph;
    uint8_t *on_way = dycl_alloc_zero(graph->value_count + 1);
    int saves = 0;
    if (!on_way) return 0;
    for (uint32_t i = 0; i < g->count; i++) on_way[value_of(g, i)] = 1;
    for (uint32_t n = graph->node_count; n-- > 0 && !saves;) {
        const dycl_node *node = &graph->nodes[n];
        if (!on_way[node->out] || dycl_tape_place(node->out, g->from, g->from_count) < g->from_count) continue;
        saves = dycl_reach_saves(graph, t->of->tracked, node);
        for (int i = 0; i < node->operand_count; i++) {
            uint32_t v = dycl_node_operands(graph, node)[i];
            if (v != DYCL_NONE) on_way[v] |= t->of->tracked[v] != 0;
        }
    }
    dycl_free(on_way);
    return saves;
}

/* Where the tape's sources are, among the outer one's or among what that saves, behind these; sources that nothing
 * reaches are left out. */
static uint32_t place_sources(const group *g, const dycl_backward *b, dycl_tape *inner, uint32_t *places) {
    const dycl_tape *t = g->of;
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->from_count; i++) {
        if (b->gradients[i] == DYCL_NONE) continue;
        uint32_t at = dycl_tape_place(g->from[i], t->sources, t->source_count);
        places[count] = at < t->source_count ? at : at + dycl_tape_place(g->from[i], t->saved, t->saved_count);
        inner->sources[count++] = g->from[i];
    }
    return count;
}

/* (tape, where its results, its sources and what it saves are) */
static PyObject *make_tape(dycl_tape *t, const group *g, const dycl_backward *b) {
    uint32_t length = b->saved_count;
    uint32_t *places = dycl_alloc((g->from_count + 1) * sizeof *places),
             *saved = dycl_alloc((length + 1) * sizeof *saved);
    if (!places || !saved) PyErr_NoMemory();
    dycl_tape *inner = places && saved ? dycl_tape_new(t->of, g->count, g->from_count, length, 0) : NULL;
    PyObject *result = NULL;
    if (!t->gone) t->gone = dycl_alloc_zero((1 + (size_t)t->saved_count) * sizeof *t->gone);
    for (uint32_t i = 0; inner && i < length; i++) {
        inner->saved[i] = b->saved[i];
        saved[i] = dycl_tape_place(b->saved[i], t->saved, t->saved_count);
        if (saved[i] == t->saved_count) {
            PyErr_SetString(PyExc_SystemError, "dycl: a gradient needs what was not saved");
            Py_CLEAR(inner);
        }
    }
    if (inner) {
        for (uint32_t i = 0; i < g->count; i++) inner->results[i] = value_of(g, i);
        inner->source_count = place_sources(g, b, inner, places);
        inner->outer = Py_NewRef((PyObject *)t);
        inner->nth = g->members[0];
        inner->once = length > 0;
        inner->frees = is_seen(g) && saves_behind(g);
        result =
            Py_BuildValue("(NNNN)", inner, dycl_replay_words((int)g->count, g->members),
                          dycl_replay_words((int)inner->source_count, places), dycl_replay_words((int)length, saved));
    }
    dycl_free(places);
    dycl_free(saved);
    return result;
}

static PyObject *tape_of(dycl_tape *t, const group *g) {
    dycl_gradients *found = NULL;
    PyObject *result = NULL;
    dycl_status status = look_behind(g, &found);
    if (status == DYCL_OK) result = make_tape(t, g, &found->built);
    if (status == DYCL_ERROR) PyErr_NoMemory();
    if (status == DYCL_BAIL) PyErr_SetString(PyExc_SystemError, "dycl: no graph of what was differentiated before");
    dycl_gradients_release(found);
    return result;
}

/* Members of a group may come of those of a later one, and never the other way round: the last group is made first. */
PyObject *dycl_inner_tapes(dycl_tape *t) {
    uint8_t *grouped = dycl_alloc_zero(t->hidden_count + 1);
    PyObject *list = grouped ? PyList_New(0) : PyErr_NoMemory();
    for (uint32_t done = 0; list && done < t->hidden_count;) {
        group g = {0};
        PyObject *row = find_group(t, grouped, &g) == 0 ? tape_of(t, &g) : NULL;
        done += g.count;
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
        free_group(&g);
    }
    if (list && PyList_Reverse(list) < 0) Py_CLEAR(list);
    dycl_free(grouped);
    return list;
}
