// The capsules of `bench post --capsules`: reads of one block whose data pointer is a keyed data block.
#pragma once

#include <warpbell/nvme.cuh>

namespace warpbell {
namespace bench {

constexpr uint32_t capsule_namespace = 1;
constexpr uint32_t capsule_data_bytes = 512;
constexpr uint32_t capsule_data_key = 0x00204500;

// Returns the data pointer of a read: each block has memory of its own.
WB_FN nvme::prp capsule_data(uint64_t lba) { return nvme::keyed(lba * capsule_data_bytes, capsule_data_bytes, capsule_data_key); }

}  // namespace bench
}  // namespace warpbell
