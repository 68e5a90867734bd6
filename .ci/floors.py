"""Checks that modules of `host/` and device headers use only what lies below them. `floors.txt` has the order.

    floors.py [ROOT]              checks the tree
    floors.py --arrows SECTION    prints the arrows between the parts of a section, such as `host/rdma`, and how often they occur

An arrow runs from the module that a line of code is in to the module that a path (`crate::a::b`, `super::b`, `warpbell::a`) or an
`#include "warpbell/..."` of that line names. Tests are left out: files of modules under `#[cfg(test)]`, `tests.rs` and `*_tests.rs`.
"""

import collections
import pathlib
import re
import sys

HEADERS = "kernels/include/warpbell"
# Literals are matched so that what looks like a comment or a path in them is none.
BLANKED = re.compile(r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|"(?:\\.|[^"\\])*"|b?\'(?:\\[^\']+|[^\'\\])\'', re.S)
TEST_ONLY = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]")
ATTRIBUTE = re.compile(r"\s*#\[[^\]]*\]")
PATH = re.compile(r"(?<![\w:])(?:\$?crate|warpbell|self|super)\b\s*::")
SEGMENT = re.compile(r"(?:r#)?(\w+|\*)(?:\s+as\s+(\w+))?")
SPACE = re.compile(r"\s*")
# `internal!` of lib.rs is `pub use` with a feature.
USE = re.compile(r"^[ \t]*(?:(?:pub(?:\([^)]*\))?\s+)?use\s+(?:::)?|internal!\()", re.M)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+["<]warpbell/([^">]+)[">]', re.M)


def is_test_file(name):
    return name == "tests.rs" or name.endswith("_tests.rs")


def blank(text, first, last):
    return text[:first] + re.sub(r"[^\n]", " ", text[first:last]) + text[last:]


def end_of_item(text, at):
    """Returns the end of the Rust item that begins at `at`: its semicolon, or the brace that closes its body."""
    depth = 0
    for index in range(at, len(text)):
        character = text[index]
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0 and character == "}" and not re.match(r"\s*;", text[index + 1 :]):
                return index + 1
        elif character == ";" and depth == 0:
            return index + 1
    return len(text)


def code_of(text):
    """Returns Rust code without comments, literals and items for tests, line by line as before, and the modules that only tests have."""
    text = BLANKED.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)
    tests = set()
    while match := TEST_ONLY.search(text):
        at = match.end()
        while attribute := ATTRIBUTE.match(text, at):
            at = attribute.end()
        end = end_of_item(text, at)
        if module := re.match(r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", text[at:end]):
            tests.add(module.group(1))
        text = blank(text, match.start(), end)
    return text, tests


def leaves(text, at):
    """Yields the paths of the use tree or path that begins at `at`, as lists of segments, each with the name that it gets there."""
    if text[at : at + 1] == "{":
        depth, start = 0, at + 1
        for index in range(at, len(text)):
            depth += {"{": 1, "}": -1}.get(text[index], 0)
            if depth == 0 or (depth == 1 and text[index] == ","):
                start += len(text[start:index]) - len(text[start:index].lstrip())
                if start < index:
                    yield from leaves(text, start)
                start = index + 1
            if depth == 0:
                return
    match = SEGMENT.match(text, at)
    if not match:
        return
    name, alias = match.groups()
    rest = SPACE.match(text, match.end()).end()
    if text.startswith("::", rest):
        rest = SPACE.match(text, rest + 2).end()
        inner = False
        for path, named in leaves(text, rest):
            inner = True
            yield [name, *path], named
        if inner:
            return
    yield [name], alias or name


def inline_modules(text):
    """Returns the spans of `mod name { ... }`, with their names."""
    spans = []
    for match in re.finditer(r"\bmod\s+(\w+)\s*\{", text):
        spans.append((match.end(), end_of_item(text, match.start()), match.group(1)))
    return spans


class Rust:
    """The files of `host/`: for each the module that it is, and the paths in it."""

    def __init__(self, root):
        self.files = {}  # file: (module path, text)
        found = sorted((root / "host").rglob("*.rs"))
        texts = {file: code_of(file.read_text()) for file in found}
        tests = set()
        for file, (_, names) in texts.items():
            tests |= {tuple([*self.module(root, file), name]) for name in names}
        for file, (text, _) in texts.items():
            module = self.module(root, file)
            if is_test_file(file.name) or any(tuple(module[:i]) in tests for i in range(1, len(module) + 1)):
                continue
            self.files[file] = (module, text)
        self.modules = {tuple(module[:i]) for module, _ in self.files.values() for i in range(len(module) + 1)}
        # What modules import, which others may name as theirs: `pub use csr::Csr` makes `graph::Csr` of `graph::csr::Csr`.
        self.imports = collections.defaultdict(dict)
        for module, text in self.files.values():
            for match in USE.finditer(text):
                for path, name in leaves(text, match.end()):
                    if path[0] in ("crate", "self", "super") or (*module, path[0]) in self.modules:
                        self.imports[tuple(module)][name] = path

    @staticmethod
    def module(root, file):
        parts = list(file.relative_to(root / "host").with_suffix("").parts)
        if parts[-1] == "mod" or parts == ["lib"]:
            parts.pop()
        return ["bin"] if parts == ["bin", "warpbell"] else parts

    def arrows(self):
        """Yields file, line, the using module and the used one, each as a list of names below `host`."""
        for file, (module, text) in self.files.items():
            spans = inline_modules(text)
            for match in PATH.finditer(text):
                if re.search(r"\bpub\(in\s*$", text[: match.start()]):
                    continue
                here = module + [name for first, last, name in spans if first <= match.start() < last]
                line = text.count("\n", 0, match.start()) + 1
                for path, _ in leaves(text, match.start() + (match.group(0)[0] == "$")):
                    yield file, line, module, self.target(here, path)

    def target(self, here, path, depth=0):
        """Returns the module that has what a path names, also where another module passes it on."""
        base = list(here)
        if path[0] == "warpbell":
            base, path = [], path[1:]
        elif path[0] == "crate":
            base, path = here[:1] if here[:1] == ["bin"] else [], path[1:]
        while path and path[0] in ("self", "super"):
            base, path = base[:-1] if path[0] == "super" else base, path[1:]
        for index, segment in enumerate(path):
            if (*base, segment) not in self.modules:
                import_ = self.imports[tuple(base)].get(segment)
                return self.target(base, import_ + path[index + 1 :], depth + 1) if import_ and depth < 9 else base
            base = [*base, segment]
        return base


def header_arrows(root):
    folder = root / HEADERS
    for file in sorted(x for x in folder.rglob("*") if x.is_file()):
        text = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match.group(0)), file.read_text(), flags=re.S)
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield file, line, list(file.relative_to(folder).parts), match.group(1).split("/")


