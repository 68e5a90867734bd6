//! Rust definitions of the structures and constants of `kernels/include/warpbell/abi.h` and `status.h`, and the
//! fingerprint of the structures. The headers document them.
#![allow(missing_docs)]

/// Layout of a structure: its name in C, its size in bytes, and the name, offset and size of each field.
type Layout = (&'static str, usize, &'static [(&'static str, usize, usize)]);

/// Returns the size of the field that a function borrows. The function is never called.
const fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Lists the layouts of structures as the Rust compiler lays them out.
macro_rules! layouts {
    ($($c:ident $name:ident { $($field:ident)+ })+) => {
        pub(super) const LAYOUTS: &[super::Layout] = &[$((
            stringify!($c),
            size_of::<$name>(),
            &[$((
                stringify!($field),
                offset_of!($name, $field),
                super::size_of_field(|s: &$name| &s.$field),
            )),+],
        )),+];
    };
}

#[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "generated: all of the headers"))]
mod generated;
internal!(generated::*);
// Parameters of a program's kernels, and what they report.
pub use generated::{
    ArrayView, ErrorEntry, NO_PE, Stats, TableScratch, TableStats, TableView, TeamView, VolumeView, Window, World,
};

const fn fold(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(0x0000_0100_0000_01b3)
}

const fn fold_name(mut hash: u64, name: &str) -> u64 {
    let mut i = 0;
    while i < name.len() {
        hash = fold(hash, name.as_bytes()[i] as u64);
        i += 1;
    }
    hash
}

/// Returns the number that `fingerprint()` of the header computes. It covers the name, offset and size of every field,
/// and the ABI version.
pub const fn fingerprint() -> u64 {
    const FINGERPRINT: u64 = {
        let mut h = fold(0xcbf2_9ce4_8422_2325, ABI_VERSION);
        let mut i = 0;
        while i < generated::LAYOUTS.len() {
            let (name, bytes, fields) = generated::LAYOUTS[i];
            h = fold(fold_name(h, name), bytes as u64);
            let mut k = 0;
            while k < fields.len() {
                let (name, offset, bytes) = fields[k];
                h = fold(fold(fold_name(h, name), offset as u64), bytes as u64);
                k += 1;
            }
            i += 1;
        }
        h
    };
    FINGERPRINT
}
