/* What a core function answers. BAIL is normal (torch runs the thing); ERROR is a bug or out of memory; BUSY: what is
 * asked for runs in another thread, take one of your own. */
#ifndef DYCL_BASE_STATUS_H
#define DYCL_BASE_STATUS_H

typedef enum { DYCL_OK = 0, DYCL_BAIL = 1, DYCL_ERROR = 2, DYCL_BUSY = 3 } dycl_status;

/* The detail of the last ERROR (or of a BAIL that has more to say) of this thread; never NULL. */
const char *dycl_error_message(void);
dycl_status dycl_error_set(const char *format, ...) __attribute__((format(printf, 1, 2))); /* returns DYCL_ERROR */
dycl_status dycl_error_bail(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* the same, returns DYCL_BAIL */

#define DYCL_TRY(expr)                                                                                                 \
    do {                                                                                                               \
        status = (expr);                                                                                               \
        if (__builtin_expect(status != DYCL_OK, 0)) goto fail;                                                         \
    } while (0)

#endif
