//! Which engine tests run on: CPU threads, or GPUs where `WARPBELL_TEST_ENGINE` is `gpu`.

use super::Engine;
use crate::cuda::DeviceInfo;

/// The engine of PE `i`: the GPUs of the machine in turn, or CPU threads.
pub(crate) fn engine(i: usize) -> Engine {
    match std::env::var("WARPBELL_TEST_ENGINE").as_deref() {
        Ok("gpu") => Engine::gpu(i % DeviceInfo::all().unwrap().len()).unwrap(),
        Ok(other) => panic!("WARPBELL_TEST_ENGINE is `{other}`: leave it out, or write gpu"),
        Err(_) => Engine::cpu().unwrap(),
    }
}
