#!/usr/bin/env bash
# Seen with pyarrow 26.0.1 and pandas 2.3.3: pyarrow.csv.read_csv takes a column of integers for doubles if one of them is 2^63 or more, without
# a warning. The identifiers 2^64 - 1 and 2^64 - 2 become one vertex. 2^53 + 1, in the same column, becomes 2^53.
# pandas takes the same file as uint64. With column_types={"src": pyarrow.uint64()} pyarrow keeps all values, too.
# Needs python3 with venv, and pip's index.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 pandas==2.3.3 pyarrow==26.0.1
cat >"$folder/edges.csv" <<'CSV'
src,dst
18446744073709551615,1
18446744073709551614,2
9007199254740993,3
CSV
"$folder/venv/bin/python" -W error - "$folder/edges.csv" <<'PY'
import sys

import pandas
import pyarrow
from pyarrow import csv

print("pyarrow", pyarrow.__version__, "pandas", pandas.__version__)
path, ids = sys.argv[1], [2**64 - 1, 2**64 - 2, 2**53 + 1]
named = csv.ConvertOptions(column_types={"src": pyarrow.uint64()})
seen = {}
for name, column in (
    ("pyarrow", csv.read_csv(path)["src"]),
    ("pyarrow, a named type", csv.read_csv(path, convert_options=named)["src"]),
):
    seen[name] = (str(column.type), [int(value) for value in column.to_pylist()])
column = pandas.read_csv(path)["src"]
seen["pandas"] = (str(column.dtype), column.tolist())
for name, (kind, values) in seen.items():
    print(f"{name}:", kind, values)
expected = {
    "pyarrow": ("double", [2**64, 2**64, 2**53]),
    "pyarrow, a named type": ("uint64", ids),
    "pandas": ("uint64", ids),
}
sys.exit(0 if seen == expected else f"changed: {seen}")
PY
