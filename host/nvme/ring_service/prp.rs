//! Physical region pages: resolves PRP1, PRP2 and PRP lists to host memory (NVMe Base 2.1, 4.3.1).

use super::address::{Range, Snapshot};
use crate::wire::nvme::{Status, status};

/// Host memory of one contiguous piece of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) host: *mut u8,
    pub(crate) bytes: usize,
    /// True if a GPU reads the memory, so that stores should bypass the CPU's cache.
    pub(crate) stream: bool,
}

/// Mappings that a queue's commands used last.
pub(crate) struct Hints {
    data: Range,
    list: Range,
}

impl Hints {
    pub(crate) const fn none() -> Self {
        Self { data: Range::none(), list: Range::none() }
    }
}

/// Status of a PRP entry whose memory is not mapped. A retry would fail too.
const BAD_ADDRESS: Status = status::DATA_TRANSFER_ERROR.dnr();
const BAD_OFFSET: Status = status::INVALID_PRP_OFFSET.dnr();
/// Size of a PRP entry in bytes.
const ENTRY: u64 = 8;

struct Walk<'a> {
    table: &'a Snapshot,
    hints: &'a mut Hints,
    out: &'a mut Vec<Extent>,
}

impl Walk<'_> {
    #[inline]
    fn add(&mut self, address: u64, bytes: usize) -> Result<(), Status> {
        let target = self.table.resolve(address, bytes, &mut self.hints.data).ok_or(BAD_ADDRESS)?;
        match self.out.last_mut() {
            Some(e) if e.host.wrapping_add(e.bytes) == target.host && e.stream == target.stream => e.bytes += bytes,
            _ => self.out.push(Extent { host: target.host, bytes, stream: target.stream }),
        }
        Ok(())
    }
}

