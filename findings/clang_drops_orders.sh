#!/usr/bin/env bash
# Seen with clang 19.1.7 (Debian 12), for sm_90:
# __scoped_atomic_fetch_add with acquire-release order and the scope of the system becomes `atom.add.u32`: relaxed, and of the GPU's scope.
# LLVM's instruction has the order and no scope, and the code for NVPTX has neither. There is no warning.
# Needs clang++-19 (CLANG names another one), and no CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
clang=${CLANG:-clang++-19}
"$clang" --version | head -n 1
cat >"$folder/add.cu" <<'CU'
extern "C" __attribute__((device)) unsigned add(unsigned* p) {
  return __scoped_atomic_fetch_add(p, 1u, __ATOMIC_ACQ_REL, __MEMORY_SCOPE_SYSTEM);
}
CU
options=(-x cuda --cuda-device-only -nocudainc -nocudalib "--cuda-path=$folder" -O2 --cuda-gpu-arch=sm_90 -S -o -)
"$clang" "${options[@]}" -emit-llvm "$folder/add.cu" | tee "$folder/add.ll" | grep atomicrmw
"$clang" "${options[@]}" "$folder/add.cu" | tee "$folder/add.ptx" | grep -E "atom|fence|membar"
grep -q "acq_rel" "$folder/add.ll" || { echo "changed: LLVM's instruction has another order"; exit 1; }
! grep -q "syncscope" "$folder/add.ll" || { echo "changed: LLVM's instruction has a scope"; exit 1; }
grep -qE "atom\.add\.u32" "$folder/add.ptx" || { echo "changed: the PTX is another one"; exit 1; }
! grep -qE "acq_rel|\.sys|fence|membar" "$folder/add.ptx" || { echo "changed: the PTX has an order or a scope"; exit 1; }
