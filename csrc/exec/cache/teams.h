/* How many threads a segment runs on. torch.set_num_threads says how many it may be: a plan is made for one number, and
 * where the number changes, the segment gets another plan. Within it, a small segment may be faster on fewer threads
 * (waking a team costs, and other steps of the program may want the cores): that is measured, by plans made for fewer.
 * So is whether another backend (plan/backend.h) is faster.
 *
 * Ownership: part of a segment. Threads: GIL held, as the plan cache. */
#ifndef DYCL_EXEC_CACHE_TEAMS_H
#define DYCL_EXEC_CACHE_TEAMS_H

#include "exec/cache/cache.h"

void dycl_teams_free(dycl_segment *segment);              /* every plan but segment->plan */
dycl_status dycl_teams_follow(dycl_segment *segment);     /* the allowed number of threads may have changed: then
                                                             segment->plan is another one, or NULL */
int dycl_teams_tuned_before(const dycl_segment *segment); /* with another number of threads */
void dycl_teams_choose(
    dycl_segment *segment); /* before each run of a tuned plan: segment->plan becomes the one to run */
const char *dycl_teams_text(const dycl_segment *segment); /* for explain: "all threads"; static */

#endif
