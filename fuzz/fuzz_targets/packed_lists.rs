//! Decodes arbitrary words as a block of packed lists, and as packed values. What is decoded has those words and no others:
//! encoding it again makes the same.
//!
//! The first bytes choose the number of vertices, the degrees of the first ones, and whether arcs have weights.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell::graph::{Encoder, decode_block, pack_values, unpack_values};

/// Arcs of a block.
const BLOCK: usize = 1024;

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, lists, values], rest)) = data.split_first_chunk() else { return };
    let Some((degrees, rest)) = rest.split_at_checked(lists.into()) else { return };
    let words: Vec<u32> = rest.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
    let weighted = choice & 1 == 1;
    let vertices = 1u64 << (choice >> 3);
    let mut offsets = vec![0u64];
    for &degree in degrees {
        // Some lists are longer than a block.
        let degree = if degree < 250 { u64::from(degree) } else { u64::from(degree) * 40 };
        offsets.push(offsets[offsets.len() - 1] + degree);
    }
    let arcs_of_all = *offsets.last().unwrap() as usize;
    let mut arcs = Vec::new();
    if decode_block(&words, 0, &offsets, vertices, weighted, &mut arcs).is_ok() {
        assert_eq!(arcs.len(), arcs_of_all.min(BLOCK));
        assert!(arcs.iter().all(|&(neighbour, _)| u64::from(neighbour) < vertices));
        // Lists of the block alone: the last one is cut off where the block ends.
        let own: Vec<u64> = offsets.iter().map(|o| (*o).min(arcs.len() as u64)).collect();
        let ascends =
            own.windows(2).all(|list| arcs[list[0] as usize..list[1] as usize].is_sorted_by(|a, b| a.0 < b.0));
        assert!(ascends);
        // A block names the arc in front of it, and the first one has none.
        if words[0] == u32::MAX && !arcs.is_empty() {
            let neighbours: Vec<u32> = arcs.iter().map(|a| a.0).collect();
            let weights: Vec<u32> = arcs.iter().map(|a| a.1).collect();
            let mut encoder = Encoder::new(weighted);
            let mut found = encoder.push(&own, &neighbours, weighted.then_some(&weights[..]));
            found.extend(encoder.finish().1);
            assert_eq!(found, words);
        }
    }
    let count = usize::from(values);
    if let Some(widths) = degrees.get(..count.div_ceil(32))
        && let Some(all) = unpack_values(widths, &words, count)
    {
        assert_eq!(pack_values(&all), (widths.to_vec(), words));
    }
});
