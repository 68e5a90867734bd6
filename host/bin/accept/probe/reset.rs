//! A reset of the controller while kernels read and write.

use super::{DeviceProbeArgs, volume};
use crate::engine;
use crate::interrupt::Interrupt;
use crate::output::Failure;
use crate::workloads::nvme::sizes::Sizes;
use crate::workloads::nvme::{NvmeBench, NvmeJob, Pattern};
use serde_json::{Value, json};
use std::time::Duration;
use warpbell::units::Bytes;

/// Bytes in each command.
const COMMAND: Bytes = Bytes(4096);
/// Deadline of waits in kernels. A reset drops the commands in flight, whose waits then run into it.
const DEADLINE: Duration = Duration::from_secs(2);
/// Time from the start of the load to the reset.
const BEFORE: Duration = Duration::from_millis(300);
/// Duration of the load, far longer than the time to the reset.
const LOAD: Duration = Duration::from_secs(20);
/// Duration of the load afterwards.
const AFTER: Duration = Duration::from_millis(500);

/// Resets the controller under load, recovers the volume, and compares all data.
pub fn run(args: &DeviceProbeArgs, interrupt: &Interrupt) -> Result<Value, Failure> {
    let engine = engine::open(&args.engine)?;
    engine.set_deadline(DEADLINE)?;
    let _stop = interrupt.stops(&engine);
    let (volume, controller) = volume(args, &engine, COMMAND)?;
    let touched = args.size.0.min(volume.bytes());
    let mixed = NvmeJob::new(Pattern::Randrw, Sizes::all(COMMAND.0), touched);
    let job = |runtime| NvmeJob { iodepth: 32, runtime: Some(runtime), verify: true, ..mixed.clone() };
    let load = NvmeBench::new(&volume, job(LOAD))?;
    load.fill(|_, _| {})?;
    let (under_load, reset) = std::thread::scope(|s| {
        let resetting = std::thread::Builder::new().spawn_scoped(s, || {
            std::thread::sleep(BEFORE);
            controller.reset()
        })?;
        let under_load = load.run();
        Ok((under_load, resetting.join().unwrap_or_else(|e| std::panic::resume_unwind(e))))
    })
    .map_err(|e: std::io::Error| Failure::about("the thread that resets cannot be started", e))?;
    reset?;
    let noticed = match under_load {
        Err(e) => e.to_string(),
        Ok(_) => {
            return Err(Failure::Error(
                "the load went on for its whole time, as if there had been no reset".to_owned(),
            ));
        }
    };
    let recovery = volume.recover()?;
    // Writes that were in flight may have reached the medium or not; the data of each place is the same in both cases.
    let after = NvmeBench::new(&volume, job(AFTER))?.run()?;
    let device = recovery.devices.first();
    let aborted = device.map_or(0, |d| d.commands.len());
    let steps: Vec<String> = device.iter().flat_map(|d| &d.steps).map(|s| s.action.to_string()).collect();
    let summary = format!("{aborted} commands in flight ended, then: {}", steps.join(", "));
    Ok(json!({ "noticed": noticed, "summary": summary, "recovery": recovery.to_string(), "after": after }))
}
