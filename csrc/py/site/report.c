/* stats and explain: what a site did, for people and programs. */
#include "base/alloc.h"
#include "exec/cache/pieces.h"
#include "exec/cache/teams.h"
#include "py/site/report.h"

static int put(PyObject *dict, const char *name, uint64_t value) {
    PyObject *number = PyLong_FromUnsignedLongLong(value);
    int result = number ? PyDict_SetItemString(dict, name, number) : -1;
    Py_XDECREF(number);
    return result;
}

static int put_counts(PyObject *dict, const char *name, const uint64_t *counts) {
    PyObject *inner = PyDict_New();
    int result = inner ? 0 : -1;
    for (int i = 0; i < DYCL_BAIL_COUNT && result == 0; i++)
        if (counts[i]) result = put(inner, dycl_bail_name((dycl_bail)i), counts[i]);
    if (result == 0) result = PyDict_SetItemString(dict, name, inner);
    Py_XDECREF(inner);
    return result;
}

/* A module's own counts and those of its methods. */
static void add_up(const dycl_site *site, dycl_site_stats *out, dycl_passes *out_passes, uint64_t *out_vertices,
                   uint64_t *out_selects) {
    PyObject *key, *method;
    Py_ssize_t at = 0;
    _Static_assert(sizeof(dycl_site_stats) % sizeof(uint64_t) == 0, "counts only");
    for (size_t i = 0; i < sizeof *out / sizeof(uint64_t); i++)
        ((uint64_t *)out)[i] += ((const uint64_t *)&site->stats)[i];
    if (site->passes) {
        out_passes->done += site->passes->done;
        out_passes->replayed += site->passes->replayed;
        out_passes->twice += site->passes->twice;
    }
    *out_vertices += site->trace->count - 1;
    *out_selects += dycl_trace_case_selects(site->trace);
    while (site->methods && PyDict_Next(site->methods, &at, &key, &method))
        add_up((dycl_site *)method, out, out_passes, out_vertices, out_selects);
}

PyObject *dycl_site_stats_dict(dycl_site *site) {
    dycl_site_stats sum = {0}, *s = &sum;
    dycl_passes passes = {0};
    uint64_t vertices = 0, selects = 0;
    add_up(site, s, &passes, &vertices, &selects);
    PyObject *dict = PyDict_New();
    if (!dict || put(dict, "calls", s->calls) < 0 || put(dict, "plain_calls", s->plain_calls) < 0 ||
        put(dict, "plain_grad", s->plain_grad) < 0 || put(dict, "plain_mode", s->plain_mode) < 0 ||
        put(dict, "plain_disabled", s->plain_disabled) < 0 || put(dict, "plain_nested", s->plain_nested) < 0 ||
        put(dict, "plain_faster", s->plain_faster) < 0 || put(dict, "recorded", s->recorded) < 0 ||
        put(dict, "torch", s->torch) < 0 || put(dict, "beside", s->beside) < 0 ||
        put(dict, "segments", s->segments) < 0 || put(dict, "ahead", s->ahead) < 0 ||
        put(dict, "replays", s->replays) < 0 || put(dict, "updates", s->updates) < 0 ||
        put(dict, "nodes", s->nodes) < 0 || put(dict, "backward_passes", passes.done) < 0 ||
        put(dict, "backward_replays", passes.replayed) < 0 || put(dict, "backward_twice", passes.twice) < 0 ||
        put(dict, "saved_bytes", s->saved_bytes) < 0 || put(dict, "postponed", s->deferred) < 0 ||
        put(dict, "recalled", s->recalled) < 0 || put(dict, "graph_vertices", vertices) < 0 ||
        put(dict, "case_selects", selects) < 0 || put(dict, "packed_bytes", dycl_pack_bytes()) < 0 ||
        put(dict, "plans", dycl_plan_count()) < 0 || put_counts(dict, "bails", s->bails) < 0 ||
        put_counts(dict, "flushes", s->flushes) < 0)
        Py_CLEAR(dict);
    return dict;
}

/* ---- explain */

int dycl_say(PyObject *lines, PyObject *line) {
    int result = line ? PyList_Append(lines, line) : -1;
    Py_XDECREF(line);
    return result;
}

#define KINDS 6 /* tensors of a segment that are shown */

PyObject *dycl_say_tensors(const dycl_graph *graph, const uint32_t *values, uint32_t count) {
    PyObject *text = PyUnicode_FromFormat("%u tensor%s", count, count == 1 ? "" : "s");
    for (uint32_t i = 0; text && i < count && i < KINDS; i++) {
        const dycl_value *value = &graph->values[values[i]];
        Py_SETREF(text,
                  PyUnicode_FromFormat("%U%s%s[", text, i ? ", " : " (", dycl_dtype_name((dycl_dtype)value->dtype)));
        for (int d = 0; text && d < value->rank; d++)
            Py_SETREF(text, PyUnicode_FromFormat("%U%s%lld", text, d ? "," : "", (long long)value->sizes[d]));
        if (text) Py_SETREF(text, PyUnicode_FromFormat("%U]", text));
    }
    if (text && count) Py_SETREF(text, PyUnicode_FromFormat("%U%s)", text, count > KINDS ? ", ..." : ""));
    return text;
}

