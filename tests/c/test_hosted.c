/* Operators that the host runs by name: the table is readable, what does not fit a row is rejected, and plans hand the
 * host exactly what a node says, on operands as they lie, in plans of every mode. The host here is a stand-in. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/host.h"
#include "exec/plan/plan.h"
#include "hosted_random.h"

static int failures;

static void check(int ok, const char *what) {
    if (!ok && failures++ < 20) printf("FAIL %s: %s\n", what, dycl_error_message());
}

/* ---- The table */

static void test_table(void) {
    for (int op = DYCL_HOSTED_FIRST; op < DYCL_OP_COUNT; op++) {
        const dycl_hosted *h = dycl_hosted_get((dycl_op)op);
        int tensors = 0;
        check(h->parameter_count > 0 && h->parameter_count <= DYCL_HOSTED_PARAMETERS && h->results >= 1 &&
                  h->results <= DYCL_HOSTED_RESULTS,
              h->schema);
        check(strchr("ECGH", h->work) && h->work, "work");
        check(!*h->out || h->results == 1, "out is for one result");
        for (int i = 0; i < h->parameter_count; i++) {
            const dycl_hosted_parameter *p = &h->parameters[i];
            int length;
            check(*p->name && strchr("toTijfgbdlmrqw", p->kind), "a parameter's kind");
            check((p->kind == 'w') == (p->words != NULL) && (!p->words || dycl_hosted_word(p, 0, &length)), "words");
            tensors += p->kind == 't' || p->kind == 'T';
        }
        check(tensors > 0 && h->parameters[0].kind != 'o', "the first operand is a tensor");
    }
    const dycl_hosted_parameter *reduce = &dycl_hosted_get(DYCL_OP_aten_scatter_reduce)->parameters[4];
    int length;
    check(dycl_hosted_find_word(reduce, "sum") == 0 && dycl_hosted_find_word(reduce, "amin") == 4 &&
              dycl_hosted_find_word(reduce, "ami") == -1,
          "finding a word");
    check(memcmp(dycl_hosted_word(reduce, 3, &length), "amax", 4) == 0 && length == 4 &&
              !dycl_hosted_word(reduce, 5, &length),
          "a word by its position");
}

static uint32_t some_value(const dycl_graph *g) { return (uint32_t)below(g->value_count); }

/* Attributes that were cut, lengthened or changed are read as what they say, or rejected; nothing behind them is looked
 * at (sanitizers). */
static void test_random_attributes(void) {
    dycl_graph g;
    dycl_graph_init(&g);
    int64_t sizes[2] = {2, 3}, strides[2] = {3, 1};
    uint32_t value, operands[DYCL_HOSTED_PARAMETERS + 3];
    dycl_graph_feed(&g, DYCL_F32, 2, sizes, strides, &value);
    for (int i = 0; i < 40000; i++) {
        int64_t attrs[DYCL_MAX_ATTRS];
        int count, length;
        dycl_hosted_form form;
        dycl_op op = random_hosted(some_value, &g, operands, &count, attrs, &length);
        check(dycl_hosted_read(op, count, length, attrs, &form, NULL), "attributes that fit");
        int64_t *exact = dycl_alloc((size_t)(length + 1) * sizeof *exact);
        memcpy(exact, attrs, (size_t)length * sizeof *exact);
        int shorter = length - 1 - (int)below(3);
        if (shorter >= 0) {
            int64_t *cut = dycl_alloc((size_t)(shorter + 1) * sizeof *cut);
            memcpy(cut, attrs, (size_t)shorter * sizeof *cut);
            dycl_hosted_read(op, count, shorter, cut, &form, NULL);
            dycl_free(cut);
        }
        exact[below(length)] = below(2) ? below(100) - 50 : (int64_t)rnd();
        if (dycl_hosted_read(op, count, length, exact, &form, NULL))
            dycl_hosted_attr_is_f64(op, count, length, exact, (int)below(length));
        dycl_hosted_read(op, count + 1 - (int)below(3), length, attrs, &form, NULL);
        dycl_free(exact);
    }
    dycl_graph_free(&g);
}

