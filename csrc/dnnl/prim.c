#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "base/alloc.h"
#include "dnnl/internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void add_arg(dycl_prim *prim, int arg, size_t offset, const_dnnl_memory_desc_t md) {
    prim->arg[prim->arg_count].arg = arg;
    prim->arg[prim->arg_count].offset = (unsigned)offset;
    prim->arg[prim->arg_count].md = md;
    prim->arg_count++;
}

static dycl_status collect_args(dycl_prim *prim, const dycl_prim_parts *parts) {
    dnnl_query_t query = parts->gradient ? dnnl_query_diff_weights_md : dnnl_query_dst_md;
    const_dnnl_memory_desc_t dst = dnnl_primitive_desc_query_md(prim->pd, query, 0);
    add_arg(prim, DNNL_ARG_SRC, offsetof(dycl_prim_args, src),
            dnnl_primitive_desc_query_md(prim->pd, dnnl_query_src_md, 0));
    add_arg(prim, parts->gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_DST, offsetof(dycl_prim_args, dst), dst);
    if (parts->gradient)
        add_arg(prim, DNNL_ARG_DIFF_DST, offsetof(dycl_prim_args, weights),
                dnnl_primitive_desc_query_md(prim->pd, dnnl_query_diff_dst_md, 0));
    if (prim->plain_weights) {
        const_dnnl_memory_desc_t weights = dnnl_primitive_desc_query_md(prim->pd, dnnl_query_weights_md, 0);
        add_arg(prim, DNNL_ARG_WEIGHTS, offsetof(dycl_prim_args, weights), weights);
        if (!dnnl_memory_desc_equal(weights, prim->plain_weights)) {
            prim->weights_bytes = dnnl_memory_desc_get_size(weights);
            uint64_t form = dycl_md_hash(weights), from = dycl_md_hash(prim->plain_weights);
            /* A form that cannot be read is shared with nobody but this very descriptor. */
            prim->weights_key = form ? dycl_hash_words(&form, 1, from) : prim->hash;
        }
    }
    if (parts->bias)
        add_arg(prim, DNNL_ARG_BIAS, offsetof(dycl_prim_args, bias),
                dnnl_primitive_desc_query_md(prim->pd, dnnl_query_weights_md, 1));
    const_dnnl_memory_desc_t scratch = dnnl_primitive_desc_query_md(prim->pd, dnnl_query_scratchpad_md, 0);
    prim->scratch = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (prim->scratch) add_arg(prim, DNNL_ARG_SCRATCHPAD, offsetof(dycl_prim_args, scratch), scratch);
    for (int i = 0; parts->post && i < parts->post->count; i++) {
        const dycl_post_op *op = &parts->post->op[i];
        if (!dycl_post_is_binary(op->kind)) continue;
        int arg = DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1;
        const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(prim->pd, dnnl_query_exec_arg_md, arg);
        if (!md) return dycl_error_set("oneDNN lost a post-op operand");
        if (op->operand.opaque == 2 && !dnnl_memory_desc_equal(md, dst))
            return dycl_error_bail("post-op operand cannot have the destination's layout");
        add_arg(prim, arg, offsetof(dycl_prim_args, post) + (size_t)i * sizeof(void *), md);
    }
    for (int i = 0; i < prim->arg_count; i++)
        if (!prim->arg[i].md) return dycl_error_set("oneDNN does not describe argument %d", prim->arg[i].arg);
    return DYCL_OK;
}

static atomic_int alive;

#define CODE ((size_t)32 << 20) /* of the dozens of kernels that one primitive may write, 256 KB each */

/* oneDNN's C++ code throws where there is no memory for its small things, through its C functions and ours; and it runs
 * kernels that it had no memory to write. Is there as much as it takes? */
