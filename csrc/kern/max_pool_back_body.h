/* Body of max pooling's gradient, part of max_pool_body.h. Which element was a window's largest is seen from the
 * operand again. Each element adds what its windows give in the result's order, as torch. */

/* ---- Large windows: the largest of many windows at once, whose gradients are added one by one */

static inline void most_where(float *best, int32_t *where, const float *row, int64_t kernel, int64_t stride,
                              int32_t at) {
    vf most = vf_load(best);
    vf_int place;
    memcpy(&place, where, sizeof place);
    for (int32_t k = 0; k < (int32_t)kernel; k++, row++) {
        vf value = apart(row, stride);
        vf_int wins = (value > most) | (value != value);
        most = vf_select(wins, value, most);
        place = (wins & ((at + k) - (vf_int){0})) | (~wins & place);
    }
    vf_store(best, most);
    memcpy(where, &place, sizeof place);
}

/* `along` that also notes where the largest is, counted from where the window meets the plane: `at` and the tap. */
static void along_where(float *best, int32_t *where, const float *row, int64_t count, int64_t kernel, int64_t stride,
                        int32_t at) {
    int64_t i = 0;
    for (; stride > 2 && i + vf_lanes <= count; i += vf_lanes)
        most_where(best + i, where + i, row + i * stride, kernel, stride, at);
    if (stride > 2) {
        for (; i < count; i++)
            for (int32_t k = 0; k < (int32_t)kernel; k++) {
                float value = row[i * stride + k];
                if (value > best[i] || value != value) best[i] = value, where[i] = at + k;
            }
        return;
    }
    for (; i < count; i += vf_lanes) most_where(best + i, where + i, row + i * stride, kernel, stride, at);
}

/* So many windows of a row of the result, in one piece. */
static void piece_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p, taps ys,
                       int64_t begin, int64_t count) {
    float row[COLUMNS + 3 * vf_lanes], best[COLUMNS + vf_lanes];
    int32_t where[COLUMNS + vf_lanes];
    const int64_t stride = p->stride[1], from = begin * stride - p->pad[1], width = p->w;
    int64_t room = (count - 1) * stride + p->kernel[1] + 3 * vf_lanes;
    int64_t first = from < 0 ? -from : 0, end = width - from < room ? width - from : room;
    if (end < first) end = first;
    for (int64_t i = 0; i < first; i++) row[i] = -INFINITY;
    for (int64_t i = end; i < room; i++) row[i] = -INFINITY;
    for (int64_t i = 0; i < count + vf_lanes; i++) {
        best[i] = -INFINITY;
        where[i] = 0;
    }
    for (int64_t i = 0; i < count && from + i * stride < 0; i++) where[i] -= (int32_t)(from + i * stride);
    for (int64_t y = ys.first; y < ys.end; y++) {
        memcpy(row + first, in + (ys.origin + y) * width + from + first, (size_t)(end - first) * sizeof *row);
        along_where(best, where, row, count, p->kernel[1], stride, (int32_t)((y - ys.first) * width));
    }
    int64_t origin = (ys.origin + ys.first) * width + from;
    for (int64_t i = 0; i < count; i++) out[origin + i * stride + where[i]] += gradient[i];
}

static void wide_row_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p, taps ys) {
    for (int64_t ox = 0; ox < p->ow; ox++) {
        const taps xs = taps_of(p, 1, ox);
        int64_t found = (ys.origin + ys.first) * p->w + xs.origin + xs.first;
        float best = -INFINITY;
        for (int64_t y = ys.first; y < ys.end; y++)
            for (int64_t x = xs.first; x < xs.end; x++) {
                int64_t at = (ys.origin + y) * p->w + xs.origin + x;
                if (in[at] > best || in[at] != in[at]) best = in[at], found = at;
            }
        out[found] += gradient[ox];
    }
}

