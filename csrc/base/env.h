/* Variables of the environment that take one of a few words. What is set to something else counts as not set, and a
 * complaint about it is kept for whoever tells people (dycl/_environment.py): a setting that silently does nothing is
 * worse than none.
 *
 * Ownership: texts live as long as the process. Threads: any. */
#ifndef DYCL_BASE_ENV_H
#define DYCL_BASE_ENV_H

/* Which of the words the variable is; -1 when it is not set, empty, or none of them (complained of). */
int dycl_env_choice(const char *name, const char *const *words, int count);
/* The same for a whole number from 0 to `most`, and for any number that is not negative. */
int dycl_env_number(const char *name, int most);
double dycl_env_amount(const char *name);

void dycl_env_complain(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* the same text again is not kept twice */
const char *dycl_env_complaint(int at);    /* NULL behind the last one */

#endif
