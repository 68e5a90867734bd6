//! Tables of the Identify data structures: every field with its name in the specification and in nvme-cli (NVMe Base
//! 2.1, figure "Identify Controller Data Structure"; NVM Command Set 1.1, figure "Identify Namespace Data Structure").

use super::identify::text;
use serde::{Serialize, Serializer};
use std::fmt;

/// Output format of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A number.
    Decimal,
    /// A bit set or an identifier, in hexadecimal.
    Hex,
    /// Padded ASCII text.
    Text,
    /// Bytes in the order of the structure.
    Bytes,
}

/// A field of a data structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The specification's abbreviation, in lower case.
    pub name: &'static str,
    /// Offset of the first byte.
    pub at: usize,
    /// Number of bytes: at most 16, except for text and bytes.
    pub bytes: usize,
    /// Output format.
    pub style: Style,
    /// Description.
    pub words: &'static str,
}

/// Value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number for decimal output.
    Decimal(u128),
    /// A number for hexadecimal output.
    Hex(u128),
    /// Text without padding, or bytes as hexadecimal digits.
    Text(String),
}

impl Field {
    /// Reads the field from a data structure. Missing bytes read as zero.
    pub fn value(&self, structure: &[u8]) -> Value {
        let bytes = structure.get(self.at..self.at + self.bytes).unwrap_or_default();
        let number = || bytes.iter().take(16).rev().fold(0u128, |n, b| n << 8 | u128::from(*b));
        match self.style {
            Style::Decimal => Value::Decimal(number()),
            Style::Hex => Value::Hex(number()),
            Style::Text => Value::Text(text(bytes.split(|&b| b == 0).next().unwrap_or_default())),
            Style::Bytes => Value::Text(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decimal(n) => n.fmt(f),
            Self::Hex(n) => write!(f, "{n:#x}"),
            Self::Text(t) => f.write_str(t),
        }
    }
}

/// Serialises numbers as numbers, like nvme-cli.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Decimal(n) | Self::Hex(n) => match u64::try_from(*n) {
                Ok(n) => s.serialize_u64(n),
                Err(_) => s.serialize_u128(*n),
            },
            Self::Text(t) => s.serialize_str(t),
        }
    }
}

macro_rules! fields {
    ($($name:literal $at:literal $bytes:literal $style:ident $words:literal;)*) => {
        &[$(Field { name: $name, at: $at, bytes: $bytes, style: Style::$style, words: $words },)*]
    };
}

