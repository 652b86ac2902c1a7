//! Records of TLS from a peer that has the keys: whatever they hold, in whatever parts they arrive,
//! the same payload and the same end come of them, and no payload that was not sent. Without the
//! keys there is none.
#![no_main]

use fullpipe_control::{RecordError, TlsRecords};
use libfuzzer_sys::fuzz_target;

/// The type of payload.
const DATA: u8 = 23;

fuzz_target!(|bytes: &[u8]| {
    let [_, mut unknown] = TlsRecords::known_ends();
    assert!(receive(&mut unknown, bytes, bytes.len()).0.is_empty());
    let Some((part, rest)) = bytes.split_first() else {
        return;
    };
    let (wire, sent) = sealed(rest);
    let [whole, parts] = [wire.len(), usize::from(*part)].map(|part| {
        let [_, mut far] = TlsRecords::known_ends();
        let (payload, error) = receive(&mut far, &wire, part.max(1));
        assert!(sent.starts_with(&payload) && far.partial_record().len() < wire.len().max(1));
        (payload, error, far.has_ended())
    });
    assert_eq!((whole.1, whole.2), (parts.1, parts.2));
    // What came with an error is not returned.
    assert!(if whole.1.is_none() {
        whole.0 == parts.0
    } else {
        parts.0.starts_with(&whole.0)
    });
});

/// Reads `bytes` as records (type, length in two bytes, content), and returns them sealed, with
/// their payload.
fn sealed(mut bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let [mut near, _] = TlsRecords::known_ends();
    let (mut wire, mut payload) = (Vec::new(), Vec::new());
    while let Some((&[kind, high, low], rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (content, rest) = rest.split_at(length);
        near.seal_any(kind, content, &mut wire)
            .expect("the library encrypts");
        match kind {
            DATA => payload.extend_from_slice(content),
            // The type is in the content, with padding behind it.
            0 => {
                if let Some(at) = content.iter().rposition(|byte| *byte != 0)
                    && content[at] == DATA
                {
                    payload.extend_from_slice(&content[..at]);
                }
            }
            _ => {}
        }
        bytes = rest;
    }
    (wire, payload)
}

/// Opens `bytes` in parts, and returns the payload and the error.
fn receive(records: &mut TlsRecords, bytes: &[u8], part: usize) -> (Vec<u8>, Option<RecordError>) {
    let mut payload = Vec::new();
    for bytes in bytes.chunks(part.max(1)) {
        let mut buffer = [records.partial_record(), bytes].concat();
        match records.open_records(&mut buffer) {
            Ok(length) => payload.extend_from_slice(&buffer[..length]),
            Err(error) => return (payload, Some(error)),
        }
    }
    (payload, None)
}
