//! Runs `warpbell nvme bind` and `unbind`: changes the driver of a controller.

use crate::output::{Failure, say};
use clap::Args;
use warpbell::pci::{Bdf, BindPlan, FoundController, Sysfs, find, none_such, plan_bind, plan_unbind};

#[derive(Args, Clone, Debug)]
pub struct BindArgs {
    /// PCI address, nvmeN, serial number or model
    pub controller: String,
    /// Print what would be written and where, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Also allow VFIO without an IOMMU: the device can then write to any memory of this machine
    #[arg(long)]
    pub unsafe_no_iommu: bool,
}

#[derive(Args, Clone, Debug)]
pub struct UnbindArgs {
    /// PCI address
    pub controller: String,
    /// Print what would be written and where, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Gives a controller to vfio-pci.
///
/// # Errors
/// [`Failure::Error`] if no or more than one controller has the name, the controller is in use or cannot be bound.
/// [`Failure::BrokenPipe`] if standard output was closed.
pub fn bind(args: &BindArgs) -> Result<(), Failure> {
    let sysfs = Sysfs::system();
    let bdf = address(&sysfs, &args.controller)?;
    let plan = plan_bind(&sysfs, bdf, args.unsafe_no_iommu)?;
    carry_out(&sysfs, &plan, args.dry_run)
}

/// Gives a controller back to the kernel's driver.
///
/// # Errors
/// [`Failure::Error`] if no or more than one controller has the name, or the controller cannot be unbound.
/// [`Failure::BrokenPipe`] if standard output was closed.
pub fn unbind(args: &UnbindArgs) -> Result<(), Failure> {
    let sysfs = Sysfs::system();
    let bdf = address(&sysfs, &args.controller)?;
    let plan = plan_unbind(&sysfs, bdf)?;
    carry_out(&sysfs, &plan, args.dry_run)
}

fn address(sysfs: &Sysfs, name: &str) -> Result<Bdf, Failure> {
    match find(sysfs, name)? {
        FoundController::At(bdf) => Ok(bdf),
        // The names of controllers that user space drives are known only after opening them, which this command does
        // not do.
        FoundController::Ask(_) => Err(none_such(sysfs, name).into()),
    }
}

fn carry_out(sysfs: &Sysfs, plan: &BindPlan, dry_run: bool) -> Result<(), Failure> {
    let bdf = plan.bdf();
    let had = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "no driver".to_owned());
    if dry_run {
        for write in plan.writes() {
            say!("{write}")?;
        }
    }
    for note in &plan.notes {
        eprintln!("{}", crate::output::printable(&format!("note: {bdf}: {note}")));
    }
    if plan.writes().is_empty() {
        return say!("{bdf}  {} already", had(&plan.from));
    }
    if dry_run {
        return Ok(());
    }
    let now = plan.carry_out(sysfs)?;
    say!("{bdf}  {} -> {}", had(&plan.from), had(&now))
}
