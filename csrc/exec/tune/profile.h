/* What was found out by measuring, in this process and in earlier ones on this machine: short texts by key. The Python
 * package fills it from a file when dycl starts and writes what is new back (dycl/_profile.py); here is only the table.
 * All of it is hints: any entry may be missing, old or wrong.
 *
 * Ownership: keys and variants are copied. Threads: any. */
#ifndef DYCL_EXEC_TUNE_PROFILE_H
#define DYCL_EXEC_TUNE_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#define DYCL_PROFILE_ENTRIES 32768 /* more are not taken */
#define DYCL_PROFILE_VARIANT 48    /* characters, with the end */

void dycl_profile_remember(const char *key, const char *variant); /* from the file */
int dycl_profile_recall(const char *key,
                        char *out_way); /* 1, with DYCL_PROFILE_VARIANT characters; 0: nothing is known */
void dycl_profile_note(const char *key, const char *variant,
                       double nanoseconds); /* found out now; nanoseconds: what it takes, for people; 0: no matter */

/* What was noted since the last call, oldest first: up to `room` entries; returns how many. Keys live as long as the
 * process. */
typedef struct {
    const char *key;
    char variant[DYCL_PROFILE_VARIANT];
    double nanoseconds;
} dycl_profile_entry;
uint32_t dycl_profile_take(dycl_profile_entry *out, uint32_t room);
void dycl_profile_untake(void); /* they could not be written: all that was noted is new again */

void dycl_profile_clear(void); /* tests; no entries that were taken may be in use */
uint32_t dycl_profile_count(void);
uint32_t dycl_profile_pending(void); /* noted and not taken */
uint64_t dycl_profile_hits(void);    /* recalls that found something */

#endif
