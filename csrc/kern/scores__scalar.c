#define DYCL_LEVEL        0
#define DYCL_SCORES_TABLE dycl_scores__scalar
#include "kern/scores_body.h"
