#include "kern/loss.h"
#include "kern/parallel.h"

#include <math.h>
#include <stdalign.h>

/* Losses of elements, in parts of the same size: a sum's parts stay in the first cache until they are added up. */

#define PART 2048 /* elements */

DYCL_ISA_CHOICE(const dycl_loss_table, dycl_loss_table)

static int64_t parts_of(const dycl_loss_desc *d) { return (d->n + PART - 1) / PART; }

size_t dycl_kern_loss_scratch(const dycl_loss_desc *d) {
    return d->sums ? (size_t)parts_of(d) * dycl_dtype_size(d->dtype) : 0;
}

/* The elements [begin, end), in pieces within which no operand begins again. */
static int elements(const dycl_loss_desc *d, char *to, const void *const *in, int64_t begin, int64_t end) {
    const dycl_loss_fn loss = dycl_loss_table_for(dycl_cpu_isa())->loss[d->kind][d->dtype == DYCL_F64];
    const int64_t element = (int64_t)dycl_dtype_size(d->dtype);
    unsigned ones = 0;
    int good = 1;
    for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) ones |= (unsigned)(d->period[k] == 0) << k;
    for (int64_t i = begin, count; i < end; i += count) {
        const void *at[DYCL_LOSS_OPERANDS];
        count = end - i;
        for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) {
            const int64_t place = d->period[k] ? i % d->period[k] : 0;
            if (d->period[k] && d->period[k] - place < count) count = d->period[k] - place;
            at[k] = (const char *)in[k] + place * element;
        }
        good &= loss(&d->numbers, to + (i - begin) * element, at, ones, (size_t)count);
    }
    return good;
}

static int part_of(const dycl_loss_desc *d, char *to, const void *const *in, void *sums, int64_t part) {
    const int64_t begin = part * PART, end = begin + PART < d->n ? begin + PART : d->n;
    const size_t element = dycl_dtype_size(d->dtype);
    if (!d->sums) return elements(d, to + (size_t)begin * element, in, begin, end);
    alignas(64) double room[PART];
    const int good = elements(d, (char *)room, in, begin, end);
    dycl_kern_red(dycl_cpu_isa(), DYCL_RED_SUM, d->dtype)((char *)sums + (size_t)part * element, room, NULL,
                                                          (size_t)(end - begin));
    return good;
}

static int work_of(dycl_loss kind) {
#define WORK(NAME, name, checked, work) work,
    static const int8_t work[] = {DYCL_LOSS_ROWS(WORK)};
    return work[kind];
}

int dycl_kern_loss(const dycl_loss_desc *desc, void *to, const void *const *given, void *scratch) {
    static const float one_f32 = 1;
    static const double one_f64 = 1;
    const void *in[DYCL_LOSS_OPERANDS];
    dycl_loss_desc d = *desc;
    const int64_t parts = parts_of(&d);
    const int threads = dycl_kern_threads((size_t)d.n * dycl_dtype_size(d.dtype) * (size_t)work_of(d.kind));
    int good = 1, exponent;
    d.numbers.inverse =
        frexp(d.numbers.at, &exponent) == 0.5 && exponent > -100 && exponent < 100 ? 1 / d.numbers.at : 0;
    for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) {
        in[k] = given[k] ? given[k] : d.dtype == DYCL_F32 ? (const void *)&one_f32 : &one_f64;
        if (!given[k]) d.period[k] = 0;
    }
#pragma omp parallel for num_threads(threads) schedule(static) reduction(& : good) if (threads > 1)
    for (int64_t part = 0; part < parts; part++) good &= part_of(&d, to, in, scratch, part);
    if (d.sums) dycl_kern_add_parts(d.dtype, to, scratch, parts, d.mean ? (double)d.n : 0);
    return good;
}