static void test_rejected(void) {
    static const char *const texts[] = {
        "%1 = aten_atan (0, 0, 2, 2, 3, 3, 1)",               /* no operand */
        "%1 = aten_atan _ (0, 0, 2, 2, 3, 3, 1)",             /* absent */
        "%1 = aten_atan %0 %0 (0, 0, 2, 2, 3, 3, 1)",         /* too many */
        "%1 = aten_atan %0 (1, 0, 2, 2, 3, 3, 1)",            /* no such result */
        "%1 = aten_atan %0 (0, 77, 2, 2, 3, 3, 1)",           /* dtype */
        "%1 = aten_atan %0 (0, 0, 2, 2, 3, 3, 2)",            /* gaps between the elements */
        "%1 = aten_atan %0 (0, 0, 2, 2, 3, 0, 1)",            /* overlap */
        "%1 = aten_atan %0 (0, 0, 2, 2, -3, 3, 1)",           /* size */
        "%1 = aten_atan %0 (0, 0, 2, 2, 0, 1, 1)",            /* empty */
        "%1 = aten_atan %0 (0, 0, 9, 2, 3, 3, 1)",            /* rank */
        "%1 = aten_cumprod %0 (0, 0, 2, 2, 3, 3, 1, 0)",      /* the dtype is missing */
        "%1 = aten_im2col %0 (0, 0, 1, 4, 1, 2, 1, 1, 2, 1)", /* a list that is longer than what is left */
        "%1 = aten_convolution_backward %0 %0 %0 (0, 0, 2, 2, 3, 3, 1, -1, 0, 0, 0, 0, 0, 1, 3, 1, 2, 1)", /* bools */
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        dycl_graph g;
        char text[256];
        dycl_graph_init(&g);
        snprintf(text, sizeof text, "%%0 = feed f32[2,3]{3,1}\n%s\n", texts[i]);
        check(dycl_graph_parse(text, &g) == DYCL_ERROR, texts[i]);
        dycl_graph_free(&g);
    }
}

/* ---- Plans */

static struct {
    int calls, results, into, argument_count;
    char schema[32], overload[16];
    dycl_host_argument arguments[DYCL_HOSTED_PARAMETERS];
    dycl_host_tensor tensors[4];
    dycl_status answer;
} seen;

static float at(const dycl_host_tensor *t, int64_t i, int64_t j) {
    return ((const float *)t->data)[i * t->strides[0] + j * t->strides[1]];
}

/* Every result: twice the first operand, plus its own number. */
static dycl_status stand_in(const char *schema, const char *overload, int results, dycl_host_into into,
                            int argument_count, const dycl_host_argument *arguments, const dycl_host_tensor *out) {
    const dycl_host_tensor *x = arguments[0].tensors;
    seen.calls++;
    seen.results = results;
    seen.into = into;
    seen.argument_count = argument_count;
    snprintf(seen.schema, sizeof seen.schema, "%s", schema);
    snprintf(seen.overload, sizeof seen.overload, "%s", overload);
    memcpy(seen.arguments, arguments, (size_t)argument_count * sizeof *arguments);
    seen.tensors[0] = *x;
    for (int r = 0; r < results; r++) {
        if (out[r].rank < 0) continue;
        for (int64_t i = 0; i < x->sizes[0]; i++)
            for (int64_t j = 0; j < x->sizes[1]; j++)
                ((float *)out[r].data)[i * out[r].strides[0] + j * out[r].strides[1]] = 2 * at(x, i, j) + (float)r;
    }
    return seen.answer;
}

static dycl_plan *last; /* what was seen lies in its memory */

