/* The second of two operators behind the first one (DYCL_KERN_PAIR of kern.def), by how many operands they have. */
#ifndef DYCL_KERN_EW_PAIR_H
#define DYCL_KERN_EW_PAIR_H

#define EW_BEHIND_1_1(first, second) second(first(x))
#define EW_BEHIND_1_2(first, second) second(first(x), y)
#define EW_BEHIND_2_1(first, second) second(first(x, y))
#define EW_BEHIND_2_2(first, second) second(first(x, y), z)

#endif
