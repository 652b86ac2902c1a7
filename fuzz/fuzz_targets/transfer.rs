//! Everything that an end of a copy reads of the other one, of its disk and of its user: messages, journals, paths and
//! patterns. What is read is written again.
#![no_main]

use fullpipe_transfer::{EntryPath, Excludes, Identity, Journal, Message};
use fullpipe_units::ByteCount;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = Message::read(bytes) {
        let frame = message.frame();
        assert_eq!(Message::read(&frame[4..]).as_ref(), Ok(&message));
    }
    let journal = Journal::new(Identity([0; 32]), ByteCount::from_mib(4), [0; 16]);
    let bytes_of_journal = [&journal.header()[..], bytes].concat();
    let recovered = journal.recover(&bytes_of_journal).expect("it has a header");
    assert!(recovered.length.get() <= bytes_of_journal.len() as u64);
    if let Ok(path) = EntryPath::new(bytes) {
        assert!(!path.as_bytes().starts_with(b"/") && !path.to_string().contains(char::is_control));
        let half = bytes.len() / 2;
        let _ = Excludes::new([&bytes[..half]]).exclude(&path, half % 2 == 0);
    }
});
