#include "py/region/trained.h"

enum {
    BITS = 12,     /* the last leaf that came to a place has it */
    REMEMBERED = 8 /* steps: of several optimizers in turn, and those that skip some */
};

static struct {
    const PyObject *leaf; /* borrowed, compared only */
    uint32_t step;
} leaves[1 << BITS];
static uint32_t steps;

void dycl_trained_note(const PyObject *leaf) {
    uint32_t at = dycl_address_hash(leaf, BITS);
    leaves[at].leaf = leaf;
    leaves[at].step = steps;
}

int dycl_trained_has(const PyObject *leaf) {
    uint32_t at = dycl_address_hash(leaf, BITS);
    return leaves[at].leaf == leaf && steps - leaves[at].step <= REMEMBERED;
}

void dycl_trained_step(void) { steps++; }