/* Window by window in the result's order, in which torch adds. */
static void scatter_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p) {
    const int64_t many = p->kernel[1] > COLUMNS ? 0 : (COLUMNS - p->kernel[1]) / p->stride[1] + 1;
    memset(out, 0, (size_t)(p->h * p->w) * sizeof *out);
    for (int64_t oy = 0; oy < p->oh; oy++, gradient += p->ow) {
        const taps ys = taps_of(p, 0, oy);
        if (!many) wide_row_back(out, gradient, in, p, ys);
        for (int64_t begin = 0; many && begin < p->ow; begin += many) {
            int64_t count = p->ow - begin < many ? p->ow - begin : many;
            piece_back(out, gradient + begin, in, p, ys, begin, count);
        }
    }
}

/* ---- Small windows: each element asks its windows, many elements at once
 *
 * In bands of rows. What is stored is read shifted by an element: a band goes by in between, or the processor waits
 * for each store. */

#define LINES   8192 /* elements of a band's image */
#define WINDOWS 4096 /* and windows */
#define TAPS    25   /* of larger windows, adding one by one is faster */

typedef struct band {
    void (*find)(struct band *b, const dycl_max_pool *p, int64_t oy);
    int64_t tap[2], at[2];     /* of column i: the last tap that sees it, and in which window */
    int64_t pitch, margin;     /* of a row of the image: -inf, its elements, -inf */
    int64_t column[TAPS];      /* of the first window's taps, in a row */
    int64_t windows, before;   /* pitch of a row of windows, and what lies before its first */
    int64_t rows;              /* of windows, in a band */
    int64_t first_line, first; /* of the image and the windows in this band */
    float lines[LINES], given[WINDOWS];
    int32_t where[WINDOWS]; /* the tap of the largest */
} band;

/* The next element of windows: where it is larger, or NaN, its tap is the place. Behind a NaN `most` is infinite: only
 * another NaN is larger then, and one comparison is enough, which the next `most` does not wait for. */
static inline void take_larger(vf value, vf *most, vf_int *place, int32_t tap) {
#if DYCL_LEVEL == 2
    const __mmask16 wins = _mm512_cmp_ps_mask(value, *most, _CMP_NLE_UQ);
    *most = (vf)_mm512_max_ps(_mm512_min_ps(value, vf_set(INFINITY)), *most);
    *place = (vf_int)_mm512_mask_set1_epi32((__m512i)*place, wins, tap);
#elif DYCL_LEVEL == 1
    const __m256 wins = _mm256_cmp_ps(value, *most, _CMP_NLE_UQ);
    *most = (vf)_mm256_max_ps(_mm256_min_ps(value, vf_set(INFINITY)), *most);
    *place = (vf_int)_mm256_blendv_ps((__m256)*place, (__m256)_mm256_set1_epi32(tap), wins);
#else
    const vf_int wins = ~(vf_int)(value <= *most);
    *most = vf_select(wins, vf_select((vf_int)(value != value), vf_set(INFINITY), value), *most);
    *place = (wins & (tap - (vf_int){0})) | (~wins & *place);
#endif
}

/* The sum, and what is given where this tap is the place. A load under a mask takes longer than a sum under one. */
static inline vf add_where(vf sum, vf_int place, int32_t tap, vf given) {
#if DYCL_LEVEL == 2
    const __mmask16 here = _mm512_cmpeq_epi32_mask((__m512i)place, _mm512_set1_epi32(tap));
    return (vf)_mm512_mask_add_ps(sum, here, sum, given);
#else
    return sum + (vf)((vf_int)(place == tap) & (vf_int)given);
#endif
}

static inline void copy_row(float *to, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + vf_lanes <= count; i += vf_lanes) vf_store(to + i, vf_load(from + i));
    if (i < count) vf_store_part(to + i, (size_t)(count - i), vf_load_part(from + i, (size_t)(count - i), vf_set(0)));
}

/* With -inf behind the row's `room` elements. */
static inline vf load_row(const float *at, int64_t room) {
    if (room >= vf_lanes) return vf_load(at);
    return room > 0 ? vf_load_part(at, (size_t)room, vf_set(-INFINITY)) : vf_set(-INFINITY);
}

/* The image's rows from..end: of each the even columns and the odd ones, where windows are two apart, so that a tap of
 * many windows is one vector. */
