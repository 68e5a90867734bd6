"""Kernels of Triton for ``calls_with.py``: calls of worlds and volumes. Triton reads the source of kernels from a file.

No argument is specialised: kernels that wait for each other have to be compiled and loaded before the first of them runs.
"""

import triton
import triton.language as tl
from warpbell.triton import CMP_GE, SIGNAL_ADD, function

my_pe, n_pes, team_n_pes = function("wbd_my_pe"), function("wbd_n_pes"), function("wbd_team_n_pes")
put_signal, wait = function("wbd_putmem_signal_block"), function("wbd_signal_wait_until_block")
put_element, get_element = function("wbd_p_u32"), function("wbd_g_u32")
get, barrier, team_barrier = function("wbd_getmem_block"), function("wbd_barrier_all_block"), function("wbd_team_barrier_block")
draw, add = function("wbd_atomic_fetch_add_u64"), function("wbd_atomic_add_u64")
block_bytes, read, write = function("wbd_volume_block_bytes"), function("wbd_volume_read_block"), function("wbd_volume_write_block")
read_warp, write_warp, flush = function("wbd_volume_read_warp"), function("wbd_volume_write_warp"), function("wbd_volume_flush_block")


@triton.jit(do_not_specialize=["world", "arrived", "to", "rounds"])
def ring(world, source, landing, out, arrived, to, rounds, states, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for number in range(rounds):
        part = number * BLOCK
        sent = put_signal(world, landing + part, source + part, 4 * BLOCK, arrived, 1, SIGNAL_ADD, to)
        waited = wait(world, arrived, CMP_GE, number + 1)
        tl.store(out + part + i, tl.load(landing + part + i))
        tl.store(states + 2 * number, sent.to(tl.int32))
        tl.store(states + 2 * number + 1, waited.to(tl.int32))


@triton.jit(do_not_specialize=["world", "team", "counter", "total"])
def elements(world, team, slots, counter, total, drawn, out, states, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    zero = tl.zeros((BLOCK,), tl.uint32)
    me = my_pe(world).to(tl.int32)
    next_pe = (me + 1) % n_pes(world).to(tl.int32)
    tl.store(drawn + i, draw(world, counter, 1, zero).to(tl.int64))
    add(world, total, i, zero)
    put_element(world, slots + i, 1000 * me + i, next_pe)
    arrived = barrier(world)
    tl.store(out + i, tl.load(slots + i))
    tl.store(out + BLOCK + i, get_element(world, slots + i, next_pe).to(tl.int32))
    got = get(world, out + 2 * BLOCK, slots, 4 * BLOCK, next_pe)
    left = team_barrier(team, 0)
    tl.store(states, arrived.to(tl.int32))
    tl.store(states + 1, got.to(tl.int32))
    tl.store(states + 2, left.to(tl.int32))
    tl.store(states + 3, team_n_pes(team).to(tl.int32))


@triton.jit(do_not_specialize=["view", "source", "target", "count"])
def add_to_blocks(view, source, target, count, buffer, states, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    elements_each = count * block_bytes(view).to(tl.int32) // 4
    part = buffer + program * elements_each
    state = read(view, source + program * count, count, part)
    for at in range(0, elements_each, BLOCK):
        i = at + tl.arange(0, BLOCK)
        inside = i < elements_each
        tl.store(part + i, tl.load(part + i, mask=inside) + 1, mask=inside)
    state |= write(view, target + program * count, count, part)
    state |= flush(view)
    tl.store(states + program, state.to(tl.int32))


@triton.jit(do_not_specialize=["view", "source", "target", "count"])
def permute_blocks(view, source, target, order, count, buffer, states, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wanted = i < count
    number = tl.load(order + i, mask=wanted, other=0)
    place = buffer.to(tl.uint64, bitcast=True) + i.to(tl.uint64) * block_bytes(view).to(tl.uint64)
    state = read_warp(view, source + number, wanted, place)
    state |= write_warp(view, target + i, wanted, place)
    tl.store(states + i, state.to(tl.int32), mask=wanted)
