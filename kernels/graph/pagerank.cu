// PageRank.
#include <warpbell/kernel.h>
