#!/usr/bin/env python3
"""Compiles a Triton kernel for each flat device function against bitcode. Needs Triton, and no GPU.

    tests/device_functions/triton_compile.py FILE.bc ARCH [FUNCTION...]

ARCH is the generation of GPUs as a number, 90 for example. Without names every function of warpbell_device.h is compiled. Each compilation is
a process of its own: LLVM ends the process where it stops with an assertion.
"""

import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/device"))
import functions  # noqa: E402

KERNEL = '''
import sys, triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language import core

@core.extern
def call({names}, _semantic=None):
    types = tuple(core.dtype(t) for t in {arguments})
    return core.extern_elementwise("warpbell", {bitcode!r}, [{names}], {{types: ({name!r}, core.dtype({result!r}))}}, is_pure=False, _semantic=_semantic)

@triton.jit
def kernel({names}, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, call({values}))

# The bytes of a tensor in each thread are those of one element: a call for each thread.
types = {{**dict(zip({listed}, {arguments})), "out": "*" + {result!r}, "B": "constexpr"}}
source = ASTSource(kernel, types, constexprs={{"B": 128}})
made = triton.compile(source, target=GPUTarget("cuda", {arch}, 32), options={{"extern_libs": {{"warpbell": {bitcode!r}}}, "num_warps": 4}})
assert ".entry kernel" in made.asm["ptx"] and len(made.asm["cubin"]) > 0
'''


def source(function, bitcode, arch):
    """Returns a program that compiles a kernel which calls a function in each thread."""
    names = [name if name != "from" else "source" for _, name in function.arguments]
    result, *arguments = function.types(functions.TRITON)
    # Triton's signature of a kernel has short names of types.
    short = {"uint32": "u32", "uint64": "u64", "fp32": "fp32", "fp64": "fp64"}
    text = KERNEL.format(names=", ".join(names), listed=names, arguments=arguments, bitcode=bitcode, name=function.name, result=result,
                         values=", ".join(f"tl.full((B,), 0, tl.{t.replace('fp', 'float')}) + {n}" for n, t in zip(names, arguments)), arch=arch)
    types = [short[t] for t in arguments]
    return text.replace(f"zip({names}, {arguments})", f"zip({names}, {types})").replace(f'"*" + {result!r}', f'"*" + {short[result]!r}')


def main(bitcode, arch, *names):
    listed = [f for f in functions.read() if not names or f.name in names]
    missing = set(names) - {f.name for f in listed}
    if missing:
        sys.exit(f"not in warpbell_device.h: {', '.join(sorted(missing))}")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for f in listed:
            program = pathlib.Path(folder, f"{f.name}.py")
            program.write_text(source(f, str(pathlib.Path(bitcode).resolve()), int(arch)))
            done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                failed += 1
                print(f"FAILED {f.name}: {done.stderr[-600:] or done.returncode}", flush=True)
    print(f"{len(listed) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
