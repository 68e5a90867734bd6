//! Get Features and Set Features (NVMe Base 2.1, 5.1.11 and 5.1.25).

use super::log::TEMPERATURE_KELVIN;
use crate::wire::nvme::{SqEntry, Status, feature, status};

/// Default over-temperature threshold in kelvin, as Identify reports it.
const WARNING_KELVIN: u32 = 343;
/// Capabilities (SEL 3): changeable, not saveable, not namespace specific.
const CHANGEABLE: u32 = 1 << 2;
/// Save bit of Set Features (dword 10).
const SAVE: u32 = 1 << 31;
const BAD_FIELD: Status = status::INVALID_FIELD.dnr();

/// Current values of the features.
#[derive(Clone, Debug)]
pub(super) struct Features {
    pairs: u16,
    has_write_cache: bool,
    arbitration: u32,
    power: u32,
    temperature: [u32; 2],
    error_recovery: u32,
    write_cache: u32,
    queues: u32,
    coalescing: u32,
    vectors: Vec<u32>,
    atomicity: u32,
    events: u32,
}

impl Features {
    /// Returns the values after a reset, for a controller with `pairs` I/O queue pairs.
    pub(super) fn new(pairs: u16, has_write_cache: bool) -> Self {
        let most = u32::from(pairs) - 1;
        Self {
            pairs,
            has_write_cache,
            arbitration: 0,
            power: 0,
            temperature: [WARNING_KELVIN, 0],
            error_recovery: 0,
            write_cache: 1,
            queues: most | most << 16,
            coalescing: 0,
            // Each vector has its own number, and coalescing disable is clear.
            vectors: (0..=u32::from(pairs)).collect(),
            atomicity: 0,
            events: 0,
        }
    }

    /// Returns the numbers of I/O submission and completion queues granted to the driver.
    pub(super) fn granted(&self) -> (u16, u16) {
        ((self.queues & 0xffff) as u16 + 1, (self.queues >> 16) as u16 + 1)
    }

    /// Returns true if every write must wait for the medium.
    pub(super) fn write_through(&self) -> bool {
        self.has_write_cache && self.write_cache & 1 == 0
    }

    /// Executes Get Features. Returns dword 0 of the completion.
    pub(super) fn get(&self, e: &SqEntry) -> Result<u32, Status> {
        let id = e.cdw10 as u8;
        match e.cdw10 >> 8 & 7 {
            // Saved values are the defaults, because nothing can be saved.
            0 => self.value(id, e.cdw11),
            1 | 2 => Self::new(self.pairs, self.has_write_cache).value(id, e.cdw11),
            3 => self.value(id, e.cdw11).map(|_| CHANGEABLE),
            _ => Err(BAD_FIELD),
        }
    }

    fn value(&self, id: u8, cdw11: u32) -> Result<u32, Status> {
        Ok(match id {
            feature::ARBITRATION => self.arbitration,
            feature::POWER_MANAGEMENT => self.power,
            feature::TEMPERATURE_THRESHOLD => match (cdw11 >> 16 & 0xf, cdw11 >> 20 & 3) {
                // Composite temperature only: there are no other sensors.
                (0, side @ (0 | 1)) => self.temperature[side as usize],
                _ => return Err(BAD_FIELD),
            },
            feature::ERROR_RECOVERY => self.error_recovery,
            feature::VOLATILE_WRITE_CACHE if self.has_write_cache => self.write_cache,
            feature::NUMBER_OF_QUEUES => self.queues,
            feature::INTERRUPT_COALESCING => self.coalescing,
            feature::INTERRUPT_VECTOR_CONFIG => *self.vectors.get((cdw11 & 0xffff) as usize).ok_or(BAD_FIELD)?,
            feature::WRITE_ATOMICITY => self.atomicity,
            feature::ASYNC_EVENT_CONFIG => self.events,
            _ => return Err(BAD_FIELD),
        })
    }

