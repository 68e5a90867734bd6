//! A NIC through the functions of libmlx5 (`mlx5dv.h`).

use super::adapter::{Facts, Kernels, Memories, Mlx5Adapter};
use super::devx::{Devx, DevxObject, Uar, UarKind, Umem, UmemSource};
use crate::memory::Space;
use crate::rdma::proxy::link;
use crate::rdma::sys::{
    self, Mlx5dv, ibv_access_flags, ibv_context, mlx5dv_ah, mlx5dv_context_attr, mlx5dv_context_attr_flags,
    mlx5dv_devx_obj, mlx5dv_devx_uar, mlx5dv_devx_umem, mlx5dv_devx_umem_in, mlx5dv_devx_umem_in_mask, mlx5dv_obj,
    mlx5dv_obj_type, mlx5dv_pd,
};
use crate::rdma::verbs::{Context, ProtectionDomain, Registrar, address_handle};
use crate::rdma::{Chosen, DeviceChoice, MemoryRange, RdmaError, Registration, Rights, Route, TrafficClass, Transport};
use libc::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Access right of queue memory: the NIC writes it.
const UMEM_WRITE: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;

/// Converts the result of a call that returns an error number, or -1 with errno set.
fn answer(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}

/// Returns an empty request for `mlx5dv_init_obj`.
fn no_objects() -> mlx5dv_obj {
    // SAFETY: pointers, for which null is a valid value.
    unsafe { zeroed() }
}

/// A NIC that is opened through libmlx5.
#[derive(Debug)]
struct Nic {
    library: &'static Mlx5dv,
    domain: Arc<ProtectionDomain>,
    pdn: u32,
}

impl Nic {
    fn open(name: &str) -> Result<Self, RdmaError> {
        let unavailable = |reason: String| RdmaError::Unavailable { transport: Transport::Mlx5, reason };
        let library = sys::mlx5()?;
        let mut supported = true;
        let context = Context::open_with(Transport::Mlx5, name, |_, device| {
            // SAFETY: a device of the list that `open_with` keeps alive.
            supported = unsafe { library.mlx5dv_is_supported(device) };
            if !supported {
                return null_mut();
            }
            let mut attr =
                mlx5dv_context_attr { flags: mlx5dv_context_attr_flags::MLX5DV_CONTEXT_FLAGS_DEVX.0, comp_mask: 0 };
            // SAFETY: a device of the list that `open_with` keeps alive; the call only reads the attributes.
            unsafe { library.mlx5dv_open_device(device, &mut attr) }
        });
        let context = context.map_err(|e| match supported {
            _ if matches!(e, RdmaError::Library { .. }) => e,
            true => unavailable(format!(
                "{e}; if the device opens without DevX (`ibv_devinfo -d {name}`), its firmware forbids commands: a virtual function needs \
                 UCTX_EN (mlxconfig -d {name} set UCTX_EN=1)"
            )),
            false => unavailable(format!("libmlx5 does not support {name}; use transport verbs")),
        })?;
        let domain = ProtectionDomain::new(&context)?;
        let mut out = mlx5dv_pd { pdn: 0, comp_mask: 0 };
        let mut obj = no_objects();
        obj.pd.in_ = domain.raw();
        obj.pd.out = &mut out;
        // SAFETY: a live protection domain of an mlx5 device; writes its number.
        answer(unsafe { library.mlx5dv_init_obj(&mut obj, mlx5dv_obj_type::MLX5DV_OBJ_PD.0.into()) }).map_err(
            |source| RdmaError::System {
                what: format!("querying the number of a protection domain of {name}"),
                source,
            },
        )?;
        Ok(Self { library, domain, pdn: out.pdn })
    }

    fn context(&self) -> *mut ibv_context {
        self.domain.context().raw()
    }
}

impl Devx for Nic {
    fn command(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let (i, o) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: an open device; the call accesses the buffers within the given lengths.
        answer(unsafe { self.library.mlx5dv_devx_general_cmd(self.context(), i, input.len(), o, output.len()) })
    }

