#define DYCL_LEVEL        2
#define DYCL_SCORES_TABLE dycl_scores__avx512
#include "kern/scores_body.h"
