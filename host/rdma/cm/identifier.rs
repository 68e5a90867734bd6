//! Connection identifiers of librdmacm.

use super::event::{Event, Kind, no_path};
use super::{Identifier, LocalEnd, Request};
use crate::rdma::connection::RETRIES;
use crate::rdma::sys::cm::{Cm, PORT_SPACE_TCP, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use crate::rdma::sys::{self, Verbs, ibv_qp_attr, ibv_qp_state as state};
use crate::rdma::{Gid, PathMtu, RdmaError, Route, TrafficClass, Transport};
use socket2::SockAddr;
use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

/// RNR retries of the other end: without limit, as NVMe RDMA Transport 1.0, 3.2.1 demands.
const RNR_FOREVER: u8 = 7;

/// An identifier with an event channel of its own.
#[derive(Debug)]
pub(super) struct CmIdentifier {
    cm: &'static Cm,
    verbs: &'static Verbs,
    raw: NonNull<rdma_cm_id>,
    channel: NonNull<rdma_event_channel>,
    /// True from the reply to the request on.
    connected: bool,
}

// SAFETY: librdmacm's calls may come from any thread; `&mut self` and the owner's lock serialise those of one identifier.
unsafe impl Send for CmIdentifier {}

impl CmIdentifier {
    /// Creates an identifier.
    ///
    /// # Errors
    /// * [`RdmaError::Library`] if librdmacm or libibverbs is missing or too old.
    /// * [`RdmaError::Unavailable`] if this process cannot use the kernel's connection manager.
    pub fn new() -> Result<Self, RdmaError> {
        let (cm, verbs) = (sys::cm()?, sys::verbs()?);
        let failed = |what: &str| {
            let e = io::Error::last_os_error();
            let reason = format!("{what}: {e}; {}", hint(&e));
            RdmaError::Unavailable { transport: Transport::Verbs, reason }
        };
        // SAFETY: no arguments.
        let channel = NonNull::new(unsafe { (cm.rdma_create_event_channel)() });
        let channel = channel.ok_or_else(|| failed("opening /dev/infiniband/rdma_cm"))?;
        let mut raw = null_mut();
        // SAFETY: the channel from above, and a place for the identifier.
        let code = unsafe { (cm.rdma_create_id)(channel.as_ptr(), &mut raw, null_mut(), PORT_SPACE_TCP) };
        let raw = NonNull::new(raw).filter(|_| code == 0).ok_or_else(|| {
            let e = failed("creating a connection identifier");
            // SAFETY: created above, and no identifier uses it.
            unsafe { (cm.rdma_destroy_event_channel)(channel.as_ptr()) };
            e
        })?;
        let this = Self { cm, verbs, raw, channel, connected: false };
        // SAFETY: the channel's own descriptor, and flags that any descriptor takes.
        unsafe {
            let flags = libc::fcntl(this.descriptor(), libc::F_GETFL);
            libc::fcntl(this.descriptor(), libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        Ok(this)
    }

    /// Returns the attributes for moving a queue pair to a state.
    fn attributes(&mut self, to: state) -> Result<ibv_qp_attr, RdmaError> {
        // SAFETY: integers and bytes, for which zero is a valid value.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        attr.qp_state = to;
        let mut mask = 0;
        // SAFETY: an identifier that is alive; writes the attributes and their mask.
        result(unsafe { (self.cm.rdma_init_qp_attr)(self.raw.as_ptr(), &mut attr, &mut mask) }).map_err(|source| {
            RdmaError::System { what: "reading the attributes of a connection (rdma_init_qp_attr)".to_owned(), source }
        })?;
        Ok(attr)
    }
}

fn hint(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "this process may not use it: join its group, or give a container --device /dev/infiniband"
        }
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOSYS) => {
            "modprobe rdma_ucm, or give a container --device /dev/infiniband"
        }
        _ => "see dmesg",
    }
}

