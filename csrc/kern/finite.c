#include <string.h>

#include "kern/kern.h"

typedef uint32_t lanes __attribute__((vector_size(16)));

/* Without its sign, a number of 2^limit or more has at least that many bits: adding what 2^31 is above that carries
 * into the sign bit for these alone. */
int dycl_kern_all_below(const float *data, size_t n, int limit) {
    const uint32_t magnitude = UINT32_C(0x7fffffff), carry = UINT32_C(0x80000000) - ((uint32_t)(limit + 127) << 23);
    lanes seen[4] = {{0}, {0}, {0}, {0}};
    uint32_t any = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        lanes bits[4];
        memcpy(bits, data + i, sizeof bits);
        for (int k = 0; k < 4; k++) seen[k] |= (bits[k] & magnitude) + carry;
    }
    for (int k = 0; k < 4; k++)
        for (int j = 0; j < 4; j++) any |= seen[k][j];
    for (; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, data + i, sizeof bits);
        any |= (bits & magnitude) + carry;
    }
    return !(any >> 31);
}
