//! Parses arbitrary bytes as a device specification. It is rejected in one line, or printed as text that parses to the
//! same specification, also after it was numbered and given to a PE. Functions that open devices read its options or
//! reject them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use warpbell::nvme::fabrics::FabricsConfig;
use warpbell::nvme::qtest::QtestConfig;
use warpbell::soft::nvme::SoftConfig;
use warpbell::spec::{DeviceSpec, Name};

fuzz_target!(|data: &[u8]| {
    // The parser looks in the file system for a name that it rejects, and repeats the name. So the name has one line
    // and no NUL.
    if data.iter().any(u8::is_ascii_control) {
        return;
    }
    let spec = match DeviceSpec::from_os_str(OsStr::from_bytes(data)) {
        Ok(spec) => spec,
        Err(error) => return assert!(!error.to_string().contains('\n')),
    };
    for spec in [spec.clone(), spec.clone().numbered(7), spec.clone().for_pe(7)] {
        let text = spec.to_string();
        assert_eq!(text.parse(), Ok(spec), "{text}");
    }
    match spec.name() {
        Name::Memory { .. } | Name::SoftFile(_) => drop(SoftConfig::try_from(&spec)),
        Name::QtestFile(_) => drop(QtestConfig::try_from(&spec)),
        Name::Remote(_) => drop(FabricsConfig::try_from(&spec)),
        Name::Controller(_) => assert!(SoftConfig::try_from(&spec).is_err() && QtestConfig::try_from(&spec).is_err()),
    }
});
