// Single-source shortest paths.
#include <warpbell/kernel.h>