/// Converts the result of a call of librdmacm, which sets errno.
fn result(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn milliseconds(d: Duration) -> i32 {
    d.as_millis().clamp(1, 3_600_000) as i32
}

impl Identifier for CmIdentifier {
    fn resolve_address(&mut self, to: SocketAddr, limit: Duration) -> io::Result<()> {
        let to = SockAddr::from(to);
        // SAFETY: an identifier that is alive, no source address, and a destination that the call copies.
        result(unsafe {
            let to = to.as_ptr().cast_mut().cast();
            (self.cm.rdma_resolve_addr)(self.raw.as_ptr(), null_mut(), to, milliseconds(limit))
        })
        .map_err(no_path)
    }

    fn resolve_route(&mut self, limit: Duration) -> io::Result<()> {
        // SAFETY: an identifier that is alive.
        result(unsafe { (self.cm.rdma_resolve_route)(self.raw.as_ptr(), milliseconds(limit)) }).map_err(no_path)
    }

    fn local_end(&self) -> Option<LocalEnd> {
        // SAFETY: an identifier that is alive; its device, once there is one, stays open as long as the library is loaded.
        unsafe {
            let id = self.raw.as_ref();
            let context = id.verbs.as_ref()?;
            let name = CStr::from_ptr(self.verbs.ibv_get_device_name(context.device));
            let device = name.to_string_lossy().into_owned();
            Some(LocalEnd { device, port: id.port_num, gid: Gid(id.route.sgid) })
        }
    }

    fn request(&mut self, request: Request<'_>) -> io::Result<()> {
        // SAFETY: integers and a pointer, for which zero is a valid value.
        let mut param: rdma_conn_param = unsafe { zeroed() };
        param.private_data = request.private.as_ptr().cast();
        param.private_data_len =
            u8::try_from(request.private.len()).map_err(|_| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
        param.responder_resources = request.reads_in;
        param.flow_control = 1;
        param.retry_count = RETRIES;
        param.rnr_retry_count = RNR_FOREVER;
        param.qp_num = request.queue;
        // SAFETY: an identifier that is alive; the call copies the parameters and the private data.
        result(unsafe { (self.cm.rdma_connect)(self.raw.as_ptr(), &mut param) })
    }

    fn route(&mut self) -> Result<Route, RdmaError> {
        self.connected = true;
        let receive = self.attributes(state::IBV_QPS_RTR)?;
        let send = self.attributes(state::IBV_QPS_RTS)?;
        let path = &receive.ah_attr;
        let global = path.is_global != 0;
        // SAFETY: bytes.
        let gid = unsafe { path.grh.dgid.raw };
        let mtu = PathMtu::from_field(receive.path_mtu.0).ok_or_else(|| RdmaError::System {
            what: format!("the connection manager tells the undefined path MTU {}", receive.path_mtu.0),
            source: io::ErrorKind::InvalidData.into(),
        })?;
        Ok(Route {
            remote: receive.dest_qp_num,
            receive_psn: receive.rq_psn,
            send_psn: send.sq_psn,
            mtu,
            port: path.port_num,
            ethernet: path.dlid == 0,
            lid: path.dlid,
            global: global.then_some((path.grh.sgid_index, Gid(gid))),
            traffic_class: TrafficClass(path.grh.traffic_class),
            service_level: path.sl,
            reads_out: send.max_rd_atomic,
            reads_in: receive.max_dest_rd_atomic,
            ack_timeout: send.timeout,
            // Used only for queue pairs whose attributes have it; the kernel chooses it for those of verbs.
            udp_source: 0,
        })
    }

    fn establish(&mut self) -> io::Result<()> {
        // SAFETY: an identifier that is alive.
        result(unsafe { (self.cm.rdma_establish)(self.raw.as_ptr()) })
    }

    fn next(&mut self) -> io::Result<Option<Event>> {
        let mut event: *mut rdma_cm_event = null_mut();
        // SAFETY: a channel that is alive; its descriptor does not block.
        match result(unsafe { (self.cm.rdma_get_cm_event)(self.channel.as_ptr(), &mut event) }) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Ok(None),
            Err(e) => return Err(e),
        }
        // SAFETY: an event that the call has returned. Its private data lives until it is acknowledged, once, below.
        unsafe {
            let e = &*event;
            let (data, bytes) = (e.conn.private_data.cast::<u8>(), usize::from(e.conn.private_data_len));
            // Other kinds have none, or another member of the union.
            let private = match Kind(e.event) {
                Kind::RESPONSE | Kind::REJECTED | Kind::ESTABLISHED if !data.is_null() => {
                    std::slice::from_raw_parts(data, bytes).to_vec()
                }
                _ => Vec::new(),
            };
            let copy = Event { kind: Kind(e.event), status: e.status, private };
            (self.cm.rdma_ack_cm_event)(event);
            Ok(Some(copy))
        }
    }

    fn descriptor(&self) -> RawFd {
        // SAFETY: a channel that is alive.
        unsafe { self.channel.as_ref() }.fd
    }
}

impl Drop for CmIdentifier {
    fn drop(&mut self) {
        // SAFETY: created by `new`; all events were acknowledged, so the calls do not wait for any. The identifier goes
        // before its channel.
        unsafe {
            if self.connected {
                (self.cm.rdma_disconnect)(self.raw.as_ptr());
            }
            (self.cm.rdma_destroy_id)(self.raw.as_ptr());
            (self.cm.rdma_destroy_event_channel)(self.channel.as_ptr());
        }
    }
}
