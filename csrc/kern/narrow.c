#include "kern/narrow.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"

#define GROUP   DYCL_NARROW_GROUP
#define HEADER  128 /* bytes before the columns */
#define COLUMNS 16  /* packed together: rows of B are read a cache line at a time */
#define SAMPLES 65536
#define CODES   15

DYCL_ISA_CHOICE(const dycl_narrow_table, dycl_narrow)
const dycl_narrow_table *dycl_kern_narrow(dycl_isa isa) { return dycl_narrow_for(isa); }

/* ---- Packing */

static int64_t groups_of(const dycl_narrow_layout *form) { return (form->k + GROUP - 1) / GROUP; }
static size_t most_kept(const dycl_narrow_layout *form) { return (size_t)(form->n * form->k) / 256 + 16; }
static size_t columns_bytes(const dycl_narrow_layout *form) {
    return (size_t)(form->n * groups_of(form) * dycl_narrow_group_bytes(28));
}

size_t dycl_narrow_bytes(const dycl_narrow_layout *form) {
    return HEADER + columns_bytes(form) + most_kept(form) * sizeof(dycl_narrow_kept) +
           (size_t)(form->n + 1) * sizeof(uint32_t);
}

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* From a part of the weights: how many bits may do, and for 28 the fifteen exponents that most of them have. */
static void look(const dycl_narrow_layout *form, const float *b, int *bits, int *base) {
    int64_t all = form->n * form->k, count = all < SAMPLES ? all : SAMPLES, seen[256] = {0}, best = -1;
    uint32_t low = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = (int64_t)((double)i * (double)all / (double)count);
        uint32_t u = bits_of(b[at % form->k * form->row + at / form->k * form->column]);
        low |= u & 0xffff;
        seen[u >> 23 & 255]++;
    }
    *bits = low ? 28 : 16;
    *base = 0;
    for (int first = 1; first + CODES - 1 < 255; first++) {
        int64_t inside = 0;
        for (int i = 0; i < CODES; i++) inside += seen[first + i];
        if (inside < best) continue;
        best = inside; /* the last of equals: outliers are large */
        *base = first - 1;
    }
}

static void gather(const dycl_narrow_layout *form, const float *b, int64_t p, int64_t j, int64_t columns,
                   float tile[COLUMNS][GROUP]) {
    int64_t rows = form->k - p < GROUP ? form->k - p : GROUP;
    const float *from = b + p * form->row + j * form->column;
    if (rows < GROUP) memset(tile, 0, sizeof(float[COLUMNS][GROUP]));
    if (form->row == 1) {
        for (int64_t c = 0; c < columns; c++) memcpy(tile[c], from + c * form->column, (size_t)rows * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c++) tile[c][i] = from[i * form->row + c * form->column];
}

/* Every column's groups, and how many weights of it have to be kept as begins[column + 1]. Ends early when there are
 * too many: then the sum says so. */
static size_t encode(const dycl_narrow_table *table, const dycl_narrow_layout *form, const float *b,
                     dycl_narrow_header *h, uint8_t *to, uint32_t *begins, int threads) {
    const int64_t size = dycl_narrow_group_bytes(h->bits), blocks = (form->n + COLUMNS - 1) / COLUMNS;
    const size_t most = most_kept(form);
    int (*const encode_group)(uint8_t *, const float *, int) = h->bits == 16 ? table->encode16 : table->encode28;
    atomic_size_t all;
    atomic_init(&all, 0);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t j = block * COLUMNS, columns = form->n - j < COLUMNS ? form->n - j : COLUMNS;
        uint32_t kept[COLUMNS] = {0};
        float tile[COLUMNS][GROUP];
        if (atomic_load_explicit(&all, memory_order_relaxed) > most) continue;
        for (int64_t group = 0; group < h->groups; group++) {
            gather(form, b, group * GROUP, j, columns, tile);
            for (int64_t c = 0; c < columns; c++)
                kept[c] += (uint32_t)encode_group(to + ((j + c) * h->groups + group) * size, tile[c], h->base);
        }
        for (int64_t c = 0; c < columns; c++) {
            begins[j + c + 1] = kept[c];
            atomic_fetch_add_explicit(&all, kept[c], memory_order_relaxed);
        }
    }
    return atomic_load(&all);
}