/// Fields of Identify Controller.
pub const CONTROLLER: &[Field] = fields! {
    "vid" 0 2 Hex "PCI vendor";
    "ssvid" 2 2 Hex "PCI subsystem vendor";
    "sn" 4 20 Text "serial number";
    "mn" 24 40 Text "model number";
    "fr" 64 8 Text "firmware revision";
    "rab" 72 1 Decimal "recommended arbitration burst, log2";
    "ieee" 73 3 Hex "IEEE organization";
    "cmic" 76 1 Hex "several ports or controllers in the subsystem";
    "mdts" 77 1 Decimal "largest transfer, log2 of the smallest memory pages; 0 is no limit";
    "cntlid" 78 2 Hex "controller in the subsystem";
    "ver" 80 4 Hex "version";
    "rtd3r" 84 4 Decimal "microseconds to resume from runtime D3";
    "rtd3e" 88 4 Decimal "microseconds to enter runtime D3, and to shut down";
    "oaes" 92 4 Hex "optional asynchronous events";
    "ctratt" 96 4 Hex "attributes";
    "rrls" 100 2 Hex "read recovery levels";
    "cntrltype" 111 1 Decimal "1 is an I/O controller";
    "fguid" 112 16 Bytes "field replaceable unit";
    "crdt1" 128 2 Decimal "command retry delay 1, in 100 ms";
    "crdt2" 130 2 Decimal "command retry delay 2, in 100 ms";
    "crdt3" 132 2 Decimal "command retry delay 3, in 100 ms";
    "nvmsr" 253 1 Hex "NVM subsystem report";
    "vwci" 254 1 Hex "vital product data writes left";
    "mec" 255 1 Hex "management endpoints";
    "oacs" 256 2 Hex "optional admin commands";
    "acl" 258 1 Decimal "Aborts outstanding, less one";
    "aerl" 259 1 Decimal "Asynchronous Event Requests outstanding, less one";
    "frmw" 260 1 Hex "firmware updates";
    "lpa" 261 1 Hex "log page attributes";
    "elpe" 262 1 Decimal "entries in the error log, less one";
    "npss" 263 1 Decimal "power states, less one";
    "avscc" 264 1 Hex "vendor specific admin commands";
    "apsta" 265 1 Hex "autonomous power state transitions";
    "wctemp" 266 2 Decimal "warning temperature in kelvin";
    "cctemp" 268 2 Decimal "critical temperature in kelvin";
    "mtfa" 270 2 Decimal "longest firmware activation, in 100 ms";
    "hmpre" 272 4 Decimal "host memory buffer preferred, in 4 KiB";
    "hmmin" 276 4 Decimal "host memory buffer at least, in 4 KiB";
    "tnvmcap" 280 16 Decimal "capacity in bytes";
    "unvmcap" 296 16 Decimal "capacity not in any namespace, in bytes";
    "rpmbs" 312 4 Hex "replay protected memory blocks";
    "edstt" 316 2 Decimal "extended self-test, in minutes";
    "dsto" 318 1 Hex "self-test options";
    "fwug" 319 1 Decimal "firmware update granularity, in 4 KiB";
    "kas" 320 2 Decimal "keep alive granularity, in 100 ms";
    "hctma" 322 2 Hex "host controlled thermal management";
    "mntmt" 324 2 Decimal "lowest thermal management temperature in kelvin";
    "mxtmt" 326 2 Decimal "highest thermal management temperature in kelvin";
    "sanicap" 328 4 Hex "sanitize";
    "hmminds" 332 4 Decimal "smallest host memory buffer descriptor, in 4 KiB";
    "hmmaxd" 336 2 Decimal "host memory buffer descriptors";
    "nsetidmax" 338 2 Decimal "largest NVM set";
    "endgidmax" 340 2 Decimal "largest endurance group";
    "anatt" 342 1 Decimal "asymmetric access transition, in seconds";
    "anacap" 343 1 Hex "asymmetric access";
    "anagrpmax" 344 4 Decimal "largest asymmetric access group";
    "nanagrpid" 348 4 Decimal "asymmetric access groups";
    "pels" 352 4 Decimal "persistent event log, in 64 KiB";
    "sqes" 512 1 Hex "submission entry, log2: largest, required";
    "cqes" 513 1 Hex "completion entry, log2: largest, required";
    "maxcmd" 514 2 Decimal "commands outstanding";
    "nn" 516 4 Decimal "largest namespace identifier";
    "oncs" 520 2 Hex "optional NVM commands";
    "fuses" 522 2 Hex "fused operations";
    "fna" 524 1 Hex "format attributes";
    "vwc" 525 1 Hex "volatile write cache, and what a Flush of all does";
    "awun" 526 2 Decimal "atomic write, in blocks, less one";
    "awupf" 528 2 Decimal "atomic write at power failure, in blocks, less one";
    "icsvscc" 530 1 Hex "vendor specific NVM commands";
    "nwpc" 531 1 Hex "namespace write protection";
    "acwu" 532 2 Decimal "atomic compare and write, in blocks, less one";
    "ocfs" 534 2 Hex "copy formats";
    "sgls" 536 4 Hex "scatter-gather lists";
    "mnan" 540 4 Decimal "namespaces allowed; 0 is as nn";
    "subnqn" 768 256 Text "subsystem name";
};

