"""The virtual machine: QEMU under TCG, with NVMe drives or with networks to another machine, with or without an IOMMU, its console, and a line
on which the guest asks for what only a host can do: pull a drive, plug one in, look at the medium."""

import ctypes
import json
import mmap
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from packages import RigError, need, threads

MIB = 1 << 20

# Drives on the root bus: name, slot, options, namespaces as (file, MiB, block size, sectors that cannot be read).
FIXED = [
    ("two", 4, "", [("two-512", 64, 512, []), ("two-4096", 64, 4096, [])]),
    # With memory of its own, for queues.
    ("mate", 5, ",cmb_size_mb=16", [("mate-512", 64, 512, [])]),
    # Sectors are of 512 bytes whatever the block size: LBA 700 of the first, LBA 90 of the second.
    ("faulty", 6, "", [("faulty-512", 16, 512, [700]), ("faulty-4096", 16, 4096, [720])]),
]
# Drives behind root ports, where they can be pulled: name, slot of the port, MiB. Port `spare` is empty.
PLUGGED = [("orderly", 16, 16), ("surprise", 17, 16), ("reset", 18, 16)]
SPARE = ("spare", 19, 16)
# A device with nothing but memory, in the place of a GPU's.
PEER_SLOT, PEER_BYTES = 8, 16 * MIB

# A guest's memory.
MEMORY_MIB = 1536

# How long a machine may take to say anything at all, and between two lines.
SILENCE_S = 180

# Of two machines with networks between them: what the guest's first process has as its variable RIG_ROLE.
ROLES = HOST, TARGET = "host", "target"

# Packets of a network between two machines, in bytes: RoCE's largest MTU, 4096, and its headers.
PACKET_BYTES = 4200


def counter_khz():
    """How fast this machine's time stamp counter goes, in kHz: the emulated processor hands it to the guest. A kernel that measures it itself while
    this machine is busy takes seconds for minutes."""
    # rdtsc; shl rdx, 32; or rax, rdx; ret
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("0f31 48c1e220 4809d0 c3"))
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def both():
        # Of several tries the one in which nothing came between.
        tries = [(time.monotonic_ns(), read(), time.monotonic_ns()) for _ in range(100)]
        before, count, after = min(tries, key=lambda t: t[2] - t[0])
        return (before + after) / 2, count

    (start, first), _, (end, last) = both(), time.sleep(0.2), both()
    return round((last - first) / (end - start) * 1e6)


