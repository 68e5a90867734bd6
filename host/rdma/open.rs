//! Opens an adapter by its transport.

use super::{Adapter, DeviceChoice, RdmaError, Transport};
use crate::memory::Space;
use crate::pci::{Sysfs, Topology};

/// Opens an RDMA device for kernels of this space: `mlx5` (kernels drive its queues) or `verbs` (a CPU thread
/// translates kernels' entries into verbs calls). [`crate::soft`] opens the software NIC.
///
/// # Errors
/// * [`RdmaError::Unavailable`] if there is no such device, the process may not use it, it lacks a required capability,
///   or `transport` is [`Transport::Soft`].
/// * [`RdmaError::Library`] if libibverbs or libmlx5 is missing or too old.
/// * [`RdmaError::System`] if a call of the driver or the firmware fails, or a thread cannot be started.
/// * [`RdmaError::Memory`] or [`RdmaError::Registration`] if the adapter's own buffer cannot be allocated or
///   registered.
pub fn open(transport: Transport, choice: &DeviceChoice, space: &Space) -> Result<Box<dyn Adapter>, RdmaError> {
    match transport {
        Transport::Soft => {
            let reason = "a software NIC is not an RDMA device: open a SoftNic instead".to_owned();
            Err(RdmaError::Unavailable { transport, reason })
        }
        Transport::Mlx5 | Transport::Verbs => open_device(transport, choice, space),
    }
}

fn open_device(transport: Transport, choice: &DeviceChoice, space: &Space) -> Result<Box<dyn Adapter>, RdmaError> {
    let sysfs = Sysfs::system();
    let gpu = space.gpu_context().and_then(|c| c.info().bdf);
    let chosen = choice.choose(transport, &sysfs, &Topology::read(&sysfs), gpu)?;
    match transport {
        Transport::Mlx5 => Ok(Box::new(super::mlx5::Mlx5Adapter::open(&chosen, choice, space)?)),
        _ => Ok(Box::new(super::proxy::VerbsProxy::open(&chosen, choice, space)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_says_why() {
        let open = |t| open(t, &DeviceChoice::default(), &Space::cpu()).unwrap_err().to_string();
        assert!(open(Transport::Soft).contains("software NIC"));
        if !std::path::Path::new("/sys/class/infiniband").exists() {
            assert!(open(Transport::Mlx5).contains("no RDMA device"));
            assert!(open(Transport::Verbs).contains("no RDMA device"));
        }
    }
}
