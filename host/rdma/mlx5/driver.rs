//! `libmlx5.so.1`: the calls of `mlx5dv.h` that verbs' bindings lack, found by name when they are needed.

use super::adapter::{Facts, Memories, Mlx5Adapter};
use super::devx::{Devx, DevxObject, Uar, UarKind, Umem, UmemSource};
use crate::memory::Space;
use crate::rdma::proxy::link;
use crate::rdma::verbs::{Context, ProtectionDomain, Registrar, address_handle};
use crate::rdma::{Chosen, DeviceChoice, MemoryRange, RdmaError, Registration, Rights, Route, TrafficClass, Transport};
use libc::{c_char, c_int, c_void, off_t};
use rdma_sys::{ibv_ah, ibv_context, ibv_create_ah, ibv_destroy_ah, ibv_device, ibv_pd};
use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, OnceLock};

/// The context can give commands to the firmware (`MLX5DV_CONTEXT_FLAGS_DEVX`).
const CONTEXT_DEVX: u32 = 1;
/// `mlx5dv_init_obj` is asked about an address handle, or a protection domain.
const OBJ_AH: u64 = 1 << 5;
const OBJ_PD: u64 = 1 << 6;
/// The memory is given as a dma-buf (`MLX5DV_UMEM_MASK_DMABUF`).
const UMEM_DMABUF: u64 = 1;
/// The NIC writes to it (`IBV_ACCESS_LOCAL_WRITE`).
const UMEM_WRITE: u32 = 1;
/// Where the hardware address is in `struct mlx5_wqe_av`.
const AV_RMAC: usize = 20;

#[repr(C)]
struct ContextAttr {
    flags: u32,
    comp_mask: u64,
}

#[repr(C)]
struct UmemIn {
    addr: *mut c_void,
    size: usize,
    access: u32,
    pgsz_bitmap: u64,
    comp_mask: u64,
    dmabuf_fd: c_int,
}

#[repr(C)]
struct RawUar {
    reg_addr: *mut c_void,
    base_addr: *mut c_void,
    page_id: u32,
    mmap_off: off_t,
    comp_mask: u64,
}

#[repr(C)]
struct RawUmem {
    umem_id: u32,
}

#[repr(C)]
struct PdOut {
    pdn: u32,
    comp_mask: u64,
}

#[repr(C)]
struct AhOut {
    av: *mut u8,
    comp_mask: u64,
}

/// `struct mlx5dv_obj`: what is asked about, and where the answer goes, for each kind of object.
#[repr(C)]
struct Obj {
    others: [[*mut c_void; 2]; 5],
    ah: (*mut ibv_ah, *mut AhOut),
    pd: (*mut ibv_pd, *mut PdOut),
}

/// An object of the firmware, as libmlx5 has it.
type RawObject = c_void;

macro_rules! library {
    ($($name:ident: fn($($arg:ty),*) -> $out:ty;)*) => {
        /// The functions.
        #[derive(Debug)]
        struct Library {
            $($name: unsafe extern "C" fn($($arg),*) -> $out,)*
        }

        impl Library {
            fn load() -> Result<Self, String> {
                // SAFETY: loads NVIDIA's provider, whose initialisers registers it with libibverbs and nothing more.
                let handle = unsafe { libc::dlopen(c"libmlx5.so.1".as_ptr(), libc::RTLD_NOW) };
                if handle.is_null() {
                    return Err(format!("libmlx5.so.1 cannot be loaded ({}); install ibverbs-providers", last_error()));
                }
                Ok(Self {
                    $($name: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!("mlx5dv_", stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("a name without zeros"),
                        };
                        // SAFETY: an open library and a name.
                        let p = unsafe { libc::dlsym(handle, NAME.as_ptr()) };
                        if p.is_null() {
                            return Err(format!("libmlx5.so.1 has no {}; install rdma-core 44 or later", NAME.to_string_lossy()));
                        }
                        // SAFETY: the function of this name has this type (mlx5dv.h).
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $out>(p) }
                    },)*
                })
            }
        }
    };
}

