/* What people may see of a segment on its way to a plan: its graph as recorded, the program behind each pass, the plan.
 * DYCL_LOG says which, by topic; a thread may also catch what it makes itself.
 *
 * Plans are made by any thread, with and without the host's lock, in the middle of recording. So a text is never
 * handed out where it is made: it waits in a list until the host asks (py/site/log.c: when a call or a backward pass
 * has ended). "stderr" among the topics prints at once, for the last text before a crash; so does a process without a
 * host that asks.
 *
 * Ownership: texts are dycl_alloc's. Threads: any. */
#ifndef DYCL_OPT_LOG_H
#define DYCL_OPT_LOG_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"

#define DYCL_LOG_GRAPH "graph" /* as recorded; the passes' topics are their names */
#define DYCL_LOG_PLAN  "plan"

typedef struct dycl_log_text {
    struct dycl_log_text *next;
    const char *topic; /* static */
    char *text;
} dycl_log_text;

/* Names with commas between them, or "all": a bit for each topic. Names that are not known are told as complaints about
 * `variable`, or, where that is NULL, as an ERROR. */
dycl_status dycl_log_read(const char *names, const char *variable, uint32_t *out_topics);
void dycl_log_begin(void); /* reads DYCL_LOG, once */

extern atomic_uint dycl_log_topics;          /* that the process sees */
extern _Thread_local uint32_t dycl_log_mine; /* that this thread catches */
static inline int dycl_log_any(void) {
    return (atomic_load_explicit(&dycl_log_topics, memory_order_relaxed) | dycl_log_mine) != 0;
}
int dycl_log_wants(const char *topic);
void dycl_log_put(const char *topic, char *text); /* takes the text; NULL: there was no memory for it */

/* What this thread makes until `end` goes nowhere else. The list is the caller's: dycl_log_free. */
void dycl_log_catch(uint32_t topics);
dycl_log_text *dycl_log_caught(void);
void dycl_log_free(dycl_log_text *list);

/* The host asks from now on. `take` gives all that waits, the oldest first, and how many had no room. */
void dycl_log_host(void);
int dycl_log_waits(void);
dycl_log_text *dycl_log_take(uint32_t *out_lost);

#endif
