/* Memory that others than torch may write: shared with NumPy, or exported by DLPack.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_MEMORY_FOREIGN_H
#define DYCL_PY_MEMORY_FOREIGN_H

int dycl_foreign_is(const char *impl);    /* of a tensor's implementation */
void dycl_foreign_note(const char *impl); /* it was exported */

#endif
