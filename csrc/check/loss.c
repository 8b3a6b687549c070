#include "check/reference.h"
#include "ir/losses.h"

/* Losses of elements, of the host's operators that our own kernel runs: torch's formulas, element by element. */

typedef struct {
    dycl_dtype dtype;
    double at, scale;
    dycl_number x, y, w, p, g;
} operands;

static dycl_number number(const operands *o, double x) { return dycl_number_f(o->dtype, x, 0); }
static dycl_number of_one(const operands *o, dycl_ew op, dycl_number x) {
    return dycl_number_apply(op, o->dtype, 1, &x);
}
static dycl_number of_two(const operands *o, dycl_ew op, dycl_number x, dycl_number y) {
    dycl_number both[2] = {x, y};
    return dycl_number_apply(op, o->dtype, 2, both);
}
static dycl_number choose(const operands *o, dycl_number which, dycl_number x, dycl_number y) {
    dycl_number three[3] = {which, x, y};
    return dycl_number_apply(DYCL_EW_where, o->dtype, 3, three);
}

#define ONE(op, x)    of_one(o, DYCL_EW_##op, x)
#define TWO(op, x, y) of_two(o, DYCL_EW_##op, x, y)

/* Below the bend half the square, beyond it a line of this slope. */
static dycl_number distance(const operands *o, double below, double slope) {
    dycl_number z = ONE(abs, TWO(sub, o->x, o->y)), square = TWO(mul, TWO(mul, number(o, 0.5), z), z);
    dycl_number line = TWO(mul, number(o, slope), TWO(sub, z, number(o, 0.5 * o->at)));
    if (o->at == 0) return z;
    return choose(o, TWO(lt, z, number(o, o->at)), TWO(div, square, number(o, below)), line);
}

static dycl_number distance_back(const operands *o, double below, double slope) {
    dycl_number d = TWO(sub, o->x, o->y), zero = number(o, 0), near = TWO(div, d, number(o, below));
    dycl_number far = choose(o, TWO(gt, d, zero), number(o, slope), number(o, -slope));
    dycl_number both = o->at == 0 ? far : choose(o, TWO(ge, ONE(abs, d), number(o, o->at)), far, near);
    return TWO(mul, TWO(mul, number(o, o->scale), both), o->g);
}

static dycl_number shares(const operands *o) {
    const dycl_number least = number(o, -100), one = number(o, 1);
    dycl_number other = TWO(maximum, ONE(log1p, ONE(neg, o->x)), least), own = TWO(maximum, ONE(log, o->x), least);
    return TWO(mul, TWO(sub, TWO(mul, TWO(sub, o->y, one), other), TWO(mul, o->y, own)), o->w);
}

static dycl_number logits(const operands *o, int positive) {
    const dycl_number one = number(o, 1);
    dycl_number log = ONE(logsigmoid, o->x);
    if (positive) log = TWO(mul, log, TWO(add, TWO(mul, TWO(sub, o->p, one), o->y), one));
    return TWO(mul, TWO(sub, TWO(mul, TWO(sub, one, o->y), o->x), log), o->w);
}

static dycl_number margin_back(const operands *o) {
    dycl_number z = ONE(exp, TWO(mul, ONE(neg, o->y), o->x)), above = TWO(mul, TWO(mul, o->y, z), number(o, -o->scale));
    return TWO(mul, TWO(div, above, TWO(add, z, number(o, 1))), o->g);
}

static dycl_number shares_back(const operands *o) {
    dycl_number below = TWO(maximum, TWO(mul, TWO(sub, number(o, 1), o->x), o->x), number(o, (double)1e-12f));
    dycl_number share = TWO(div, TWO(mul, o->g, TWO(sub, o->x, o->y)), below);
    return TWO(mul, TWO(mul, share, o->w), number(o, o->scale));
}

static dycl_number loss_of(dycl_loss kind, const operands *o) {
    switch (kind) {
    case DYCL_LOSS_SMOOTH_L1: return distance(o, o->at, 1);
    case DYCL_LOSS_HUBER: return distance(o, 1, o->at);
    case DYCL_LOSS_SOFT_MARGIN: return ONE(log1p, ONE(exp, TWO(mul, ONE(neg, o->x), o->y)));
    case DYCL_LOSS_BCE: return shares(o);
    case DYCL_LOSS_LOGITS: return logits(o, 0);
    case DYCL_LOSS_LOGITS_POSITIVE: return logits(o, 1);
    case DYCL_LOSS_SMOOTH_L1_BACK: return distance_back(o, o->at, 1);
    case DYCL_LOSS_HUBER_BACK: return distance_back(o, 1, o->at);
    case DYCL_LOSS_SOFT_MARGIN_BACK: return margin_back(o);
    case DYCL_LOSS_BCE_BACK: return shares_back(o);
    default: return dycl_number_unknown();
    }
}

static int is_share(dycl_number x) { return !dycl_number_known(x) || (x.f >= 0 && x.f <= 1) || x.error > 0; }

dycl_status dycl_reference_loss(dycl_reference *r, const dycl_node *node, const dycl_loss_node *loss) {
    const dycl_value *out = dycl_reference_value(r, node->out);
    const dycl_value *x = dycl_reference_value(r, loss->operand[DYCL_LOSS_X]);
    int64_t at[DYCL_MAX_RANK] = {0};
    dycl_number_sum sum = {0, 0, 0, 0, 0};
    operands o = {.dtype = (dycl_dtype)out->dtype, .at = loss->numbers.at, .scale = loss->numbers.scale};
    dycl_number *places[DYCL_LOSS_OPERANDS] = {&o.x, &o.y, &o.w, &o.p, &o.g};
    do {
        for (int k = 0; k < DYCL_LOSS_OPERANDS; k++)
            *places[k] =
                loss->operand[k] == DYCL_NONE ? number(&o, 1) : dycl_reference_get(r, loss->operand[k], at, x->rank);
        if (loss->kind == DYCL_LOSS_BCE && (!is_share(o.x) || !is_share(o.y)))
            return dycl_error_bail("an element is not between 0 and 1");
        const dycl_number y = loss_of(loss->kind, &o);
        if (loss->reduction == DYCL_REDUCE_NONE) {
            dycl_reference_set(r, node->out, at, y);
            continue;
        }
        if (!dycl_number_known(y)) sum.unknown = 1;
        dycl_number_add(&sum, y.f, y.error);
    } while (dycl_reference_next(at, x->sizes, x->rank));
    if (loss->reduction == DYCL_REDUCE_NONE) return DYCL_OK;
    const double scale = loss->reduction == DYCL_REDUCE_MEAN ? 1 / (double)dycl_value_numel(x) : 1;
    dycl_reference_set(r, node->out, at, sum.unknown ? dycl_number_unknown() : dycl_number_total(o.dtype, &sum, scale));
    return DYCL_OK;
}