static int is_kept(const dycl_narrow_header *h, float x) {
    uint32_t u = bits_of(x), code = (u >> 23 & 255) - (uint32_t)h->base;
    return h->bits == 16 ? (u & 0xffff) != 0 : code - 1 >= CODES && u << 1;
}

static void keep(const dycl_narrow_layout *form, const float *b, const dycl_narrow_header *h, const uint32_t *begins,
                 dycl_narrow_kept *kept) {
    for (int64_t j = 0; j < form->n; j++) {
        dycl_narrow_kept *to = kept + begins[j];
        for (int64_t p = 0; p < form->k && to < kept + begins[j + 1]; p++) {
            float x = b[p * form->row + j * form->column];
            if (is_kept(h, x)) *to++ = (dycl_narrow_kept){(uint32_t)p, x};
        }
    }
}

void dycl_narrow_pack(const dycl_narrow_table *table, const dycl_narrow_layout *form, const float *b, void *packed,
                      int threads) {
    dycl_narrow_header *h = packed;
    uint8_t *columns = (uint8_t *)packed + HEADER;
    dycl_narrow_kept *kept = (dycl_narrow_kept *)(columns + columns_bytes(form));
    uint32_t *begins = (uint32_t *)(kept + most_kept(form));
    *h = (dycl_narrow_header){.groups = groups_of(form), .begins = begins, .kept = kept, .columns = columns};
    look(form, b, &h->bits, &h->base);
    size_t all = encode(table, form, b, h, columns, begins, threads);
    if (all && h->bits == 16) { /* not all low halves are zero */
        h->bits = 28;
        all = encode(table, form, b, h, columns, begins, threads);
    }
    if (all > most_kept(form)) return;
    begins[0] = 0;
    for (int64_t j = 0; j < form->n; j++) begins[j + 1] += begins[j];
    if (all) keep(form, b, h, begins, kept);
    h->usable = 1;
}

/* ---- Weights that are kept aside */

static float decode(const dycl_narrow_header *h, int64_t j, int64_t p) {
    const uint8_t *group = h->columns + (j * h->groups + p / GROUP) * dycl_narrow_group_bytes(h->bits);
    int64_t i = p % GROUP;
    uint16_t low;
    if (h->bits == 16)
        memcpy(&low, group + i % 16 * 4 + i / 16 * 2, 2);
    else
        memcpy(&low, group + 2 * i, 2);
    uint32_t u = h->bits == 16 ? (uint32_t)low << 16 : low, high = group[64 + i];
    if (h->bits != 16) {
        u |= (high & 0x80) << 24 | (high & 7) << 20 | (uint32_t)(group[96 + i % 16] >> (i < 16 ? 0 : 4) & 15) << 16;
        if (high >> 3 & 15) u |= ((high >> 3 & 15) + (uint32_t)h->base) << 23;
    }
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

double dycl_narrow_complete(const dycl_narrow *g, int i, int64_t j, double sum) {
    const dycl_narrow_header *h = g->packed;
    const dycl_narrow_kept *next = h->kept + h->begins[j], *end = h->kept + h->begins[j + 1];
    const float *a = g->a + i * g->lda;
    if (sum == sum) {
        for (const dycl_narrow_kept *kept = next; kept < end; kept++)
            sum += (double)a[kept->position] * (double)kept->weight;
        return sum;
    }
    sum = 0; /* an infinity of A may have met a zero that stands for another weight */
    for (int64_t p = 0; p < g->k; p++) {
        int kept = next < end && next->position == p;
        sum += (double)a[p] * (double)(kept ? next->weight : decode(h, j, p));
        next += kept;
    }
    return sum;
}
