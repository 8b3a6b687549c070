/* Sections in which the garbage collector does not run: a finalizer would ask for what is being made.
 *
 * They nest, and threads overlap in them (torch's functions give the GIL up): the last that leaves enables the
 * collector again, where the program had it enabled. Who gives the GIL up for long leaves all of its own sections
 * meanwhile: another thread would find the collector disabled, and what it says of it would be forgotten.
 *
 * Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_COLLECT_H
#define DYCL_PY_CPYTHON_COLLECT_H

int dycl_collect_setup(void); /* 0, or another number: no memory */
void dycl_collect_hold(void);
void dycl_collect_release(void);
int dycl_collect_suspend(void); /* how many sections of this thread were left, to enter them again */
void dycl_collect_resume(int sections);

#endif
