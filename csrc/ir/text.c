/* The text form: one line a value, in the order of values.
 *
 *     %0 = feed f32[2,3]{3,1}
 *     %1 = scalar f32
 *     %2 = add %0 %1 : f32[2,3]{3,1}
 *     %3 = view %2 (0, 3, 2, 1, 3) : f32[3,2]{1,3} of %2 + 0
 *     %4 = layer_norm %2 _ _ (1, f1e-05) : f32[2,3]{3,1}
 *
 * f before an attribute: a double. What follows ":" repeats what inference says; where present it must agree. "#"
 * begins a comment. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ir/verify.h"

/* ---- Printing */

typedef struct {
    char *text;
    size_t length, room;
    int failed;
} buffer;

static void put(buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(buffer *b, const char *format, ...) {
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (!b->failed && b->length + (size_t)length + 1 > b->room) {
        size_t room = 2 * (b->room + (size_t)length) + 256;
        char *text = dycl_realloc(b->text, room);
        b->failed = !text;
        if (text) {
            b->text = text;
            b->room = room;
        }
    }
    if (!b->failed) b->length += (size_t)vsnprintf(b->text + b->length, b->room - b->length, format, again);
    va_end(again);
}

static void put_list(buffer *b, char open, int count, const int64_t *list, char close) {
    put(b, "%c", open);
    for (int i = 0; i < count; i++) put(b, i ? ",%lld" : "%lld", (long long)list[i]);
    put(b, "%c", close);
}

static void put_type(buffer *b, const dycl_value *value) {
    put(b, "%s", dycl_dtype_name((dycl_dtype)value->dtype));
    put_list(b, '[', value->rank, value->sizes, ']');
    put_list(b, '{', value->rank, value->strides, '}');
}

static void put_attr(buffer *b, const dycl_node *node, const int64_t *attrs, int at) {
    char text[40];
    int64_t word = attrs[at];
    if (dycl_attr_is_f64((dycl_op)node->op, node->operand_count, node->attr_count, attrs,
                         at)) { /* the shortest decimal that reads back to the same bits */
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, dycl_attr_f64(word));
            if (dycl_f64_attr(strtod(text, NULL)) != word) continue;
            put(b, "f%s", text);
            return;
        }
    }
    put(b, "%lld", (long long)word);
}

static void put_node(buffer *b, const dycl_graph *g, const dycl_node *node) {
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
    const dycl_value *out = &g->values[node->out];
    put(b, "%s", dycl_op_get((dycl_op)node->op)->name);
    for (int i = 0; i < node->operand_count; i++) {
        if (operands[i] == DYCL_NONE)
            put(b, " _");
        else
            put(b, " %%%u", operands[i]);
    }
    for (int i = 0; i < node->attr_count; i++) {
        put(b, i ? ", " : " (");
        put_attr(b, node, attrs, i);
    }
    put(b, node->attr_count ? ") : " : " : ");
    put_type(b, out);
    if (out->root != node->out) put(b, " of %%%u + %lld", out->root, (long long)out->offset);
}

static void put_value(buffer *b, const dycl_graph *graph, uint32_t at) {
    const dycl_value *value = &graph->values[at];
    put(b, "%%%u = ", at);
    if (value->kind == DYCL_VALUE_FEED) {
        put(b, "feed ");
        put_type(b, value);
    } else if (value->kind == DYCL_VALUE_SCALAR) {
        put(b, "scalar %s", dycl_dtype_name((dycl_dtype)value->dtype));
    } else {
        put_node(b, graph, &graph->nodes[value->source]);
    }
}

static dycl_status give(buffer *b, char **out) {
    *out = NULL;
    if (b->failed) {
        dycl_free(b->text);
        return dycl_error_set("out of memory while printing a graph");
    }
    *out = b->text;
    return DYCL_OK;
}

dycl_status dycl_graph_print(const dycl_graph *graph, char **out) {
    buffer b = {0};
    dycl_status status = dycl_graph_verify(graph); /* a broken graph has no text form */
    *out = NULL;
    if (status != DYCL_OK) return status;
    put(&b, "%s", "");
    for (uint32_t i = 0; i < graph->value_count; i++) {
        put_value(&b, graph, i);
        put(&b, "\n");
    }
    return give(&b, out);
}

dycl_status dycl_graph_print_value(const dycl_graph *graph, uint32_t value, char **out) {
    buffer b = {0};
    put_value(&b, graph, value);
    return give(&b, out);
}

/* ---- Parsing */

