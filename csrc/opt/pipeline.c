#include "base/env.h"
#include "opt/program.h"

#include <pthread.h>
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

enum { PASSES = sizeof passes / sizeof *passes };

/* ---- DYCL_DEBUG: names of passes behind which the program is shown, with commas between them, or "all" */

static uint8_t shown[PASSES];

static void list_names(char *out, size_t room) {
    size_t length = 0;
    out[0] = 0;
    for (int i = 0; i < PASSES; i++) {
        int first = 0;
        while (strcmp(passes[first].name, passes[i].name) != 0) first++;
        if (first < i) continue;
        int more = snprintf(out + length, room - length, "%s, ", passes[i].name);
        if (more > 0 && length + (size_t)more < room) length += (size_t)more;
    }
}

static void read_wanted(void) {
    const char *wanted = getenv("DYCL_DEBUG");
    char known[256];
    for (size_t length; wanted && *wanted; wanted += length + (wanted[length] == ',')) {
        int found = 0;
        length = strcspn(wanted, ",");
        if (!length) continue;
        int all = length == 3 && !memcmp(wanted, "all", 3);
        for (int i = 0; i < PASSES; i++) {
            if (!all && (strncmp(passes[i].name, wanted, length) != 0 || passes[i].name[length])) continue;
            shown[i] = 1;
            found = 1;
        }
        if (found) continue;
        list_names(known, sizeof known);
        dycl_env_complain("DYCL_DEBUG=%.*s: there is no such pass; the passes are %sand \"all\" shows each",
                          (int)(length < 60 ? length : 60), wanted, known);
    }
}

void dycl_opt_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_wanted);
}

dycl_status dycl_opt_run(dycl_program *program, int tuned, int epilogues) {
    dycl_opt_begin();
    if (tuned && dycl_program_measure(program, &program->recorded) != DYCL_OK) return DYCL_ERROR;
    for (int i = 0; i < PASSES; i++) {
        if (!(tuned ? passes[i].tuned : passes[i].cold) || (passes[i].epilogues && !epilogues)) continue;
        dycl_status status = passes[i].run(program);
        if (status != DYCL_OK) return status;
        if (__builtin_expect(shown[i], 0)) dycl_program_show(program, passes[i].name, tuned);
#ifdef DYCL_DEBUG
        status = dycl_program_verify(program);
        if (status != DYCL_OK) return status;
#endif
    }
    return tuned ? dycl_program_measure(program, &program->planned) : DYCL_OK;
}
