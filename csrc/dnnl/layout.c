#include "base/alloc.h"
#include "base/lock.h"
#include "dnnl/internal.h"

#include <string.h>

/* Blocked layouts that primitives choose for activations. A tag needs no storage, so layouts of any number of shapes
 * cost nothing; what is none of these is interned, and there is a bound on that. */
static const dnnl_format_tag_t known_tags[] = {dnnl_aBcd16b, dnnl_aBcd8b, dnnl_aBcd4b, dnnl_aBcd32b, dnnl_ABcd16b16a};
#define MAX_INTERNED 1024
static dnnl_memory_desc_t interned[MAX_INTERNED]; // owned, immortal
static int interned_count;

int dycl_layout_equal(const dycl_layout *a, const dycl_layout *b) {
    if (a->rank != b->rank || a->opaque != b->opaque) return 0;
    for (int d = 0; d < a->rank; d++) {
        if (a->sizes[d] != b->sizes[d]) return 0;
        if (!a->opaque && a->sizes[d] != 1 && a->strides[d] != b->strides[d]) return 0;
    }
    return !a->opaque || a->tag == b->tag;
}

size_t dycl_layout_bytes(const dycl_layout *layout) {
    if (!layout->opaque) {
        int64_t last = 0;
        for (int d = 0; d < layout->rank; d++) {
            if (!layout->sizes[d]) return 0;
            last += (layout->sizes[d] - 1) * layout->strides[d];
        }
        return (size_t)(last + 1) * sizeof(float);
    }
    dnnl_memory_desc_t md = NULL;
    if (dycl_layout_to_md(layout, &md) != DYCL_OK) return 0;
    size_t bytes = dnnl_memory_desc_get_size(md);
    dnnl_memory_desc_destroy(md);
    return bytes;
}

int dycl_layout_padded(const dycl_layout *layout) {
    dnnl_memory_desc_t md = NULL;
    const dnnl_dims_t *padded = NULL;
    int answer = 0;
    if (!layout->opaque || dycl_layout_to_md(layout, &md) != DYCL_OK) return layout->opaque;
    if (dnnl_memory_desc_query(md, dnnl_query_padded_dims, &padded) != dnnl_success) answer = 1;
    for (int d = 0; !answer && d < layout->rank; d++) answer = (*padded)[d] != layout->sizes[d];
    dnnl_memory_desc_destroy(md);
    return answer;
}

void dycl_layout_plain(dycl_layout *out, int rank, const int64_t *sizes, const int64_t *strides) {
    memset(out, 0, sizeof *out);
    out->rank = rank;
    memcpy(out->sizes, sizes, (size_t)rank * sizeof *sizes);
    memcpy(out->strides, strides, (size_t)rank * sizeof *strides);
}

/* Whether each dimension begins where those with smaller strides end, as oneDNN asks. alone: of those with one element
 * too. */
static int is_nested(int rank, const int64_t *sizes, const int64_t *strides, int alone) {
    int64_t reached = 1;
    for (int done = 0, used = 0; done < rank; done++) {
        int least = -1;
        for (int d = 0; d < rank; d++)
            if (!(used >> d & 1) &&
                (least < 0 || strides[d] < strides[least] || (strides[d] == strides[least] && sizes[d] < sizes[least])))
                least = d;
        used |= 1 << least;
        if (sizes[least] == 1 && !alone) continue;
        if (strides[least] < reached) return 0;
        reached = strides[least] * sizes[least];
    }
    return 1;
}

int dycl_layout_describable(const dycl_layout *layout) {
    return layout->opaque || is_nested(layout->rank, layout->sizes, layout->strides, 0);
}

dycl_status dycl_layout_to_md(const dycl_layout *layout, dnnl_memory_desc_t *out) {
    dnnl_dims_t sizes, strides;
    if (layout->rank < 1 || layout->rank > DYCL_DNNL_MAX_RANK)
        return dycl_error_bail("layout of rank %d", layout->rank);
    for (int d = 0; d < layout->rank; d++) {
        sizes[d] = layout->sizes[d];
        strides[d] = layout->strides[d];
        if (sizes[d] < 1) return dycl_error_bail("empty layout");
        if (!layout->opaque && strides[d] < 1) {
            if (sizes[d] != 1) return dycl_error_bail("layout with stride %lld", (long long)strides[d]);
            strides[d] = 1;
        }
    }
    if (!layout->opaque &&
        !is_nested(layout->rank, sizes, strides, 1)) /* the stride of a single element says nothing */
        for (int d = layout->rank - 1; d >= 0; d--)
            if (sizes[d] == 1) strides[d] = d + 1 < layout->rank ? sizes[d + 1] * strides[d + 1] : 1;
    if (!layout->opaque)
        return dycl_dnnl_check(dnnl_memory_desc_create_with_strides(out, layout->rank, sizes, dnnl_f32, strides),
                               "strided layout");
    if (layout->tag < (uint64_t)dnnl_format_tag_last)
        return dycl_dnnl_check(
            dnnl_memory_desc_create_with_tag(out, layout->rank, sizes, dnnl_f32, (dnnl_format_tag_t)layout->tag),
            "layout");
    return dycl_dnnl_check(dnnl_memory_desc_clone(out, (const_dnnl_memory_desc_t)(uintptr_t)layout->tag), "layout");
}

