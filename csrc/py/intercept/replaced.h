/* Attributes of torch.Tensor that the program replaces (counters of operations, mock.patch): lazy tensors have rows of
 * their own for them, and would not ask the program's. So no region begins while one is replaced, and one that runs
 * steps aside. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_REPLACED_H
#define DYCL_PY_INTERCEPT_REPLACED_H

int dycl_replaced_setup(void); /* 0 or -1; when the lazy type has all its rows */
int dycl_replaced_any(void);

#endif