    fn create(&self, input: &[u8], output: &mut [u8]) -> io::Result<Box<dyn DevxObject>> {
        let (i, o) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: an open device; the call accesses the buffers within the given lengths.
        let raw = unsafe { self.library.mlx5dv_devx_obj_create(self.context(), i, input.len(), o, output.len()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Box::new(Object { library: self.library, raw, _domain: self.domain.clone() }))
    }

    fn alloc_uar(&self, kind: UarKind) -> io::Result<Arc<dyn Uar>> {
        // SAFETY: an open device.
        let raw = unsafe { self.library.mlx5dv_devx_alloc_uar(self.context(), kind as u32) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the driver returned it, and it is alive until freed.
        let (page, register, base) =
            unsafe { ((*raw.as_ptr()).page_id, (*raw.as_ptr()).reg_addr, (*raw.as_ptr()).base_addr) };
        let page = Page {
            library: self.library,
            raw,
            page,
            register: NonNull::new(register.cast()),
            base: NonNull::new(base.cast()),
            _domain: self.domain.clone(),
        };
        match (page.register, page.base) {
            (Some(_), Some(_)) => Ok(Arc::new(page)),
            _ => Err(io::Error::other("the driver mapped no register")),
        }
    }

    fn register(&self, source: UmemSource<'_>, bytes: usize) -> io::Result<Box<dyn Umem>> {
        let raw = match source {
            // SAFETY: the kernel pins the memory or rejects it; its owner keeps it until it is deregistered.
            UmemSource::Address(address) => unsafe {
                self.library.mlx5dv_devx_umem_reg(self.context(), address as *mut c_void, bytes, UMEM_WRITE)
            },
            UmemSource::DmaBuf(fd) => {
                let page = crate::this_host::page_bytes() as u64;
                let mut input = mlx5dv_devx_umem_in {
                    // Offset in the dma-buf.
                    addr: null_mut(),
                    size: bytes,
                    access: UMEM_WRITE,
                    // Accepts any page size from the system's page size up.
                    pgsz_bitmap: !(page - 1),
                    comp_mask: mlx5dv_devx_umem_in_mask::MLX5DV_UMEM_MASK_DMABUF.0.into(),
                    dmabuf_fd: fd.as_raw_fd(),
                };
                // SAFETY: an open device and an open descriptor; the kernel keeps the dma-buf after the call.
                unsafe { self.library.mlx5dv_devx_umem_reg_ex(self.context(), &mut input) }
            }
        };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Box::new(QueueMemoryId { library: self.library, raw, _domain: self.domain.clone() }))
    }

    fn event_queue(&self) -> io::Result<u32> {
        let mut eqn = 0;
        // SAFETY: an open device; writes one number.
        answer(unsafe { self.library.mlx5dv_devx_query_eqn(self.context(), 0, &mut eqn) })?;
        Ok(eqn)
    }

    fn protection_domain(&self) -> u32 {
        self.pdn
    }

    fn remote_mac(&self, route: &Route) -> io::Result<[u8; 6]> {
        let verbs = self.domain.verbs();
        let mut attr = address_handle(route);
        // SAFETY: a live protection domain; the call only reads the attributes.
        let ah = NonNull::new(unsafe { verbs.ibv_create_ah(self.domain.raw(), &mut attr) })
            .ok_or_else(io::Error::last_os_error)?;
        let mut out = mlx5dv_ah { av: null_mut(), comp_mask: 0 };
        let mut obj = no_objects();
        obj.ah.in_ = ah.as_ptr();
        obj.ah.out = &mut out;
        // SAFETY: a live handle of an mlx5 device; the call writes the address of its address vector.
        let asked = answer(unsafe { self.library.mlx5dv_init_obj(&mut obj, mlx5dv_obj_type::MLX5DV_OBJ_AH.0.into()) });
        let mut mac = [0; 6];
        if asked.is_ok() && !out.av.is_null() {
            // SAFETY: the address vector lives as long as its handle.
            mac = unsafe { (*out.av).rmac };
        }
        // SAFETY: created above and not used again.
        unsafe { verbs.ibv_destroy_ah(ah.as_ptr()) };
        asked.map(|()| mac)
    }
}

#[derive(Debug)]
struct Object {
    library: &'static Mlx5dv,
    raw: NonNull<mlx5dv_devx_obj>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libmlx5's functions can be called from any thread.
unsafe impl Send for Object {}
// SAFETY: libmlx5's functions can be called from any thread. State changes take `&mut`, and the queue pair serialises
// its queries.
unsafe impl Sync for Object {}

impl DevxObject for Object {
    fn modify(&mut self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let (i, o) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: a live object; the call accesses the buffers within the given lengths.
        answer(unsafe { self.library.mlx5dv_devx_obj_modify(self.raw.as_ptr(), i, input.len(), o, output.len()) })
    }

