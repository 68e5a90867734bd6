//! The driver of the controller under test: taken from the kernel for the run, and given back afterwards.

use std::time::{Duration, Instant};
use warpbell::pci::{Bdf, BindError, BindPlan, Sysfs, plan_bind};

/// Time for the processes that had the controller open to leave the kernel.
const RELEASE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);

/// The change of a controller's driver.
#[derive(Debug)]
pub struct Binding {
    sysfs: Sysfs,
    plan: BindPlan,
    is_done: bool,
}

impl Binding {
    /// Plans the change; writes nothing.
    ///
    /// # Errors
    /// As [`plan_bind`].
    pub fn plan(sysfs: &Sysfs, bdf: Bdf, no_iommu: bool) -> Result<Self, BindError> {
        Ok(Self { sysfs: sysfs.clone(), plan: plan_bind(sysfs, bdf, no_iommu)?, is_done: false })
    }

    /// Returns the writes of the change, in words; none if vfio-pci has the controller already.
    pub fn writes(&self) -> Vec<String> {
        self.plan.writes().iter().map(ToString::to_string).collect()
    }

    /// Returns what would keep VFIO from opening the controller afterwards.
    pub fn notes(&self) -> &[String] {
        &self.plan.notes
    }

    /// Makes the change. Returns the drivers before and after, in words.
    ///
    /// # Errors
    /// As [`BindPlan::carry_out`], which undoes what it has done.
    pub fn carry_out(&mut self) -> Result<String, BindError> {
        let before = named(&self.plan.from);
        if self.plan.writes().is_empty() {
            return Ok(format!("{before} has it already"));
        }
        let now = self.plan.carry_out(&self.sysfs)?;
        self.is_done = true;
        Ok(format!("{before} -> {}", named(&now)))
    }

    /// Undoes the change. Returns what was undone, in words; `None` if there was no change.
    ///
    /// # Errors
    /// The reason, with the command that does it by hand.
    pub fn restore(&mut self) -> Result<Option<String>, String> {
        if !self.is_done {
            return Ok(None);
        }
        let bdf = self.plan.bdf();
        let by_hand =
            |e: BindError| format!("{bdf} is still bound to vfio-pci: {e}; by hand: warpbell nvme unbind {bdf}");
        let started = Instant::now();
        let undo = loop {
            match self.plan.undo(&self.sysfs) {
                Err(BindError::Open { .. }) if started.elapsed() < RELEASE => std::thread::sleep(LOOK),
                other => break other.map_err(by_hand)?,
            }
        };
        let now = undo.carry_out(&self.sysfs).map_err(by_hand)?;
        self.is_done = false;
        match (&self.plan.from, &now) {
            (Some(before), None) => Err(format!(
                "{bdf} was given back, and its former driver {before} has not taken it; see dmesg, then: echo {bdf} > /sys/bus/pci/drivers_probe"
            )),
            _ => Ok(Some(format!("{bdf}  {} -> {}", named(&undo.from), named(&now)))),
        }
    }
}

fn named(driver: &Option<String>) -> &str {
    driver.as_deref().unwrap_or("no driver")
}