typedef struct {
    const char *at;
    int line;
} cursor;

static dycl_status bad(const cursor *c, const char *wanted) {
    return dycl_error_set("line %d: expected %s before \"%.20s\"", c->line, wanted, c->at);
}

static void skip_blanks(cursor *c) {
    while (*c->at == ' ' || *c->at == '\t' || *c->at == '\r') c->at++;
    if (*c->at == '#')
        while (*c->at && *c->at != '\n') c->at++;
}

static int accept(cursor *c, char what) {
    skip_blanks(c);
    if (*c->at != what) return 0;
    c->at++;
    return 1;
}

static dycl_status expect(cursor *c, char what) {
    char text[4] = {'"', what, '"', 0};
    return accept(c, what) ? DYCL_OK : bad(c, text);
}

static dycl_status read_int(cursor *c, int64_t *out) {
    uint64_t value = 0;
    skip_blanks(c);
    int negative = *c->at == '-';
    const char *digits = c->at + negative;
    if (!isdigit((unsigned char)*digits)) return bad(c, "a number");
    for (; isdigit((unsigned char)*digits); digits++) {
        uint64_t digit = (uint64_t)(*digits - '0');
        if (value > ((uint64_t)INT64_MAX + (uint64_t)negative - digit) / 10) return bad(c, "a 64-bit number");
        value = 10 * value + digit;
    }
    c->at = digits;
    *out = (int64_t)(negative ? 0 - value : value);
    return DYCL_OK;
}

static dycl_status read_attr(cursor *c, int64_t *out) {
    char *end;
    if (!accept(c, 'f')) return read_int(c, out);
    if (isspace((unsigned char)*c->at)) return bad(c, "a floating-point number");
    double value = strtod(c->at, &end);
    if (end == c->at) return bad(c, "a floating-point number");
    c->at = end;
    *out = dycl_f64_attr(value);
    return DYCL_OK;
}

/* A word of letters, digits and underscores; its length, 0 when there is none. */
static int read_word(cursor *c, char *out, int room) {
    int length = 0;
    skip_blanks(c);
    while ((isalnum((unsigned char)*c->at) || *c->at == '_') && length < room - 1) out[length++] = *c->at++;
    out[length] = 0;
    return length;
}

static dycl_status read_dtype(cursor *c, dycl_dtype *out) {
    char name[16];
    const cursor before = *c;
    read_word(c, name, sizeof name);
    for (int i = 0; i < DYCL_DTYPE_COUNT; i++) {
        if (strcmp(name, dycl_dtype_name((dycl_dtype)i)) != 0) continue;
        *out = (dycl_dtype)i;
        return DYCL_OK;
    }
    return bad(&before, "a dtype");
}

static dycl_status read_list(cursor *c, char open, char close, int *out_count, int64_t out[DYCL_MAX_RANK]) {
    dycl_status status;
    *out_count = 0;
    DYCL_TRY(expect(c, open));
    if (accept(c, close)) return DYCL_OK;
    do {
        if (*out_count == DYCL_MAX_RANK) return bad(c, "at most 8 dimensions");
        DYCL_TRY(read_int(c, &out[(*out_count)++]));
    } while (accept(c, ','));
    return expect(c, close);
fail:
    return status;
}

typedef struct {
    dycl_dtype dtype;
    int rank;
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
} type;

static dycl_status read_type(cursor *c, type *out) {
    dycl_status status;
    int strides;
    memset(out, 0, sizeof *out);
    DYCL_TRY(read_dtype(c, &out->dtype));
    DYCL_TRY(read_list(c, '[', ']', &out->rank, out->sizes));
    DYCL_TRY(read_list(c, '{', '}', &strides, out->strides));
    if (strides != out->rank) return bad(c, "as many strides as sizes");
    return dycl_verify_sizes(out->rank, out->sizes, out->strides);
fail:
    return status;
}

static dycl_status read_value(cursor *c, const dycl_graph *g, uint32_t *out) {
    int64_t id;
    dycl_status status;
    DYCL_TRY(expect(c, '%'));
    DYCL_TRY(read_int(c, &id));
    if (id < 0 || id >= g->value_count)
        return dycl_error_set("line %d: value %lld is not known", c->line, (long long)id);
    *out = (uint32_t)id;
    return DYCL_OK;
fail:
    return status;
}

