#include "dnnl/internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t stream_key;
static dnnl_engine_t engine;
static dycl_status init_status;
static char init_message[160], version[24];
static _Thread_local dnnl_stream_t thread_stream; // owned by this thread, through stream_key

static void destroy_stream(void *stream) {
    thread_stream = NULL; /* a later destructor of this thread may still execute something */
    dnnl_stream_destroy(stream);
}

static void init_once(void) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(version, sizeof version, "%d.%d.%d", v->major, v->minor, v->patch);
    init_status = DYCL_ERROR;
    if (v->major < 3 || (v->major == 3 && v->minor < 2)) {
        snprintf(init_message, sizeof init_message, "oneDNN %s is too old, 3.2 is needed", version);
    } else if (v->cpu_runtime != DNNL_RUNTIME_OMP && v->cpu_runtime != DNNL_RUNTIME_SEQ) {
        snprintf(init_message, sizeof init_message, "oneDNN %s was not built for OpenMP", version);
    } else if (dnnl_engine_get_count(dnnl_cpu) < 1 || dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) {
        snprintf(init_message, sizeof init_message, "oneDNN %s has no CPU engine", version);
    } else if (pthread_key_create(&stream_key, destroy_stream)) {
        snprintf(init_message, sizeof init_message, "no thread key left");
    } else {
        /* cache.c keeps what was made. The library's own cache may keep the key of what could not be made, and look at
         * freed memory later. */
        (void)dnnl_set_primitive_cache_capacity(0);
        init_status = DYCL_OK;
    }
}

dycl_status dycl_dnnl_init(void) {
    pthread_once(&once, init_once);
    return init_status == DYCL_OK ? DYCL_OK : dycl_error_set("%s", init_message);
}

const char *dycl_dnnl_version(void) {
    pthread_once(&once, init_once);
    return version;
}

dycl_status dycl_dnnl_engine(dnnl_engine_t *out) {
    dycl_status status = dycl_dnnl_init();
    *out = engine;
    return status;
}

dycl_status dycl_dnnl_stream(dnnl_stream_t *out) {
    if (__builtin_expect(!thread_stream, 0)) {
        dnnl_stream_t stream = NULL;
        dycl_status status = dycl_dnnl_init();
        if (status != DYCL_OK) return status;
        status = dycl_dnnl_check(dnnl_stream_create(&stream, engine, dnnl_stream_in_order), "stream");
        if (status != DYCL_OK) return status;
        if (pthread_setspecific(stream_key, stream)) {
            dnnl_stream_destroy(stream);
            return dycl_error_set("out of memory");
        }
        thread_stream = stream;
    }
    *out = thread_stream;
    return DYCL_OK;
}

dycl_status dycl_dnnl_check(dnnl_status_t code, const char *what) {
    if (__builtin_expect(code == dnnl_success, 1)) return DYCL_OK;
    switch (code) {
    case dnnl_unimplemented: return dycl_error_bail("oneDNN has no implementation: %s", what);
    case dnnl_invalid_arguments: return dycl_error_bail("oneDNN refuses: %s", what);
    case dnnl_out_of_memory: return dycl_error_set("oneDNN: out of memory: %s", what);
    default: return dycl_error_set("oneDNN: status %d: %s", (int)code, what);
    }
}