int dycl_say_plan(PyObject *lines, const dycl_segment *segment) {
    char *text = NULL;
    if (!segment->plan || dycl_plan_describe(segment->plan, &text) != DYCL_OK) return 0;
    int result = dycl_say(lines, PyUnicode_FromString(text));
    dycl_free(text);
    return result;
}

static int explain_vertex(PyObject *lines, const dycl_trace *trace, uint32_t id) {
    const dycl_trace_vertex *vertex = &trace->vertices[id];
    const dycl_segment *segment = vertex->segment;
    dycl_plan_stats stats = {0};
    if (segment->plan) dycl_plan_get_stats(segment->plan, &stats);
    const dycl_graph *graph = &segment->graph;
    PyObject *feeds = dycl_say_tensors(graph, graph->feeds, graph->feed_count),
             *outputs = dycl_say_tensors(graph, segment->outputs, (uint32_t)segment->output_count);
    PyObject *line = !feeds || !outputs
                         ? NULL
                         : PyUnicode_FromFormat("segment %u: %u operators, %u steps, %s plan, ran %llu times\n  feeds: "
                                                "%U, %u number%s; outputs: %U; ended by: %s",
                                                id, graph->node_count, stats.steps,
                                                segment->pieces  ? "no"
                                                : segment->tuned ? "tuned"
                                                                 : "cold",
                                                (unsigned long long)vertex->visits, feeds, graph->scalar_count,
                                                graph->scalar_count == 1 ? "" : "s", outputs,
                                                dycl_bail_text((dycl_bail)vertex->why));
    Py_XDECREF(feeds);
    Py_XDECREF(outputs);
    if (line && segment->pieces)
        Py_SETREF(line, PyUnicode_FromFormat("%U\n  %s: runs as %u pieces that other %s share", line,
                                             dycl_pieces_are_parts(segment->pieces) ? "a path that is new"
                                                                                    : "a loop whose trip count changes",
                                             dycl_pieces_count(segment->pieces),
                                             dycl_pieces_are_parts(segment->pieces) ? "paths" : "counts"));
    if (line && segment->plan) Py_SETREF(line, PyUnicode_FromFormat("%U; threads: %s", line, dycl_teams_text(segment)));
    if (line && vertex->where) Py_SETREF(line, PyUnicode_FromFormat("%U, at %s", line, vertex->where));
    int result = dycl_say(lines, line);
    if (result == 0) result = dycl_explain_history(lines, segment);
    if (result == 0) result = dycl_say_plan(lines, segment);
    if (result == 0) result = dycl_explain_passes(lines, segment, id);
    if (result == 0 && vertex->successor_count > 1) {
        line = PyUnicode_FromString("  case select, continues with segment");
        for (uint32_t i = 0; line && i < vertex->successor_count; i++)
            Py_SETREF(line, PyUnicode_FromFormat("%U %u", line, vertex->successors[i]));
        result = dycl_say(lines, line);
    }
    return result;
}

static PyObject *name_of(PyObject *callable) {
    if (PyUnicode_Check(callable)) return Py_NewRef(callable);
    PyObject *name = PyObject_GetAttrString(callable, "__name__");
    if (!name) {
        PyErr_Clear();
        name = PyObject_Repr(callable);
    }
    return name;
}

static int explain_left(PyObject *lines, const dycl_left_row *row) {
    PyCodeObject *code = (PyCodeObject *)row->code;
    PyObject *name = name_of(row->callable);
    int result =
        name ? dycl_say(lines, PyUnicode_FromFormat("  %S: %s, %llu times, at %U:%d", name, dycl_bail_text(row->why),
                                                    (unsigned long long)row->count, code->co_filename, row->line))
             : -1;
    Py_XDECREF(name);
    return result;
}

#define EXPLAINED 256 /* segments that are shown */

/* Which way calls go, and what speaks against recording. */
static int explain_choice(PyObject *lines, const dycl_site *site) {
    double region = dycl_choose_median(&site->choice, DYCL_WAY_REGION),
           torch = dycl_choose_median(&site->choice, DYCL_WAY_TORCH);
    const dycl_trace *trace = site->trace;
    uint32_t once = 0;
    if (region > 0 && torch > 0) {
        uint32_t wait = site->choice.interval > site->choice.calls ? site->choice.interval - site->choice.calls : 0;
        int backed_off = site->choice.preferred == DYCL_WAY_TORCH;
        if (dycl_say(lines, PyUnicode_FromFormat(
                                "a call takes %lld us recorded, %lld us in torch: %s from now on%s, the other way "
                                "is tried again after %u calls",
                                (long long)(region / 1e3), (long long)(torch / 1e3), backed_off ? "torch" : "recorded",
                                backed_off ? " (backed off)" : "", wait)) < 0)
            return -1;
    }
    if (site->stats.torch > site->stats.recorded &&
        dycl_say(lines, PyUnicode_FromString("most operators are left to torch: their reasons are below")) < 0)
        return -1;
    for (uint32_t i = 1; i < trace->count; i++) once += trace->vertices[i].visits == 1;
    if (once > 8 && 2 * once >= trace->count)
        return dycl_say(lines, PyUnicode_FromFormat("paths or shapes hardly repeat: %u of %u segments were seen once%s",
                                                    once, trace->count - 1,
                                                    trace->count >= DYCL_TRACE_VERTICES ? " (no more are kept)" : ""));
    return 0;
}

