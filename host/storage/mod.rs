//! From a namespace to `array[i]`: volumes, page cache, arrays.
