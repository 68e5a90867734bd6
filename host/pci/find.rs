//! Finds the PCI address of a controller by the names that users give it.

use super::{Bdf, ConfigSpace, Found, Sysfs, is_vfio};

/// PCI class: mass storage, non-volatile memory, NVM Express (PCI Code and ID Assignment 1.16, 1.2).
const NVME_CLASS: u64 = 0x01_08_02;

/// Reason why a name leads to no controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// No controller has that name.
    #[error("no controller is called `{name}`; {}", there_are(.known))]
    None {
        /// The name.
        name: String,
        /// Controllers of the machine, in words.
        known: Vec<String>,
    },
    /// The function with that address is not an NVMe controller.
    #[error("{bdf} is not an NVMe controller: its class is {class:#08x}, not 0x010802")]
    NotNvme {
        /// Address.
        bdf: Bdf,
        /// Class code.
        class: u64,
    },
    /// The controller is not on PCI Express.
    #[error("{name} is reached over {transport}, not over PCI Express; only PCI controllers are supported")]
    NotPci {
        /// The name.
        name: String,
        /// Transport, in the kernel's notation.
        transport: String,
    },
    /// Several controllers have that name.
    #[error("`{name}` fits several controllers: {}; name one by its address or serial number", .all.join(", "))]
    Several {
        /// The name.
        name: String,
        /// These controllers, in words.
        all: Vec<String>,
    },
}

fn there_are(known: &[String]) -> String {
    match known {
        [] => "this machine has no NVMe controller (lspci -d ::0108)".to_owned(),
        known => format!("there are {}", known.join(", ")),
    }
}

/// A controller, as the kernel's NVMe driver shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeNode {
    /// Name in the kernel, as in `nvme0`.
    pub name: String,
    /// PCI address; `None` for controllers that are not on PCI.
    pub bdf: Option<Bdf>,
    /// Transport: `pcie`, `tcp`, ...
    pub transport: String,
    /// Serial number.
    pub serial: String,
    /// Model.
    pub model: String,
}

/// Returns the controllers that the kernel's NVMe driver has.
pub fn nvme_nodes(sysfs: &Sysfs) -> Vec<NvmeNode> {
    let names = sysfs.names("/sys/class/nvme").into_iter();
    names
        .map(|name| {
            let text = |file: &str| sysfs.text(format!("/sys/class/nvme/{name}/{file}")).unwrap_or_default();
            let bdf = text("address").parse().ok();
            let transport = text("transport");
            let (serial, model) = (text("serial"), text("model"));
            NvmeNode { name, bdf, transport, serial, model }
        })
        .collect()
}

/// Result of [`find`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundController {
    /// The address of the controller.
    At(Bdf),
    /// Candidates that user space drives. One of them may have this serial number or model, which only the controller
    /// itself reports.
    Ask(Vec<Bdf>),
}

/// Finds a controller by address, `nvmeN` (or `/dev/nvmeN`), serial number, model, or PCI device serial number in
/// lspci's notation.
///
/// # Errors
/// * [`FindError::None`] if there is no function with this address, or no controller has the name and user space drives
///   none.
/// * [`FindError::NotNvme`] if the function with this address is not an NVMe controller.
/// * [`FindError::NotPci`] if the controller is not on PCI Express.
/// * [`FindError::Several`] if several controllers have this serial number or model.
pub fn find(sysfs: &Sysfs, name: &str) -> Result<FoundController, FindError> {
    if let Ok(bdf) = name.parse::<Bdf>() {
        return match sysfs.number(format!("/sys/bus/pci/devices/{bdf}/class")) {
            Some(NVME_CLASS) => Ok(FoundController::At(bdf)),
            Some(class) => Err(FindError::NotNvme { bdf, class }),
            None => Err(none_such(sysfs, name)),
        };
    }
    let nodes = nvme_nodes(sysfs);
    let plain = name.strip_prefix("/dev/").unwrap_or(name);
    if let Some(node) = nodes.iter().find(|n| n.name == plain) {
        return at(node);
    }
    let fitting: Vec<&NvmeNode> = match nodes.iter().filter(|n| n.serial == name).collect::<Vec<_>>() {
        none if none.is_empty() => nodes.iter().filter(|n| n.model == name).collect(),
        some => some,
    };
    match fitting[..] {
        [] => {}
        [one] => return at(one),
        _ => {
            return Err(FindError::Several {
                name: name.to_owned(),
                all: fitting.iter().map(|n| describe(n)).collect(),
            });
        }
    }
    let functions = functions(sysfs);
    if let Some(bdf) = functions.iter().find(|b| device_serial(sysfs, **b).is_some_and(|s| s == name)) {
        return Ok(FoundController::At(*bdf));
    }
    let in_user_space =
        |bdf: &Bdf| sysfs.link_name(format!("/sys/bus/pci/devices/{bdf}/driver")).as_deref().is_some_and(is_vfio);
    let ask: Vec<Bdf> = functions.into_iter().filter(in_user_space).collect();
    if ask.is_empty() { Err(none_such(sysfs, name)) } else { Ok(FoundController::Ask(ask)) }
}

/// Returns the error of a name that no controller has.
pub fn none_such(sysfs: &Sysfs, name: &str) -> FindError {
    let nodes = nvme_nodes(sysfs);
    let known = functions(sysfs).into_iter().map(|bdf| match nodes.iter().find(|n| n.bdf == Some(bdf)) {
        Some(node) => describe(node),
        None => match sysfs.link_name(format!("/sys/bus/pci/devices/{bdf}/driver")) {
            Some(driver) => format!("{bdf} ({driver})"),
            None => format!("{bdf} (no driver)"),
        },
    });
    FindError::None { name: name.to_owned(), known: known.collect() }
}

