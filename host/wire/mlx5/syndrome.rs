//! Syndromes of error completions: reasons why a work queue entry failed (rdma-core `mlx5dv.h`, `MLX5_CQE_SYNDROME_*`).

use std::fmt;

/// Syndrome: byte 55 of an error completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Syndrome(pub u8);

struct Known {
    syndrome: Syndrome,
    name: &'static str,
    cause: &'static str,
    verbs: u8,
}

macro_rules! syndromes {
    ($($id:ident = $code:literal, $verbs:literal, $name:literal, $cause:literal;)*) => {
        impl Syndrome {
            $(#[doc = concat!($name, ": ", $cause, ".")] pub const $id: Self = Self($code);)*
            /// All known syndromes in ascending order of their codes.
            pub const ALL: &[Self] = &[$(Self::$id,)*];
        }
        const KNOWN: &[Known] =
            &[$(Known { syndrome: Syndrome::$id, name: $name, cause: $cause, verbs: $verbs },)*];
    };
}

syndromes! {
    LOCAL_LENGTH = 0x01, 1, "local length error",
        "the message is longer than the queue pair allows, or the receive buffer too short";
    LOCAL_QP_OPERATION = 0x02, 2, "local QP operation error",
        "the entry is malformed, or was fetched before it was complete";
    LOCAL_PROTECTION = 0x04, 4, "local protection error",
        "the local key is wrong, the address outside its region, or the region not writable";
    FLUSHED = 0x05, 5, "work request flushed",
        "the queue pair had failed already; the first error before this one is the cause";
    MW_BIND = 0x06, 6, "memory window bind error",
        "the window's key or range does not fit its region";
    BAD_RESPONSE = 0x10, 7, "bad response",
        "the peer's response does not match the request";
    LOCAL_ACCESS = 0x11, 8, "local access error",
        "a remote write failed against a local region";
    REMOTE_INVALID_REQUEST = 0x12, 9, "remote invalid request",
        "the peer does not allow this operation, or an atomic is misaligned";
    REMOTE_ACCESS = 0x13, 10, "remote access error",
        "the remote key is wrong, the range outside its region, a right is missing, or the peer is shutting down";
    REMOTE_OPERATION = 0x14, 11, "remote operation error",
        "the peer could not complete the operation";
    RETRY_EXCEEDED = 0x15, 12, "transport retry count exceeded",
        "the peer does not answer: it is gone, or the address, MTU, route or traffic class is wrong";
    RNR_RETRY_EXCEEDED = 0x16, 13, "receiver-not-ready retry count exceeded",
        "the peer has no receive posted";
    REMOTE_ABORTED = 0x22, 16, "remote aborted",
        "the peer aborted the operation";
}

impl Syndrome {
    fn known(self) -> Option<&'static Known> {
        KNOWN.iter().find(|k| k.syndrome == self)
    }
    /// Returns the syndrome in words.
    pub fn name(self) -> &'static str {
        self.known().map_or("syndrome not listed", |k| k.name)
    }
    /// Returns the usual cause; empty if unknown.
    pub fn cause(self) -> &'static str {
        self.known().map_or("", |k| k.cause)
    }
    /// Returns the `ibv_wc_status` that libibverbs maps the syndrome to; `None` if the syndrome is unknown.
    pub fn verbs_status(self) -> Option<u8> {
        self.known().map(|k| k.verbs)
    }
    /// Returns the syndrome that libibverbs maps to `status`, an `ibv_wc_status`; `None` if there is none.
    pub fn from_verbs_status(status: u8) -> Option<Self> {
        KNOWN.iter().find(|k| k.verbs == status).map(|k| k.syndrome)
    }
    /// Returns true if the failure only follows from an earlier one.
    pub fn is_flush(self) -> bool {
        self == Self::FLUSHED
    }
}

impl fmt::Debug for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#04x})", self.name(), self.0)
    }
}

/// Vendor syndrome: byte 54 of an error completion. Only some values are known, by observation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct VendorSyndrome(pub u8);

impl VendorSyndrome {
    /// Accompanies [`Syndrome::REMOTE_ACCESS`].
    pub const REMOTE_ACCESS: Self = Self(0x88);
    /// Accompanies [`Syndrome::RETRY_EXCEEDED`].
    pub const RETRY_EXCEEDED: Self = Self(0x81);
    /// Marks the first entry flushed after the host moved the queue pair to its error state.
    pub const FORCED_ERROR: Self = Self(0xf5);
    /// Marks entries flushed behind a failed one.
    pub const FLUSHED: Self = Self(0xf9);
    /// A page with on-demand paging was not present (`MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT`).
    pub const PAGE_FAULT: Self = Self(0x93);

    /// Returns the vendor syndrome in words; empty if unknown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::REMOTE_ACCESS => "refused by the peer",
            Self::RETRY_EXCEEDED | Self(0x83) => "no answer",
            Self::FORCED_ERROR => "queue pair moved to its error state",
            Self::FLUSHED => "behind a failed entry",
            Self::PAGE_FAULT => "page fault",
            _ => "",
        }
    }
}

impl fmt::Debug for VendorSyndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for VendorSyndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)?;
        if self.name().is_empty() { Ok(()) } else { write!(f, ", {}", self.name()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_say_what_they_mean() {
        assert_eq!(Syndrome::REMOTE_ACCESS.to_string(), "remote access error (0x13)");
        assert!(Syndrome::RETRY_EXCEEDED.cause().contains("does not answer"));
        assert_eq!(Syndrome(0x77).to_string(), "syndrome not listed (0x77)");
        assert_eq!((Syndrome(0x77).cause(), Syndrome(0x77).verbs_status()), ("", None));
        assert!(Syndrome::FLUSHED.is_flush() && !Syndrome::REMOTE_ACCESS.is_flush());
        assert_eq!(VendorSyndrome(0x88).to_string(), "0x88, refused by the peer");
        assert_eq!(VendorSyndrome(0x01).to_string(), "0x01");
    }

    #[test]
    fn syndromes_and_verbs_statuses_map_one_to_one() {
        for &s in Syndrome::ALL {
            let status = s.verbs_status().expect("it is known");
            assert_eq!(Syndrome::from_verbs_status(status), Some(s));
        }
        assert_eq!(Syndrome::ALL.len(), 13);
        assert_eq!(Syndrome::from_verbs_status(0), None);
        assert!(Syndrome::ALL.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
