/* Body of max pooling's gradient in channels last, part of max_pool_body.h: a window's vectors of channels go back to
 * its elements, window by window, as torch adds. */

static inline __attribute__((always_inline)) void window_back(float *out, const float *gradient, const float *in,
                                                              const dycl_max_pool *p, taps ys, taps xs, int64_t count) {
    const int64_t right = p->c, down = p->w * p->c;
    vf most = vf_set(-INFINITY), given = load_up_to(gradient, count);
    vf_int place = {0};
    int32_t tap = 0;
    for (int64_t y = ys.first; y < ys.end; y++)
        for (int64_t x = xs.first; x < xs.end; x++, tap++)
            take_larger(load_up_to(in + y * down + x * right, count), &most, &place, tap);
    tap = 0;
    for (int64_t y = ys.first; y < ys.end; y++)
        for (int64_t x = xs.first; x < xs.end; x++, tap++) {
            float *at = out + y * down + x * right;
            store_up_to(at, count, add_where(load_up_to(at, count), place, tap, given));
        }
}

/* The same of many elements: one by one what each channel gives. */
static void large_window_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p, taps ys,
                              taps xs, int64_t count) {
    const int32_t right = (int32_t)p->c, down = (int32_t)(p->w * p->c);
    const int32_t first = (int32_t)ys.first * down + (int32_t)xs.first * right;
    vf most = vf_set(-INFINITY);
    vf_int place = first - (vf_int){0};
    int32_t where[vf_lanes];
    for (int32_t y = (int32_t)ys.first; y < ys.end; y++)
        for (int32_t x = (int32_t)xs.first; x < xs.end; x++)
            take_larger(load_up_to(in + y * down + x * right, count), &most, &place, y * down + x * right);
    memcpy(where, &place, sizeof where);
    for (int k = 0; k < vf_lanes && k < count; k++) out[where[k] + k] += gradient[k];
}

/* Of one image the channels begin..end. */
static void pixels_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p, int64_t begin,
                        int64_t end) {
    const size_t part = (size_t)(end - begin) * sizeof *out;
    const int is_large =
        p->kernel[0] * p->kernel[1] > 16 && p->kernel[0] < INT32_MAX / (p->w * p->c) && p->kernel[1] <= p->w;
    int64_t cleared = 0;
    for (int64_t oy = 0; oy <= p->oh; oy++) {
        const taps ys = oy < p->oh ? taps_of(p, 0, oy) : (taps){0, p->h, 0};
        for (; cleared < ys.origin + ys.end; cleared++) { /* just before it is added to */
            float *row = out + cleared * p->w * p->c;
            if (end - begin == p->c) memset(row, 0, (size_t)p->w * part);
            for (int64_t x = 0; x < p->w && end - begin < p->c; x++) memset(row + x * p->c + begin, 0, part);
        }
        for (int64_t ox = 0; oy < p->oh && ox < p->ow; ox++) {
            const taps xs = taps_of(p, 1, ox);
            const int64_t from = (ys.origin * p->w + xs.origin) * p->c, to = (oy * p->ow + ox) * p->c;
            int64_t j = begin;
            for (; is_large && j < end; j += vf_lanes)
                large_window_back(out + from + j, gradient + to + j, in + from + j, p, ys, xs, end - j);
            for (; j + vf_lanes <= end; j += vf_lanes)
                window_back(out + from + j, gradient + to + j, in + from + j, p, ys, xs, vf_lanes);
            if (j < end) window_back(out + from + j, gradient + to + j, in + from + j, p, ys, xs, end - j);
        }
    }
}
