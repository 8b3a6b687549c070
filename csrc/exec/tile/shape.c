/* The space of a block as rows and columns, and how its memory lies along them. */
#include "exec/tile/lower.h"

#include <string.h>

/* Does the row of this memory lie at one stride? */
static int row_is_run(const dycl_lower *l, const dycl_lower_memory *m, int inner) {
    for (int d = inner; d + 1 < l->space.rank; d++)
        if (m->strides[d] != m->strides[d + 1] * l->space.sizes[d + 1]) return 0;
    return 1;
}

/* Memory whose rows are scattered goes through a dense copy. */
static dycl_status make_dense(dycl_lower *l, dycl_lower_memory *m) {
    dycl_tensor here = {.ref = m->ref, .dtype = m->dtype, .rank = l->space.rank}, dense;
    for (int d = 0; d < l->space.rank; d++) {
        here.sizes[d] = l->space.sizes[d];
        here.strides[d] = m->strides[d];
    }
    dense = here;
    dycl_strides_contiguous(dense.rank, dense.sizes, dense.strides);
    dense.ref.offset = 0;
    dycl_status status =
        dycl_make_slot(l->b, (size_t)dycl_tensor_numel(&dense) * dycl_dtype_size(dense.dtype), &dense.ref.slot);
    if (status != DYCL_OK) return status;
    if (m->store) {
        l->after_from[l->after_count] = dense;
        l->after_to[l->after_count++] = here;
    } else
        status = dycl_make_copy(l->b, &here, &dense);
    m->ref = dense.ref;
    memcpy(m->strides, dense.strides, (size_t)dense.rank * sizeof(int64_t));
    return status;
}

static void collapse(dycl_lower *l, int *inner) {
    int rank = l->space.rank, out = 0;
    for (int d = 0; d < rank; d++) {
        int joins = out > 0 && d != *inner;
        for (int i = 0; joins && i < l->memory_count; i++) {
            const dycl_lower_memory *m = &l->memory[i];
            joins = m->strides[out - 1] == m->strides[d] * l->space.sizes[d];
        }
        if (joins) {
            l->space.sizes[out - 1] *= l->space.sizes[d];
            for (int i = 0; i < l->memory_count; i++) l->memory[i].strides[out - 1] = l->memory[i].strides[d];
            continue;
        }
        if (d == *inner) *inner = out;
        l->space.sizes[out] = l->space.sizes[d];
        for (int i = 0; i < l->memory_count; i++) l->memory[i].strides[out] = l->memory[i].strides[d];
        out++;
    }
    if (*inner == rank) *inner = out;
    l->space.rank = out;
}

/* Loops follow the memory order of the first result. */
static void sort_dimensions(dycl_lower *l) {
    const dycl_lower_memory *first = NULL;
    for (int i = 0; i < l->memory_count && !first; i++)
        if (l->memory[i].store) first = &l->memory[i];
    if (!first) return;
    for (int i = 1; i < l->space.rank; i++)
        for (int j = i; j > 0 && first->strides[j - 1] < first->strides[j]; j--) {
            int64_t size = l->space.sizes[j];
            l->space.sizes[j] = l->space.sizes[j - 1];
            l->space.sizes[j - 1] = size;
            for (int k = 0; k < l->memory_count; k++) {
                int64_t *s = l->memory[k].strides, t = s[j];
                s[j] = s[j - 1];
                s[j - 1] = t;
            }
        }
}

