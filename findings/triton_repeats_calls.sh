#!/usr/bin/env bash
# Seen with Triton 3.6.0 and 3.8.0: an external function that is not pure (is_pure=False) is called four times for each element, if its argument is widened
# from 32 to 64 bits, its result is stored with a stride of 2, pointers are aligned, and a thread holds four elements. Triton gives the result
# a second layout, and makes the call again in it. A function that changes memory then changes it four times. With one element for each thread it
# is called once. Triton 3.9.0 calls it once in both cases. Kernels are only compiled: no GPU is needed.
# Needs python3 with venv, and pip's index.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/next.ll" <<'LL'
target triple = "nvptx64-nvidia-cuda"
define i32 @next(i64 %address, i64 %index, i32 %wanted) noinline {
  %pointer = inttoptr i64 %address to ptr
  %element = getelementptr i32, ptr %pointer, i64 %index
  %before = atomicrmw add ptr %element, i32 %wanted monotonic
  ret i32 %before
}
LL
cat >"$folder/count.py" <<'PY'
import re
import sys
import warnings

warnings.simplefilter("ignore")
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language import core

library, *expected = sys.argv[1:]


@core.extern
def call(address, index, wanted, _semantic=None):
    types = (core.dtype("uint64"), core.dtype("uint64"), core.dtype("uint32"))
    symbols = {types: ("next", core.dtype("uint32"))}
    return core.extern_elementwise("external", "", [address, index, wanted], symbols, is_pure=False, _semantic=_semantic)


@triton.jit
def kernel(address, rows, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + i)
    value = call(tl.full((BLOCK,), address, tl.uint64), row.to(tl.uint64), tl.full((BLOCK,), 1, tl.uint32))
    tl.store(out + i * 2, value.to(tl.int32, bitcast=True))


def calls(block):
    types = {"address": "u64", "rows": "*u32", "out": "*i32", "BLOCK": "constexpr"}
    aligned = {(argument,): [["tt.divisibility", 16]] for argument in (1, 2)}
    source = ASTSource(kernel, types, constexprs={"BLOCK": block}, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "extern_libs": {"external": library}})
    # A call for each element that one of the 256 threads holds.
    return len(re.findall(r"call [^\n]*@next\(", made.asm["llir"])) // (block // 256)


seen = [str(calls(block)) for block in (256, 1024)]
print("triton", triton.__version__, "calls of an element:", seen[0], "with one element a thread,", seen[1], "with four")
sys.exit(0 if seen == expected else f"changed: {expected} were expected")
PY
for version in 3.8.0 3.9.0; do
  python3 -m venv --clear "$folder/venv"
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "triton==$version" numpy==2.4.6
  case $version in
    3.8.0) expected=(1 4) ;;
    *) expected=(1 1) ;;
  esac
  TRITON_CACHE_DIR=$folder/cache "$folder/venv/bin/python" "$folder/count.py" "$folder/next.ll" "${expected[@]}"
done
