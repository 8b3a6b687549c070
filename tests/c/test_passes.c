/* The passes over a graph: text in, what they make of it out. */
#include "base/alloc.h"
#include "opt/mapping.h"
#include "random.h"

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
    "O2O G  O2M G  M2M G  RE G   SHUF G",
    "O2M G  O2M Y  R      O2M Y  O2M Y",
    "M2M G  M2M Y  R      M2M Y  M2M Y",
    "RE G   O2M Y  M2M Y  RE G   RE G",
    "SHUF G O2M Y  M2M Y  RE G   SHUF G",
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
        check(info->mapping >= 0 && info->mapping < DYCL_MAP_COUNT && (expected < 0 || (int)info->mapping == expected), "mapping of", info->name);
    }
}

/* ---- Golden blocks: one line a block, in the order of the schedule: its nodes' values, "!" before a block that is not a tile program */

static void blocks_of(const dycl_program *p, char *out, size_t room) {
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < p->order_count; i++) {
        const dycl_block *block = &p->blocks[p->order[i]];
        used += (size_t)snprintf(out + used, room - used, "%s%s", i ? "; " : "", block->kind == DYCL_BLOCK_TILE ? "" : "!");
        for (uint32_t n = block->first; n != DYCL_NONE && used < room; n = p->next[n])
            used += (size_t)snprintf(out + used, room - used, "%s%s%u", n == block->first ? "" : " ", dycl_op_get((dycl_op)p->graph.nodes[n].op)->name,
                                     p->graph.nodes[n].out);
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
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = gelu %0\n%2 = mean %1 (2, 1)\n%3 = var %1 (2, 1, f0)\n%4 = sub %1 %2\n%5 = rsqrt %3\n%6 = mul %4 %5\n",
           "gelu1 mean2 var3 sub4 rsqrt5 mul6", 6);
    /* a product between them: not convex, so the sum runs with what follows */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = feed f32[8,8]{8,1}\n%2 = gelu %0\n%3 = linear %2 %1 _\n%4 = add %2 %3\n%5 = relu %4\n",
           "gelu2; !linear3; add4 relu5", 5);
    /* two branches around nothing but themselves are one block */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = gelu %0\n%2 = sigmoid %0\n%3 = mul %1 %2\n%4 = tanh %1\n", "gelu1 sigmoid2 mul3 tanh4", 3, 4);
    /* a transposed reader moves elements */
    BLOCKS("%0 = feed f32[6,6]{6,1}\n%1 = gelu %0\n%2 = view %1 (0, 6, 6, 1, 6)\n%3 = add %2 %0\n", "gelu1; add3", 3);
    /* a view that splits dimensions does not */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = gelu %0\n%2 = view %1 (0, 6, 2, 4, 8, 4, 1)\n%3 = softmax %2 (2)\n", "gelu1 softmax3", 3);
    /* rows of another length: never */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = softmax %0 (1)\n%2 = view %1 (0, 12, 4, 4, 1)\n%3 = softmax %2 (1)\n", "softmax1; softmax3", 3);
    /* two operators of one row without any One-to-One between them */
    BLOCKS("%0 = feed f32[6,8]{8,1}\n%1 = softmax %0 (1)\n%2 = log_softmax %1 (1)\n", "softmax1 log_softmax2", 2);
}

int main(void) {
    test_mapping();
    test_fusion();
    printf(failures ? "%d of %d checks failed\n" : "ok: %d failures, %d checks\n", failures, checks);
    return failures != 0;
}
