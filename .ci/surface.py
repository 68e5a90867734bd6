#!/usr/bin/env python3
"""Counts what programs reach in the crate `warpbell` without the feature `internals`, and compares the numbers with `surface.txt`.

    surface.py            fails if a module has more or fewer items than the list says, or all have more than the list's limit
    surface.py --write    writes the numbers into the list
    surface.py --names    prints each item
    surface.py JSON LIST  takes rustdoc's output and the list from these files, instead of running rustdoc for the families

An item is a function, method, associated constant, structure, enumeration, union, trait, function or constant of a trait, constant,
static, type or macro that has a public path. Fields and variants are counted beside them, in a column of their own. Methods that come
from traits, and modules, do not count.

Types of the crate that promised items name and that have no public path are listed, too: programs hold and pass on such a value, and
call its methods, but cannot name its type. A new promised signature that names a driver's type is an error until the list has it.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = ROOT / ".ci/surface.txt"
MEMBERS = ("impls", "implementations", "items", "variants")
FEATURES = "cuda-12080,storage,shmem,parquet,soft,doctor,nvml"


def documented():
    """Runs rustdoc. Its JSON needs an option that only nightly compilers take without being told to."""
    command = ["cargo", "rustdoc", "--locked", "--quiet", "--package", "warpbell", "--lib", "--no-default-features", "--features", FEATURES]
    # As on docs.rs: no kernel is compiled.
    environment = {**os.environ, "RUSTC_BOOTSTRAP": "1", "DOCS_RS": "1"}
    options = ["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"]
    subprocess.run(command + options, cwd=ROOT, check=True, env=environment)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "doc/warpbell.json"


class Surface:
    """Public items by the module at the crate's root that their first public path begins with."""

    def __init__(self, document):
        self.index = document["index"]
        self.items, self.parts = collections.defaultdict(dict), collections.defaultdict(dict)
        self.seen = set()
        root = self.index[str(document["root"])]
        # Modules come first, so that what the root passes on counts where it is.
        for child in sorted(self.public(root["inner"]["module"]["items"]), key=lambda x: kind(x) != "module"):
            self.visit(child, [])

    def public(self, ids):
        found = (self.index.get(str(x)) for x in ids)
        return [x for x in found if x and x["visibility"] == "public"]

    def add(self, where, item, path):
        """Notes an item. Returns false if it has been seen by another path."""
        if item["id"] in self.seen:
            return False
        self.seen.add(item["id"])
        where[path[0] if path else "(root)"]["::".join(path + [item["name"]])] = kind(item)
        return True

    def hidden(self, paths):
        """Returns the paths, inside of the crate, of types and traits that promised items name and that have no public path."""
        named = set()
        for item in (self.index[str(x)] for x in self.seen):
            body = item["inner"][kind(item)]
            if kind(item) != "module":
                # Members are items of their own, and implementations of traits promise nothing.
                own = {k: v for k, v in body.items() if k not in MEMBERS} if isinstance(body, dict) else body
                named |= set(named_by(own))
        own = (paths.get(str(x)) for x in named - self.seen)
        return sorted("::".join(x["path"]) for x in own if x and x["crate_id"] == 0)

    def visit(self, item, path):
        body = item["inner"][kind(item)]
        if kind(item) == "use":
            target = self.index.get(str(body["id"]))
            if target and body["is_glob"] and kind(target) == "module":
                for child in self.public(target["inner"]["module"]["items"]):
                    self.visit(child, path)
            elif target:
                self.visit(target, path)
        elif kind(item) == "module":
            if item["id"] not in self.seen:
                self.seen.add(item["id"])
                for child in self.public(body["items"]):
                    self.visit(child, path + [item["name"]])
        elif self.add(self.items, item, path):
            self.visit_members(body, path + [item["name"]])

    def visit_members(self, body, path):
        """Visits methods, associated constants, fields and variants of a type, or the items of a trait."""
        if not isinstance(body, dict):
            return
        for child in (self.index.get(str(x)) for x in body.get("items", [])):
            if child:
                self.add(self.items, child, path)
        for implementation in (self.index.get(str(x)) for x in body.get("impls", [])):
            if implementation and implementation["inner"]["impl"]["trait"] is None:
                for child in self.public(implementation["inner"]["impl"]["items"]):
                    self.add(self.items, child, path)
        shape = body.get("kind", body)
        fields = shape.get("plain", shape).get("fields", shape.get("tuple", [])) if isinstance(shape, dict) else []
        for field in self.public(x for x in fields if x is not None):
            self.add(self.parts, field, path)
        for variant in (self.index[str(x)] for x in body.get("variants", [])):
            self.add(self.parts, variant, path)


