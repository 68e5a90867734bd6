//! `warpbell nvme bind` and `unbind`: which driver holds a controller.

use crate::output::Failure;
use clap::Args;

#[derive(Args, Clone, Debug)]
pub struct BindArgs {
    /// PCI address, nvmeN, serial number or model
    pub controller: String,
    /// Only print what would be written, and where
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Clone, Debug)]
pub struct UnbindArgs {
    /// PCI address
    pub controller: String,
    /// Only print what would be written, and where
    #[arg(long)]
    pub dry_run: bool,
}

pub fn bind(args: &BindArgs) -> Result<(), Failure> {
    Err(Failure::Error(format!("{}: no controller of this name", args.controller)))
}

pub fn unbind(args: &UnbindArgs) -> Result<(), Failure> {
    Err(Failure::Error(format!("{}: no controller of this name", args.controller)))
}
