// Tests send and completion queues of mlx5 adapters over many laps: the places of entries, the values of doorbells and records, and
// the number of complete blocks. The test tests/device/mlx5.rs covers the layout of entries and records.
#include <warpbell/mlx5/cqe.cuh>
#include <warpbell/mlx5/send_ring.cuh>

#include <cstring>
#include <vector>

#include "check.h"
#include "long_inline.cuh"

using namespace warpbell;
using namespace warpbell::mlx5;

namespace {

// Returns the word that ends with this last byte.
cqe_state with_last_byte(uint32_t op_own) { return cqe_state(op_own << 24); }

uint64_t random_state;
uint64_t draw() {
  uint64_t x = random_state += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// Tests more blocks than 16 bits count, in entries of one, two and five blocks, through the smallest ring that RDMA libraries use.
void laps() {
  constexpr uint32_t log = 7;
  std::vector<block> memory((1u << log) + 1);
  const send_ring ring((reinterpret_cast<uint64_t>(memory.data()) + 63) & ~uint64_t{63}, log);
  const queue_word queue = queue_of(0x123456);
  const uint32_t data[64] = {};
  uint64_t index = 0xff00, seen = index, across = 0;
  while (index < 0xff00 + 70000) {
    const uint32_t turn = static_cast<uint32_t>(draw() % 3);
    uint32_t filled = 1;
    if (turn == 0) {
      ring.store(index, placed(nop(), index, queue, signalled));
    } else if (turn == 1) {
      ring.store(index, placed(masked_swap(remote{1, big(2)}, local{3, big(4)}, as_set(index)), index, queue, unsignalled));
      filled = 2;
    } else {
      long_inline_write(ring, index, queue, unsignalled, remote{1, big(2)}, data, sizeof data);
      filled = 5;
    }
    const unsigned char* front = reinterpret_cast<const unsigned char*>(ring.at(index));
    CHECK((front[1] << 8 | front[2]) == static_cast<int>(index & 0xffff));
    CHECK(blocks_of(front[7]) == filled);
    across += ring.at(index + filled - 1) < ring.at(index);
    if (filled == 2) {
      const unsigned char landing[4] = {0, 0, 0, 8};
      CHECK(std::memcmp(reinterpret_cast<const void*>(ring.at(index, 64)), landing, 4) == 0);
      CHECK(ring.at(index, 64) == ring.at(index + 1));
    }
    index += filled;
    const uint32_t record = send_record(index);
    seen = advance(seen, swap_bytes(record));
    CHECK(seen == index);
    CHECK(advance(index - filled, static_cast<uint32_t>(swap_bytes(doorbell(index, queue)) >> 40)) == index);
    CHECK(ring.has_room(index, filled, index + filled - ring.blocks()));
    CHECK(!ring.has_room(index, filled, index + filled - ring.blocks() - 1));
    CHECK(ring.must_complete(index) == static_cast<int64_t>(index) - 128);
  }
  CHECK(across > 100);
}

// Compares both ways to find the number of complete blocks with the real number.
void progress() {
  for (int i = 0; i < 200000; ++i) {
    const uint32_t log = 7 + static_cast<uint32_t>(draw() % 9);
    const uint64_t blocks = uint64_t{1} << log, announced = 65536 + (draw() >> 20);
    const uint64_t done = announced - draw() % (blocks + 1), asked = announced - draw() % blocks;
    const uint32_t counter = static_cast<uint32_t>(done - 1) & 0xffffu;
    const collapsed c(log);
    CHECK(c.is_complete(asked, counter) == (asked <= done));
    if (asked <= done) CHECK(collapsed::completed(asked, counter) == done);
    CHECK(collapsed::completed_before(announced, counter) == done);
    // A ring: entry `n` is new in its own lap only.
    const completion_ring r(0, log);
    const uint64_t n = draw() >> 24, laps = draw() % 4;
    const cqe_state s = with_last_byte(static_cast<uint32_t>(n >> log & 1u));
    CHECK(r.is_written(n + laps * blocks, s) == (laps % 2 == 0));
    CHECK(r.at(n) == (n & (blocks - 1)) * 64 && r.at(n + blocks) == r.at(n));
    CHECK(!r.is_written(n, with_last_byte(cqe_never_written)) && !r.is_written(n, with_last_byte(0xff)));
  }
}

}  // namespace

int main() {
  laps();
  progress();
  std::printf("mlx5 rings: width %d: ok\n", WB_WARP_WIDTH);
}
