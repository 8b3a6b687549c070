/* Every reason not to record, one row each in bail.def. Threads: immutable. */
#ifndef DYCL_RECORD_BAIL_H
#define DYCL_RECORD_BAIL_H

typedef enum {
#define DYCL_BAIL_ROW(name, text) DYCL_BAIL_##name,
#include "record/bail.def"
#undef DYCL_BAIL_ROW
    DYCL_BAIL_COUNT
} dycl_bail;

const char *dycl_bail_name(dycl_bail why);
const char *dycl_bail_text(dycl_bail why);

#endif
