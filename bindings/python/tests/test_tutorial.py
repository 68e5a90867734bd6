"""Runs the page ``docs/python.md`` as a reader does."""

import contextlib
import importlib.util
import io
import pathlib
import re

import pytest

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


def test_the_page_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, run, skipped = {}, 0, []
    blocks = BLOCK.findall(PAGE.read_text())
    for code, expected in blocks:
        missing = [name for name in OTHERS if f"import {name}\n" in code and importlib.util.find_spec(name) is None]
        if missing:
            skipped += missing
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)
        assert first_missing(expected, printed.getvalue()) is None, f"{code}\nprints\n{printed.getvalue()}"
        run += 1
    assert run + len(skipped) == len(blocks) and len(blocks) >= 10
    if skipped:
        pytest.skip(f"all blocks but those that need {', '.join(skipped)} were run")
