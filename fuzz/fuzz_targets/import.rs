//! Files of any program: whatever the bytes are, they are refused in one line, or give documents
//! whose bodies are read again with the same facts, and whose names command no terminal.
#![no_main]

use fullpipe_store::{Redaction, read_import};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let documents = match read_import(data, Timestamp::UNIX_EPOCH) {
        Ok(documents) => documents,
        Err(error) => return assert_eq!(error.lines().count(), 1),
    };
    assert!(!documents.is_empty());
    for document in documents {
        let head = &document.head;
        for name in [&head.host, &head.peer, &head.program, &head.request_key] {
            assert!(!name.chars().any(char::is_control));
        }
        let again = read_import(&document.body, Timestamp::UNIX_EPOCH)
            .expect("a body is a file of its own");
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].head.facts, head.facts);
        let mut redaction = Redaction::default();
        let _ = redaction.redact_document(head);
        assert!(redaction.redact_body(&document.body).is_some());
    }
});
