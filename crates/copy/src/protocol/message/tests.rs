use super::*;
use fullpipe_units::ByteCount;
use proptest::prelude::*;

use crate::protocol::bytes::MAX_SENTENCE;
use crate::protocol::{EntryKind, ExtendedAttributes, FileIdentity, ModificationTime};

fn path(text: &str) -> EntryPath {
    EntryPath::new(text).unwrap()
}

fn header() -> DataHeader {
    DataHeader {
        file: 1,
        chunk: 2,
        block: 3,
        reports: true,
        packed: true,
        hash: [3; 32],
    }
}

fn hello() -> CopyRequest {
    CopyRequest {
        version: VERSION,
        far_sends: true,
        dry_run: false,
        delete: true,
        verify_disk: true,
        scavenge: false,
        no_bbr: true,
        no_compress: false,
        attributes: true,
        quic: false,
        timeout: 30,
        secret: [5; 32],
        ports: (4000, 4010),
        limit: 8_000_000,
        paths: vec![b"a".to_vec(), b"\xff".to_vec()],
        excludes: vec![b"*.o".to_vec()],
        unencrypted: vec![b"192.0.2.0/24".to_vec()],
        settings: b"{}".to_vec(),
    }
}

#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn every_kind() -> Vec<CopyMessage<'static>> {
    let modified = ModificationTime {
        seconds: -5,
        nanoseconds: 999_999_999,
    };
    let file = EntryKind::File {
        mode: 0o640,
        modified,
        size: ByteCount::new(1 << 50),
        identity: FileIdentity([9; 32]),
    };
    let entry = |kind| {
        CopyMessage::Entry(TreeEntry {
            path: path("a/b\u{fffd}"),
            kind,
            attributes: ExtendedAttributes::default(),
        })
    };
    let mut attributes = ExtendedAttributes::default();
    for (name, value) in [
        ("user.a", &b"value"[..]),
        ("user.b", b""),
        ("system.posix_acl_access", b"\x02"),
    ] {
        attributes.insert_attribute(name.as_bytes(), value).unwrap();
    }
    vec![
        CopyMessage::Hello(hello()),
        CopyMessage::Ready(CopyAnswer {
            port: 4000,
            quic_port: 4001,
            address: b"192.0.2.1".to_vec(),
            settings: Vec::new(),
        }),
        CopyMessage::Refused {
            code: 2,
            why: "no".to_owned(),
        },
        CopyMessage::Dial { port: 1 },
        CopyMessage::DialQuic { port: 1 },
        CopyMessage::Streams {
            count: 4,
            active: 3,
            quic: 2,
        },
        CopyMessage::Begin {
            single: true,
            content: false,
        },
        entry(EntryKind::Folder {
            mode: 0o755,
            modified,
        }),
        entry(file.clone()),
        CopyMessage::Again {
            file: 7,
            entry: TreeEntry {
                path: path("a"),
                kind: file,
                attributes,
            },
        },
        entry(EntryKind::SymbolicLink {
            target: b"../x".to_vec(),
        }),
        entry(EntryKind::HardLink { first: path("c") }),
        entry(EntryKind::LeftOut),
        CopyMessage::EndOfList { complete: false },
        CopyMessage::Want {
            file: 7,
            chunks: FileChunks { first: 1, count: 2 },
        },
        CopyMessage::Got {
            file: 7,
            chunk: 1,
            missing: 0x8001,
        },
        CopyMessage::Outcome {
            file: 7,
            outcome: FileOutcome::Copied([1; 32]),
        },
        CopyMessage::Outcome {
            file: 7,
            outcome: FileOutcome::Present,
        },
        CopyMessage::Outcome {
            file: 7,
            outcome: FileOutcome::Wanted,
        },
        CopyMessage::Outcome {
            file: 7,
            outcome: FileOutcome::Failed("the disk is full".to_owned()),
        },
        CopyMessage::Deleted { path: path("old") },
        CopyMessage::WouldCopy { path: path("new") },
        CopyMessage::Unreadable {
            file: 7,
            why: "it changed".to_owned(),
        },
        CopyMessage::Note {
            text: "text".to_owned(),
        },
        CopyMessage::Lost { index: 3 },
        CopyMessage::Data {
            header: header(),
            content: b"content",
        },
        CopyMessage::Data {
            header: header(),
            content: b"",
        },
        CopyMessage::Finished,
        CopyMessage::Figures(b"{}".to_vec()),
    ]
}

#[test]
fn every_message_is_read_as_it_was_written() {
    for message in every_kind() {
        let frame = message.to_frame();
        let (length, body) = frame.split_first_chunk().unwrap();
        assert_eq!(
            u32::from_le_bytes(*length) as usize,
            body.len(),
            "{message:?}"
        );
        assert_eq!(CopyMessage::read(body).as_ref(), Ok(&message));
    }
}

