//! Asymmetric Namespace Access (ANA): the states in which a controller reaches namespaces, and the log page that reports
//! them (NVMe Base 2.1, 8.1.1 and 5.1.12.1.13). Parsers accept any bytes.

use super::identify::{IdentifyController, le, u16_at, u32_at, u64_at};
use super::{Status, status};
use std::fmt;

/// Asynchronous Event Configuration, and OAES: notices of access changes (Base 2.1, 5.1.25.1.5).
pub const CHANGE_NOTICES: u32 = 1 << 11;
/// Event type and information of an access change (Base 2.1, figure "Asynchronous Event Information - Notice").
pub const CHANGE_EVENT: u32 = 2 | 3 << 8 | (super::log_page::ASYMMETRIC_ACCESS as u32) << 16;

const HEADER_BYTES: usize = 16;
const GROUP_BYTES: usize = 32;

/// State of a group of namespaces at a controller (Base 2.1, figure "ANA State").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessState {
    /// The namespaces are accessible, with the best performance.
    Optimized,
    /// The namespaces are accessible, with less performance.
    NonOptimized,
    /// The namespaces are not accessible by this controller now.
    Inaccessible,
    /// The namespaces will not be accessible by this controller any more.
    PersistentLoss,
    /// The state changes now. The namespaces are not accessible meanwhile.
    Change,
    /// A value that is not defined.
    Reserved(u8),
}

impl AccessState {
    /// Decodes the field, of four bits.
    pub const fn of(field: u8) -> Self {
        match field & 0xf {
            1 => Self::Optimized,
            2 => Self::NonOptimized,
            3 => Self::Inaccessible,
            4 => Self::PersistentLoss,
            15 => Self::Change,
            other => Self::Reserved(other),
        }
    }

    /// Returns the value of the field.
    pub const fn field(self) -> u8 {
        match self {
            Self::Optimized => 1,
            Self::NonOptimized => 2,
            Self::Inaccessible => 3,
            Self::PersistentLoss => 4,
            Self::Change => 15,
            Self::Reserved(other) => other & 0xf,
        }
    }

    /// Returns true if commands for the namespaces are executed.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized)
    }

    /// Returns the status of commands for namespaces in this state; `None` if they are executed (Base 2.1, 8.1.1.4).
    pub const fn status(self) -> Option<Status> {
        match self {
            Self::Optimized | Self::NonOptimized => None,
            Self::PersistentLoss => Some(status::ANA_PERSISTENT_LOSS),
            Self::Change => Some(status::ANA_TRANSITION),
            Self::Inaccessible | Self::Reserved(_) => Some(status::ANA_INACCESSIBLE),
        }
    }

    /// Returns the state that a command's status reports; `None` if the status is none of ANA's.
    pub fn of_status(s: Status) -> Option<Self> {
        [Self::PersistentLoss, Self::Inaccessible, Self::Change]
            .into_iter()
            .find(|state| state.status() == Some(s.without_flags()))
    }
}

impl fmt::Display for AccessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent loss",
            Self::Change => "change",
            Self::Reserved(value) => return write!(f, "reserved ({value})"),
        })
    }
}

/// A group of namespaces in the log page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessGroup {
    /// ANA Group Identifier.
    pub id: u32,
    /// State of the group.
    pub state: AccessState,
    /// Identifiers of the group's namespaces, ascending.
    pub namespaces: Vec<u32>,
}

/// The log page Asymmetric Namespace Access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLog {
    /// Number of changes of the log page.
    pub changes: u64,
    /// Groups with namespaces of the controller.
    pub groups: Vec<AccessGroup>,
}

impl AccessLog {
    /// Returns the largest length of a controller's log page in bytes.
    pub fn bytes_of(controller: &IdentifyController) -> u64 {
        let namespaces = match controller.most_namespaces() {
            0 => controller.namespace_count(),
            most => most,
        };
        HEADER_BYTES as u64
            + GROUP_BYTES as u64 * u64::from(controller.access_groups())
            + size_of::<u32>() as u64 * u64::from(namespaces)
    }