class Order:
    """The sections of `floors.txt`: for each the level of its parts, and the exceptions that are listed."""

    def __init__(self, file):
        self.sections, self.upward, self.circles = {}, {}, {}
        section, floors = None, {}
        for number, line in enumerate(file.read_text().split("\n"), 1):
            line = line.split("#")[0].strip()
            if match := re.fullmatch(r"\[(\S+)\]", line):
                section = match.group(1)
                floors[section] = []
            elif section == "upward" and (match := re.fullmatch(r"(\S+) -> (\S+): .+", line)):
                self.upward[match.group(1), match.group(2)] = number
            elif section == "circles" and (match := re.fullmatch(r"(\S+): ([^:]+): .+", line)):
                self.circles.setdefault(match.group(1), []).append((set(match.group(2).split()), number))
            elif line and section in (None, "upward", "circles"):
                sys.exit(f"{file}:{number}: not understood: {line}")
            elif line:
                floors[section].append([set(part.split("+")) for part in line.split()])
        for section in floors.keys() - {"upward", "circles"}:
            listed = floors[section]
            # Level and number of each name; names of one group have the same.
            levels = [(name, (len(listed) - i, j)) for i, parts in enumerate(listed) for j, part in enumerate(parts) for name in part]
            self.sections[section] = dict(levels)
            if len(levels) != len(self.sections[section]):
                sys.exit(f"{file}: [{section}] names a part twice")


def inner_of(section, path):
    """Returns the part of a path below the section's folder, or `None` outside of it."""
    inner = section.split("/")[1:] if section.startswith("host") else []
    return path[len(inner) :] if path[: len(inner)] == inner else None


def part_of(section, path, levels):
    """Returns the part of a section that a module or header is in: the longest listed one, otherwise the first name of the path."""
    inner = inner_of(section, path)
    if not inner:
        return None
    names = ["/".join(inner[:i]) for i in range(len(inner), 0, -1)]
    return next((name for name in names if name in levels), names[-1])