    /// Executes Set Features. Returns dword 0 of the completion. `queues_exist`: I/O queues were created since the
    /// reset.
    pub(super) fn set(&mut self, e: &SqEntry, queues_exist: bool) -> Result<u32, Status> {
        let (id, value) = (e.cdw10 as u8, e.cdw11);
        // Fails if the feature does not exist.
        self.value(id, if id == feature::TEMPERATURE_THRESHOLD { 0 } else { value })?;
        if e.cdw10 & SAVE != 0 {
            return Err(status::FEATURE_NOT_SAVEABLE.dnr());
        }
        match id {
            feature::ARBITRATION => self.arbitration = value,
            feature::POWER_MANAGEMENT => {
                // Number 0 is the only power state.
                if value & 0x1f != 0 {
                    return Err(BAD_FIELD);
                }
                self.power = value;
            }
            feature::TEMPERATURE_THRESHOLD => match (value >> 16 & 0xf, value >> 20 & 3) {
                // Sensor 15 stands for all sensors.
                (0 | 15, side @ (0 | 1)) => self.temperature[side as usize] = value & 0xffff,
                _ => return Err(BAD_FIELD),
            },
            feature::ERROR_RECOVERY => self.error_recovery = value & 0xffff,
            feature::VOLATILE_WRITE_CACHE => self.write_cache = value & 1,
            feature::NUMBER_OF_QUEUES => {
                if queues_exist {
                    return Err(status::SEQUENCE_ERROR.dnr());
                }
                let (sqs, cqs) = (value & 0xffff, value >> 16);
                if sqs == 0xffff || cqs == 0xffff {
                    return Err(BAD_FIELD);
                }
                let most = u32::from(self.pairs) - 1;
                self.queues = sqs.min(most) | cqs.min(most) << 16;
                return Ok(self.queues);
            }
            feature::INTERRUPT_COALESCING => self.coalescing = value & 0xffff,
            feature::INTERRUPT_VECTOR_CONFIG => {
                if let Some(v) = self.vectors.get_mut((value & 0xffff) as usize) {
                    *v = value & 0x1_ffff;
                }
            }
            feature::WRITE_ATOMICITY => self.atomicity = value & 1,
            feature::ASYNC_EVENT_CONFIG => self.events = value,
            _ => return Err(BAD_FIELD),
        }
        Ok(0)
    }

    /// Returns true if the driver has enabled all of these kinds of events (Asynchronous Event Configuration).
    pub(super) fn wants_events(&self, kinds: u32) -> bool {
        self.events & kinds == kinds
    }

    /// Returns true if the temperature has reached a threshold.
    pub(super) fn too_warm_or_cold(&self) -> bool {
        let t = u32::from(TEMPERATURE_KELVIN);
        t >= self.temperature[0] || t <= self.temperature[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::admin;

    fn command(id: u8, sel: u32, cdw11: u32) -> SqEntry {
        SqEntry { cdw10: u32::from(id) | sel << 8, cdw11, ..SqEntry::new(admin::SET_FEATURES, 0, 0) }
    }

    #[test]
    fn number_of_queues_is_granted_once() {
        let mut f = Features::new(8, true);
        assert_eq!(f.granted(), (8, 8));
        assert_eq!(f.set(&command(feature::NUMBER_OF_QUEUES, 0, 3 | 99 << 16), false), Ok(3 | 7 << 16));
        assert_eq!(f.granted(), (4, 8));
        let again = f.set(&command(feature::NUMBER_OF_QUEUES, 0, 1 | 1 << 16), true);
        assert_eq!(again, Err(status::SEQUENCE_ERROR.dnr()));
        assert_eq!(f.set(&command(feature::NUMBER_OF_QUEUES, 0, 0xffff), false), Err(BAD_FIELD));
    }

    #[test]
    fn selects_and_saves() {
        let mut f = Features::new(8, true);
        f.set(&command(feature::VOLATILE_WRITE_CACHE, 0, 0), false).unwrap();
        assert!(f.write_through());
        for (sel, expected) in [(0, 0), (1, 1), (2, 1), (3, CHANGEABLE)] {
            assert_eq!(f.get(&command(feature::VOLATILE_WRITE_CACHE, sel, 0)), Ok(expected));
        }
        assert_eq!(f.get(&command(feature::VOLATILE_WRITE_CACHE, 4, 0)), Err(BAD_FIELD));
        let mut save = command(feature::ARBITRATION, 0, 1);
        save.cdw10 |= SAVE;
        assert_eq!(f.set(&save, false), Err(status::FEATURE_NOT_SAVEABLE.dnr()));
        assert_eq!(f.get(&command(0x7f, 0, 0)), Err(BAD_FIELD));
        assert_eq!(f.set(&command(0x7f, 0, 0), false), Err(BAD_FIELD));
    }

    #[test]
    fn there_is_no_write_cache_to_switch_over_memory() {
        let mut f = Features::new(1, false);
        assert_eq!(f.get(&command(feature::VOLATILE_WRITE_CACHE, 0, 0)), Err(BAD_FIELD));
        assert_eq!(f.set(&command(feature::VOLATILE_WRITE_CACHE, 0, 0), false), Err(BAD_FIELD));
        assert!(!f.write_through());
    }

    #[test]
    fn thresholds_decide_the_warning() {
        let mut f = Features::new(1, false);
        assert!(!f.too_warm_or_cold());
        f.set(&command(feature::TEMPERATURE_THRESHOLD, 0, 290), false).unwrap();
        assert_eq!(f.get(&command(feature::TEMPERATURE_THRESHOLD, 0, 0)), Ok(290));
        assert!(f.too_warm_or_cold());
        assert_eq!(f.set(&command(feature::TEMPERATURE_THRESHOLD, 0, 5 << 16), false), Err(BAD_FIELD));
    }
}