    /// Parses the log page.
    ///
    /// # Errors
    /// The group that does not fit into the bytes, as text.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let count = u16_at(bytes, 8);
        let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let mut groups = Vec::new();
        for number in 1..=count {
            let namespaces = u32_at(rest, 4) as usize;
            let length = namespaces.checked_mul(size_of::<u32>()).and_then(|n| n.checked_add(GROUP_BYTES));
            let Some((group, behind)) = length.and_then(|n| rest.split_at_checked(n)) else {
                return Err(format!(
                    "group {number} of {count} with {namespaces} namespaces does not fit into a log page of {} bytes",
                    bytes.len()
                ));
            };
            groups.push(AccessGroup {
                id: u32_at(group, 0),
                state: AccessState::of(le::<1>(group, 16)[0]),
                namespaces: group[GROUP_BYTES..].chunks_exact(4).map(|id| u32_at(id, 0)).collect(),
            });
            rest = behind;
        }
        Ok(Self { changes: u64_at(bytes, 0), groups })
    }

    /// Returns the log page's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut b = vec![0; HEADER_BYTES];
        b[..8].copy_from_slice(&self.changes.to_le_bytes());
        b[8..10].copy_from_slice(&(self.groups.len() as u16).to_le_bytes());
        for g in &self.groups {
            let mut head = [0; GROUP_BYTES];
            head[..4].copy_from_slice(&g.id.to_le_bytes());
            head[4..8].copy_from_slice(&(g.namespaces.len() as u32).to_le_bytes());
            head[8..16].copy_from_slice(&self.changes.to_le_bytes());
            head[16] = g.state.field();
            b.extend(head);
            b.extend(g.namespaces.iter().flat_map(|id| id.to_le_bytes()));
        }
        b
    }

    /// Returns the group of a namespace; `None` if the log page does not list it.
    pub fn group_of(&self, nsid: u32) -> Option<&AccessGroup> {
        self.groups.iter().find(|g| g.namespaces.contains(&nsid))
    }

    /// Returns the smallest namespace identifier of the log page.
    pub fn first_namespace(&self) -> Option<u32> {
        self.groups.iter().flat_map(|g| &g.namespaces).copied().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::IDENTIFY_BYTES;
    use proptest::prelude::*;

    #[test]
    fn a_log_page_of_two_groups_decodes() {
        let mut b = vec![0u8; 16 + 32 + 8 + 32 + 4];
        (b[0], b[8]) = (7, 2);
        (b[16], b[20], b[32], b[48], b[52]) = (1, 2, 0x11, 1, 3);
        (b[56], b[60], b[72], b[88]) = (2, 1, 0x0f, 2);
        let log = AccessLog::read(&b).unwrap();
        assert_eq!(log.changes, 7);
        assert_eq!(log.groups[0], AccessGroup { id: 1, state: AccessState::Optimized, namespaces: vec![1, 3] });
        assert_eq!(log.group_of(2).map(|g| (g.id, g.state)), Some((2, AccessState::Change)));
        assert_eq!((log.group_of(4), log.first_namespace()), (None, Some(1)));
        let told = AccessLog::read(&b[..90]).unwrap_err();
        assert!(told.contains("group 2 of 2 with 1 namespaces") && told.contains("90 bytes"), "{told}");
        assert_eq!(AccessLog::read(&[]).unwrap(), AccessLog::default());
    }

    #[test]
    fn states_have_the_specifications_numbers_and_statuses() {
        use AccessState as S;
        let numbers = [S::Optimized, S::NonOptimized, S::Inaccessible, S::PersistentLoss, S::Change].map(S::field);
        assert_eq!(numbers, [1, 2, 3, 4, 15]);
        let code = |s: S| s.status().map(|s| (s.sct(), s.sc()));
        assert_eq!([S::Optimized, S::NonOptimized].map(code), [None, None]);
        assert_eq!(
            [S::PersistentLoss, S::Inaccessible, S::Change].map(code),
            [Some((3, 1)), Some((3, 2)), Some((3, 3))]
        );
        assert_eq!(S::of_status(status::ANA_TRANSITION.dnr()), Some(S::Change));
        assert_eq!(S::of_status(status::HOST_PATHING_ERROR), None);
        assert_eq!(CHANGE_EVENT, 0x0c_0302);
    }

    #[test]
    fn the_length_follows_from_identify_controller() {
        let mut b = vec![0u8; IDENTIFY_BYTES];
        (b[76], b[348], b[516]) = (8, 3, 5);
        let c = IdentifyController::new(&b);
        assert!(c.reports_access());
        assert_eq!(AccessLog::bytes_of(&c), 16 + 3 * 32 + 5 * 4);
        b[540] = 2;
        assert_eq!(AccessLog::bytes_of(&IdentifyController::new(&b)), 16 + 3 * 32 + 2 * 4);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = AccessLog::read(&bytes);
        }

        #[test]
        fn what_is_written_reads_back(
            changes in any::<u64>(),
            groups in prop::collection::vec((any::<u32>(), any::<u8>(), prop::collection::vec(any::<u32>(), 0..5)), 0..5),
        ) {
            let groups = groups.into_iter();
            let groups = groups.map(|(id, s, namespaces)| AccessGroup { id, state: AccessState::of(s), namespaces });
            let log = AccessLog { changes, groups: groups.collect() };
            prop_assert_eq!(AccessLog::read(&log.bytes()), Ok(log));
        }
    }
}
