// The shipped image: the fingerprint of the structures that the kernels were compiled with, and on CPUs the list of kernels.
#include <warpbell/kernel.h>

WB_IMAGE(warpbell_image)
