#!/usr/bin/env python3
"""Stores pages of a KV cache under hashes of their tokens, loads them into other pages, and finds them after a restart.

The model is small: 8 layers, pages of 16 tokens. Its cache is a tensor for keys and values of each layer, in memory of torch on a GPU, in
memory of numpy on CPU threads. No server is needed.

    examples/python/kv_store.py                                        a file in a temporary folder
    examples/python/kv_store.py --device nvme:0000:65:00.0             on a drive that is empty or warpbell's own
"""

import argparse
import hashlib
import pathlib
import sys
import tempfile

import numpy as np
import warpbell

LAYERS, PAGES, PAGE_TOKENS, KV_HEADS, HEAD_DIM = 8, 64, 16, 2, 32
#: Seconds in which a transfer ends.
SOON = 60


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="auto", help="auto, cpu or gpu")
    parser.add_argument("--device", help="device for the objects (a file in a temporary folder)")
    parser.add_argument("--tokens", type=int, default=320, help="tokens of the request, at most 512 (320)")
    return parser.parse_args()


def hashes(tokens):
    """Returns a key for each whole page of tokens: the hash of all tokens up to its end."""
    ends = range(PAGE_TOKENS, len(tokens) + 1, PAGE_TOKENS)
    return [hashlib.sha256(tokens[:end].tobytes()).digest() for end in ends]


def new_cache(engine, fill):
    """Returns a tensor of pages for each layer, in memory that the engine's kernels reach."""
    shape = (PAGES, 2, PAGE_TOKENS, KV_HEADS, HEAD_DIM)
    arrays = [np.full(shape, 0, np.float16) for _ in range(LAYERS)]
    if fill is not None:
        arrays = [fill.standard_normal(shape).astype(np.float16) for _ in range(LAYERS)]
    if engine.kind == "cpu":
        return arrays
    import torch

    return [torch.from_numpy(array).cuda() for array in arrays]


def pages_of(tensor, pages):
    """Returns pages as an array of numpy."""
    return np.stack([np.asarray(tensor[page] if isinstance(tensor, np.ndarray) else tensor[page].cpu()) for page in pages])


def check(cache, pages, other, others):
    for layer, (tensor, found) in enumerate(zip(cache, other)):
        if not np.array_equal(pages_of(tensor, pages), pages_of(found, others)):
            sys.exit(f"layer {layer} differs from what was stored")


def load(store, queue, keys, cache, pages):
    """Loads objects, and returns how many of them are there and whole."""
    loading = store.load(queue, keys, cache, pages)
    # A server makes the stream of its model wait for each layer: loading.wait_group(stream, layer).
    results = loading.finish(SOON)
    failed = [result for result in results if isinstance(result, warpbell.Error)]
    for error in failed:
        print(error)
    return len(results) - len(failed)


def main():
    given, random = options(), np.random.default_rng(7)
    engine = warpbell.Engine(given.engine)
    tokens = random.integers(0, 32_000, min(given.tokens, PAGES // 2 * PAGE_TOKENS))
    keys = hashes(tokens)
    with tempfile.TemporaryDirectory() as folder:
        device = given.device or f"soft:{pathlib.Path(folder) / 'kv.img'}"
        volume = warpbell.Volume.create(engine, device, 64 << 20, for_segments=True)
        if any(listed["name"] == "example" for listed in volume.kv_stores()):
            volume.remove_kv_store("example")
        store = warpbell.KvStore.create(volume, "example", bytes=32 << 20, objects=1024)
        queue = warpbell.SegmentQueue(volume)

        # The pages of a request are anywhere in the cache.
        cache, pages = new_cache(engine, random), random.permutation(PAGES)[: len(keys)]
        stored = store.store(queue, keys, cache, pages).finish(SOON)
        print(f"stored {len(stored)} pages of {stored[0] >> 10} KiB")

        # Another request has the same beginning.
        longer = hashes(np.concatenate([tokens[: 10 * PAGE_TOKENS], tokens[:PAGE_TOKENS]]))
        known = store.prefix(longer)
        print(f"{known} of {len(longer)} pages of another request are there")
        other, places = new_cache(engine, None), random.permutation(PAGES)[:known]
        loaded = load(store, queue, longer[:known], other, places)
        check(cache, pages[:known], other, places)
        print(f"loaded {loaded} of them into other pages: equal")

        # After a restart all objects are there again.
        del store, queue, volume
        volume = warpbell.Volume.open(engine, device)
        store, queue = warpbell.KvStore.open(volume, "example"), warpbell.SegmentQueue(volume)
        other, places = new_cache(engine, None), random.permutation(PAGES)[: len(keys)]
        loaded = load(store, queue, keys, other, places)
        check(cache, pages, other, places)
        print(f"after a restart: loaded {loaded} of {len(keys)} pages: equal")
        deleted = store.delete(keys[4:])
        print(f"deleted {deleted}: {store.prefix(keys)} are left, {store.stats()['free_bytes'] >> 20} MiB are free")
        del store, queue, volume


if __name__ == "__main__":
    main()
