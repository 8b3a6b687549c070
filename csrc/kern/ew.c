#include "kern/ew_table.h"

static const struct {
    const char *name;
    int arity, result_is_bool;
} rows[DYCL_EW_COUNT] = {
#define RESULT_SAME                                0
#define RESULT_BOOL                                1
#define DYCL_KERN_EW(name, arity, classes, result) [DYCL_EW_##name] = {#name, arity, RESULT_##result},
#include "kern/kern.def"
#undef DYCL_KERN_EW
};

#define BIT(dtype) (1u << DYCL_##dtype)
#define DTYPES_F   (BIT(F32) | BIT(F64) | BIT(BF16) | BIT(F16))
#define DTYPES_I   (BIT(I64) | BIT(I32) | BIT(I16) | BIT(I8) | BIT(U8))
#define DTYPES_B   BIT(BOOL)
#define DTYPES_FI  (DTYPES_F | DTYPES_I)
#define DTYPES_IB  (DTYPES_I | DTYPES_B)
#define DTYPES_FIB (DTYPES_F | DTYPES_I | DTYPES_B)

const uint16_t dycl_ew_dtypes[DYCL_EW_COUNT] = {
#define DYCL_KERN_EW(name, arity, classes, result) [DYCL_EW_##name] = DTYPES_##classes,
#include "kern/kern.def"
#undef DYCL_KERN_EW
};

DYCL_ISA_CHOICE(const dycl_ew_table, dycl_ew_table)
DYCL_ISA_CHOICE(const dycl_cast_table, dycl_cast_table)

dycl_ew_fn dycl_kern_ew(dycl_isa isa, dycl_ew op, dycl_dtype dtype, unsigned scalars) {
    return scalars < DYCL_EW_MASKS ? (*dycl_ew_table_for(isa))[op][dtype][scalars] : NULL;
}

const char *dycl_ew_name(dycl_ew op) { return rows[op].name; }
int dycl_ew_arity(dycl_ew op) { return rows[op].arity; }
int dycl_ew_result_is_bool(dycl_ew op) { return rows[op].result_is_bool; }

static const dycl_ew_pair pairs[] = {
#define DYCL_KERN_EW(name, arity, classes, result)
#define DYCL_KERN_PAIR(name, operands, first, its, second, others) {DYCL_EW_##name, DYCL_EW_##first, DYCL_EW_##second},
#include "kern/kern.def"
#undef DYCL_KERN_EW
};

const dycl_ew_pair *dycl_ew_pair_of(dycl_ew op) {
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].both == op) return &pairs[i];
    return NULL;
}

const dycl_ew_pair *dycl_ew_pair_find(dycl_ew first, dycl_ew second) {
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].first == first && pairs[i].second == second) return &pairs[i];
    return NULL;
}

dycl_ew_fn dycl_kern_cast(dycl_isa isa, dycl_dtype from, dycl_dtype to) {
    return dycl_cast_table_for(isa)->cast[from][to];
}

dycl_ew_fn dycl_kern_round(dycl_isa isa, dycl_dtype half) { return dycl_cast_table_for(isa)->round[half]; }
dycl_ew_fn dycl_kern_finish(dycl_isa isa, dycl_dtype half) { return dycl_cast_table_for(isa)->finish[half]; }