static dycl_status intern(const_dnnl_memory_desc_t md, uint64_t *out) {
    dycl_status status = DYCL_OK;
    int i = 0;
    dycl_lock(DYCL_LOCK_LAYOUTS);
    while (i < interned_count && !dnnl_memory_desc_equal(interned[i], md)) i++;
    if (i == MAX_INTERNED) {
        status = dycl_error_bail("too many unusual layouts");
    } else if (i == interned_count) {
        status = dycl_dnnl_check(dnnl_memory_desc_clone(&interned[i], md), "clone of a layout");
        if (status == DYCL_OK) interned_count++;
    }
    if (status == DYCL_OK) *out = (uint64_t)(uintptr_t)interned[i];
    dycl_unlock(DYCL_LOCK_LAYOUTS);
    return status;
}

dycl_status dycl_layout_from_md(const_dnnl_memory_desc_t md, dycl_layout *out) {
    int rank = 0, blocks = 0;
    const dnnl_dims_t *sizes = NULL, *strides = NULL, *padded = NULL;
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    dycl_status status;
    memset(out, 0, sizeof *out);
    DYCL_TRY(dycl_dnnl_check(dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &rank), "rank"));
    DYCL_TRY(dycl_dnnl_check(dnnl_memory_desc_query(md, dnnl_query_dims, &sizes), "sizes"));
    DYCL_TRY(dycl_dnnl_check(dnnl_memory_desc_query(md, dnnl_query_format_kind, &kind), "format kind"));
    if (rank > DYCL_DNNL_MAX_RANK) return dycl_error_bail("layout of rank %d", rank);
    out->rank = rank;
    for (int d = 0; d < rank; d++) out->sizes[d] = (*sizes)[d];
    if (kind == dnnl_blocked) {
        DYCL_TRY(dycl_dnnl_check(dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &blocks), "blocks"));
        DYCL_TRY(dycl_dnnl_check(dnnl_memory_desc_query(md, dnnl_query_strides, &strides), "strides"));
        DYCL_TRY(dycl_dnnl_check(dnnl_memory_desc_query(md, dnnl_query_padded_dims, &padded), "padding"));
        int plain = blocks == 0;
        for (int d = 0; plain && d < rank; d++) plain = (*padded)[d] == (*sizes)[d];
        if (plain) {
            for (int d = 0; d < rank; d++) out->strides[d] = (*strides)[d];
            return DYCL_OK;
        }
    }
    out->opaque = 1;
    for (size_t t = 0; rank == 4 && t < sizeof known_tags / sizeof *known_tags; t++) {
        dnnl_memory_desc_t candidate = NULL;
        if (dnnl_memory_desc_create_with_tag(&candidate, rank, *sizes, dnnl_f32, known_tags[t]) != dnnl_success)
            continue;
        int equal = dnnl_memory_desc_equal(candidate, md);
        dnnl_memory_desc_destroy(candidate);
        if (equal) {
            out->tag = (uint64_t)known_tags[t];
            return DYCL_OK;
        }
    }
    return intern(md, &out->tag);
fail:
    return status;
}

uint64_t dycl_md_hash(const_dnnl_memory_desc_t md) {
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    int rank = 0, blocks = 0;
    const dnnl_dims_t *part[5] = {NULL};
    static const dnnl_query_t parts[5] = {dnnl_query_dims, dnnl_query_padded_dims, dnnl_query_strides,
                                          dnnl_query_inner_blks, dnnl_query_inner_idxs};
    dycl_key key = {0, {0}};
    if (dnnl_memory_desc_query(md, dnnl_query_format_kind, &kind) != dnnl_success || kind != dnnl_blocked) return 0;
    if (dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &rank) != dnnl_success) return 0;
    if (dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &blocks) != dnnl_success) return 0;
    dycl_key_add(&key, rank);
    dycl_key_add(&key, blocks);
    dycl_key_add(&key, (int64_t)dnnl_memory_desc_get_size(md));
    for (int p = 0; p < 5; p++) {
        if (p >= 3 && !blocks) break;
        if (dnnl_memory_desc_query(md, parts[p], &part[p]) != dnnl_success) return 0;
        for (int d = 0; d < (p < 3 ? rank : blocks); d++) dycl_key_add(&key, (*part[p])[d]);
    }
    return dycl_hash_words(key.word, key.count, 0) | 1;
}

void dycl_key_add_layout(dycl_key *key, const dycl_layout *layout) {
    dycl_key_add(key, layout->opaque * 16 + layout->rank);
    if (layout->opaque == 1) dycl_key_add(key, (int64_t)layout->tag);
    for (int d = 0; d < layout->rank; d++) {
        dycl_key_add(key, layout->sizes[d]);
        if (!layout->opaque && layout->sizes[d] != 1) dycl_key_add(key, layout->strides[d]);
    }
}
