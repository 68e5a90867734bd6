"""Makes bills of materials with a mistake; .ci/sbom.py has to name each."""

import copy
import sys

import sbom

WANTED = {("shipped", "1.0.0"), ("part", "2.0.0")}
BILL = {
    "metadata": {"component": {"components": [{"name": "shipped", "version": "1.0.0", "licenses": [{"expression": "MIT"}]}]}},
    "components": [{"name": "part", "version": "2.0.0", "licenses": [{"license": {"id": "Zlib"}}]}],
}
# What replaces keys of component `part`, and what has to be printed.
MISTAKES = [
    ({}, []),
    ({"licenses": []}, ["`part 2.0.0` has no licence"]),
    ({"licenses": [{"expression": "NOASSERTION"}]}, ["`part 2.0.0` has no licence"]),
    ({"licenses": [{"license": {"name": "its own"}}]}, []),
    ({"version": "2.0.1"}, ["`part 2.0.0` is not listed", "`part 2.0.1` is listed, and nothing has it compiled in"]),
    ({"version": None}, ["`part 2.0.0` is not listed", "`part None` is listed, and nothing has it compiled in"]),
    ({"name": "other"}, ["`part 2.0.0` is not listed", "`other 2.0.0` is listed, and nothing has it compiled in"]),
]


def package(id, *dependencies):
    node = {"id": id, "deps": [{"pkg": pkg, "dep_kinds": [{"kind": kind}]} for pkg, kind in dependencies]}
    return {"id": id, "name": id, "version": "1"}, node


def main():
    for change, expected in MISTAKES:
        bill = copy.deepcopy(BILL)
        bill["components"][0].update(change)
        found = sbom.faults(bill, WANTED)
        if found != expected:
            sys.exit(f"sbom_finds: {change} gave {found}, and has to give {expected}")
    # Neither compilers nor tests are compiled in, nor what these need.
    pairs = [
        package("root", ("part", None), ("compiler", "build"), ("test", "dev")),
        package("part", ("below", None)),
        *(package(name) for name in ("below", "test")),
        package("compiler", ("its", None)),
        package("its"),
    ]
    packages, nodes = (list(side) for side in zip(*pairs))
    metadata = {"packages": packages, "resolve": {"nodes": nodes}, "workspace_members": ["root"]}
    found = sbom.compiled_into(metadata, "root")
    if found != {("root", "1"), ("part", "1"), ("below", "1")}:
        sys.exit(f"sbom_finds: {sorted(found)} are compiled into `root`")
    print(f"sbom_finds: {len(MISTAKES)} bills and a graph")


main()
