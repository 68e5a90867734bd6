// The flat device functions, as one translation unit: `make` compiles this file to bitcode and to cubins.
#include "array.cuh"
#include "volume.cuh"
#include "world.cuh"
