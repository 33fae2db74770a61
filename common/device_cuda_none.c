/* Stands in for device_cuda.cu in a build without CUDA. */
#include <errno.h>

#include "common/device_ops.h"

int
device_cuda_open(struct device *device, int ordinal, struct error *err)
{
	(void)device;
	(void)ordinal;
	return error_set(err, -ENODEV, "cuda: this build has no CUDA; build with CUDA Toolkit 13");
}
