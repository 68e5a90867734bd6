// Kernels that the host's `Cache` and `Array` run: flush, reset, read, write. The shipped image has them. An image of your own
// includes this file once if its host calls any of these.
#pragma once

#include "../../storage/cache.cu"
