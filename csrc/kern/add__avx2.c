#define DYCL_ADD dycl_kern_add__avx2
#include "kern/add_body.h"