/// Resolves a transfer of `bytes` bytes to host memory, with memory pages of `1 << page_shift` bytes. Replaces the
/// contents of `out`.
pub(crate) fn walk(
    table: &Snapshot,
    hints: &mut Hints,
    page_shift: u32,
    (prp1, prp2): (u64, u64),
    bytes: usize,
    out: &mut Vec<Extent>,
) -> Result<(), Status> {
    out.clear();
    let page = 1u64 << page_shift;
    let in_page = page - 1;
    // PRP1 may begin at any dword of its page (figure "PRP Entry Layout").
    if prp1 & 3 != 0 {
        return Err(BAD_OFFSET);
    }
    let mut w = Walk { table, hints, out };
    let first = bytes.min((page - (prp1 & in_page)) as usize);
    w.add(prp1, first)?;
    let mut left = bytes - first;
    if left == 0 {
        return Ok(());
    }
    if left <= page as usize {
        if prp2 & in_page != 0 {
            return Err(BAD_OFFSET);
        }
        return w.add(prp2, left);
    }
    // The first list may begin at any qword of a page. Lists that it chains to begin at a page.
    let mut list = prp2;
    if list % ENTRY != 0 {
        return Err(BAD_OFFSET);
    }
    while left > 0 {
        let slots = (page - (list & in_page)) / ENTRY;
        let wanted = (left as u64).div_ceil(page);
        let chained = wanted > slots;
        let here = if chained { slots } else { wanted };
        let entries = w.table.resolve(list, (here * ENTRY) as usize, &mut w.hints.list).ok_or(BAD_ADDRESS)?;
        let entry = |i: u64| {
            // SAFETY: `resolve` found `here` entries in a mapping of this snapshot, which stays valid until the thread
            // announces a later one; `i < here`. The read is unaligned, because the host address need not be a multiple
            // of 8.
            u64::from_le(unsafe { entries.host.cast::<u64>().add(i as usize).read_unaligned() })
        };
        for i in 0..if chained { here - 1 } else { here } {
            let e = entry(i);
            if e & in_page != 0 {
                return Err(BAD_OFFSET);
            }
            let n = left.min(page as usize);
            w.add(e, n)?;
            left -= n;
        }
        if chained {
            list = entry(here - 1);
            if list & in_page != 0 {
                return Err(BAD_OFFSET);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::address::{AddressTable, Streaming};
    use super::*;
    use crate::memory::{DmaRegion, Space};
    use proptest::prelude::*;
    use std::sync::Arc;

    const PAGE: usize = 4096;

    fn memory(pages: usize) -> (Arc<AddressTable>, DmaRegion) {
        let t = Arc::new(AddressTable::new("soft:test".into(), Streaming::Auto, 0));
        let r = t.allocate(&Space::cpu(), pages * PAGE).unwrap();
        (t, r)
    }

    fn run(t: &AddressTable, prp1: u64, prp2: u64, bytes: usize) -> Result<Vec<(usize, usize)>, Status> {
        let mut out = Vec::new();
        walk(&t.snapshot(), &mut Hints::none(), 12, (prp1, prp2), bytes, &mut out)?;
        Ok(out.iter().map(|e| (e.host as usize, e.bytes)).collect())
    }

    #[test]
    fn one_and_two_pages_need_no_list() {
        let (t, r) = memory(8);
        let host = r.host().unwrap().as_ptr() as usize;
        assert_eq!(run(&t, r.iova + 512, 0, 512), Ok(vec![(host + 512, 512)]));
        let far = r.iova + 5 * PAGE as u64;
        assert_eq!(run(&t, r.iova + 2048, far, 4096), Ok(vec![(host + 2048, 2048), (host + 5 * PAGE, 2048)]));
        assert_eq!(run(&t, r.iova, r.iova + 4096, 8192), Ok(vec![(host, 8192)]), "neighbours become one extent");
    }

    #[test]
    fn offsets_and_addresses_are_checked() {
        let (t, r) = memory(8);
        assert_eq!(run(&t, r.iova + 2, 0, 512), Err(BAD_OFFSET));
        assert_eq!(run(&t, r.iova, r.iova + 4096 + 512, 8192), Err(BAD_OFFSET));
        assert_eq!(run(&t, r.iova, r.iova + 4100, 3 * PAGE), Err(BAD_OFFSET), "a list must be aligned to 8");
        assert_eq!(run(&t, 0, 0, 512), Err(BAD_ADDRESS));
        assert_eq!(run(&t, r.iova, 0, 8192), Err(BAD_ADDRESS));
        assert_eq!(run(&t, r.iova, !7, 3 * PAGE), Err(BAD_ADDRESS));
        assert_eq!(run(&t, r.iova + 7 * PAGE as u64, r.iova + 8 * PAGE as u64, 8192), Err(BAD_ADDRESS));
        r.region.set(4096, r.iova + 12).unwrap();
        assert_eq!(run(&t, r.iova, r.iova + 4096, 3 * PAGE), Err(BAD_OFFSET), "an entry of a list with an offset");
    }

    #[test]
    fn a_list_that_points_to_itself_ends() {
        let (t, r) = memory(2);
        let list = r.iova + PAGE as u64;
        for i in 0..512 {
            r.region.set(PAGE + 8 * i, list).unwrap();
        }
        let got = run(&t, r.iova, list, 2048 * PAGE).unwrap();
        assert_eq!(got.iter().map(|(_, n)| n).sum::<usize>(), 2048 * PAGE);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Compares with a simple model: pages in any order, lists that begin anywhere and chain as often as needed.
        #[test]
        fn chains_give_the_pages_in_order(
            pages in 3usize..1200,
            offset in (0usize..1024).prop_map(|o| 4 * o),
            last in 1usize..=4096,
            begin in 0usize..512,
            seed in any::<u64>(),
        ) {
            let lists = 4;
            let (t, r) = memory(64 + lists);
            let page_at = |i: usize| ((seed ^ i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 64;
            let first = page_at(0) * PAGE + offset;
            let bytes = (PAGE - offset) + (pages - 2) * PAGE + last;
            let mut at = 64 * PAGE + 8 * begin;
            let list = r.iova + at as u64;
            let mut expected = vec![(first, PAGE - offset)];
            for i in 1..pages {
                let n = if i == pages - 1 { last } else { PAGE };
                if at % PAGE == PAGE - 8 && i != pages - 1 {
                    let next = (at / PAGE + 1) * PAGE;
                    r.region.set(at, r.iova + next as u64).unwrap();
                    at = next;
                }
                r.region.set(at, r.iova + (page_at(i) * PAGE) as u64).unwrap();
                at += 8;
                expected.push((page_at(i) * PAGE, n));
            }
            let host = r.host().unwrap().as_ptr() as usize;
            let mut merged: Vec<(usize, usize)> = Vec::new();
            for (at, n) in expected {
                match merged.last_mut() {
                    Some((start, length)) if *start + *length == host + at => *length += n,
                    _ => merged.push((host + at, n)),
                }
            }
            prop_assert_eq!(run(&t, r.iova + first as u64, list, bytes).unwrap(), merged);
        }
    }
}
