#define DYCL_ADD dycl_kern_add__avx512
#include "kern/add_body.h"
