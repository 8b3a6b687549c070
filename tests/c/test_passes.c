/* The passes over a graph: text in, what they make of it out. */
#include "base/alloc.h"
#include "kern/prefilter.h"
#include "opt/mapping.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures, checks;

static void check(int ok, const char *what, const char *more) {
    checks++;
    if (ok) return;
    failures++;
    fprintf(stderr, "FAIL %s: %s\n", what, more);
}

/* ---- Mapping types */

/* DNNFusion, table 3: the type of both together and the colour. */
static const char *const paper[DYCL_MAP_COUNT] = {
    "O2O G  O2M G  M2M G  RE G   SHUF G", "O2M G  O2M Y  R      O2M Y  O2M Y",  "M2M G  M2M Y  R      M2M Y  M2M Y",
    "RE G   O2M Y  M2M Y  RE G   RE G",   "SHUF G O2M Y  M2M Y  RE G   SHUF G",
};

static void test_mapping(void) {
    static const char *const names[DYCL_MAP_COUNT] = {"O2O", "O2M", "M2M", "RE", "SHUF"};
    for (int first = 0; first < DYCL_MAP_COUNT; first++) {
        char text[80], *save = NULL;
        snprintf(text, sizeof text, "%s", paper[first]);
        char *word = strtok_r(text, " ", &save);
        for (int second = 0; second < DYCL_MAP_COUNT; second++, word = strtok_r(NULL, " ", &save)) {
            const dycl_fuse_cell *cell = &dycl_fuse_table[first][second];
            if (!strcmp(word, "R")) {
                check(cell->verdict == DYCL_FUSE_NEVER, names[first], names[second]);
                continue;
            }
            check(!strcmp(word, names[cell->mapping]), names[first], names[second]);
            word = strtok_r(NULL, " ", &save);
            check(cell->verdict == (*word == 'G' ? DYCL_FUSE_YES : DYCL_FUSE_MEASURE), names[first], names[second]);
        }
    }
    /* what a family does to its elements leaves no choice of type */
    for (int op = 0; op < DYCL_OP_COUNT; op++) {
        const dycl_op_info *info = dycl_op_get((dycl_op)op);
        int expected = -1;
        switch (info->family) {
        case DYCL_FAMILY_EW:
        case DYCL_FAMILY_EWI:
        case DYCL_FAMILY_CAST: expected = DYCL_MAP_O2O; break;
        case DYCL_FAMILY_VIEW:
        case DYCL_FAMILY_COPY:
        case DYCL_FAMILY_JOIN: expected = DYCL_MAP_REORG; break;
        case DYCL_FAMILY_REDUCE:
        case DYCL_FAMILY_ROW:
        case DYCL_FAMILY_MATMUL:
        case DYCL_FAMILY_CONV:
        case DYCL_FAMILY_ATTENTION: expected = DYCL_MAP_M2M; break;
        case DYCL_FAMILY_CREATE: expected = DYCL_MAP_O2M; break;
        default: break;
        }
        check(info->mapping >= 0 && info->mapping < DYCL_MAP_COUNT && (expected < 0 || (int)info->mapping == expected),
              "mapping of", info->name);
    }
}

/* ---- Golden blocks: one line a block, in the order of the schedule: its nodes' values, "!" before a block that is not
 * a tile program,
 * ">root+offset" behind a value that is made inside another */

static void blocks_of(const dycl_program *p, char *out, size_t room) {
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < p->order_count; i++) {
        const dycl_block *block = &p->blocks[p->order[i]];
        used +=
            (size_t)snprintf(out + used, room - used, "%s%s", i ? "; " : "", block->kind == DYCL_BLOCK_TILE ? "" : "!");
        for (uint32_t n = block->first; n != DYCL_NONE && used < room; n = p->next[n]) {
            uint32_t v = p->graph.nodes[n].out, root = p->graph.values[v].root;
            used += (size_t)snprintf(out + used, room - used, "%s%s%u", n == block->first ? "" : " ",
                                     dycl_op_get((dycl_op)p->graph.nodes[n].op)->name, v);
            if (root != v && used < room)
                used += (size_t)snprintf(out + used, room - used, ">%u+%d", root, (int)p->graph.values[v].offset);
        }
    }
}

