/* Body of gradients of means over windows, part of mean_pool_body.h. What the windows of a row of the result give is
 * added up along the row, then to each row that they see; the first that comes to a row is written. */

#define SMALL 64 /* windows of which each column asks all that see it */

typedef struct {
    int64_t from, to;   /* columns */
    int64_t begin, end; /* the windows that see them */
    int64_t before;     /* where the first one is given: zeros around */
    int64_t at[2];      /* the first window of an even and an odd column, */
    int64_t taps[2];    /* and how many see it */
    int32_t left[WINDOWS], right[WINDOWS];
    float count[WINDOWS + vf_lanes];
    float given[COLUMNS + WINDOWS + 2 * SMALL + 4 * vf_lanes];
    float row[COLUMNS + 2 * vf_lanes];
} piece_back;

static int asks_windows(const dycl_mean_pool *p) { return by_vectors(p) && p->kernel[1] <= SMALL; }

/* From column `from` on, and of windows from `begin` on, as many columns as fit. 0: not one. */
static int take_columns(piece_back *b, const dycl_mean_pool *p, int64_t from, int64_t begin) {
    while (begin < p->ow && window_of(p, 1, begin).end <= from) begin++;
    b->from = b->to = from;
    b->begin = b->end = begin;
    for (; b->to < p->w && b->to - from < COLUMNS; b->to++) {
        int64_t end = b->end;
        for (; end < p->ow && end - begin <= WINDOWS; end++) {
            const window x = window_of(p, 1, end);
            if (x.begin > b->to) break;
            if (end - begin < WINDOWS) b->count[end - begin] = (float)x.count;
        }
        if (end - begin > WINDOWS) break;
        b->end = end;
    }
    for (int64_t i = begin; i < b->end; i++) {
        const window x = window_of(p, 1, i);
        b->left[i - begin] = (int32_t)(x.begin > from ? x.begin - from : 0);
        b->right[i - begin] = (int32_t)((x.end < b->to ? x.end : b->to) - from);
    }
    for (int64_t i = b->end - begin; i % vf_lanes; i++) b->count[i] = 1;
    b->before = 0;
    if (asks_windows(p)) {
        const int64_t stride = p->stride[1], high = from + p->pad[1], low = high - p->kernel[1] + 1;
        for (int64_t i = 0; i < stride; i++) { /* rounded up, from far to the left */
            b->at[i] = (low + i + stride - 1 + SMALL * stride) / stride - SMALL;
            b->taps[i] = (high + i) / stride - b->at[i] + 1;
        }
        b->before = begin - b->at[0];
        for (int64_t i = stride - 1; i >= 0; i--) b->at[i] -= b->at[0];
        memset(b->given, 0, sizeof b->given);
    }
    return b->to > from;
}

static inline __attribute__((always_inline)) vf asked(const float *given, int64_t taps) {
    vf sum = vf_set(0);
    for (int64_t k = 0; k < taps; k++) sum += vf_load(given + k);
    return sum;
}

/* What the windows give to each column of the piece. */
static void spread(piece_back *b, const dycl_mean_pool *p, const float *gradient, float rows) {
    const int64_t windows = b->end - b->begin, columns = b->to - b->from;
    float *given = b->given + b->before;
    for (int64_t i = 0; i < windows; i += vf_lanes)
        store_up_to(given + i, windows - i, load_up_to(gradient + i, windows - i) / (vf_load(b->count + i) * rows));
    if (!asks_windows(p)) {
        int64_t x = 0, written = 0;
        for (int64_t i = 0; i < windows; i++) {
            for (x = b->left[i]; written < x; written++) b->row[written] = 0;
            for (; x < b->right[i] && x < written; x++) b->row[x] += given[i];
            for (; x < b->right[i]; x += vf_lanes) vf_store(b->row + x, vf_set(given[i]) + 0.0f);
            if (written < b->right[i]) written = b->right[i];
        }
        for (; written < columns; written++) b->row[written] = 0;
    } else if (p->stride[1] == 1) {
        for (int64_t i = 0; i < columns; i += vf_lanes) vf_store(b->row + i, asked(b->given + i, b->taps[0]));
    } else {
        for (int64_t i = 0; 2 * i < columns; i += vf_lanes)
            store_by_turns(b->row + 2 * i, 2 * vf_lanes, asked(b->given + b->at[0] + i, b->taps[0]),
                           asked(b->given + b->at[1] + i, b->taps[1]));
    }
}

static void give_row(float *out, const float *row, int64_t count, int is_first) {
    int64_t i = 0;
    if (is_first) {
        memcpy(out, row, (size_t)count * sizeof *out);
        return;
    }
    for (; i < count; i += vf_lanes)
        store_up_to(out + i, count - i, load_up_to(out + i, count - i) + load_up_to(row + i, count - i));
}

