#include "opt/mapping.h"

#define O2O  DYCL_MAP_O2O
#define O2M  DYCL_MAP_O2M
#define M2M  DYCL_MAP_M2M
#define RE   DYCL_MAP_REORG
#define SHUF DYCL_MAP_SHUF
#define G(t)                                                                                                           \
    { t, DYCL_FUSE_YES }
#define Y(t)                                                                                                           \
    { t, DYCL_FUSE_MEASURE }
#define R(t)                                                                                                           \
    { t, DYCL_FUSE_NEVER }

/* Every One-to-Many or Many-to-Many before a Many-to-Many would be computed again for each element that reads it:
 * never. What is gained where a Many-to-Many or a One-to-Many is followed by something that moves or repeats its
 * elements depends on sizes: measured. */
const dycl_fuse_cell dycl_fuse_table[DYCL_MAP_COUNT][DYCL_MAP_COUNT] = {
    /*         then  O2O      O2M     M2M     REORG   SHUF */
    [O2O] = {G(O2O), G(O2M), G(M2M), G(RE), G(SHUF)},   [O2M] = {G(O2M), Y(O2M), R(O2M), Y(O2M), Y(O2M)},
    [M2M] = {G(M2M), Y(M2M), R(M2M), Y(M2M), Y(M2M)},   [RE] = {G(RE), Y(O2M), Y(M2M), G(RE), G(RE)},
    [SHUF] = {G(SHUF), Y(O2M), Y(M2M), G(RE), G(SHUF)},
};

dycl_mapping dycl_mapping_of_edge(const dycl_program *p, uint32_t n, int i, int64_t row) {
    const dycl_graph *g = &p->graph;
    const dycl_node *node = &g->nodes[n];
    const dycl_op_info *info = dycl_op_get((dycl_op)node->op);
    dycl_tile_need need;
    if (info->mapping == O2O) {
        int64_t from = dycl_value_numel(&g->values[dycl_node_operands(g, node)[i]]),
                to = dycl_value_numel(&g->values[node->out]);
        return from == to || (row > 1 && from * row == to) ? O2O : O2M;
    }
    if (info->mapping != M2M || row <= 1) return info->mapping;
    dycl_tile_need_of(p, n, &need);
    return need.ok && need.row == row ? O2O : M2M;
}