static void golden_blocks(const char *text, const uint32_t *outputs, int count, const char *want) {
    dycl_graph g;
    dycl_program p;
    char got[2000] = "";
    dycl_graph_init(&g);
    int ok = dycl_graph_parse(text, &g) == DYCL_OK && dycl_program_init(&p, &g, outputs, count) == DYCL_OK;
    if (ok) {
        ok = dycl_opt_run(&p, 1, 1) == DYCL_OK && dycl_program_verify(&p) == DYCL_OK;
        blocks_of(&p, got, sizeof got);
        dycl_program_free(&p);
    }
    check(ok && !strcmp(got, want), want, ok ? got : dycl_error_message());
    dycl_graph_free(&g);
}
#define BLOCKS(text, want, ...)                                                                                        \
    golden_blocks(text, (const uint32_t[]){__VA_ARGS__}, (int)(sizeof((uint32_t[]){__VA_ARGS__}) / 4), want)

static void test_fusion(void) {
    /* all of one row: statistics, what they are made from and what is made from them */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = gelu %0\n%2 = mean %1 (2, 1)\n%3 = var %1 (2, 1, f0)\n%4 = sub %1 %2\n%5 = "
           "rsqrt %3\n%6 = mul %4 %5\n",
           "gelu1 mean2 var3 rsqrt5 sub_mul6", 6);
    /* a product between them: not convex, so the sum runs with what follows */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = feed f32[8,8]{8,1}\n%2 = gelu %0\n%3 = linear %2 %1 _\n%4 = add %2 %3\n%5 = "
           "relu %4\n",
           "gelu2; !linear3; add_relu5", 5);
    /* two branches around nothing but themselves are one block */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = gelu %0\n%2 = sigmoid %0\n%3 = mul %1 %2\n%4 = tanh %1\n",
           "gelu1 sigmoid2 mul3 tanh4", 3, 4);
    /* a transposed reader moves elements */
    BLOCKS("%0 = feed f32[6,6]{6,1}\n%1 = gelu %0\n%2 = view %1 (0, 6, 6, 1, 6)\n%3 = add %2 %0\n", "gelu1; add3", 3);
    /* a view that splits dimensions does not */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = gelu %0\n%2 = view %1 (0, 6, 2, 4, 8, 4, 1)\n%3 = softmax %2 (2)\n",
           "gelu1 softmax3", 3);
    /* rows of another length: never */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = softmax %0 (1)\n%2 = view %1 (0, 12, 4, 4, 1)\n%3 = softmax %2 (1)\n",
           "softmax1; softmax3", 3);
    /* two operators of one row without any One-to-One between them */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = softmax %0 (1)\n%2 = log_softmax %1 (1)\n", "softmax1 log_softmax2", 2);
}

/* Parts of a concatenation that are made where they will lie. */
static void test_join(void) {
#define PARTS "%0 = feed f32[1,6,8]{48,8,1}\n%1 = feed f32[1,4,8]{32,8,1}\n%2 = neg %0\n%3 = softmax %1 (2)\n"
    BLOCKS(PARTS "%4 = cat %2 %3 (1)\n%5 = relu %4\n", "neg2>4+0; softmax3>4+48; !cat4; relu5", 5);
    BLOCKS(PARTS "%4 = cat %0 %2 (2)\n", "neg2>4+8; !cat4", 4);
    BLOCKS(PARTS "%4 = cat %2 %3 (1)\n%5 = exp %2\n", "neg2; softmax3>4+48; !cat4; exp5", 4,
           5);                                                                /* read by others, too */
    BLOCKS(PARTS "%4 = cat %2 %3 (1)\n", "neg2; softmax3>4+48; !cat4", 4, 2); /* wanted itself */
    BLOCKS(PARTS "%4 = cat %2 %2 (1)\n", "neg2; !cat4", 4);
    BLOCKS(PARTS "%4 = view %2 (0, 1, 6, 4, 48, 8, 2)\n%5 = cat %4 %4 (1)\n", "neg2; !cat5", 5); /* a view of it */
    BLOCKS(PARTS "%4 = view %2 (0, 1, 4, 8, 48, 8, 1)\n%5 = cat %4 %3 (1)\n", "neg2; softmax3>5+32; !cat5", 5);
#define PRODUCTS                                                                                                       \
    "%0 = feed f32[6,8]{8,1}\n%1 = feed f32[4,8]{8,1}\n%2 = linear %0 %1 _\n%3 = relu %0\n%4 = linear %3 %1 _\n"
    BLOCKS(PRODUCTS "%5 = cat %2 %4 (0)\n", "!linear2>5+0; relu3; !linear4>5+24; !cat5", 5);
    BLOCKS(PRODUCTS "%5 = cat %2 %4 (1)\n", "!linear2; relu3; !linear4; !cat5", 5); /* not contiguous there */
    /* results of convolutions have layouts of their own */
    BLOCKS("%0 = feed f32[1,2,4,4]{32,16,4,1}\n%1 = feed f32[2,2,1,1]{2,1,1,1}\n%2 = conv2d %0 %1 _ (1, 1, 0, 0, 1, 1, "
           "1)\n%3 = neg %0\n%4 = cat %2 %3 (1)\n",
           "!conv2d2; neg3; !cat4", 4);
}

