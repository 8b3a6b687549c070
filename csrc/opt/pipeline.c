#include "opt/log.h"
#include "opt/program.h"

#include <string.h>

int64_t dycl_opt_large = (int64_t)8 << 20;

/* large: of a COLD plan whose operators hand on so many bytes. Fusing them costs less than writing these. */
typedef struct {
    const char *name;
    dycl_status (*run)(dycl_program *program);
    int cold, tuned, epilogues, large;
} pass;

static const pass passes[] = {
    {"dce", dycl_opt_dce, 1, 1, 0, 1},
    {"commute", dycl_opt_commute, 0, 1, 0, 0},
    {"cse", dycl_opt_cse, 0, 1, 0, 0},
    {"dce", dycl_opt_dce, 0, 1, 0, 0},
    {"fold", dycl_opt_fold, 0, 1, 0, 0},
    {"simplify", dycl_opt_simplify, 0, 1, 0, 0},
    {"distribute", dycl_opt_distribute, 0, 1, 0, 0},
    {"cse", dycl_opt_cse, 0, 1, 0, 0}, /* once more: what was rewritten may be what is there already */
    {"dce", dycl_opt_dce, 0, 1, 0, 0},
    {"epilogue", dycl_opt_epilogue, 1, 1, 1, 1},
    {"prefilter", dycl_opt_prefilter, 0, 1, 0, 0},
    {"single", dycl_opt_single, 1, 0, 0, 0},
    {"fuse", dycl_opt_fuse, 0, 1, 0, 1},
    {"combine", dycl_opt_combine, 0, 1, 0, 0},
    {"order", dycl_program_order, 1, 1, 0, 1},
    {"join", dycl_opt_join, 0, 1, 0, 0},
};

enum { PASSES = sizeof passes / sizeof *passes };

const char *dycl_opt_pass_name(int nth) {
    for (int i = 0; i < PASSES; i++) {
        int first = 0;
        while (strcmp(passes[first].name, passes[i].name) != 0) first++;
        if (first == i && nth-- == 0) return passes[i].name;
    }
    return NULL;
}

dycl_status dycl_opt_run(dycl_program *program, int tuned, int epilogues) {
    dycl_log_begin();
    int shown = __builtin_expect(dycl_log_any(), 0);
    uint64_t key = shown ? dycl_graph_key(&program->graph, program->outputs, program->output_count) : 0;
    if (dycl_program_measure(program, &program->recorded) != DYCL_OK) return DYCL_ERROR;
    int large = program->recorded.bytes >= dycl_opt_large;
    if (shown) dycl_program_show(program, key, DYCL_LOG_GRAPH, tuned);
    for (int i = 0; i < PASSES; i++) {
        const pass *at = &passes[i];
        if (!(tuned ? at->tuned : large ? at->large : at->cold) || (at->epilogues && !epilogues)) continue;
        dycl_status status = at->run(program);
        if (status != DYCL_OK) return status;
        if (shown) dycl_program_show(program, key, at->name, tuned);
#ifdef DYCL_DEBUG
        status = dycl_program_verify(program);
        if (status != DYCL_OK) return status;
#endif
    }
    return tuned ? dycl_program_measure(program, &program->planned) : DYCL_OK;
}
