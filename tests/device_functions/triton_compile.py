#!/usr/bin/env python3
"""Compiles Triton kernels that call each flat device function, against bitcode. Needs Triton, and no GPU.

    tests/device_functions/triton_compile.py FILE.bc ARCH [FUNCTION...]

ARCH is the generation of GPUs as a number, 90 for example. Without names every function of warpbell_device.h is compiled. A kernel calls several
functions; if it does not compile, each of them has a kernel of its own. Each compilation is a process: LLVM ends it with an assertion.
"""

import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # the tree stays as it is
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/device"))
import functions  # noqa: E402

# Functions that one kernel calls.
TOGETHER = 12
# Triton's names of types in the signature of a kernel.
SIGNATURE = {"uint32": "u32", "uint64": "u64", "fp32": "fp32", "fp64": "fp64"}
HEAD = '''
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language import core
'''
CALL = '''
@core.extern
def call_{name}({names}, _semantic=None):
    types = tuple(core.dtype(t) for t in {types})
    symbols = {{types: ({name!r}, core.dtype({result!r}))}}
    return core.extern_elementwise("warpbell", "", [{names}], symbols, is_pure=False, _semantic=_semantic)
'''
# The number as each type, for 128 threads: a call in each of them.
KERNEL = '''
@triton.jit
def kernel(number_uint32, number_uint64, number_fp32, number_fp64, out, B: tl.constexpr):
    out += tl.arange(0, B)
{calls}

types = {types}
source = ASTSource(kernel, types, constexprs={{"B": 128}})
options = {{"extern_libs": {{"warpbell": {bitcode!r}}}, "num_warps": 4}}
made = triton.compile(source, target=GPUTarget("cuda", {arch}, 32), options=options)
assert len(made.asm["cubin"]) > 0
'''


def program(listed, bitcode, arch):
    """Returns a program that compiles a kernel which calls functions in each thread."""
    text, calls = HEAD, []
    for f in listed:
        result, *types = f.types(functions.TRITON)
        names = ", ".join(f"a{i}" for i in range(len(types)))
        text += CALL.format(name=f.name, names=names, types=types, result=result)
        values = ", ".join(f"tl.full((B,), number_{t}, tl.{t.replace('fp', 'float')})" for t in types)
        calls.append(f"    tl.store(out, call_{f.name}({values}).to(tl.float64))")
    types = {**{f"number_{t}": s for t, s in SIGNATURE.items()}, "out": "*fp64", "B": "constexpr"}
    return text + KERNEL.format(calls="\n".join(calls), types=types, bitcode=bitcode, arch=arch)


def compiled(listed, bitcode, arch, folder):
    """Compiles a kernel. Returns nothing, or what is wrong."""
    path = pathlib.Path(folder, f"{listed[0].name}_{len(listed)}.py")
    path.write_text(program(listed, bitcode, arch))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr[-600:] or f"exit status {done.returncode}"


def main(bitcode, arch, *names):
    listed = [f for f in functions.read() if not names or f.name in names]
    missing = set(names) - {f.name for f in listed}
    if missing:
        sys.exit(f"not in warpbell_device.h: {', '.join(sorted(missing))}")
    bitcode, failed = str(pathlib.Path(bitcode).resolve()), 0
    with tempfile.TemporaryDirectory() as folder:
        for at in range(0, len(listed), TOGETHER):
            group = listed[at:at + TOGETHER]
            if not (wrong := compiled(group, bitcode, int(arch), folder)):
                continue
            alone = {f.name: compiled([f], bitcode, int(arch), folder) for f in group}
            bad = {name: text for name, text in alone.items() if text} or {", ".join(alone): wrong}
            failed += len(bad)
            for name, text in bad.items():
                print(f"FAILED {name}: {text}", flush=True)
    print(f"{len(listed) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
