/* torch as the host of base/host.h: kernels of torch through its stable C ABI. What this torch lacks stays NULL.
 * Threads: set up once. */
#ifndef DYCL_PY_TORCH_HOST_H
#define DYCL_PY_TORCH_HOST_H

void dycl_host_setup(void);

#endif
