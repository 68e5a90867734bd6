"""Documents small crates whose public items differ from a list; .ci/surface.py has to name each difference."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
CRATE = """
mod inner {
    pub struct Kept;
    impl Kept {
        pub fn value(&self) -> u32 { 0 }
        pub(crate) fn inside(&self) {}
    }
    impl Clone for Kept { fn clone(&self) -> Self { Kept } }
    pub struct Driver;
}
pub mod part {
    pub use crate::inner::Kept;
    pub enum Way { One, Two }
    pub(crate) fn own(driver: &crate::inner::Driver, kept: &Kept) { let _ = driver; kept.inside() }
    #[doc(inline)]
    pub use crate::inner::Kept as Again;
    MORE
}
pub use part::Way;
"""
LIST = "# A list.\nlimit 4\npart 3 2\n"
# More lines of the module, a list, what has to be printed (`None`: nothing is wrong).
CRATES = [
    ("", LIST, None),
    ("pub fn new() {}", LIST, "`part` has 4 items with 2 fields and variants, and the list says 3 with 2"),
    ("pub(crate) fn new() {}", LIST, None),
    ("pub struct New { pub field: u32, own: u32 }", LIST, "`part` has 4 items with 3 fields and variants"),
    ("pub trait New { const A: u32; fn f(&self); }", LIST, "`part` has 6 items"),
    ("impl crate::inner::Kept { pub fn new() {} }", LIST, "`part` has 4 items"),
    ("pub mod deeper { pub fn new() {} }", LIST, "`part` has 4 items"),
    ("", LIST.replace("part 3", "part 5"), "`part` has 3 items with 2 fields and variants, and the list says 5 with 2"),
    ("", LIST + "gone 1 0\n", "`gone` has 0 items"),
    ("", LIST.replace("limit 4", "limit 2"), "3 items are promised, and at most 2 may be"),
    ("pub fn new() -> crate::inner::Driver { crate::inner::Driver }", LIST, "promised items name `warpbell::inner::Driver`"),
    ("pub struct New { pub field: Option<crate::inner::Driver> }", LIST, "promised items name `warpbell::inner::Driver`"),
    ("pub fn new(_: &crate::inner::Driver) {}", LIST.replace("part 3", "part 4") + "hidden warpbell::inner::Driver\n", None),
    ("", LIST + "hidden warpbell::inner::Driver\n", "the list has `warpbell::inner::Driver` as hidden"),
]


def main():
    options = ["--crate-name", "warpbell", "--crate-type", "lib", "--edition", "2024", "--cap-lints", "allow"]
    options += ["-Z", "unstable-options", "--output-format", "json"]
    for more, listed, expected in CRATES:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "lib.rs").write_text(CRATE.replace("MORE", more))
            (folder / "list.txt").write_text(listed)
            command = ["rustdoc", *options, "--out-dir", folder, folder / "lib.rs"]
            subprocess.run(command, check=True, env={**os.environ, "RUSTC_BOOTSTRAP": "1"})
            command = [sys.executable, ROOT / ".ci/surface.py", folder / "warpbell.json", folder / "list.txt"]
            done = subprocess.run(command, capture_output=True, text=True)
            fine = done.returncode == 0 if expected is None else done.returncode == 1 and expected in done.stdout
            if not fine:
                sys.exit(f"surface: {more!r} {listed!r}: expected {expected}\n{done.stdout}{done.stderr}")
    print(f"surface: {len(CRATES)} crates are judged as they should be")


main()
