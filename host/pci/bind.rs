//! Changes the driver of a function: gives the function to vfio-pci, or gives it back.
//!
//! A change is a short list of writes to files below /sys, which can be printed before it is carried out.

use super::holder::vfio_holder;
use super::usage::{InUse, in_use};
use super::{Bdf, IommuGroup, Sysfs, is_vfio};
use crate::remedy::{Remedies, Remedy};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::time::{Duration, Instant};

const VFIO_DRIVER: &str = "vfio-pci";
const NO_IOMMU_SWITCH: &str = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
/// Time limit for the new driver to appear.
const BIND_WAIT: Duration = Duration::from_secs(10);
/// Interval of the checks for the new driver.
const BIND_POLL: Duration = Duration::from_millis(20);
/// Text that clears `driver_override`: an empty line.
const CLEAR: &str = "\n";

/// Reason why a function did not change its driver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is no such function.
    #[error("{bdf}: there is no PCI function at this address (lspci -D lists them)")]
    NoDevice {
        /// Address.
        bdf: Bdf,
    },
    /// The system uses the controller, or the controller holds data.
    #[error("{bdf} {}, refusing to unbind it{}", together(.reasons), remedies(.reasons))]
    InUse {
        /// Address.
        bdf: Bdf,
        /// Reasons, the most severe first.
        reasons: Vec<InUse>,
    },
    /// The driver vfio-pci is not loaded.
    #[error("the driver vfio-pci is not loaded: modprobe vfio-pci")]
    NoDriver,
    /// The function is in no IOMMU group, so VFIO would not take it.
    #[error("{bdf} is in no IOMMU group, so vfio-pci cannot bind it")]
    NoIommu {
        /// Address.
        bdf: Bdf,
    },
    /// User space has the function open. The kernel would wait until it is closed.
    #[error("{bdf} is in use by {holder}; stop it first")]
    Open {
        /// Address.
        bdf: Bdf,
        /// Processes that have it open.
        holder: String,
    },
    /// A driver other than vfio-pci and its variants holds the function.
    #[error(
        "{bdf} is held by the driver {driver}, which is neither vfio-pci nor a variant of it, so there is nothing to give back to the kernel"
    )]
    NotVfio {
        /// Address.
        bdf: Bdf,
        /// The driver that holds it.
        driver: String,
    },
    /// A write failed: this user may not write, or the kernel refused.
    #[error("{path}: {source}{}", if .source.kind() == io::ErrorKind::PermissionDenied { "; run as root" } else { "" })]
    Write {
        /// The file below /sys.
        path: String,
        /// Error of the write.
        source: io::Error,
    },
    /// All writes succeeded, but another driver or none has the function.
    #[error("{bdf} is {} and not bound to {wanted}; see dmesg for the reason", .driver.as_deref().map_or("without a driver".to_owned(), |d| format!("bound to {d}")))]
    NotTaken {
        /// Address.
        bdf: Bdf,
        /// The driver that was expected.
        wanted: &'static str,
        /// The driver that it has.
        driver: Option<String>,
    },
}

impl Remedies for BindError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::NoIommu { .. } => {
                let on = "turn the IOMMU on (VT-d or AMD-Vi in the firmware's setup, intel_iommu=on or amd_iommu=on on the kernel's command line)";
                vec![Remedy::step(on), Remedy::AcceptNoIommu]
            }
            _ => Vec::new(),
        }
    }
}

fn together(reasons: &[InUse]) -> String {
    reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// Returns the commands that remove all reasons; empty unless there is a command for each.
fn remedies(reasons: &[InUse]) -> String {
    match reasons.iter().map(InUse::remedy).collect::<Option<Vec<_>>>() {
        Some(all) if !all.is_empty() => format!("; if it is not needed: {}", all.join(" && ")),
        _ => String::new(),
    }
}

/// One write to a file below /sys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysWrite {
    /// Path of the file.
    pub path: String,
    /// Text to write.
    pub text: String,
}

impl fmt::Display for SysWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.trim_end() {
            "" => write!(f, "echo > {}", self.path),
            text => write!(f, "echo {text} > {}", self.path),
        }
    }
}

/// The writes that change a function's driver, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindPlan {
    bdf: Bdf,
    /// Driver that holds the function now.
    pub from: Option<String>,
    writes: Vec<SysWrite>,
    to_vfio: bool,
    /// State before the change: the text of `driver_override`, and the switch of VFIO's mode without an IOMMU.
    before: (String, Option<String>),
    /// True if a driver is expected to take the function.
    is_taken: bool,
    /// Obstacles that remain after the change.
    pub notes: Vec<String>,
}

