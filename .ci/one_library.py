#!/usr/bin/env python3
"""Checks that the commands of every day share one build of the library: what `cargo test` has compiled, `cargo run` does not compile again.

Cargo compiles a package once more for each set of features and each profile that it or anything below it has. A dependency of tests that
turns on a feature of a dependency of the library is enough; then the feature is turned on in Cargo.toml for the library, too.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMMANDS = ("test --no-run", "test --no-run --test cli", "build --bin warpbell", "build --example embedding")


def library(command):
    """Returns the features of each package that the library is compiled with, and a digest of all that its build depends on."""
    # The list of units needs an option that only nightly compilers take without being told to.
    arguments = ["cargo", *command.split(), "--locked", "--unit-graph", "-Z", "unstable-options"]
    told = subprocess.run(arguments, cwd=ROOT, check=True, stdout=subprocess.PIPE, env={**os.environ, "RUSTC_BOOTSTRAP": "1"})
    units = json.loads(told.stdout)["units"]
    features, digests = {}, {}

    def digest(index):
        if index not in digests:
            unit = units[index]
            profile = {key: value for key, value in unit["profile"].items() if key != "name"}
            below = sorted(digest(d["index"]) for d in unit["dependencies"])
            said = [unit["pkg_id"], unit["target"]["kind"], unit["mode"], unit["features"], unit["platform"], profile, below]
            features[unit["pkg_id"].rsplit("/", 1)[-1], unit["target"]["kind"][0]] = unit["features"]
            digests[index] = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
        return digests[index]

    for index, unit in enumerate(units):
        if unit["target"]["src_path"] == str(ROOT / "host/lib.rs") and unit["mode"] == "build":
            return digest(index), features
    sys.exit(f"`cargo {command}` does not build the library")


def main():
    first, expected = library(COMMANDS[0]) if len(sys.argv) == 1 else sys.exit(__doc__)
    for command in COMMANDS[1:]:
        other, found = library(command)
        if other != first:
            differs = [f"{name} {kind}: {expected[name, kind]}, {value}" for (name, kind), value in found.items() if expected.get((name, kind), value) != value]
            sys.exit(f"`cargo {COMMANDS[0]}` and `cargo {command}` compile the library twice:\n" + "\n".join(differs or ["their profiles differ"]))
    print(f"one library for {len(COMMANDS)} commands")


main()
