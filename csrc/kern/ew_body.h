/* The elementwise kernels of one ISA: kern.def expanded into a loop for each operator, dtype and set of scalar
 * operands, and into the table of them. The including file sets DYCL_SIMD_WIDTH and EW_ISA (scalar, avx2, avx512). A
 * row without an expression in ew_f32.h, ew_f64.h or ew_int.h does not compile.
 *
 * Ownership: none. Threads: pure functions, immutable table. */
#include "kern/ew_f32.h"
#include "kern/ew_f64.h"
#include "kern/ew_int.h"
#include "kern/ew_table.h"

/* A missing expression would be taken for a function, and found missing only when the library is loaded. */
#pragma GCC diagnostic error "-Wimplicit-function-declaration"

#define EW_PASTE_(a, b) a##b
#define EW_PASTE(a, b)  EW_PASTE_(a, b)

/* One lane a step: the compiler vectorises what it can for the baseline. */
#if VW == 1
#define EW_LOOP _Pragma("omp simd") for
#else
#define EW_LOOP for
#endif

/* What stands first in a row of three operands: the dtype of the others, but for what is named here. */
#define EW_FIRST_where          , BYTE
#define EW_SECOND_OF(a, b, ...) b
#define EW_FIRST_OR(named, ...) EW_SECOND_OF(named, __VA_ARGS__)
#define EW_FIRST(name)          EW_FIRST_OR(EW_FIRST_##name, SAME, )

#define EW_PLAIN_SAME(T) T
#define EW_PLAIN_BYTE(T) uint8_t
#define EW_PLAIN_BOOL(T) uint8_t
#define EW_VEC_SAME      vf
#define EW_VEC_BYTE      vm
#define EW_SET_SAME      v_set1
#define EW_SET_BYTE      k_set1
#define EW_LOAD_SAME     v_load
#define EW_LOAD_BYTE     k_load
#define EW_LOAD_N_SAME   v_load_n
#define EW_LOAD_N_BYTE   k_load_n
#define EW_STORE_SAME    v_store
#define EW_STORE_BOOL    k_store
#define EW_STORE_N_SAME  v_store_n
#define EW_STORE_N_BOOL  k_store_n

/* ---- f32 loops: whole vectors, then one partial vector */
/* Scalar operands are read before the first store, for dst may be one of them. */

#define EW_HEAD(name, dtype, mask)                                                                                     \
    static void loop_##dtype##_##name##_##mask(void *dst, const void *a, const void *b, const void *c, size_t n)

#define EW_F32_LOOP_1(name, result)                                                                                    \
    EW_HEAD(name, F32, 0) {                                                                                            \
        EW_PLAIN_##result(float) *d = dst;                                                                             \
        const float *pa = a;                                                                                           \
        const size_t whole = n - n % VW;                                                                               \
        size_t i;                                                                                                      \
        (void)b, (void)c;                                                                                              \
        EW_LOOP(i = 0; i < whole; i += VW) EW_STORE_##result(d + i, f32_##name(v_load(pa + i)));                       \
        if (VW > 1 && i < n) EW_STORE_N_##result(d + i, f32_##name(v_load_n(pa + i, n - i)), n - i);                   \
    }

#define EW_F32_LOOP_2(name, result, mask)                                                                              \
    EW_HEAD(name, F32, mask) {                                                                                         \
        EW_PLAIN_##result(float) *d = dst;                                                                             \
        const float *pa = a, *pb = b;                                                                                  \
        const size_t whole = n - n % VW;                                                                               \
        size_t i;                                                                                                      \
        (void)c;                                                                                                       \
        if (n == 0) return;                                                                                            \
        const vf sa = v_set1(*pa), sb = v_set1(*pb);                                                                   \
        EW_LOOP(i = 0; i < whole; i += VW)                                                                             \
        EW_STORE_##result(d + i, f32_##name((mask)&1 ? sa : v_load(pa + i), (mask)&2 ? sb : v_load(pb + i)));          \
        if (VW > 1 && i < n)                                                                                           \
            EW_STORE_N_##result(                                                                                       \
                d + i, f32_##name((mask)&1 ? sa : v_load_n(pa + i, n - i), (mask)&2 ? sb : v_load_n(pb + i, n - i)),   \
                n - i);                                                                                                \
    }

