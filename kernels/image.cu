// What makes an image of the kernels: the fingerprint of the structures that they were compiled with, and on CPUs their list.
#include <warpbell/kernel.h>

WB_IMAGE(warpbell_image)
