/* A segment for people: what each pass makes of its graph, and its plan. */
#include "exec/cache/cache.h"
#include "exec/plan/step.h"
#include "opt/log.h"

dycl_status dycl_segment_show(const dycl_segment *s) {
    dycl_program program;
    dycl_status status = dycl_program_init(&program, &s->graph, s->outputs, s->output_count);
    if (status != DYCL_OK) return status;
    if (s->plan) {
        status = dycl_opt_run(&program, s->plan->mode == DYCL_PLAN_TUNED, s->plan->epilogues);
        if (status == DYCL_OK) dycl_plan_log(s->plan, s->hash);
    } else {
        dycl_program_show(&program, s->hash, DYCL_LOG_GRAPH, 0);
    }
    dycl_program_free(&program);
    return status;
}