#define EW_F32_LOOP_3_(name, result, mask, first)                                                                      \
    EW_HEAD(name, F32, mask) {                                                                                         \
        EW_PLAIN_##result(float) *d = dst;                                                                             \
        const EW_PLAIN_##first(float) *pa = a;                                                                         \
        const float *pb = b, *pc = c;                                                                                  \
        const size_t whole = n - n % VW;                                                                               \
        size_t i;                                                                                                      \
        if (n == 0) return;                                                                                            \
        const EW_VEC_##first sa = EW_SET_##first(*pa);                                                                 \
        const vf sb = v_set1(*pb), sc = v_set1(*pc);                                                                   \
        EW_LOOP(i = 0; i < whole; i += VW)                                                                             \
        EW_STORE_##result(d + i, f32_##name((mask)&1 ? sa : EW_LOAD_##first(pa + i), (mask)&2 ? sb : v_load(pb + i),   \
                                            (mask)&4 ? sc : v_load(pc + i)));                                          \
        if (VW > 1 && i < n)                                                                                           \
            EW_STORE_N_##result(d + i,                                                                                 \
                                f32_##name((mask)&1 ? sa : EW_LOAD_N_##first(pa + i, n - i),                           \
                                           (mask)&2 ? sb : v_load_n(pb + i, n - i),                                    \
                                           (mask)&4 ? sc : v_load_n(pc + i, n - i)),                                   \
                                n - i);                                                                                \
    }
#define EW_F32_LOOP_3(name, result, mask)          EW_F32_LOOP_3__(name, result, mask, EW_FIRST(name))
#define EW_F32_LOOP_3__(name, result, mask, first) EW_F32_LOOP_3_(name, result, mask, first)

/* ---- Loops over other dtypes, vectorised by the compiler */
/* dst may equal an operand, which carries no dependence from one element to another. */

#define EW_PLAIN_LOOP_1(name, dtype, T, result, value)                                                                 \
    EW_HEAD(name, dtype, 0) {                                                                                          \
        EW_PLAIN_##result(T) *d = dst;                                                                                 \
        const T *pa = a;                                                                                               \
        (void)b, (void)c;                                                                                              \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++) {                                                           \
            const T x = pa[i];                                                                                         \
            d[i] = (EW_PLAIN_##result(T))(value);                                                                      \
        }                                                                                                              \
    }

/* f64_##name where no element of a block is beyond F64_ANGLE_BOUND. In the other blocks each element gets the same, or
 * libm's: a result must not depend on its neighbours. */
#define EW_F64_LOOP_ANGLE(name, result)                                                                                \
    EW_HEAD(name, F64, 0) {                                                                                            \
        double *d = dst;                                                                                               \
        const double *pa = a;                                                                                          \
        (void)b, (void)c;                                                                                              \
        for (size_t at = 0; at < n; at += EW_ANGLE_BLOCK) {                                                            \
            const size_t end = n - at < EW_ANGLE_BLOCK ? n : at + EW_ANGLE_BLOCK;                                      \
            double largest = 0;                                                                                        \
            _Pragma("omp simd reduction(max : largest)") for (size_t i = at; i < end; i++) {                           \
                const double x = fabs(pa[i]);                                                                          \
                largest = x > largest ? x : largest;                                                                   \
            }                                                                                                          \
            if (largest <= F64_ANGLE_BOUND) {                                                                          \
                _Pragma("omp simd") for (size_t i = at; i < end; i++) d[i] = f64_##name(pa[i]);                        \
            } else {                                                                                                   \
                for (size_t i = at; i < end; i++)                                                                      \
                    d[i] = fabs(pa[i]) > F64_ANGLE_BOUND ? name(pa[i]) : f64_##name(pa[i]);                            \
            }                                                                                                          \
        }                                                                                                              \
    }
#define EW_ANGLE_BLOCK 256

#define EW_PLAIN_LOOP_2(name, dtype, T, result, mask, value)                                                           \
    EW_HEAD(name, dtype, mask) {                                                                                       \
        EW_PLAIN_##result(T) *d = dst;                                                                                 \
        const T *pa = a, *pb = b;                                                                                      \
        (void)c;                                                                                                       \
        if (n == 0) return;                                                                                            \
        const T sa = *pa, sb = *pb;                                                                                    \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++) {                                                           \
            const T x = (mask)&1 ? sa : pa[i], y = (mask)&2 ? sb : pb[i];                                              \
            d[i] = (EW_PLAIN_##result(T))(value);                                                                      \
        }                                                                                                              \
    }

