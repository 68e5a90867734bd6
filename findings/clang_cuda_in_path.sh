#!/usr/bin/env bash
# Seen with clang 19.1.7 (Debian 12) and nvcc 13.0.88: clang looks for a CUDA toolkit beside the ptxas in PATH, also with -nocudainc and
# -nocudalib, which use nothing of one. It warns of a newer toolkit, which -Werror makes an error. --cuda-path=FOLDER without a toolkit gives
# the bitcode that clang writes where there is no CUDA, byte for byte.
# Needs clang++-19 (CLANG names another one), python3 with pip, and pip's index.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
clang=${CLANG:-clang++-19}
"$clang" --version | head -n 1
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$folder/cuda" \
  nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96
bin=$folder/cuda/nvidia/cu13/bin
"$bin/nvcc" --version | tail -n 1
echo 'extern "C" __attribute__((device)) int one() { return 1; }' >"$folder/one.cu"
options=(-x cuda --cuda-device-only -nocudainc -nocudalib -Werror --cuda-gpu-arch=sm_90 -emit-llvm -c "$folder/one.cu")
if PATH="$bin:$PATH" "$clang" "${options[@]}" -o "$folder/found.bc" 2>"$folder/found.txt"; then
  echo "changed: clang compiles beside a newer toolkit"
  exit 1
fi
grep "CUDA version is newer" "$folder/found.txt"
mkdir "$folder/none"
"$clang" "${options[@]}" "--cuda-path=$folder/none" -o "$folder/without.bc"
PATH="$bin:$PATH" "$clang" "${options[@]}" "--cuda-path=$folder/none" -o "$folder/beside.bc"
cmp "$folder/without.bc" "$folder/beside.bc"
echo "with --cuda-path of a folder without CUDA: the same bitcode"
