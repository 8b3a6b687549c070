/* The numbers of an optimizer's step: what torch.optim's functions compute from a group's hyperparameters before they
 * touch a parameter, and which state they ask for. A row for each class.
 *
 * Ownership: names are kept for good. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_NUMBERS_H
#define DYCL_PY_ENTRY_NUMBERS_H

#include "kern/update.h"
#include "py/torch/state.h"

struct dycl_numbers;

typedef struct {
    const char *type; /* of torch.optim */
    dycl_update kind;
    int steps;                             /* it counts them, in a tensor of each parameter's state */
    PyObject *states[DYCL_UPDATE_STATES];  /* their keys; NULL: none */
    const char *names[DYCL_UPDATE_STATES]; /* the same */
    /* 1; 0: not served */
    int (*read)(struct dycl_numbers *n, PyObject *group);
    int (*compute)(const struct dycl_numbers *n, dycl_update_numbers *out);
} dycl_numbers_row;

/* A group's. */
typedef struct dycl_numbers {
    const dycl_numbers_row *row;
    int has[DYCL_UPDATE_STATES];            /* which states are asked for */
    uint8_t writes[1 + DYCL_UPDATE_STATES]; /* operators in place: on the parameter, on each state */
    double rate, first, second, eps, decay, dampening;
    int decoupled, nesterov, negates;
    int known; /* numbers were computed for this step: */
    float step;
} dycl_numbers;

int dycl_numbers_setup(void);                                    /* 0 or -1 */
const dycl_numbers_row *dycl_numbers_row_of(PyTypeObject *type); /* by its name; NULL: there is none */
extern PyObject *dycl_numbers_step;                              /* owned: "step" */

/* The optimizer's groups and states, borrowed. 1; 0: it is in a state in which its step does more. */
int dycl_numbers_optimizer(PyObject *optimizer, PyObject **out_groups, PyObject **out_states);
/* Reads a group, of which n->row is known. BAIL: not served; torch: its form is a fused or a differentiable one. */
dycl_status dycl_numbers_read(dycl_numbers *n, PyObject *group, int *torch, PyObject **out_parameters);
/* The numbers of this step, counted from 1. 1; 0: torch would raise, or they are out of the ordinary. */
int dycl_numbers_of(dycl_numbers *n, float step, dycl_update_numbers *out);

#endif
