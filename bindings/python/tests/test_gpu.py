"""Memory and streams of a GPU. Other engines skip these tests."""

import gc

import numpy as np
import pytest
import warpbell


@pytest.fixture(autouse=True)
def _on_a_gpu(engine):
    if engine.kind != "gpu":
        pytest.skip("needs a GPU")


def test_rows_stay_on_the_gpu(table, vectors):
    torch = pytest.importorskip("torch", reason="needs torch")
    rows = table[[3, 1]]
    shared = torch.from_dlpack(rows)
    assert rows.device == "cuda:0" and shared.is_cuda
    assert shared.data_ptr() == rows.__cuda_array_interface__["data"][0]
    np.testing.assert_array_equal(shared.cpu().numpy(), vectors[[3, 1]])
    np.testing.assert_array_equal(rows.numpy(), vectors[[3, 1]])
    with pytest.raises(warpbell.InvalidError, match="allow a copy"):
        rows.__array__(copy=False)
    empty = torch.from_dlpack(table[[]])
    assert empty.shape == (0, 32)


def test_a_gather_begins_behind_the_work_of_torchs_stream(table, vectors):
    torch = pytest.importorskip("torch", reason="needs torch")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for number in range(20):
            indices = torch.full((1000,), 4999, device="cuda")
            torch.cuda._sleep(20_000_000)
            # Behind the pause: a gather that did not wait would read the old numbers.
            indices.fill_(number)
            out = torch.empty(1000, 32, device="cuda")
            table.gather(indices, out)
            assert (out.cpu().numpy() == vectors[number]).all()
            rows = torch.ones(1, 32, device="cuda")
            torch.cuda._sleep(20_000_000)
            rows.fill_(number)
            table.scatter(torch.tensor([4000], device="cuda"), rows)
            assert (table[4000].numpy() == number).all()
            ahead = table.prefetch(indices)
            assert (torch.from_dlpack(ahead.take()).cpu().numpy() == vectors[number]).all()


def test_arrays_of_dlpack_alone_are_taken(table, vectors):
    torch = pytest.importorskip("torch", reason="needs torch")
    from test_tensor import OnlyDlpack

    for number in range(10):
        indices = torch.zeros(100, dtype=torch.int64, device="cuda")
        out = torch.empty(100, 32, device="cuda")
        torch.cuda._sleep(20_000_000)
        indices.fill_(number)
        table.gather(OnlyDlpack(indices), OnlyDlpack(out))
        assert (out.cpu().numpy() == vectors[number]).all()


def test_memory_of_a_tensor_that_is_gone_waits_for_kernels_that_read_it(table, vectors):
    torch = pytest.importorskip("torch", reason="needs torch")
    for number in range(10):
        rows = torch.from_dlpack(table[np.full(2000, number)])
        torch.cuda._sleep(50_000_000)
        sums = rows * 1
        del rows
        gc.collect()
        other = torch.from_dlpack(table[np.full(2000, 100 + number)])
        assert (sums.cpu().numpy() == vectors[number]).all()
        assert (other.cpu().numpy() == vectors[100 + number]).all()


def test_streams_are_shared_with_torch(engine, table, vectors):
    torch = pytest.importorskip("torch", reason="needs torch")
    own = engine.stream()
    assert own.__cuda_stream__() == (0, own.handle)
    outside = torch.cuda.ExternalStream(own.handle)
    with torch.cuda.stream(outside):
        indices = torch.arange(100, device="cuda")
    for stream in (own, outside, outside.cuda_stream, warpbell.Stream.adopt(engine, outside)):
        np.testing.assert_array_equal(table.gather(indices, stream=stream).numpy(), vectors[:100])
    own.wait_for(torch.cuda.current_stream())
    own.synchronize(30)