/* ": type" and, for a view, "of %root + offset": a check, as they follow from the rest */
static dycl_status read_annotation(cursor *c, const dycl_graph *g, uint32_t id) {
    dycl_status status;
    const dycl_value *value = &g->values[id];
    type said;
    uint32_t root = id;
    int64_t offset = 0;
    if (!accept(c, ':')) return DYCL_OK;
    DYCL_TRY(read_type(c, &said));
    if (accept(c, 'o')) {
        DYCL_TRY(expect(c, 'f'));
        DYCL_TRY(read_value(c, g, &root));
        DYCL_TRY(expect(c, '+'));
        DYCL_TRY(read_int(c, &offset));
    }
    if (said.dtype != value->dtype || said.rank != value->rank ||
        memcmp(said.sizes, value->sizes, sizeof said.sizes) != 0 ||
        memcmp(said.strides, value->strides, sizeof said.strides) != 0 || root != value->root ||
        offset != value->offset)
        return dycl_error_set("line %d: value %u does not look so", c->line, id);
    return DYCL_OK;
fail:
    return status;
}

static int find_op(const char *name) {
    for (int i = 0; i < DYCL_OP_COUNT; i++)
        if (strcmp(dycl_op_get((dycl_op)i)->name, name) == 0) return i;
    return -1;
}

static dycl_status read_node(cursor *c, const char *name, dycl_graph *g, uint32_t *out) {
    dycl_status status;
    uint32_t operands[DYCL_MAX_OPERANDS];
    int64_t attrs[DYCL_MAX_ATTRS];
    int operand_count = 0, attr_count = 0, op = find_op(name);
    if (op < 0) return dycl_error_set("line %d: operator %s is not known", c->line, name);
    for (;;) {
        skip_blanks(c);
        if (*c->at != '%' && *c->at != '_') break;
        if (operand_count == DYCL_MAX_OPERANDS) return bad(c, "fewer operands");
        if (accept(c, '_')) {
            operands[operand_count++] = DYCL_NONE;
            continue;
        }
        DYCL_TRY(read_value(c, g, &operands[operand_count]));
        operand_count++;
    }
    if (accept(c, '(')) {
        do {
            if (attr_count == DYCL_MAX_ATTRS) return bad(c, "fewer attributes");
            DYCL_TRY(read_attr(c, &attrs[attr_count]));
            attr_count++;
        } while (accept(c, ','));
        DYCL_TRY(expect(c, ')'));
    }
    DYCL_TRY(dycl_verify_node(g, (dycl_op)op, operand_count, operands, attr_count, attrs));
    status = dycl_graph_node(g, (dycl_op)op, operand_count, operands, attr_count, attrs, out);
    if (status == DYCL_BAIL) return dycl_error_set("line %d: %s does not take these operands", c->line, name);
    DYCL_TRY(status);
    return read_annotation(c, g, *out);
fail:
    return status;
}

static dycl_status read_line(cursor *c, dycl_graph *g) {
    dycl_status status;
    char name[64];
    int64_t id;
    uint32_t value = 0;
    dycl_dtype dtype;
    type shape;
    DYCL_TRY(expect(c, '%'));
    DYCL_TRY(read_int(c, &id));
    if (id != g->value_count) return dycl_error_set("line %d: the next value is %u", c->line, g->value_count);
    DYCL_TRY(expect(c, '='));
    if (!read_word(c, name, sizeof name)) return bad(c, "an operator");
    if (strcmp(name, "feed") == 0) {
        DYCL_TRY(read_type(c, &shape));
        DYCL_TRY(dycl_graph_feed(g, shape.dtype, shape.rank, shape.sizes, shape.strides, &value));
    } else if (strcmp(name, "scalar") == 0) {
        DYCL_TRY(read_dtype(c, &dtype));
        DYCL_TRY(dycl_graph_scalar(g, dtype, &value));
    } else {
        DYCL_TRY(read_node(c, name, g, &value));
    }
    skip_blanks(c);
    return *c->at == '\n' || *c->at == 0 ? DYCL_OK : bad(c, "the end of the line");
fail:
    return status;
}

dycl_status dycl_graph_parse(const char *text, dycl_graph *out) {
    dycl_status status;
    cursor c = {text, 1};
    dycl_graph_reset(out);
    while (*c.at) {
        skip_blanks(&c);
        if (*c.at && *c.at != '\n') DYCL_TRY(read_line(&c, out));
        if (*c.at == '\n') {
            c.at++;
            c.line++;
        }
    }
    DYCL_TRY(dycl_graph_verify(out));
    return DYCL_OK;
fail:
    dycl_graph_reset(out);
    return status;
}
