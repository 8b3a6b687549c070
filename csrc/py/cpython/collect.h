/* Sections in which the garbage collector does not run: a finalizer would ask for what is being made.
 *
 * They nest, and threads overlap in them (torch's functions give the GIL up): the last that leaves enables the
 * collector again, where the program had it enabled. Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_COLLECT_H
#define DYCL_PY_CPYTHON_COLLECT_H

void dycl_collect_hold(void);
void dycl_collect_release(void);

#endif
