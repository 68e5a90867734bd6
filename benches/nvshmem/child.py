"""Programs that are run within a time limit."""

import os
import signal
import subprocess


class Failure(Exception):
    """A fact, its cause and the next step."""


def run(command, limit, what):
    """Runs a program. Returns its exit code, its standard output, and what it said on standard error.

    When `limit` seconds are over, the program and all processes that it started are ended; the exit code is None then.
    """
    command = [str(part) for part in command]
    try:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    except OSError as error:
        raise Failure(f"{what}: `{command[0]}` does not start: {error.strerror}") from None
    try:
        out, err = child.communicate(timeout=limit)
        return child.returncode, out, err
    except BaseException as error:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return None, out, f"{err}ended after {limit} s"
        raise


def succeed(command, limit, what):
    """Runs a program that has to succeed, and returns its standard output."""
    code, out, err = run(command, limit, what)
    if code != 0:
        raise Failure(f"{what} failed (exit code {code})\n{out}{err}".rstrip())
    return out
