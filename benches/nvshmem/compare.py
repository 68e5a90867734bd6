#!/usr/bin/env python3
"""Runs `warpbell bench shmem` beside NVSHMEM and NCCL on the same GPUs, round by round in turn, and prints one table.

    compare.py fetch DIR --keep 90           headers and libraries, from their wheels; without the code of other generations than sm_90
    compare.py build DIR                     one program for each version, by nvcc
    compare.py run DIR --program WARPBELL    the table

The steps can run on different machines: `fetch` needs a network, `build` a CUDA toolkit, `run` GPUs. Data is verified in all programs.
NVLink multicast is off in all of them.
"""

import argparse
import csv
import itertools
import pathlib
import shutil
import signal
import statistics
import sys
import time

import packages
import rows
from child import Failure, run as run_child

#: Time limits in seconds of one run of `bench shmem`, and of one program with a library.
WARPBELL_LIMIT, LIBRARY_LIMIT = 120, 60
BEFORE, WARPBELL, BUFFER, RAW = "before", "warpbell", "with a buffer", "raw"


class Comparison:
    """Figures of all rounds, by column and row."""

    def __init__(self, wanted):
        self.wanted = wanted
        #: Nanoseconds of one operation in each round.
        self.ns = {}
        self.ways = {}
        #: Lines above the table, by column.
        self.heads = {}
        #: What was wrong, each once.
        self.failures = []

    def add(self, column, name, ns, wrong, way=""):
        if name in self.wanted:
            self.ns.setdefault(column, {}).setdefault(name, []).append(ns)
            self.ways[column, name] = way
        if wrong:
            self.fail(f"{column}: {wrong} wrong values in row `{name}`")

    def fail(self, text):
        if text not in self.failures:
            self.failures.append(text)

    def figures(self, column, name):
        """Returns median, minimum and maximum in the row's unit, or None."""
        of = self.ns.get(column, {}).get(name)
        values = [self.wanted[name].value(ns) for ns in of or ()]
        return (statistics.median(values), min(values), max(values)) if values else None


class Warpbell:
    """Columns of a program `warpbell`."""

    def __init__(self, program, column, wanted, options):
        self.program, self.column = program, column
        #: An older program may take no lists. Plain accesses are measured once.
        self.is_before = column == BEFORE
        commands = [rows.ON_CPU] if options.engine == "cpu" else list(dict.fromkeys(row.command for row in wanted.values()))
        if column == BUFFER:
            commands = [command + " --copy buffer" for command in commands if "-s warp" in command]
        self.commands = [one for command in commands for one in (single_values(command) if self.is_before else [command])]
        self.world = ["--engine", options.engine, "--pes", options.pes, "--json", "-"]

    def measure(self, to):
        """Measures a round. A command that fails has no further ones."""
        seen = set()
        for command in list(self.commands):
            arguments = [part for part in command.split() if part != "--raw" or self.column == WARPBELL]
            if "--runs" not in arguments:
                arguments += ["--runs", "1"]
            code, out, err = run_child([self.program, "bench", "shmem", *arguments, *self.world], WARPBELL_LIMIT, self.column)
            if code != 0 and self.is_before and "is no test" in err:
                self.commands.remove(command)
                continue
            if code != 0:
                to.fail(f"{self.column}: `{self.program} bench shmem {' '.join(arguments)}`: {ended(code)}\n{err}".rstrip())
                self.commands.remove(command)
            if "{" not in out:
                continue
            environment, figures = rows.warpbell_figures(out[out.index("{") :])
            to.heads[self.column] = f"warpbell {environment['version']}, {environment['engine_name']}"
            for name, (ns, raw, wrong) in figures.items():
                if name not in seen:
                    to.add(self.column, name, ns, wrong)
                    if raw:
                        to.add(RAW, name, raw, 0)
            seen.update(figures)


def single_values(command):
    """Returns a command for each combination of values in lists of a command."""
    parts = [part.split(",") for part in command.split()]
    return [" ".join(combination) for combination in itertools.product(*parts)]


def ended(code):
    return "no exit code" if code is None else f"exit code {code}"