/* An argmax and the product that it looks at, where the processor has a kernel that reads 8 bits. */
#define HEAD "%0 = feed f32[1,2,512]{1024,512,1}\n%1 = feed f32[2048,512]{512,1}\n%2 = linear %0 %1 _\n"
static void test_prefilter(void) {
    if (!dycl_kern_prefilter(dycl_cpu_isa())) return;
    BLOCKS(HEAD "%3 = argmax %2 (4, 0)\n", "!linear2 argmax3", 3);
    BLOCKS(HEAD "%3 = view %2 (0, 2, 2048, 2048, 1)\n%4 = contiguous %3 (0)\n%5 = argmax %4 (2, 0)\n",
           "!linear2 argmax5", 5);
    BLOCKS(HEAD "%3 = argmax %2 (4, 1)\n", "!linear2; argmax3", 3, 2); /* the product is wanted too */
    BLOCKS(HEAD "%3 = argmax %2 (4, 0)\n%4 = relu %2\n", "!linear2; argmax3; relu4", 3, 4); /* and read by others */
    BLOCKS(HEAD "%3 = argmin %2 (4, 0)\n", "!linear2; argmin3", 3);
    BLOCKS(HEAD "%3 = argmax %2 (6, 0)\n", "!linear2; argmax3", 3); /* the largest of all rows */
    BLOCKS(HEAD "%3 = view %2 (2048, 1, 1, 2048, 4096, 2048, 1)\n%4 = argmax %3 (4, 0)\n", "!linear2; argmax4",
           4); /* one of the rows */
    BLOCKS("%0 = feed f32[2,512]{512,1}\n%1 = feed f32[1024,512]{512,1}\n%2 = linear %0 %1 _\n%3 = argmax %2 (2, 0)\n",
           "!linear2; argmax3", 3); /* small */
    BLOCKS("%0 = feed f32[5,512]{512,1}\n%1 = feed f32[2048,512]{512,1}\n%2 = linear %0 %1 _\n%3 = argmax %2 (2, 0)\n",
           "!linear2; argmax3", 3); /* many rows */
    BLOCKS("%0 = feed f32[2,512]{512,1}\n%1 = feed f32[2048,512]{1,2048}\n%2 = linear %0 %1 _\n%3 = argmax %2 (2, 0)\n",
           "!linear2; argmax3", 3);
}

/* ---- Golden rewritings: the live nodes, each as value=operator(operands), a view that changes nothing as what it
 * looks at */

static uint32_t seen_as(const dycl_program *p, uint32_t v) {
    const dycl_value *value = &p->graph.values[v], *root = &p->graph.values[value->root];
    return v != value->root && value->offset == root->offset && value->rank == root->rank &&
                   !memcmp(value->sizes, root->sizes, sizeof root->sizes) &&
                   !memcmp(value->strides, root->strides, sizeof root->strides)
               ? value->root
               : v;
}

