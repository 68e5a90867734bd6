"""Plants a violation of each kind in a copy of the sources; .ci/language.py has to name each of them."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLANTED = [
    ("host/planted.rs", "pub enum RungError {}\n", "identifier `RungError`"),
    ("host/planted.rs", "pub struct Needs;\n", "identifier `Needs`"),
    ("host/planted.rs", "fn lose_patience() {}\n", "identifier `lose_patience`"),
    ("kernels/planted.cuh", "struct errand {};\n", "identifier `errand`"),
    ("host/planted.rs", "/// Whether the queue is full.\nfn is_full() {}\n", "begins with `Whether`"),
    ("host/planted.rs", "//! What a queue is.\n", "begins with `What`"),
    ("kernels/planted.cuh", "// The same for a warp.\n", "begins with `The same`"),
    ("host/planted.rs", "/// Returns a value that can be had at once.\n", "`can be had`"),
    ("host/planted.rs", "/// Opens a drive of silicon.\n", "`silicon`"),
    ("host/planted.rs", 'const TEXT: &str = "load the module that mends it";\n', "`mends`"),
    ("docs/planted.md", "The call answers a number.\n", "`answers`"),
    ("docs/planted.md", "It ends as an error.\n", "`ends as`"),
    ("host/planted.rs", "// See host/nowhere.rs.\n", "`host/nowhere.rs` does not exist"),
    ("host/planted.rs", "// SAFETY: as above.\nunsafe { f() };\n", "only refers elsewhere"),
]
ALLOWED = [
    ("host/planted.rs", "/// Returns true if the queue is full.\nfn has_room() {}\n"),
    ("host/planted.rs", "// Nobody waits here, for\n// What it is worth.\n"),
    ("host/planted.rs", "// SAFETY: assigned once, before any thread starts.\nunsafe { f() };\n"),
    ("kernels/planted.cuh", "// See host/lib.rs.\nstruct leader {};\n"),
]


def main():
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, "copy")
        for name in (".ci/language.py", "host/lib.rs"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        subprocess.run(["git", "init", "--quiet"], cwd=copy, check=True)

        def checked(name, text):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_text(text)
            subprocess.run(["git", "add", name, "host/lib.rs"], cwd=copy, check=True)
            return subprocess.run([sys.executable, ".ci/language.py", name], cwd=copy, capture_output=True, text=True)

        for name, text, found in PLANTED:
            done = checked(name, text)
            if done.returncode == 0 or found not in done.stdout:
                sys.exit(f"language: {text!r} is not found: {done.stdout}{done.stderr}")
        for name, text in ALLOWED:
            done = checked(name, text)
            if done.returncode != 0:
                sys.exit(f"language: {text!r} is no violation: {done.stdout}{done.stderr}")
    print(f"language: {len(PLANTED)} planted violations found")


main()
