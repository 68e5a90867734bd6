"""The back end for LMCache, called as its GDS context calls it."""

import errno
import os
import time

import numpy as np
import pytest
import server_stand_ins
import warpbell
from conftest import MIB, open_engine

server_stand_ins.lmcache_modules()
from warpbell import lmcache  # noqa: E402

SLAB = 4 * MIB
#: Bytes of a registered region. LMCache takes 16 MiB.
REGION = MIB
ON_GPU = os.environ.get("WARPBELL_TEST_ENGINE") == "gpu"


class Server:
    """A slab, and staging buffers that are registered region by region."""

    def __init__(self, engine, location, size=SLAB, buffer=2 * MIB + 4096, direct=False):
        self.backend = lmcache.Backend(engine=engine)
        self.backend.validate_environment()
        self.slab = self.backend.open_slab(str(location), size, direct)
        self.regions = []
        if ON_GPU:
            torch = pytest.importorskip("torch", reason="needs torch")
            self.buffer = torch.zeros(buffer, dtype=torch.uint8, device="cuda:0")
            self.stream = torch.cuda.current_stream().cuda_stream
            parts = [self.buffer[at : at + REGION] for at in range(0, buffer, REGION)]
        else:
            self.buffer = np.zeros(buffer, np.uint8)
            self.stream = 0x5EED
            parts = [server_stand_ins.HostTensor(self.buffer[at : at + REGION]) for at in range(0, buffer, REGION)]
        self.backend.register_stream(self.stream)
        for part in parts:
            self.backend.register_buffer(part)
            self.regions.append((part.data_ptr(), part.numel(), part))

    def transfer(self, reads, slab_offset, at, nbytes, stream=None):
        """Moves a chunk, divided where regions end."""
        move = self.slab.read_async if reads else self.slab.write_async
        launched, done = [], 0
        while done < nbytes:
            base, size, _ = self.regions[(at + done) // REGION]
            offset = (at + done) % REGION
            part = min(nbytes - done, size - offset)
            launched.append((move(base, part, slab_offset + done, offset, self.stream if stream is None else stream), part))
            done += part
        return launched

    def put(self, at, values):
        if ON_GPU:
            import torch

            self.buffer[at : at + len(values)] = torch.from_numpy(values).cuda()
        else:
            self.buffer[at : at + len(values)] = values

    def get(self, at, nbytes):
        part = self.buffer[at : at + nbytes]
        return part.cpu().numpy().copy() if ON_GPU else part.copy()

    def close(self):
        for _, _, part in self.regions:
            self.backend.deregister_buffer(part)
        self.backend.deregister_stream(self.stream)
        self.slab.close()
        self.backend.close_driver()


def outcome(submission, within=60.0):
    """Returns what a submission says in the end. It says nothing before."""
    end = time.monotonic() + within
    while (done := submission.bytes_done) == 0:
        assert time.monotonic() < end, "no outcome"
        time.sleep(0.001)
    return done


def complete(launched):
    for submission, nbytes in launched:
        assert outcome(submission) == nbytes


def values(seed, nbytes):
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def test_chunks_come_back_and_their_outcomes_are_told_in_the_end(engine, tmp_path):
    server = Server(engine, tmp_path)
    assert os.path.getsize(tmp_path / lmcache.FILE) >= SLAB
    assert not server.backend.is_default() and server.backend.name == "warpbell"
    rng = np.random.default_rng(3)
    written = {}
    for step in range(12):
        # LMCache gives out units of 4096 bytes.
        first, nbytes = int(rng.integers(0, 16)) * (SLAB // 16), int(rng.integers(1, SLAB // 16 // 4096 + 1)) * 4096
        at = int(rng.integers(0, (len(server.buffer) - nbytes) // 4096 + 1)) * 4096
        data = values(step, nbytes)
        server.put(at, data)
        complete(server.transfer(False, first, at, nbytes))
        written[first] = data
    for first, data in written.items():
        server.put(0, np.zeros(len(data), np.uint8))
        complete(server.transfer(True, first, 0, len(data)))
        np.testing.assert_array_equal(server.get(0, len(data)), data)
    server.close()


def test_transfers_of_a_stream_follow_each_other_without_a_wait(engine, tmp_path):
    server = Server(engine, tmp_path)
    data = values(1, 2 * MIB)
    server.put(0, data)
    launched = server.transfer(False, 0, 0, 2 * MIB)
    for k in range(64):
        launched += server.transfer(True, 4096 * k, MIB + 4096 * (k % 8), 4096)
    for submission, nbytes in launched:
        assert submission.bytes_done in (0, nbytes)
    complete(launched)
    for k in range(56, 64):
        np.testing.assert_array_equal(server.get(MIB + 4096 * (k % 8), 4096), data[4096 * k : 4096 * (k + 1)])
    # A stream that nobody has registered is one, too.
    if not ON_GPU:
        complete(server.transfer(True, 0, 0, 4096, stream=0xF00))
    server.close()


def test_sizes_need_not_be_whole_blocks(engine, tmp_path):
    server = Server(engine, tmp_path)
    data = values(5, 5008)
    server.put(64, data)
    complete(server.transfer(False, 8192, 64, 5008))
    complete(server.transfer(True, 8192, 16384, 5008))
    np.testing.assert_array_equal(server.get(16384, 5008), data)
    base = server.regions[0][0]
    for call in (server.slab.read_async, server.slab.write_async):
        for size, file_offset, buf_offset in ((0, 0, 0), (4096, SLAB, 0), (4096, -4096, 0), (4096, 0, REGION - 16), (16, 0, -16), (REGION + 16, 0, 0)):
            with pytest.raises(warpbell.InvalidError, match="within both"):
                call(base, size, file_offset, buf_offset, server.stream)
        with pytest.raises(warpbell.InvalidError):
            call(base, 512, 100, 0, server.stream)
        with pytest.raises(warpbell.InvalidError, match="no buffer is registered"):
            call(base + 64, 512, 0, 0, server.stream)
    with pytest.raises(warpbell.InvalidError):
        server.slab.read_async(base, 1000, 0, 0, server.stream)
    server.close()


def test_a_slab_of_the_same_size_is_used_again_and_other_data_stays(engine, tmp_path):
    device = f"soft:{tmp_path}/kv.img"
    volume = warpbell.Volume.create(engine, device, 8 * SLAB)
    volume.store("other", np.arange(1000))
    del volume
    data = values(9, 65536)
    server = Server(engine, device)
    server.put(0, data)
    complete(server.transfer(False, SLAB - 65536, 0, 65536))
    place = server.slab.volume.arrays()
    server.close()
    server = Server(engine, device)
    assert [a["offset"] for a in server.slab.volume.arrays()] == [a["offset"] for a in place]
    complete(server.transfer(True, SLAB - 65536, 0, 65536))
    np.testing.assert_array_equal(server.get(0, 65536), data)
    server.close()
    server = Server(engine, device, size=SLAB // 2 + 4096)
    sizes = {a["name"]: a["element_bytes"] * a["count"] for a in server.slab.volume.arrays()}
    assert sizes[lmcache.ARRAY] == SLAB // 2 + 65536
    np.testing.assert_array_equal(server.slab.volume.load("other"), np.arange(1000))
    server.close()


def test_data_of_others_is_not_overwritten(engine, tmp_path, monkeypatch):
    path = tmp_path / "data.img"
    path.write_bytes(b"precious" * (2 * SLAB // 8))
    with pytest.raises(warpbell.ExistsError):
        Server(engine, path)
    assert path.read_bytes() == b"precious" * (2 * SLAB // 8)
    monkeypatch.setenv(lmcache.OVERWRITE, str(path))
    Server(engine, path).close()
    # A device that is too small is an error, and not a smaller slab.
    small = tmp_path / "small.img"
    small.write_bytes(bytes(SLAB // 2))
    with pytest.raises(warpbell.SpaceError):
        Server(engine, small)


def test_locations_are_folders_files_and_devices(engine, tmp_path, monkeypatch):
    folder = tmp_path / "a, b"
    server = Server(engine, f"{folder}/slabs/")
    assert (folder / "slabs" / lmcache.FILE).exists() and server.slab.path.startswith("soft:file:")
    server.close()
    with_option = lmcache.device_of(str(tmp_path / "x.img"), True)
    assert with_option == f"soft:file:{tmp_path}/x.img,direct"
    for device in ("nvme:0000:65:00.0", "nvmf:tcp://host/nqn", "soft:mem:1G"):
        assert lmcache.device_of(device, True) == device
    monkeypatch.setenv(lmcache.DEVICE, f"soft:{tmp_path}/named.img")
    server = Server(engine, "/nowhere/at/all")
    assert (tmp_path / "named.img").exists() and server.slab.path == f"soft:{tmp_path}/named.img"
    server.close()


def test_closing_twice_does_nothing_and_back_ends_stand_side_by_side(engine, tmp_path):
    one, two = Server(engine, tmp_path / "one.img"), Server(engine, tmp_path / "two.img")
    with pytest.raises(warpbell.InvalidError, match="has the slab"):
        one.backend.open_slab(str(tmp_path / "three.img"), SLAB, False)
    with pytest.raises(warpbell.InvalidError, match="locked"):
        Server(engine, tmp_path / "two.img")
    for n, server in enumerate((one, two)):
        server.put(0, values(n, 4096))
        complete(server.transfer(False, 0, 0, 4096))
    one.close()
    one.close()
    assert one.slab.is_closed
    with pytest.raises(warpbell.InvalidError):
        one.transfer(True, 0, 0, 4096)
    complete(two.transfer(True, 0, 8192, 4096))
    np.testing.assert_array_equal(two.get(8192, 4096), values(1, 4096))
    with two.slab as slab:
        assert not slab.is_closed
    assert two.slab.is_closed
    two.close()
    # The device is free again.
    Server(engine, tmp_path / "two.img").close()


def blocks_of_slab(path, engine, byte, nbytes):
    """Returns the logical blocks of bytes of the slab, as a fault's option has them."""
    volume = warpbell.Volume.open(engine, f"soft:{path}", read_only=True)
    first = next(a["offset"] for a in volume.arrays() if a["name"] == lmcache.ARRAY) + byte
    return f"{first // 512}-{(first + nbytes) // 512 - 1}"


def test_failed_blocks_are_told_and_not_read_afterwards(engine, tmp_path):
    path = tmp_path / "kv.img"
    Server(engine, path).close()
    bad = blocks_of_slab(path, engine, 65536, 4096)
    server = Server(engine, f"soft:{path},media-error={bad}")
    server.put(0, values(1, 131072))
    (read, _), (written, _) = server.transfer(True, 65536, 0, 65536) + server.transfer(False, 65536, 0, 65536)
    assert outcome(written) == -errno.EIO and outcome(read) == -errno.EIO
    assert written.bytes_done == -errno.EIO
    complete(server.transfer(False, 131072, 0, 65536))
    for first, nbytes in ((65536, 65536), (0, 65552), (131056 - 480, 512)):
        with pytest.raises(OSError, match="has failed"):
            server.transfer(True, first, 0, nbytes)
    complete(server.transfer(True, 131072, 0, 65536))
    server.close()
    # What can be written again can be read again.
    server = Server(engine, f"soft:{path},torn-write=every:2")
    outcomes = []
    for _ in range(6):
        (submission, nbytes), = server.transfer(False, 4096, 0, 4096)
        outcomes.append(outcome(submission) == nbytes)
        if outcomes[-1]:
            complete(server.transfer(True, 4096, 8192, 4096))
    assert True in outcomes and False in outcomes
    server.close()


@pytest.mark.skipif(ON_GPU, reason="an engine of its own")
def test_a_device_that_does_not_reply_is_a_time_out(tmp_path):
    engine = open_engine(deadline=0.3)
    path = tmp_path / "kv.img"
    Server(engine, path).close()
    bad = blocks_of_slab(path, engine, 65536, 4096)
    server = Server(engine, f"soft:{path},lose-completion={bad}")
    (submission, _), = server.transfer(True, 65536, 0, 4096)
    assert outcome(submission) == -errno.ETIMEDOUT
    server.close()


@pytest.mark.parametrize("version", ["0.5.6", "9.9.9"])
def test_the_back_end_is_made_known_by_one_file(tmp_path, monkeypatch, capsys, version):
    monkeypatch.setattr(lmcache, "_package", lambda: (str(tmp_path), version))
    path = tmp_path / "warpbell.py"
    assert lmcache.main([]) == 2 and lmcache.main(["remove"]) == 2
    assert lmcache.main(["uninstall"]) == 0 and "there is no" in capsys.readouterr().out
    if version not in lmcache.KNOWN:
        assert lmcache.main(["install"]) == 1 and not path.exists()
        assert "0.5.6" in capsys.readouterr().err
    words = ["install"] if version in lmcache.KNOWN else ["install", "--any-version"]
    assert lmcache.main(words) == 0 and path.read_text() == "from warpbell.lmcache import Backend\n"
    assert str(path) in capsys.readouterr().out
    assert lmcache.main(words) == 0 and "already" in capsys.readouterr().out
    names = {}
    exec(path.read_text(), names)
    assert names["Backend"] is lmcache.Backend
    assert lmcache.main(["uninstall"]) == 0 and not path.exists()
    path.write_text("import something_else\n")
    for word in (words, ["uninstall"]):
        assert lmcache.main(word) == 1 and path.read_text() == "import something_else\n"