#define EW_PLAIN_LOOP_3_(name, dtype, T, result, mask, value, first)                                                   \
    EW_HEAD(name, dtype, mask) {                                                                                       \
        EW_PLAIN_##result(T) *d = dst;                                                                                 \
        const EW_PLAIN_##first(T) *pa = a;                                                                             \
        const T *pb = b, *pc = c;                                                                                      \
        if (n == 0) return;                                                                                            \
        const EW_PLAIN_##first(T) sa = *pa;                                                                            \
        const T sb = *pb, sc = *pc;                                                                                    \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++) {                                                           \
            const EW_PLAIN_##first(T) x = (mask)&1 ? sa : pa[i];                                                       \
            const T y = (mask)&2 ? sb : pb[i], z = (mask)&4 ? sc : pc[i];                                              \
            d[i] = (EW_PLAIN_##result(T))(value);                                                                      \
        }                                                                                                              \
    }
#define EW_PLAIN_LOOP_3__(name, dtype, T, result, mask, value, first)                                                  \
    EW_PLAIN_LOOP_3_(name, dtype, T, result, mask, value, first)
#define EW_PLAIN_LOOP_3(name, dtype, T, result, mask, value)                                                           \
    EW_PLAIN_LOOP_3__(name, dtype, T, result, mask, value, EW_FIRST(name))

/* ---- From rows to loops */

#define EW_F32_1(name, result) EW_F32_LOOP_1(name, result)
#define EW_F32_2(name, result)                                                                                         \
    EW_F32_LOOP_2(name, result, 0) EW_F32_LOOP_2(name, result, 1) EW_F32_LOOP_2(name, result, 2)
#define EW_F32_3(name, result)                                                                                         \
    EW_F32_LOOP_3(name, result, 0)                                                                                     \
    EW_F32_LOOP_3(name, result, 1)                                                                                     \
    EW_F32_LOOP_3(name, result, 2)                                                                                     \
    EW_F32_LOOP_3(name, result, 3)                                                                                     \
    EW_F32_LOOP_3(name, result, 4) EW_F32_LOOP_3(name, result, 5) EW_F32_LOOP_3(name, result, 6)

#define EW_PLAIN_2(name, dtype, T, result, value)                                                                      \
    EW_PLAIN_LOOP_2(name, dtype, T, result, 0, value)                                                                  \
    EW_PLAIN_LOOP_2(name, dtype, T, result, 1, value)                                                                  \
    EW_PLAIN_LOOP_2(name, dtype, T, result, 2, value)
#define EW_PLAIN_3(name, dtype, T, result, value)                                                                      \
    EW_PLAIN_LOOP_3(name, dtype, T, result, 0, value)                                                                  \
    EW_PLAIN_LOOP_3(name, dtype, T, result, 1, value)                                                                  \
    EW_PLAIN_LOOP_3(name, dtype, T, result, 2, value)                                                                  \
    EW_PLAIN_LOOP_3(name, dtype, T, result, 3, value)                                                                  \
    EW_PLAIN_LOOP_3(name, dtype, T, result, 4, value)                                                                  \
    EW_PLAIN_LOOP_3(name, dtype, T, result, 5, value)                                                                  \
    EW_PLAIN_LOOP_3(name, dtype, T, result, 6, value)

/* Which loop a row of one operand gets: ANY but for what is named here. */
#define EW_F64_LOOP_ANY(name, result)  EW_PLAIN_LOOP_1(name, F64, double, result, f64_##name(x))
#define EW_F64_LOOP_sin                , ANGLE
#define EW_F64_LOOP_cos                , ANGLE
#define EW_F64_LOOP_tan                , ANGLE
#define EW_F64_LOOP_OF(name)           EW_FIRST_OR(EW_F64_LOOP_##name, ANY, )
#define EW_F64_1__(name, result, loop) EW_F64_LOOP_##loop(name, result)
#define EW_F64_1_(name, result, loop)  EW_F64_1__(name, result, loop)
#define EW_F64_1(name, result)         EW_F64_1_(name, result, EW_F64_LOOP_OF(name))
#define EW_F64_2(name, result)         EW_PLAIN_2(name, F64, double, result, f64_##name(x, y))
#define EW_F64_3(name, result)         EW_PLAIN_3(name, F64, double, result, f64_##name(x, y, z))

