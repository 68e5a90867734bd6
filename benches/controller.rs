//! The software controller's command loop: one queue pair, one service thread, blocks in memory, doorbells in memory.
//! Each block carries its number, which is checked as its completion arrives.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nvme_driver::{Driver, PAGE, Pair};
use std::time::{Duration, Instant};
use warpbell::memory::DmaRegion;
use warpbell::soft::nvme::{SoftConfig, SoftController, Streaming};
use warpbell::wire::nvme::{SqEntry, io, status};

const ENTRIES: u32 = 256;
const BYTES: u64 = 64 << 20;

struct Load {
    pair: Pair,
    data: DmaRegion,
    block: usize,
    driver: Driver,
    _controller: SoftController,
    random: u64,
    /// Block that each command identifier reads.
    expected: Vec<u64>,
    free: Vec<u16>,
}

impl Load {
    fn new(block: usize, streaming: Streaming) -> Self {
        let config = SoftConfig::memory(BYTES).block_bytes(block as u32).threads(1).streaming(streaming);
        let (controller, mut driver) = Driver::start(config);
        let pair = driver.pair(1, ENTRIES);
        let data = driver.memory((ENTRIES as usize - 1) * PAGE);
        let slots = ENTRIES as u16 - 1;
        let free = (0..slots).collect();
        let expected = vec![0; slots.into()];
        let mut load = Self { pair, data, block, driver, _controller: controller, random: 1, expected, free };
        load.fill();
        load
    }

    fn place(&mut self, opcode: u8, cid: u16, lba: u64) {
        let mut e = SqEntry::new(opcode, cid, 1);
        e.set_range(lba, 1);
        e.prp1 = self.data.iova + u64::from(cid) * PAGE as u64;
        self.pair.place(e);
    }

    /// Writes each block's number to its beginning and its end.
    fn fill(&mut self) {
        for lba in 0..BYTES / self.block as u64 {
            self.data.region.set(0, lba).expect("in bounds");
            self.data.region.set(self.block - 8, lba).expect("in bounds");
            self.place(io::WRITE, 0, lba);
            self.pair.ring(&self.driver);
            assert_eq!(self.pair.wait(&self.driver).status(), status::SUCCESS);
        }
    }

    /// Reads `count` random blocks with the queue full.
    fn read(&mut self, count: u64) -> Duration {
        let blocks = BYTES / self.block as u64;
        let (mut submitted, mut done) = (0, 0);
        let begin = Instant::now();
        while done < count {
            let mut placed = false;
            while submitted < count
                && let Some(cid) = self.free.pop()
            {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                let lba = self.random % blocks;
                self.expected[usize::from(cid)] = lba;
                self.place(io::READ, cid, lba);
                submitted += 1;
                placed = true;
            }
            if placed {
                self.pair.ring(&self.driver);
            }
            while let Some(c) = self.pair.poll(&self.driver) {
                assert_eq!(c.status(), status::SUCCESS);
                let at = usize::from(c.cid()) * PAGE;
                let lba = self.expected[usize::from(c.cid())];
                let both = [at, at + self.block - 8].map(|a| self.data.region.get::<u64>(a).expect("in bounds"));
                assert_eq!(both, [lba; 2], "block {lba} holds something else");
                self.free.push(c.cid());
                done += 1;
            }
        }
        begin.elapsed()
    }
}

fn reads(c: &mut Criterion) {
    let mut group = c.benchmark_group("soft controller, random reads");
    for (block, streaming, name) in [
        (512, Streaming::Never, "512 B"),
        (4096, Streaming::Never, "4 KiB"),
        (4096, Streaming::Always, "4 KiB around the cache"),
    ] {
        let mut load = Load::new(block, streaming);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::from_parameter(name), |b| b.iter_custom(|n| load.read(n)));
    }
    group.finish();
}

criterion_group!(benches, reads);
criterion_main!(benches);