library! {
    is_supported: fn(*mut ibv_device) -> bool;
    open_device: fn(*mut ibv_device, *mut ContextAttr) -> *mut ibv_context;
    init_obj: fn(*mut Obj, u64) -> c_int;
    devx_general_cmd: fn(*mut ibv_context, *const c_void, usize, *mut c_void, usize) -> c_int;
    devx_obj_create: fn(*mut ibv_context, *const c_void, usize, *mut c_void, usize) -> *mut RawObject;
    devx_obj_modify: fn(*mut RawObject, *const c_void, usize, *mut c_void, usize) -> c_int;
    devx_obj_query: fn(*mut RawObject, *const c_void, usize, *mut c_void, usize) -> c_int;
    devx_obj_destroy: fn(*mut RawObject) -> c_int;
    devx_umem_reg: fn(*mut ibv_context, *mut c_void, usize, u32) -> *mut RawUmem;
    devx_umem_reg_ex: fn(*mut ibv_context, *mut UmemIn) -> *mut RawUmem;
    devx_umem_dereg: fn(*mut RawUmem) -> c_int;
    devx_alloc_uar: fn(*mut ibv_context, u32) -> *mut RawUar;
    devx_free_uar: fn(*mut RawUar) -> ();
    devx_query_eqn: fn(*mut ibv_context, u32, *mut u32) -> c_int;
}

fn last_error() -> String {
    // SAFETY: text of the loader, or null; copied at once.
    let text: *const c_char = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null, and ends with a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Library {
    fn get() -> Result<&'static Self, String> {
        static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
        LOADED.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }
}

/// A call that returns an error number, or -1 and sets errno.
fn answer(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}

/// A NIC, opened through libmlx5.
#[derive(Debug)]
struct Nic {
    library: &'static Library,
    domain: Arc<ProtectionDomain>,
    pdn: u32,
}

impl Nic {
    fn open(name: &str) -> Result<Self, RdmaError> {
        let unavailable = |reason: String| RdmaError::Unavailable { transport: Transport::Mlx5, reason };
        let library = Library::get().map_err(unavailable)?;
        let mut supported = true;
        let context = Context::open_with(Transport::Mlx5, name, |device| {
            // SAFETY: a device of the list that `open_with` holds.
            supported = unsafe { (library.is_supported)(device) };
            if !supported {
                return null_mut();
            }
            let mut attr = ContextAttr { flags: CONTEXT_DEVX, comp_mask: 0 };
            // SAFETY: as above; the attributes are read during the call.
            unsafe { (library.open_device)(device, &mut attr) }
        });
        let context = context.map_err(|e| match supported {
            true => unavailable(format!(
                "{e}; if the device opens without DevX (`ibv_devinfo -d {name}`), its firmware or this process's rights forbid commands: a \
                 container needs /dev/infiniband and CAP_NET_RAW, virtual functions UCTX_EN"
            )),
            false => unavailable(format!("libmlx5 does not drive {name}; use transport verbs")),
        })?;
        let domain = ProtectionDomain::new(&context)?;
        let mut out = PdOut { pdn: 0, comp_mask: 0 };
        let mut obj = Obj { others: [[null_mut(); 2]; 5], ah: (null_mut(), null_mut()), pd: (domain.raw(), &mut out) };
        // SAFETY: a live protection domain of an mlx5 device; writes its number.
        answer(unsafe { (library.init_obj)(&mut obj, OBJ_PD) }).map_err(|source| RdmaError::System {
            what: format!("asking {name} for a protection domain's number"),
            source,
        })?;
        Ok(Self { library, domain, pdn: out.pdn })
    }

    fn context(&self) -> *mut ibv_context {
        self.domain.context().raw()
    }
}