def check_floors(root, section, levels, arrows, upward):
    """Yields what is wrong with the arrows of a section. `upward` loses the exceptions that are used."""
    for name in sorted(levels):
        if not any((root / section / (name + end)).exists() for end in ("", ".rs")):
            yield f".ci/floors.txt: [{section}] names `{name}`, which does not exist"
    unplaced = set()
    for file, line, user, to in arrows:
        a, b = part_of(section, user, levels), part_of(section, to, levels)
        if a is None or b is None or a == b:
            continue
        unplaced |= {x for x in (a, b) if x not in levels}
        name = file.relative_to(root).as_posix()
        if a not in levels or b not in levels or levels[b][0] < levels[a][0] or levels[a] == levels[b]:
            continue
        if (name, b) in upward:
            upward[name, b] = None
            continue
        relation = "is below" if levels[a][0] < levels[b][0] else "is on the same floor as"
        yield f"{name}:{line}: `{a}` uses `{b}`, but `{a}` {relation} `{b}` in [{section}]"
    for name in sorted(unplaced):
        yield f"{section}: `{name}` has no floor: add it to .ci/floors.txt"


def check_circles(folder, arrows, listed):
    """Yields the circles among modules of one folder of `host` that are not listed as they are."""
    where = collections.defaultdict(list)
    for file, line, user, to in arrows:
        a, b = part_of(folder, user, {}), part_of(folder, to, {})
        if a is not None and b is not None and a != b:
            where[a, b].append(f"{file.name}:{line}")
    known = list(listed)
    for group in circles(where):
        allowed = next((x for x in known if x[0] & set(group) or x[0] == {"*"}), None)
        if allowed and (set(group) == allowed[0] or allowed[0] == {"*"}):
            known = [x for x in known if x is not allowed or x[0] == {"*"}]
            continue
        known = [x for x in known if x is not allowed]
        if allowed and set(group) < allowed[0]:
            yield f".ci/floors.txt:{allowed[1]}: the circle is smaller now: write `{folder}: {' '.join(group)}:`"
            continue
        inner = sorted((a, b) for a, b in where if a in group and b in group)
        shown = ", ".join(f"{a} -> {b} ({where[a, b][0]})" for a, b in inner[:12])
        yield f"{folder}: circle of {' '.join(group)}: {shown}"
    for names, number in known:
        if names != {"*"}:
            yield f".ci/floors.txt:{number}: no such circle any more: delete the line"


def check(root, order):
    rust, headers = list(Rust(root).arrows()), list(header_arrows(root))
    upward = dict(order.upward)
    wrong = []
    for section, levels in order.sections.items():
        wrong += check_floors(root, section, levels, rust if section.startswith("host") else headers, upward)
    wrong += [
        f".ci/floors.txt:{number}: {key[0]} does not use `{key[1]}` any more: delete the line" for key, number in upward.items() if number
    ]
    folders = {"/".join(["host", *module[:i]]) for _, _, module, _ in rust for i in range(len(module))}
    # A section has no circle but within a group.
    for folder in sorted(folders - order.sections.keys()):
        wrong += check_circles(folder, rust, order.circles.get(folder, []))
    return wrong, len(rust) + len(headers)


def circles(arrows):
    """Returns the groups of parts that use each other, directly or through others (Tarjan)."""
    graph = collections.defaultdict(set)
    for a, b in arrows:
        graph[a].add(b)
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for to in sorted(graph[node]):
            if to not in index:
                visit(to)
                low[node] = min(low[node], low[to])
            elif to in stack:
                low[node] = min(low[node], index[to])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def print_arrows(root, section):
    arrows = Rust(root).arrows() if section.startswith("host") else header_arrows(root)
    levels = {} if section.startswith("host") else Order(root / ".ci/floors.txt").sections[section]
    counts = collections.Counter()
    for _, _, user, to in arrows:
        a, b = part_of(section, user, levels), part_of(section, to, levels)
        if a is not None and b is not None and a != b:
            counts[a, b] += 1
    for (a, b), count in sorted(counts.items()):
        print(f"{a} -> {b}: {count}")
    for group in circles(counts):
        print(f"circle: {' '.join(group)}")


def main(arguments):
    root = pathlib.Path(__file__).resolve().parents[1]
    if arguments[:1] == ["--arrows"]:
        return print_arrows(root, arguments[1].rstrip("/"))
    root = pathlib.Path(arguments[0]) if arguments else root
    order = Order(root / ".ci/floors.txt")
    wrong, arrows = check(root, order)
    for line in wrong:
        print(line)
    listed = sum(map(len, order.circles.values()))
    print(f"floors: {arrows} arrows, {len(wrong)} wrong; listed: {len(order.upward)} upward, {listed} circles")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