dycl_status dycl_lower_shape(dycl_lower *l) {
    int inner = l->space.rank, whole_rows = l->row && !l->adds_parts;
    if (whole_rows) {
        for (int64_t left = l->row; left > 1 && inner > 0;) left /= l->space.sizes[--inner];
        for (int i = 0; i < l->memory_count; i++) {
            if (row_is_run(l, &l->memory[i], inner)) continue;
            dycl_status status = make_dense(l, &l->memory[i]);
            if (status != DYCL_OK) return status;
        }
    } else
        sort_dimensions(l);
    collapse(l, &inner);
    dycl_tile_program *p = &l->program;
    if (!whole_rows) inner = l->space.rank > 0 ? l->space.rank - 1 : 0;
    p->outer = inner;
    p->columns = inner < l->space.rank ? l->space.sizes[inner] : 1;
    p->rows = 1;
    for (int d = 0; d < inner; d++) {
        p->outer_sizes[d] = l->space.sizes[d];
        p->rows *= l->space.sizes[d];
    }
    for (int i = 0; i < l->memory_count; i++) {
        dycl_lower_memory *m = &l->memory[i];
        m->column_stride = inner < l->space.rank ? m->strides[inner] : 1;
    }
    p->tile_columns = whole_rows || p->columns <= 2048 ? p->columns : 1024;
    p->tile_rows =
        p->columns >= 2048
            ? 1
            : 2048 /
                  p->columns; /* 8 KB a register: fewer instructions for one element a row, and L1 still holds them */
    if (p->tile_rows > p->rows) p->tile_rows = p->rows;
    p->row_tiles = (p->rows + p->tile_rows - 1) / p->tile_rows;
    p->column_tiles = (p->columns + p->tile_columns - 1) / p->tile_columns;
    return DYCL_OK;
}

void dycl_lower_classify(dycl_lower *l, dycl_lower_memory *m) {
    const dycl_tile_program *p = &l->program;
    int moves = 0;
    for (int d = 0; d < p->outer; d++) moves |= m->strides[d] != 0;
    m->linear = p->outer <= 1;
    int64_t element = (int64_t)dycl_dtype_size(m->dtype);
    int full = m->column_stride != 0;
    if (m->store)
        m->kind = full ? DYCL_KIND_FULL : DYCL_KIND_ROW;
    else if (!moves && p->rows > 1)
        m->kind = full ? DYCL_KIND_COLUMN : DYCL_KIND_ONE;
    else if (!full)
        m->kind = moves ? DYCL_KIND_ROW : DYCL_KIND_ONE;
    else
        m->kind = DYCL_KIND_FULL;
    if (m->kind == DYCL_KIND_COLUMN || m->kind == DYCL_KIND_ONE) m->linear = 1;
    int64_t row_stride = p->outer == 1 ? m->strides[0] : 0;
    /* several outer dimensions, yet one stride between rows */
    if (!m->linear && p->outer > 1) {
        int chain = 1;
        for (int d = 0; d + 1 < p->outer; d++) chain &= m->strides[d] == m->strides[d + 1] * p->outer_sizes[d + 1];
        if (chain) {
            m->linear = 1;
            row_stride = m->strides[p->outer - 1];
        }
    }
    int many = p->tile_rows > 1;
    switch (m->kind) {
    case DYCL_KIND_FULL:
        m->direct = (m->column_stride == 1 || p->tile_columns == 1) && (m->linear || !many);
        m->dense = !many || row_stride == p->columns;
        break;
    case DYCL_KIND_ROW:
        m->direct = !many || (m->linear && row_stride == 1);
        m->dense = 1;
        break;
    case DYCL_KIND_COLUMN: m->direct = m->column_stride == 1; break;
    default: m->direct = 1;
    }
    if (p->tile_columns == 1 && many && m->kind == DYCL_KIND_FULL) {
        m->direct = m->linear && row_stride == 1;
        m->dense = 1;
    }
    m->row_bytes = row_stride * element;
}

dycl_status dycl_lower_place(dycl_lower *l, dycl_lower_memory *m) {
    const dycl_tile_program *p = &l->program;
    int64_t element = (int64_t)dycl_dtype_size(m->dtype);
    dycl_tile_location at = {.ref = m->ref};
    at.row_bytes = m->kind == DYCL_KIND_COLUMN || m->kind == DYCL_KIND_ONE ? 0 : m->row_bytes;
    at.column_bytes = m->column_stride * element;
    if (m->kind == DYCL_KIND_ONE || (m->kind == DYCL_KIND_COLUMN && p->column_tiles == 1))
        at.at = DYCL_AT_ONE;
    else
        at.at = m->linear ? DYCL_AT_LINEAR : DYCL_AT_ODOMETER;
    if (at.at == DYCL_AT_ODOMETER && l->program.location_count < DYCL_TILE_LOCATIONS) {
        at.strides = (uint32_t)l->stride_count;
        for (int d = 0; d < p->outer; d++) l->strides[l->stride_count++] = m->strides[d] * element;
    }
    return dycl_lower_location(l, at, &m->location);
}
