//! Features of a ready controller (NVMe Base 2.1, 5.1.11 and 5.1.25), in particular the volatile write cache.

use super::NvmeError;
use super::controller::{Controller, Ready};
use crate::wire::nvme::{SqEntry, admin, feature};
use serde::Serialize;
use std::fmt;

/// State of the volatile write cache. While it is on, a power loss can lose written data until a Flush has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// The controller has no cache. Completed writes are on the medium, and a Flush has no effect.
    None,
    /// The cache is on.
    On,
    /// The cache is present and off.
    Off,
}

impl WriteCache {
    /// Returns true if a Flush has an effect.
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
    /// Returns the current value of feature `id`.
    ///
    /// # Errors
    /// Any admin command can fail with these:
    /// - [`NvmeError::Command`] if the controller completes it with an error.
    /// - [`NvmeError::TimedOut`] if there is no completion within the command deadline, [`NvmeError::QueueStuck`] if
    ///   the queue has no slot left after earlier time-outs.
    /// - [`NvmeError::Gone`], [`NvmeError::Fatal`] or [`NvmeError::NoLongerReady`] if the controller
    ///   leaves, fails or is reset.
    /// - [`NvmeError::StrayCompletion`] if a completion belongs to no command, [`NvmeError::Port`] if
    ///   a register access fails.
    pub fn feature(&self, id: u8) -> Result<u32, NvmeError> {
        let entry = SqEntry { cdw10: u32::from(id), ..SqEntry::new(admin::GET_FEATURES, 0, 0) };
        self.admin_plain(entry, &format!("feature {id:#04x}"))
    }

    /// Sets feature `id` to `value` until the next reset. Returns dword 0 of the completion.
    ///
    /// # Errors
    /// As [`Self::feature`].
    pub fn set_feature(&self, id: u8, value: u32) -> Result<u32, NvmeError> {
        let entry = SqEntry { cdw10: u32::from(id), cdw11: value, ..SqEntry::new(admin::SET_FEATURES, 0, 0) };
        self.admin_plain(entry, &format!("feature {id:#04x} to {value:#x}"))
    }

    /// Returns the current state of the volatile write cache. Reads it from the controller once after each reset.
    ///
    /// # Errors
    /// As [`Self::feature`].
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

    /// Turns the volatile write cache on or off until the next reset.
    ///
    /// # Errors
    /// [`NvmeError::Options`] if the controller has no volatile write cache; otherwise as [`Self::feature`].
    pub fn set_write_cache(&self, on: bool) -> Result<(), NvmeError> {
        if !self.identify().volatile_write_cache() {
            let reason = "it has no volatile write cache; completed writes are on the medium".to_owned();
            return Err(NvmeError::Options { device: self.name().to_owned(), reason });
        }
        self.remember_write_cache(None);
        self.set_feature(feature::VOLATILE_WRITE_CACHE, u32::from(on)).map(drop)
    }
}
