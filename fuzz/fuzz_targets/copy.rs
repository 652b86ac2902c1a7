//! Everything that an end of a copy reads of the other one, of its disk and of its user: messages,
//! heads of blocks, journals, attributes, paths and patterns. What is read is written again, and a
//! journal that was damaged gives no chunk that was not verified.
#![no_main]

use fullpipe_copy::protocol::{
    AttributeKind, CopyMessage, DATA_HEADER, DataHead, DataHeader, EntryPath, ExcludePatterns,
    ExtendedAttributes, FileIdentity, JournalFormat,
};
use fullpipe_units::ByteCount;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = CopyMessage::read(bytes) {
        let frame = message.to_frame();
        assert_eq!(CopyMessage::read(&frame[4..]).as_ref(), Ok(&message));
    }
    if let Some(head) = bytes.first_chunk::<DATA_HEADER>() {
        if let Some(head) = DataHead::from_reader(head) {
            assert_eq!(DataHead::from_reader(&head.to_bytes()), Some(head));
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(&head[..32]);
        let (file, chunk, block) = (u32::from(head[33]), u32::from(head[34]), head[35]);
        let [reports, packed] = [1, 2].map(|flag| head[36] & flag == 0);
        let header = DataHeader {
            file,
            chunk,
            block,
            reports,
            packed,
            hash,
        };
        let message = CopyMessage::Data {
            header,
            content: &bytes[DATA_HEADER..],
        };
        assert_eq!(
            CopyMessage::read(&message.to_frame()[4..]).as_ref(),
            Ok(&message)
        );
    }
    let journal = JournalFormat::new(FileIdentity([0; 32]), ByteCount::from_mib(4));
    let bytes_of_journal = [&journal.header_bytes()[..], bytes].concat();
    let recovered = journal
        .recover_chunks(&bytes_of_journal)
        .expect("it has a header");
    assert!(recovered.length.get() <= bytes_of_journal.len() as u64);
    let _ = journal.recover_chunks(bytes);
    recover_damaged(&journal, bytes);
    keep_attributes(bytes);
    if let Ok(path) = EntryPath::new(bytes) {
        assert!(!path.as_bytes().starts_with(b"/") && !path.to_string().contains(char::is_control));
        let half = bytes.len() / 2;
        let _ = ExcludePatterns::new([&bytes[..half]]).excludes_path(&path, half % 2 == 0);
    }
});

/// Writes a journal of the chunks that `bytes` name, damages a byte of it, and reads it.
fn recover_damaged(journal: &JournalFormat, bytes: &[u8]) {
    let Some((&[high, low, change], chunks)) = bytes.split_first_chunk() else {
        return;
    };
    let mut written = journal.header_bytes();
    for chunk in chunks {
        written.extend(match chunk {
            0 => journal.durable_record(),
            _ => journal.verified_record((*chunk).into(), &[*chunk; 32]),
        });
    }
    let at = usize::from(u16::from_be_bytes([high, low])) % written.len();
    written[at] ^= change;
    let Some(recovered) = journal.recover_chunks(&written) else {
        return;
    };
    for (index, hash) in recovered.verified.iter().chain(&recovered.doubtful) {
        assert!(
            chunks
                .iter()
                .any(|chunk| u32::from(*chunk) == *index && [*chunk; 32] == *hash)
        );
    }
}

/// Takes `bytes` for the attributes of an entry, those of a kind that is kept among them.
fn keep_attributes(bytes: &[u8]) {
    let mut attributes = ExtendedAttributes::default();
    for part in bytes.split(|byte| *byte == 0) {
        let half = part.len() / 2;
        for name in [
            part[..half].to_vec(),
            [b"user.", &part[..half]].concat(),
            b"system.posix_acl_access".to_vec(),
        ] {
            if attributes.insert_attribute(&name, &part[half..]).is_ok() {
                assert_eq!(attributes.get(&name), Some(&part[half..]));
                assert!(AttributeKind::from_name(&name).is_some());
            }
        }
    }
}
