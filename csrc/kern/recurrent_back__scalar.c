#define DYCL_LEVEL         0
#define DYCL_RECURRENT_ROW dycl_recurrent_row__scalar
#include "kern/recurrent_back_body.h"