/// Fields of Identify Namespace, without the formats.
pub const NAMESPACE: &[Field] = fields! {
    "nsze" 0 8 Decimal "size in blocks";
    "ncap" 8 8 Decimal "capacity in blocks";
    "nuse" 16 8 Decimal "blocks allocated";
    "nsfeat" 24 1 Hex "features";
    "nlbaf" 25 1 Decimal "formats, less one";
    "flbas" 26 1 Hex "format in use; bit 4: metadata within blocks";
    "mc" 27 1 Hex "metadata capabilities";
    "dpc" 28 1 Hex "end-to-end protection capabilities";
    "dps" 29 1 Hex "end-to-end protection in use";
    "nmic" 30 1 Hex "sharing";
    "rescap" 31 1 Hex "reservations";
    "fpi" 32 1 Hex "format progress";
    "dlfeat" 33 1 Hex "deallocated blocks";
    "nawun" 34 2 Decimal "atomic write, in blocks, less one";
    "nawupf" 36 2 Decimal "atomic write at power failure, in blocks, less one";
    "nacwu" 38 2 Decimal "atomic compare and write, in blocks, less one";
    "nabsn" 40 2 Decimal "atomic boundary, in blocks, less one";
    "nabo" 42 2 Decimal "atomic boundary offset, in blocks";
    "nabspf" 44 2 Decimal "atomic boundary at power failure, in blocks, less one";
    "noiob" 46 2 Decimal "optimal boundary, in blocks";
    "nvmcap" 48 16 Decimal "capacity in bytes";
    "npwg" 64 2 Decimal "preferred write granularity, in blocks, less one";
    "npwa" 66 2 Decimal "preferred write alignment, in blocks, less one";
    "npdg" 68 2 Decimal "preferred deallocate granularity, in blocks, less one";
    "npda" 70 2 Decimal "preferred deallocate alignment, in blocks, less one";
    "nows" 72 2 Decimal "optimal write size, in blocks, less one";
    "mssrl" 74 2 Decimal "longest source range of a copy, in blocks";
    "mcl" 76 4 Decimal "longest copy, in blocks";
    "msrc" 80 1 Decimal "source ranges of a copy, less one";
    "anagrpid" 92 4 Decimal "asymmetric access group";
    "nsattr" 99 1 Hex "attributes; bit 0: write protected";
    "nvmsetid" 100 2 Decimal "NVM set";
    "endgid" 102 2 Decimal "endurance group";
    "nguid" 104 16 Bytes "globally unique identifier";
    "eui64" 120 8 Bytes "IEEE extended unique identifier";
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::identify::{IdentifyController, IdentifyNamespace};
    use proptest::prelude::*;

    fn find(table: &'static [Field], name: &str) -> &'static Field {
        table.iter().find(|f| f.name == name).unwrap()
    }

    #[test]
    fn fields_stand_apart_and_in_order() {
        for table in [CONTROLLER, NAMESPACE] {
            assert!(table.windows(2).all(|w| w[0].at + w[0].bytes <= w[1].at));
            assert!(table.iter().all(|f| f.bytes <= 16 || f.style == Style::Text));
        }
    }

    proptest! {
        /// The tables and the driver's functions read the same bytes.
        #[test]
        fn tables_agree_with_the_driver(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
            let c = IdentifyController::new(&bytes);
            let v = |name| find(CONTROLLER, name).value(&bytes);
            prop_assert_eq!(v("vid"), Value::Hex(c.vendor().into()));
            prop_assert_eq!(v("mdts"), Value::Decimal(c.mdts().into()));
            prop_assert_eq!(v("rtd3e"), Value::Decimal(c.shutdown_us().into()));
            prop_assert_eq!(v("oacs"), Value::Hex(c.oacs().into()));
            prop_assert_eq!(v("oncs"), Value::Hex(c.oncs().into()));
            prop_assert_eq!(v("nn"), Value::Decimal(c.namespace_count().into()));
            prop_assert_eq!(v("tnvmcap"), Value::Decimal(c.capacity_bytes()));
            prop_assert_eq!(v("sgls"), Value::Hex(c.sgls().into()));
            prop_assert_eq!(v("wctemp"), Value::Decimal(c.warning_temperature_k().into()));
            let n = IdentifyNamespace::new(&bytes);
            let v = |name| find(NAMESPACE, name).value(&bytes);
            prop_assert_eq!(v("nsze"), Value::Decimal(n.blocks().into()));
            prop_assert_eq!(v("nuse"), Value::Decimal(n.used().into()));
            prop_assert_eq!(v("noiob"), Value::Decimal(n.optimal_boundary().into()));
            let eui: String = n.eui64().iter().map(|b| format!("{b:02x}")).collect();
            prop_assert_eq!(v("eui64"), Value::Text(eui));
        }
    }

    #[test]
    fn values_are_written_as_their_style_says() {
        let mut b = vec![0u8; 4096];
        b[4..9].copy_from_slice(b"S 1  ");
        b[280] = 200;
        b[295] = 1;
        assert_eq!(find(CONTROLLER, "sn").value(&b).to_string(), "S 1");
        assert_eq!(find(CONTROLLER, "vid").value(&b).to_string(), "0x0");
        let large = find(CONTROLLER, "tnvmcap").value(&b);
        assert_eq!(large, Value::Decimal((1 << 120) + 200));
        assert_eq!(serde_json::to_string(&large).unwrap(), ((1u128 << 120) + 200).to_string());
        assert_eq!(find(CONTROLLER, "nn").value(&[]), Value::Decimal(0));
    }
}