class Machine:
    """A booted guest. `run` returns how it ended."""

    def __init__(self, kernel, initrd, folder, log, iommu=False, drives=False, role="", cables=()):
        """`role` is one of ROLES where there are two. Each of the cables, ends of stream sockets, is a network."""
        self.folder, self.log = Path(folder), log
        self.lines = []
        self.done = None
        self.crashed = False
        self.up = False
        # Processor time that QEMU has taken so far, in seconds.
        self.busy_s = 0.0
        self.events = queue.Queue()
        self.replies = queue.Queue()
        self.images = {}
        ours = {}
        theirs = {}
        for name in ("console", "control", "qmp"):
            ours[name], theirs[name] = socket.socketpair()
        command = self._command(kernel, initrd, iommu, drives, theirs, role) + self._networks(role, cables)
        (self.folder / "command.txt").write_text(" ".join(map(str, command)) + "\n")
        self.errors = open(self.folder / "qemu.log", "wb")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.errors,
            stderr=self.errors,
            cwd=self.folder,
            pass_fds=[s.fileno() for s in (*theirs.values(), *cables)],
        )
        for s in (*theirs.values(), *cables):
            s.close()
        self.console = ours["console"]
        self.qmp = ours["qmp"].makefile("rw", encoding="utf-8", errors="replace")
        self.control = ours["control"].makefile("rw", encoding="utf-8", errors="replace")
        self.lock = threading.Lock()
        for reader in (self._read_qmp, self._serve):
            threading.Thread(target=reader, daemon=True).start()

    def _image(self, name, mib):
        path = self.folder / f"{name}.img"
        with open(path, "wb") as file:
            file.truncate(mib * MIB)
        self.images[name] = path
        return path.name

    def _backend(self, name, mib, bad_sectors):
        """Options of a block backend named `name`, with errors at chosen sectors."""
        node = {"node-name": name, "driver": "raw", "file": {"driver": "file", "filename": self._image(name, mib)}}
        if bad_sectors:
            rules = [{"event": "read_aio", "iotype": "read", "errno": 5, "sector": s} for s in bad_sectors]
            node["file"] = {"driver": "blkdebug", "image": node["file"], "inject-error": rules}
        return ["-blockdev", json.dumps(node)]

    def _command(self, kernel, initrd, iommu, drives, sockets, role):
        command = [need("qemu-system-x86_64", "qemu-system-x86")]
        command += ["-machine", "q35,accel=tcg,kernel-irqchip=split", "-cpu", "max", "-smp", str(min(threads(), 4)), "-m", str(MEMORY_MIB)]
        command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        # The slots' own hot-plug: with that of ACPI a slot cannot lose its power with the drive in it.
        command += ["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]
        for name in ("console", "control"):
            command += ["-chardev", f"socket,id={name},fd={sockets[name].fileno()}", "-serial", f"chardev:{name}"]
        command += ["-chardev", f"socket,id=qmp,fd={sockets['qmp'].fileno()}", "-mon", "chardev=qmp,mode=control"]
        command += ["-kernel", str(kernel), "-initrd", str(initrd)]
        # The counter is the host's, so it needs no watching: a kernel that finds it unstable patches its scheduler while it runs, and the
        # emulator may run another processor into the breakpoint that the patch leaves there for a moment.
        clock = f"no_timer_check tsc_early_khz={counter_khz()} tsc=reliable"
        words = f"console=ttyS0 panic=-1 {clock} quiet{' intel_iommu=on' if iommu else ''}{' RIG_ROLE=' + role if role else ''}"
        command += ["-append", words]
        if iommu:
            # First of all devices: those before it would not be behind it.
            command += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
        return command + (self._drives() if drives else [])

    def _networks(self, role, cables):
        """A network device at each cable. Its hardware address is its own among those of both machines."""
        command = []
        for i, cable in enumerate(cables):
            address = f"52:54:00:00:{ROLES.index(role):02x}:{i:02x}"
            command += ["-netdev", f"socket,id=net{i},fd={cable.fileno()}"]
            command += ["-device", f"virtio-net-pci,netdev=net{i},mac={address},host_mtu={PACKET_BYTES},romfile="]
        return command

    def _drives(self):
        """Drives and the device with nothing but memory."""
        command = []
        for name, slot, extra, namespaces in FIXED:
            command += ["-device", f"nvme,id={name},serial=RIG-{name.upper()},addr={slot:#x}{extra}"]
            for nsid, (file, mib, block, bad) in enumerate(namespaces, 1):
                command += self._backend(file, mib, bad)
                blocks = f"logical_block_size={block},physical_block_size={block}"
                command += ["-device", f"nvme-ns,drive={file},bus={name},nsid={nsid},{blocks}"]
        for chassis, (name, slot, mib) in enumerate([*PLUGGED, SPARE], 1):
            command += ["-device", f"pcie-root-port,id=port-{name},chassis={chassis},slot={chassis},addr={slot:#x}"]
            command += self._backend(name, mib, [])
            if name != SPARE[0]:
                command += ["-device", f"nvme,id={name},serial=RIG-{name.upper()},drive={name},bus=port-{name}"]
        command += ["-object", f"memory-backend-memfd,id=peer,size={PEER_BYTES},share=on"]
        command += ["-device", f"ivshmem-plain,memdev=peer,addr={PEER_SLOT:#x}"]
        return command

    # --- QMP -----------------------------------------------------------------------------------------------------------

    def _read_qmp(self):
        with open(self.folder / "qmp.log", "w", encoding="utf-8") as record:
            self.qmp.write('{"execute":"qmp_capabilities"}\n')
            self.qmp.flush()
            greeted = False
            try:
                for line in self.qmp:
                    record.write(line)
                    record.flush()
                    message = json.loads(line)
                    if "event" in message:
                        self.events.put(message)
                    elif "QMP" not in message:
                        if greeted:
                            self.replies.put(message)
                        greeted = True
            except (OSError, ValueError):
                pass

    def command(self, message, within=30):
        """Sends one QMP command and returns the reply."""
        with self.lock:
            try:
                self.qmp.write(json.dumps(message) + "\n")
                self.qmp.flush()
                return self.replies.get(timeout=within)
            except (OSError, queue.Empty):
                return {"error": {"class": "Rig", "desc": f"QEMU did not answer within {within} s"}}

    # --- requests of the guest -----------------------------------------------------------------------------------------

    def _serve(self):
        """One request in a line, one reply in a line: `qmp JSON`, `event NAME DEVICE SECONDS`, `image NAME OFFSET BYTES`."""
        try:
            for line in self.control:
                request = line.strip()
                if not request:
                    continue
                try:
                    reply = self._answer(request)
                except (ValueError, KeyError, OSError) as e:
                    reply = {"error": {"class": "Rig", "desc": f"{type(e).__name__}: {e}"}}
                self.control.write(json.dumps(reply) + "\n")
                self.control.flush()
        except OSError:
            pass

    def _answer(self, request):
        word, _, rest = request.partition(" ")
        if word == "qmp":
            return self.command(json.loads(rest))
        if word == "event":
            name, device, seconds = rest.split()
            return self._event(name, device, float(seconds))
        if word == "image":
            name, offset, count = rest.split()
            with open(self.images[name], "rb") as file:
                file.seek(int(offset))
                return {"return": file.read(int(count)).hex()}
        raise ValueError(f"there is no request `{word}`")

    def _event(self, name, device, seconds):
        end = time.monotonic() + seconds
        while True:
            try:
                event = self.events.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return {"error": {"class": "Rig", "desc": f"no {name} of {device} within {seconds} s"}}
            if event["event"] == name and event.get("data", {}).get("device") == device:
                return {"return": event}

    # --- the end -------------------------------------------------------------------------------------------------------

    def run(self, limit, silence=SILENCE_S):
        """Copies the console to the log until the guest says that it is done. Returns its status, or an error's text. `limit` and `silence` are in
        seconds."""
        end = time.monotonic() + limit
        self.console.settimeout(5)
        rest, heard = b"", time.monotonic()
        why = None
        with open(self.folder / "console.log", "wb") as record:
            while why is None and self.done is None:
                now = time.monotonic()
                self._look_at_clock()
                if now > end:
                    why = f"the guest was not done within {limit} s"
                elif now - heard > silence:
                    why = f"the guest said nothing for {silence} s"
                else:
                    try:
                        data = self.console.recv(1 << 16)
                    except TimeoutError:
                        continue
                    except OSError:
                        data = b""
                    if not data:
                        why = self._ended()
                        break
                    heard = time.monotonic()
                    record.write(data)
                    record.flush()
                    *whole, rest = (rest + data).split(b"\n")
                    for line in whole:
                        self._line(line.decode(errors="replace").rstrip("\r"))
        self.stop()
        return why if why else self.done

    def _ended(self):
        """Why the console closed early."""
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            code = 0
        if code < 0:
            self.crashed = True
            return f"QEMU itself crashed ({signal.Signals(-code).name})"
        return "the machine ended without the closing line"

    def _line(self, line):
        self.lines.append(line)
        self.log(line)
        words = line.split()
        self.up |= words[:1] == ["RIG-UP"]
        if words[:2] == ["RIG-DONE", "status"] and len(words) > 2 and words[2].isdigit():
            self.done = int(words[2])

    def _look_at_clock(self):
        """How long QEMU has kept processors busy (proc(5): `stat`, fields 14 and 15)."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            self.busy_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError):
            pass

    def stop(self):
        self._look_at_clock()
        if self.process.poll() is None:
            self.command({"execute": "quit"}, within=5)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.errors.close()
