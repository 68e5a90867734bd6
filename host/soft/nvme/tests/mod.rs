//! Tests of the controller from a driver's side.

mod admin;
#[cfg(feature = "cpu-image")]
mod assist;
#[path = "../../../../tests/common/command_bytes.rs"]
mod bytes;
#[path = "../../../../tests/common/nvme_driver.rs"]
mod driver;
mod faults;
mod io;
mod lifecycle;
mod model;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_time: 60_000, failure_persistence: None, ..ProptestConfig::default() })]
    /// Does the same as the fuzz target `commands`, with fewer inputs.
    #[test]
    fn arbitrary_bytes_as_commands_are_answered_and_harm_nothing(
        steps in prop::collection::vec((0u8..7, prop::array::uniform32(any::<u8>()), prop::array::uniform32(any::<u8>())), 0..24)
    ) {
        let input: Vec<u8> = steps.iter().flat_map(|(kind, a, b)| [&[*kind][..], a, b].concat()).collect();
        bytes::run(&input);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_time: 60_000, failure_persistence: None, ..ProptestConfig::default() })]
    /// As above, while completions wait for the time of a model.
    #[test]
    fn arbitrary_bytes_are_answered_in_the_time_of_a_model(
        steps in prop::collection::vec((0u8..7, prop::array::uniform32(any::<u8>()), prop::array::uniform32(any::<u8>())), 0..24)
    ) {
        let input: Vec<u8> = steps.iter().flat_map(|(kind, a, b)| [&[*kind][..], a, b].concat()).collect();
        let mut model = crate::soft::model::slow();
        (model.queues.pairs, model.queues.entries, model.queues.transfer_bytes) = (3, 64, 64 << 10);
        let config = crate::soft::nvme::SoftConfig::parse("mem:256k,namespaces=2,threads=1").unwrap();
        bytes::run_on(config.model(crate::soft::model::ModelSource::Given(Box::new(model))), &input);
    }
}

#[test]
fn no_bytes_are_no_commands() {
    bytes::run(&[]);
    bytes::run(&[0; 64]);
}