/* Columns that more windows see than fit: one by one. */
static void column_back(float *out, const float *gradient, const dycl_mean_pool *p, int64_t x, int64_t begin) {
    for (int64_t y = 0; y < p->h; y++) out[y * p->w + x] = 0;
    for (int64_t oy = 0; oy < p->oh; oy++) {
        const window rows = window_of(p, 0, oy);
        float sum = 0;
        for (int64_t ox = begin; ox < p->ow; ox++) {
            const window columns = window_of(p, 1, ox);
            if (columns.begin > x) break;
            if (columns.end > x) sum += gradient[oy * p->ow + ox] / (float)(rows.count * columns.count);
        }
        for (int64_t y = rows.begin; y < rows.end; y++) out[y * p->w + x] += sum;
    }
}

static void planes_back(float *out, const float *gradient, const dycl_mean_pool *p, int64_t begin, int64_t end) {
    piece_back b = {.begin = 0};
    for (int64_t from = 0; from < p->w; from = b.to) {
        const int fits = take_columns(&b, p, from, b.begin);
        const size_t bytes = (size_t)(b.to - from) * sizeof *out;
        if (!fits) b.to = from + 1;
        for (int64_t at = begin; at < end; at++) {
            const float *given = gradient + at * p->oh * p->ow;
            float *plane = out + at * p->h * p->w;
            int64_t written = 0;
            if (!fits) {
                column_back(plane, given, p, from, b.begin);
                continue;
            }
            for (int64_t oy = 0; oy < p->oh; oy++) {
                const window y = window_of(p, 0, oy);
                spread(&b, p, given + oy * p->ow + b.begin, (float)y.count);
                for (; written < y.begin; written++) memset(plane + written * p->w + from, 0, bytes);
                for (int64_t row = y.begin; row < y.end; row++)
                    give_row(plane + row * p->w + from, b.row, b.to - from, row >= written);
                if (written < y.end) written = y.end;
            }
            for (; written < p->h; written++) memset(plane + written * p->w + from, 0, bytes);
        }
    }
}

/* ---- Channels last */

#define CHANNELS 256
#define ELEMENTS 4096 /* of a piece of a row: pixels times channels */

/* What a row's windows, from `ox` on, give to the pixels from..to: `count` channels. */
static void spread_pixels(float *row, const float *gradient, const dycl_mean_pool *p, float rows, int64_t ox,
                          int64_t from, int64_t to, int64_t count) {
    int64_t written = from;
    for (; ox < p->ow; ox++) {
        const window x = window_of(p, 1, ox);
        const int64_t first = x.begin > from ? x.begin : from, last = x.end < to ? x.end : to;
        if (first >= to) break;
        for (; written < first; written++) memset(row + (written - from) * count, 0, (size_t)count * sizeof *row);
        for (int64_t j = 0; j < count; j += vf_lanes) {
            const vf given = load_up_to(gradient + ox * p->c + j, count - j) / ((float)x.count * rows) + 0.0f;
            int64_t i = first;
            float *at = row + (first - from) * count + j;
            for (; i < last && i < written; i++, at += count)
                store_up_to(at, count - j, load_up_to(at, count - j) + given);
            for (; i < last; i++, at += count) store_up_to(at, count - j, given);
        }
        if (written < last) written = last;
    }
    if (written < to) memset(row + (written - from) * count, 0, (size_t)((to - written) * count) * sizeof *row);
}

/* The pixels from..to of a row of an image: `count` channels. */
static void give_pixels(float *out, const float *row, const dycl_mean_pool *p, int64_t pixels, int64_t count,
                        int is_first) {
    if (count == p->c) {
        give_row(out, row, pixels * count, is_first);
        return;
    }
    for (int64_t i = 0; i < pixels; i++) give_row(out + i * p->c, row + i * count, count, is_first);
}

static void clear_pixels(float *out, const dycl_mean_pool *p, int64_t pixels, int64_t count) {
    for (int64_t i = 0; i < pixels; i++) memset(out + i * p->c, 0, (size_t)count * sizeof *out);
}

static void pixels_back(float *out, const float *gradient, const dycl_mean_pool *p, int64_t begin, int64_t end) {
    float sum[ELEMENTS];
    for (int64_t j = begin, count; j < end; j += count) {
        count = end - j < CHANNELS ? end - j : CHANNELS;
        const int64_t many = ELEMENTS / count;
        for (int64_t from = 0, ox = 0; from < p->w; from += many) {
            const int64_t to = p->w - from < many ? p->w : from + many;
            int64_t written = 0;
            while (ox < p->ow && window_of(p, 1, ox).end <= from) ox++;
            for (int64_t oy = 0; oy < p->oh; oy++) {
                const window y = window_of(p, 0, oy);
                spread_pixels(sum, gradient + oy * p->ow * p->c + j, p, (float)y.count, ox, from, to, count);
                for (; written < y.begin; written++)
                    clear_pixels(out + (written * p->w + from) * p->c + j, p, to - from, count);
                for (int64_t row = y.begin; row < y.end; row++)
                    give_pixels(out + (row * p->w + from) * p->c + j, sum, p, to - from, count, row >= written);
                if (written < y.end) written = y.end;
            }
            for (; written < p->h; written++)
                clear_pixels(out + (written * p->w + from) * p->c + j, p, to - from, count);
        }
    }
}
