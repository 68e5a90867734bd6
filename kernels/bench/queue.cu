// The queue core against an ideal controller.
#include <warpbell/kernel.h>
