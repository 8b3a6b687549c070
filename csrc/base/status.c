#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[512] = "";

const char *dycl_error_message(void) { return message; }

dycl_status dycl_error_set(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    return DYCL_ERROR;
}
