#define DYCL_ADD dycl_kern_add__scalar
#include "kern/add_body.h"
