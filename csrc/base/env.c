#include "base/env.h"

#include "base/lock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, LENGTH = 512 };

static char complaints[MOST][LENGTH];
static int count;

void dycl_env_complain(const char *format, ...) {
    char text[LENGTH];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    dycl_lock(DYCL_LOCK_ENV);
    int at = 0;
    while (at < count && strcmp(complaints[at], text) != 0) at++;
    if (at == count && count < MOST) memcpy(complaints[count++], text, sizeof text);
    dycl_unlock(DYCL_LOCK_ENV);
}

const char *dycl_env_complaint(int at) {
    dycl_lock(DYCL_LOCK_ENV);
    const char *text = at < count ? complaints[at] : NULL;
    dycl_unlock(DYCL_LOCK_ENV);
    return text;
}

int dycl_env_choice(const char *name, const char *const *words, int word_count) {
    const char *value = getenv(name);
    char known[LENGTH] = "";
    if (!value || !*value) return -1;
    size_t length = 0;
    for (int i = 0; i < word_count; i++) {
        if (!strcmp(value, words[i])) return i;
        int more = snprintf(known + length, sizeof known - length, "%s%s",
                            i == 0                ? ""
                            : i == word_count - 1 ? " or "
                                                  : ", ",
                            words[i]);
        if (more > 0 && length + (size_t)more < sizeof known) length += (size_t)more;
    }
    dycl_env_complain("%s=%.60s is ignored: it may be %s", name, value, known);
    return -1;
}

int dycl_env_number(const char *name, int most) {
    const char *value = getenv(name);
    if (!value || !*value) return -1;
    if (*value >= '0' && *value <= '9') {
        char *end;
        long number = strtol(value, &end, 10);
        if (!*end && number <= most) return (int)number;
    }
    dycl_env_complain("%s=%.60s is ignored: it may be a number from 0 to %d", name, value, most);
    return -1;
}

double dycl_env_amount(const char *name) {
    const char *value = getenv(name);
    if (!value || !*value) return -1;
    char *end;
    double number = strtod(value, &end);
    if (end != value && !*end && number >= 0) return number;
    dycl_env_complain("%s=%.60s is ignored: it may be a number", name, value);
    return -1;
}
