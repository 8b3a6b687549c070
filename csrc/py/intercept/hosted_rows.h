/* torch's functions that hosted.def has a row for and that have no binding of their own. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_HOSTED_ROWS_H
#define DYCL_PY_INTERCEPT_HOSTED_ROWS_H

int dycl_hosted_setup(void); /* after the bindings; 0, or -1 with an exception */

#endif
