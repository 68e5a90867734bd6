#!/usr/bin/env bash
# Seen with numpy 2.4.6 and ml_dtypes 0.6.0:
#  * numpy.save writes the type of bfloat16 as '<V2', of float8_e4m3fn as '<V1', and of float8_e5m2 as '<f1'.
#  * numpy.load returns the first two as raw bytes, and refuses the third: '<f1' is no type that numpy knows.
#  * astype("float32") of the loaded float8_e4m3fn parses the bytes as text: 1.0 is byte 0x38, the digit 8, so that it becomes 8.0.
#  * A view of the loaded array as the type that it had is right.
# Needs python3 with venv, and pip's index.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0
"$folder/venv/bin/python" - <<'PY'
import io
import sys

import ml_dtypes
import numpy as np

print("numpy", np.__version__, "ml_dtypes", ml_dtypes.__version__)
seen = {}
for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
    file = io.BytesIO()
    np.save(file, np.ones(2, getattr(ml_dtypes, name)))
    written = file.getvalue().split(b"'descr': '")[1].split(b"'")[0].decode()
    file.seek(0)
    try:
        loaded = np.load(file)
    except ValueError as error:
        print(f"{name}: written as {written}; load fails: {error}")
        seen[name] = (written, None)
        continue
    try:
        converted = loaded.astype("float32").tolist()
    except ValueError as error:
        converted = str(error)
    right = loaded.view(getattr(ml_dtypes, name)).astype("float32").tolist()
    print(f"{name}: written as {written}, loaded as {loaded.dtype}; astype gives {converted}; a view first gives {right}")
    seen[name] = (written, str(loaded.dtype), converted, right)
expected = {
    "bfloat16": ("<V2", "|V2", "setting an array element with a sequence.", [1.0, 1.0]),
    "float8_e4m3fn": ("<V1", "|V1", [8.0, 8.0], [1.0, 1.0]),
    "float8_e5m2": ("<f1", None),
}
sys.exit(0 if seen == expected else f"changed: {seen}")
PY