static void live_nodes(const dycl_program *p, char *out, size_t room) {
    const dycl_graph *g = &p->graph;
    size_t used = 0;
    out[0] = 0;
    for (uint32_t n = 0; n < g->node_count && used < room; n++) {
        const dycl_node *node = &g->nodes[n];
        if (p->dead[n] || node->op == DYCL_OP_view) continue;
        used += (size_t)snprintf(out + used, room - used, "%s%u=%s(", used ? " " : "", node->out,
                                 dycl_op_get((dycl_op)node->op)->name);
        for (int i = 0; i < node->operand_count && used < room; i++) {
            uint32_t v = dycl_node_operands(g, node)[i];
            used += (size_t)snprintf(out + used, room - used, i ? ",%u" : "%u", v == DYCL_NONE ? 0 : seen_as(p, v));
        }
        used += (size_t)snprintf(out + used, room - used, ")");
    }
}

typedef dycl_status (*pass_fn)(dycl_program *program);

static void golden(pass_fn pass, const char *text, const uint32_t *outputs, int count, const char *want) {
    dycl_graph g;
    dycl_program p;
    char got[2000] = "";
    dycl_graph_init(&g);
    int ok = dycl_graph_parse(text, &g) == DYCL_OK && dycl_program_init(&p, &g, outputs, count) == DYCL_OK;
    if (ok) {
        ok = dycl_opt_dce(&p) == DYCL_OK && pass(&p) == DYCL_OK && dycl_program_verify(&p) == DYCL_OK;
        live_nodes(&p, got, sizeof got);
        dycl_program_free(&p);
    }
    check(ok && !strcmp(got, want), want, ok ? got : dycl_error_message());
    dycl_graph_free(&g);
}
#define GOLDEN(pass, text, want, ...)                                                                                  \
    golden(pass, text, (const uint32_t[]){__VA_ARGS__}, (int)(sizeof((uint32_t[]){__VA_ARGS__}) / 4), want)
#define F "%0 = feed f32[6,8]{8,1}\n%1 = feed f32[6,8]{8,1}\n"
#define I "%0 = feed i32[6,8]{8,1}\n%1 = feed i32[6,8]{8,1}\n%2 = feed i32[6,8]{8,1}\n"

static void test_commute(void) {
    GOLDEN(dycl_opt_commute, F "%2 = add %1 %0\n%3 = mul %2 %0\n", "2=add(0,1) 3=mul(0,2)", 3);
    GOLDEN(dycl_opt_commute, F "%2 = sub %1 %0\n%3 = maximum %2 %0\n", "2=sub(1,0) 3=maximum(2,0)", 3);
}

static dycl_status commute_and_cse(dycl_program *p) {
    dycl_status status = dycl_opt_commute(p);
    if (status == DYCL_OK) status = dycl_opt_cse(p);
    return status == DYCL_OK ? dycl_opt_dce(p) : status;
}

static void test_cse(void) {
    GOLDEN(commute_and_cse, F "%2 = add %1 %0\n%3 = add %0 %1\n%4 = mul %2 %3\n", "2=add(0,1) 4=mul(2,2)", 4);
    GOLDEN(commute_and_cse, F "%2 = sub %1 %0\n%3 = sub %0 %1\n%4 = mul %2 %3\n", "2=sub(1,0) 3=sub(0,1) 4=mul(2,3)",
           4);
    /* views of one memory: with the same sizes, but other strides or another place; and the same once more */
    GOLDEN(commute_and_cse,
           "%0 = feed f32[4,4]{4,1}\n%1 = view %0 (0, 4, 4, 1, 4)\n%2 = sum %0 (2, 0)\n%3 = sum %1 (2, 0)\n"
           "%4 = view %0 (0, 4, 4, 1, 4)\n%5 = sum %4 (2, 0)\n%6 = sub %2 %3\n%7 = mul %6 %5\n",
           "2=sum(0) 3=sum(1) 6=sub(2,3) 7=mul(3,6)", 7);
    GOLDEN(commute_and_cse,
           "%0 = feed f32[4,4]{4,1}\n%1 = view %0 (0, 2, 4, 4, 1)\n%2 = view %0 (8, 2, 4, 4, 1)\n"
           "%3 = sum %1 (2, 0)\n%4 = sum %2 (2, 0)\n%5 = sub %3 %4\n",
           "3=sum(1) 4=sum(2) 5=sub(3,4)", 5);
}

