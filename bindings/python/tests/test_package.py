"""What the package has beside its objects."""

import inspect
import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest
import warpbell

ERRORS = [e for e in vars(warpbell).values() if isinstance(e, type) and issubclass(e, Exception)]


def test_exceptions_are_a_tree():
    assert len(ERRORS) > 10 and all(issubclass(e, warpbell.Error) for e in ERRORS)
    error = warpbell.Error("text")
    assert (error.device, error.lba, error.status, error.remedy, error.operations) == (None, None, None, None, ())
    error = warpbell.LostPeError("text")
    assert isinstance(error, warpbell.WorldError) and isinstance(error, ConnectionError) and (error.pe, error.fault) == (None, None)


def test_every_kind_of_error_has_a_class():
    from warpbell import _native

    rows = _native.error_classes()
    assert len(rows) == len({kind for kind, _, _ in rows}) >= 20
    used = {getattr(warpbell, name) for _, *names in rows for name in names}
    # Those that only the package raises itself.
    assert used | {warpbell.ForkError, warpbell.InternalError} == set(ERRORS)


def test_headers_are_in_the_package():
    include = pathlib.Path(warpbell.get_include())
    assert (include / "warpbell" / "table.cuh").is_file() and (include / "warpbell" / "abi.h").is_file()


def program():
    beside = pathlib.Path(sysconfig.get_path("scripts"), "warpbell")
    return [str(beside)] if beside.exists() else [sys.executable, "-c", "from warpbell._program import main; main()"]


def run(*words, **options):
    return subprocess.run([*program(), *words], capture_output=True, text=True, timeout=120, **options)


def test_the_program_is_there():
    done = run("--version")
    assert (done.stdout.strip(), done.returncode) == (f"warpbell {warpbell.__version__}", 0), done.stderr
    done = run("include-dir")
    assert done.stdout.strip() == warpbell.get_include(), done.stderr
    done = run("graph", "bfs", "kron:8", "--engine", "cpu", "--json", "-")
    assert done.returncode == 0 and '"reached"' in done.stdout, done.stderr
    done = run("grpah")
    assert done.returncode == 2 and "graph" in done.stderr
    done = run("graph", "bfs", "/nowhere/missing.el")
    assert done.returncode == 1 and "missing.el" in done.stderr


def test_everything_has_a_documentation_and_a_stub():
    stub = (pathlib.Path(warpbell.__file__).parent / "_native.pyi").read_text()
    assert (pathlib.Path(warpbell.__file__).parent / "py.typed").exists()
    for name in warpbell.__all__:
        thing = getattr(warpbell, name)
        if name.startswith("__"):
            continue
        assert thing.__doc__, name
        if not isinstance(thing, type) or issubclass(thing, Exception) or issubclass(thing, tuple):
            continue
        section = re.split(rf"\nclass {name}\b.*:", stub)[1].split("\nclass ")[0]
        for member, value in vars(thing).items():
            if member.startswith("_"):
                continue
            assert f"def {member}(" in section or f"    {member}: " in section, f"{name}.{member}"
            assert inspect.getdoc(value), f"{name}.{member}"


def test_importing_starts_no_threads_and_needs_no_numpy():
    text = "import sys, os, warpbell; assert 'numpy' not in sys.modules; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize("name", ["Engine", "Volume", "Table", "Graph", "World", "SymmetricTensor"])
def test_objects_are_not_copied_to_other_processes(name, engine, volume, table):
    import pickle

    world = warpbell.World.single(engine, heap_bytes=1 << 24)
    things = {"Engine": engine, "Volume": volume, "Table": table, "Graph": warpbell.Graph.load(engine, "kron:4"), "World": world, "SymmetricTensor": world.zeros(1)}
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(things[name])