/* x[3,4] -> (x + 1)ᵀ [4,3] -> the operator -> + 1 [4,3] */
static dycl_status run(const char *nodes, int outputs, const uint32_t *wanted, dycl_plan_mode mode, const float *x,
                       float results[][12]) {
    dycl_graph g;
    char text[1024];
    void *addresses[4];
    dycl_feed feed = {.data = (void *)(uintptr_t)x};
    dycl_scalar one = {.f32 = 1};
    dycl_status status;
    dycl_plan_release(last);
    last = NULL;
    dycl_graph_init(&g);
    snprintf(text, sizeof text,
             "%%0 = feed f32[3,4]{4,1}\n%%1 = scalar f32\n%%2 = add %%0 %%1\n%%3 = view %%2 (0, 4, 3, 1, 4)\n%s\n",
             nodes);
    DYCL_TRY(dycl_graph_parse(text, &g));
    DYCL_TRY(dycl_plan_create(&g, wanted, outputs, mode, &last));
    for (int i = 0; i < outputs; i++) addresses[i] = results[i];
    memset(&seen, 0, offsetof(__typeof__(seen), answer));
    status = dycl_plan_run(last, &feed, &one, addresses);
fail:
    dycl_graph_free(&g);
    return status;
}

static void test_plans(void) {
    float x[12], results[2][12];
    for (int i = 0; i < 12; i++) x[i] = (float)i;
    for (int mode = DYCL_PLAN_COLD; mode <= DYCL_PLAN_EXACT; mode++) {
        uint32_t wanted[2] = {5, 6};
        /* one result, written where it belongs: in the order of memory that the node says */
        check(run("%4 = aten_cumprod %3 (0, 0, 2, 4, 3, 1, 4, -1, 1)\n%5 = add %4 %1\n", 1, wanted,
                  (dycl_plan_mode)mode, x, results) == DYCL_OK,
              "a plan");
        check(seen.calls == 1 && seen.into && seen.results == 1 && strcmp(seen.schema, "cumprod") == 0 &&
                  strcmp(seen.overload, "out") == 0,
              "what is called");
        check(seen.tensors[0].sizes[0] == 4 && seen.tensors[0].strides[0] == 1 && seen.tensors[0].strides[1] == 4,
              "the operand as it lies");
        check(seen.arguments[1].kind == DYCL_HOST_INT && seen.arguments[1].numbers[0] == -1, "an integer");
        check(seen.arguments[2].kind == DYCL_HOST_DTYPE && seen.arguments[2].optional &&
                  seen.arguments[2].numbers[0] == DYCL_F64,
              "a dtype");
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++) check(results[0][j + 4 * i] == 2 * (x[4 * i + j] + 1) + 1, "its result");
        /* two results of one call */
        check(run("%4 = aten_cummax %3 (0, 0, 2, 4, 3, 3, 1, 0)\n%5 = aten_cummax %3 (1, 0, 2, 4, 3, 3, 1, 0)\n%6 = "
                  "add %4 %5\n",
                  2, wanted, (dycl_plan_mode)mode, x, results) == DYCL_OK,
              "two results");
        check(seen.calls == 1 && !seen.into && seen.results == 2, "one call for both");
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++)
                check(results[0][3 * j + i] == 2 * (x[4 * i + j] + 1) + 1 &&
                          results[1][3 * j + i] == 4 * (x[4 * i + j] + 1) + 1,
                      "their results");
                /* three of one call, and two of them */
