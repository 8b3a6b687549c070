/* Random nodes of the host's operators (ir/hosted.def): operands and attributes that fit a row. Ownership: none. */
#ifndef DYCL_TEST_HOSTED_RANDOM_H
#define DYCL_TEST_HOSTED_RANDOM_H

#include "ir/hosted.h"
#include "random.h"

static const double hosted_doubles[] = {0, -1.5, 1e-5, 1e300, 0.1};

static int hosted_words(const dycl_hosted_parameter *p, int64_t *to) {
    int length, count = 0, words = 0;
    switch (p->kind) {
    case 'i': to[0] = below(9) - 4; return 1;
    case 'j':
        to[0] = below(2);
        to[1] = to[0] ? below(5) : 0;
        return 2;
    case 'f': to[0] = dycl_f64_attr(hosted_doubles[below(5)]); return 1;
    case 'g':
        to[0] = below(2);
        to[1] = to[0] ? dycl_f64_attr(hosted_doubles[below(5)]) : 0;
        return 2;
    case 'b': to[0] = below(2); return 1;
    case 'd': to[0] = below(DYCL_DTYPE_COUNT + 1) - 1; return 1;
    case 'w':
        while (dycl_hosted_word(p, words, &length)) words++;
        to[0] = below(words);
        return 1;
    default:
        count = p->kind == 'l' || p->kind == 'q' || below(2) ? (int)below(4) : -1;
        to[0] = count;
        for (int i = 0; i < count; i++)
            to[1 + i] = p->kind == 'r' ? dycl_f64_attr(hosted_doubles[below(5)]) : p->kind == 'q' ? below(2) : below(7);
        return 1 + (count > 0 ? count : 0);
    }
}

/* operands: room for DYCL_HOSTED_PARAMETERS + 3; attrs: for DYCL_MAX_ATTRS */
static dycl_op random_hosted(uint32_t (*value)(const dycl_graph *), const dycl_graph *g, uint32_t *operands,
                             int *operand_count, int64_t *attrs, int *attr_count) {
    dycl_op op = (dycl_op)(DYCL_HOSTED_FIRST + below(DYCL_OP_COUNT - DYCL_HOSTED_FIRST));
    const dycl_hosted *h = dycl_hosted_get(op);
    int rank = (int)below(4), count = 0, at = 3 + 2 * rank, many = 1 + (int)below(3);
    attrs[0] = below(h->results);
    attrs[1] = below(DYCL_DTYPE_COUNT);
    attrs[2] = rank;
    for (int i = 0; i < rank; i++) attrs[3 + i] = 1 + below(4);
    dycl_strides_contiguous(rank, attrs + 3, attrs + 3 + rank);
    for (int i = 0; i < h->parameter_count; i++) {
        char kind = h->parameters[i].kind;
        if (kind == 't' || kind == 'o')
            operands[count++] = kind == 'o' && below(2) ? DYCL_NONE : value(g);
        else if (kind == 'T')
            for (int k = 0; k < many; k++) operands[count++] = value(g);
        else
            at += hosted_words(&h->parameters[i], attrs + at);
    }
    *operand_count = count;
    *attr_count = at;
    return op;
}

#endif
