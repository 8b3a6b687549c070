/* What explain says of training: what autograd sees of the segments, what is kept for backward passes, and these. */
#include "exec/cache/history.h"
#include "exec/cache/pieces.h"
#include "exec/cache/teams.h"
#include "py/site/report.h"

#include "base/alloc.h"

typedef unsigned long long number;

int dycl_explain_training(PyObject *lines, const dycl_site *site) {
    static const dycl_passes none;
    const dycl_site_stats *s = &site->stats;
    const dycl_passes *p = site->passes ? site->passes : &none;
    if (!s->nodes) return 0;
    if (dycl_say(lines, PyUnicode_FromFormat(
                            "%llu nodes of autograd's graph, %llu backward passes through them, %llu of these "
                            "operator by operator in torch; the last call keeps %llu bytes for its backward "
                            "pass alone",
                            (number)s->nodes, (number)p->done, (number)p->replayed, (number)s->saved_bytes)) < 0)
        return -1;
    if (p->twice && dycl_say(lines, PyUnicode_FromFormat("  %llu of them made gradients that are to be differentiated "
                                                         "themselves (create_graph=True)",
                                                         (number)p->twice)) < 0)
        return -1;
    if (p->replayed == p->twice) return 0;
    return dycl_say(lines, PyUnicode_FromFormat("  %llu of them could not run here, the last one because: %s",
                                                (number)(p->replayed - p->twice), p->why));
}

/* "3 tensors (...), 96 bytes, <what>" behind the line. Steals the line; NULL where that is. */
static PyObject *add_kept(PyObject *line, const dycl_graph *graph, const uint32_t *values, uint32_t count,
                          uint64_t bytes, const char *what) {
    PyObject *tensors = line && count ? dycl_say_tensors(graph, values, count) : NULL;
    if (!line || !count) return line;
    Py_SETREF(line, tensors ? PyUnicode_FromFormat("%U %U, %llu bytes, %s", line, tensors, (number)bytes, what) : NULL);
    Py_XDECREF(tensors);
    return line;
}

int dycl_explain_history(PyObject *lines, const dycl_segment *segment) {
    const dycl_history *h = segment->history;
    const dycl_graph *graph = &segment->graph;
    if (!h || !h->nodes) return 0;
    PyObject *feeds = dycl_say_tensors(graph, h->feeds, h->feed_count), *line = NULL;
    if (feeds)
        line = PyUnicode_FromFormat("  autograd: %u node%s for %u of its operators; feeds that want gradients: %U",
                                    h->nodes, h->nodes == 1 ? "" : "s", h->operators, feeds);
    Py_XDECREF(feeds);
    if (dycl_say(lines, line) < 0) return -1;
    line = PyUnicode_FromString(h->alone_count + h->there_count ? "  kept for the backward pass:"
                                                                : "  kept for the backward pass: nothing");
    line = add_kept(line, graph, h->alone, h->alone_count, h->alone_bytes,
                    h->there_count ? "for it alone;" : "for it alone");
    line = add_kept(line, graph, h->there, h->there_count, h->there_bytes, "that are feeds or results");
    return dycl_say(lines, line);
}

/* ---- Backward passes */

/* "9 of its operators (mean 2 times, sub, ...)", or nothing. */
static PyObject *again_text(const dycl_gradients *g) {
    uint32_t *counts = dycl_alloc(DYCL_OP_COUNT * sizeof *counts);
    uint32_t found = counts ? dycl_history_again(g, counts) : DYCL_NONE;
    PyObject *text = NULL;
    if (found == DYCL_NONE)
        PyErr_NoMemory();
    else
        text = found ? PyUnicode_FromFormat("%u of its operators (", found) : PyUnicode_FromString("");
    for (int op = 0, said = 0; text && op < DYCL_OP_COUNT && found; op++) {
        if (!counts[op]) continue;
        const char *name = dycl_op_get((dycl_op)op)->name;
        Py_SETREF(text, counts[op] == 1
                            ? PyUnicode_FromFormat("%U%s%s", text, said ? ", " : "", name)
                            : PyUnicode_FromFormat("%U%s%s %u times", text, said ? ", " : "", name, counts[op]));
        said = 1;
    }
    if (text && found) Py_SETREF(text, PyUnicode_FromFormat("%U)", text));
    dycl_free(counts);
    return text;
}