static dycl_status spare(void) {
    void *volatile memory = malloc((size_t)1 << 20); /* volatile: or the compiler takes it for granted */
    free(memory);
    void *code = mmap(NULL, CODE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (code != MAP_FAILED) munmap(code, CODE);
    return memory && code != MAP_FAILED ? DYCL_OK : dycl_error_set("out of memory for a primitive");
}

dycl_status dycl_prim_make(const dycl_prim_parts *parts, dycl_prim **out) {
    dycl_status status;
    dycl_prim *prim = dycl_alloc_zero(sizeof *prim);
    if (!prim) {
        if (parts->plain_weights) dnnl_memory_desc_destroy(parts->plain_weights);
        dnnl_primitive_desc_destroy(parts->pd);
        return dycl_error_set("out of memory");
    }
    atomic_init(&prim->references, 1);
    atomic_fetch_add_explicit(&alive, 1, memory_order_relaxed);
    prim->plain_weights = parts->plain_weights;
    prim->key_count = parts->key->count;
    prim->hash = dycl_hash_words(parts->key->word, parts->key->count, 0);
    prim->key = dycl_alloc((size_t)prim->key_count * sizeof *prim->key);
    status = prim->key ? DYCL_OK : dycl_error_set("out of memory");
    if (status != DYCL_OK) goto fail;
    memcpy(prim->key, parts->key->word, (size_t)prim->key_count * sizeof *prim->key);

    DYCL_TRY(dycl_dnnl_check(dnnl_primitive_desc_query(parts->pd, dnnl_query_impl_info_str, 0, (void *)&prim->info),
                             "implementation's name"));
    if (parts->refuse_reference && (!strncmp(prim->info, "ref", 3) || strstr(prim->info, "+ref"))) {
        /* The reference loops are slower than whatever the caller would do instead, by far. */
        status = dycl_error_bail("oneDNN has only %s", prim->info);
        goto fail;
    }
    DYCL_TRY(spare());
    DYCL_TRY(dycl_dnnl_check(dnnl_primitive_create(&prim->primitive, parts->pd), "primitive"));
    DYCL_TRY(dycl_dnnl_check(dnnl_primitive_get_primitive_desc(prim->primitive, &prim->pd), "descriptor"));
    DYCL_TRY(dycl_dnnl_check(dnnl_primitive_desc_query(prim->pd, dnnl_query_impl_info_str, 0, (void *)&prim->info),
                             "implementation's name"));
    DYCL_TRY(collect_args(prim, parts));
    DYCL_TRY(dycl_layout_from_md(prim->arg[0].md, &prim->src));
    DYCL_TRY(dycl_layout_from_md(prim->arg[1].md, &prim->dst));
    if (parts->gradient) DYCL_TRY(dycl_layout_from_md(prim->arg[2].md, &prim->gradient));
    dnnl_primitive_desc_destroy(parts->pd);
    *out = dycl_cache_insert(prim);
    return DYCL_OK;
fail:
    dnnl_primitive_desc_destroy(parts->pd);
    dycl_prim_destroy(prim);
    return status;
}

void dycl_prim_destroy(dycl_prim *prim) {
    for (int i = 0; i < DYCL_PRIM_MEMORIES; i++) dycl_prim_memory_destroy(atomic_load(&prim->idle[i]));
    if (prim->primitive) dnnl_primitive_destroy(prim->primitive);
    if (atomic_load(&prim->packer)) dnnl_primitive_destroy(atomic_load(&prim->packer));
    if (prim->plain_weights) dnnl_memory_desc_destroy(prim->plain_weights);
    dycl_free(prim->key);
    dycl_free(prim);
    atomic_fetch_sub_explicit(&alive, 1, memory_order_relaxed);
}

int dycl_dnnl_alive(void) { return atomic_load_explicit(&alive, memory_order_relaxed); }

void dycl_prim_retain(dycl_prim *prim) { atomic_fetch_add_explicit(&prim->references, 1, memory_order_relaxed); }

void dycl_prim_release(dycl_prim *prim) {
    if (prim && atomic_fetch_sub_explicit(&prim->references, 1, memory_order_acq_rel) == 1) dycl_prim_destroy(prim);
}

const char *dycl_prim_info(const dycl_prim *prim) { return prim->info; }
void dycl_prim_src_layout(const dycl_prim *prim, dycl_layout *out) { *out = prim->src; }
void dycl_prim_dst_layout(const dycl_prim *prim, dycl_layout *out) { *out = prim->dst; }
void dycl_prim_gradient_layout(const dycl_prim *prim, dycl_layout *out) { *out = prim->gradient; }
size_t dycl_prim_scratch(const dycl_prim *prim) { return prim->scratch; }
size_t dycl_prim_weights_bytes(const dycl_prim *prim) { return prim->weights_bytes; }
uint64_t dycl_prim_weights_key(const dycl_prim *prim) { return prim->weights_key; }

/* What packs the weights, for one thread at a time: kept, as weights may change at each run. NULL with *out_status. */
static dnnl_primitive_t take_packer(const dycl_prim *prim, const_dnnl_memory_desc_t packed, dycl_status *out_status) {
    dnnl_primitive_t reorder = atomic_exchange(&((dycl_prim *)(uintptr_t)prim)->packer, NULL);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_engine_t engine;
    dycl_status status = DYCL_OK;
    if (reorder) return reorder;
    DYCL_TRY(spare());
    DYCL_TRY(dycl_dnnl_engine(&engine));
    DYCL_TRY(dycl_dnnl_check(dnnl_reorder_primitive_desc_create(&pd, prim->plain_weights, engine, packed, engine, NULL),
                             "packing weights"));
    status = dycl_dnnl_check(dnnl_primitive_create(&reorder, pd), "packing weights");
fail:
    if (pd) dnnl_primitive_desc_destroy(pd);
    *out_status = status;
    return status == DYCL_OK ? reorder : NULL;
}

static void give_packer(const dycl_prim *prim, dnnl_primitive_t reorder) {
    dnnl_primitive_t none = NULL;
    if (!atomic_compare_exchange_strong(&((dycl_prim *)(uintptr_t)prim)->packer, &none, reorder))
        dnnl_primitive_destroy(reorder);
}

dycl_status dycl_prim_pack(const dycl_prim *prim, const void *weights, void *packed) {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t reorder = NULL;
    dnnl_memory_t from = NULL, to = NULL;
    dycl_status status = DYCL_OK;
    if (!prim->weights_bytes) return dycl_error_set("this primitive takes its weights as they are");
    const_dnnl_memory_desc_t packed_md = dnnl_primitive_desc_query_md(prim->pd, dnnl_query_weights_md, 0);
    if (!(reorder = take_packer(prim, packed_md, &status))) return status;
    DYCL_TRY(dycl_dnnl_engine(&engine));
    DYCL_TRY(dycl_dnnl_stream(&stream));
    DYCL_TRY(
        dycl_dnnl_check(dnnl_memory_create(&from, prim->plain_weights, engine, (void *)(uintptr_t)weights), "memory"));
    DYCL_TRY(dycl_dnnl_check(dnnl_memory_create(&to, packed_md, engine, packed), "memory"));
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    DYCL_TRY(dycl_dnnl_check(dnnl_primitive_execute(reorder, stream, 2, args), "packing weights"));
    status = dycl_dnnl_check(dnnl_stream_wait(stream), "packing weights");
fail:
    if (from) dnnl_memory_destroy(from);
    if (to) dnnl_memory_destroy(to);
    give_packer(prim, reorder);
    return status;
}
