#include "ir/hosted.h"

#include <pthread.h>
#include <string.h>

enum { ROWS = DYCL_OP_COUNT - DYCL_HOSTED_FIRST };

static const struct {
    const char *schema, *overload, *out;
    int results;
    char work;
    const char *parameters;
} rows[ROWS] = {
#define DYCL_HOSTED(row, schema, overload, out, results, work, parameters)                                             \
    {schema, overload, out, results, work, parameters},
#include "ir/hosted.def"
#undef DYCL_HOSTED
};

static dycl_hosted table[ROWS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int is_tensor(char kind) { return kind == 't' || kind == 'o' || kind == 'T'; }

/* "name:kind(words)2=default" */
static void read_parameter(const char *text, size_t length, int keyword, dycl_hosted_parameter *p) {
    const char *end = text + length, *at = memchr(text, ':', length);
    size_t name = (size_t)(at - text);
    memcpy(p->name, text, name < sizeof p->name ? name : sizeof p->name - 1);
    p->kind = at[1];
    p->keyword = (uint8_t)keyword;
    for (at += 2; at < end && *at != '='; at++) {
        if (*at == '(') p->words = at + 1;
        if (*at >= '0' && *at <= '9' && !p->words) p->copies = (int8_t)(*at - '0');
    }
    if (at < end) p->fallback = at + 1;
}

static void read_all(void) {
    for (int i = 0; i < ROWS; i++) {
        dycl_hosted *h = &table[i];
        int keyword = 0;
        *h = (dycl_hosted){.schema = rows[i].schema,
                           .overload = rows[i].overload,
                           .out = rows[i].out + (rows[i].out[0] == '+'),
                           .makes = rows[i].out[0] == '+',
                           .text = rows[i].parameters,
                           .results = rows[i].results,
                           .work = rows[i].work,
                           .list = -1};
        for (const char *at = rows[i].parameters; *at;) {
            size_t length = strcspn(at, " ");
            if (*at == '|') {
                keyword = 1;
            } else {
                dycl_hosted_parameter *p = &h->parameters[h->parameter_count++];
                read_parameter(at, length, keyword, p);
                if (p->kind == 'T')
                    h->list = h->parameter_count - 1;
                else
                    h->tensor_count += is_tensor(p->kind);
            }
            at += length + (at[length] == ' ');
        }
    }
}

const dycl_hosted *dycl_hosted_get(dycl_op op) {
    pthread_once(&once, read_all);
    return &table[op - DYCL_HOSTED_FIRST];
}

const char *dycl_hosted_word(const dycl_hosted_parameter *p, int64_t at, int *out_length) {
    const char *word = p->words;
    for (; word && at > 0; at--) {
        word += strcspn(word, ",)");
        if (*word == ')') return NULL;
        word++;
    }
    if (word) *out_length = (int)strcspn(word, ",)");
    return at < 0 ? NULL : word;
}

int dycl_hosted_find_word(const dycl_hosted_parameter *p, const char *word) {
    int length;
    const char *found;
    for (int at = 0; (found = dycl_hosted_word(p, at, &length)); at++)
        if ((int)strlen(word) == length && memcmp(found, word, (size_t)length) == 0) return at;
    return -1;
}

/* The words of one argument: how many, or -1 when that is not what they are. */
static int length_of(const dycl_hosted_parameter *p, int left, const int64_t *words, dycl_hosted_argument *a) {
    int length;
    a->operand = -1;
    a->words = words;
    a->count = 1;
    if (left < 1) return -1;
    switch (p->kind) {
    case 'j':
    case 'g':
        if (left < 2 || words[0] < 0 || words[0] > 1) return -1;
        a->words = words + 1;
        if (!words[0]) a->count = -1;
        return 2;
    case 'b': return words[0] == 0 || words[0] == 1 ? 1 : -1;
    case 'd':
        if (words[0] < -1 || words[0] >= DYCL_DTYPE_COUNT) return -1;
        if (words[0] < 0) a->count = -1;
        return 1;
    case 'w': return dycl_hosted_word(p, words[0], &length) ? 1 : -1;
    case 'l':
    case 'q':
    case 'm':
    case 'r':
        if (words[0] < (p->kind == 'l' || p->kind == 'q' ? 0 : -1) || words[0] > left - 1) return -1;
        for (int64_t i = 1; p->kind == 'q' && i <= words[0]; i++)
            if (words[i] != 0 && words[i] != 1) return -1;
        a->count = (int)words[0];
        a->words = words + 1;
        return 1 + (a->count > 0 ? a->count : 0);
    default: return 1;
    }
}

int dycl_hosted_read(dycl_op op, int operand_count, int attr_count, const int64_t *attrs, dycl_hosted_form *form,
                     dycl_hosted_argument *arguments) {
    const dycl_hosted *h = dycl_hosted_get(op);
    dycl_hosted_argument unused[DYCL_HOSTED_PARAMETERS];
    int many = operand_count - h->tensor_count, operand = 0, at = 3; /* many: operands of the list */
    if (!arguments) arguments = unused;
    if (h->list < 0 ? many != 0 : many < 0) return 0;
    if (attr_count < 3 || attrs[0] < 0 || attrs[0] >= h->results || attrs[1] < 0 || attrs[1] >= DYCL_DTYPE_COUNT)
        return 0;
    if (attrs[2] < 0 || attrs[2] > DYCL_MAX_RANK || attr_count < 3 + 2 * attrs[2]) return 0;
    *form = (dycl_hosted_form){(int)attrs[0], (int)attrs[2], (dycl_dtype)attrs[1], attrs + 3, attrs + 3 + attrs[2]};
    at += 2 * form->rank;
    for (int i = 0; i < h->parameter_count; i++) {
        const dycl_hosted_parameter *p = &h->parameters[i];
        if (is_tensor(p->kind)) {
            arguments[i] = (dycl_hosted_argument){operand, p->kind == 'T' ? many : 1, NULL};
            operand += arguments[i].count;
            continue;
        }
        int length = length_of(p, attr_count - at, attrs + at, &arguments[i]);
        if (length < 0) return 0;
        at += length;
    }
    return at == attr_count;
}

int dycl_hosted_attr_is_f64(dycl_op op, int operand_count, int attr_count, const int64_t *attrs, int attr) {
    dycl_hosted_form form;
    dycl_hosted_argument arguments[DYCL_HOSTED_PARAMETERS];
    const dycl_hosted *h = dycl_hosted_get(op);
    if (!dycl_hosted_read(op, operand_count, attr_count, attrs, &form, arguments)) return 0;
    for (int i = 0; i < h->parameter_count; i++) {
        char kind = h->parameters[i].kind;
        if ((kind != 'f' && kind != 'g' && kind != 'r') || arguments[i].count < 1) continue;
        if (attrs + attr >= arguments[i].words && attrs + attr < arguments[i].words + arguments[i].count) return 1;
    }
    return 0;
}

int dycl_hosted_may_be_absent(dycl_op op, int operand_count, int operand) {
    const dycl_hosted *h = dycl_hosted_get(op);
    int at = 0;
    for (int i = 0; i < h->parameter_count; i++) {
        char kind = h->parameters[i].kind;
        if (!is_tensor(kind)) continue;
        at += kind == 'T' ? operand_count - h->tensor_count : 1;
        if (operand < at) return kind != 't';
    }
    return 0;
}