static void test_fold(void) {
    GOLDEN(dycl_opt_fold, "%0 = feed f32[6,8]{8,1}\n%1 = scalar f32\n%2 = full %1 (6, 8)\n%3 = add %0 %2\n",
           "3=add(0,1)", 3);
    /* somebody outside sees it */
    GOLDEN(dycl_opt_fold, "%0 = feed f32[6,8]{8,1}\n%1 = scalar f32\n%2 = full %1 (6, 8)\n%3 = add %0 %2\n",
           "2=full(1) 3=add(0,1)", 2, 3);
    /* f32 holds every bool and every i8, not every i32; what comes back from f64 to f32 is what went in */
    GOLDEN(dycl_opt_fold, "%0 = feed bool[8]{1}\n%1 = cast %0 (0)\n%2 = cast %1 (1)\n", "2=cast(0)", 2);
    GOLDEN(dycl_opt_fold, "%0 = feed f32[8]{1}\n%1 = cast %0 (1)\n%2 = cast %1 (0)\n%3 = relu %2\n", "3=relu(0)", 3);
    GOLDEN(dycl_opt_fold, "%0 = feed f64[8]{1}\n%1 = cast %0 (0)\n%2 = cast %1 (1)\n", "1=cast(0) 2=cast(1)", 2);
}

/* Of a dtype: the ends of its range, and what floats of fewer bits cannot hold. Floats that an integer has no place for
 * are left out where one follows. */
static int extremes(dycl_dtype dtype, int small, int64_t *words) {
    static const double floats[] = {0, 0.1, -3.7, 100, 1e-40, 16777217, 9007199254740993.0, 1e30, -1e300, NAN};
    static const int bits[DYCL_DTYPE_COUNT] = {
        [DYCL_I64] = 63, [DYCL_I32] = 31, [DYCL_I16] = 15, [DYCL_I8] = 7, [DYCL_U8] = 8, [DYCL_BOOL] = 1};
    int n = 0;
    if (dycl_dtype_is_float(dtype)) {
        for (int i = 0; i < (small ? 4 : 10); i++)
            if (dtype == DYCL_F64)
                memcpy(&words[n++], &floats[i], 8);
            else
                memcpy(&words[n++], &(float){(float)floats[i]}, 4);
        return n;
    }
    uint64_t max = (UINT64_C(1) << bits[dtype]) - 1;
    words[n++] = 0, words[n++] = 1, words[n++] = (int64_t)max, words[n++] = (int64_t)(max / 2 + 1);
    if (bits[dtype] > 24) words[n++] = 16777217;
    if (bits[dtype] > 53) words[n++] = 9007199254740993;
    if (dtype == DYCL_U8 || dtype == DYCL_BOOL) return n;
    words[n++] = -1, words[n++] = -(int64_t)max - 1, words[n++] = -(int64_t)max;
    return n;
}

static int one_cast_does(dycl_dtype first, dycl_dtype middle, dycl_dtype last) {
    int64_t words[16];
    for (int i = extremes(first, !dycl_dtype_is_float(last), words); i-- > 0;) {
        int64_t there = 0, once = 0, twice = 0;
        dycl_kern_cast(DYCL_ISA_SCALAR, first, last)(&once, &words[i], NULL, NULL, 1);
        dycl_kern_cast(DYCL_ISA_SCALAR, first, middle)(&there, &words[i], NULL, NULL, 1);
        dycl_kern_cast(DYCL_ISA_SCALAR, middle, last)(&twice, &there, NULL, NULL, 1);
        if (once != twice) return 0;
    }
    return 1;
}

