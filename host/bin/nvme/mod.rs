//! `warpbell nvme`: controllers, in nvme-cli's words.

mod bind;

use crate::output::Failure;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum NvmeCommand {
    /// Take a controller from the kernel and give it to vfio-pci, so that warpbell can drive it
    Bind(bind::BindArgs),
    /// Give a controller back to the kernel's driver
    Unbind(bind::UnbindArgs),
}

pub fn run(command: NvmeCommand) -> Result<(), Failure> {
    match command {
        NvmeCommand::Bind(args) => bind::bind(&args),
        NvmeCommand::Unbind(args) => bind::unbind(&args),
    }
}
