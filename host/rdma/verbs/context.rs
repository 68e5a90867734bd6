//! An open device, and a protection domain on it.

use super::{answer, failed};
use crate::rdma::sys::{
    self, Verbs, ib_uverbs_query_port_flags, ibv_async_event, ibv_atomic_cap, ibv_context, ibv_device, ibv_device_attr,
    ibv_pd, ibv_port_attr,
};
use crate::rdma::{Chosen, DeviceChoice, GidKind, LinkLayer, PathMtu, PortFacts, RdmaError, Transport};
use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::NonNull;
use std::sync::Arc;

/// Flag of a port whose packets must have a global route header (`IBV_QPF_GRH_REQUIRED`).
const GRH_REQUIRED: u8 = ib_uverbs_query_port_flags::IB_UVERBS_QPF_GRH_REQUIRED.0 as u8;
/// Asynchronous events by their numbers (rdma-core `verbs.h`, `enum ibv_event_type`).
const EVENTS: [&str; 20] = [
    "completion queue error",
    "queue pair error",
    "invalid request of a peer",
    "access error of a peer",
    "connection established",
    "send queue drained",
    "path migrated",
    "path migration error",
    "device error",
    "port active",
    "port error",
    "local identifier changed",
    "partition keys changed",
    "subnet manager changed",
    "shared receive queue error",
    "shared receive queue limit reached",
    "last receive reached",
    "subnet manager asks for new registration",
    "GIDs changed",
    "work queue error",
];

/// Limits of a device.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdma) struct DeviceLimits {
    /// Largest number of requests in a send queue.
    pub requests: u32,
    /// Largest number of scatter/gather elements of a request.
    pub pieces: u32,
    /// Largest number of entries in a completion queue.
    pub completions: u32,
    /// Largest number of outstanding reads and atomics of a queue pair, and of its peer's that it can hold.
    pub reads: (u8, u8),
    /// True if the device has 8-byte atomics.
    pub atomics: bool,
}

/// An open device.
#[derive(Debug)]
pub(in crate::rdma) struct Context {
    verbs: &'static Verbs,
    raw: NonNull<ibv_context>,
    name: String,
}

// SAFETY: verbs calls may come from any thread (libibverbs is thread-safe).
unsafe impl Send for Context {}
// SAFETY: verbs calls may come from any thread, also at the same time (libibverbs is thread-safe).
unsafe impl Sync for Context {}

