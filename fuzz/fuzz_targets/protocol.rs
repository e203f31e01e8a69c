//! Any bytes at all: the decoder of messages never panics, and what it accepts is the same after another journey.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagelm::protocol::{Event, Request, decode, encode, version_of_greeting};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = decode::<Request>(bytes) {
        let again = encode(&request);
        // Bytes, for a NaN is not equal to itself. Those at first may be longer than need be.
        assert_eq!(encode(&decode::<Request>(&again).expect("what was encoded")), again);
        if let Request::Hello { version, .. } = request {
            assert_eq!(version_of_greeting(bytes), Some(version));
        }
    }
    match decode::<Event>(bytes) {
        Ok(event) => {
            let again = encode(&event);
            assert_eq!(encode(&decode::<Event>(&again).expect("what was encoded")), again);
        }
        Err(error) => assert!(error.to_string().contains("reload")),
    }
});
