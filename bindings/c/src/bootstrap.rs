//! The ways by which the ranks of a world find each other, besides the launcher's environment.

use crate::error::{Error, guard, wb_code};
use crate::pointer::{Out, Text};
use crate::region::{Foreign, wb_release_function};
use std::any::Any;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use warpbell::shmem::bootstrap::store::MAX_BYTES;
use warpbell::shmem::bootstrap::{Bootstrap, BootstrapError, Secret, UniqueId};

/// An id by which the ranks of one world find each other: the address of rank 0, and a secret that only the ranks may see.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_unique_id {
    /// The id. A program copies it and does not look inside.
    pub bytes: [u8; 128],
}

// The header has the number, which cbindgen takes from no constant of another package.
const _: () = assert!(size_of::<wb_unique_id>() == UniqueId::BYTES);

/// Creates an id, in the process of rank 0. The program passes it to all ranks by its own means, which set it in
/// `wb_world_options`. The process listens for the others until rank 0 releases its world. An id serves one world.
///
/// @param host Address, interface or name by which all ranks reach this host. Null for `WARPBELL_INTERFACE`, otherwise the
///   address of the route to the outside.
/// @param id Receives the id.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if `host` is no address or interface of this host, and no name that
///   resolves. A name is not compared with this host's addresses; `WB_ERR_IO` if no socket can listen there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_unique_id_create(host: Text, id: Out<wb_unique_id>) -> wb_code {
    guard(|| {
        id.check("id")?;
        let made = UniqueId::create(host.optional("host")?)?;
        id.write("id", wb_unique_id { bytes: made.to_bytes() })
    })
}

/// Function of the program that sends `count` bytes to all ranks and receives as many from each: `all` has space for
/// `count` bytes of every rank, and gets them in the order of the ranks. `MPI_Allgather` with `MPI_BYTE` does so.
///
/// The library calls it on the threads that make collective calls of the world, and on the one that releases the world last;
/// never twice at a time for one world. If a run or a stream holds the world last, that is a thread of the library: finish runs and
/// synchronize streams before the world is released. It returns 0, or another number if the exchange failed. It returns an error as well
/// if a rank does not call for a long time: the library cannot end the wait. It does not throw.
pub type wb_allgather_function =
    Option<unsafe extern "C" fn(argument: *mut c_void, bytes: *const c_void, count: usize, all: *mut c_void) -> c_int>;

/// The exchange of the program, as the library uses it.
pub(crate) struct Callback {
    rank: usize,
    size: usize,
    function: unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void) -> c_int,
    argument: *mut c_void,
    /// Tells the program that the callback is no longer used.
    _used: Arc<Foreign>,
    /// A secret of rank 0 that all ranks have.
    secret: Option<Secret>,
    /// Serialises the exchanges of this rank.
    call: Mutex<()>,
}

// SAFETY: the header says that the function is called on any thread that makes collective calls.
unsafe impl Send for Callback {}
// SAFETY: the lock allows one call at a time; the rest does not change.
unsafe impl Sync for Callback {}

/// Bytes of a generated secret.
const SECRET_BYTES: usize = 64;

impl Callback {
    /// Meets the other ranks: checks that the exchange keeps the order of ranks, and passes on a secret.
    pub(crate) fn meet(
        (rank, size): (usize, usize),
        function: unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void) -> c_int,
        argument: *mut c_void,
        release: wb_release_function,
    ) -> Result<(Self, Arc<Foreign>), Error> {
        if rank >= size {
            return Err(BootstrapError::NoRank { rank, size }.into());
        }
        let foreign = Foreign::new(release, argument);
        let _used = foreign.clone();
        let mut made = Self { rank, size, function, argument, _used, secret: None, call: Mutex::new(()) };
        let mut hello = Vec::with_capacity(16 + SECRET_BYTES);
        hello.extend((rank as u64).to_le_bytes());
        hello.extend((size as u64).to_le_bytes());
        hello.extend(Secret::generate()?.into_bytes());
        let all = made.gather(&hello)?;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or([0xff; 8]));
        for (place, hello) in all.chunks_exact(hello.len()).enumerate() {
            let (from, of) = (word(&hello[..8]), word(&hello[8..16]));
            if from != place as u64 || of != size as u64 {
                let text = format!(
                    "the program's allgather put the bytes of rank {from} of {of} at place {place} of {size}; ranks and their number have to be those of the exchange"
                );
                return Err(BootstrapError::Disagree(text).into());
            }
        }
        made.secret = Secret::new(&all[16..hello.len()]).ok();
        Ok((made, foreign))
    }

    /// Exchanges bytes of equal number.
    fn gather(&self, bytes: &[u8]) -> Result<Vec<u8>, BootstrapError> {
        let most = MAX_BYTES;
        let total = bytes.len().checked_mul(self.size).filter(|total| isize::try_from(*total).is_ok());
        let mut all = Vec::new();
        let reserved = total.map(|total| all.try_reserve_exact(total).map(|()| all.resize(total, 0)));
        let Some(Ok(())) = reserved else { return Err(BootstrapError::TooLarge { bytes: bytes.len(), most }) };
        // SAFETY: the program passed function and argument together, and the lengths are those that the header names.
        let code =
            unsafe { (self.function)(self.argument, bytes.as_ptr().cast(), bytes.len(), all.as_mut_ptr().cast()) };
        if code != 0 {
            let reason = format!("it returned {code} to rank {} of {}", self.rank, self.size);
            return Err(BootstrapError::System { what: "the program's allgather failed", reason });
        }
        Ok(all)
    }
}

impl Bootstrap for Callback {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn allgather(&self, bytes: &[u8], _: Duration) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let _one = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let lengths = self.gather(&(bytes.len() as u64).to_le_bytes())?;
        let length = |part: &[u8]| usize::try_from(u64::from_le_bytes(part.try_into().unwrap_or_default()));
        let lengths: Vec<usize> = lengths.chunks_exact(8).map(|l| length(l).unwrap_or(usize::MAX)).collect();
        let most = lengths.iter().copied().max().unwrap_or(0);
        // All ranks know all lengths, so all fail, and none waits for the others.
        if most > MAX_BYTES {
            return Err(BootstrapError::TooLarge { bytes: most, most: MAX_BYTES });
        }
        if most == 0 {
            return Ok(vec![Vec::new(); self.size]);
        }
        let mut padded = bytes.to_vec();
        padded.resize(most, 0);
        let all = self.gather(&padded)?;
        Ok(all.chunks_exact(most).zip(lengths).map(|(part, length)| part[..length].to_vec()).collect())
    }

    fn leave_after_others(&self, leave: &[u8], what: Box<dyn Any + Send + Sync>, within: Duration) {
        // The program's function takes its own time. Where there is none to lose, it is not called.
        if !within.is_zero() {
            let _ = self.allgather(leave, within);
        }
        drop(what);
        self.leave();
    }

    fn key(&self, purpose: &str) -> Option<[u8; 32]> {
        self.secret.as_ref().map(|secret| secret.key(purpose))
    }

    fn via(&self) -> String {
        "the program's allgather".to_owned()
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Callback(rank {} of {})", self.rank, self.size)
    }
}