impl Devx for Nic {
    fn command(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let (i, o) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: an open device; reads and writes the buffers, whose lengths are given.
        answer(unsafe { (self.library.devx_general_cmd)(self.context(), i, input.len(), o, output.len()) })
    }

    fn create(&self, input: &[u8], output: &mut [u8]) -> io::Result<Box<dyn DevxObject>> {
        let (i, o) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: as above.
        let raw = unsafe { (self.library.devx_obj_create)(self.context(), i, input.len(), o, output.len()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Box::new(Object { library: self.library, raw, _domain: self.domain.clone() }))
    }

    fn alloc_uar(&self, kind: UarKind) -> io::Result<Arc<dyn Uar>> {
        // SAFETY: an open device.
        let raw = unsafe { (self.library.devx_alloc_uar)(self.context(), kind as u32) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: given by the driver, alive until freed.
        let (page, register) = unsafe { ((*raw.as_ptr()).page_id, (*raw.as_ptr()).reg_addr) };
        let page = Page {
            library: self.library,
            raw,
            page,
            register: NonNull::new(register.cast()),
            _domain: self.domain.clone(),
        };
        match page.register {
            Some(_) => Ok(Arc::new(page)),
            None => Err(io::Error::other("the driver mapped no register")),
        }
    }

    fn register(&self, source: UmemSource<'_>, bytes: usize) -> io::Result<Box<dyn Umem>> {
        let raw = match source {
            // SAFETY: the kernel pins the memory or refuses; its owner keeps it until this is given back.
            UmemSource::Address(address) => unsafe {
                (self.library.devx_umem_reg)(self.context(), address as *mut c_void, bytes, UMEM_WRITE)
            },
            UmemSource::DmaBuf(fd) => {
                let page = 4096u64;
                let mut input = UmemIn {
                    // An offset in the dma-buf.
                    addr: null_mut(),
                    size: bytes,
                    access: UMEM_WRITE,
                    // Any page size of the system's and above.
                    pgsz_bitmap: !(page - 1),
                    comp_mask: UMEM_DMABUF,
                    dmabuf_fd: fd.as_raw_fd(),
                };
                // SAFETY: an open device and descriptor; the kernel holds the dma-buf after the call.
                unsafe { (self.library.devx_umem_reg_ex)(self.context(), &mut input) }
            }
        };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Box::new(QueueMemoryId { library: self.library, raw, _domain: self.domain.clone() }))
    }

    fn event_queue(&self) -> io::Result<u32> {
        let mut eqn = 0;
        // SAFETY: an open device; writes one number.
        answer(unsafe { (self.library.devx_query_eqn)(self.context(), 0, &mut eqn) })?;
        Ok(eqn)
    }

    fn protection_domain(&self) -> u32 {
        self.pdn
    }

    fn remote_mac(&self, route: &Route) -> io::Result<[u8; 6]> {
        let mut attr = address_handle(route);
        // SAFETY: a live protection domain; the attributes are read during the call.
        let ah = NonNull::new(unsafe { ibv_create_ah(self.domain.raw(), &mut attr) })
            .ok_or_else(io::Error::last_os_error)?;
        let mut out = AhOut { av: null_mut(), comp_mask: 0 };
        let mut obj = Obj { others: [[null_mut(); 2]; 5], ah: (ah.as_ptr(), &mut out), pd: (null_mut(), null_mut()) };
        // SAFETY: a live handle of an mlx5 device; writes where its address vector is.
        let asked = answer(unsafe { (self.library.init_obj)(&mut obj, OBJ_AH) });
        let mut mac = [0; 6];
        if asked.is_ok() && !out.av.is_null() {
            // SAFETY: an address vector has 48 bytes and lives as long as its handle.
            unsafe { std::ptr::copy_nonoverlapping(out.av.add(AV_RMAC), mac.as_mut_ptr(), mac.len()) };
        }
        // SAFETY: made above, and used no more.
        unsafe { ibv_destroy_ah(ah.as_ptr()) };
        asked.map(|()| mac)
    }
}

#[derive(Debug)]
struct Object {
    library: &'static Library,
    raw: NonNull<RawObject>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libmlx5's calls may come from any thread.
unsafe impl Send for Object {}
// SAFETY: as above; changes of state are `&mut`, and its queue pair asks one question at a time.
unsafe impl Sync for Object {}

impl DevxObject for Object {
    fn modify(&mut self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let (i, o) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: a live object; reads and writes the buffers, whose lengths are given.
        answer(unsafe { (self.library.devx_obj_modify)(self.raw.as_ptr(), i, input.len(), o, output.len()) })
    }

