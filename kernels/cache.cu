// Flushing a cache.
#include <warpbell/kernel.h>