def test_cupy(table, vectors):
    cupy = pytest.importorskip("cupy", reason="needs cupy")
    rows = cupy.from_dlpack(table[[3, 1]])
    np.testing.assert_array_equal(cupy.asnumpy(rows), vectors[[3, 1]])
    np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(table[[3, 1]])), vectors[[3, 1]])
    out = cupy.empty((2, 32), cupy.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        table.gather(cupy.array([5, 6], dtype=cupy.int32), out)
        np.testing.assert_array_equal(cupy.asnumpy(out), vectors[[5, 6]])
        table.gather(cupy.array([7, 8]), out, stream=stream)
    np.testing.assert_array_equal(cupy.asnumpy(out), vectors[[7, 8]])


def test_numba(table, vectors):
    cuda = pytest.importorskip("numba.cuda", reason="needs numba-cuda")
    rows = cuda.as_cuda_array(table[[3, 1]])
    np.testing.assert_array_equal(rows.copy_to_host(), vectors[[3, 1]])
    out = cuda.device_array((2, 32), np.float32)
    table.gather(cuda.to_device(np.array([5, 6])), out)
    np.testing.assert_array_equal(out.copy_to_host(), vectors[[5, 6]])


def test_jax(table, vectors):
    jax = pytest.importorskip("jax", reason="needs jax")
    if jax.default_backend() != "gpu":
        pytest.skip("needs jax with CUDA")
    np.testing.assert_array_equal(np.asarray(jax.dlpack.from_dlpack(table[[3, 1]])), vectors[[3, 1]])
    np.testing.assert_array_equal(table[jax.numpy.array([3, 1])].numpy(), vectors[[3, 1]])


def test_memory_of_the_host_is_refused_where_kernels_need_the_gpus(table):
    torch = pytest.importorskip("torch", reason="needs torch")
    with pytest.raises(TypeError, match="32 or 64 bits"):
        table[torch.tensor([1], dtype=torch.int16, device="cuda")]
    with pytest.raises(warpbell.InvalidError, match="torch.nonzero"):
        table[torch.zeros(5000, dtype=torch.bool, device="cuda")]
    with pytest.raises(warpbell.RowIndexError):
        table[torch.tensor([-1], device="cuda")]
    out = torch.empty(2, 32)
    assert table.gather([1, 2], out) is out


def test_a_gpu_without_memory_is_an_error_and_later_calls_work(volume, table, vectors):
    large = warpbell.Table.create(volume, "large", 10, 65536, "uint8")
    with pytest.raises(warpbell.OutOfMemoryError) as caught:
        large[np.zeros(1 << 22, np.uint32)]  # 256 GiB
    assert isinstance(caught.value, MemoryError)
    np.testing.assert_array_equal(table[[1]].numpy(), vectors[[1]])


def test_results_of_graphs_stay_on_the_gpu(engine):
    torch = pytest.importorskip("torch", reason="needs torch")
    graph = warpbell.Graph.load(engine, "kron:12")
    depth = torch.from_dlpack(graph.bfs(graph.vertex(1)).depth)
    assert depth.is_cuda and depth.dtype == torch.int32 and depth.max() > 0
    again = torch.from_dlpack(graph.bfs(graph.vertex(1)).depth)
    assert torch.equal(depth, again) and depth.data_ptr() != again.data_ptr()


@pytest.fixture
def world(engine):
    with warpbell.World.single(engine, heap_bytes=1 << 26) as world:
        yield world


def test_torch_shares_symmetric_memory(world):
    torch = pytest.importorskip("torch", reason="needs torch")
    x = world.zeros((4, 1000))
    shared = torch.from_dlpack(x)
    assert shared.is_cuda and shared.data_ptr() == x.address == x.__cuda_array_interface__["data"][0]
    torch.cuda._sleep(20_000_000)
    shared[1].fill_(6)
    # Copies between the host and the memory are behind torch's current stream, too.
    x[1] = 5
    torch.cuda._sleep(20_000_000)
    shared[2].fill_(7)
    assert x.numpy().sum(axis=1).tolist() == [0, 5000, 7000, 0]
    # Tensors of torch that share symmetric memory name it.
    world.put(shared[0], shared[1], 0)
    world.put(shared[3], torch.full((1000,), 3.0, device="cuda"), 0)
    assert shared.sum(dim=1).tolist() == [5000, 5000, 7000, 3000]
    out = torch.empty(1000, device="cuda")
    assert world.get(x[2], 0, out) is out and out.sum() == 7000
    host = np.empty(1000, np.float32)
    assert world.get(shared[2], 0, host) is host and host.sum() == 7000
    with pytest.raises(TypeError, match="no symmetric memory"):
        world.put(out, x[0], 0)
    with pytest.raises(warpbell.InvalidError, match="both have to be equal"):
        world.put(x[0], out.int(), 0)


def test_calls_of_worlds_begin_behind_torchs_stream(engine, world):
    torch = pytest.importorskip("torch", reason="needs torch")
    x, y = world.zeros(1000), world.zeros(1000)
    shared, source, out = torch.from_dlpack(x), torch.empty(1000, device="cuda"), torch.empty(1000, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        for number in range(1, 11):
            torch.cuda._sleep(20_000_000)
            source.fill_(number)
            world.put(y, source, 0)
            assert (y.numpy() == number).all()
            torch.cuda._sleep(20_000_000)
            # The tensor of warpbell is the same memory: it is ready when torch's current stream is.
            shared.fill_(-number)
            world.put(y, x, 0)
            assert (y.numpy() == -number).all()
            torch.cuda._sleep(20_000_000)
            out.fill_(0)
            world.get(y, 0, out)
            assert (out == -number).all()
    # On a stream the host does not wait.
    stream = warpbell.Stream.adopt(engine, torch.cuda.current_stream())
    for number in range(1, 11):
        torch.cuda._sleep(20_000_000)
        source.fill_(number)
        world.put(y, source, 0, stream=stream)
        world.all_reduce(y, stream=stream)
        world.get(y, 0, out, stream=stream)
        assert (out + 0 == number).all()
    stream.synchronize(30)
    with pytest.raises(TypeError, match="Stream.adopt"):
        world.put(y, source, 0, stream=torch.cuda.current_stream())
    with pytest.raises(warpbell.InvalidError, match="copy it there first"):
        world.put(y, np.ones(1000, np.float32), 0, stream=stream)


def test_pes_of_one_process_do_not_wait_on_torchs_stream():
    torch = pytest.importorskip("torch", reason="needs torch")
    from conftest import open_engine
    from test_world import run_threads

    # From now on torch has a current stream, which is that of all threads.
    assert torch.zeros(1, device="cuda").item() == 0
    worlds = warpbell.World.local([open_engine(deadline=10) for _ in range(2)], heap_bytes=1 << 20, timeout=100)

    def work(world):
        x = world.zeros(100, "int64")
        for number in range(20):
            x[:] = number + world.my_pe
            world.all_reduce(x)
            assert (x.numpy() == 2 * number + 1).all()

    run_threads([lambda world=world: work(world) for world in worlds])


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("pes", [2, 3])
def test_tensors_of_torch_are_registered_as_symmetric(monkeypatch, pes, expandable):
    pytest.importorskip("torch", reason="needs torch")
    from test_world import all_done, ranks

    # Memory of cudaMalloc, and mapped physical memory. The PEs take the GPUs in turn.
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", f"expandable_segments:{expandable}")
    all_done(ranks(pes, "windows", "transport=peer"), pes)


def test_a_world_beside_nccl_in_one_job(tmp_path):
    torch = pytest.importorskip("torch", reason="needs torch")
    if torch.cuda.device_count() < 2 or not torch.distributed.is_nccl_available():
        pytest.skip("needs two GPUs and NCCL")
    from test_world import all_done, ranks

    all_done(ranks(2, "beside_nccl", how=lambda rank: f"nccl:{tmp_path}:{rank}:2"), 2)


def test_pages_are_stored_and_loaded_behind_the_work_of_torchs_stream(engine, volume):
    torch = pytest.importorskip("torch", reason="needs torch")
    store = warpbell.KvStore.create(volume, "cache", bytes=8 << 20, objects=64, key_bytes=16)
    current = torch.cuda.Stream()
    for queue in (warpbell.SegmentQueue(volume), warpbell.SegmentQueue(volume, stream=current, multiprocessors=4)):
        for number in range(1, 6):
            names = [bytes([number, page] + [0] * 14) for page in range(8)]
            with torch.cuda.stream(current):
                layers = [torch.zeros(16, 2, 64, dtype=torch.bfloat16, device="cuda") for _ in range(6)]
                torch.cuda._sleep(20_000_000)
                # Behind the pause: a store that did not wait would read zeros.
                for layer, tensor in enumerate(layers):
                    tensor.copy_(torch.arange(16, device="cuda").view(16, 1, 1) + 16 * layer + number)
                expected = [tensor.clone() for tensor in layers]
                assert store.store(queue, names, layers, list(range(8))).finish(60) == [6 * 256] * 8
                torch.cuda._sleep(20_000_000)
                # A load that did not wait would be overwritten.
                [tensor.zero_() for tensor in layers]
                loading = store.load(queue, names, layers, list(range(15, 7, -1)))
                for layer, tensor in enumerate(layers):
                    loading.wait_group(torch.cuda.current_stream(), layer)
                    tensor.mul_(2)
                assert loading.finish(60) == [6 * 256] * 8
            current.synchronize()
            for tensor, whole in zip(layers, expected):
                assert torch.equal(tensor[8:], (whole[:8] * 2).flip(0)) and not tensor[:8].any()
    assert volume.verify()["intact"]


def test_a_stored_array_is_loaded_to_a_gpu(engine, volume):
    torch = pytest.importorskip("torch", reason="needs torch")
    data = np.random.default_rng(1).integers(0, 1 << 30, 3 << 20).astype(np.int32)
    volume.store("weights", data)
    queue = warpbell.SegmentQueue(volume)
    into = torch.empty(3 << 20, dtype=torch.int32, device="cuda")
    loading = queue.load("weights", 0, into)
    loading.wait_group(torch.cuda.current_stream())
    doubled = into * 2
    np.testing.assert_array_equal(doubled.cpu().numpy(), data * 2)
    assert loading.finish(60) == into.nbytes
    into.fill_(7)
    assert queue.store("weights", 4096, into[1024:2048]).finish(60) == 4096
    volume.flush()
    np.testing.assert_array_equal(volume.load("weights")[:3000], np.where((np.arange(3000) >= 1024) & (np.arange(3000) < 2048), 7, data[:3000]))
