#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[512] = "";

const char *dycl_error_message(void) { return message; }

static void keep(const char *format, va_list list) {
    char text[sizeof message]; /* the old message may be among the arguments */
    vsnprintf(text, sizeof text, format, list);
    memcpy(message, text, sizeof message);
}

dycl_status dycl_error_set(const char *format, ...) {
    va_list list;
    va_start(list, format);
    keep(format, list);
    va_end(list);
    return DYCL_ERROR;
}

dycl_status dycl_error_bail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    keep(format, list);
    va_end(list);
    return DYCL_BAIL;
}
