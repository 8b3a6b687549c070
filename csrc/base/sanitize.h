/* Whether the address sanitizer watches this build. It knows the borders of malloc's blocks only: where memory is
 * divided further here, or given out again soon, each piece is a block of its own then. */
#ifndef DYCL_BASE_SANITIZE_H
#define DYCL_BASE_SANITIZE_H

#if defined(__SANITIZE_ADDRESS__)
#define DYCL_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DYCL_SANITIZED 1
#endif
#endif
#ifndef DYCL_SANITIZED
#define DYCL_SANITIZED 0
#endif

#endif
