/* Single functions of torch that pybind11 made, before which something is due. Which calling convention they have
 * depends on its version, so on torch's.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_BOUND_H
#define DYCL_PY_INTERCEPT_BOUND_H

int dycl_bound_watch(void); /* 0, or -1 with an exception */

#endif
