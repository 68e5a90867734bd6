// Connected components.
#include <warpbell/kernel.h>
