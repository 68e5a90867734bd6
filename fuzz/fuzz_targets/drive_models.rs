//! Reads arbitrary bytes as a model of a drive: rejected in one line, or the model has a time for each command.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell::soft::model::{DriveModel, Load, SHIPPED, simulate};

fuzz_target!(|data: &[u8]| {
    // The first byte chooses a shipped model, and the next two a part of it that the rest replaces: few other inputs are models.
    let Some(([model, start, length], rest)) = data.split_first_chunk() else { return };
    let Ok(rest) = std::str::from_utf8(rest) else { return };
    let text = SHIPPED[usize::from(*model) % SHIPPED.len()].1;
    let text = match *model < 128 {
        true => {
            let lines: Vec<&str> = text.lines().collect();
            let start = usize::from(*start) % lines.len();
            let end = (start + usize::from(*length) % 8).min(lines.len());
            [&lines[..start], &[rest], &lines[end..]].concat().join("\n")
        }
        false => rest.to_owned(),
    };
    match DriveModel::parse("a.toml", &text) {
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        Ok(model) => {
            // A large buffer takes many writes to fill.
            let read_percent = if model.buffer.bytes > 1 << 20 { 100 } else { 70 };
            let simulated = simulate(&model, &Load { read_percent, bytes: 4096, depth: 8, span: 1 << 30 }, 64, 1);
            assert!(simulated.iops > 0.0 && simulated.iops.is_finite(), "{simulated:?}");
        }
    }
});
