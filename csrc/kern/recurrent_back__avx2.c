#define DYCL_LEVEL         1
#define DYCL_RECURRENT_ROW dycl_recurrent_row__avx2
#include "kern/recurrent_back_body.h"