#[test]
fn a_request_fits_if_it_is_read_as_it_was_meant() {
    let is_whole = |hello: &CopyRequest| {
        let frame = CopyMessage::Hello(hello.clone()).to_frame();
        frame.len() - 4 <= MAX_FRAME
            && CopyMessage::read(&frame[4..]) == Ok(CopyMessage::Hello(hello.clone()))
    };
    let most = usize::from(u16::MAX);
    let paths = |count, length| CopyRequest {
        paths: vec![vec![b'a'; length]; count],
        ..hello()
    };
    let excludes = |count, length| CopyRequest {
        excludes: vec![vec![b'a'; length]; count],
        ..hello()
    };
    let settings = CopyRequest {
        settings: vec![b' '; most + 1],
        ..hello()
    };
    let lists = [
        (paths(most, 1), true),
        (paths(most + 1, 1), false),
        (excludes(most + 1, 1), false),
        (excludes(15, most), true),
        (excludes(16, most), false),
        (excludes(1, most + 1), false),
        (settings, false),
    ];
    for (index, (hello, fits)) in lists.iter().enumerate() {
        assert_eq!(
            (hello.fits_frame(), is_whole(hello)),
            (*fits, *fits),
            "{index}"
        );
    }
}

#[test]
fn a_message_with_bytes_too_few_or_too_many_is_refused() {
    for message in every_kind()
        .iter()
        .filter(|message| !matches!(message, CopyMessage::Data { .. }))
    {
        let frame = message.to_frame();
        assert!(
            CopyMessage::read(&[&frame[4..], b"x"].concat()).is_err(),
            "{message:?}"
        );
        for length in 0..frame.len() - 4 {
            assert!(
                CopyMessage::read(&frame[4..4 + length]).is_err(),
                "{message:?} {length}"
            );
        }
    }
}

#[test]
fn a_block_is_framed_alike_by_both_writers() {
    let header = header();
    let frame = [&header.frame_bytes(7)[..], b"content"].concat();
    assert_eq!(
        CopyMessage::Data {
            header,
            content: b"content"
        }
        .to_frame(),
        frame
    );
    assert_eq!(
        DataHead::from_reader(&DataHead::Block(header, 7).to_bytes()),
        Some(DataHead::Block(header, 7))
    );
    let long = vec![0; MAX_FRAME + 1];
    assert!(CopyMessage::read(&[&[DATA][..], &long[1..]].concat()).is_err());
}

#[test]
fn a_head_with_any_flipped_bit_is_none() {
    let header = header();
    for head in [
        DataHead::Stream(3),
        DataHead::Block(header, BLOCK),
        DataHead::End,
    ] {
        let bytes = head.to_bytes();
        assert_eq!(DataHead::from_reader(&bytes), Some(head));
        for bit in 0..8 * DATA_HEADER {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(DataHead::from_reader(&flipped), None, "{head:?} {bit}");
            assert!(
                bit < 40 || CopyMessage::read(&flipped[4..]).is_err(),
                "{head:?} {bit}"
            );
        }
    }
    assert_eq!(DataHead::from_reader(&header.frame_bytes(BLOCK + 1)), None);
}

#[test]
fn an_entry_that_leads_outside_is_no_message() {
    let good = CopyMessage::Deleted {
        path: path("aa/bb"),
    }
    .to_frame();
    let bad: Vec<u8> = good
        .iter()
        .map(|byte| if *byte == b'a' { b'.' } else { *byte })
        .collect();
    assert!(
        CopyMessage::read(&bad[4..])
            .unwrap_err()
            .to_string()
            .contains("leads outside")
    );
}

#[test]
fn bits_that_let_a_program_run_as_another_user_are_dropped() {
    let kind = EntryKind::Folder {
        mode: 0o7777,
        modified: ModificationTime::default(),
    };
    let frame = CopyMessage::Entry(TreeEntry {
        path: path("a"),
        kind,
        attributes: ExtendedAttributes::default(),
    })
    .to_frame();
    let Ok(CopyMessage::Entry(TreeEntry {
        kind: EntryKind::Folder { mode, .. },
        ..
    })) = CopyMessage::read(&frame[4..])
    else {
        panic!("it is an entry");
    };
    assert_eq!(mode, 0o777);
}

#[test]
fn a_sentence_of_the_other_end_has_no_control_characters() {
    let frame = CopyMessage::Note {
        text: "a\x1b]0;b\n".to_owned(),
    }
    .to_frame();
    let Ok(CopyMessage::Note { text }) = CopyMessage::read(&frame[4..]) else {
        panic!("it is a note")
    };
    assert!(!text.contains(char::is_control), "{text}");
    let long = CopyMessage::Note {
        text: "é".repeat(5000),
    }
    .to_frame();
    assert!(long.len() < MAX_SENTENCE + 16 && CopyMessage::read(&long[4..]).is_ok());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0_u8..24) {
        let _ = CopyMessage::read(&[&[kind][..], &bytes].concat());
    }
}
