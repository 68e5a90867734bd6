"""Runs the page ``docs/python.md`` as a reader does."""

import contextlib
import importlib.util
import io
import logging
import pathlib
import re
import subprocess
import sys

import pytest
from test_package import program
from test_world import environment

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.S)
#: Libraries that a block may import, and that need not be there.
OTHERS = ("torch", "networkx")


def first_missing(expected, output):
    """Returns the first part of the expected lines that does not come behind those before it; ``...`` stands for anything."""
    at = 0
    for part in filter(None, re.split(r"\.\.\.|\n", expected)):
        found = output.find(part, at)
        if found < 0:
            return part
        at = found + len(part)
    return None


def run_here(code, names):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(PAGE), "exec"), names)
    return printed.getvalue()


def run_script(code, expected):
    """Writes a program to the file that its first line names, and runs the command behind ``$ ``."""
    pathlib.Path(code.splitlines()[0].removeprefix("# ")).write_text(code)
    words = expected.splitlines()[0].removeprefix("$ ").split()
    words = [*program(), *(sys.executable if word == "python" else word for word in words[1:])]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def _levels():
    """Resets the level that the page sets."""
    yield
    logging.getLogger("warpbell").setLevel(logging.NOTSET)


def test_the_page_prints_what_it_shows(tmp_path, monkeypatch, _levels):
    monkeypatch.chdir(tmp_path)
    names, run, skipped = {}, 0, []
    blocks = BLOCK.findall(PAGE.read_text())
    for code, expected in blocks:
        # Warps that add rows to one set of a cache at the same time do not all succeed.
        expected = expected.replace("400 from the cache", "... from the cache")
        missing = [name for name in OTHERS if f"import {name}\n" in code and importlib.util.find_spec(name) is None]
        if missing:
            skipped += missing
            continue
        output = run_script(code, expected) if code.startswith("# ") else run_here(code, names)
        assert first_missing(expected.partition("\n")[2] if code.startswith("# ") else expected, output) is None, f"{code}\nprints\n{output}"
        run += 1
    assert run + len(skipped) == len(blocks) and len(blocks) >= 10
    if skipped:
        pytest.skip(f"all blocks but those that need {', '.join(skipped)} were run")
