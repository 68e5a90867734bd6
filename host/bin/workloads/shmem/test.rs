//! Tests, and the types of their parameters.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use warpbell::suggest::hint;

/// Error of an unknown name on the command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is no {what}: there are {}{}", .there_are.join(", "), hint(.given, .there_are.iter().copied()))]
#[non_exhaustive]
pub struct UnknownName {
    /// Name as given.
    pub given: String,
    /// Kind of thing that the name should denote.
    pub what: &'static str,
    /// Known names.
    pub there_are: Vec<&'static str>,
}

/// Defines an enumeration whose values have names on the command line and in JSON.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$vdoc])* $variant,)*
        }

        impl $type {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
            /// Names of all values, in the same order.
            pub const NAMES: &[&str] = &[$($name),*];

            /// Returns the name on the command line and in output.
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
    /// A test. The names are those of NVSHMEM's performance tests.
    Test, "test" {
        /// Puts messages from PE 0 to PE 1 without waiting between them, and waits for completion at the end.
        PutBw = "put_bw",
        /// PE 0 gets messages from PE 1 without waiting between them, and waits for completion at the end.
        GetBw = "get_bw",
        /// Puts a message and waits for its completion.
        PutLatency = "put_latency",
        /// Gets a message.
        GetLatency = "get_latency",
        /// Puts single elements; the threads write adjacent elements, each thread one at a time.
        PRate = "p_rate",
        /// Gets single elements at random places.
        GRate = "g_rate",
        /// Makes atomic operations on random elements.
        AtomicRate = "atomic_rate",
        /// Sends one word there and back, by one thread that waits; the time is half of the round.
        PPingPong = "p_ping_pong",
        /// Sends one word and its signal there and back, by one thread that waits; the time is half of the round.
        PSignalPingPong = "p_signal_ping_pong",
        /// Sends a message with a signal there and back; the time is half of the round.
        PutSignalPingPong = "put_signal_ping_pong",
        /// Waits for all PEs and for the arrival of their earlier puts.
        Barrier = "barrier",
        /// Waits for all PEs.
        Sync = "sync",
        /// Sends one PE's data to all PEs.
        Broadcast = "broadcast",
        /// Computes the sum over all PEs on all PEs.
        Reduce = "reduce",
        /// Sends every PE's data to all PEs.
        Fcollect = "fcollect",
        /// Sends different data from every PE to every other PE.
        Alltoall = "alltoall",
    }
}

/// Tests of the same structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Bandwidth,
    Latency,
    Rate,
    PingPong,
    Barrier,
    Collective,
}

impl Test {
    pub(super) fn family(self) -> Family {
        match self {
            Self::PutBw | Self::GetBw => Family::Bandwidth,
            Self::PutLatency | Self::GetLatency => Family::Latency,
            Self::PRate | Self::GRate | Self::AtomicRate => Family::Rate,
            Self::PPingPong | Self::PSignalPingPong | Self::PutSignalPingPong => Family::PingPong,
            Self::Barrier | Self::Sync => Family::Barrier,
            Self::Broadcast | Self::Reduce | Self::Fcollect | Self::Alltoall => Family::Collective,
        }
    }

    /// Returns true if the test measures messages of several sizes.
    pub fn has_sizes(self) -> bool {
        matches!(self.family(), Family::Bandwidth | Family::Latency | Family::Collective)
            || self == Self::PutSignalPingPong
    }

    /// Returns true if the test can measure both directions at the same time.
    pub fn has_directions(self) -> bool {
        matches!(self.family(), Family::Bandwidth | Family::Rate)
    }

    /// Returns true if single threads, warps or blocks can make the call.
    pub fn has_scopes(self) -> bool {
        self.family() != Family::Rate && !matches!(self, Self::PPingPong | Self::PSignalPingPong)
    }

    /// Returns true if plain loads and stores can do the same work.
    pub fn has_raw(self) -> bool {
        !matches!(self.family(), Family::Barrier | Family::Collective)
    }

    /// Returns true if the test can spread its messages or elements over a window.
    pub fn has_window(self) -> bool {
        matches!(self.family(), Family::Bandwidth | Family::Rate)
    }

    /// Returns true if the test measures one operation after the other, so that there are percentiles.
    pub fn is_sampled(self) -> bool {
        !matches!(self.family(), Family::Bandwidth | Family::Rate)
    }

    /// Returns true if several blocks can take part.
    pub fn has_blocks(self) -> bool {
        matches!(self.family(), Family::Bandwidth | Family::Rate | Family::Collective)
    }

    /// Returns the types that single elements, or the elements of a reduction, can have.
    pub fn datatypes(self) -> &'static [Datatype] {
        match self {
            Self::Reduce => &[Datatype::Float, Datatype::Uint64],
            _ if self.family() == Family::Rate => &[Datatype::Uint32, Datatype::Uint64],
            _ => &[],
        }
    }
}

named! {
    /// Threads that make a call together.
    Scope, "scope" {
        /// Each thread makes its own call.
        Thread = "thread",
        /// The threads of a warp make a call together.
        Warp = "warp",
        /// The threads of a block make a call together.
        Block = "block",
    }
}

named! {
    /// Path of the messages of a bandwidth test between this PE's memory and the link.
    CopyPath, "path" {
        /// The library's call, which loads and stores.
        Loads = "loads",
        /// The copy engine of each multiprocessor, for every message that it can move.
        Bulk = "bulk",
        /// The library's call with shared memory, which chooses.
        Buffer = "buffer",
        /// Puts from shared memory: all messages have the same data.
        Shared = "shared",
    }
}

named! {
    /// Atomic operation. The order is that of `shmem_bench::atomic`.
    AtomicOp, "atomic operation" {
        /// Adds one.
        Inc = "inc",
        /// Adds.
        Add = "add",
        /// Adds one and returns the previous value.
        FetchInc = "fetch_inc",
        /// Adds and returns the previous value.
        FetchAdd = "fetch_add",
        /// Writes.
        Set = "set",
        /// Writes and returns the previous value.
        Swap = "swap",
        /// Writes if the value equals the expected one, and returns the previous value.
        CompareSwap = "compare_swap",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// Bitwise and; returns the previous value.
        FetchAnd = "fetch_and",
        /// Bitwise or; returns the previous value.
        FetchOr = "fetch_or",
        /// Bitwise exclusive or; returns the previous value.
        FetchXor = "fetch_xor",
        /// Returns the value.
        Fetch = "fetch",
    }
}

named! {
    /// Type of single elements, and of the elements of a reduction.
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
    /// Returns the size of an element in bytes.
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