#define EW_INT_1(name, dtype, T, U, result) EW_PLAIN_LOOP_1(name, dtype, T, result, INT_##name(T, U, x))
#define EW_INT_2(name, dtype, T, U, result) EW_PLAIN_2(name, dtype, T, result, INT_##name(T, U, x, y))
#define EW_INT_3(name, dtype, T, U, result) EW_PLAIN_3(name, dtype, T, result, INT_##name(T, U, x, y, z))

/* Any byte other than 0 is true: a view of bytes as bool has them. */
#define EW_TRUTH(x)             ((uint8_t)((x) != 0))
#define EW_BOOL_1(name, result) EW_PLAIN_LOOP_1(name, BOOL, uint8_t, result, BOOL_##name(EW_TRUTH(x)))
#define EW_BOOL_2(name, result) EW_PLAIN_2(name, BOOL, uint8_t, result, BOOL_##name(EW_TRUTH(x), EW_TRUTH(y)))
#define EW_BOOL_3(name, result) EW_PLAIN_3(name, BOOL, uint8_t, result, BOOL_##name(x, EW_TRUTH(y), EW_TRUTH(z)))

#define EW_ROW_F(name, arity, result) EW_F32_##arity(name, result) EW_F64_##arity(name, result)
#define EW_ROW_I(name, arity, result)                                                                                  \
    EW_INT_##arity(name, I64, int64_t, uint64_t, result) EW_INT_##arity(name, I32, int32_t, uint32_t, result)          \
        EW_INT_##arity(name, I16, int16_t, uint16_t, result) EW_INT_##arity(name, I8, int8_t, uint8_t, result)         \
            EW_INT_##arity(name, U8, uint8_t, uint8_t, result)
#define EW_ROW_B(name, arity, result)   EW_BOOL_##arity(name, result)
#define EW_ROW_FI(name, arity, result)  EW_ROW_F(name, arity, result) EW_ROW_I(name, arity, result)
#define EW_ROW_IB(name, arity, result)  EW_ROW_I(name, arity, result) EW_ROW_B(name, arity, result)
#define EW_ROW_FIB(name, arity, result) EW_ROW_FI(name, arity, result) EW_ROW_B(name, arity, result)

#define DYCL_KERN_EW(name, arity, classes, result) EW_ROW_##classes(name, arity, result)
#include "kern/kern.def"
#undef DYCL_KERN_EW

/* ---- The table */

#define EW_CELL_1(name, dtype) [DYCL_##dtype] = {loop_##dtype##_##name##_0},
#define EW_CELL_2(name, dtype)                                                                                         \
    [DYCL_##dtype] = {loop_##dtype##_##name##_0, loop_##dtype##_##name##_1, loop_##dtype##_##name##_2},
#define EW_CELL_3(name, dtype)                                                                                         \
    [DYCL_##dtype] = {loop_##dtype##_##name##_0, loop_##dtype##_##name##_1, loop_##dtype##_##name##_2,                 \
                      loop_##dtype##_##name##_3, loop_##dtype##_##name##_4, loop_##dtype##_##name##_5,                 \
                      loop_##dtype##_##name##_6},
#define EW_CELLS_F(cell, name)   cell(name, F32) cell(name, F64)
#define EW_CELLS_I(cell, name)   cell(name, I64) cell(name, I32) cell(name, I16) cell(name, I8) cell(name, U8)
#define EW_CELLS_B(cell, name)   cell(name, BOOL)
#define EW_CELLS_FI(cell, name)  EW_CELLS_F(cell, name) EW_CELLS_I(cell, name)
#define EW_CELLS_IB(cell, name)  EW_CELLS_I(cell, name) EW_CELLS_B(cell, name)
#define EW_CELLS_FIB(cell, name) EW_CELLS_FI(cell, name) EW_CELLS_B(cell, name)

const dycl_ew_table EW_PASTE(dycl_ew_table__, EW_ISA) = {
#define DYCL_KERN_EW(name, arity, classes, result) [DYCL_EW_##name] = {EW_CELLS_##classes(EW_CELL_##arity, name)},
#include "kern/kern.def"
#undef DYCL_KERN_EW
};
