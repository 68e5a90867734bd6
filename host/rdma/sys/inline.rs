//! Verbs that rdma-core's headers define as `static inline` functions, so that no library exports them. Like the
//! headers, they call the driver through the operation table of the context (`/usr/include/infiniband/verbs.h` of
//! rdma-core 44).

use super::bindings::{
    Verbs, ibv_context, ibv_cq, ibv_port_attr, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc, verbs_context,
};
use libc::c_int;
use std::mem::offset_of;

/// Value of `ibv_context::abi_compat` if the context is the end of a `verbs_context` (`__VERBS_ABI_IS_EXTENDED`).
const EXTENDED: usize = usize::MAX;

/// Takes completions (`ibv_poll_cq`). Returns their number, or a negative number on failure.
///
/// # Safety
/// The queue is alive, and `entries` has space for `count` entries.
pub(in crate::rdma) unsafe fn poll_cq(cq: *mut ibv_cq, count: c_int, entries: *mut ibv_wc) -> c_int {
    // SAFETY: an object of libibverbs points to its context, which outlives it.
    match unsafe { (*(*cq).context).ops.poll_cq } {
        // SAFETY: the caller's promise.
        Some(poll) => unsafe { poll(cq, count, entries) },
        None => -libc::EOPNOTSUPP,
    }
}

/// Posts send requests (`ibv_post_send`). Returns 0 or an error number.
///
/// # Safety
/// The queue pair is alive, the requests and their lists are valid, and `bad` may be written.
pub(in crate::rdma) unsafe fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: an object of libibverbs points to its context, which outlives it.
    match unsafe { (*(*qp).context).ops.post_send } {
        // SAFETY: the caller's promise.
        Some(post) => unsafe { post(qp, wr, bad) },
        None => libc::EOPNOTSUPP,
    }
}

/// Posts receive requests (`ibv_post_recv`). Returns 0 or an error number.
///
/// # Safety
/// See [`post_send`].
pub(in crate::rdma) unsafe fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: an object of libibverbs points to its context, which outlives it.
    match unsafe { (*(*qp).context).ops.post_recv } {
        // SAFETY: the caller's promise.
        Some(post) => unsafe { post(qp, wr, bad) },
        None => libc::EOPNOTSUPP,
    }
}

/// Reads a port's attributes (`___ibv_query_port`). Returns 0 or an error number.
///
/// Extended contexts that are long enough have a function with an argument for the size of the attributes. For other
/// contexts the library's own function fills the oldest part of the attributes, and the rest stays zero.
///
/// # Safety
/// The context is open, and `attr` may be written.
pub(in crate::rdma) unsafe fn query_port(
    verbs: &Verbs,
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    let extended = unsafe { query_port_of(context) };
    match extended {
        // SAFETY: the caller's promise; the size is that of the structure that may be written.
        Some(query) => unsafe { query(context, port, attr, size_of::<ibv_port_attr>()) },
        // SAFETY: the caller's promise; the extended attributes begin with those that this function writes.
        None => unsafe {
            attr.write_bytes(0, 1);
            verbs.ibv_query_port(context, port, attr.cast())
        },
    }
}

type QueryPort = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int;

/// Returns the extension's function, if there is one (`verbs_get_ctx_op`).
///
/// # Safety
/// The context is open.
unsafe fn query_port_of(context: *mut ibv_context) -> Option<QueryPort> {
    // SAFETY: the caller's promise.
    if unsafe { (*context).abi_compat }.addr() != EXTENDED {
        return None;
    }
    let before = offset_of!(verbs_context, context);
    // SAFETY: such a context is the last field of a `verbs_context`. This build may know more leading fields than the
    // library has. None is read before `sz`, which follows them, has shown that it exists.
    unsafe {
        let extension = context.cast::<u8>().sub(before).cast::<verbs_context>();
        let has = (&raw const (*extension).sz).read();
        match has < size_of::<verbs_context>() - offset_of!(verbs_context, query_port) {
            true => None,
            false => (&raw const (*extension).query_port).read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::zeroed;
    use std::ptr::{null_mut, without_provenance_mut};

    const LID: u16 = 0x1234;

    unsafe extern "C" fn query(_: *mut ibv_context, port: u8, attr: *mut ibv_port_attr, bytes: usize) -> c_int {
        assert_eq!((port, bytes), (1, size_of::<ibv_port_attr>()));
        // SAFETY: the attributes of the caller.
        unsafe { (*attr).lid = LID };
        0
    }

    #[test]
    fn the_extension_is_asked_where_it_is_long_enough() {
        // SAFETY: integers and pointers, for which zero is a value.
        let mut all: verbs_context = unsafe { zeroed() };
        all.query_port = Some(query);
        let whole = size_of::<verbs_context>() - offset_of!(verbs_context, query_port);
        for (compat, bytes, there) in [
            (without_provenance_mut(EXTENDED), whole, true),
            (without_provenance_mut(EXTENDED), whole - 1, false),
            (null_mut(), whole, false),
        ] {
            all.sz = bytes;
            all.context.abi_compat = compat;
            // The context is reached through the whole structure, as with a provider.
            let extension = &raw mut all;
            // SAFETY: a context at the end of its extension.
            let found = unsafe { query_port_of(&raw mut (*extension).context) };
            assert_eq!(found.is_some(), there, "{bytes}");
            let Some(found) = found else { continue };
            // SAFETY: integers, for which zero is a value.
            let mut attr: ibv_port_attr = unsafe { zeroed() };
            // SAFETY: the function of this test.
            assert_eq!(unsafe { found(null_mut(), 1, &mut attr, size_of::<ibv_port_attr>()) }, 0);
            assert_eq!(attr.lid, LID);
        }
    }

    #[test]
    fn a_table_without_the_operation_refuses() {
        // SAFETY: integers and pointers, for which zero is a value.
        let (mut context, mut qp, mut cq): (ibv_context, ibv_qp, ibv_cq) = unsafe { zeroed() };
        qp.context = &mut context;
        cq.context = &mut context;
        // SAFETY: objects of this test, which no operation reads.
        unsafe {
            assert_eq!(post_send(&mut qp, null_mut(), null_mut()), libc::EOPNOTSUPP);
            assert_eq!(post_recv(&mut qp, null_mut(), null_mut()), libc::EOPNOTSUPP);
            assert!(poll_cq(&mut cq, 1, null_mut()) < 0);
        }
    }
}
