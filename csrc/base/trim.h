/* Freed memory that malloc gives back to the system, and takes again.
 *
 * A training step frees all that it saved, and its gradients at last. glibc then gives the end of its heap back, or
 * blocks that it mapped, and the next step pays for each of their pages again: up to a tenth of its time. Both bounds
 * follow the largest mapped block that was ever freed, up to 32 MiB, so a program with large tensors gets there by
 * itself. Its peak stays what it was.
 *
 * Threads: any. */
#ifndef DYCL_BASE_TRIM_H
#define DYCL_BASE_TRIM_H

void dycl_trim_less(void); /* as if such a block had been freed; the first call of the process does it */

#endif
