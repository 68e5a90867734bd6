"""The program ``warpbell``."""

import sys

from . import _native, get_include


def main() -> None:
    """Runs the program with the words of the command line, and ends the process with its exit status."""
    sys.exit(_native.run_program(["warpbell", *sys.argv[1:]], get_include()))
