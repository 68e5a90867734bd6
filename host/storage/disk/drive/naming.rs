//! Hints for names of devices that are no specifications: the specification to write on this machine.

use crate::pci::{Bdf, Sysfs, nvme_nodes};
use crate::spec::{SpecError, fields};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the reason why `text` is no specification. If this machine has the device, the reason names its
/// specification.
pub(in crate::storage) fn reason(sysfs: &Sysfs, text: &OsStr, e: &SpecError) -> String {
    let fields = fields(text.as_bytes());
    let (name, text) = (OsStr::from_bytes(&fields[0]), text.to_string_lossy());
    match e {
        SpecError::NoScheme => match Node::read(&text) {
            Some(node) => node.is_the_kernels(sysfs, &text),
            None if name == "mem" => format!("it names no kind of device; memory is soft:{text}"),
            None if Path::new(name).exists() => format!("it names no kind of device; that file is soft:{text}"),
            None => e.to_string(),
        },
        SpecError::UnknownScheme { scheme } => {
            let none = format!("there is no kind of device `{scheme}`");
            if name.to_str().is_some_and(|name| name.parse::<Bdf>().is_ok()) {
                format!("{none}; the controller at that address is nvme:{text}")
            } else if scheme == "mem" || scheme == "file" || Path::new(name).exists() {
                format!("{none}; write soft:{text}")
            } else {
                e.to_string()
            }
        }
        _ => e.to_string(),
    }
}

/// Returns the reason why `name` names no controller, if it is the name of a namespace.
pub(in crate::storage) fn namespace(sysfs: &Sysfs, name: &str) -> Option<String> {
    let node = Node::read(name).filter(|n| n.namespace)?;
    let controller = node.controller(sysfs).map_or_else(|| "ADDRESS".to_owned(), |b| b.to_string());
    let nsid = node.nsid(sysfs);
    Some(format!(
        "`{name}` is a namespace; name its controller, and the namespace as an option: nvme:{controller},nsid={nsid}"
    ))
}

/// A device file of the kernel's NVMe driver: `nvme0`, `nvme0n1`, or a partition `nvme0n1p2`.
struct Node<'a> {
    /// Name without `/dev/` and without the partition.
    name: &'a str,
    namespace: bool,
}

/// Parses `letter` and digits at the start of `text`. Returns the rest, and the digits.
fn number(text: &str, letter: char) -> Option<(&str, &str)> {
    let text = text.strip_prefix(letter)?;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| (&text[digits..], &text[..digits]))
}

