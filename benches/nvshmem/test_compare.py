"""Tests the comparison without GPUs, NVSHMEM and NCCL: programs and wheels are made up here.

    test_compare.py WARPBELL
"""

import contextlib
import io
import json
import os
import pathlib
import signal
import struct
import sys
import tempfile
import time
import unittest
import unittest.mock
import zipfile

import child
import compare
import fatbin
import packages
import rows

PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else None


def entry(kind, generation, payload):
    """Returns an entry of a fat binary."""
    header = fatbin.ENTRY.pack(kind, 0x101, 64, len(payload)) + bytes(12) + struct.pack("<I", generation)
    return header.ljust(64, b"\x07") + payload


def container(*entries):
    return fatbin.MAGIC + struct.pack("<Q", sum(map(len, entries))) + b"".join(entries)


def elf(named):
    """Returns an ELF file with these sections, by name."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*named, ".shstrtab"])
    place, body, headers = 64, b"", [bytes(64)]
    for name, data in [*named.items(), (".shstrtab", names)]:
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(struct.pack("<IIQQQQ", at, 1, 0, 0, place + len(body), len(data)).ljust(64, b"\0"))
        body += data
    header = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<Q", place + len(body)) + bytes(10)
    return header + struct.pack("<HHH", 64, len(headers), len(headers) - 1) + body + b"".join(headers)


class FatBinaries(unittest.TestCase):
    def zeroed(self, data):
        """Returns the file without the code of other generations than sm_90."""
        kept = bytearray(data)
        count = fatbin.keep_generation(kept, 90)
        self.assertEqual(len(kept), len(data))
        self.assertEqual(sum(a != b for a, b in zip(kept, data)), count, "only what was counted, which has no zeros here, may change")
        return bytes(kept)

    def test_other_generations_become_zeros(self):
        old, new, ptx = entry(2, 80, b"a" * 24), entry(2, 90, b"b" * 40), entry(1, 90, b"c" * 8)
        kept = self.zeroed(b"before" + container(old, new, ptx) + b"between" + container(new) + b"behind")
        wanted = b"before" + container(entry(2, 80, bytes(24)), new, entry(1, 90, bytes(8))) + b"between" + container(new) + b"behind"
        self.assertEqual(kept, wanted)

    def test_code_before_its_link_and_debugging_sections_become_zeros(self):
        code = container(entry(2, 90, b"d" * 16))
        parts = {".text": b"code", ".nv_fatbin": code, fatbin.RELOCATABLE: code, ".debug_info": b"e" * 8}
        gone = dict(parts, **{fatbin.RELOCATABLE: container(entry(2, 90, bytes(16))), ".debug_info": bytes(8)})
        self.assertEqual(self.zeroed(elf(parts)), elf(gone))
        # An object file has code for the linker alone.
        del parts[".nv_fatbin"], parts[".debug_info"]
        self.assertEqual(self.zeroed(elf(parts)), elf(parts))

    def test_what_only_looks_like_a_fat_binary_stays(self):
        old = entry(2, 80, b"a" * 24)
        for data in (
            fatbin.MAGIC,
            fatbin.MAGIC + struct.pack("<Q", 1 << 40) + old,
            fatbin.MAGIC + struct.pack("<Q", len(old) - 8) + old,
            fatbin.MAGIC + struct.pack("<Q", len(old) + 8) + old + b"12345678",
            container(entry(9, 80, b"a" * 24)),
        ):
            self.assertEqual(self.zeroed(data), data)
            # One that follows is found all the same.
            self.assertEqual(self.zeroed(data + container(old))[-24:], bytes(24))


class Wheels(unittest.TestCase):
    def unpacked(self, folder, members):
        wheel = pathlib.Path(folder) / "one.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in members:
                archive.writestr(name, container(entry(2, 80, b"a" * 8)) if "lib/" in name else name)
        to = pathlib.Path(folder) / "nvshmem-3.8.0"
        with contextlib.redirect_stdout(io.StringIO()):
            packages.unpack(packages.NVSHMEM, wheel, to, 90)
        return to

    def test_programs_find_what_they_need_and_no_more(self):
        prefix = "nvidia/nvshmem/"
        needed = ["include/nvshmem.h", "include/host/api.h", "lib/libnvshmem_host.so.3", "lib/libnvshmem_device.a", "lib/nvshmem_bootstrap_uid.so.3"]
        others = ["lib/libnvshmem_device.bc", "lib/nvshmem_transport_ibrc.so.3", "share/README.md"]
        with tempfile.TemporaryDirectory() as folder:
            to = self.unpacked(folder, [prefix + name for name in needed + others] + ["one.dist-info/licenses/License.txt", "one.dist-info/RECORD"])
            found = {str(path.relative_to(to)) for path in to.rglob("*") if not path.is_dir()}
            links = {"lib/libnvshmem_host.so", "lib/nvshmem_bootstrap_uid.so"}
            self.assertEqual(found, {*needed, *links, "licenses/License.txt"})
            self.assertTrue((to / "lib/libnvshmem_host.so").read_bytes().endswith(bytes(8)))
            self.assertEqual(packages.NVSHMEM.versions(pathlib.Path(folder)), ["3.8.0"])

    def test_a_wheel_without_a_library_is_named(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(child.Failure, "one.whl has no .*libnvshmem_device.a"):
            self.unpacked(folder, ["nvidia/nvshmem/include/nvshmem.h", "nvidia/nvshmem/lib/libnvshmem_host.so.3"])

    def test_versions_are_ordered_as_numbers(self):
        self.assertEqual(sorted(["3.10.0", "3.8.0", "3.8.0a"], key=packages.order)[-1], "3.10.0")


class Rows(unittest.TestCase):
    def test_each_has_a_name_of_its_own_and_a_command_that_measures_it(self):
        names = [row.name for row in rows.ROWS]
        self.assertEqual(len(set(names)), len(names))
        for row in rows.ROWS:
            self.assertIn(row.command.split()[0], ("all", row.test), row.name)
            # `all` has its own shapes.
            self.assertTrue(row.command != rows.ALL or row.quick, row.name)

    def test_a_report_gives_each_row_once(self):
        shape = {"scope": "block", "blocks": 64, "threads": 512, "elements": 0}
        for row in rows.ROWS:
            measured = dict(shape, test=row.test, bytes=row.bytes, wrong=1, time_ns={"median": 8.0}, operations_per_s={"median": 5e8})
            measured.update({key: value for key, value in row.shape.items() if key != "window"}, elements=row.shape.get("window", 0) * 4)
            raw = dict(measured, wrong=2, time_ns={"median": 4.0}, operations_per_s={"median": 1e9})
            said = json.dumps({"environment": {}, "results": {"rows": [dict(measured, raw=raw)]}})
            ns = (2.0, 1.0) if row.unit == rows.RATE else (8.0, 4.0)
            self.assertEqual(rows.warpbell_figures(said)[1], {row.name: (*ns, 3)})

    def test_the_best_way_of_a_library_counts_and_all_wrong_values(self):
        said = [{"library": "NVSHMEM", "version": "3.8.0"}, *({"row": "reduce 8", "way": way, "ns": ns, "wrong": 1} for way, ns in (("a", 9.0), ("b", 7.0), ("c", 8.0)))]
        text = "NVSHMEM says something\n" + "\n".join(map(json.dumps, said))
        self.assertEqual(rows.library_figures(text), (said[0], {"reduce 8": (7.0, "b", 3)}))
        with self.assertRaisesRegex(child.Failure, "row `other`"):
            rows.library_figures('{"row": "other"}')


class Children(unittest.TestCase):
    def test_one_that_hangs_is_ended_with_its_own_children(self):
        began = time.monotonic()
        # The grandchild has the pipes open, too.
        code, out, err = child.run(["sh", "-c", "echo first; sleep 600 & sleep 600"], 1, "it")
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual((code, out), (None, "first\n"))
        self.assertIn("ended after 1 s", err)


@unittest.skipUnless(PROGRAM, "needs a built warpbell")
class Runs(unittest.TestCase):
    """On CPU threads, with programs in place of the libraries'."""

    def compared(self, libraries, *arguments):
        """Returns exit message and output of a comparison with programs of this output and exit code."""
        with tempfile.TemporaryDirectory() as folder:
            for name, (lines, code) in libraries.items():
                os.makedirs(f"{folder}/{name}/include")
                os.makedirs(f"{folder}/bin", exist_ok=True)
                path = pathlib.Path(folder) / "bin" / name
                head = {"library": name.split("-")[0].upper(), "version": name.split("-")[1], "pes": 2, "gpus": 2}
                text = "\n".join(json.dumps(line) for line in [head, *lines])
                path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}\nEOF\nexit {code}\n")
                path.chmod(0o755)
            argv, message, out = sys.argv, None, io.StringIO()
            sys.argv = ["compare.py", "run", folder, "--program", PROGRAM, "--engine", "cpu", *arguments]
            try:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                    compare.main()
            except SystemExit as error:
                message = str(error)
            finally:
                sys.argv = argv
            return message, out.getvalue()

    def line(self, out, name):
        (line,) = [line for line in out.splitlines() if line.startswith(name + " ")]
        return line.split()

    def test_without_libraries_warpbell_runs_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            message, out = self.compared({}, "--before", PROGRAM, "--rounds", "2", "--csv", f"{folder}/rows.csv")
            self.assertIsNone(message)
            self.assertIn("warpbell runs alone", out)
            self.assertRegex(out, r"operation +unit +before +warpbell +raw +best other +ratio\n")
            self.assertEqual(self.line(out, "p_rate 4")[2], "Gop/s")
            written = pathlib.Path(f"{folder}/rows.csv").read_text().splitlines()
            self.assertEqual(written[0], "row,unit,column,way,median,min,max,rounds")
            self.assertTrue(any(line.startswith("reduce 64K,us,warpbell,,") and line.endswith(",2") for line in written), written)

    def test_a_star_tells_where_warpbell_is_behind(self):
        fast, slow = 1e-3, 1e12
        libraries = {
            "nvshmem-3.4.5": ([{"row": "p_rate 4", "way": "", "ns": fast, "wrong": 0}, {"row": "reduce 8", "way": "stream", "ns": slow, "wrong": 0}], 0),
            "nccl-2.32.3": ([{"row": "reduce 8", "way": "graph", "ns": slow / 2, "wrong": 0}], 0),
        }
        message, out = self.compared(libraries, "--rounds", "1")
        self.assertIsNone(message)
        self.assertEqual(self.line(out, "p_rate 4")[-1], "*")
        self.assertEqual(self.line(out, "reduce 8")[-3:-1], ["NCCL", "2.32.3"])
        self.assertGreater(float(self.line(out, "reduce 8")[-1]), 1)
        self.assertIn("# NVSHMEM 3.4.5: NVSHMEM 3.4.5, 2 PEs on 2 GPUs", out)

    def test_wrong_values_and_failed_programs_end_with_their_names(self):
        wrong = [{"row": "reduce 8", "way": "", "ns": 1.0, "wrong": 3}]
        message, out = self.compared({"nvshmem-3.8.0": (wrong, 0), "nccl-2.32.3": (wrong[:0], 7)}, "--only", "reduce", "--rounds", "2")
        self.assertIn("NVSHMEM 3.8.0: 3 wrong values in row `reduce 8`", message)
        self.assertIn("NVSHMEM 3.8.0 TMA: 3 wrong values in row `reduce 8`", message)
        self.assertIn("exit code 7", message)
        rounds = [line for line in out.splitlines() if line.startswith("# round")]
        self.assertEqual(["NCCL" in line for line in rounds], [True, False])
        self.assertNotIn("p_rate", out)

    def test_a_run_that_is_ended_has_the_table_of_what_was_measured(self):
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        with unittest.mock.patch.object(compare.Library, "measure", lambda *_: os.kill(os.getpid(), signal.SIGTERM)):
            message, out = self.compared({"nccl-2.32.3": ([], 0)}, "--rounds", "3")
        self.assertIn("interrupted in round 1 of 3", message)
        self.assertIn("medians of 1 rounds", out)
        self.assertEqual(self.line(out, "p_rate 4")[2], "Gop/s")

    def test_what_is_missing_is_named(self):
        self.assertIn("no row has `nothing`", self.compared({}, "--only", "nothing")[0])
        self.assertIn("`/nonexistent` is no program", self.compared({}, "--before", "/nonexistent")[0])
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(f"{folder}/nccl-2.32.3/include")
            with self.assertRaisesRegex(child.Failure, "nccl-2.32.3 is not built: run `compare.py build"):
                compare.programs(compare.parser().parse_args(["run", folder, "--program", PROGRAM]), {})

    def test_too_few_rounds_are_refused(self):
        for option in ("--rounds", "--pes"):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                compare.parser().parse_args(["run", "beside", "--program", PROGRAM, option, "0"])
            self.assertIn(f"argument {option}: 0 is too few; give 1 or more", said.getvalue())

    def test_lists_become_single_values(self):
        self.assertEqual(compare.single_values("a -c 1,64 -t 2,3 b"), [f"a -c {c} -t {t} b" for c in (1, 64) for t in (2, 3)])


if __name__ == "__main__":
    unittest.main()
