#define CAST_ISA scalar
#include "kern/cast_body.h"
