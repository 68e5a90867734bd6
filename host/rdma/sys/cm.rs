//! Types and functions of rdma-core's librdmacm that a connection needs (`/usr/include/rdma/rdma_cma.h` of rdma-core 44;
//! the layouts are part of the library's binary interface). Fields behind those that are read are left out of the
//! identifier, which only the library allocates.

use super::bindings::{ibv_context, ibv_qp, ibv_qp_attr};
use libc::{c_int, c_void, sockaddr, sockaddr_storage};
use libloading::Library;

/// Port space of reliable connections (`RDMA_PS_TCP`).
pub const PORT_SPACE_TCP: c_int = 0x0106;

#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

/// `rdma_route`: source and destination address, GIDs, path records.
#[repr(C)]
pub struct rdma_route {
    pub src_addr: sockaddr_storage,
    pub dst_addr: sockaddr_storage,
    pub sgid: [u8; 16],
    pub dgid: [u8; 16],
    pub pkey: u16,
    pub path_rec: *mut c_void,
    pub num_paths: c_int,
}

/// Beginning of `rdma_cm_id`.
#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: c_int,
    pub port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// `rdma_cm_event` of a connected service. Its union is as long as that of datagrams, which is not used.
#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: c_int,
    pub status: c_int,
    pub conn: rdma_conn_param,
    _datagram: [u64; 4],
}

// Offsets of the C header on machines with pointers of 64 bits.
const _: () = assert!(std::mem::offset_of!(rdma_cm_id, ps) == 344);
const _: () = assert!(std::mem::offset_of!(rdma_cm_id, port_num) == 348);
const _: () = assert!(size_of::<rdma_route>() == 312);
const _: () = assert!(size_of::<rdma_conn_param>() == 24);
const _: () = assert!(size_of::<rdma_cm_event>() == 80);

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of librdmacm. C's documentation states each function's safety.
        pub struct Cm {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _library: Library,
        }

        impl Cm {
            /// # Safety
            /// The library is librdmacm.
            pub(super) unsafe fn from_library(library: Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the functions' declarations in rdma_cma.h.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }?,)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    rdma_create_event_channel() -> *mut rdma_event_channel;
    rdma_destroy_event_channel(*mut rdma_event_channel);
    rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
    rdma_destroy_id(*mut rdma_cm_id) -> c_int;
    rdma_resolve_addr(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
    rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
    rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    rdma_establish(*mut rdma_cm_id) -> c_int;
    rdma_disconnect(*mut rdma_cm_id) -> c_int;
    rdma_init_qp_attr(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
    rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
}

impl std::fmt::Debug for Cm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cm")
    }
}