class Library:
    """Column of a program with NVSHMEM or NCCL."""

    def __init__(self, program, column, flags, options):
        self.program, self.column, self.flags, self.options = program, column, flags, options

    def measure(self, to):
        command = [self.program, *self.flags, "--pes", self.options.pes, "--limit", LIBRARY_LIMIT]
        for name in to.wanted:
            command += ["--row", name]
        code, out, err = run_child(command, LIBRARY_LIMIT + 10, self.column)
        head, figures = rows.library_figures(out)
        if head:
            to.heads[self.column] = f"{head['library']} {head['version']}, {head['pes']} PEs on {head['gpus']} GPUs"
        for name, (ns, way, wrong) in figures.items():
            to.add(self.column, name, ns, wrong, way)
        if code != 0:
            raise Failure(f"{self.column}: `{self.program}`: {ended(code)}\n{err}".rstrip())


def programs(options, wanted):
    """Returns what is measured in each round, in turn."""
    root, found = pathlib.Path(options.folder), []
    for program, column in ((options.program, WARPBELL), (options.program, BUFFER), (options.before, BEFORE)):
        if program and not shutil.which(program):
            raise Failure(f"`{program}` is no program: `cargo build --profile dist` makes target/dist/warpbell")
        if program:
            found.append(Warpbell(program, column, wanted, options))
    for package in packages.PACKAGES:
        for version in package.versions(root):
            program = package.program(root, version)
            if not program.exists():
                raise Failure(f"{program} is not built: run `compare.py build {root}` where a CUDA toolkit is")
            column = f"{package.name.upper()} {version}"
            found.append(Library(program, column, [], options))
            if package is packages.NVSHMEM and packages.order(version) >= [3, 7]:
                found.append(Library(program, column + " TMA", ["--tma"], options))
    if not any(isinstance(of, Library) for of in found):
        print(f"# {root} has no folder `nvshmem-VERSION` or `nccl-VERSION`, so warpbell runs alone: `compare.py fetch {root}` brings them")
    return found


def measure(options, comparison):
    """Measures the rounds, and yields the number of each that has begun. A program that fails has no further ones."""
    found = programs(options, comparison.wanted)
    started, longest = time.monotonic(), 0
    for number in range(1, options.rounds + 1):
        if not found:
            break
        if options.limit and number > 1 and time.monotonic() - started + longest > options.limit:
            print(f"# round {number} would not end within --limit {options.limit} s", flush=True)
            break
        yield number
        began = time.monotonic()
        times = []
        for of in list(found):
            at = time.monotonic()
            try:
                of.measure(comparison)
            except Failure as failure:
                comparison.fail(str(failure))
                found.remove(of)
            times.append(f"{of.column} {time.monotonic() - at:.0f} s")
        longest = max(longest, time.monotonic() - began)
        print(f"# round {number}: {', '.join(times)}", file=sys.stderr, flush=True)


def figure(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}" if value >= 10 else f"{value:.3f}"


def cell(figures):
    if not figures:
        return "-"
    median, least, most = figures
    return figure(median) if least == most else f"{figure(median)} ({figure(least)} to {figure(most)})"


def table(comparison, columns):
    """Returns the rows of the table as text, its head first."""
    others = [column for column in columns if column not in (BEFORE, WARPBELL, BUFFER, RAW)]
    lines = [["operation", "unit", *columns, "best other", "ratio", ""]]
    for name, row in comparison.wanted.items():
        figures = {column: comparison.figures(column, name) for column in columns}
        if not any(figures.values()):
            continue
        rivals = [(figures[column][0], column) for column in others if figures[column]]
        best = (max if row.more_is_better else min)(rivals, default=None)
        ratio, behind = "-", ""
        if best and figures.get(WARPBELL):
            mine = figures[WARPBELL][0]
            ratio = f"{mine / best[0] if row.more_is_better else best[0] / mine:.2f}"
            behind = "*" if float(ratio) < 1 else ""
        lines.append([name, row.unit, *(cell(figures[column]) for column in columns), best[1] if best else "-", ratio, behind])
    return lines