/* Every conversion through a third dtype: where the pass leaves it out, no element notices. */
static void test_fold_casts(void) {
    char text[200], kept[100], what[100];
    for (int first = 0; first < DYCL_DTYPE_COUNT; first++)
        for (int middle = 0; middle < DYCL_DTYPE_COUNT; middle++)
            for (int last = 0; last < DYCL_DTYPE_COUNT; last++) {
                dycl_graph g;
                dycl_program p;
                dycl_graph_init(&g);
                snprintf(text, sizeof text, "%%0 = feed %s[5]{1}\n%%1 = cast %%0 (%d)\n%%2 = cast %%1 (%d)\n",
                         dycl_dtype_name((dycl_dtype)first), middle, last);
                snprintf(what, sizeof what, "%s through %s to %s", dycl_dtype_name((dycl_dtype)first),
                         dycl_dtype_name((dycl_dtype)middle), dycl_dtype_name((dycl_dtype)last));
                int ok = dycl_graph_parse(text, &g) == DYCL_OK &&
                         dycl_program_init(&p, &g, (const uint32_t[]){2}, 1) == DYCL_OK &&
                         dycl_opt_dce(&p) == DYCL_OK && dycl_opt_fold(&p) == DYCL_OK && dycl_opt_dce(&p) == DYCL_OK;
                check(ok, what, dycl_error_message());
                if (!ok) continue;
                live_nodes(&p, kept, sizeof kept);
                if (!strstr(kept, "1=cast")) check(one_cast_does(first, middle, last), what, "differs when left out");
                dycl_program_free(&p);
                dycl_graph_free(&g);
            }
}

static void test_fold_copies(void) {
    GOLDEN(dycl_opt_fold, "%0 = feed f32[2,3,16]{16,32,1}\n%1 = contiguous %0 (0)\n%2 = gelu %1\n", "2=gelu(0)", 2);
    /* rows of single elements, few and many; a second reader; a view of the copy */
    GOLDEN(dycl_opt_fold, "%0 = feed f32[3,16]{1,3}\n%1 = contiguous %0 (0)\n%2 = gelu %1\n",
           "1=contiguous(0) 2=gelu(1)", 2);
    GOLDEN(dycl_opt_fold, "%0 = feed f32[16,3]{1,16}\n%1 = contiguous %0 (0)\n%2 = gelu %1\n",
           "1=contiguous(0) 2=gelu(1)", 2);
    GOLDEN(dycl_opt_fold, "%0 = feed f32[2,16]{32,1}\n%1 = contiguous %0 (0)\n%2 = gelu %1\n%3 = exp %1\n",
           "1=contiguous(0) 2=gelu(1) 3=exp(1)", 2, 3);
    GOLDEN(dycl_opt_fold, "%0 = feed f32[2,16]{32,1}\n%1 = contiguous %0 (0)\n%2 = view %1 (0, 32, 1)\n%3 = gelu %2\n",
           "1=contiguous(0) 3=gelu(2)", 3);
}

static void test_simplify(void) {
    GOLDEN(dycl_opt_simplify, F "%2 = neg %0\n%3 = neg %2\n%4 = exp %3\n", "4=exp(0)", 4);
    GOLDEN(dycl_opt_simplify, F "%2 = relu %0\n%3 = relu %2\n%4 = exp %3\n", "2=relu(0) 4=exp(2)", 4);
    GOLDEN(dycl_opt_simplify, F "%2 = neg %1\n%3 = add %0 %2\n", "3=sub(0,1)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = neg %0\n%3 = add %2 %1\n", "3=sub(1,0)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = neg %1\n%3 = sub %0 %2\n", "3=add(0,1)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = neg %0\n%3 = neg %1\n%4 = div %2 %3\n", "4=div(0,1)", 4);
    GOLDEN(dycl_opt_simplify, F "%2 = mul %0 %0\n", "2=square(0)", 2);
    GOLDEN(dycl_opt_simplify, F "%2 = abs %0\n%3 = square %2\n", "3=square(0)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = sqrt %0\n%3 = reciprocal %2\n", "3=rsqrt(0)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = sigmoid %0\n%3 = mul %2 %0\n", "3=silu(0)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = eq %0 %1\n%3 = logical_not %2\n%4 = where %3 %0 %1\n", "2=ne(0,1) 4=where(2,0,1)",
           4);
    GOLDEN(dycl_opt_simplify, F "%2 = mul %0 %0\n%3 = sum %2 (2, 0)\n", "3=sumsq(0)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = neg %0\n%3 = mul %2 %2\n%4 = sum %3 (2, 0)\n", "4=sumsq(0)",
           4); /* one rule makes room for the next */
    /* refused: a NaN makes both comparisons false; another reader; two zeros; a broadcast factor; overflow */
    GOLDEN(dycl_opt_simplify, F "%2 = lt %0 %1\n%3 = logical_not %2\n", "2=lt(0,1) 3=logical_not(2)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = sigmoid %0\n%3 = mul %2 %0\n", "2=sigmoid(0) 3=mul(2,0)", 2, 3);
    GOLDEN(dycl_opt_simplify, F "%2 = sub %0 %1\n%3 = neg %2\n", "2=sub(0,1) 3=neg(2)", 3);
    GOLDEN(dycl_opt_simplify, "%0 = feed f32[6,1]{1,1}\n%1 = feed f32[6,8]{8,1}\n%2 = sigmoid %0\n%3 = mul %1 %2\n",
           "2=sigmoid(0) 3=mul(1,2)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = square %0\n%3 = sqrt %2\n", "2=square(0) 3=sqrt(2)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = exp %0\n%3 = log %2\n", "2=exp(0) 3=log(2)", 3);
    GOLDEN(dycl_opt_simplify, F "%2 = reciprocal %1\n%3 = mul %0 %2\n", "2=reciprocal(1) 3=mul(0,2)", 3);
}

