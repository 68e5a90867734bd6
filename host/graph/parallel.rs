//! Loops over indices that all threads share.
//!
//! One routine divides the indices of every loop into blocks, and calls the loop's body by a pointer for a whole block. It
//! is compiled once. Parallel iterators would be compiled for each loop and each type, which was a third of the library.

use parking_lot::Mutex;
use std::iter::Sum;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Blocks for each thread. More than one, because some indices take longer than others.
const BLOCKS_FOR_EACH: usize = 32;

/// Returns the number of indices in a block.
fn block_of(count: usize) -> usize {
    count.div_ceil(BLOCKS_FOR_EACH * rayon::current_num_threads()).max(1)
}

/// Calls `work` with the number of each block and its indices, which are those below `count` together.
fn each_block(count: usize, work: &(dyn Fn(usize, Range<usize>) + Sync)) {
    fn divide(blocks: Range<usize>, work: &(dyn Fn(usize) + Sync)) {
        match blocks.len() {
            0 => {}
            1 => work(blocks.start),
            n => {
                let middle = blocks.start + n / 2;
                rayon::join(|| divide(blocks.start..middle, work), || divide(middle..blocks.end, work));
            }
        }
    }
    let block = block_of(count);
    divide(0..count.div_ceil(block), &|number| work(number, number * block..count.min((number + 1) * block)));
}

/// Calls `work` with each index below `count`.
#[cfg(feature = "internals")]
pub(super) fn each(count: usize, work: impl Fn(usize) + Sync) {
    each_block(count, &|_, range| range.for_each(&work));
}

/// Calls `work` with each part and its index. `work` also gets a buffer that it may use, which several parts share one
/// after the other.
pub(super) fn each_part<P: Send, B: Default>(parts: Vec<P>, work: impl Fn(&mut B, usize, P) + Sync) {
    let parts: Vec<Mutex<Option<P>>> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    each_block(parts.len(), &|_, range| {
        let mut buffer = B::default();
        for index in range {
            if let Some(part) = parts[index].lock().take() {
                work(&mut buffer, index, part);
            }
        }
    });
}

/// Calls `work` with each part and its index, until a call fails.
///
/// # Errors
/// Fails with the error of the first part that has one.
pub(super) fn try_each_part<P: Send, E: Send>(
    parts: Vec<P>,
    work: impl Fn(usize, P) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let parts: Vec<Mutex<Option<P>>> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    let failed = |index: usize| parts[index].lock().take().and_then(|part| work(index, part).err());
    find_first(parts.len(), failed).map_or(Ok(()), Err)
}

/// Returns a value for each index below `count`.
pub(super) fn map<T: Send>(count: usize, of: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut values = Vec::with_capacity(count);
    extend(&mut values, count, of);
    values
}

/// Appends a value for each index below `count`.
pub(super) fn extend<T: Send>(values: &mut Vec<T>, count: usize, of: impl Fn(usize) -> T + Sync) {
    values.reserve(count);
    let (before, block) = (values.len(), block_of(count));
    let parts = values.spare_capacity_mut()[..count].chunks_mut(block).collect();
    each_part(parts, |(), number, part: &mut [MaybeUninit<T>]| {
        for (place, index) in part.iter_mut().zip(number * block..) {
            place.write(of(index));
        }
    });
    // SAFETY: the parts are the `count` places behind the first `before` values, and each of them was written: had a call
    // of `of` panicked, `each_part` would not have returned.
    unsafe { values.set_len(before + count) };
}

/// Folds the indices of each block, and joins the results in order.
pub(super) fn fold<T: Send>(
    count: usize,
    start: impl Fn() -> T + Sync,
    add: impl Fn(T, usize) -> T + Sync,
    join: impl Fn(T, T) -> T,
) -> T {
    let block = block_of(count);
    let of_block = |number: usize| (number * block..count.min((number + 1) * block)).fold(start(), &add);
    map(count.div_ceil(block), of_block).into_iter().reduce(join).unwrap_or_else(start)
}

