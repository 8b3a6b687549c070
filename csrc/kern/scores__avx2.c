#define DYCL_LEVEL        1
#define DYCL_SCORES_TABLE dycl_scores__avx2
#include "kern/scores_body.h"
