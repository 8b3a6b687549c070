#define DYCL_LEVEL        2
#define DYCL_SCREEN_TABLE dycl_screen__avx512
#include "kern/screen_body.h"
