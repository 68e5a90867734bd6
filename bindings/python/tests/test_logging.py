"""Messages of the library in Python's ``logging``."""

import logging
import subprocess
import sys
import time

import pytest
import warpbell
from conftest import MIB, open_engine
from test_world import environment


class Kept(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def logger():
    logger, kept = logging.getLogger("warpbell"), Kept()
    logger.addHandler(kept)
    logger.kept = kept.records
    yield logger
    logger.removeHandler(kept)
    logger.setLevel(logging.NOTSET)


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def texts(logger):
    return [record.getMessage() for record in logger.kept]


def test_a_change_of_the_level_takes_effect(logger, monkeypatch):
    asked = []
    engines = logging.getLogger("warpbell.engine")
    is_enabled = engines.isEnabledFor
    monkeypatch.setattr(engines, "isEnabledFor", lambda level: asked.append(is_enabled(level)) or asked[-1])
    logger.setLevel(logging.WARNING)
    open_engine()
    wait_for(lambda: asked)
    assert not any(asked) and not any("engine opened" in text for text in texts(logger))
    logger.setLevel(logging.INFO)
    open_engine()
    wait_for(lambda: any("engine opened" in text for text in texts(logger)))
    record = next(r for r in logger.kept if "engine opened" in r.getMessage())
    assert record.name == "warpbell.engine" and record.levelno == logging.INFO and record.pathname.endswith(".rs")


def test_devices_worlds_and_recoveries_are_told(logger):
    logger.setLevel(logging.DEBUG)
    engine = open_engine()
    warpbell.World.single(engine, heap_bytes=1 << 24).close()
    volume = warpbell.Volume.create(engine, "soft:mem,media-error=read:5", MIB)
    volume.recover()
    wait_for(lambda: any("faults are injected" in text for text in texts(logger)))
    for told in ("joined a world", "software controller started"):
        assert any(told in text for text in texts(logger)), texts(logger)


def test_messages_arrive_before_the_program_ends():
    # A handler that fails does no harm.
    program = """
import logging, warpbell
logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
class Failing(logging.Handler):
    def handle(self, record):
        raise RuntimeError("of a handler")
logging.getLogger().addHandler(Failing())
engine = warpbell.Engine("cpu", threads=1)
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "warpbell.engine engine opened: cpu (1 threads)" in done.stderr, done.stderr
    assert "of a handler" in done.stderr and "panicked" not in done.stderr
