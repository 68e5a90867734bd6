//! Parses arbitrary bytes as the header of an `.npy` file. The result describes an array whose elements begin within the
//! bytes, or is an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell::storage::{ElementType, NpyError, NpyHeader};

fuzz_target!(|data: &[u8]| match NpyHeader::parse(data) {
    Ok(header) => {
        assert!(header.data_offset() <= data.len() as u64);
        assert!(header.element() != ElementType::Record);
        let each = header.element().bytes().map(u128::from).unwrap();
        let elements = header.shape().iter().try_fold(1u128, |product, n| product.checked_mul(u128::from(*n)));
        if let Some(bytes) = header.data_bytes() {
            assert!(header.shape().contains(&0) || elements.map(|n| n * each) == Some(bytes.into()));
        }
        // Bytes behind the header change nothing.
        let end = header.data_offset() as usize;
        assert_eq!(NpyHeader::parse(&data[..end]), Ok(header));
    }
    Err(error) => {
        assert!(!error.to_string().contains('\n'));
        if let NpyError::Short { needed, found } = error {
            assert!(found == data.len() && needed > found);
        }
    }
});
