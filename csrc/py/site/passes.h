/* What became of the histories that a site's calls made: backward passes, which come later, from anywhere.
 *
 * Ownership: reference counted, because autograd's graph may outlive the site, and must not keep it: a function that
 * holds its own results would never be let go. Threads: GIL held. */
#ifndef DYCL_PY_SITE_PASSES_H
#define DYCL_PY_SITE_PASSES_H

#include <stdint.h>

typedef struct dycl_passes {
    uint64_t done;     /* through a node of autograd's graph, by a plan or in torch */
    uint64_t replayed; /* of these: in torch, operator by operator */
    uint64_t twice;    /* of these: because the gradients are to be differentiated themselves */
    uint32_t references;
    char why[192]; /* of the last one that was replayed for another reason */
} dycl_passes;

struct dycl_site;
/* The site's, made when it is first asked for. Retained; NULL: no memory, so nothing is counted. */
dycl_passes *dycl_passes_of(struct dycl_site *site);
void dycl_passes_release(dycl_passes *passes); /* NULL is allowed, as in the next two */
void dycl_passes_ran(dycl_passes *passes);
void dycl_passes_replayed(dycl_passes *passes, int twice, const char *why); /* why: where not twice */

#endif
