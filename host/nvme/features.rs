//! Features of a ready controller (NVMe Base 2.1, 5.1.11 and 5.1.25), and the volatile write cache above all.

use super::NvmeError;
use super::controller::{Controller, Ready};
use crate::wire::nvme::{SqEntry, admin, feature};
use serde::Serialize;
use std::fmt;

/// Whether what was written can be lost with the power until a Flush has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// There is none: a write that has ended is on the medium, and a Flush has nothing to do.
    None,
    /// On.
    On,
    /// Present and switched off.
    Off,
}

impl WriteCache {
    /// Whether a Flush has something to do.
    pub fn needs_flush(self) -> bool {
        self == Self::On
    }
}

impl fmt::Display for WriteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// Volatile Write Cache: enabled (NVMe Base 2.1, 5.1.25.1.4, WCE).
const WRITE_CACHE_ENABLED: u32 = 1;

impl Controller<Ready> {
    /// The current value of a feature.
    pub fn feature(&self, id: u8) -> Result<u32, NvmeError> {
        let entry = SqEntry { cdw10: u32::from(id), ..SqEntry::new(admin::GET_FEATURES, 0, 0) };
        self.admin_plain(entry, &format!("feature {id:#04x}"))
    }

    /// Sets a feature until the next reset; answers dword 0 of the completion.
    pub fn set_feature(&self, id: u8, value: u32) -> Result<u32, NvmeError> {
        let entry = SqEntry { cdw10: u32::from(id), cdw11: value, ..SqEntry::new(admin::SET_FEATURES, 0, 0) };
        self.admin_plain(entry, &format!("feature {id:#04x} to {value:#x}"))
    }

    /// The volatile write cache as it is now. Asks the controller once after each reset.
    pub fn write_cache(&self) -> Result<WriteCache, NvmeError> {
        if !self.identify().volatile_write_cache() {
            return Ok(WriteCache::None);
        }
        if let Some(known) = self.known_write_cache() {
            return Ok(known);
        }
        let on = self.feature(feature::VOLATILE_WRITE_CACHE)? & WRITE_CACHE_ENABLED != 0;
        let cache = if on { WriteCache::On } else { WriteCache::Off };
        self.remember_write_cache(Some(cache));
        Ok(cache)
    }

    /// Switches the volatile write cache until the next reset. Refused where there is none.
    pub fn set_write_cache(&self, on: bool) -> Result<(), NvmeError> {
        if !self.identify().volatile_write_cache() {
            let reason = "it has no volatile write cache to switch; what has been written is on the medium".to_owned();
            return Err(NvmeError::Options { device: self.name().to_owned(), reason });
        }
        self.remember_write_cache(None);
        self.set_feature(feature::VOLATILE_WRITE_CACHE, u32::from(on)).map(drop)
    }
}