impl<'a> Node<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let name = text.strip_prefix("/dev/").unwrap_or(text);
        let (rest, _) = number(name.strip_prefix("nvm")?, 'e')?;
        if rest.is_empty() {
            return Some(Self { name, namespace: false });
        }
        let (rest, _) = number(rest, 'n')?;
        let whole = rest.is_empty() || number(rest, 'p').is_some_and(|(rest, _)| rest.is_empty());
        whole.then(|| Self { name: &name[..name.len() - rest.len()], namespace: true })
    }

    /// Returns the address of the node's controller. With multipath, the number in a namespace's name is that of its
    /// subsystem. The address is then known only if the subsystem has one controller.
    fn controller(&self, sysfs: &Sysfs) -> Option<Bdf> {
        let nodes = nvme_nodes(sysfs);
        let address = |name: &str| nodes.iter().find(|n| n.name == name)?.bdf;
        if !self.namespace {
            return address(self.name);
        }
        let above = format!("/sys/class/block/{}/device", self.name);
        let holder = sysfs.link_name(&above)?;
        address(&holder).or_else(|| {
            let mut of_subsystem = sysfs.names(&above).into_iter().filter_map(|n| address(&n));
            of_subsystem.next().filter(|_| of_subsystem.next().is_none())
        })
    }

    fn nsid(&self, sysfs: &Sysfs) -> String {
        let told = sysfs.text(format!("/sys/class/block/{}/nsid", self.name)).ok();
        told.or_else(|| Some(self.name.rsplit_once('n')?.1.to_owned())).unwrap_or_default()
    }

    /// Returns the reason why the device, which the kernel's driver uses, is no specification, with the command that
    /// takes it from the driver.
    fn is_the_kernels(&self, sysfs: &Sysfs, text: &str) -> String {
        let nsid = if self.namespace { self.nsid(sysfs) } else { "1".to_owned() };
        let option = if nsid == "1" { String::new() } else { format!(",nsid={nsid}") };
        let take = match self.controller(sysfs) {
            Some(bdf) => format!("bind its controller with `warpbell nvme bind {bdf}`, then write nvme:{bdf}{option}"),
            None => format!(
                "find its controller's address with `warpbell nvme list`, bind it with `warpbell nvme bind ADDRESS`, then write nvme:ADDRESS{option}"
            ),
        };
        let through = if self.namespace {
            format!("; or write soft:/dev/{} to go through the kernel", text.trim_start_matches("/dev/"))
        } else {
            String::new()
        };
        format!("it is a device of the kernel's nvme driver; {take}{through}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A machine with nvme0, whose namespace is nvme0n2, and with nvme3 of subsystem 1, whose namespace is nvme1n1.
    fn machine() -> (tempfile::TempDir, Sysfs) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (name, address) in [("nvme0", "0000:65:00.0"), ("nvme3", "0000:66:00.0")] {
            let node = root.join("sys/class/nvme").join(name);
            fs::create_dir_all(&node).unwrap();
            fs::write(node.join("address"), address).unwrap();
        }
        for (block, holder, nsid) in [("nvme0n2", "nvme0", "2"), ("nvme1n1", "nvme-subsys1", "1")] {
            let above = root.join("sys/devices").join(holder);
            fs::create_dir_all(&above).unwrap();
            let block = root.join("sys/class/block").join(block);
            fs::create_dir_all(&block).unwrap();
            fs::write(block.join("nsid"), nsid).unwrap();
            symlink(above, block.join("device")).unwrap();
        }
        fs::create_dir_all(root.join("sys/devices/nvme-subsys1/nvme3")).unwrap();
        let sysfs = Sysfs::at(root);
        (dir, sysfs)
    }

    fn told(sysfs: &Sysfs, text: &str) -> String {
        let e = text.parse::<crate::spec::DeviceSpec>().unwrap_err();
        reason(sysfs, OsStr::new(text), &e)
    }

    #[test]
    fn devices_of_the_kernel_lead_to_their_controller() {
        let (_dir, sysfs) = machine();
        for (text, words) in [
            ("nvme0", &["the kernel's nvme driver", "bind 0000:65:00.0`", "then write nvme:0000:65:00.0"][..]),
            ("/dev/nvme0", &["bind 0000:65:00.0`"]),
            ("/dev/nvme0n2", &["then write nvme:0000:65:00.0,nsid=2;", "soft:/dev/nvme0n2 to go through the kernel"]),
            ("nvme1n1p2", &["then write nvme:0000:66:00.0;", "soft:/dev/nvme1n1p2 to go"]),
            ("/dev/nvme7n1", &["`warpbell nvme list`", "then write nvme:ADDRESS;", "soft:/dev/nvme7n1 to go"]),
        ] {
            let said = told(&sysfs, text);
            words.iter().for_each(|w| assert!(said.contains(w), "{text}: {said}"));
        }
        for other in ["nvme", "nvmex", "nvme0n", "nvme0c1n1x", "nvme0n1p", "nvme0n1x2"] {
            assert!(Node::read(other).is_none(), "{other}");
        }
        let said = namespace(&sysfs, "/dev/nvme0n2").unwrap();
        assert!(said.ends_with("nvme:0000:65:00.0,nsid=2"), "{said}");
        assert_eq!(namespace(&sysfs, "nvme0"), None);
    }

    #[test]
    fn files_memory_and_addresses_lead_to_their_kind() {
        let dir = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::at(dir.path());
        let file = dir.path().join("a.img");
        fs::write(&file, b"").unwrap();
        let file = format!("{},block=4096", file.display());
        assert!(told(&sysfs, &file).ends_with(&format!("soft:{file}")));
        assert!(told(&sysfs, "mem").ends_with("soft:mem"));
        assert!(told(&sysfs, "nowhere.img").contains("there are soft:mem[:SIZE]"));
        assert!(told(&sysfs, "0000:65:00.0,nsid=2").ends_with("nvme:0000:65:00.0,nsid=2"));
        assert!(told(&sysfs, "mem:1G").ends_with("soft:mem:1G"));
        assert!(told(&sysfs, "sotf:a.img").ends_with("did you mean `soft`?"));
        assert!(told(&sysfs, "nvme:nvme0,fast").starts_with("there is no option `fast`"));
    }
}