/// Returns the sum of a value for each index below `count`.
pub(super) fn sum<T: Send + Sum<T>>(count: usize, of: impl Fn(usize) -> T + Sync) -> T {
    let block = block_of(count);
    let of_block = |number: usize| (number * block..count.min((number + 1) * block)).map(&of).sum::<T>();
    map(count.div_ceil(block), of_block).into_iter().sum()
}

/// Returns the first value that `find` has for an index below `count`.
pub(super) fn find_first<T: Send>(count: usize, find: impl Fn(usize) -> Option<T> + Sync) -> Option<T> {
    let (first, found) = (AtomicUsize::new(usize::MAX), Mutex::new(None));
    each_block(count, &|number, mut range| {
        if number > first.load(Relaxed) {
            return;
        }
        if let Some(value) = range.find_map(&find) {
            let mut found = found.lock();
            if number < first.fetch_min(number, Relaxed) {
                *found = Some(value);
            }
        }
    });
    found.into_inner()
}

/// Returns the first index below `count` with this property.
pub(super) fn position(count: usize, is_wanted: impl Fn(usize) -> bool + Sync) -> Option<usize> {
    find_first(count, |index| is_wanted(index).then_some(index))
}

/// Returns true if all indices below `count` have this property.
pub(super) fn all(count: usize, has: impl Fn(usize) -> bool + Sync) -> bool {
    let holds = AtomicBool::new(true);
    each_block(count, &|_, mut range| {
        if holds.load(Relaxed) && !range.all(&has) {
            holds.store(false, Relaxed);
        }
    });
    holds.into_inner()
}

/// Returns the indices below `count` with this property, in ascending order.
#[cfg(feature = "internals")]
pub(super) fn filter(count: usize, is_wanted: impl Fn(usize) -> bool + Sync) -> Vec<usize> {
    let block = block_of(count);
    let of_block = |number: usize| -> Vec<usize> {
        (number * block..count.min((number + 1) * block)).filter(|index| is_wanted(*index)).collect()
    };
    map(count.div_ceil(block), of_block).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: [usize; 6] = [0, 1, 2, 63, 1000, 12_345];

    #[test]
    fn each_index_is_visited_once_and_in_its_place() {
        for count in COUNTS {
            let seen = map(count, |_| AtomicUsize::new(0));
            each(count, |i| _ = seen[i].fetch_add(1, Relaxed));
            assert!(seen.iter().all(|n| n.load(Relaxed) == 1), "{count}");
            assert!(map(count, |i| i.to_string()).iter().enumerate().all(|(i, text)| i.to_string() == *text));
            assert_eq!(sum(count, |i| i as u64), (0..count as u64).sum::<u64>());
            let text = fold(count, String::new, |text, i| text + &i.to_string(), |a, b| a + &b);
            assert_eq!(text, (0..count).map(|i| i.to_string()).collect::<String>());
            assert_eq!(filter(count, |i| i % 3 == 0), (0..count).step_by(3).collect::<Vec<_>>());
        }
        let mut values = vec![7];
        extend(&mut values, 100, |i| i);
        assert_eq!(values[..3], [7, 0, 1]);
        assert_eq!(values.len(), 101);
    }

    #[test]
    fn the_first_of_several_is_found() {
        for count in COUNTS {
            for from in [0, 1, 500, 12_344] {
                assert_eq!(position(count, |i| i >= from), (from < count).then_some(from));
                assert_eq!(all(count, |i| i != from), from >= count);
                let parts: Vec<usize> = (0..count).collect();
                let failed = try_each_part(parts, |i, part| if i >= from { Err(part) } else { Ok(()) });
                assert_eq!(failed.err(), (from < count).then_some(from));
            }
        }
    }

    #[test]
    fn parts_are_written_with_their_index() {
        let mut values = vec![0; 1000];
        each_part(values.chunks_mut(7).collect(), |buffer: &mut Vec<usize>, index, part| {
            buffer.clear();
            buffer.extend(part.iter().map(|_| index));
            part.copy_from_slice(buffer);
        });
        assert!(values.iter().enumerate().all(|(i, index)| i / 7 == *index));
    }

    #[test]
    fn a_panic_of_the_body_is_passed_on() {
        let panicked = std::panic::catch_unwind(|| map(1000, |i| assert!(i != 999)));
        assert!(panicked.is_err());
    }
}
