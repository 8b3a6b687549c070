#define DYCL_LEVEL         2
#define DYCL_RECURRENT_ROW dycl_recurrent_row__avx512
#include "kern/recurrent_back_body.h"
