#include "py/entry/show.h"

#include "base/alloc.h"
#include "exec/cache/backwards.h"
#include "exec/cache/pieces.h"
#include "py/site/log.h"

static int show_segment(PyObject *list, const dycl_segment *segment, uint32_t topics) {
    dycl_log_catch(topics);
    dycl_segment_show(segment); /* without memory some texts are missing */
    return dycl_log_add_all(list, dycl_log_caught());
}

/* A loop's pieces, each once. */
static int show_pieces(PyObject *list, const dycl_pieces *pieces, uint32_t topics) {
    int result = 0;
    for (uint32_t i = 0; i < dycl_pieces_count(pieces) && result == 0; i++) {
        uint32_t first = 0;
        while (dycl_pieces_segment(pieces, first) != dycl_pieces_segment(pieces, i)) first++;
        if (first < i || !dycl_pieces_segment(pieces, i)) continue;
        result = dycl_log_add(list, "", PyUnicode_FromFormat("# piece %u of it\n", i));
        if (result == 0) result = show_segment(list, dycl_pieces_segment(pieces, i), topics);
    }
    return result;
}

static int show_whole(PyObject *list, const dycl_segment *segment, uint32_t topics) {
    int result = show_segment(list, segment, topics);
    return result == 0 && segment->pieces ? show_pieces(list, segment->pieces, topics) : result;
}

static int show_backward(PyObject *list, const dycl_gradients *g, uint32_t topics) {
    dycl_segment *by = g->segment;
    const char *how = !by ? ", hands on what comes" : by->pieces ? ", in pieces" : by->plan ? "" : ", has no plan";
    PyObject *line = PyUnicode_FromFormat("# backward pass of it%s: ran %llu times, %llu more in torch\n", how,
                                          (unsigned long long)g->passes, (unsigned long long)g->replays);
    if (by) dycl_segment_retain(by);
    int result = dycl_log_add(list, "", line);
    if (result == 0 && by) result = show_whole(list, by, topics);
    dycl_segment_release(by);
    return result;
}

/* Its backward graphs that ran, the last one first. Tuples are made meanwhile, for which the garbage collector may run:
 * finalizers may come back to the list. */
static int show_backwards(PyObject *list, const dycl_segment *segment, uint32_t topics) {
    dycl_gradients *ran[DYCL_BACKWARDS_MOST];
    uint32_t count = 0;
    int result = 0;
    for (dycl_gradients *g = segment->backwards; g; g = g->next)
        if (!g->ahead && g->passes + g->replays) dycl_gradients_retain(ran[count++] = g);
    for (uint32_t i = 0; i < count; i++) {
        if (result == 0) result = show_backward(list, ran[i], topics);
        dycl_gradients_release(ran[i]);
    }
    return result;
}

static int show_vertex(PyObject *list, const dycl_trace_vertex *vertex, uint32_t topics) {
    const dycl_segment *segment = vertex->segment;
    const char *before = vertex->where ? ", at " : "", *where = vertex->where ? vertex->where : "";
    const char *how = segment->pieces ? ", in pieces" : segment->plan ? "" : ", has no plan";
    PyObject *line = PyUnicode_FromFormat("# ran %llu times%s; ended by: %s%s%s\n", (unsigned long long)vertex->visits,
                                          how, dycl_bail_text((dycl_bail)vertex->why), before, where);
    if (dycl_log_add(list, "", line) < 0 || show_whole(list, segment, topics) < 0) return -1;
    return show_backwards(list, segment, topics);
}

static int show_site(PyObject *list, const dycl_site *site, uint32_t topics, uint64_t calls) {
    uint64_t count = site->stats.calls, since = count > calls ? count - calls : 0;
    for (uint32_t i = 1; i < site->trace->count; i++)
        if (site->trace->vertices[i].last > since && show_vertex(list, &site->trace->vertices[i], topics) < 0)
            return -1;
    return 0;
}

PyObject *dycl_site_show(dycl_site *site, uint32_t topics, uint64_t calls) {
    PyObject *list = PyList_New(0), *key, *method;
    Py_ssize_t at = 0;
    int result = list ? show_site(list, site, topics, calls) : -1;
    while (result == 0 && site->methods && PyDict_Next(site->methods, &at, &key, &method))
        result = show_site(list, (dycl_site *)method, topics, calls);
    if (result < 0) Py_CLEAR(list);
    return list;
}

PyObject *dycl_log_reprint(const char *text) {
    dycl_graph graph;
    char *again = NULL;
    PyObject *result = NULL;
    dycl_graph_init(&graph);
    if (dycl_graph_parse_laid(text, &graph) == DYCL_OK && dycl_graph_print_laid(&graph, &again) == DYCL_OK)
        result = PyUnicode_FromString(again);
    else
        PyErr_SetString(PyExc_ValueError, dycl_error_message());
    dycl_free(again);
    dycl_graph_free(&graph);
    return result;
}