static void test_distribute(void) {
    GOLDEN(dycl_opt_distribute, I "%3 = mul %0 %2\n%4 = mul %2 %1\n%5 = add %3 %4\n", "4=add(0,1) 5=mul(4,2)", 5);
    GOLDEN(dycl_opt_distribute, I "%3 = mul %0 %2\n%4 = mul %1 %2\n%5 = sub %3 %4\n", "4=sub(0,1) 5=mul(4,2)", 5);
    GOLDEN(dycl_opt_distribute, I "%3 = mul %0 %2\n%4 = mul %1 %2\n%5 = add %3 %4\n",
           "3=mul(0,2) 4=mul(1,2) 5=add(3,4)", 3, 5);
    GOLDEN(dycl_opt_distribute, F "%2 = mul %0 %1\n%3 = mul %1 %1\n%4 = add %2 %3\n",
           "2=mul(0,1) 3=mul(1,1) 4=add(2,3)", 4);
}
#undef F
#undef I

static void test_combine(void) {
    BLOCKS(
        "%0 = feed f32[6,8]{8,1}\n%1 = feed f32[8]{1}\n%2 = mul %0 %1\n%3 = add %2 %1\n%4 = gelu %3\n%5 = mul %4 %0\n",
        "mul_add3 gelu_mul5", 5);
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = mean %0 (2, 1)\n%2 = var %0 (2, 1, f0)\n%3 = sub %0 %1\n%4 = rsqrt %2\n%5 = "
           "mul %3 %4\n",
           "mean1 var2 rsqrt4 sub_mul5", 5);
    /* seen by two; seen outside; computed once a row; integers */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = mul %0 %0\n%2 = exp %0\n%3 = mul %2 %0\n%4 = add %3 %0\n%5 = add %3 %2\n",
           "exp2 mul3 add4 add5", 4, 5);
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = exp %0\n%2 = mul %1 %0\n%3 = add %2 %1\n", "exp1 mul2 add3", 2, 3);
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = feed f32[6,1]{1,1}\n%2 = mean %0 (2, 1)\n%3 = mul %2 %1\n%4 = add %3 %0\n",
           "mean2 mul3 add4", 4);
    BLOCKS("%0 = feed i32[6,8]{8,1}\n%1 = feed i32[6,8]{8,1}\n%2 = mul %0 %1\n%3 = add %2 %1\n", "mul2 add3", 3);
}

int main(void) {
    test_mapping();
    test_commute();
    test_cse();
    test_fold();
    test_fold_casts();
    test_fold_copies();
    test_simplify();
    test_distribute();
    test_fusion();
    test_join();
    test_prefilter();
    test_combine();
    printf(failures ? "%d of %d checks failed\n" : "ok: %d failures, %d checks\n", failures, checks);
    return failures != 0;
}
