#define CAST_ISA avx512
#include "kern/cast_body.h"
