//! Location of libibverbs, found by its file name without loading it.

use super::sys::{LIBIBVERBS, LIBMLX5};
use crate::pci::Sysfs;
use serde::Serialize;

/// Default folders of the loader on common distributions.
const FOLDERS: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib64",
    "/lib",
    "/usr/local/lib",
];

/// The verbs library, as its file name describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerbsLibrary {
    /// Path of the file.
    pub path: String,
    /// Version of rdma-core that contains the library, as in 44.0; `None` if the file name does not tell.
    pub rdma_core: Option<(u32, u32)>,
    /// True if libmlx5 is in the same folder.
    pub has_mlx5: bool,
}

impl VerbsLibrary {
    /// Searches the loader's folders: `LD_LIBRARY_PATH` of this process, the folders of `/etc/ld.so.conf.d`, then the
    /// default ones. Returns `None` if none has the library.
    pub fn find(sysfs: &Sysfs) -> Option<Self> {
        let mut folders = Vec::new();
        if sysfs.is_system() {
            let path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
            folders.extend(path.split(':').filter(|f| f.starts_with('/')).map(str::to_owned));
        }
        for file in sysfs.names("/etc/ld.so.conf.d") {
            let text = sysfs.text(format!("/etc/ld.so.conf.d/{file}")).unwrap_or_default();
            folders.extend(text.lines().map(str::trim).filter(|l| l.starts_with('/')).map(str::to_owned));
        }
        folders.extend(FOLDERS.map(str::to_owned));
        let folder = folders.into_iter().find(|f| sysfs.exists(format!("{f}/{LIBIBVERBS}")))?;
        let path = format!("{folder}/{LIBIBVERBS}");
        let target = sysfs.link_name(&path).unwrap_or_else(|| LIBIBVERBS.to_owned());
        Some(Self { rdma_core: version(&target), has_mlx5: sysfs.exists(format!("{folder}/{LIBMLX5}")), path })
    }
}

/// Parses the version from `libibverbs.so.1.14.44.0`: the last two numbers are rdma-core's, those before it the
/// library's.
fn version(file: &str) -> Option<(u32, u32)> {
    let numbers: Vec<u32> =
        file.strip_prefix("libibverbs.so.")?.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    match numbers[..] {
        [_, _, major, minor] => Some((major, minor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fixture::Fixture;
    use proptest::prelude::*;

    fn find(tree: &Fixture) -> Option<VerbsLibrary> {
        VerbsLibrary::find(&Sysfs::at(tree.root()))
    }

    #[test]
    fn the_version_is_in_the_name_of_the_file() {
        let tree = Fixture::new();
        assert_eq!(find(&tree), None);
        let file = "/usr/lib64/libibverbs.so.1.14.50.0";
        tree.file(file, "").link("/usr/lib64/libibverbs.so.1", file);
        let found = find(&tree).unwrap();
        assert_eq!(
            (found.path.as_str(), found.rdma_core, found.has_mlx5),
            ("/usr/lib64/libibverbs.so.1", Some((50, 0)), false)
        );
        tree.file("/usr/lib64/libmlx5.so.1", "");
        assert!(find(&tree).unwrap().has_mlx5);
    }

    #[test]
    fn folders_of_the_loaders_configuration_go_first() {
        let tree = Fixture::new();
        tree.file("/usr/lib/libibverbs.so.1", "").file("/opt/ofed/lib/libibverbs.so.1", "");
        tree.file("/etc/ld.so.conf.d/ofed.conf", "# OFED\n/opt/ofed/lib\n");
        let found = find(&tree).unwrap();
        assert_eq!((found.path.as_str(), found.rdma_core), ("/opt/ofed/lib/libibverbs.so.1", None));
    }

    proptest! {
        #[test]
        fn no_name_panics(text in "libibverbs.so.[0-9.]{0,20}|.*") {
            let _ = version(&text);
        }
    }
}
