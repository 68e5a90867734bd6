//! Controllers of this machine and their names: `nvme:0000:65:00.0`, `nvme:nvme0`, `nvme:SERIAL`, `nvme:MODEL`.

use crate::nvme::vfio::{self, VfioApi, VfioConfig, VfioError};
use crate::nvme::{Controller, NvmeError, Ready};
use crate::pci::{Bdf, FindError, FoundController, Sysfs, find, none_such};
use crate::spec::{DeviceSpec, SpecError};
use crate::storage::error::StorageError;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Name and options of a specification that begins with `nvme:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::storage) struct NvmeSpec {
    /// PCI address, `nvmeN`, serial number or model.
    pub(in crate::storage) name: String,
    api: VfioApi,
    unsafe_no_iommu: bool,
}

/// Open controllers of this process. Drives on several namespaces of one controller share it.
static OPEN: Mutex<Option<HashMap<Bdf, Weak<Controller<Ready>>>>> = Mutex::new(None);

impl NvmeSpec {
    /// Parses the options for opening the controller called `name`.
    pub(in crate::storage) fn read(name: &str, spec: &DeviceSpec) -> Result<Self, SpecError> {
        let mut read = Self { name: name.to_owned(), api: VfioApi::Auto, unsafe_no_iommu: false };
        for option in spec.options() {
            match option.key() {
                "api" => read.api = option.read(|t| t.parse().ok())?,
                "unsafe-no-iommu" => read.unsafe_no_iommu = true,
                // The drive parses the option of the namespace.
                _ => {}
            }
        }
        Ok(read)
    }

    /// Finds, opens and enables the controller, or returns the one that this process has open already.
    pub(in crate::storage) fn open(&self) -> Result<Arc<Controller<Ready>>, StorageError> {
        let sysfs = Sysfs::system();
        match find(&sysfs, &self.name)? {
            FoundController::At(bdf) => self.at(bdf),
            FoundController::Ask(candidates) => self.ask(&sysfs, &candidates),
        }
    }

    fn at(&self, bdf: Bdf) -> Result<Arc<Controller<Ready>>, StorageError> {
        let mut open = OPEN.lock();
        let open = open.get_or_insert_default();
        if let Some(controller) = open.get(&bdf).and_then(Weak::upgrade) {
            return Ok(controller);
        }
        let config = VfioConfig { api: self.api, unsafe_no_iommu: self.unsafe_no_iommu, ..VfioConfig::new(bdf) };
        let vfio = vfio::open(&config)?;
        let controller = Controller::new(vfio.attachment)?.enable().map_err(|(_, e)| e)?;
        let controller = Arc::new(controller);
        open.insert(bdf, Arc::downgrade(&controller));
        Ok(controller)
    }

    /// Opens candidates to compare the name with their serial number and model, which only the controllers know.
    fn ask(&self, sysfs: &Sysfs, candidates: &[Bdf]) -> Result<Arc<Controller<Ready>>, StorageError> {
        let mut fitting = Vec::new();
        let mut silent = Vec::new();
        for &bdf in candidates {
            match self.at(bdf) {
                Ok(controller) => {
                    let identify = controller.identify();
                    if identify.serial() == self.name {
                        return Ok(controller);
                    }
                    if identify.model() == self.name {
                        fitting.push((bdf, controller));
                    }
                }
                Err(e) => silent.push(format!("{bdf} could not be queried: {e}")),
            }
        }
        let mut fitting = fitting.into_iter();
        match (fitting.next(), fitting.next()) {
            (Some((_, controller)), None) => Ok(controller),
            (Some((a, _)), Some((b, _))) => {
                let all = vec![a, b].into_iter().chain(fitting.map(|f| f.0)).map(|b| b.to_string()).collect();
                Err(FindError::Several { name: self.name.clone(), all }.into())
            }
            (None, _) => {
                let mut reason = none_such(sysfs, &self.name).to_string();
                silent.iter().for_each(|s| reason += &format!("; {s}"));
                Err(StorageError::Members { reason })
            }
        }
    }
}

impl From<VfioError> for StorageError {
    fn from(e: VfioError) -> Self {
        // Failed mappings give the same error, whether the driver or vfio reports them.
        match e {
            VfioError::Iommu(e) => Self::Nvme(NvmeError::Dma(e.into())),
            other => Self::Vfio(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<NvmeSpec, SpecError> {
        NvmeSpec::read("nvme0", &text.parse()?)
    }

    #[test]
    fn options_are_read() {
        let s = read("nvme:nvme0,api=group,unsafe-no-iommu").unwrap();
        assert_eq!((s.name.as_str(), s.api, s.unsafe_no_iommu), ("nvme0", VfioApi::Group, true));
        let s = read("nvme:nvme0").unwrap();
        assert_eq!((s.api, s.unsafe_no_iommu), (VfioApi::Auto, false));
        assert_eq!(read("nvme:nvme0,api=uio").unwrap_err().to_string(), "`api=uio`: expected auto, group or cdev");
    }
}
