//! Runs `warpbell nvme smart`: prints the SMART / health log of a controller, with nvme-cli's names.

use super::inspect::{InspectArgs, print};
use crate::output::Failure;
use serde::Serialize;
use warpbell::wire::nvme::log::{FirmwareSlots, Health};

/// Size of a data unit in bytes: a thousand blocks of 512 bytes.
const DATA_UNIT: u128 = 512_000;

#[derive(Serialize)]
struct Smart {
    critical_warning: u8,
    warnings: Vec<&'static str>,
    /// Composite temperature in kelvins.
    temperature: u16,
    avail_spare: u8,
    spare_thresh: u8,
    percent_used: u8,
    data_units_read: u128,
    data_units_written: u128,
    host_read_commands: u128,
    host_write_commands: u128,
    controller_busy_time: u128,
    power_cycles: u128,
    power_on_hours: u128,
    unsafe_shutdowns: u128,
    media_errors: u128,
    num_err_log_entries: u128,
    warning_temp_time: u32,
    critical_comp_time: u32,
    /// Temperatures in kelvins of the sensors that the controller has.
    temperature_sensors: Vec<u16>,
    firmware: FirmwareSlots,
}

/// Reads the log and prints it.
///
/// # Errors
/// [`Failure::Error`] if the device cannot be opened, a command fails, or the report cannot be written.
/// [`Failure::BrokenPipe`] if standard output was closed.
pub fn run(args: &InspectArgs) -> Result<(), Failure> {
    let opened = args.open()?;
    let controller = opened.open.controller();
    let health = controller.health()?;
    let firmware = controller.firmware_slots()?;
    print("nvme smart", args, &opened, &Smart::of(&health, firmware), |s| text(&opened.device, s))
}

impl Smart {
    fn of(h: &Health, firmware: FirmwareSlots) -> Self {
        Self {
            critical_warning: h.critical_warning,
            warnings: h.warnings(),
            temperature: h.temperature_k,
            avail_spare: h.available_spare,
            spare_thresh: h.available_spare_threshold,
            percent_used: h.percentage_used,
            data_units_read: h.data_units_read,
            data_units_written: h.data_units_written,
            host_read_commands: h.read_commands,
            host_write_commands: h.write_commands,
            controller_busy_time: h.busy_minutes,
            power_cycles: h.power_cycles,
            power_on_hours: h.power_on_hours,
            unsafe_shutdowns: h.unsafe_shutdowns,
            media_errors: h.media_errors,
            num_err_log_entries: h.error_log_entries,
            warning_temp_time: h.warning_temperature_minutes,
            critical_comp_time: h.critical_temperature_minutes,
            temperature_sensors: h.sensors_k.into_iter().filter(|k| *k != 0).collect(),
            firmware,
        }
    }
}

fn celsius(kelvin: u16) -> String {
    const ZERO: i32 = 273;
    format!("{} C ({kelvin} K)", i32::from(kelvin) - ZERO)
}

/// Prints a number of bytes with decimal prefixes, as vendors state the capacities of drives.
fn decimal(bytes: u128) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

fn text(device: &str, s: &Smart) -> Vec<String> {
    let units = |n: u128| format!("{n} ({})", decimal(n.saturating_mul(DATA_UNIT)));
    let mut rows: Vec<(String, String)> = [
        ("critical_warning", format!("{:#x}", s.critical_warning)),
        ("temperature", celsius(s.temperature)),
        ("available_spare", format!("{}%", s.avail_spare)),
        ("available_spare_threshold", format!("{}%", s.spare_thresh)),
        ("percentage_used", format!("{}%", s.percent_used)),
        ("Data Units Read", units(s.data_units_read)),
        ("Data Units Written", units(s.data_units_written)),
        ("host_read_commands", s.host_read_commands.to_string()),
        ("host_write_commands", s.host_write_commands.to_string()),
        ("controller_busy_time", s.controller_busy_time.to_string()),
        ("power_cycles", s.power_cycles.to_string()),
        ("power_on_hours", s.power_on_hours.to_string()),
        ("unsafe_shutdowns", s.unsafe_shutdowns.to_string()),
        ("media_errors", s.media_errors.to_string()),
        ("num_err_log_entries", s.num_err_log_entries.to_string()),
        ("Warning Temperature Time", s.warning_temp_time.to_string()),
        ("Critical Composite Temperature Time", s.critical_comp_time.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let sensors = s.temperature_sensors.iter().enumerate();
    rows.extend(sensors.map(|(i, k)| (format!("Temperature Sensor {}", i + 1), celsius(*k))));
    let slots = s.firmware.revisions.iter().enumerate().filter(|(_, r)| !r.is_empty());
    rows.extend(slots.map(|(i, revision)| {
        let slot = i + 1;
        let mark = if slot == usize::from(s.firmware.active) { " (active)" } else { "" };
        (format!("firmware slot {slot}"), format!("{revision}{mark}"))
    }));
    let mut lines = vec![format!("Smart Log for NVMe device {device}:")];
    lines.extend(s.warnings.iter().map(|w| format!("warning: {w}")));
    lines.extend(rows.into_iter().map(|(name, value)| format!("{name:<36}: {value}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_drives() {
        assert_eq!(decimal(0), "0.00 B");
        assert_eq!(decimal(3 * DATA_UNIT), "1.54 MB");
        assert!(decimal(u128::MAX).ends_with(" EB"));
        assert_eq!(celsius(300), "27 C (300 K)");
    }
}
