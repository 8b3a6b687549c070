#include "base/host.h"

dycl_host dycl_host_functions;
