/* What hosted.def says, read: parameters of the host's operators, and the attributes of their nodes.
 *
 * Ownership: everything is static, or borrowed from the node. Threads: any. */
#ifndef DYCL_IR_HOSTED_H
#define DYCL_IR_HOSTED_H

#include "ir/graph.h"

#define DYCL_HOSTED_PARAMETERS 16
#define DYCL_HOSTED_RESULTS    5

typedef struct {
    char name[24], kind;
    int8_t copies;        /* a list: one number stands for so many; 0: only lists */
    uint8_t keyword;      /* only by name */
    const char *fallback; /* text of the default up to a blank, or NULL */
    const char *words;    /* "a,b)" or NULL */
} dycl_hosted_parameter;

typedef struct {
    const char *schema, *overload, *out, *text; /* out: "" when there is none; text: of the parameters */
    int makes;                                  /* out is given nothing, and what it makes of it is copied */
    int results, parameter_count, tensor_count,
        list; /* tensor_count: operands without a list's; list: its parameter, or -1 */
    char work;
    dycl_hosted_parameter parameters[DYCL_HOSTED_PARAMETERS];
} dycl_hosted;

static inline int dycl_op_is_hosted(dycl_op op) { return op >= DYCL_HOSTED_FIRST && op < DYCL_OP_COUNT; }
const dycl_hosted *dycl_hosted_get(dycl_op op); /* of a hosted operator */

/* A word of a parameter by its position, and the reverse (-1: no such word). length: of the word */
const char *dycl_hosted_word(const dycl_hosted_parameter *parameter, int64_t at, int *out_length);
int dycl_hosted_find_word(const dycl_hosted_parameter *parameter, const char *word);

/* How one result looks. */
typedef struct {
    int which, rank;
    dycl_dtype dtype;
    const int64_t *sizes, *strides;
} dycl_hosted_form;

/* One argument of a node. */
typedef struct {
    int operand;          /* tensors: the first operand; else -1 */
    int count;            /* tensors, or numbers; -1: None */
    const int64_t *words; /* numbers: doubles by their bits; w: its position; d: the dtype */
} dycl_hosted_argument;

/* 1; 0: the attributes are not those of this operator with so many operands. arguments: room for
 * DYCL_HOSTED_PARAMETERS, or NULL */
int dycl_hosted_read(dycl_op op, int operand_count, int attr_count, const int64_t *attrs, dycl_hosted_form *out_form,
                     dycl_hosted_argument *arguments);

int dycl_hosted_attr_is_f64(dycl_op op, int operand_count, int attr_count, const int64_t *attrs, int attr);
int dycl_hosted_may_be_absent(dycl_op op, int operand_count, int operand);

#endif
