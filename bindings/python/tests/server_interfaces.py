"""Compares the stand-ins for LMCache and vLLM with the sources of the packages, without importing these: names, parameters, fields, abstract methods.

    server_interfaces.py PLACE...     wheels, or folders that have the packages

Prints a line for each difference, and a count of what was compared. Exits with 1 if anything differs.
"""

import ast
import enum
import inspect
import pathlib
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import server_stand_ins  # noqa: E402


class Sources:
    """Modules of packages that are not imported."""

    def __init__(self, places):
        self.places = [zipfile.ZipFile(place) if zipfile.is_zipfile(place) else pathlib.Path(place) for place in places]
        self.parsed = {}

    def _read(self, path):
        for place in self.places:
            if isinstance(place, zipfile.ZipFile):
                if path in place.namelist():
                    return place.read(path).decode()
            elif (place / path).is_file():
                return (place / path).read_text()
        return None

    def module(self, name):
        """Returns the tree of a module, or `None` if no place has it."""
        if name not in self.parsed:
            path = name.replace(".", "/")
            text = self._read(f"{path}.py") or self._read(f"{path}/__init__.py")
            self.parsed[name] = None if text is None else ast.parse(text)
        return self.parsed[name]

    def find(self, module, name):
        """Returns the definition of a name and its module. Follows imports."""
        tree = self.module(module)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
                return node, module
        for node in tree.body if tree else ():
            if isinstance(node, ast.ImportFrom) and node.module and any((a.asname or a.name) == name for a in node.names):
                original = next(a.name for a in node.names if (a.asname or a.name) == name)
                found = self.find(node.module, original)
                if found is not None:
                    return found
        return None

    def lineage(self, node, module):
        """Returns a class and the bases of it that the places have."""
        classes = [node]
        for base in node.bases:
            found = self.find(module, base.id) if isinstance(base, ast.Name) else None
            if found is not None:
                classes += self.lineage(*found)
        return classes


def parameters(node):
    """Returns the names of all parameters, and the number of those that have to be given."""
    a = node.args
    positional = [one.arg for one in a.posonlyargs + a.args]
    return positional + [one.arg for one in a.kwonlyargs], len(positional) - len(a.defaults)


def own_parameters(function):
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def is_abstract(node):
    return any(isinstance(d, ast.Name) and d.id == "abstractmethod" for d in node.decorator_list)


def compare(stand_in, classes):
    """Yields differences between a stand-in and a class with its bases."""
    functions, fields, values = {}, {}, {}
    for node in reversed(classes):
        for part in node.body:
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions[part.name] = part
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                fields[part.target.id] = part.value is not None
            elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
                values[part.targets[0].id] = part.value
    for name, member in vars(stand_in).items():
        function = getattr(member, "__func__", member)
        if isinstance(member, property):
            if name not in functions:
                yield f"has no property {name}"
        elif inspect.isfunction(function) and (not name.startswith("__") or name == "__init__") and function.__module__ == server_stand_ins.__name__:
            if name not in functions:
                if name != "__init__":
                    yield f"has no method {name}"
                continue
            theirs, needed = parameters(functions[name])
            ours = own_parameters(function)
            if theirs[: len(ours)] != ours or needed > len(ours):
                yield f"{name} has the parameters {theirs}, and not {ours}"
    abstract = {name for name, part in functions.items() if is_abstract(part)}
    if abstract != set(getattr(stand_in, "__abstractmethods__", ())):
        yield f"has the abstract methods {sorted(abstract)}"
    if issubclass(stand_in, enum.Enum):
        for member in stand_in:
            if member.name not in values:
                yield f"has no member {member.name}"
            elif isinstance(values[member.name], ast.Constant) and values[member.name].value != member.value:
                yield f"{member.name} is {values[member.name].value!r}"
        return
    own = list(getattr(stand_in, "__annotations__", {}))
    for name in own:
        if name not in fields and name not in values:
            yield f"has no field {name}"
    if own and hasattr(stand_in, "__dataclass_fields__"):
        for name, has_default in fields.items():
            if not has_default and name not in stand_in.__dataclass_fields__:
                yield f"needs the field {name}"


def main(places):
    if not places:
        sys.exit(__doc__)
    sources, compared, differences = Sources(places), 0, 0
    if server_stand_ins.lmcache_modules() or server_stand_ins.vllm_modules():
        sys.exit("LMCache or vLLM can be imported here; run this where neither is installed")
    for module in sorted(name for name in sys.modules if name.split(".")[0] in ("lmcache", "vllm")):
        for name, member in vars(sys.modules[module]).items():
            if not inspect.isclass(member) and not inspect.isfunction(member):
                continue
            found, compared = sources.find(module, name), compared + 1
            if found is None:
                said = ["is not there"]
            elif inspect.isfunction(member):
                said = [] if parameters(found[0])[0] == own_parameters(member) else [f"has the parameters {parameters(found[0])[0]}"]
            else:
                said = list(compare(member, sources.lineage(*found)))
            differences += len(said)
            for one in said:
                print(f"{module}.{name} {one}")
    print(f"{compared} classes and functions compared, {differences} differences")
    sys.exit(1 if differences or not compared else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
