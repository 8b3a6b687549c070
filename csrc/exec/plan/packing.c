#include "exec/plan/step.h"

#include <string.h>

static void keep(dycl_packing *packing, dycl_pack *pack) {
    if (pack && atomic_load(&pack->valid)) {
        dycl_pack **place = &packing->kept[packing->next_kept++ % DYCL_PACKING_KEPT], *oldest = *place;
        *place = pack;
        pack = oldest;
    }
    dycl_pack_release(pack);
}

void dycl_packing_forget(dycl_packing *packing) {
    dycl_pack_release(packing->pack);
    packing->pack = NULL;
    for (int i = 0; i < DYCL_PACKING_KEPT; i++) {
        dycl_pack_release(packing->kept[i]);
        packing->kept[i] = NULL;
    }
}

static int came_before(dycl_packing *packing, const void *source, const dycl_feed *feed) {
    for (int i = 0; i < DYCL_PACKING_KEPT; i++)
        if (packing->seen[i].source == source && packing->seen[i].token == feed->token &&
            packing->seen[i].version == feed->version)
            return 1;
    uint32_t place = packing->next_seen++ % DYCL_PACKING_KEPT;
    packing->seen[place].source = source;
    packing->seen[place].token = feed->token;
    packing->seen[place].version = feed->version;
    return 0;
}

int dycl_packing_came_before(const dycl_plan *plan, dycl_packing *packing) {
    const dycl_feed *feed = &plan->feeds[packing->feed];
    int at_once = packing->at_once;
    packing->at_once = 0;
    return feed->token && (came_before(packing, (const char *)feed->data + packing->offset, feed) || at_once);
}

dycl_status dycl_packing_get(const dycl_plan *plan, dycl_packing *packing, const float *scale, const void **out) {
    const dycl_feed *feed = &plan->feeds[packing->feed];
    dycl_pack *pack = packing->pack;
    size_t scale_bytes = (size_t)packing->as.channels * sizeof(float);
    const void *source = (const char *)feed->data + packing->offset;
    if (pack && pack->source == source && pack->token == feed->token && pack->version == feed->version &&
        atomic_load(&pack->valid) && dycl_pack_unchanged(pack, feed->data) &&
        (!scale || !memcmp(scale, packing->scale, scale_bytes))) {
        *out = pack->data;
        return DYCL_OK;
    }
    *out = NULL;
    packing->pack = NULL;
    keep(packing, pack);
    if (feed->token == 0) return DYCL_OK;
    int again = came_before(packing, source, feed) || !packing->patient || packing->at_once;
    packing->at_once = 0;
    if (scale) memcpy(packing->scale, scale, scale_bytes);
    dycl_pack_key key = {.token = feed->token,
                         .version = feed->version,
                         .as = &packing->as,
                         .scale = scale,
                         .weights = source,
                         .base = feed->data,
                         .words = packing->words};
    dycl_status status = dycl_pack_get(&key, again, &packing->pack);
    atomic_store_explicit(&packing->packed, packing->pack ? packing->pack->bytes : 0, memory_order_relaxed);
    if (packing->pack) {
        *out = packing->pack->data;
        packing->fresh = atomic_load(&packing->pack->references) <= 2; /* nobody else holds it but the table */
    }
    return status;
}