    fn query(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let (i, o) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: as above.
        answer(unsafe { (self.library.devx_obj_query)(self.raw.as_ptr(), i, input.len(), o, output.len()) })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: made by `create`, destroyed once.
        let answer = answer(unsafe { (self.library.devx_obj_destroy)(self.raw.as_ptr()) });
        if let Err(e) = answer {
            tracing::warn!("an object of the NIC cannot be destroyed ({e}): its memory may still be written");
        }
    }
}

#[derive(Debug)]
struct QueueMemoryId {
    library: &'static Library,
    raw: NonNull<RawUmem>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libmlx5's calls may come from any thread.
unsafe impl Send for QueueMemoryId {}
// SAFETY: as above; its number does not change.
unsafe impl Sync for QueueMemoryId {}

impl Umem for QueueMemoryId {
    fn id(&self) -> u32 {
        // SAFETY: alive until given back.
        unsafe { (*self.raw.as_ptr()).umem_id }
    }
}

impl Drop for QueueMemoryId {
    fn drop(&mut self) {
        // SAFETY: made by `register`, given back once.
        unsafe { (self.library.devx_umem_dereg)(self.raw.as_ptr()) };
    }
}

#[derive(Debug)]
struct Page {
    library: &'static Library,
    raw: NonNull<RawUar>,
    page: u32,
    register: Option<NonNull<u8>>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libmlx5's calls may come from any thread.
unsafe impl Send for Page {}
// SAFETY: as above; numbers that do not change.
unsafe impl Sync for Page {}

impl Uar for Page {
    fn page(&self) -> u32 {
        self.page
    }
    fn register(&self) -> NonNull<u8> {
        // `alloc_uar` gives out none without.
        self.register.unwrap_or(NonNull::dangling())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: made by `alloc_uar`, given back once.
        unsafe { (self.library.devx_free_uar)(self.raw.as_ptr()) };
    }
}

impl Memories for Registrar {
    fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        Registrar::register(self, memory, rights)
    }
    fn way(&self) -> String {
        Registrar::way(self).to_string()
    }
}

impl Mlx5Adapter {
    /// Opens a NIC.
    ///
    /// # Errors
    /// When libmlx5 cannot be loaded, the device not be opened with DevX, or it lacks what kernels need.
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
        Self::new(Box::new(nic), Box::new(registrar), facts, choice, space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!((size_of::<ContextAttr>(), size_of::<UmemIn>(), size_of::<RawUar>()), (16, 48, 40));
        assert_eq!((offset_of!(UmemIn, pgsz_bitmap), offset_of!(UmemIn, dmabuf_fd)), (24, 40));
        assert_eq!((offset_of!(RawUar, page_id), offset_of!(RawUar, mmap_off)), (16, 24));
        assert_eq!((offset_of!(Obj, ah), offset_of!(Obj, pd), size_of::<Obj>()), (80, 96, 112));
    }

    #[test]
    fn the_library_is_whole_or_says_what_it_lacks() {
        match Library::get() {
            Ok(_) => {}
            Err(e) => assert!(e.contains("libmlx5") && e.contains("install"), "{e}"),
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let e = Nic::open("mlx5_none").unwrap_err().to_string();
        assert!(e.starts_with("mlx5 adapter: "), "{e}");
    }
}
