//! Log pages of a ready controller (NVMe Base 2.1, 5.1.12). Reading a page also allows the controller to report
//! the next event of that page.

use super::NvmeError;
use super::commands::ALL_NAMESPACES;
use super::controller::{Controller, Ready};
use crate::wire::nvme::identify::namespace_list;
use crate::wire::nvme::log::{ERROR_ENTRY_BYTES, ErrorLogEntry, FIRMWARE_BYTES, FirmwareSlots, HEALTH_BYTES, Health};
use crate::wire::nvme::{IDENTIFY_BYTES, SqEntry, admin, log_page};

/// Identify Controller, LPA: Get Log Page takes an offset (NVMe Base 2.1, 5.1.13.2.1).
const LPA_EXTENDED: u8 = 1 << 2;
/// Bytes that one data page of the admin queue holds.
const AT_ONCE: usize = IDENTIFY_BYTES;

impl Controller<Ready> {
    fn log(&self, page: u8, out: &mut [u8], words: &str) -> Result<(), NvmeError> {
        for (i, part) in out.chunks_mut(AT_ONCE).enumerate() {
            let dwords = (part.len() / 4 - 1) as u32;
            let offset = (i * AT_ONCE) as u64;
            let mut entry = SqEntry::new(admin::GET_LOG_PAGE, 0, ALL_NAMESPACES);
            entry.cdw10 = u32::from(page) | (dwords & 0xffff) << 16;
            entry.cdw11 = dwords >> 16;
            (entry.cdw12, entry.cdw13) = (offset as u32, (offset >> 32) as u32);
            self.admin_read(entry, part, words)?;
        }
        Ok(())
    }

    /// Returns the SMART / Health Information log.
    ///
    /// # Errors
    /// As any admin command: see [`Controller::feature`].
    pub fn health(&self) -> Result<Health, NvmeError> {
        let mut bytes = [0; HEALTH_BYTES];
        self.log(log_page::HEALTH, &mut bytes, "health")?;
        Ok(Health::new(&bytes))
    }

    /// Returns the used entries of the error log, newest first. If the controller's log pages take no offset,
    /// returns at most the newest 64.
    ///
    /// # Errors
    /// As any admin command: see [`Controller::feature`].
    pub fn error_log(&self) -> Result<Vec<ErrorLogEntry>, NvmeError> {
        let mut entries = usize::from(self.state.identify.error_log_entries());
        if self.state.identify.log_attributes() & LPA_EXTENDED == 0 {
            entries = entries.min(AT_ONCE / ERROR_ENTRY_BYTES);
        }
        let mut bytes = vec![0; entries * ERROR_ENTRY_BYTES];
        self.log(log_page::ERROR, &mut bytes, "errors")?;
        Ok(bytes.chunks_exact(ERROR_ENTRY_BYTES).map(ErrorLogEntry::new).filter(|e| e.count != 0).collect())
    }

    /// Returns the active firmware slot and the revisions in all slots.
    ///
    /// # Errors
    /// As any admin command: see [`Controller::feature`].
    pub fn firmware_slots(&self) -> Result<FirmwareSlots, NvmeError> {
        let mut bytes = [0; FIRMWARE_BYTES];
        self.log(log_page::FIRMWARE_SLOT, &mut bytes, "firmware slots")?;
        Ok(FirmwareSlots::new(&bytes))
    }

    /// Returns the namespaces that were created, deleted or changed since this log was last read. A single entry
    /// `0xffff_ffff` means that there were more than the log holds.
    ///
    /// # Errors
    /// As any admin command: see [`Controller::feature`].
    pub fn changed_namespaces(&self) -> Result<Vec<u32>, NvmeError> {
        let mut bytes = vec![0; IDENTIFY_BYTES];
        self.log(log_page::CHANGED_NAMESPACES, &mut bytes, "changed namespaces")?;
        Ok(namespace_list(&bytes))
    }
}
