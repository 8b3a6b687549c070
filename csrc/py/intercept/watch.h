/* Functions of torch that its function modes do not see: their C functions are wrapped once, so that a region computes
 * what is pending before memory changes or gets out behind its back. Nothing that Python or torch.compile can see
 * changes.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_WATCH_H
#define DYCL_PY_INTERCEPT_WATCH_H

int dycl_watch_setup(void);        /* 0, or -1 with an exception */
int dycl_watch_before_trace(void); /* steps aside for torch.compile and torch.jit.trace: 0 or -1 */

int dycl_watch_dual(void); /* whether tensors may carry tangents, of forward-mode differentiation */

#endif
