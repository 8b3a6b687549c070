/* Elements are moved as integers of their size, whatever they are.
 *
 * Ownership: none. Threads: types only. */
#ifndef DYCL_KERN_ELEMENT_H
#define DYCL_KERN_ELEMENT_H

#include <stdint.h>

typedef uint8_t dycl_element1;
typedef uint16_t __attribute__((may_alias)) dycl_element2;
typedef uint32_t __attribute__((may_alias)) dycl_element4;
typedef uint64_t __attribute__((may_alias)) dycl_element8;

#endif
