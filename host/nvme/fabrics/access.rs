//! Access of a controller to the namespace that is used (ANA), as its log page reports it.

use super::FabricsError;
use super::association::{Association, Limits};
use super::commands::Command;
use super::link::Dialer;
use super::queue::admin;
use crate::wire::nvme::ana::{AccessLog, AccessState, CHANGE_NOTICES};
use crate::wire::nvme::identify::IdentifyController;
use crate::wire::nvme::{SqEntry, admin as opcode, feature, log_page};

/// Largest log page that is read, in bytes. nvmet's has 8 KiB.
const MOST_BYTES: u64 = 1 << 20;
/// NSID of a command for no particular namespace.
const ALL_NAMESPACES: u32 = u32::MAX;

/// Access to a namespace by one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) namespace: u32,
    /// ANA Group Identifier.
    pub(crate) group: u32,
    pub(crate) state: AccessState,
}

impl Access {
    /// Returns the access to a namespace, or to the first of the log page. Returns `None` if the log page does not list
    /// it.
    pub(crate) fn of(log: &AccessLog, namespace: Option<u32>) -> Option<Self> {
        let namespace = namespace.or_else(|| log.first_namespace())?;
        log.group_of(namespace).map(|g| Self { namespace, group: g.id, state: g.state })
    }

    /// Checks that commands for the namespace are executed. `peer` is the port.
    pub(crate) fn check(self, peer: String) -> Result<(), FabricsError> {
        let Self { namespace, group, state } = self;
        match state.is_usable() {
            true => Ok(()),
            false => Err(FabricsError::Inaccessible { peer, namespace, group, state }),
        }
    }
}

/// Returns the command that reads the log page of access states.
pub(crate) fn read_log(bytes: u32) -> Command {
    let dwords = bytes / 4 - 1;
    let (low, high) = (u32::from(log_page::ASYMMETRIC_ACCESS) | dwords << 16, dwords >> 16);
    Command::read(SqEntry { nsid: ALL_NAMESPACES, ..admin(opcode::GET_LOG_PAGE, low, high) }, bytes)
}

/// A controller that is ready for I/O queues, and facts about it.
pub(crate) struct Established {
    pub(crate) association: Association,
    pub(crate) identify: IdentifyController,
    pub(crate) limits: Limits,
    /// Length of the log page of access states in bytes; `None` if the controller reports none.
    pub(crate) access_bytes: Option<u32>,
    /// Access to the namespace that decides; `None` if it is not reported.
    pub(crate) access: Option<Access>,
    /// False if the log page of access states does not list the namespace of the options.
    pub(crate) is_listed: bool,
}

impl Established {
    /// Connects the admin queue at a port, enables and identifies the controller, and reads the access states. Access
    /// is not checked.
    pub(crate) fn open(dialer: &Dialer) -> Result<Self, FabricsError> {
        let mut a = Association::open(dialer)?;
        a.enable()?;
        let identify = a.identify()?;
        let limits = a.limits(&identify)?;
        let mut this = Self { association: a, identify, limits, access_bytes: None, access: None, is_listed: true };
        if this.identify.reports_access() {
            match this.read_access(dialer) {
                // Such a port is used as one of a controller that reports no states.
                Err(error @ (FabricsError::Command { .. } | FabricsError::Unsupported { .. })) => {
                    tracing::warn!(device = %dialer.config, %error, "access states are not followed");
                }
                other => other?,
            }
        }
        Ok(this)
    }

    fn read_access(&mut self, dialer: &Dialer) -> Result<(), FabricsError> {
        let unsupported = |reason: String| FabricsError::Unsupported { peer: dialer.config.peer(), reason };
        // Changes after the log page was read are then reported.
        let config = admin(opcode::SET_FEATURES, feature::ASYNC_EVENT_CONFIG.into(), CHANGE_NOTICES);
        self.association.run(Command::plain(config), "Set Features (Asynchronous Event Configuration)")?;
        let most = self.limits.max_transfer_bytes.unwrap_or(MOST_BYTES).min(MOST_BYTES);
        let bytes = AccessLog::bytes_of(&self.identify);
        if bytes > most {
            return Err(unsupported(format!(
                "its log page of access states (ANA) has up to {bytes} bytes; the limit is {most}"
            )));
        }
        let bytes = bytes as u32;
        let log = self.association.run(read_log(bytes), "Get Log Page (Asymmetric Namespace Access)")?;
        let log = AccessLog::read(&log).map_err(|e| unsupported(format!("its log page of access states: {e}")))?;
        self.access_bytes = Some(bytes);
        self.access = Access::of(&log, dialer.config.namespace);
        self.is_listed = self.access.is_some() || dialer.config.namespace.is_none();
        Ok(())
    }

    /// Returns true if the namespace is accessible with the best performance, as far as the controller reports.
    pub(crate) fn is_optimized(&self) -> bool {
        self.is_listed && self.access.is_none_or(|a| a.state == AccessState::Optimized)
    }

    /// Checks that the namespace is accessible, as far as the controller reports.
    pub(crate) fn check_access(&self) -> Result<(), FabricsError> {
        self.access.map_or(Ok(()), |a| a.check(self.association.peer()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::ana::AccessGroup;

    #[test]
    fn the_namespace_of_the_options_or_the_first_decides() {
        let group = |id, state, namespaces: &[u32]| AccessGroup { id, state, namespaces: namespaces.to_vec() };
        let groups = vec![group(7, AccessState::NonOptimized, &[2, 5]), group(9, AccessState::Inaccessible, &[1, 4])];
        let log = AccessLog { changes: 0, groups };
        let of = |nsid| Access::of(&log, nsid).map(|a| (a.namespace, a.group, a.check("h:1".into()).is_ok()));
        assert_eq!(of(None), Some((1, 9, false)));
        assert_eq!(of(Some(5)), Some((5, 7, true)));
        assert_eq!(of(Some(3)), None);
        assert_eq!(Access::of(&AccessLog::default(), None), None);
        let e = read_log(8208).entry;
        assert_eq!((e.cdw10, e.cdw11, e.nsid), (0x0803_000c, 0, u32::MAX));
        assert_eq!((read_log(1 << 20).entry.cdw10 >> 16, read_log(1 << 20).entry.cdw11), (0xffff, 3));
    }
}
