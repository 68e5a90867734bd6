"""Rows of the comparison: what each one is called, how `warpbell bench shmem` measures it, and in which unit it is shown."""

import json

from child import Failure

KIB, MIB = 1 << 10, 1 << 20
#: Bytes of the window of puts and gets. One message of this size fills it.
LARGEST = 256 * MIB

#: Units. Of times, less is better.
TIME = "us"
BANDWIDTH = "GB/s"
RATE = "Gop/s"


#: Runs of `bench shmem`. `all` measures most rows of a quick comparison; in each table the first figure of a row counts.
ALL = "all -b 64k -e 16M -f 256 --window 256M --raw"
REDUCE = "reduce -b 8 -e 8"
BARRIER = "barrier -t 32"
#: The runs of a ping-pong have flags and messages at different addresses.
PING_PONG = "p_ping_pong --raw --runs 16"
P_SIGNAL = "p_signal_ping_pong --raw --runs 16"
PUT_SIGNAL = "put_signal_ping_pong -b 8 -e 8 -t 32,512 --raw --runs 16 -n 2000"
PUT_SIGNAL_LONG = "put_signal_ping_pong -b 4k -e 64k -f 16 -t 512 --raw --runs 16 -n 2000"
PUT_SIGNAL_THREAD = "put_signal_ping_pong -b 8 -e 8 -s thread -t 32 --raw --runs 16 -n 2000"
BLOCKS = "{call}_bw -b 4k -e {last} -f 16 -c 1,64 {window} --raw"
WARP = "{call}_bw -b 4k -e 16M -f 16 -s warp -c 1 -t 32 -n 200 {window} --raw"
WARP_LARGEST = "{call}_bw -b 256M -e 256M -s warp -c 1 -t 32 -n 2 {window} --raw"
#: On CPU threads, where grids of GPUs do not fit, this run replaces all of the others.
ON_CPU = "all -b 8 -e 64k -f 8192 --raw"


class Row:
    """One operation in one shape."""

    def __init__(self, name, unit, test, size, command, quick=False, **shape):
        self.name, self.unit, self.test, self.bytes, self.command, self.quick = name, unit, test, size, command, quick
        #: Values that a row of `bench shmem` has beside its test and size: `scope`, `blocks`, `threads`, `window`.
        self.shape = shape

    def value(self, ns):
        """Returns the figure in the row's unit."""
        return {TIME: ns / 1e3, BANDWIDTH: self.bytes / ns, RATE: 1 / ns}[self.unit]

    @property
    def more_is_better(self):
        return self.unit != TIME

    def is_measured_by(self, row):
        """Returns True if a row of a report of `bench shmem` is this one."""
        has = dict(row, window=row["elements"] > 0)
        return row["test"] == self.test and row["bytes"] == self.bytes and all(has[key] == value for key, value in self.shape.items())


def size_name(size):
    return f"{size // MIB}M" if size >= MIB else f"{size // KIB}K" if size >= KIB else str(size)


def messages(call):
    """Returns the rows of puts or gets. NVSHMEM's gets from one place come from a cache, so all gets have a window."""
    for grid, shape in (("warp", {"scope": "warp", "blocks": 1}), ("block", {"scope": "block", "blocks": 1}), ("64 blocks", {"scope": "block", "blocks": 64})):
        for size in (4 * KIB, 64 * KIB, MIB, 16 * MIB, LARGEST):
            for window in (False, True) if call == "put" and size < LARGEST else (True,):
                name = f"{call} {size_name(size)} {grid}{' window' if window else ''}"
                quick = window and grid == "64 blocks" and size in (64 * KIB, 16 * MIB)
                run = BLOCKS if grid != "warp" else WARP if size < LARGEST else WARP_LARGEST
                run = ALL if quick else run.format(call=call, last="256M" if window else "16M", window="--window 256M" if window else "")
                yield Row(name, BANDWIDTH, f"{call}_bw", size, run, quick, window=window, **shape)


def collectives():
    sizes = (64 * KIB, 16 * MIB)
    for name, of in (("reduce", (8, *sizes)), ("alltoall", sizes), ("fcollect", sizes), ("broadcast", sizes)):
        for size in of:
            yield Row(f"{name} {size_name(size)}", TIME, name, size, REDUCE if size == 8 else ALL, True)


ROWS = (
    Row("p_ping_pong 8", TIME, "p_ping_pong", 8, PING_PONG, True),
    Row("p_signal 8", TIME, "p_signal_ping_pong", 8, P_SIGNAL, True),
    Row("put_signal 8 thread", TIME, "put_signal_ping_pong", 8, PUT_SIGNAL_THREAD, True, scope="thread", threads=32),
    Row("put_signal 8 32 threads", TIME, "put_signal_ping_pong", 8, PUT_SIGNAL, True, scope="block", threads=32),
    Row("put_signal 8 512 threads", TIME, "put_signal_ping_pong", 8, PUT_SIGNAL, True, scope="block", threads=512),
    Row("put_signal 4K 512 threads", TIME, "put_signal_ping_pong", 4 * KIB, PUT_SIGNAL_LONG, scope="block", threads=512),
    Row("put_signal 64K 512 threads", TIME, "put_signal_ping_pong", 64 * KIB, PUT_SIGNAL_LONG, scope="block", threads=512),
    Row("barrier 32 threads", TIME, "barrier", 0, BARRIER, threads=32),
    Row("barrier 256 threads", TIME, "barrier", 0, ALL, True, threads=256),
    *collectives(),
    *messages("put"),
    *messages("get"),
    Row("p_rate 4", RATE, "p_rate", 4, ALL, True),
    Row("g_rate 4", RATE, "g_rate", 4, ALL, True),
    Row("atomic_inc 4", RATE, "atomic_rate", 4, ALL, True),
    Row("atomic_inc 8", RATE, "atomic_rate", 8, ALL, True),
)


def warpbell_figures(text):
    """Returns the environment of a report of `bench shmem`, and its figures: for each row's name, nanoseconds by the library's calls, by
    plain accesses (or None), and the number of wrong values."""
    report, figures = json.loads(text), {}
    for measured in report["results"]["rows"]:
        for row in ROWS:
            if row.is_measured_by(measured):
                raw = measured.get("raw")
                figures.setdefault(row.name, (of(row, measured), of(row, raw) if raw else None, measured["wrong"] + (raw["wrong"] if raw else 0)))
    return report["environment"], figures


def of(row, figures):
    """Returns nanoseconds of one operation; of one element for rates."""
    return 1e9 / figures["operations_per_s"]["median"] if row.unit == RATE else figures["time_ns"]["median"]


def library_figures(text):
    """Returns the head of what a program with NVSHMEM or NCCL printed, and the figures: for each row's name, nanoseconds of the best way,
    that way, and the wrong values of all ways. Lines that are no JSON are the library's own."""
    head, figures = {}, {}
    names = {row.name for row in ROWS}
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        if "library" in said:
            head = said
            continue
        name = said["row"]
        if name not in names:
            raise Failure(f"a program has a row `{name}`, which rows.py does not have: run `compare.py build`")
        ns, way, wrong = figures.get(name, (float("inf"), "", 0))
        best = min((said["ns"], said["way"]), (ns, way))
        figures[name] = (*best, wrong + said["wrong"])
    return head, figures
