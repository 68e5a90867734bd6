// The shipped image, compiled as C++20 for the CPU engine.
#include "../all.cu"
