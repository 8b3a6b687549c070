/* The text of an einsum: which dimensions of the operands belong together.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_BIND_EQUATION_H
#define DYCL_PY_BIND_EQUATION_H

#include "py/bind/bind.h"

#define DYCL_EQUATION_OPERANDS 8
#define DYCL_EQUATION_LABELS   52                   /* A to Z, a to z */
#define DYCL_EQUATION_WIDE     DYCL_EQUATION_LABELS /* "...", in the place of a label */

typedef struct {
    int count; /* labels of one operand or of the result, in order */
    int label[DYCL_MAX_RANK + 1];
} dycl_subscripts;

typedef struct {
    int operands, has_output;
    dycl_subscripts of[DYCL_EQUATION_OPERANDS], output;
} dycl_equation;

/* All operands get the same dimensions, the result's first. */
typedef struct {
    int rank, outputs;
    int place[DYCL_EQUATION_LABELS]; /* of a label; -1: not used */
    int wide_at, wide;               /* where those begin that "..." stands for, and how many they are */
} dycl_arrangement;

/* 0: nothing that torch would take, or more operands or dimensions than fit. */
int dycl_equation_parse(PyObject *text, dycl_equation *out);
/* The same. ranks: of the operands. */
int dycl_equation_arrange(const dycl_equation *equation, const int *ranks, dycl_arrangement *out);
/* Whether one label stands for several dimensions. */
int dycl_equation_repeats(const dycl_subscripts *s);

#endif