impl BindPlan {
    fn new(bdf: Bdf, from: Option<String>, to_vfio: bool) -> Self {
        let before = (CLEAR.to_owned(), None);
        Self { bdf, from, writes: Vec::new(), to_vfio, before, is_taken: true, notes: Vec::new() }
    }

    fn write(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.writes.push(SysWrite { path: path.into(), text: text.into() });
    }

    /// Returns the writes; none if the function already has the driver.
    pub fn writes(&self) -> &[SysWrite] {
        &self.writes
    }

    /// Returns the function.
    pub fn bdf(&self) -> Bdf {
        self.bdf
    }

    /// Carries out the writes, waits for the driver, and returns it. If vfio-pci does not take the function, the kernel
    /// chooses a driver again.
    ///
    /// # Errors
    /// [`BindError::Write`] if a write fails. [`BindError::NotTaken`] if vfio-pci does not have the function after 10
    /// seconds.
    pub fn carry_out(&self, sysfs: &Sysfs) -> Result<Option<String>, BindError> {
        for w in &self.writes {
            if let Err(e) = write(sysfs, w) {
                self.roll_back(sysfs);
                return Err(e);
            }
        }
        let started = Instant::now();
        loop {
            let driver = driver(sysfs, self.bdf);
            let is_vfio = driver.as_deref().is_some_and(is_vfio);
            if is_vfio == self.to_vfio && (driver.is_some() || !self.is_taken || self.writes.is_empty()) {
                return Ok(driver);
            }
            if started.elapsed() > BIND_WAIT {
                if self.to_vfio {
                    self.roll_back(sysfs);
                    return Err(BindError::NotTaken { bdf: self.bdf, wanted: VFIO_DRIVER, driver });
                }
                // No driver of the kernel takes the function, which may have been so before it was bound.
                return Ok(driver);
            }
            std::thread::sleep(BIND_POLL);
        }
    }

    /// Returns the plan that undoes this one after it was carried out: the former driver or none, the former
    /// `driver_override`, and the former mode of VFIO. Has no writes if this plan has none.
    ///
    /// # Errors
    /// * [`BindError::NoDevice`] if the function has left.
    /// * [`BindError::Open`] if a process has the function open.
    pub fn undo(&self, sysfs: &Sysfs) -> Result<Self, BindError> {
        let bdf = self.bdf;
        if !sysfs.exists(device(bdf, "class")) {
            return Err(BindError::NoDevice { bdf });
        }
        let now = driver(sysfs, bdf);
        let mut plan = Self::new(bdf, now.clone(), !self.to_vfio);
        plan.is_taken = self.from.is_some();
        if self.writes.is_empty() {
            return Ok(plan);
        }
        if let Some(holder) = vfio_holder(sysfs, bdf, None) {
            return Err(BindError::Open { bdf, holder });
        }
        let (former, mode) = &self.before;
        plan.write(device(bdf, "driver_override"), former.clone());
        if let Some(driver) = &now {
            plan.write(format!("/sys/bus/pci/drivers/{driver}/unbind"), bdf.to_string());
        }
        if self.from.is_some() {
            plan.write(PROBE, bdf.to_string());
        }
        if let Some(mode) = mode {
            plan.write(NO_IOMMU_SWITCH, mode.clone());
        }
        Ok(plan)
    }

    /// Lets the kernel choose a driver again. Only logs its own errors: the caller reports the error that led here.
    fn roll_back(&self, sysfs: &Sysfs) {
        if self.to_vfio {
            let clear = SysWrite { path: device(self.bdf, "driver_override"), text: CLEAR.to_owned() };
            let probe = SysWrite { path: PROBE.to_owned(), text: self.bdf.to_string() };
            for w in [clear, probe] {
                if let Err(e) = write(sysfs, &w) {
                    tracing::warn!(error = %e, "the function could not be given back to its former driver");
                }
            }
        }
    }
}

const PROBE: &str = "/sys/bus/pci/drivers_probe";

fn device(bdf: Bdf, file: &str) -> String {
    format!("/sys/bus/pci/devices/{bdf}/{file}")
}

fn driver(sysfs: &Sysfs, bdf: Bdf) -> Option<String> {
    sysfs.link_name(device(bdf, "driver"))
}