def print_table(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        first = line[0].ljust(widths[0])
        print("  ".join([first, *(text.rjust(width) for text, width in zip(line[1:], widths[1:]))]).rstrip())


def write_csv(path, comparison, columns):
    with open(path, "w", newline="") as file:
        to = csv.writer(file)
        to.writerow(["row", "unit", "column", "way", "median", "min", "max", "rounds"])
        for name, row in comparison.wanted.items():
            for column in columns:
                figures = comparison.figures(column, name)
                if figures:
                    to.writerow([name, row.unit, column, comparison.ways[column, name], *figures, len(comparison.ns[column][name])])


def run(options):
    wanted = {row.name: row for row in rows.ROWS if options.only in row.name and (row.quick or not options.quick)}
    if not wanted:
        raise Failure(f"no row has `{options.only}` in its name: there are {', '.join(row.name for row in rows.ROWS)}")
    comparison = Comparison(wanted)
    rounds = 0
    # `timeout` ends a run by SIGTERM: it has the table of what was measured, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for rounds in measure(options, comparison):
            pass
    except KeyboardInterrupt:
        comparison.fail(f"interrupted in round {rounds} of {options.rounds}: the table has what was measured by then")
    order = [BEFORE, WARPBELL, BUFFER, RAW, *comparison.ns]
    columns = sorted(comparison.ns, key=order.index)
    for column, head in comparison.heads.items():
        print(f"# {column}: {head}")
    if not columns:
        raise Failure("\n".join(comparison.failures))
    print(f"# {options.pes} PEs; medians of {rounds} rounds (range); * warpbell is behind; all data verified; no multicast")
    print_table(table(comparison, columns))
    if options.csv:
        write_csv(options.csv, comparison, columns)
    if comparison.failures:
        raise Failure("\n".join(comparison.failures))


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is too few; give 1 or more")
    return number


def parser():
    of = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="All steps take the same DIR.")
    steps = of.add_subparsers(dest="step", metavar="STEP", required=True)
    fetch = steps.add_parser("fetch", help="headers and libraries from their wheels")
    fetch.add_argument("--nvshmem", default="3.4.5,3.8.0", help="versions with commas [default: %(default)s]")
    fetch.add_argument("--nccl", default="2.32.3", help="versions with commas [default: %(default)s]")
    fetch.add_argument("--cuda", default="13", help="major version of CUDA in the wheels' names [default: %(default)s]")
    fetch.add_argument("--wheels", help="folder with wheels, instead of the network")
    fetch.add_argument("--keep", type=int, metavar="GENERATION", help="zero the code of other GPUs than this generation, so that archives are small")
    build = steps.add_parser("build", help="one program for each version")
    build.add_argument("--nvcc", default="nvcc")
    build.add_argument("--arch", type=int, default=90, help="generation of the GPUs [default: %(default)s]")
    build.add_argument("--option", action="append", default=[], help="option for nvcc; can be repeated")
    measured = steps.add_parser("run", help="the table")
    measured.add_argument("--program", required=True, metavar="WARPBELL")
    measured.add_argument("--before", metavar="WARPBELL", help="another build, for a column of its own")
    measured.add_argument("--pes", type=positive, default=2)
    measured.add_argument("--engine", choices=("gpu", "cpu"), default="gpu", help="cpu: CPU threads, which only show that everything works")
    measured.add_argument("--rounds", type=positive, default=3)
    measured.add_argument("--limit", type=float, metavar="SECONDS", help="start no round that would not end within this time")
    measured.add_argument("--quick", action="store_true", help="fewer rows")
    measured.add_argument("--only", default="", metavar="TEXT", help="rows with this in their names")
    measured.add_argument("--csv", metavar="FILE")
    for step in (fetch, build, measured):
        step.add_argument("folder", metavar="DIR")
    return of


def main():
    options = parser().parse_args()
    try:
        root = pathlib.Path(options.folder)
        if options.step == "fetch":
            found = ((packages.NVSHMEM, options.nvshmem), (packages.NCCL, options.nccl))
            wanted = [(package, version) for package, versions in found for version in versions.split(",") if version]
            packages.fetch(root, wanted, options.cuda, options.wheels, options.keep)
        elif options.step == "build":
            packages.build(root, options.nvcc, options.arch, options.option)
        else:
            run(options)
    except Failure as failure:
        sys.exit(f"compare.py: {failure}")


if __name__ == "__main__":
    main()