/* What gets gradients. */
static PyObject *goals_text(const dycl_segment *segment, const dycl_gradients *g) {
    uint32_t *feeds = dycl_alloc((g->source_count + 1) * sizeof *feeds), count = 0, between = 0;
    if (!feeds) return PyErr_NoMemory();
    for (uint32_t i = 0; i < g->source_count; i++) {
        if (!g->wanted[i] || g->built.gradients[i] == DYCL_NONE) continue;
        if (segment->graph.values[g->sources[i]].kind == DYCL_VALUE_FEED)
            feeds[count++] = g->sources[i];
        else
            between++;
    }
    PyObject *text = dycl_say_tensors(&segment->graph, feeds, count);
    if (text)
        Py_SETREF(text, between ? PyUnicode_FromFormat("%U of its feeds and to %u value%s between nodes", text, between,
                                                       between == 1 ? "" : "s")
                                : PyUnicode_FromFormat("%U of its feeds", text));
    dycl_free(feeds);
    return text;
}

static const char *plan_kind(const dycl_segment *by) {
    return !by || by->pieces || !by->plan ? "no" : by->tuned ? "tuned" : "cold";
}

static PyObject *pass_line(const dycl_segment *segment, uint32_t id, const dycl_gradients *g) {
    const dycl_segment *by = g->segment;
    dycl_plan_stats stats = {0};
    PyObject *from = dycl_say_tensors(&segment->graph, g->results, g->result_count), *to = goals_text(segment, g);
    PyObject *line = NULL;
    if (by && by->plan) dycl_plan_get_stats(by->plan, &stats);
    if (from && to)
        line = PyUnicode_FromFormat("backward pass of segment %u: %u operators, %u steps, %s plan, ran %llu times, "
                                    "%llu more in torch\n  from %U to %U",
                                    id, dycl_gradients_graph(g)->node_count, stats.steps, plan_kind(by),
                                    (number)g->passes, (number)g->replays, from, to);
    Py_XDECREF(from);
    Py_XDECREF(to);
    if (line && g->recorded)
        Py_SETREF(line, PyUnicode_FromFormat("%U; %llu times recorded, as gradients that are to be differentiated",
                                             line, (number)g->recorded));
    if (line && by && by->pieces)
        Py_SETREF(line, PyUnicode_FromFormat("%U; runs as %u pieces", line, dycl_pieces_count(by->pieces)));
    if (line && by && by->plan) Py_SETREF(line, PyUnicode_FromFormat("%U; threads: %s", line, dycl_teams_text(by)));
    return line;
}

static int explain_pass(PyObject *lines, const dycl_segment *segment, uint32_t id, const dycl_gradients *g) {
    PyObject *again = again_text(g);
    int result = again ? dycl_say(lines, pass_line(segment, id, g)) : -1;
    if (result == 0 && PyUnicode_GET_LENGTH(again))
        result = dycl_say(lines, PyUnicode_FromFormat("  computed again, from what was kept: %U", again));
    Py_XDECREF(again);
    if (result == 0 && g->segment) result = dycl_say_plan(lines, g->segment);
    return result;
}

#define PASSES 16 /* of a segment that are shown */

int dycl_explain_passes(PyObject *lines, const dycl_segment *segment, uint32_t id) {
    uint32_t count = 0;
    for (dycl_gradients *g = segment->backwards; g; g = g->next) {
        if (g->ahead || !(g->passes + g->replays)) continue;
        if (++count > PASSES) continue;
        if (explain_pass(lines, segment, id, g) < 0) return -1;
    }
    if (count <= PASSES) return 0;
    return dycl_say(lines, PyUnicode_FromFormat("and %u more backward graphs of segment %u", count - PASSES, id));
}
