/* Whether plans are checked while they run (exec/plan/check.h), and the red zones that lie behind memory then.
 *
 * Ownership: none. Threads: any. */
#ifndef DYCL_CHECK_ZONE_H
#define DYCL_CHECK_ZONE_H

#define DYCL_RED_ZONE     64       /* bytes; also the alignment of slots */
#define DYCL_CHECK_PREFIX "check:" /* how a message begins that tells what a check found */

double dycl_check_work(void); /* operations that a segment may take to be compared; 0: no checks */
int dycl_check_enabled(void);
void dycl_check_mark(void *zone);           /* writes a red zone's pattern */
int dycl_check_untouched(const void *zone); /* 1: it still has it */

#endif
