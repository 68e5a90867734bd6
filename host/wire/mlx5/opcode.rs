//! Opcodes of work queue entries, and their flags: fence, completion and solicited event.

use std::fmt;

macro_rules! opcodes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// Low byte of a control segment's first word (rdma-core `mlx5dv.h`, `MLX5_OPCODE_*`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Opcode {
            $(#[doc = $text] $name = $code,)*
        }

        impl Opcode {
            /// All opcodes in ascending order of their codes.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the opcode with code `code`; `None` if it is not defined.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
            /// Returns the opcode in words.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

opcodes! {
    Nop = 0x00, "no operation";
    SendInval = 0x01, "send with invalidate";
    Write = 0x08, "RDMA write";
    WriteImm = 0x09, "RDMA write with immediate";
    Send = 0x0a, "send";
    SendImm = 0x0b, "send with immediate";
    Tso = 0x0e, "large send offload";
    Wait = 0x0f, "wait for a completion queue";
    Read = 0x10, "RDMA read";
    AtomicCs = 0x11, "compare and swap";
    AtomicFa = 0x12, "fetch and add";
    MaskedCs = 0x14, "masked compare and swap";
    MaskedFa = 0x15, "masked fetch and add";
    Fmr = 0x19, "fast memory registration";
    LocalInval = 0x1b, "local invalidate";
    ConfigCmd = 0x1f, "configuration command";
    SetPsv = 0x20, "set signature";
    Dump = 0x23, "dump";
    Umr = 0x25, "memory key update";
    TagMatching = 0x28, "tag matching";
    FlowTableAccess = 0x2c, "flow table access";
    Mmo = 0x2f, "memory to memory operation";
}

impl Opcode {
    /// Returns the code.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#04x})", self.name(), self.code())
    }
}

/// Condition for the start of the entry (FM, bits 7:5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fence {
    /// Starts at once.
    #[default]
    None = 0,
    /// Waits for earlier local invalidates and key updates.
    InitiatorSmall = 1,
    /// Waits for earlier reads and atomics of the queue pair.
    Fence = 2,
    /// Waits for everything before it.
    StrongOrdering = 3,
    /// Waits for the same as [`Fence::Fence`] and [`Fence::InitiatorSmall`] together. `IBV_SEND_FENCE` maps to this.
    FenceAndSmall = 4,
}

/// Condition for a completion of the entry (CE, bits 3:2). A failed entry always makes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Signal {
    /// Only if the entry fails.
    #[default]
    OnError = 0,
    /// Only if the entry is the first that fails.
    OnFirstError = 1,
    /// Always.
    Always = 2,
    /// Always, with an event.
    AlwaysWithEvent = 3,
}

/// Flags of an entry: byte 11 of its control segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// Condition for the start of the entry.
    pub fence: Fence,
    /// Condition for a completion of the entry.
    pub signal: Signal,
    /// True to request an event at the receiver (bit 1).
    pub solicited: bool,
}

impl Flags {
    /// No completion unless the entry fails.
    pub const UNSIGNALLED: Self = Self { fence: Fence::None, signal: Signal::OnError, solicited: false };
    /// Always a completion.
    pub const SIGNALLED: Self = Self { fence: Fence::None, signal: Signal::Always, solicited: false };
    /// Waits for earlier reads and atomics, and always makes a completion.
    pub const FENCED: Self = Self { fence: Fence::Fence, signal: Signal::Always, solicited: false };

    const SOLICITED: u8 = 1 << 1;
    const RESERVED: u8 = 1 << 4 | 1;

    /// Encodes the flags as a byte.
    pub const fn to_byte(self) -> u8 {
        (self.fence as u8) << 5 | (self.signal as u8) << 2 | if self.solicited { Self::SOLICITED } else { 0 }
    }
    /// Decodes a byte; `None` if a reserved bit is set or the fence mode is not defined.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        let fence = match byte >> 5 {
            0 => Fence::None,
            1 => Fence::InitiatorSmall,
            2 => Fence::Fence,
            3 => Fence::StrongOrdering,
            4 => Fence::FenceAndSmall,
            _ => return None,
        };
        let signal = match byte >> 2 & 3 {
            0 => Signal::OnError,
            1 => Signal::OnFirstError,
            2 => Signal::Always,
            _ => Signal::AlwaysWithEvent,
        };
        if byte & Self::RESERVED != 0 {
            return None;
        }
        Some(Self { fence, signal, solicited: byte & Self::SOLICITED != 0 })
    }
    /// Returns true if a successful entry makes a completion too.
    pub const fn is_signalled(self) -> bool {
        matches!(self.signal, Signal::Always | Signal::AlwaysWithEvent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typical_flag_bytes() {
        let solicited = Flags { solicited: true, ..Flags::SIGNALLED };
        let ibverbs_fence = Flags { fence: Fence::FenceAndSmall, ..Flags::UNSIGNALLED };
        let bytes = [Flags::UNSIGNALLED, Flags::SIGNALLED, solicited, Flags::FENCED, ibverbs_fence].map(Flags::to_byte);
        assert_eq!(bytes, [0x00, 0x08, 0x0a, 0x48, 0x80]);
    }

    #[test]
    fn a_flag_byte_comes_back_or_is_refused() {
        let mut good = 0;
        for byte in 0..=u8::MAX {
            match Flags::from_byte(byte) {
                Some(f) => {
                    assert_eq!(f.to_byte(), byte);
                    good += 1;
                }
                None => assert!(byte & Flags::RESERVED != 0 || byte >> 5 > 4, "{byte:#x}"),
            }
        }
        // Five fences, four signals, solicited or not.
        assert_eq!(good, 5 * 4 * 2);
    }

    #[test]
    fn codes_and_opcodes_agree() {
        for &o in Opcode::ALL {
            assert_eq!(Opcode::from_code(o.code()), Some(o));
        }
        assert_eq!((0..=u8::MAX).filter_map(Opcode::from_code).count(), Opcode::ALL.len());
        assert_eq!(Opcode::MaskedCs.to_string(), "masked compare and swap (0x14)");
    }
}
