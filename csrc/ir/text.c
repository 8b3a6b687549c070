/* The text form, read (ir/print.c writes it and shows what it looks like). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ir/verify.h"

typedef struct {
    const char *at;
    int line;
    uint32_t *names; /* the number that each value has in the text; NULL: its own, and ":=" is not taken */
    uint32_t *roots; /* the number of a value's root where ":=" says it; its own otherwise */
    uint32_t room;
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

static dycl_status read_name(cursor *c, int64_t *out) {
    dycl_status status;
    DYCL_TRY(expect(c, '%'));
    return read_int(c, out);
fail:
    return status;
}

/* The value of a name: names only grow. UINT32_MAX: there is none. */
static uint32_t find_name(const cursor *c, const dycl_graph *g, int64_t name) {
    uint32_t low = 0, high = g->value_count;
    if (!c->names) return name >= 0 && name < high ? (uint32_t)name : UINT32_MAX;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (c->names[middle] < name)
            low = middle + 1;
        else
            high = middle;
    }
    return low < g->value_count && c->names[low] == name ? low : UINT32_MAX;
}

static dycl_status read_value(cursor *c, const dycl_graph *g, uint32_t *out) {
    int64_t name;
    dycl_status status;
    DYCL_TRY(read_name(c, &name));
    *out = find_name(c, g, name);
    if (*out == UINT32_MAX) return dycl_error_set("line %d: value %lld is not known", c->line, (long long)name);
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

/* "= type" and, for what lies in another value, "of %root + offset": taken as it stands. The root may come later. */
static dycl_status read_layout(cursor *c, dycl_value *out, int64_t *out_root) {
    dycl_status status;
    type said;
    *out_root = -1;
    DYCL_TRY(expect(c, '='));
    DYCL_TRY(read_type(c, &said));
    memset(out, 0, sizeof *out);
    out->dtype = (uint8_t)said.dtype;
    out->rank = (uint8_t)said.rank;
    memcpy(out->sizes, said.sizes, sizeof out->sizes);
    memcpy(out->strides, said.strides, sizeof out->strides);
    out->canonical = (uint8_t)dycl_strides_canonical(out);
    if (accept(c, 'o')) {
        DYCL_TRY(expect(c, 'f'));
        DYCL_TRY(read_name(c, out_root));
        DYCL_TRY(expect(c, '+'));
        DYCL_TRY(read_int(c, &out->offset));
    }
    return DYCL_OK;
fail:
    return status;
}

static int is_laid(cursor *c) {
    skip_blanks(c);
    if (!c->names || c->at[0] != ':' || c->at[1] != '=') return 0;
    c->at++;
    return 1;
}

static dycl_status read_node(cursor *c, const char *name, dycl_graph *g, uint32_t *out) {
    dycl_status status;
    dycl_value look;
    int64_t root;
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
    if (is_laid(c)) {
        DYCL_TRY(read_layout(c, &look, &root));
        DYCL_TRY(dycl_graph_node_laid(g, (dycl_op)op, operand_count, operands, attr_count, attrs, &look, out));
        if (root >= 0) c->roots[*out] = (uint32_t)root;
        return DYCL_OK;
    }
    status = dycl_graph_node(g, (dycl_op)op, operand_count, operands, attr_count, attrs, out);
    if (status == DYCL_BAIL) return dycl_error_set("line %d: %s does not take these operands", c->line, name);
    DYCL_TRY(status);
    return read_annotation(c, g, *out);
fail:
    return status;
}

/* Room for the name of one more value. */
static dycl_status take_name(cursor *c, const dycl_graph *g, int64_t name) {
    uint32_t at = g->value_count;
    if (!c->names) return name == at ? DYCL_OK : dycl_error_set("line %d: the next value is %u", c->line, at);
    if (name < 0 || name >= UINT32_MAX || (at && name <= c->names[at - 1]))
        return dycl_error_set("line %d: the number %lld does not grow", c->line, (long long)name);
    if (at == c->room) {
        uint32_t room = 2 * c->room;
        uint32_t *names = dycl_realloc(c->names, room * sizeof *names);
        if (names) c->names = names;
        uint32_t *roots = names ? dycl_realloc(c->roots, room * sizeof *roots) : NULL;
        if (!roots) return dycl_error_set("out of memory");
        c->roots = roots;
        c->room = room;
    }
    c->names[at] = c->roots[at] = (uint32_t)name;
    return DYCL_OK;
}

static dycl_status read_line(cursor *c, dycl_graph *g) {
    dycl_status status;
    char name[64];
    int64_t id;
    uint32_t value = 0;
    dycl_dtype dtype;
    type shape;
    DYCL_TRY(read_name(c, &id));
    DYCL_TRY(take_name(c, g, id));
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

static dycl_status read_lines(cursor *c, dycl_graph *g) {
    dycl_status status;
    while (*c->at) {
        skip_blanks(c);
        if (*c->at && *c->at != '\n') DYCL_TRY(read_line(c, g));
        if (*c->at == '\n') {
            c->at++;
            c->line++;
        }
    }
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_graph_parse(const char *text, dycl_graph *out) {
    dycl_status status;
    cursor c = {.at = text, .line = 1};
    dycl_graph_reset(out);
    DYCL_TRY(read_lines(&c, out));
    DYCL_TRY(dycl_graph_verify(out));
    return DYCL_OK;
fail:
    dycl_graph_reset(out);
    return status;
}

dycl_status dycl_graph_parse_laid(const char *text, dycl_graph *out) {
    dycl_status status;
    cursor c = {.at = text, .line = 1, .room = 64};
    dycl_graph_reset(out);
    c.names = dycl_alloc(c.room * sizeof *c.names);
    c.roots = dycl_alloc(c.room * sizeof *c.roots);
    if (!c.names || !c.roots) {
        status = dycl_error_set("out of memory");
        goto fail;
    }
    DYCL_TRY(read_lines(&c, out));
    for (uint32_t v = 0; v < out->value_count; v++) {
        if (c.roots[v] == c.names[v]) continue; /* its own, or what was inferred */
        uint32_t root = find_name(&c, out, c.roots[v]);
        status = root == UINT32_MAX ? dycl_error_set("value %u lies in %u, which is not there", c.names[v], c.roots[v])
                                    : DYCL_OK;
        if (status != DYCL_OK) goto fail;
        out->values[v].root = root;
    }
    status = DYCL_OK;
fail:
    if (status != DYCL_OK) dycl_graph_reset(out);
    dycl_free(c.names);
    dycl_free(c.roots);
    return status;
}
