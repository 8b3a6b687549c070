/* Random numbers of the C tests: the same in every run (xorshift64). */
#ifndef DYCL_TEST_RANDOM_H
#define DYCL_TEST_RANDOM_H

#include <stdint.h>
#include <string.h>

static uint64_t random_state = 88172645463325252u;

static inline uint64_t rnd(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}
static inline int64_t below(int64_t n) { return (int64_t)(rnd() % (uint64_t)n); }
static inline int64_t pick(int64_t low, int64_t high) { return low + below(high - low + 1); }
static inline float rnd_float(void) {
    return (float)((double)(rnd() >> 11) / 9007199254740992.0 * 2 - 1);
} /* -1 .. 1 */
static inline float rnd_bits(void) { /* any float: infinities, NaN, denormal numbers */
    uint32_t bits = (uint32_t)rnd();
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
