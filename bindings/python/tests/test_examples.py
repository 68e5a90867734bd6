"""Runs the examples for Python as a reader does."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from test_kernels import need, need_library
from test_package import program

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python"


def run(name, *words, launcher=()):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [*launcher, sys.executable, str(EXAMPLES / name), "--engine", os.environ.get("WARPBELL_TEST_ENGINE", "cpu"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)


def test_training_has_the_same_losses_with_features_on_storage():
    pytest.importorskip("torch_geometric", reason="needs torch_geometric")
    done = run("graphsage.py", "--nodes", "2000", "--batch", "256", "--epochs", "3", "--cache-bytes", "65536")
    assert done.returncode == 0, done.stdout + done.stderr
    losses = re.findall(r"^(memory|memory-mapped file|storage) +((?:[\d.]+ ){3}) +[\d.]+ epochs/s$", done.stdout, re.M)
    assert [name for name, _ in losses] == ["memory", "memory-mapped file", "storage"], done.stdout
    first, *_, last = map(float, losses[0][1].split())
    # Ten communities: the loss of a guess is 2.3.
    assert last < first < 4 and last < 2
    assert "\ncorrect: the losses are the same" in done.stdout


def test_losses_that_differ_are_an_error(tmp_path):
    pytest.importorskip("torch_geometric", reason="needs torch_geometric")
    text = (EXAMPLES / "graphsage.py").read_text()
    wrong = text.replace('"memory-mapped file": ArrayStore(x=mapped,', '"memory-mapped file": ArrayStore(x=mapped * 2,')
    assert wrong != text
    (tmp_path / "wrong.py").write_text(wrong)
    done = run(tmp_path / "wrong.py", "--nodes", "500", "--batch", "256", "--epochs", "2")
    assert done.returncode == 1 and "losses differ by" in done.stderr, done.stdout + done.stderr


def test_pages_of_a_kv_cache_are_there_after_a_restart(engine):
    if engine.kind == "gpu":
        pytest.importorskip("torch", reason="needs torch")
    done = run("kv_store.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "stored 20 pages of 32 KiB",
        "10 of 11 pages of another request are there",
        "loaded 10 of them into other pages: equal",
        "after a restart: loaded 20 of 20 pages: equal",
        "deleted 16: 4 are left, 31 MiB are free",
    ]


def test_pages_of_a_kv_cache_that_differ_are_an_error(engine, tmp_path):
    if engine.kind == "gpu":
        pytest.importorskip("torch", reason="needs torch")
    text = (EXAMPLES / "kv_store.py").read_text()
    wrong = text.replace("check(cache, pages[:known], other, places)", "check(cache, pages[:known][::-1], other, places)")
    assert wrong != text
    (tmp_path / "wrong.py").write_text(wrong)
    done = run(tmp_path / "wrong.py")
    assert done.returncode == 1 and "layer 0 differs from what was stored" in done.stderr, done.stdout + done.stderr


def need_device_functions(engine, form, *modules):
    if engine.kind != "gpu":
        pytest.skip("needs a GPU")
    need(*modules)
    need_library(form, engine)


@pytest.mark.parametrize("pes", [1, 2])
def test_device_calls_of_triton_in_a_ring(engine, pes):
    need_device_functions(engine, "bitcode", "torch", "triton")
    done = run("triton_ring.py", launcher=[*program(), "run", "-n", "2", "--"] if pes == 2 else ())
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [f"PE {pe} of {pes}: the sum of all vectors is correct" for pe in range(pes)]
    assert sorted(done.stdout.splitlines()) == [f"[{pe}] {line}" if pes == 2 else line for pe, line in enumerate(lines)]


def test_device_calls_of_numba_double_an_array(engine, tmp_path):
    need_device_functions(engine, "cubin", "numba.cuda")
    # Numba-CUDA still names a function that NumPy 2.5 has no more.
    named = "" if hasattr(np, "row_stack") else "import numpy\n\nnumpy.row_stack = numpy.vstack\n"
    text = named + (EXAMPLES / "numba_blocks.py").read_text()
    (tmp_path / "right.py").write_text(text)
    done = run(tmp_path / "right.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("doubled 1048576 numbers, "), done.stdout
    wrong = text.replace("part[i] *= 2", "part[i] *= 3")
    assert wrong != text
    (tmp_path / "wrong.py").write_text(wrong)
    done = run(tmp_path / "wrong.py")
    assert done.returncode == 1 and "not what the kernel should have written" in done.stderr, done.stdout + done.stderr
