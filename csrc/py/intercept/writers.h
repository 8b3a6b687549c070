/* Operators of torch that write without counting, or let others: the fused optimizers, `apply_`, parts with a counter
 * of their own, a counter that is put back. Wrapped as uncounted.h has it.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_WRITERS_H
#define DYCL_PY_INTERCEPT_WRITERS_H

void dycl_writers_watch(void); /* after dycl_pybind_watch, whose hooks make plain what these are given */

#endif
