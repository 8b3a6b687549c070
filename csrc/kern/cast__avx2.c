#define CAST_ISA avx2
#include "kern/cast_body.h"
