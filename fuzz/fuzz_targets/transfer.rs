//! Everything that an end of a copy reads of the other one, of its disk and of its user: messages, heads of chunks,
//! journals, paths and patterns. What is read is written again.
#![no_main]

use fullpipe_transfer::{DATA_HEADER, DataHeader, EntryPath, Excludes, Head, Identity, Journal, Message};
use fullpipe_units::ByteCount;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = Message::read(bytes) {
        let frame = message.frame();
        assert_eq!(Message::read(&frame[4..]).as_ref(), Ok(&message));
    }
    if let Some(head) = bytes.first_chunk::<DATA_HEADER>() {
        if let Some(head) = Head::read(head) {
            assert_eq!(Head::read(&head.bytes()), Some(head));
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(&head[..32]);
        let header = DataHeader { file: u32::from(head[33]), chunk: u32::from(head[34]), hash };
        let message = Message::Data { header, content: &bytes[DATA_HEADER..] };
        assert_eq!(Message::read(&message.frame()[4..]).as_ref(), Ok(&message));
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