impl Context {
    /// Opens a device by name, with `open` as the call that opens it.
    ///
    /// # Errors
    /// * [`RdmaError::Library`] if libibverbs is missing or too old.
    /// * [`RdmaError::Unavailable`] if libibverbs does not show the device, or the device cannot be opened.
    pub fn open_with(
        transport: Transport,
        name: &str,
        open: impl FnOnce(&'static Verbs, *mut ibv_device) -> *mut ibv_context,
    ) -> Result<Arc<Self>, RdmaError> {
        let unavailable = |reason: String| RdmaError::Unavailable { transport, reason };
        let verbs = sys::verbs()?;
        let mut count = 0;
        // SAFETY: writes a number; the list is freed below.
        let list = unsafe { verbs.ibv_get_device_list(&mut count) };
        if list.is_null() {
            let e = io::Error::last_os_error();
            let fix = match e.raw_os_error() {
                Some(libc::ENOSYS) => "the kernel has no RDMA: modprobe ib_uverbs",
                _ => "see `ibv_devices`",
            };
            return Err(unavailable(format!("libibverbs cannot list devices ({e}); {fix}")));
        }
        let mut names = Vec::new();
        let mut found = None;
        for i in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` entries, and the names live as long as the list.
            let (device, text) = unsafe {
                let device = *list.add(i);
                (device, CStr::from_ptr(verbs.ibv_get_device_name(device)).to_string_lossy().into_owned())
            };
            if text == name {
                found = Some(device);
            }
            names.push(text);
        }
        let raw = found.map(|device| {
            let raw = NonNull::new(open(verbs, device));
            (raw, io::Error::last_os_error())
        });
        // SAFETY: the list from above; an open device does not need the list.
        unsafe { verbs.ibv_free_device_list(list) };
        match raw {
            Some((Some(raw), _)) => {
                let this = Self { verbs, raw, name: name.to_owned() };
                this.do_not_block_on_events();
                Ok(Arc::new(this))
            }
            Some((None, e)) => Err(unavailable(format!("opening {name}: {e}; {}", open_hint(&e)))),
            None if names.is_empty() => Err(unavailable(format!(
                "the kernel shows {name}, but libibverbs shows no device: install ibverbs-providers, and modprobe ib_uverbs"
            ))),
            None => Err(unavailable(format!("libibverbs does not show {name}; it has {}", names.join(", ")))),
        }
    }

    /// Opens a device by name.
    ///
    /// # Errors
    /// See [`Self::open_with`].
    pub fn open(transport: Transport, name: &str) -> Result<Arc<Self>, RdmaError> {
        // SAFETY: a device of the list that `open_with` keeps alive.
        Self::open_with(transport, name, |verbs, device| unsafe { verbs.ibv_open_device(device) })
    }

    pub fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// Returns the device's name in the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Queries the device's limits.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device rejects the query.
    pub fn limits(&self) -> Result<DeviceLimits, RdmaError> {
        // SAFETY: integers, for which zero is a valid value.
        let mut attr: ibv_device_attr = unsafe { zeroed() };
        // SAFETY: an open device; writes the attributes.
        answer(unsafe { self.verbs.ibv_query_device(self.raw(), &mut attr) }, || {
            format!("querying the limits of {}", self.name)
        })?;
        let number = |n: i32| u32::try_from(n).unwrap_or(0);
        let reads = |n: i32| u8::try_from(n.max(0)).unwrap_or(u8::MAX);
        Ok(DeviceLimits {
            requests: number(attr.max_qp_wr),
            pieces: number(attr.max_sge),
            completions: number(attr.max_cqe),
            reads: (reads(attr.max_qp_init_rd_atom), reads(attr.max_qp_rd_atom)),
            atomics: attr.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE,
        })
    }

    /// Queries the properties of a port that queue pairs need.
    ///
    /// # Errors
    /// * [`RdmaError::System`] if the device rejects a query.
    /// * [`RdmaError::Unavailable`] if the port has no GID with the requested index, or reports an undefined path MTU.
    pub fn port(&self, transport: Transport, chosen: &Chosen, choice: &DeviceChoice) -> Result<PortFacts, RdmaError> {
        let number = u8::try_from(chosen.port.number).unwrap_or(u8::MAX);
        // SAFETY: integers, for which zero is a valid value.
        let mut attr: ibv_port_attr = unsafe { zeroed() };
        // SAFETY: an open device; writes the attributes.
        let code = unsafe { sys::query_port(self.verbs, self.raw(), number, &mut attr) };
        answer(code, || format!("querying {chosen}"))?;
        let unavailable = |reason: String| RdmaError::Unavailable { transport, reason };
        let mtu = PathMtu::from_field(attr.active_mtu.0)
            .ok_or_else(|| unavailable(format!("{chosen} reports an invalid path MTU ({})", attr.active_mtu.0)))?;
        let index = choice.gid_index.or(chosen.port.gid.as_ref().map(|g| g.index));
        let entry = index.map(|index| {
            chosen.port.gids.iter().find(|e| e.index == index).ok_or_else(|| {
                let all: Vec<_> = chosen.port.gids.iter().map(|e| format!("{} {}", e.index, e.gid)).collect();
                unavailable(format!("{chosen} has no GID with index {index}; it has {}", all.join(", ")))
            })
        });
        let entry = entry.transpose()?;
        let limits = self.limits()?;
        Ok(PortFacts {
            name: chosen.to_string(),
            port: number,
            link: match chosen.port.link_layer {
                // Links without a name are addressed by GIDs, like Ethernet.
                LinkLayer::Other => LinkLayer::Ethernet,
                known => known,
            },
            mtu,
            lid: attr.lid,
            route_header: attr.flags & GRH_REQUIRED != 0,
            gid: entry.and_then(|e| Some((u8::try_from(e.index).ok()?, e.gid))),
            // Assumes RoCE v2, the usual kind, if the kernel does not report one.
            udp: entry.is_some_and(|e| e.kind != Some(GidKind::InfiniBandOrRoceV1)),
            reads_out: limits.reads.0,
            reads_in: limits.reads.1,
        })
    }

    fn do_not_block_on_events(&self) {
        // SAFETY: the open device's own descriptor, and flags that any descriptor takes.
        unsafe {
            let fd = (*self.raw()).async_fd;
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
    }

    /// Returns the asynchronous events of the device and its queues since the last call, in words.
    pub fn events(&self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let mut event = MaybeUninit::<ibv_async_event>::zeroed();
            // SAFETY: an open device; writes one event if there is one, and does not block.
            if unsafe { self.verbs.ibv_get_async_event(self.raw(), event.as_mut_ptr()) } != 0 {
                return all;
            }
            // SAFETY: written above.
            let kind = unsafe { (*event.as_ptr()).event_type }.0;
            all.push(EVENTS.get(kind as usize).map_or_else(|| format!("event {kind}"), |e| (*e).to_owned()));
            // SAFETY: the event was received above and is acknowledged once.
            unsafe { self.verbs.ibv_ack_async_event(event.as_mut_ptr()) };
        }
    }
}

fn open_hint(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "this process may not use /dev/infiniband/uverbs*: join its group, or give a container --device /dev/infiniband"
        }
        Some(libc::ENOENT) => {
            "there is no /dev/infiniband/uverbs*: modprobe ib_uverbs, or give a container --device /dev/infiniband"
        }
        Some(libc::EOPNOTSUPP) => "the driver does not support it",
        _ => "see dmesg",
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by this type; every object created from it holds it, so none is left.
        unsafe { self.verbs.ibv_close_device(self.raw()) };
    }
}

/// A protection domain, which memory and queue pairs must share.
#[derive(Debug)]
pub(in crate::rdma) struct ProtectionDomain {
    raw: NonNull<ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: verbs calls may come from any thread.
unsafe impl Send for ProtectionDomain {}
// SAFETY: verbs calls may come from any thread, also at the same time (libibverbs is thread-safe).
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device has no more.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, RdmaError> {
        // SAFETY: an open device.
        let raw = NonNull::new(unsafe { context.verbs.ibv_alloc_pd(context.raw()) });
        let raw = raw.ok_or_else(|| failed(format!("allocating a protection domain of {}", context.name)))?;
        Ok(Arc::new(Self { raw, context: context.clone() }))
    }

    pub fn raw(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }

    /// Returns the library that opened the device.
    pub fn verbs(&self) -> &'static Verbs {
        self.context.verbs
    }

    /// Returns the device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: created by this type, and no object created from it is left.
        unsafe { self.context.verbs.ibv_dealloc_pd(self.raw()) };
    }
}
