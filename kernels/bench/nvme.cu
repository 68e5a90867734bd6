// Block reads and writes, as fio does them.
#include <warpbell/kernel.h>