fn write(sysfs: &Sysfs, w: &SysWrite) -> Result<(), BindError> {
    let failed = |source| BindError::Write { path: w.path.clone(), source };
    let mut file = OpenOptions::new().write(true).open(sysfs.path(&w.path)).map_err(failed)?;
    file.write_all(w.text.as_bytes()).map_err(failed)
}

/// Returns the writes that take a controller from the kernel and give it to vfio-pci. Writes nothing itself. `no_iommu`
/// also allows VFIO without an IOMMU.
///
/// # Errors
/// * [`BindError::NoDevice`] if there is no such function.
/// * [`BindError::InUse`] if the system uses the controller, or it holds a file system, a volume or a partition table.
/// * [`BindError::NoDriver`] if vfio-pci is not loaded.
/// * [`BindError::NoIommu`] if the function is in no IOMMU group and VFIO without an IOMMU is not allowed.
pub fn plan_bind(sysfs: &Sysfs, bdf: Bdf, no_iommu: bool) -> Result<BindPlan, BindError> {
    if !sysfs.exists(device(bdf, "class")) {
        return Err(BindError::NoDevice { bdf });
    }
    let from = driver(sysfs, bdf);
    let mut plan = BindPlan::new(bdf, from.clone(), true);
    if !from.as_deref().is_some_and(is_vfio) {
        let reasons = in_use(sysfs, bdf);
        if !reasons.is_empty() {
            return Err(BindError::InUse { bdf, reasons });
        }
        if !sysfs.exists(format!("/sys/bus/pci/drivers/{VFIO_DRIVER}")) {
            return Err(BindError::NoDriver);
        }
        // An empty override reads as `(null)`.
        let former = sysfs.text(device(bdf, "driver_override")).ok().filter(|t| !t.is_empty() && t != "(null)");
        let mode = sysfs.text(NO_IOMMU_SWITCH).ok().filter(|_| no_iommu);
        plan.before = (former.unwrap_or_else(|| CLEAR.to_owned()), mode);
        if no_iommu {
            plan.write(NO_IOMMU_SWITCH, "Y");
        } else if IommuGroup::of(sysfs, bdf).is_none() && !sysfs.text(NO_IOMMU_SWITCH).is_ok_and(|t| t == "Y") {
            return Err(BindError::NoIommu { bdf });
        }
        plan.write(device(bdf, "driver_override"), VFIO_DRIVER);
        if let Some(driver) = &from {
            plan.write(format!("/sys/bus/pci/drivers/{driver}/unbind"), bdf.to_string());
        }
        plan.write(PROBE, bdf.to_string());
    }
    match IommuGroup::of(sysfs, bdf) {
        Some(group) => {
            let others: Vec<String> = group.in_the_way(bdf).map(ToString::to_string).collect();
            if !others.is_empty() {
                let (number, others) = (group.number, others.join(", "));
                plan.notes.push(format!(
                    "IOMMU group {number} also holds {others}: VFIO opens no device of the group until these are bound to vfio-pci or unbound"
                ));
            }
        }
        None if no_iommu => {
            plan.notes.push("there is no IOMMU: the device can write to any memory of this machine".to_owned());
        }
        // The function is already bound, or VFIO's mode without an IOMMU was on before.
        None => {}
    }
    Ok(plan)
}