static void take_lines(band *b, const float *in, const dycl_max_pool *p, int64_t from, int64_t end) {
    const int64_t stride = p->stride[1];
    b->first_line = from;
    for (int64_t y = from; y < end; y++) {
        float *row = b->lines + (y - from) * b->pitch, *odd = row + b->pitch / 2;
        const float *line = in + y * p->w;
        int64_t i = b->margin, x = 0;
        for (int64_t k = 0; k < b->margin; k += vf_lanes) vf_store(row + k, vf_set(-INFINITY));
        if (stride == 1) {
            for (; x < p->w; x += vf_lanes, i += vf_lanes) vf_store(row + i, load_row(line + x, p->w - x));
            for (; i < b->pitch; i += vf_lanes) vf_store(row + i, vf_set(-INFINITY));
            continue;
        }
        for (int64_t k = 0; k < b->margin; k += vf_lanes) vf_store(odd + k, vf_set(-INFINITY));
        for (; x < p->w; x += 2 * vf_lanes, i += vf_lanes) {
            vf low = load_row(line + x, p->w - x), high = load_row(line + x + vf_lanes, p->w - x - vf_lanes);
            vf_store(row + i, evens_of(low, high)), vf_store(odd + i, odds_of(low, high));
        }
        for (; i < b->pitch / 2; i += vf_lanes)
            vf_store(row + i, vf_set(-INFINITY)), vf_store(odd + i, vf_set(-INFINITY));
    }
}

