/* nsys_private.h: private to nsys*.c: what names in a report mean. */
#ifndef DTP_TRACES_FORMATS_NSYS_PRIVATE_H
#define DTP_TRACES_FORMATS_NSYS_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the name without a version: "cudaLaunchKernel_v7000" is cudaLaunchKernel. */
size_t nsys_without_version(const char *name, size_t n);
const char *nsys_copy_name(int64_t kind); /* CUpti_ActivityMemcpyKind */
/* "step 12", "Iteration_3", "ProfilerStep#7": the number; false where the name is none of these. */
bool nsys_step_number(const char *name, int64_t *out);

#endif