/// Returns the writes that give a function back to the kernel's driver for it. Writes nothing itself.
///
/// # Errors
/// * [`BindError::NoDevice`] if there is no such function.
/// * [`BindError::NotVfio`] if a driver other than vfio-pci and its variants holds it.
/// * [`BindError::Open`] if a process has it open.
pub fn plan_unbind(sysfs: &Sysfs, bdf: Bdf) -> Result<BindPlan, BindError> {
    if !sysfs.exists(device(bdf, "class")) {
        return Err(BindError::NoDevice { bdf });
    }
    let from = driver(sysfs, bdf);
    let mut plan = BindPlan::new(bdf, from.clone(), false);
    if let Some(driver) = &from {
        if !is_vfio(driver) {
            return Err(BindError::NotVfio { bdf, driver: driver.clone() });
        }
        if let Some(holder) = vfio_holder(sysfs, bdf, None) {
            return Err(BindError::Open { bdf, holder });
        }
    }
    plan.write(device(bdf, "driver_override"), CLEAR);
    if let Some(driver) = &from {
        plan.write(format!("/sys/bus/pci/drivers/{driver}/unbind"), bdf.to_string());
    }
    plan.write(PROBE, bdf.to_string());
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    const BDF: &str = "0000:65:00.0";

    fn bdf() -> Bdf {
        BDF.parse().unwrap()
    }

    fn machine(driver: Option<&str>) -> Tree {
        let tree = Tree::new();
        tree.function(BDF, 0x01_08_02, driver, Some(12));
        tree.write("sys/bus/pci/drivers/vfio-pci/unbind", "");
        tree
    }

    fn lines(plan: &BindPlan) -> Vec<String> {
        plan.writes().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_binding_writes() {
        let plan = plan_bind(&machine(Some("nvme")).sysfs(), bdf(), false).unwrap();
        assert_eq!(
            lines(&plan),
            [
                "echo vfio-pci > /sys/bus/pci/devices/0000:65:00.0/driver_override",
                "echo 0000:65:00.0 > /sys/bus/pci/drivers/nvme/unbind",
                "echo 0000:65:00.0 > /sys/bus/pci/drivers_probe",
            ]
        );
        assert!(plan.notes.is_empty());
        assert_eq!(plan_bind(&machine(None).sysfs(), bdf(), false).unwrap().writes().len(), 2);
        assert!(plan_bind(&machine(Some("vfio-pci")).sysfs(), bdf(), false).unwrap().writes().is_empty());
        let plan = plan_bind(&machine(Some("nvme")).sysfs(), bdf(), true).unwrap();
        assert_eq!(lines(&plan)[0], "echo Y > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
    }

    #[test]
    fn what_unbinding_writes() {
        let plan = plan_unbind(&machine(Some("vfio-pci")).sysfs(), bdf()).unwrap();
        assert_eq!(
            lines(&plan),
            [
                "echo > /sys/bus/pci/devices/0000:65:00.0/driver_override",
                "echo 0000:65:00.0 > /sys/bus/pci/drivers/vfio-pci/unbind",
                "echo 0000:65:00.0 > /sys/bus/pci/drivers_probe",
            ]
        );
        let text = plan_unbind(&machine(Some("nvme")).sysfs(), bdf()).unwrap_err().to_string();
        assert!(text.starts_with("0000:65:00.0 is held by the driver nvme"), "{text}");
    }

    #[test]
    fn what_undoing_writes() {
        let tree = machine(Some("nvme"));
        let sysfs = tree.sysfs();
        tree.write(&format!("sys/bus/pci/devices/{BDF}/driver_override"), "(null)\n");
        tree.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n");
        let plan = plan_bind(&sysfs, bdf(), true).unwrap();
        // As the kernel has it after the plan was carried out.
        let bound = machine(Some("vfio-pci"));
        assert_eq!(
            lines(&plan.undo(&bound.sysfs()).unwrap()),
            [
                "echo > /sys/bus/pci/devices/0000:65:00.0/driver_override",
                "echo 0000:65:00.0 > /sys/bus/pci/drivers/vfio-pci/unbind",
                "echo 0000:65:00.0 > /sys/bus/pci/drivers_probe",
                "echo N > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode",
            ]
        );
        // A function that had no driver gets none, and keeps its override.
        let tree = machine(None);
        tree.write(&format!("sys/bus/pci/devices/{BDF}/driver_override"), "pci-stub\n");
        let undone = plan_bind(&tree.sysfs(), bdf(), false).unwrap().undo(&bound.sysfs()).unwrap();
        assert_eq!(
            lines(&undone),
            [
                "echo pci-stub > /sys/bus/pci/devices/0000:65:00.0/driver_override",
                "echo 0000:65:00.0 > /sys/bus/pci/drivers/vfio-pci/unbind",
            ]
        );
        let nothing = plan_bind(&bound.sysfs(), bdf(), false).unwrap();
        assert!(nothing.undo(&bound.sysfs()).unwrap().writes().is_empty());
        let gone = Tree::new();
        assert!(matches!(nothing.undo(&gone.sysfs()), Err(BindError::NoDevice { .. })));
    }

    #[test]
    fn the_boot_drive_stays() {
        let tree = machine(Some("nvme"));
        tree.write(&format!("sys/bus/pci/devices/{BDF}/nvme/nvme0/nvme0n1/uevent"), "");
        tree.block("nvme0n1", "259:0");
        tree.write("dev/nvme0n1", vec![0; 8 << 20]);
        tree.write("proc/self/mountinfo", "29 1 259:0 / / rw - ext4 /dev/root rw\n");
        let text = plan_bind(&tree.sysfs(), bdf(), false).unwrap_err().to_string();
        assert_eq!(text, "0000:65:00.0 is the controller of /, refusing to unbind it");
        tree.partition("nvme0n1", "nvme0n1p1", "259:1");
        tree.write("proc/self/mountinfo", "");
        let text = plan_bind(&tree.sysfs(), bdf(), false).unwrap_err().to_string();
        assert_eq!(
            text,
            "0000:65:00.0 has partitions (nvme0n1: nvme0n1p1), refusing to unbind it; if it is not needed: wipefs --all /dev/nvme0n1"
        );
    }

    #[test]
    fn a_missing_driver_and_a_missing_device_are_told_before_anything_is_written() {
        let tree = Tree::new();
        assert!(matches!(plan_bind(&tree.sysfs(), bdf(), false), Err(BindError::NoDevice { .. })));
        tree.function(BDF, 0x01_08_02, Some("nvme"), None);
        let text = plan_bind(&tree.sysfs(), bdf(), false).unwrap_err().to_string();
        assert!(text.contains("modprobe vfio-pci"), "{text}");
        assert_eq!(tree.read(&format!("sys/bus/pci/devices/{BDF}/driver_override")), "(null)\n");
    }

    #[test]
    fn group_members_and_a_missing_iommu_are_noted() {
        let tree = machine(Some("nvme"));
        tree.function("0000:65:00.1", 0x02_00_00, Some("ixgbe"), Some(12));
        let plan = plan_bind(&tree.sysfs(), bdf(), false).unwrap();
        assert!(plan.notes[0].starts_with("IOMMU group 12 also holds 0000:65:00.1 (ixgbe): "), "{:?}", plan.notes);
        let tree = Tree::new();
        tree.function(BDF, 0x01_08_02, Some("nvme"), None);
        tree.write("sys/bus/pci/drivers/vfio-pci/unbind", "");
        tree.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n");
        let e = plan_bind(&tree.sysfs(), bdf(), false).unwrap_err();
        assert!(e.to_string().contains("in no IOMMU group") && e.remedies()[1] == Remedy::AcceptNoIommu, "{e}");
        assert!(plan_bind(&tree.sysfs(), bdf(), true).unwrap().notes[0].contains("any memory of this machine"));
        tree.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
        assert!(plan_bind(&tree.sysfs(), bdf(), false).is_ok());
    }

    #[test]
    fn the_writes_arrive_and_the_driver_is_waited_for() {
        let tree = machine(Some("nvme"));
        let sysfs = tree.sysfs();
        let plan = plan_bind(&sysfs, bdf(), false).unwrap();
        // The link that the kernel would change.
        tree.link(&format!("sys/bus/pci/devices/{BDF}/driver"), "/sys/bus/pci/drivers/vfio-pci");
        assert_eq!(plan.carry_out(&sysfs).unwrap().as_deref(), Some("vfio-pci"));
        assert_eq!(tree.read("sys/bus/pci/drivers/nvme/unbind"), BDF);
        assert_eq!(tree.read("sys/bus/pci/drivers_probe"), BDF);
        assert!(tree.read(&format!("sys/bus/pci/devices/{BDF}/driver_override")).starts_with("vfio-pci"));
    }

    #[test]
    fn a_refused_write_names_the_file_and_gives_back() {
        let tree = machine(Some("nvme"));
        let plan = plan_bind(&tree.sysfs(), bdf(), false).unwrap();
        tree.remove("sys/bus/pci/drivers/nvme/unbind");
        let text = plan.carry_out(&tree.sysfs()).unwrap_err().to_string();
        assert!(text.starts_with("/sys/bus/pci/drivers/nvme/unbind: "), "{text}");
        assert!(tree.read(&format!("sys/bus/pci/devices/{BDF}/driver_override")).starts_with('\n'));
        assert_eq!(tree.read("sys/bus/pci/drivers_probe"), BDF);
    }

    #[test]
    fn a_device_that_is_open_is_not_unbound() {
        let tree = machine(Some("vfio-pci"));
        tree.write("proc/77/comm", "warpbell\n");
        tree.link("proc/77/fd/9", "/dev/vfio/12");
        let text = plan_unbind(&tree.sysfs(), bdf()).unwrap_err().to_string();
        assert_eq!(text, "0000:65:00.0 is in use by process 77 (warpbell); stop it first");
    }
}