fn describe(node: &NvmeNode) -> String {
    let address = node.bdf.map_or_else(|| node.transport.clone(), |b| b.to_string());
    format!("{address} ({}, {}, {})", node.name, node.model, node.serial)
}

fn at(node: &NvmeNode) -> Result<FoundController, FindError> {
    match node.bdf {
        Some(bdf) => Ok(FoundController::At(bdf)),
        None => Err(FindError::NotPci { name: node.name.clone(), transport: node.transport.clone() }),
    }
}

/// Returns the NVMe functions of the machine, by address.
pub(super) fn functions(sysfs: &Sysfs) -> Vec<Bdf> {
    let class = |bdf: &Bdf| sysfs.number(format!("/sys/bus/pci/devices/{bdf}/class"));
    let all = sysfs.names("/sys/bus/pci/devices").into_iter().filter_map(|n| n.parse().ok());
    let mut nvme: Vec<Bdf> = all.filter(|b| class(b) == Some(NVME_CLASS)).collect();
    nvme.sort();
    nvme
}

/// Returns the device serial number from configuration space (PCI Express Base 6.0, 7.9.3), in lspci's notation.
fn device_serial(sysfs: &Sysfs, bdf: Bdf) -> Option<String> {
    const SERIAL_NUMBER: u16 = 0x0003;
    let config = ConfigSpace::read(sysfs, bdf);
    let Found::Yes(at) = config.extended_capability(SERIAL_NUMBER) else { return None };
    let (low, high) = (config.dword(at + 4)?, config.dword(at + 8)?);
    let bytes = (u64::from(high) << 32 | u64::from(low)).to_be_bytes();
    Some(bytes.map(|b| format!("{b:02x}")).join("-"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    fn machine() -> Tree {
        let tree = Tree::new();
        for (i, (bdf, serial)) in [("0000:65:00.0", "S1"), ("0000:66:00.0", "S2")].into_iter().enumerate() {
            tree.function(bdf, 0x01_08_02, Some("nvme"), Some(i as u32));
            tree.node(&format!("nvme{i}"), bdf, serial, "ACME Fast 1TB");
        }
        tree.function("0000:06:00.0", 0x03_02_00, Some("nvidia"), Some(9));
        tree
    }

    fn at(tree: &Tree, name: &str) -> String {
        match find(&tree.sysfs(), name) {
            Ok(FoundController::At(bdf)) => bdf.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn address_name_and_serial_lead_to_the_controller() {
        let tree = machine();
        for name in ["66:00.0", "0000:66:00.0", "nvme1", "/dev/nvme1", "S2"] {
            assert_eq!(at(&tree, name), "0000:66:00.0", "{name}");
        }
    }

    #[test]
    fn a_model_names_its_controller_if_it_is_the_only_one() {
        let tree = machine();
        let text = find(&tree.sysfs(), "ACME Fast 1TB").unwrap_err().to_string();
        assert!(text.contains("several") && text.contains("0000:66:00.0 (nvme1, ACME Fast 1TB, S2)"), "{text}");
        tree.node("nvme1", "0000:66:00.0", "S2", "Other");
        assert_eq!(at(&tree, "Other"), "0000:66:00.0");
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let tree = machine();
        let text = find(&tree.sysfs(), "S3").unwrap_err().to_string();
        assert!(text.starts_with("no controller is called `S3`; there are 0000:65:00.0 (nvme0, "), "{text}");
        let text = find(&tree.sysfs(), "06:00.0").unwrap_err().to_string();
        assert_eq!(text, "0000:06:00.0 is not an NVMe controller: its class is 0x030200, not 0x010802");
        assert!(find(&Tree::new().sysfs(), "nvme0").unwrap_err().to_string().contains("has no NVMe controller"));
    }

    #[test]
    fn controllers_in_user_space_have_to_be_asked() {
        let tree = machine();
        tree.function("0000:67:00.0", 0x01_08_02, Some("vfio-pci"), Some(3));
        let bdf = "0000:67:00.0".parse().unwrap();
        assert_eq!(find(&tree.sysfs(), "S3"), Ok(FoundController::Ask(vec![bdf])));
    }

    #[test]
    fn other_transports_are_told() {
        let tree = machine();
        tree.node("nvme5", "traddr=10.0.0.1,trsvcid=4420", "T", "Linux");
        tree.write("sys/class/nvme/nvme5/transport", "tcp\n");
        assert!(find(&tree.sysfs(), "nvme5").unwrap_err().to_string().contains("over tcp"));
    }

    #[test]
    fn the_serial_number_of_configuration_space_counts_too() {
        let tree = machine();
        tree.function("0000:67:00.0", 0x01_08_02, Some("vfio-pci"), Some(3));
        let mut config = vec![0; 4096];
        config[0x100..0x104].copy_from_slice(&0x0001_0003u32.to_le_bytes());
        config[0x104..0x10c].copy_from_slice(&0x0025_38aa_1100_0001u64.to_le_bytes());
        tree.write("sys/bus/pci/devices/0000:67:00.0/config", config);
        assert_eq!(at(&tree, "00-25-38-aa-11-00-00-01"), "0000:67:00.0");
    }
}
