#!/usr/bin/env bash
# Seen with jax 0.10.2 on the CPU, and numpy 2.4.6: under the default settings jax.dlpack.from_dlpack copies elements of 64 bits to 32 bits,
# without an error or a warning. 2^40 + 5 becomes 5, and 1e300 becomes infinity. With JAX_ENABLE_X64=1 the memory is shared.
# Needs python3 with venv, and pip's index.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 jax==0.10.2 jaxlib==0.10.2
cat >"$folder/take.py" <<'PY'
import os
import sys

import jax
import numpy as np

wide = os.environ.get("JAX_ENABLE_X64") == "1"
print("jax", jax.__version__, "numpy", np.__version__, "JAX_ENABLE_X64", int(wide))


def aligned(values, dtype):
    # jax shares memory of the host that begins at a multiple of 64.
    memory = np.zeros(len(values) * 8 + 64, np.uint8)
    first = -memory.__array_interface__["data"][0] % 64
    array = memory[first : first + len(values) * 8].view(dtype)
    array[:] = values
    return array


integers, reals = aligned([1, 2**40 + 5, -3], np.int64), aligned([1.0, 1e300, -3.0], np.float64)
taken = [jax.dlpack.from_dlpack(array) for array in (integers, reals)]
shared = [t.unsafe_buffer_pointer() == a.__array_interface__["data"][0] for t, a in zip(taken, (integers, reals))]
seen = [(str(t.dtype), np.asarray(t).tolist(), s) for t, s in zip(taken, shared)]
for kind, values, is_shared in seen:
    print(kind, values, "shared" if is_shared else "a copy")
if wide:
    expected = [("int64", [1, 2**40 + 5, -3], True), ("float64", [1.0, 1e300, -3.0], True)]
else:
    expected = [("int32", [1, 5, -3], False), ("float32", [1.0, float("inf"), -3.0], False)]
sys.exit(0 if seen == expected else f"changed: {seen}")
PY
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W error "$folder/take.py"
JAX_PLATFORMS=cpu JAX_ENABLE_X64=1 "$folder/venv/bin/python" -W error "$folder/take.py"
