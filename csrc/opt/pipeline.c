#include "opt/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    dycl_status (*run)(dycl_program *program);
    int cold, tuned, epilogues;
} pass;

static const pass passes[] = {
    {"dce", dycl_opt_dce, 1, 1, 0},
    {"commute", dycl_opt_commute, 0, 1, 0},
    {"cse", dycl_opt_cse, 0, 1, 0},
    {"dce", dycl_opt_dce, 0, 1, 0},
    {"fold", dycl_opt_fold, 0, 1, 0},
    {"simplify", dycl_opt_simplify, 0, 1, 0},
    {"distribute", dycl_opt_distribute, 0, 1, 0},
    {"cse", dycl_opt_cse, 0, 1, 0}, /* once more: what was rewritten may be what is there already */
    {"dce", dycl_opt_dce, 0, 1, 0},
    {"epilogue", dycl_opt_epilogue, 1, 1, 1},
    {"screen", dycl_opt_screen, 0, 1, 0},
    {"single", dycl_opt_single, 1, 0, 0},
    {"fuse", dycl_opt_fuse, 0, 1, 0},
    {"combine", dycl_opt_combine, 0, 1, 0},
    {"order", dycl_program_order, 1, 1, 0},
    {"join", dycl_opt_join, 0, 1, 0},
};

#ifdef DYCL_DEBUG
static void dump(const char *name, const dycl_program *program) {
    const char *wanted = getenv("DYCL_DEBUG");
    if (!wanted || strcmp(wanted, name)) return;
    for (uint32_t i = 0; i < program->order_count; i++) {
        const dycl_block *block = &program->blocks[program->order[i]];
        fprintf(stderr, "%s block %u at %g, row %lld:", name, program->order[i], block->position,
                (long long)block->row);
        for (uint32_t n = block->first; n != DYCL_NONE; n = program->next[n])
            fprintf(stderr, " %s", dycl_op_get((dycl_op)program->graph.nodes[n].op)->name);
        fputc('\n', stderr);
    }
}
#endif

dycl_status dycl_opt_run(dycl_program *program, int tuned, int epilogues) {
    if (tuned && dycl_program_measure(program, &program->recorded) != DYCL_OK) return DYCL_ERROR;
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
        if (!(tuned ? passes[i].tuned : passes[i].cold) || (passes[i].epilogues && !epilogues)) continue;
        dycl_status status = passes[i].run(program);
        if (status != DYCL_OK) return status;
#ifdef DYCL_DEBUG
        dump(passes[i].name, program);
        status = dycl_program_verify(program);
        if (status != DYCL_OK) return status;
#endif
    }
    return tuned ? dycl_program_measure(program, &program->planned) : DYCL_OK;
}