/* Which tap is the largest of each window of a row. */
static inline __attribute__((always_inline)) void find(struct band *b, const dycl_max_pool *p, int64_t oy,
                                                       int32_t width, int32_t stride) {
    static const int32_t count_up[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const taps ys = taps_of(p, 0, oy);
    const float *first = b->lines + (ys.origin + ys.first - b->first_line) * b->pitch;
    int32_t *where = b->where + (oy - b->first) * b->windows + b->before;
    for (int64_t i = 0; i < p->ow; i += vf_lanes, first += vf_lanes) {
        vf most = vf_set(-INFINITY);
        vf_int place;
        memcpy(&place, count_up, sizeof place);
        place = (int32_t)p->pad[1] - (place + (int32_t)i) * stride; /* the first tap inside: of a window of -inf */
        place = (place & (vf_int)(place > 0)) + (int32_t)ys.first * width;
        int32_t tap = (int32_t)ys.first * width;
        const float *row = first;
        for (int64_t y = ys.first; y < ys.end; y++, row += b->pitch)
            for (int32_t k = 0; k < width; k++, tap++) take_larger(vf_load(row + b->column[k]), &most, &place, tap);
        memcpy(where + i, &place, sizeof place);
    }
}

#define FIND(name, width, stride)                                                                                      \
    static void name(struct band *b, const dycl_max_pool *p, int64_t oy) { find(b, p, oy, width, stride); }
FIND(find_2_2, 2, 2)
FIND(find_3_2, 3, 2)
FIND(find_3_1, 3, 1)
FIND(find_any_1, (int32_t)p->kernel[1], 1)
FIND(find_any_2, (int32_t)p->kernel[1], 2)
#undef FIND

static int64_t whole_vectors(int64_t count) { return (count + vf_lanes - 1) / vf_lanes * vf_lanes; }

/* 0: it is for one by one. */
static int band_fits(band *b, const dycl_max_pool *p) {
    const int64_t *kernel = p->kernel, *stride = p->stride;
    int64_t columns = (p->w + stride[1] - 1) / stride[1], most = p->ow > columns ? p->ow : columns, lines;
    if (stride[1] > 2 || kernel[0] > TAPS || kernel[1] > TAPS || kernel[0] * kernel[1] > TAPS) return 0;
    b->margin = whole_vectors(p->pad[1]);
    b->pitch = (b->margin + whole_vectors(whole_vectors(most) + kernel[1])) * stride[1];
    for (int64_t i = 0; i < kernel[1]; i++) { /* x from far to the left, as divisions round to 0 */
        int64_t x = i - p->pad[1] + 2 * p->pad[1] * stride[1];
        b->column[i] = x % stride[1] * (b->pitch / 2) + b->margin + x / stride[1] - 2 * p->pad[1];
    }
    b->before = kernel[1];
    b->windows = whole_vectors(kernel[1] + whole_vectors(most) + p->pad[1] + 1);
    lines = LINES / b->pitch;
    b->rows = WINDOWS / b->windows;
    if ((b->rows - 1) * stride[0] + kernel[0] > lines) b->rows = (lines - kernel[0]) / stride[0] + 1;
    for (int64_t i = 0; i < stride[1]; i++) {
        b->tap[i] = kernel[1] - 1 - (kernel[1] - 1 + stride[1] - (i + p->pad[1]) % stride[1]) % stride[1];
        b->at[i] = (i + p->pad[1] - b->tap[i]) / stride[1];
    }
    if (stride[1] == 1)
        b->find = kernel[1] == 3 ? find_3_1 : find_any_1;
    else
        b->find = kernel[1] == 2 ? find_2_2 : kernel[1] == 3 ? find_3_2 : find_any_2;
    return lines >= kernel[0] && b->rows > 2 * kernel[0];
}

/* The windows begin..end of the plane's rows, and their gradients among zeros. */
static void take_windows(band *b, const float *gradient, const float *in, const dycl_max_pool *p, int64_t begin,
                         int64_t end) {
    const taps top = taps_of(p, 0, begin), bottom = taps_of(p, 0, end - 1);
    b->first = begin;
    take_lines(b, in, p, top.origin + top.first, bottom.origin + bottom.end);
    memset(b->given, 0, (size_t)((end - begin) * b->windows) * sizeof *b->given);
    for (int64_t oy = begin; oy < end; oy++) {
        copy_row(b->given + (oy - begin) * b->windows + b->before, gradient + oy * p->ow, p->ow);
        b->find(b, p, oy);
    }
}

/* What the windows of rows begin..end give to a vector of columns of row y, a stride apart: window `at` is the first of
 * its row that sees them, with `tap`; so many do. */
static inline __attribute__((always_inline)) vf given_to(const band *b, const dycl_max_pool *p, int64_t y,
                                                         int64_t begin, int64_t end, int64_t at, int64_t tap,
                                                         int64_t taps_of_row, int64_t stride) {
    const int32_t width = (int32_t)p->kernel[1], step = (int32_t)(p->stride[0] * width);
    const int64_t first = (begin - b->first) * b->windows + b->before + at;
    const int32_t *where = b->where + first;
    const float *given = b->given + first;
    int32_t of_row = (int32_t)(y + p->pad[0] - begin * p->stride[0]) * width + (int32_t)tap;
    vf sum = vf_set(0);
    for (int64_t oy = begin; oy < end; oy++, where += b->windows, given += b->windows, of_row -= step)
        for (int32_t i = 0; i < (int32_t)taps_of_row; i++) {
            vf_int place;
            memcpy(&place, where + i, sizeof place);
            sum = add_where(sum, place, of_row - i * (int32_t)stride, vf_load(given + i));
        }
    return sum;
}

static int64_t first_window(const dycl_max_pool *p, int64_t y) { /* that sees row y */
    int64_t above = y + p->pad[0] - p->kernel[0] + 1;
    return above <= 0 ? 0 : (above + p->stride[0] - 1) / p->stride[0];
}

static int64_t end_of_windows(const dycl_max_pool *p, int64_t y) {
    int64_t last = (y + p->pad[0]) / p->stride[0];
    return last < p->oh ? last + 1 : p->oh;
}

/* Row y, which the windows of rows begin..end see; so many windows of a row see an even and an odd column. */
static inline __attribute__((always_inline)) void row_back(float *out, const band *b, const dycl_max_pool *p, int64_t y,
                                                           int64_t begin, int64_t end, int64_t stride, int64_t even,
                                                           int64_t odd) {
    int64_t room = p->w;
    for (int64_t i = 0; room > 0; i += vf_lanes, room -= stride * vf_lanes) {
        vf sum = given_to(b, p, y, begin, end, b->at[0] + i, b->tap[0], even, stride);
        if (stride == 2)
            store_by_turns(out + 2 * i, room, sum, given_to(b, p, y, begin, end, b->at[1] + i, b->tap[1], odd, 2));
        else if (room >= vf_lanes)
            vf_store(out + i, sum);
        else
            vf_store_part(out + i, (size_t)room, sum);
    }
}

static void rows_back(float *out, const band *b, const dycl_max_pool *p, int64_t y, int64_t last, int64_t begin,
                      int64_t end) {
    const int64_t kernel = p->kernel[0], width = p->kernel[1], stride = p->stride[0], pad = p->pad[0];
    const int64_t even = b->tap[0] < 0 ? 0 : b->tap[0] / 2 + 1, odd = b->tap[1] < 0 ? 0 : b->tap[1] / 2 + 1;
    int64_t next = begin;
    for (float *row = out + y * p->w; y < last; y++, row += p->w) {
        while (next < end && next * stride - pad <= y) next++;
        while (begin < next && begin * stride - pad + kernel <= y) begin++;
        if (p->stride[1] == 2 && width == 2)
            row_back(row, b, p, y, begin, next, 2, 1, 1);
        else if (p->stride[1] == 2 && width == 3 && even == 1)
            row_back(row, b, p, y, begin, next, 2, 1, 2);
        else if (p->stride[1] == 2)
            row_back(row, b, p, y, begin, next, 2, even, odd);
        else if (width == 3)
            row_back(row, b, p, y, begin, next, 1, 3, 0);
        else
            row_back(row, b, p, y, begin, next, 1, width, 0);
    }
}

/* ---- Windows of two by two beside each other: each writes its own four elements */

static int are_squares(const dycl_max_pool *p) {
    for (int i = 0; i < 2; i++)
        if (p->kernel[i] != 2 || p->stride[i] != 2 || p->pad[i] || 2 * (i ? p->ow : p->oh) > (i ? p->w : p->h))
            return 0;
    return 1;
}

static void squares_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p) {
    for (int64_t oy = 0; oy < p->oh; oy++, gradient += p->ow, in += 2 * p->w, out += 2 * p->w)
        for (int64_t x = 0, i = 0; x < p->w; x += 2 * vf_lanes, i += vf_lanes) {
            const int64_t room = p->w - x, windows = p->ow - i;
            const float *at = in + x, *below = at + p->w;
            vf a = load_row(at, room), b = load_row(at + vf_lanes, room - vf_lanes);
            vf c = load_row(below, room), d = load_row(below + vf_lanes, room - vf_lanes);
            vf second = odds_of(a, b), third = evens_of(c, d), fourth = odds_of(c, d), most = evens_of(a, b);
            vf given = windows >= vf_lanes ? vf_load(gradient + i)
                       : windows > 0       ? vf_load_part(gradient + i, (size_t)windows, vf_set(0))
                                           : vf_set(0);
            vf_int two = (vf_int)(second > most) | (vf_int)(second != second);
            most = larger(second, most);
            vf_int three = (vf_int)(third > most) | (vf_int)(third != third);
            most = larger(third, most);
            vf_int four = (vf_int)(fourth > most) | (vf_int)(fourth != fourth), g = (vf_int)given;
            three &= ~four, two &= ~(three | four);
            /* to 0 it is added, as in torch: -0 becomes 0 */
            store_by_turns(out + x, room, (vf)(g & ~(two | three | four)) + 0.0f, (vf)(g & two) + 0.0f);
            store_by_turns(out + p->w + x, room, (vf)(g & three) + 0.0f, (vf)(g & four) + 0.0f);
        }
    memset(out, 0, (size_t)((p->h - 2 * p->oh) * p->w) * sizeof *out);
}

static void plane_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p) {
    band b;
    if (are_squares(p)) {
        squares_back(out, gradient, in, p);
        return;
    }
    if (!band_fits(&b, p)) {
        scatter_back(out, gradient, in, p);
        return;
    }
    const int64_t many = (b.rows - 1) * p->stride[0] - p->kernel[0] + 2; /* rows of the image, whose windows fit */
    for (int64_t y = 0; y < p->h; y += many) {
        int64_t last = p->h - y < many ? p->h : y + many, begin = first_window(p, y), end = end_of_windows(p, last - 1);
        if (begin < end) take_windows(&b, gradient, in, p, begin, end);
        rows_back(out, &b, p, y, last, begin, end);
    }
}
