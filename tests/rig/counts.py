"""Tests that ran in machines, by what the machines said."""

import re
import subprocess
from packages import RigError

RESULT = re.compile(r"^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored")
# What a test prints follows on the same line.
BEGUN = re.compile(r"^test (\S+) \.\.\. ?(.*)")
# A test prints it that has nothing to run on.
SKIPPED = "SKIP: "


class Counts:
    def __init__(self, results=(0, 0, 0), ran=frozenset()):
        self.results, self.ran = results, ran

    def __add__(self, other):
        return Counts(tuple(a + b for a, b in zip(self.results, other.results)), self.ran | other.ran)

    def line(self):
        passed, failed, ignored = self.results
        return f"RIG-TESTS {passed} passed, {failed} failed, {ignored} ignored"


def of(lines):
    """What the tests of one machine came to, by the lines that it said."""
    counts, ran, test = Counts(), set(), None
    for line in lines:
        result, begun = RESULT.match(line), BEGUN.match(line)
        if result:
            counts += Counts(tuple(map(int, result.groups())))
        elif begun:
            test, line = begun.groups()
            if not line.startswith("ignored"):
                ran.add(test)
        if line.startswith(SKIPPED):
            ran.discard(test)
    return counts + Counts(ran=frozenset(ran))


def check(all_counts, programs):
    """Fails unless each test of these programs ran on one of the machines."""
    listed = set()
    for program in set(programs):
        done = subprocess.run([program, "--list"], stdout=subprocess.PIPE, text=True, check=True)
        listed |= set(re.findall(r"^(.*): test$", done.stdout, re.MULTILINE))
    missing = listed - sum(all_counts, Counts()).ran
    if missing:
        raise RigError(f"{len(missing)} of {len(listed)} tests of the rig ran on no machine: {', '.join(sorted(missing))}")
