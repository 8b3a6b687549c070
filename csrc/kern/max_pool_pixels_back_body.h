/* Body of max pooling's gradient in channels last, part of max_pool_body.h: a window's vectors of channels go back to
 * its elements, window by window, as torch adds. */

static inline __attribute__((always_inline)) void window_back(float *out, const float *gradient, const float *in,
                                                              const dycl_max_pool *p, taps ys, taps xs, int64_t count) {
    const int64_t right = p->c, down = p->w * p->c;
    vf most = vf_set(-INFINITY), given = load_up_to(gradient, count);
    vf_int place = {0};
    int32_t tap = 0;
    for (int64_t y = ys.first; y < ys.end; y++)
        for (int64_t x = xs.first; x < xs.end; x++, tap++) {
            vf value = load_up_to(in + y * down + x * right, count);
            vf_int wins = (vf_int)(value > most) | (vf_int)(value != value);
            most = vf_select(wins, value, most);
            place = (wins & (tap - (vf_int){0})) | (~wins & place);
        }
    tap = 0;
    for (int64_t y = ys.first; y < ys.end; y++)
        for (int64_t x = xs.first; x < xs.end; x++, tap++) {
            float *at = out + y * down + x * right;
            vf sum = load_up_to(at, count) + (vf)((vf_int)(place == tap) & (vf_int)given);
            store_up_to(at, count, sum);
        }
}

/* Of one image the channels begin..end. */
static void pixels_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p, int64_t begin,
                        int64_t end) {
    const size_t part = (size_t)(end - begin) * sizeof *out;
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
            for (; j + vf_lanes <= end; j += vf_lanes)
                window_back(out + from + j, gradient + to + j, in + from + j, p, ys, xs, vf_lanes);
            if (j < end) window_back(out + from + j, gradient + to + j, in + from + j, p, ys, xs, end - j);
        }
    }
}