def kind(item):
    return next(iter(item["inner"]))


def named_by(part):
    """Yields the identifiers of the types and traits in a part of rustdoc's output."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if key in ("resolved_path", "trait", "trait_") and isinstance(value, dict) and "id" in value:
            yield value["id"]
        if isinstance(value, (dict, list)):
            yield from named_by(value)


def read_list(file):
    """Returns the limit of all items, for each module its items, and its fields and variants, and the hidden types."""
    limit, modules, hidden = None, {}, []
    for line in file.read_text().split("\n"):
        if match := re.fullmatch(r"limit (\d+)", line):
            limit = int(match.group(1))
        elif match := re.fullmatch(r"hidden (\S+)", line):
            hidden.append(match.group(1))
        elif match := re.fullmatch(r"(\S+) (\d+) (\d+)", line):
            modules[match.group(1)] = (int(match.group(2)), int(match.group(3)))
    return limit, modules, hidden


def write_list(file, limit, counts, hidden):
    head = [line for line in file.read_text().split("\n") if line.startswith("#")]
    rows = [f"{name} {items} {parts}" for name, (items, parts) in sorted(counts.items())]
    file.write_text("\n".join([*head, f"limit {limit}", *rows, *(f"hidden {x}" for x in hidden), ""]))


def differences(counts, listed, hidden, hidden_listed):
    """Yields a line for each module and each hidden type in which the crate and the list differ."""
    write = "if the change is meant: .ci/surface.py --write"
    for name in sorted(counts.keys() | listed.keys()):
        now, then = counts.get(name, (0, 0)), listed.get(name, (0, 0))
        if now != then:
            yield f"`{name}` has {now[0]} items with {now[1]} fields and variants, and the list says {then[0]} with {then[1]}; {write}"
    for name in sorted(set(hidden) - set(hidden_listed)):
        yield f"promised items name `{name}`, which has no public path: promise it, or make those items internals; {write}"
    for name in sorted(set(hidden_listed) - set(hidden)):
        yield f"the list has `{name}` as hidden, and no promised item names it any more, or it is promised; {write}"


def main(arguments):
    names = [pathlib.Path(x) for x in arguments if not x.startswith("--")]
    document = json.loads((names[0] if names else documented()).read_text())
    file = names[1] if len(names) > 1 else LIST
    surface = Surface(document)
    modules = sorted(surface.items.keys() | surface.parts.keys())
    counts = {name: (len(surface.items[name]), len(surface.parts[name])) for name in modules}
    hidden = surface.hidden(document["paths"])
    total = sum(items for items, _ in counts.values())
    if "--names" in arguments:
        print("\n".join(f"{what} {path}" for name in modules for path, what in sorted(surface.items[name].items())))
    limit, listed, hidden_listed = read_list(file)
    if "--write" in arguments:
        write_list(file, limit, counts, hidden)
        listed, hidden_listed = counts, hidden
    wrong = list(differences(counts, listed, hidden, hidden_listed))
    if total > limit:
        wrong.append(f"{total} items are promised, and at most {limit} may be; what embedding programs do not need is `internal!`")
    print("".join(f"surface: {x}\n" for x in wrong), end="")
    print(f"surface: {total} items, {sum(parts for _, parts in counts.values())} fields and variants; {len(hidden)} types without a path")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
