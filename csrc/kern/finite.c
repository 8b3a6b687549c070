#include <string.h>

#include "kern/kern.h"

typedef uint32_t lanes __attribute__((vector_size(64)));

/* An infinity or a NaN has all exponent bits set. */
int dycl_kern_all_finite(const float *data, size_t n) {
    const uint32_t exponent = UINT32_C(0x7f800000);
    lanes bad = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        lanes bits;
        memcpy(&bits, data + i, sizeof bits);
        bad |= (lanes)((bits & exponent) == exponent);
    }
    uint32_t any = 0;
    for (int k = 0; k < 16; k++) any |= bad[k];
    for (; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, data + i, sizeof bits);
        any |= (bits & exponent) == exponent;
    }
    return any == 0;
}
