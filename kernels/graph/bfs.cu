// Breadth-first search.
#include <warpbell/kernel.h>