    fn query(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let (i, o) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: a live object; the call accesses the buffers within the given lengths.
        answer(unsafe { self.library.mlx5dv_devx_obj_query(self.raw.as_ptr(), i, input.len(), o, output.len()) })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: created by `create`, destroyed once.
        let answer = answer(unsafe { self.library.mlx5dv_devx_obj_destroy(self.raw.as_ptr()) });
        if let Err(e) = answer {
            tracing::warn!("an object of the NIC cannot be destroyed ({e}): the NIC may still write its memory");
        }
    }
}

#[derive(Debug)]
struct QueueMemoryId {
    library: &'static Mlx5dv,
    raw: NonNull<mlx5dv_devx_umem>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libmlx5's functions can be called from any thread.
unsafe impl Send for QueueMemoryId {}
// SAFETY: libmlx5's functions can be called from any thread, and the number does not change.
unsafe impl Sync for QueueMemoryId {}

impl Umem for QueueMemoryId {
    fn id(&self) -> u32 {
        // SAFETY: alive until deregistered.
        unsafe { (*self.raw.as_ptr()).umem_id }
    }
}

impl Drop for QueueMemoryId {
    fn drop(&mut self) {
        // SAFETY: created by `register`, deregistered once.
        unsafe { self.library.mlx5dv_devx_umem_dereg(self.raw.as_ptr()) };
    }
}

#[derive(Debug)]
struct Page {
    library: &'static Mlx5dv,
    raw: NonNull<mlx5dv_devx_uar>,
    page: u32,
    register: Option<NonNull<u8>>,
    base: Option<NonNull<u8>>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libmlx5's functions can be called from any thread.
unsafe impl Send for Page {}
// SAFETY: libmlx5's functions can be called from any thread, and the numbers do not change.
unsafe impl Sync for Page {}

impl Uar for Page {
    fn page(&self) -> u32 {
        self.page
    }
    fn register(&self) -> NonNull<u8> {
        // `alloc_uar` returns no page without a register.
        self.register.unwrap_or(NonNull::dangling())
    }
    fn base(&self) -> NonNull<u8> {
        self.base.unwrap_or(NonNull::dangling())
    }
    fn export(&self) -> io::Result<OwnedFd> {
        let newer = sys::mlx5_export().map_err(io::Error::other)?;
        // SAFETY: allocated until this value is dropped.
        unsafe { newer.export_uar(self.raw) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: created by `alloc_uar`, freed once.
        unsafe { self.library.mlx5dv_devx_free_uar(self.raw.as_ptr()) };
    }
}

impl Memories for Registrar {
    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        // SAFETY: the caller makes the same promise.
        unsafe { Registrar::register(self, memory, rights) }
    }
    fn registration_path(&self) -> String {
        Registrar::registration_path(self).to_string()
    }
}

impl Mlx5Adapter {
    /// Opens a NIC.
    ///
    /// # Errors
    /// * [`RdmaError::Library`] if libibverbs or libmlx5 is missing or too old.
    /// * [`RdmaError::Unavailable`] if the device does not open with DevX, has no such GID, or lacks a required
    ///   capability.
    /// * [`RdmaError::System`] if a call of the driver or the firmware fails, or the doorbell thread cannot be started.
    pub fn open(chosen: &Chosen, choice: &DeviceChoice, space: &Space) -> Result<Self, RdmaError> {
        let nic = Nic::open(&chosen.device.name)?;
        let port = nic.domain.context().port(Transport::Mlx5, chosen, choice)?;
        let registrar = Registrar::new(nic.domain.clone(), space.clone());
        let facts = Facts {
            name: chosen.to_string(),
            link: link(chosen, &port),
            port,
            forced: chosen.port.traffic_class.forced(),
            priorities: (0..=u8::MAX).map(|c| chosen.port.priority_of(TrafficClass(c))).collect(),
        };
        Self::new(Box::new(nic), Box::new(registrar), facts, choice, Kernels::of(space))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let e = Nic::open("mlx5_none").unwrap_err().to_string();
        // The library's name, if the library is missing.
        assert!(e.starts_with("mlx5 adapter: ") || e.starts_with("libmlx5.so.1: "), "{e}");
    }
}
