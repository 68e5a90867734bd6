"""Builds small trees with an arrow that runs upward, a circle and more; .ci/floors.py has to name each of them."""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLOORS = """
[host]
bin
upper beside
lower

[kernels/include/warpbell]
high.cuh
pair.cuh+piece.cuh
low.cuh parts/first.cuh

[upward]
{upward}
[circles]
{circles}
"""
SOUND = {
    "host/lib.rs": "mod lower; pub mod upper; mod beside;\n",
    "host/upper/mod.rs": "mod one;\nmod two;\npub use one::One;\nuse crate::lower::{self, Low};\n",
    "host/upper/one.rs": "pub struct One;\n",
    "host/upper/two.rs": "use super::One;\n",
    "host/beside.rs": "use crate::lower::Low;\n",
    "host/lower.rs": "/// As [`crate::upper::One`].\npub struct Low;\n",
    "host/bin/warpbell.rs": "use warpbell::upper::One;\nmod args;\n",
    "host/bin/args.rs": "use crate::One;\n",
    "kernels/include/warpbell/high.cuh": "#include <warpbell/pair.cuh>\n#include <warpbell/parts/first.cuh>\n",
    "kernels/include/warpbell/pair.cuh": "#include <warpbell/low.cuh>\n#include <warpbell/piece.cuh>\n",
    "kernels/include/warpbell/piece.cuh": "#include <warpbell/pair.cuh>\n",
    "kernels/include/warpbell/low.cuh": "// #include <warpbell/high.cuh>\n",
    "kernels/include/warpbell/parts/first.cuh": "#pragma once\n",
}
UPWARD = "use crate::upper::One;\n"
CIRCLE = {"host/upper/one.rs": "use super::two::Two;\n", "host/upper/two.rs": "use super::{One};\npub struct Two;\n"}
# Files that replace or join those above, exceptions, what has to be printed (`None`: nothing is wrong).
TREES = [
    ({}, {}, None),
    ({"host/lower.rs": UPWARD}, {}, "host/lower.rs:1: `lower` uses `upper`, but `lower` is below `upper` in [host]"),
    ({"host/lower.rs": "\nuse crate::{\n    lower,\n    upper::One,\n};\n"}, {}, "host/lower.rs:2: `lower` uses `upper`"),
    ({"host/lower.rs": "fn f() { super::upper::f() }\n"}, {}, "`lower` uses `upper`"),
    ({"host/lower.rs": "macro_rules! m { () => { $crate::upper::f() } }\n"}, {}, "`lower` uses `upper`"),
    ({"host/beside.rs": UPWARD}, {}, "`beside` is on the same floor as `upper`"),
    ({"host/lower.rs": "#[cfg(test)]\nmod tests {\n    use crate::upper::One;\n}\n"}, {}, None),
    ({"host/lower.rs": "#[cfg(test)]\nmod checks;\n", "host/lower/checks.rs": UPWARD}, {}, None),
    ({"host/lower_tests.rs": UPWARD}, {}, None),
    ({"host/lower.rs": 'const TEXT: &str = "crate::upper::One";\n'}, {}, None),
    ({"host/lower.rs": UPWARD}, {"upward": "host/lower.rs -> upper: a reason\n"}, None),
    ({}, {"upward": "host/lower.rs -> upper: a reason\n"}, "host/lower.rs does not use `upper` any more"),
    ({"host/new.rs": UPWARD}, {}, "`new` has no floor"),
    (CIRCLE, {}, "host/upper: circle of one two"),
    (CIRCLE, {"circles": "host/upper: one two: a reason\n"}, None),
    (CIRCLE, {"circles": "host/upper: one three two: a reason\n"}, "write `host/upper: one two:`"),
    ({}, {"circles": "host/upper: one two: a reason\n"}, "no such circle any more"),
    ({"kernels/include/warpbell/low.cuh": "#include <warpbell/high.cuh>\n"}, {}, "low.cuh:1: `low.cuh` uses `high.cuh`"),
    ({"kernels/include/warpbell/low.cuh": '#include "warpbell/parts/first.cuh"\n'}, {}, "on the same floor as `parts/first.cuh`"),
]


def main():
    for files, exceptions, expected in TREES:
        with tempfile.TemporaryDirectory() as folder:
            listed = {"upward": "", "circles": "", **exceptions}
            for name, text in {**SOUND, **files, ".ci/floors.txt": FLOORS.format(**listed)}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            done = subprocess.run([sys.executable, ROOT / ".ci/floors.py", folder], capture_output=True, text=True)
            fine = done.returncode == 0 if expected is None else done.returncode == 1 and expected in done.stdout
            if not fine:
                sys.exit(f"floors: {files} {exceptions}: expected {expected}\n{done.stdout}{done.stderr}")
    print(f"floors: {len(TREES)} trees are judged as they should be")


main()
