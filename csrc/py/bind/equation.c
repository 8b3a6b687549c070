#include "py/bind/equation.h"

#include <string.h>

#define LABELS DYCL_EQUATION_LABELS
#define WIDE   DYCL_EQUATION_WIDE

static int label_of(Py_UCS4 c) {
    return c >= 'A' && c <= 'Z' ? (int)(c - 'A') : c >= 'a' && c <= 'z' ? (int)(c - 'a') + 26 : -1;
}

static int has(const dycl_subscripts *s, int label) {
    for (int i = 0; i < s->count; i++)
        if (s->label[i] == label) return 1;
    return 0;
}

int dycl_equation_repeats(const dycl_subscripts *s) {
    for (int i = 0; i < s->count; i++) {
        if (s->label[i] == WIDE) return 1;
        for (int k = 0; k < i; k++)
            if (s->label[k] == s->label[i]) return 1;
    }
    return 0;
}

/* One more label, or "...". How many characters it takes; 0: no such thing here. */
static Py_ssize_t take(PyObject *text, Py_ssize_t at, Py_ssize_t length, dycl_subscripts *s) {
    Py_UCS4 c = PyUnicode_READ_CHAR(text, at);
    int wide = c == '.', label = wide ? WIDE : label_of(c);
    if (label < 0 || s->count > DYCL_MAX_RANK || (wide && has(s, WIDE))) return 0;
    for (int i = 1; wide && i < 3; i++)
        if (at + i >= length || PyUnicode_READ_CHAR(text, at + i) != '.') return 0;
    s->label[s->count++] = label;
    return wide ? 3 : 1;
}

int dycl_equation_parse(PyObject *text, dycl_equation *out) {
    if (!text || !PyUnicode_Check(text) || !PyUnicode_IS_ASCII(text)) return 0;
    Py_ssize_t length = PyUnicode_GET_LENGTH(text), taken;
    memset(out, 0, sizeof *out);
    out->operands = 1;
    for (Py_ssize_t i = 0; i < length; i += taken) {
        Py_UCS4 c = PyUnicode_READ_CHAR(text, i);
        taken = 1;
        if (c == ' ') continue;
        if (c == ',' && !out->has_output) {
            if (out->operands++ == DYCL_EQUATION_OPERANDS) return 0;
        } else if (c == '-' && !out->has_output && i + 1 < length && PyUnicode_READ_CHAR(text, i + 1) == '>') {
            out->has_output = 1;
            taken = 2;
        } else {
            taken = take(text, i, length, out->has_output ? &out->output : &out->of[out->operands - 1]);
            if (!taken) return 0;
        }
    }
    return 1;
}

/* How often each label occurs, and how many dimensions "..." stands for at most. */
static int count(const dycl_equation *equation, const int *ranks, int *seen, int *wide) {
    for (int i = 0; i < equation->operands; i++) {
        const dycl_subscripts *s = &equation->of[i];
        int open = has(s, WIDE), left = ranks[i] - s->count + open;
        if (left < 0 || (left && !open)) return 0;
        if (open && left > *wide) *wide = left;
        for (int k = 0; k < s->count; k++) seen[s->label[k]]++;
    }
    return 1;
}

int dycl_equation_arrange(const dycl_equation *equation, const int *ranks, dycl_arrangement *out) {
    int seen[LABELS + 1] = {0}, shown = !equation->has_output;
    const dycl_subscripts *result = &equation->output;
    *out = (dycl_arrangement){0};
    for (int i = 0; i < LABELS; i++) out->place[i] = -1;
    if (!count(equation, ranks, seen, &out->wide)) return 0;
    if (!equation->has_output) { /* what occurs once */
        out->rank = out->wide;
        for (int i = 0; i < LABELS; i++)
            if (seen[i] == 1) out->place[i] = out->rank++;
    }
    for (int k = 0; k < result->count; k++) {
        int label = result->label[k];
        if (label == WIDE) {
            out->wide_at = out->rank;
            out->rank += out->wide;
            shown = 1;
        } else if (seen[label] && out->place[label] < 0) {
            out->place[label] = out->rank++;
        } else {
            return 0;
        }
    }
    out->outputs = out->rank;
    if (!shown) {
        out->wide_at = out->rank;
        out->rank += out->wide;
    }
    for (int i = 0; i < LABELS; i++)
        if (seen[i] && out->place[i] < 0) out->place[i] = out->rank++;
    return out->rank <= DYCL_MAX_RANK;
}
