#!/usr/bin/env bash
# Seen on an NVIDIA H200 (driver 580.159, CUDA 13.0): a kernel with 4 KiB of shared memory for a block does not start while a kernel without any has
# one block of 256 threads on each multiprocessor, although threads, registers and shared memory have room for both. A kernel without shared
# memory starts. A multiprocessor's L1 is cut between cache and shared memory by the first kernel, and is cut again only when no block is there.
# So a kernel that waits for what the second one does waits for ever. If the first kernel asks for the largest share
# (cudaFuncAttributePreferredSharedMemoryCarveout, 100 %), the second one starts.
# Needs a GPU, python3 with venv, and pip's index; or PYTHON, a python that has cupy.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [[ -z ${PYTHON:-} ]]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check cupy-cuda13x==14.2.0 numpy==2.2.6 nvidia-cuda-nvrtc==13.0.88 \
    nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
  PYTHON=$folder/venv/bin/python
  CUDA_PATH=$(echo "$folder"/venv/lib/python*/site-packages/nvidia/cu13)
  export CUDA_PATH LD_LIBRARY_PATH=$CUDA_PATH/lib
fi
cat >"$folder/carveout.py" <<'PY'
import sys
import time

import cupy
import numpy

source = r"""
extern "C" __global__ void wait(const volatile int* flag, long long cycles) {
  const long long begin = clock64();
  while (!*flag && clock64() - begin < cycles) __nanosleep(200);
}
extern "C" __global__ void none(int* out) { if (threadIdx.x == 4096) *out = 1; }
extern "C" __global__ void some(int* out) {
  __shared__ int place[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) place[i] = i;
  __syncthreads();
  if (place[threadIdx.x * 7 % 1024] < 0) *out = 1;
}
"""
module = cupy.RawModule(code=source)
wait, others = module.get_function("wait"), {"none": module.get_function("none"), "4 KiB": module.get_function("some")}
device = cupy.cuda.Device()
blocks, names = device.attributes["MultiProcessorCount"], cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
memory = cupy.cuda.alloc_pinned_memory(4)
flag, out = numpy.frombuffer(memory, numpy.int32, 1), cupy.zeros(1, numpy.int32)
first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)


def starts(other):
    """Returns true if `other` ends while `wait` runs."""
    flag[0] = 0
    with first:
        wait((blocks,), (256,), (numpy.uint64(memory.ptr), numpy.int64(4_000_000_000)))
    time.sleep(0.05)
    ended = cupy.cuda.Event()
    with second:
        other((blocks,), (256,), (out,))
        ended.record()
    until = time.monotonic() + 0.5
    while not ended.done and time.monotonic() < until:
        time.sleep(0.001)
    result = ended.done
    flag[0] = 1
    first.synchronize()
    second.synchronize()
    return result


for other in others.values():  # loads the kernels
    other((1,), (256,), (out,))
device.synchronize()
seen = []
for carveout in (-1, 100):
    wait.preferred_shared_memory_carveout = carveout
    for shared, other in others.items():
        seen.append(starts(other))
        print(f"first kernel's carveout {carveout}, second kernel's shared memory {shared}:", "starts" if seen[-1] else "waits")
print(names, "driver", cupy.cuda.runtime.driverGetVersion(), "cupy", cupy.__version__)
sys.exit(0 if seen == [True, False, True, True] else "changed")
PY
"$PYTHON" "$folder/carveout.py"
