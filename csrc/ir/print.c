/* The text form: one line a value, in the order of values.
 *
 *     %0 = feed f32[2,3]{3,1}
 *     %1 = scalar f32
 *     %2 = add %0 %1 : f32[2,3]{3,1}
 *     %3 = view %2 (0, 3, 2, 1, 3) : f32[3,2]{1,3} of %2 + 0
 *     %4 = layer_norm %2 _ _ (1, f1e-05) : f32[2,3]{3,1}
 *
 * f before an attribute: a double. What follows ":" repeats what inference says; where present it must agree. "#"
 * begins a comment.
 *
 * In the text of a program on its way to a plan numbers have gaps, as what died keeps its number, and a pass may have
 * laid a value elsewhere than inference would. Then ":=" says where it lies, and that is taken as it stands:
 *
 *     %5 = relu %2 := f32[2,3]{6,1} of %9 + 3 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ir/infer.h"
#include "ir/verify.h"

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

/* sign: ":" or ":=" */
static void put_look(buffer *b, const char *sign, const dycl_graph *g, uint32_t at) {
    const dycl_value *value = &g->values[at];
    put(b, " %s ", sign);
    put_type(b, value);
    if (value->root != at) put(b, " of %%%u + %lld", value->root, (long long)value->offset);
}

static const char *sign_of(int as_inferred) { return as_inferred ? ":" : ":="; }

/* laid: passes may have changed where it lies. */
static void put_node(buffer *b, const dycl_graph *g, const dycl_node *node, int laid) {
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
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
    if (node->attr_count) put(b, ")");
    put_look(b, sign_of(!laid || dycl_verify_look(g, node) == DYCL_OK), g, node->out);
}

static void put_value(buffer *b, const dycl_graph *graph, uint32_t at, int laid) {
    const dycl_value *value = &graph->values[at];
    put(b, "%%%u = ", at);
    if (value->kind == DYCL_VALUE_FEED) {
        put(b, "feed ");
        put_type(b, value);
    } else if (value->kind == DYCL_VALUE_SCALAR) {
        put(b, "scalar %s", dycl_dtype_name((dycl_dtype)value->dtype));
    } else {
        put_node(b, graph, &graph->nodes[value->source], laid);
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

static dycl_status print_all(const dycl_graph *graph, int laid, char **out) {
    buffer b = {0};
    put(&b, "%s", "");
    for (uint32_t i = 0; i < graph->value_count; i++) {
        put_value(&b, graph, i, laid);
        put(&b, "\n");
    }
    return give(&b, out);
}

dycl_status dycl_graph_print(const dycl_graph *graph, char **out) {
    dycl_status status = dycl_graph_verify(graph); /* a broken graph has no text form */
    *out = NULL;
    return status == DYCL_OK ? print_all(graph, 0, out) : status;
}

dycl_status dycl_graph_print_laid(const dycl_graph *graph, char **out) { return print_all(graph, 1, out); }

dycl_status dycl_graph_print_value(const dycl_graph *graph, uint32_t value, char **out) {
    buffer b = {0};
    put_value(&b, graph, value, 1);
    return give(&b, out);
}

dycl_status dycl_graph_print_alias(const dycl_graph *graph, uint32_t at, char **out) {
    buffer b = {0};
    const dycl_value *value = &graph->values[at];
    int rank = value->rank, count = 1 + 2 * rank;
    int64_t attrs[1 + 2 * DYCL_MAX_RANK] = {value->offset - graph->values[value->root].offset};
    for (int i = 0; i < rank; i++) {
        attrs[1 + i] = value->sizes[i];
        attrs[1 + rank + i] = value->strides[i];
    }
    dycl_value inferred = {.kind = DYCL_VALUE_NODE, .root = at};
    int same = dycl_infer(graph, DYCL_OP_view, 1, &value->root, count, attrs, &inferred) == DYCL_OK &&
               inferred.root == value->root && inferred.dtype == value->dtype;
    put(&b, "%%%u = view %%%u (", at, value->root);
    for (int i = 0; i < count; i++) put(&b, i ? ", %lld" : "%lld", (long long)attrs[i]);
    put(&b, ")");
    put_look(&b, sign_of(same), graph, at);
    return give(&b, out);
}
