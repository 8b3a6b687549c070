#define DYCL_LEVEL        1
#define DYCL_SCREEN_TABLE dycl_screen__avx2
#include "kern/screen_body.h"
