#include "exec/plan/backend.h"
#include "exec/plan/step.h"

#include "base/alloc.h"
#include "opt/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    char *text;
    size_t used, room;
    int failed;
} text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(text *t, const char *format, ...) {
    char piece[256];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(piece, sizeof piece, format, list);
    va_end(list);
    if (length < 0 || t->failed) return;
    size_t n = (size_t)length < sizeof piece ? (size_t)length : sizeof piece - 1;
    if (t->used + n + 1 > t->room) {
        size_t room = t->room ? 2 * t->room : 1024;
        char *bigger = dycl_realloc(t->text, room);
        if (!bigger) {
            t->failed = 1;
            return;
        }
        t->text = bigger;
        t->room = room;
    }
    memcpy(t->text + t->used, piece, n + 1);
    t->used += n;
}

static void put_shape(text *t, const dycl_program *p, const dycl_look *look) {
    put(t, " %s[", dycl_dtype_name((dycl_dtype)look->dtype));
    for (int i = 0; i < look->rank; i++) put(t, "%s%lld", i ? "," : "", (long long)p->look_sizes[look->sizes + i]);
    put(t, "]");
}

static void put_block(text *t, const dycl_program *p, uint32_t block) {
    if (block == DYCL_NONE || p->looks[block].first == DYCL_NONE) return;
    for (uint32_t n = p->looks[block].first; n != DYCL_NONE; n = p->next[n])
        put(t, " %s", dycl_op_get((dycl_op)p->graph.nodes[n].op)->name);
    put_shape(t, p, &p->looks[block]);
}

static void put_autotune(text *t, const dycl_autotune *m) {
    int variant = atomic_load_explicit(&m->settled, memory_order_relaxed);
    put(t, " [%s]", variant < 0 ? "being measured" : m->names[variant]);
}

dycl_status dycl_plan_describe(const dycl_plan *plan, char **out) {
    text t = {0};
    const dycl_program *p = &plan->program;
    put(&t, "%s plan: %u steps, workspace %zu bytes, %llu runs\n", plan->mode == DYCL_PLAN_COLD ? "cold" : "tuned",
        plan->step_count, plan->workspace_bytes, (unsigned long long)plan->runs);
    if (plan->mode == DYCL_PLAN_TUNED)
        put(&t, "  graph: %u operators, %lld bytes between them, became %u operators in %u blocks, %lld bytes\n",
            p->recorded.operators, (long long)p->recorded.bytes, p->planned.operators, p->planned.blocks,
            (long long)p->planned.bytes);
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const dycl_step_info *info = &plan->infos[i];
        put(&t, "%4u %-16s", i, info->kernel);
        if (info->autotune) put_autotune(&t, info->autotune);
        if (info->prim) put(&t, " (%s)", dycl_prim_info(info->prim));
        if (info->count) put(&t, " %.1f us", (double)info->nanoseconds / 1000);
        if (info->group)
            for (uint32_t k = 0; k < info->group->count; k++) {
                put(&t, "\n       | %-12s", info->group->infos[k].kernel);
                put_block(&t, p, info->group->infos[k].block);
            }
        else if (plan->backend)
            put(&t, " %s", plan->backend->describe(plan->compiled));
        else
            put_block(&t, p, info->block);
        put(&t, "\n");
    }
    if (t.failed) {
        dycl_free(t.text);
        return dycl_error_set("out of memory");
    }
    *out = t.text;
    return DYCL_OK;
}

void dycl_plan_log(const dycl_plan *plan, uint64_t key) {
    char *said = NULL;
    text t = {0};
    if (!dycl_log_wants(DYCL_LOG_PLAN) || dycl_plan_describe(plan, &said) != DYCL_OK) return;
    put(&t, "# segment %016llx, ", (unsigned long long)key);
    for (const char *line = said, *end; *line; line = end) {
        const char *newline = strchr(line, '\n');
        end = newline ? newline + 1 : line + strlen(line);
        if (line != said) put(&t, "# ");
        while (line < end) { /* a line of many operators is longer than a piece */
            int length = (int)(end - line < 200 ? end - line : 200);
            put(&t, "%.*s", length, line);
            line += length;
        }
    }
    dycl_free(said);
    if (t.failed) dycl_free(t.text);
    dycl_log_put(DYCL_LOG_PLAN, t.failed ? NULL : t.text);
}