static PyObject *explain_one(dycl_site *site) {
    const dycl_site_stats *s = &site->stats;
    PyObject *lines = PyList_New(0), *newline = NULL, *text = NULL;
    if (!lines) return NULL;
    if (dycl_say(lines, PyUnicode_FromFormat("%llu calls recorded, %llu ran in torch as a whole (gradients %llu, other "
                                             "modes %llu, disabled %llu, inside another region %llu, faster so %llu)",
                                             (unsigned long long)s->calls, (unsigned long long)s->plain_calls,
                                             (unsigned long long)s->plain_grad, (unsigned long long)s->plain_mode,
                                             (unsigned long long)s->plain_disabled, (unsigned long long)s->plain_nested,
                                             (unsigned long long)s->plain_faster)) < 0 ||
        dycl_say(lines,
                 PyUnicode_FromFormat("%llu operators recorded, %llu left to torch, %llu segments run; %llu fetches "
                                      "(a value was needed), %u case selects",
                                      (unsigned long long)s->recorded, (unsigned long long)s->torch,
                                      (unsigned long long)s->segments,
                                      (unsigned long long)(s->flushes[DYCL_BAIL_fetch] + s->flushes[DYCL_BAIL_index]),
                                      dycl_trace_case_selects(site->trace))) < 0)
        goto done;
    if (s->updates &&
        dycl_say(lines,
                 PyUnicode_FromFormat("%llu steps ran as one loop over all parameters, without the optimizer's Python",
                                      (unsigned long long)s->updates)) < 0)
        goto done;
    if (s->beside &&
        dycl_say(lines,
                 PyUnicode_FromFormat("%llu operators ran at once in torch without ending a segment (random numbers, "
                                      "tensors of numbers, results whose size depends on values)",
                                      (unsigned long long)s->beside)) < 0)
        goto done;
    if (s->deferred && dycl_say(lines, PyUnicode_FromFormat(
                                           "%llu products of which only the largest element was wanted were postponed, "
                                           "%llu of them were asked for later",
                                           (unsigned long long)s->deferred, (unsigned long long)s->recalled)) < 0)
        goto done;
    if (s->replays &&
        dycl_say(lines,
                 PyUnicode_FromFormat(
                     "%llu segments could not run here and ran operator by operator in torch, the last one because: %V",
                     (unsigned long long)s->replays, site->replayed, "unknown")) < 0)
        goto done;
    if (dycl_explain_training(lines, site) < 0 || explain_choice(lines, site) < 0) goto done;
    for (uint32_t i = 1; i < site->trace->count && i <= EXPLAINED; i++)
        if (explain_vertex(lines, site->trace, i) < 0) goto done;
    if (site->trace->count > EXPLAINED + 1 &&
        dycl_say(lines, PyUnicode_FromFormat("and %u more segments", site->trace->count - 1 - EXPLAINED)) < 0)
        goto done;
    if (site->left_count && dycl_say(lines, PyUnicode_FromString("left to torch:")) < 0) goto done;
    for (int i = 0; i < site->left_count;
         i++) { /* what it says may run Python code, which may come back to this table */
        dycl_left_row row = site->left[i];
        Py_INCREF(row.callable);
        Py_INCREF(row.code);
        int said = explain_left(lines, &row);
        Py_DECREF(row.callable);
        Py_DECREF(row.code);
        if (said < 0) goto done;
    }
    newline = PyUnicode_FromString("\n");
    if (newline) text = PyUnicode_Join(newline, lines);
done:
    Py_XDECREF(newline);
    Py_DECREF(lines);
    return text;
}

PyObject *dycl_site_explain(dycl_site *site) {
    PyObject *text = explain_one(site), *key, *method;
    PyObject *methods = site->methods ? PyDict_Copy(site->methods) : NULL; /* explaining may run Python code */
    Py_ssize_t at = 0;
    while (text && methods && PyDict_Next(methods, &at, &key, &method)) {
        PyObject *name = name_of(key), *more = name ? explain_one((dycl_site *)method) : NULL;
        Py_SETREF(text, more ? PyUnicode_FromFormat("%U\n\nmethod %S:\n%U", text, name, more) : NULL);
        Py_XDECREF(name);
        Py_XDECREF(more);
    }
    Py_XDECREF(methods);
    return text;
}
