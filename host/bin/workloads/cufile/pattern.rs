//! Addresses and data of `bench nvme`, as its kernels choose and check them (`kernels/bench/nvme.cu`).

use std::ops::Range;

/// Shift that a kernel applies to the block's number before it adds the word's.
const WORD_BITS: u32 = 9;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const WARP_MULTIPLIER: u64 = 0xd1b5_4a32_d192_ed03;

/// Returns the first 8-byte word of a logical block. Each word after it is larger by [`MULTIPLIER`]: a kernel multiplies
/// the numbers of both by it.
fn first_word(block: u64) -> u64 {
    (block << WORD_BITS).wrapping_mul(MULTIPLIER)
}

/// Geometry of the commands: their size, and that of a logical block, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub command_bytes: usize,
    pub block_bytes: usize,
}

impl Geometry {
    /// Returns the first block of a unit, the data of one command.
    fn first_block(self, unit: u64) -> u64 {
        unit * (self.command_bytes / self.block_bytes) as u64
    }

    /// Fills the data of a unit.
    pub fn fill(self, unit: u64, data: &mut [u8]) {
        for (block, data) in (self.first_block(unit)..).zip(data.chunks_exact_mut(self.block_bytes)) {
            let mut word = first_word(block);
            for to in data.as_chunks_mut().0 {
                *to = word.to_le_bytes();
                word = word.wrapping_add(MULTIPLIER);
            }
        }
    }

    /// Returns true if the data is that of a unit.
    pub fn is(self, unit: u64, data: &[u8]) -> bool {
        for (block, data) in (self.first_block(unit)..).zip(data.chunks_exact(self.block_bytes)) {
            let mut word = first_word(block);
            for found in data.as_chunks().0 {
                if u64::from_le_bytes(*found) != word {
                    return false;
                }
                word = word.wrapping_add(MULTIPLIER);
            }
        }
        true
    }
}

/// xorshift64 (Marsaglia, 2003).
fn next(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Unit that it reads or writes.
    pub unit: u64,
    /// False for a write.
    pub is_read: bool,
}

/// Choices of one lane: units, and reads or writes.
#[derive(Clone, Debug)]
pub struct Choice {
    lane: u64,
    units: u64,
    turns: u64,
    addresses: u64,
    directions: u64,
    read_percent: u64,
    /// Distance of consecutive commands of a sequential pattern; `None` for a random one.
    stride: Option<u64>,
}

impl Choice {
    /// Returns the choices of the lanes in `lanes`, of `all` lanes together.
    pub fn of(lanes: Range<u64>, all: u64, job: &crate::workloads::nvme::NvmeJob, units: u64) -> Vec<Self> {
        let of = |lane: u64| Self {
            lane,
            units,
            turns: 0,
            addresses: (job.seed.wrapping_add(lane + 1)).wrapping_mul(MULTIPLIER) | 1,
            directions: (job.seed.wrapping_add(lane + 1)).wrapping_mul(WARP_MULTIPLIER) | 1,
            read_percent: job.read_percent.into(),
            stride: (!job.rw.is_random()).then_some(all),
        };
        lanes.map(of).collect()
    }

    /// Returns the next command.
    pub fn next(&mut self) -> Operation {
        let turn = self.turns;
        self.turns += 1;
        let unit = match self.stride {
            Some(all) => (self.lane + turn * all) % self.units,
            // The upper half of a random word, scaled. The number of units has 32 bits.
            None => ((next(&mut self.addresses) >> 32) * self.units) >> 32,
        };
        let is_read = (((next(&mut self.directions) >> 32) * 100) >> 32) < self.read_percent;
        Operation { unit, is_read }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::nvme::sizes::Sizes;
    use crate::workloads::nvme::{NvmeBench, NvmeJob, Pattern};
    use warpbell::engine::Engine;
    use warpbell::storage::{Drive, OverwritePolicy, Volume};

    fn job(random: bool) -> NvmeJob {
        let rw = if random { Pattern::Randread } else { Pattern::Read };
        NvmeJob { iodepth: 4, verify: true, seed: 7, ..NvmeJob::new(rw, Sizes::all(4096), 1 << 20) }
    }

    #[test]
    fn the_data_is_what_a_kernel_fills() {
        let engine = Engine::cpu().unwrap();
        let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none()).unwrap();
        let volume = Volume::on(&engine, [drive]).transfer(4096).build().unwrap();
        NvmeBench::new(&volume, job(true)).unwrap().fill(|_, _| {}).unwrap();
        let geometry = Geometry { command_bytes: 4096, block_bytes: volume.block_bytes() };
        let mut data = vec![0; 1 << 20];
        volume.read_blocks(0, &mut data).unwrap();
        for (unit, found) in data.chunks_exact(4096).enumerate() {
            assert!(geometry.is(unit as u64, found), "unit {unit}");
            let mut own = vec![0; 4096];
            geometry.fill(unit as u64, &mut own);
            assert_eq!(own, found);
        }
        data[4096] ^= 1;
        assert!(!geometry.is(1, &data[4096..8192]) && !geometry.is(0, &data[8192..12_288]));
    }

    #[test]
    fn lanes_choose_apart_and_within_the_units() {
        let mut lanes = Choice::of(0..2, 2, &job(true), 256);
        let of = |c: &mut Choice| (0..1000).map(|_| c.next()).collect::<Vec<_>>();
        let (a, b) = (of(&mut lanes[0]), of(&mut lanes[1]));
        assert_ne!(a, b);
        assert!(a.iter().chain(&b).all(|o| o.unit < 256 && o.is_read));
        let mut lanes = Choice::of(1..2, 3, &job(false), 5);
        let units: Vec<u64> = of(&mut lanes[0])[..4].iter().map(|o| o.unit).collect();
        assert_eq!(units, [1, 4, 2, 0]);
        let mixed = NvmeJob { rw: Pattern::Randrw, read_percent: 30, ..job(true) };
        let reads = of(&mut Choice::of(0..1, 1, &mixed, 9)[0]).iter().filter(|o| o.is_read).count();
        assert!((200..400).contains(&reads), "{reads}");
    }
}
