/* Updates of parameters, as optimizers make them: gradient and state in, parameter and state out, in one pass over
 * memory. Each kind is the arithmetic of one of torch.optim's functions, in its order, in f32; where it divides by a
 * number, ours multiply by the reciprocal.
 *
 * Ownership: none. Threads: dycl_kern_update is a parallel driver (kern.h): all parameters are one loop. */
#ifndef DYCL_KERN_UPDATE_H
#define DYCL_KERN_UPDATE_H

#include "kern/isa.h"
#include "kern/kern.h"

typedef enum {
    DYCL_UPDATE_adam,     /* states: first moment, second moment, its largest (amsgrad) */
    DYCL_UPDATE_sgd,      /* momentum's buffer */
    DYCL_UPDATE_rmsprop,  /* average of squares, momentum's buffer, average (centered) */
    DYCL_UPDATE_adagrad,  /* sum of squares */
    DYCL_UPDATE_adadelta, /* averages of squares: of gradients, of updates */
    DYCL_UPDATE_adamax,   /* first moment, infinity norm */
    DYCL_UPDATE_COUNT
} dycl_update;

#define DYCL_UPDATE_STATES 3

/* The numbers of a step, that many parameters share. What a kind does not use is ignored. */
typedef struct {
    uint8_t kind;
    uint8_t negates;                    /* the gradient: it is maximized */
    uint8_t couples;                    /* decay * parameter is added to the gradient */
    uint8_t nesterov;                   /* sgd */
    float decay, keep;                  /* keep: the parameter is multiplied by it first */
    float rate;                         /* of the update: minus the learning rate, with its corrections */
    float first, first_rest;            /* the first moment's decay (sgd, rmsprop: of momentum), and what is added */
    float second, second_rest, inverse; /* the second moment's; what its root is multiplied by */
    float eps;
} dycl_update_numbers;

typedef struct {
    float *parameter;
    const float *gradient;
    float *states[DYCL_UPDATE_STATES]; /* NULL: not there */
    int64_t count;
    const dycl_update_numbers *numbers;
} dycl_update_item;

void dycl_kern_update(const dycl_update_item *items, int64_t count);

typedef struct {
    void (*run[DYCL_UPDATE_COUNT])(const dycl_update_item *item, int64_t from, int64_t to); /* elements of it */
} dycl_update_table;
DYCL_ISA_TABLES(const dycl_update_table, dycl_update)

#endif
