"""Writes a software bill of materials (CycloneDX 1.6) for each package that is shipped, by cargo-sbom, and compares it with Cargo.lock.

Usage: sbom.py FOLDER. Every package that is compiled into a shipped one, with all features, has to be listed with its version and licence.
Packages that only compile the others are not listed: cargo-deny checks their licences."""

import json
import pathlib
import subprocess
import sys

# The Rust library with the program, the C library, and the Python package.
SHIPPED = ["warpbell", "warpbell-c", "warpbell-python"]


def output(*command):
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def compiled_into(metadata, name):
    """Returns the packages that are compiled into one, and this one: pairs of a name and a version."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found, left = set(), [id for id in metadata["workspace_members"] if packages[id]["name"] == name]
    if not left:
        sys.exit(f"sbom: the workspace has no package `{name}`; see SHIPPED in .ci/sbom.py")
    while left:
        id = left.pop()
        if id not in found:
            found.add(id)
            left += [d["pkg"] for d in nodes[id]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
    return {(packages[id]["name"], packages[id]["version"]) for id in found}


def licence(component):
    """Returns the licence of a component, or nothing: an expression, an identifier, or a name."""
    for entry in component.get("licenses", []):
        found = entry.get("expression") or entry.get("license", {}).get("id") or entry.get("license", {}).get("name")
        # cargo-sbom writes NOASSERTION for a package without one.
        if found and found not in ("NOASSERTION", "NONE"):
            return found
    return None


def faults(bill, wanted):
    """Names what is wrong with a bill of materials whose components have to be the wanted ones."""
    components = bill["components"] + bill["metadata"]["component"].get("components", [])
    listed = {(component["name"], component.get("version")) for component in components}
    found = [f"`{name} {version}` is not listed" for name, version in sorted(wanted - listed)]
    found += [f"`{name} {version}` is listed, and nothing has it compiled in" for name, version in sorted(listed - wanted, key=str)]
    found += [f"`{c['name']} {c.get('version')}` has no licence" for c in components if not licence(c)]
    return found


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    metadata = output("cargo", "metadata", "--locked", "--format-version=1", "--all-features")
    wrong = []
    for name in SHIPPED:
        bill = output("cargo", "sbom", "--cargo-package", name, "--output-format", "cyclone_dx_json_1_6")
        file = folder / f"{name}.cdx.json"
        file.write_text(json.dumps(bill, indent=1) + "\n")
        wanted = compiled_into(metadata, name)
        wrong += [f"{file}: {fault}" for fault in faults(bill, wanted)]
        licences = {licence(component) for component in bill["components"]} - {None}
        print(f"{file}: {len(wanted)} packages, {len(licences)} licence expressions")
    if wrong:
        sys.exit("\n".join(f"sbom: {fault}" for fault in wrong))


if __name__ == "__main__":
    main()
