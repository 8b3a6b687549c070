/* Which table of kernels serves: each family of kernels has one table a row of isa.def, called <family>__<name>, as far
 * as there are any.
 *
 * Ownership: tables are immutable statics. Threads: pure functions. */
#ifndef DYCL_KERN_ISA_H
#define DYCL_KERN_ISA_H

#include "base/cpu.h"

#define DYCL_ISA_DECLARATION_(type, family, NAME, name, ...) extern type family##__##name;
#define DYCL_ISA_WEAK_(type, family, NAME, name, ...)                                                                  \
    extern type family##__##name __attribute__((weak, visibility("hidden")));
#define DYCL_ISA_ENTRY_(type, family, NAME, name, ...) [DYCL_ISA_##NAME] = &family##__##name,

/* In the header that says what a table is: declares them all. */
#define DYCL_ISA_TABLES(type, family) DYCL_ISA_ROWS(DYCL_ISA_DECLARATION_, type, family)

/* In one source: defines family_for(isa), the table of this set or of the best below it; NULL: there is none. Weak
 * there, so that one which nobody wrote is NULL. */
#define DYCL_ISA_CHOICE(type, family)                                                                                  \
    DYCL_ISA_ROWS(DYCL_ISA_WEAK_, type, family)                                                                        \
    static type *family##_for(dycl_isa isa) {                                                                          \
        static type *const tables[DYCL_ISA_COUNT] = {DYCL_ISA_ROWS(DYCL_ISA_ENTRY_, type, family)};                    \
        while (isa > 0 && !tables[isa]) isa--;                                                                         \
        return tables[isa];                                                                                            \
    }

#endif