#define BACKWARD(which)                                                                                                \
    "aten_convolution_backward %3 %3 %3 (" #which                                                                      \
    ", 0, 2, 4, 3, 3, 1, 1, 4, 2, 1, 1, 2, 0, 0, 2, 1, 1, 0, 2, 0, 0, 1, 3, 1, 0, 1)\n"
        wanted[0] = 8;
        check(run("%4 = " BACKWARD(0) "%5 = " BACKWARD(1) "%6 = " BACKWARD(2) "%7 = add %4 %5\n%8 = add %7 %6\n", 1,
                  wanted, (dycl_plan_mode)mode, x, results) == DYCL_OK,
              "three results");
        check(seen.calls == 1 && seen.results == 3, "one call for all three");
        check(seen.arguments[10].kind == DYCL_HOST_INTS && seen.arguments[10].count == 3 &&
                  seen.arguments[10].numbers[1] == 0,
              "a mask");
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++) check(results[0][3 * j + i] == 6 * (x[4 * i + j] + 1) + 3, "the sum of three");
        wanted[0] = 6;
        check(run("%4 = " BACKWARD(2) "%5 = " BACKWARD(0) "%6 = add %4 %5\n", 1, wanted, (dycl_plan_mode)mode, x,
                  results) == DYCL_OK &&
                  seen.calls == 1,
              "two of three");
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++) check(results[0][3 * j + i] == 4 * (x[4 * i + j] + 1) + 2, "the sum of two");
        wanted[0] = 5;
        /* other attributes: another call */
        check(run("%4 = aten_cummax %3 (0, 0, 2, 4, 3, 3, 1, 0)\n%5 = aten_cummax %3 (1, 0, 2, 4, 3, 3, 1, 1)\n%6 = "
                  "add %4 %5\n",
                  2, wanted, (dycl_plan_mode)mode, x, results) == DYCL_OK,
              "two calls");
        check(seen.calls == 2, "they differ");
        /* an absent tensor, lists, doubles */
        check(run("%4 = aten_nan_to_num %3 (0, 0, 2, 4, 3, 3, 1, 1, f0.5, 0, 0, 1, f-2)\n%5 = add %4 %1\n", 1, wanted,
                  (dycl_plan_mode)mode, x, results) == DYCL_OK,
              "numbers");
        check(seen.arguments[1].count == 1 && dycl_attr_f64(seen.arguments[1].numbers[0]) == 0.5 &&
                  seen.arguments[2].count == -1,
              "doubles and None");
        check(run("%4 = aten_conv1d %3 %3 _ (0, 0, 2, 4, 3, 3, 1, 1, 2, 1, 0, 1, 1, 1)\n%5 = add %4 %1\n", 1, wanted,
                  (dycl_plan_mode)mode, x, results) == DYCL_OK,
              "a convolution");
        check(seen.arguments[2].count == -1 && seen.arguments[3].kind == DYCL_HOST_INTS &&
                  seen.arguments[3].count == 1 && seen.arguments[3].numbers[0] == 2,
              "None and a list");
        check(run("%4 = aten_index %3 _ %0 (0, 0, 2, 4, 3, 3, 1)\n%5 = add %4 %1\n", 1, wanted, (dycl_plan_mode)mode, x,
                  results) == DYCL_OK,
              "a list of tensors");
        check(seen.arguments[1].kind == DYCL_HOST_TENSORS && seen.arguments[1].count == 2 &&
                  seen.arguments[1].optional && seen.arguments[1].tensors[0].rank == -1,
              "and None in it");
        check(run("%4 = aten_scatter_reduce %3 %3 %3 (0, 0, 2, 4, 3, 3, 1, 1, 3, 0)\n%5 = add %4 %1\n", 1, wanted,
                  (dycl_plan_mode)mode, x, results) == DYCL_OK,
              "a word");
        check(seen.arguments[4].word_length == 4 && memcmp(seen.arguments[4].word, "amax", 4) == 0, "which one");
        /* what the host rejects, or does not have */
        seen.answer = DYCL_BAIL;
        check(run("%4 = aten_atan %3 (0, 0, 2, 4, 3, 3, 1)\n%5 = add %4 %1\n", 1, wanted, (dycl_plan_mode)mode, x,
                  results) == DYCL_BAIL,
              "a bail of the host");
        seen.answer = DYCL_OK;
        dycl_host_functions.call = NULL;
        check(run("%4 = aten_atan %3 (0, 0, 2, 4, 3, 3, 1)\n%5 = add %4 %1\n", 1, wanted, (dycl_plan_mode)mode, x,
                  results) == DYCL_BAIL,
              "no host");
        dycl_host_functions.call = stand_in;
    }
    dycl_plan_release(last);
}

int main(void) {
    dycl_host_functions.call = stand_in;
    test_table();
    test_random_attributes();
    test_rejected();
    test_plans();
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
