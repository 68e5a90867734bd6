//! Runs `warpbell nvme format-check`: shows which namespaces are usable, why the others are not, and how to format
//! them.

use super::inspect::{InspectArgs, NamedController, print};
use crate::output::Failure;
use serde::Serialize;
use warpbell::nvme::check_format;
use warpbell::pci::{Sysfs, nvme_listing};
use warpbell::units::Bytes;

#[derive(Serialize)]
struct Check {
    namespaces: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    nsid: u32,
    size_bytes: Option<u64>,
    block_bytes: Option<u64>,
    metadata_bytes: u16,
    usable: bool,
    /// Reason why the namespace is not usable.
    reason: Option<String>,
    /// A format that makes the namespace usable.
    format: Option<Suggestion>,
}

#[derive(Serialize)]
struct Suggestion {
    lbaf: usize,
    block_bytes: u64,
    command: String,
}

/// Checks the namespaces' formats and prints the result.
///
/// # Errors
/// [`Failure::Error`] if no namespace is usable, the device cannot be opened, or a command fails.
/// [`Failure::BrokenPipe`] if standard output was closed.
pub fn run(args: &InspectArgs) -> Result<(), Failure> {
    let opened = args.open()?;
    let mut rows = Vec::new();
    for nsid in opened.namespaces()? {
        rows.push(row(&opened, nsid)?);
    }
    let usable = rows.iter().any(|r| r.usable);
    print("nvme format-check", args, &opened, &Check { namespaces: rows }, text)?;
    if usable { Ok(()) } else { Err(Failure::Error(format!("{}: no namespace can be used", opened.device))) }
}

fn row(opened: &NamedController, nsid: u32) -> Result<Row, Failure> {
    let controller = opened.open.controller();
    let Some(identify) = controller.identify_namespace(nsid)? else {
        // This error names the active namespaces.
        return Err(controller.namespace(nsid).map(drop).err().map_or_else(
            || Failure::Error(format!("namespace {nsid} appeared during the check; run the command again")),
            Failure::from,
        ));
    };
    let check = check_format(&identify);
    let format = identify.format();
    let formats = identify.formats();
    let current = identify.format_index();
    // Larger blocks are suggested only if the current format is not usable.
    let best = check.better.first().copied().filter(|&best| check.obstacle.is_some() && best != current);
    let block_device = block_device(opened, nsid);
    let suggestion = best.map(|lbaf| Suggestion {
        lbaf,
        block_bytes: formats[lbaf].data_bytes().unwrap_or(0),
        command: format!("nvme format {block_device} --lbaf={lbaf} --ses=0"),
    });
    Ok(Row {
        nsid,
        size_bytes: format.data_bytes().and_then(|b| identify.blocks().checked_mul(b)),
        block_bytes: format.data_bytes(),
        metadata_bytes: format.metadata_bytes,
        usable: check.obstacle.is_none(),
        reason: check.obstacle,
        format: suggestion,
    })
}

/// Returns nvme-cli's name of the namespace once the kernel's driver has the controller.
fn block_device(opened: &NamedController, nsid: u32) -> String {
    let name = opened.open.controller().port().bdf().and_then(|bdf| {
        let all = nvme_listing(&Sysfs::system());
        all.into_iter().find(|c| c.address == bdf).and_then(|c| c.name)
    });
    format!("/dev/{}n{nsid}", name.as_deref().unwrap_or("nvmeX"))
}

fn text(check: &Check) -> Vec<String> {
    let mut lines = Vec::new();
    for r in &check.namespaces {
        let size = r.size_bytes.map_or_else(|| "of unknown size".to_owned(), |b| Bytes(b).to_string());
        let block = r.block_bytes.map_or_else(|| "?".to_owned(), |b| b.to_string());
        let state = match &r.reason {
            None => "usable".to_owned(),
            Some(reason) => format!("cannot be used: {reason}"),
        };
        lines.push(format!("namespace {}  {size}  blocks of {block} + {} bytes  {state}", r.nsid, r.metadata_bytes));
        match (&r.format, r.usable) {
            (Some(s), _) => lines.push(format!(
                "  {}  (blocks of {} bytes; erases the namespace; run it while the kernel's nvme driver has the controller)",
                s.command, s.block_bytes
            )),
            (None, false) => lines.push("  none of its formats can be used".to_owned()),
            (None, true) => {}
        }
    }
    if lines.is_empty() {
        lines.push("no namespace is active; create one with nvme create-ns and nvme attach-ns".to_owned());
    }
    lines
}
