#include "opt/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/lock.h"
#include "opt/program.h"

#define MOST_BYTES ((size_t)64 << 20) /* that wait: a call that makes thousands of plans must not fill the memory */
#define AT_ONCE    (UINT32_C(1) << 31)

atomic_uint dycl_log_topics;
_Thread_local uint32_t dycl_log_mine;

typedef struct {
    dycl_log_text *first, **end;
    size_t bytes;
    uint32_t lost;
} list;

static list waiting = {.end = &waiting.first}; /* DYCL_LOCK_LOG */
static _Thread_local list caught;
static atomic_int host, waits;

/* ---- Topics: "graph", each pass, "plan" */

static const char *topic_name(int at) {
    if (at == 0) return DYCL_LOG_GRAPH;
    const char *pass = dycl_opt_pass_name(at - 1);
    return pass ? pass : at > 1 && dycl_opt_pass_name(at - 2) ? DYCL_LOG_PLAN : NULL;
}

static uint32_t topic_bit(const char *name, size_t length) {
    for (int i = 0; topic_name(i); i++)
        if (strlen(topic_name(i)) == length && !memcmp(topic_name(i), name, length)) return UINT32_C(1) << i;
    return length == 6 && !memcmp(name, "stderr", 6) ? AT_ONCE : 0;
}

static void list_names(char *out, size_t room) {
    size_t length = 0;
    out[0] = 0;
    for (int i = 0; topic_name(i); i++) {
        int more = snprintf(out + length, room - length, "%s, ", topic_name(i));
        if (more > 0 && length + (size_t)more < room) length += (size_t)more;
    }
}

dycl_status dycl_log_read(const char *names, const char *variable, uint32_t *out_topics) {
    char known[256];
    dycl_status status = DYCL_OK;
    *out_topics = 0;
    for (size_t length; names && *names; names += length + (names[length] == ',')) {
        length = strcspn(names, ",");
        int all = length == 3 && !memcmp(names, "all", 3), shown = (int)(length < 60 ? length : 60);
        uint32_t bit = all ? ~AT_ONCE : topic_bit(names, length);
        *out_topics |= bit;
        if (bit || !length) continue;
        list_names(known, sizeof known);
        if (variable)
            dycl_env_complain("%s=%.*s: there is no such topic; the topics are %sand \"all\" is each of them; "
                              "\"stderr\" prints at once",
                              variable, shown, names, known);
        else
            status =
                dycl_error_set("%.*s is no topic: the topics are %sand \"all\" is each of them", shown, names, known);
    }
    if (*out_topics == AT_ONCE) *out_topics = ~UINT32_C(0);
    return status;
}

static void read_environment(void) {
    uint32_t topics;
    dycl_log_read(getenv("DYCL_LOG"), "DYCL_LOG", &topics);
    atomic_store(&dycl_log_topics, topics);
}

void dycl_log_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
}

int dycl_log_wants(const char *topic) {
    uint32_t topics = dycl_log_mine ? dycl_log_mine : atomic_load_explicit(&dycl_log_topics, memory_order_relaxed);
    return topics && (topics & topic_bit(topic, strlen(topic)));
}

/* ---- Texts */

static void append(list *to, const char *topic, char *text) {
    size_t bytes = strlen(text);
    dycl_log_text *entry = to->bytes + bytes > MOST_BYTES ? NULL : dycl_alloc(sizeof *entry);
    if (!entry) {
        to->lost++;
        dycl_free(text);
        return;
    }
    *entry = (dycl_log_text){.topic = topic, .text = text};
    if (!to->end) to->end = &to->first;
    *to->end = entry;
    to->end = &entry->next;
    to->bytes += bytes;
}

static dycl_log_text *empty(list *from) {
    dycl_log_text *first = from->first;
    *from = (list){0};
    return first;
}

void dycl_log_put(const char *topic, char *text) {
    if (!text) return;
    if (dycl_log_mine) {
        append(&caught, topic, text);
    } else if (!atomic_load(&host) || atomic_load(&dycl_log_topics) & AT_ONCE) {
        fputs(text, stderr); /* in one piece: other threads make plans too */
        dycl_free(text);
    } else {
        dycl_lock(DYCL_LOCK_LOG);
        append(&waiting, topic, text);
        dycl_unlock(DYCL_LOCK_LOG);
        atomic_store_explicit(&waits, 1, memory_order_relaxed);
    }
}

void dycl_log_catch(uint32_t topics) { dycl_log_mine = topics; }

dycl_log_text *dycl_log_caught(void) {
    dycl_log_mine = 0;
    return empty(&caught);
}

void dycl_log_free(dycl_log_text *text) {
    while (text) {
        dycl_log_text *next = text->next;
        dycl_free(text->text);
        dycl_free(text);
        text = next;
    }
}

void dycl_log_host(void) { atomic_store(&host, 1); }

int dycl_log_waits(void) { return atomic_load_explicit(&waits, memory_order_relaxed); }

dycl_log_text *dycl_log_take(uint32_t *out_lost) {
    dycl_lock(DYCL_LOCK_LOG);
    *out_lost = waiting.lost;
    dycl_log_text *first = empty(&waiting);
    atomic_store_explicit(&waits, 0, memory_order_relaxed);
    dycl_unlock(DYCL_LOCK_LOG);
    return first;
}
