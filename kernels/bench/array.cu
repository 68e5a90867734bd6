// Array loads against plain loads.
#include <warpbell/kernel.h>
