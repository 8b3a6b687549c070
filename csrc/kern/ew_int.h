/* The elementwise operators on integers and bools, as expressions over a type T and its unsigned twin U. Overflow
 * wraps, as in torch; shifts by a negative or too large count are defined as torch defines them.
 *
 * Ownership: none, no state. Threads: any. */
#ifndef DYCL_KERN_EW_INT_H
#define DYCL_KERN_EW_INT_H

#include <stdint.h>

#define EW_BITS(T)   ((int)sizeof(T) * 8)
#define EW_SIGNED(T) ((T)-1 < (T)1)
/* The arithmetic type: U, or unsigned where U would be promoted to a signed int that can overflow. */
#define EW_WRAP(T, U, x, op, y) ((T)(U)((U)(x)op 1u * (U)(y)))

#define INT_copy(T, U, x)        (x)
#define INT_neg(T, U, x)         EW_WRAP(T, U, 0, -, x)
#define INT_abs(T, U, x)         ((x) < 1 ? EW_WRAP(T, U, 0, -, x) : (x))
#define INT_sign(T, U, x)        ((T)(((x) > 0) - (EW_SIGNED(T) && (x) < (T)1 && (x) != 0)))
#define INT_square(T, U, x)      EW_WRAP(T, U, x, *, x)
#define INT_relu(T, U, x)        ((x) < 1 && EW_SIGNED(T) ? (T)0 : (x))
#define INT_logical_not(T, U, x) ((x) == 0)
#define INT_bitwise_not(T, U, x) ((T) ~(x))
#define INT_add(T, U, x, y)      EW_WRAP(T, U, x, +, y)
#define INT_sub(T, U, x, y)      EW_WRAP(T, U, x, -, y)
#define INT_mul(T, U, x, y)      EW_WRAP(T, U, x, *, y)
/* The most negative number over -1 traps in hardware; it wraps here. So does anything over 0, which never gets here
 * (py/bind/elementwise.c): it is 0, as no mistake elsewhere is worth a process. */
#define INT_MINUS_ONE(T, y)       (EW_SIGNED(T) && (y) == (T)-1)
#define INT_trunc_div(T, U, x, y) (INT_MINUS_ONE(T, y) ? EW_WRAP(T, U, 0, -, x) : (y) == 0 ? (T)0 : (T)((x) / (y)))
#define INT_fmod(T, U, x, y)      (INT_MINUS_ONE(T, y) || (y) == 0 ? (T)0 : (T)((x) % (y)))
#define INT_OTHER_SIDE(T, x, y)   (EW_SIGNED(T) && (x) % (y) != 0 && (((x) ^ (y)) < (T)1) && ((x) ^ (y)) != 0)
#define INT_floor_div(T, U, x, y)                                                                                      \
    (INT_MINUS_ONE(T, y) ? EW_WRAP(T, U, 0, -, x) : (y) == 0 ? (T)0 : (T)((x) / (y)-INT_OTHER_SIDE(T, x, y)))
#define INT_remainder(T, U, x, y)                                                                                      \
    (INT_MINUS_ONE(T, y) || (y) == 0 ? (T)0 : (T)((x) % (y) + (INT_OTHER_SIDE(T, x, y) ? (y) : (T)0)))
#define INT_maximum(T, U, x, y)     ((x) > (y) ? (x) : (y))
#define INT_minimum(T, U, x, y)     ((x) < (y) ? (x) : (y))
#define INT_eq(T, U, x, y)          ((x) == (y))
#define INT_ne(T, U, x, y)          ((x) != (y))
#define INT_lt(T, U, x, y)          ((x) < (y))
#define INT_le(T, U, x, y)          ((x) <= (y))
#define INT_gt(T, U, x, y)          ((x) > (y))
#define INT_ge(T, U, x, y)          ((x) >= (y))
#define INT_logical_and(T, U, x, y) (((x) != 0) & ((y) != 0))
#define INT_logical_or(T, U, x, y)  (((x) != 0) | ((y) != 0))
#define INT_logical_xor(T, U, x, y) (((x) != 0) ^ ((y) != 0))
#define INT_bitwise_and(T, U, x, y) ((T)((x) & (y)))
#define INT_bitwise_or(T, U, x, y)  ((T)((x) | (y)))
#define INT_bitwise_xor(T, U, x, y) ((T)((x) ^ (y)))
/* A count outside [0, bits) shifts everything out: to 0, and to the sign on the right. */
#define EW_COUNT_OK(T, U, y)       ((U)(y) < EW_BITS(T))
#define INT_shift_left(T, U, x, y) (EW_COUNT_OK(T, U, y) ? (T)(U)((U)(x)*1u << ((y) & (EW_BITS(T) - 1))) : (T)0)
#define INT_shift_right(T, U, x, y)                                                                                    \
    (EW_COUNT_OK(T, U, y) ? (T)((x) >> ((y) & (EW_BITS(T) - 1))) : EW_SIGNED(T) ? (T)((x) >> (EW_BITS(T) - 1)) : (T)0)
#define INT_where(T, U, x, y, z) ((x) ? (y) : (z))
#define INT_clamp(T, U, x, y, z) INT_minimum(T, U, INT_maximum(T, U, x, y), z)

#define BOOL_copy(x)           (x)
#define BOOL_logical_not(x)    (!(x))
#define BOOL_bitwise_not(x)    (!(x))
#define BOOL_add(x, y)         ((x) | (y))
#define BOOL_mul(x, y)         ((x) & (y))
#define BOOL_maximum(x, y)     ((x) | (y))
#define BOOL_minimum(x, y)     ((x) & (y))
#define BOOL_eq(x, y)          ((x) == (y))
#define BOOL_ne(x, y)          ((x) != (y))
#define BOOL_lt(x, y)          ((x) < (y))
#define BOOL_le(x, y)          ((x) <= (y))
#define BOOL_gt(x, y)          ((x) > (y))
#define BOOL_ge(x, y)          ((x) >= (y))
#define BOOL_logical_and(x, y) ((x) & (y))
#define BOOL_logical_or(x, y)  ((x) | (y))
#define BOOL_logical_xor(x, y) ((x) ^ (y))
#define BOOL_bitwise_and(x, y) ((x) & (y))
#define BOOL_bitwise_or(x, y)  ((x) | (y))
#define BOOL_bitwise_xor(x, y) ((x) ^ (y))
#define BOOL_where(x, y, z)    ((x) ? (y) : (z))

#endif
