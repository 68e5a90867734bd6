//! What there is to measure.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use warpbell::suggest::hint;

/// A word of the command line that names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is no {what}: there are {}{}", .there_are.join(", "), hint(.given, .there_are.iter().copied()))]
#[non_exhaustive]
pub struct UnknownName {
    /// What was typed.
    pub given: String,
    /// What it should have been.
    pub what: &'static str,
    /// What can be typed.
    pub there_are: Vec<&'static str>,
}

/// An enumeration whose values have names on the command line and in JSON.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$vdoc])* $variant,)*
        }

        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
            /// Their names, in the same order.
            pub const NAMES: &[&str] = &[$($name),*];

            /// As it is typed and printed.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(s: &str) -> Result<Self, UnknownName> {
                let found = Self::ALL.iter().find(|v| v.name() == s);
                found.copied().ok_or_else(|| UnknownName {
                    given: s.to_owned(),
                    what: $what,
                    there_are: Self::NAMES.to_vec(),
                })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.name())
            }
        }
    };
}

named! {
    /// One measurement. The names are those of NVSHMEM's performance tests.
    Test, "test" {
        /// Message after message from PE 0 to PE 1, complete at the end.
        PutBw = "put_bw",
        /// Message after message of PE 1 by PE 0, complete at the end.
        GetBw = "get_bw",
        /// A put and its completion.
        PutLatency = "put_latency",
        /// A get.
        GetLatency = "get_latency",
        /// Single elements side by side, one of each thread at a time.
        PRate = "p_rate",
        /// Random single elements.
        GRate = "g_rate",
        /// Atomic operations on random elements.
        AtomicRate = "atomic_rate",
        /// One word there and back, by one thread that waits; half of the round.
        PPingPong = "p_ping_pong",
        /// A message and its signal there and back; half of the round.
        PutSignalPingPong = "put_signal_ping_pong",
        /// All PEs meet, and what they put before has arrived.
        Barrier = "barrier",
        /// All PEs meet.
        Sync = "sync",
        /// One PE's data to all.
        Broadcast = "broadcast",
        /// The sum over all PEs, to all.
        Reduce = "reduce",
        /// Every PE's data to all.
        Fcollect = "fcollect",
        /// From every PE something else to every other.
        Alltoall = "alltoall",
    }
}

/// Tests that are shaped alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Bandwidth,
    Latency,
    Rate,
    PingPong,
    Meeting,
    Collective,
}

impl Test {
    pub(super) fn family(self) -> Family {
        match self {
            Self::PutBw | Self::GetBw => Family::Bandwidth,
            Self::PutLatency | Self::GetLatency => Family::Latency,
            Self::PRate | Self::GRate | Self::AtomicRate => Family::Rate,
            Self::PPingPong | Self::PutSignalPingPong => Family::PingPong,
            Self::Barrier | Self::Sync => Family::Meeting,
            Self::Broadcast | Self::Reduce | Self::Fcollect | Self::Alltoall => Family::Collective,
        }
    }

    /// Whether messages of several sizes are measured.
    pub fn has_sizes(self) -> bool {
        matches!(self.family(), Family::Bandwidth | Family::Latency | Family::Collective)
            || self == Self::PutSignalPingPong
    }

    /// Whether both directions can be measured at once.
    pub fn has_directions(self) -> bool {
        matches!(self.family(), Family::Bandwidth | Family::Rate)
    }

    /// Whether threads can make the call alone, in warps or in blocks.
    pub fn has_scopes(self) -> bool {
        self.family() != Family::Rate && self != Self::PPingPong
    }

    /// Whether plain loads and stores can do the same.
    pub fn has_raw(self) -> bool {
        !matches!(self.family(), Family::Meeting | Family::Collective)
    }

    /// Whether what is moved is spread over a window.
    pub fn has_window(self) -> bool {
        matches!(self.family(), Family::Bandwidth | Family::Rate)
    }

    /// Whether one operation is measured after the other, so that there are percentiles.
    pub fn is_sampled(self) -> bool {
        !matches!(self.family(), Family::Bandwidth | Family::Rate)
    }

    /// Whether several blocks can take part.
    pub fn has_blocks(self) -> bool {
        matches!(self.family(), Family::Bandwidth | Family::Rate | Family::Collective)
    }

    /// Whether single elements, or those that are reduced, can be of several types.
    pub fn datatypes(self) -> &'static [Datatype] {
        match self {
            Self::Reduce => &[Datatype::Float, Datatype::Uint64],
            _ if self.family() == Family::Rate => &[Datatype::Uint32, Datatype::Uint64],
            _ => &[],
        }
    }
}

named! {
    /// Who makes a call together.
    Scope, "scope" {
        /// Each thread its own.
        Thread = "thread",
        /// The threads of a warp.
        Warp = "warp",
        /// The threads of a block.
        Block = "block",
    }
}

named! {
    /// An atomic operation. In the order of `shmem_bench::atomic`.
    AtomicOp, "atomic operation" {
        /// Adds one.
        Inc = "inc",
        /// Adds.
        Add = "add",
        /// Adds one and answers the value before.
        FetchInc = "fetch_inc",
        /// Adds and answers the value before.
        FetchAdd = "fetch_add",
        /// Writes.
        Set = "set",
        /// Writes and answers the value before.
        Swap = "swap",
        /// Writes where the value is the expected one.
        CompareSwap = "compare_swap",
        /// Bits that both have.
        And = "and",
        /// Bits that either has.
        Or = "or",
        /// Bits that one of them has.
        Xor = "xor",
        /// The same with the value before.
        FetchAnd = "fetch_and",
        /// The same with the value before.
        FetchOr = "fetch_or",
        /// The same with the value before.
        FetchXor = "fetch_xor",
        /// Answers the value.
        Fetch = "fetch",
    }
}

named! {
    /// What single elements are, and those of a reduction.
    Datatype, "datatype" {
        /// 4 bytes.
        Uint32 = "uint32",
        /// 8 bytes.
        Uint64 = "uint64",
        /// 4 bytes.
        Float = "float",
    }
}

impl Datatype {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Uint32 | Self::Float => 4,
            Self::Uint64 => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for t in Test::ALL {
            assert_eq!(t.name().parse(), Ok(*t));
        }
        let e = "put_bandwidth".parse::<Test>().unwrap_err().to_string();
        assert!(e.contains("put_bandwidth") && e.contains("put_bw, get_bw"), "{e}");
    }
}
