use super::*;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::thread;

use crate::protocol::{
    EntryKind, EntryPath, ExtendedAttributes, FileIdentity, ModificationTime, TreeEntry,
};

#[test]
fn who_is_silent_holds_a_place_at_a_server_for_thirty_seconds_whatever_it_asks_for() {
    let silences = |joining| {
        let scope = CopyScope {
            joining,
            ..CopyScope::of_ssh()
        };
        [5, 3600].map(|asked| {
            scope
                .permitted_silence(Duration::from_secs(asked))
                .as_secs()
        })
    };
    assert_eq!(
        (silences(Some(Arc::default())), silences(None)),
        ([5, 30], [5, 3600])
    );
}

fn hello(version: u16) -> CopyRequest {
    CopyRequest {
        version,
        far_sends: true,
        dry_run: false,
        delete: false,
        verify_disk: false,
        scavenge: false,
        no_bbr: false,
        no_compress: false,
        attributes: false,
        quic: false,
        timeout: 30,
        secret: [0; 32],
        ports: (0, 0),
        limit: 0,
        paths: vec![b"/nowhere/at/all".to_vec()],
        excludes: Vec::new(),
        unencrypted: Vec::new(),
        settings: Vec::new(),
    }
}

#[test]
fn who_does_not_begin_with_a_request_of_this_version_is_refused() {
    let refusal = |hello| {
        far_end(
            io::Cursor::new(CopyMessage::Hello(hello).to_frame()),
            io::sink(),
        )
        .unwrap_err()
        .to_string()
    };
    assert!(refusal(hello(VERSION + 1)).contains("install the same fullpipe at both"));
    assert!(refusal(hello(VERSION)).contains("/nowhere/at/all"));
    // Another version may have other fields.
    let mut shorter = CopyMessage::Hello(hello(VERSION - 1)).to_frame();
    shorter.truncate(20);
    shorter[0] = 16;
    let error = far_end(io::Cursor::new(shorter), io::sink())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("install the same fullpipe at both"),
        "{error}"
    );
    let nowhere = CopyRequest {
        unencrypted: vec![b"everywhere".to_vec()],
        ..hello(VERSION)
    };
    assert!(refusal(nowhere).contains("is not a network"));
    assert!(matches!(
        far_end(io::empty(), io::sink()),
        Err(CopyError::Gone)
    ));
    let early = io::Cursor::new(CopyMessage::Finished.to_frame());
    assert!(matches!(
        far_end(early, io::sink()),
        Err(CopyError::Protocol(_))
    ));
}

/// One copy once made as many connections and threads as its near end had messages.
#[test]
fn who_wants_more_connections_than_a_copy_may_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().as_os_str().as_bytes().to_vec();
    let begun = CopyMessage::Hello(CopyRequest {
        far_sends: false,
        paths: vec![path],
        ..hello(VERSION)
    });
    let streams = |count, quic| CopyMessage::Streams {
        count,
        active: 1,
        quic,
    };
    for wanted in [
        [CopyMessage::Dial { port: 9 }, CopyMessage::Dial { port: 9 }],
        [
            CopyMessage::DialQuic { port: 9 },
            CopyMessage::DialQuic { port: 9 },
        ],
        [
            CopyMessage::Dial { port: 9 },
            streams(MAX_CONNECTIONS + 1, 0),
        ],
        [CopyMessage::Dial { port: 9 }, streams(0, MAX_STREAMS + 1)],
    ] {
        let said = std::iter::once(&begun)
            .chain(&wanted)
            .flat_map(CopyMessage::to_frame)
            .collect::<Vec<u8>>();
        let error = far_end(io::Cursor::new(said), io::sink())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("more connections than a copy may have"),
            "{wanted:?}: {error}"
        );
    }
}

#[test]
fn nobody_can_come_any_more_when_this_end_has_made_the_connections() {
    let credentials = CopyCredentials::new(&[7; 32], &[]).unwrap();
    let [listener, others] =
        [(); 2].map(|()| DataListener::start_listening(None, (0, 0), &credentials).unwrap());
    let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let (host, streams) =
        dial_hosts(&[loopback(0)], others.port, &credentials, &mut |_| 1).unwrap();
    let dialled = DialledConnections {
        host,
        port: others.port,
        streams,
    };
    let at = loopback(listener.port);
    let mut awaited = AwaitedConnections {
        listener: Some(listener),
        quic: None,
        near: None,
        credentials,
        secret: [7; 32],
    };
    assert_eq!(
        awaited
            .take_connections(Some(dialled), 1, 1, None)
            .stream_count(),
        1
    );
    let until = std::time::Instant::now() + CONNECT_DEADLINE;
    while std::net::TcpStream::connect(at).is_ok() {
        assert!(std::time::Instant::now() < until);
        thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn a_copy_from_a_shared_folder_names_no_more_paths_than_a_server_has_descriptors_for() {
    let folder = tempfile::tempdir().unwrap();
    let root = FolderRoot::Share(Arc::new(
        crate::tree::FolderTree::open_root(folder.path()).unwrap(),
    ));
    let scope = CopyScope {
        root,
        near: None,
        own: None,
        ..CopyScope::of_ssh()
    };
    let error = |count| {
        let request = CopyRequest {
            paths: vec![b".".to_vec(); count],
            ..hello(VERSION)
        };
        let from = io::Cursor::new(CopyMessage::Hello(request).to_frame());
        serve_near_end(
            from,
            io::sink(),
            &SilenceWatch::new(FIRST_TIMEOUT),
            &scope,
            Arc::default(),
        )
        .unwrap_err()
    };
    assert!(
        error(MAX_SHARED_SOURCES + 1)
            .to_string()
            .contains("more than 64 paths")
    );
    assert!(matches!(error(MAX_SHARED_SOURCES), CopyError::Gone));
}

/// Serves a near end that has said this, and says nothing of connections. Returns true once
/// `is_it` holds for one of the messages to it.
fn answers(said: &[u8], is_it: impl Fn(CopyMessage<'_>) -> bool) -> bool {
    let [(from, mut near), (to_near, to)] = [io::pipe().unwrap(), io::pipe().unwrap()];
    thread::spawn(move || {
        let _ = serve_near_end(
            from,
            to,
            &SilenceWatch::new(FIRST_TIMEOUT),
            &CopyScope::of_ssh(),
            Arc::default(),
        );
    });
    near.write_all(said).unwrap();
    let pulse = SilenceWatch::new(FIRST_TIMEOUT);
    let mut to_near = io::BufReader::new(to_near);
    assert!(crate::ssh::await_greeting(&mut to_near, false, &pulse));
    let mut frames = FrameReader::new(to_near, &pulse);
    while let Ok(frame) = frames.next_message() {
        if is_it(CopyMessage::read(frame).unwrap()) {
            return true;
        }
    }
    false
}

/// A list that waits for connections takes a round trip of its own.
#[test]
fn the_list_crosses_and_chunks_are_wanted_before_connections_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().as_os_str().as_bytes().to_vec();
    let kind = EntryKind::File {
        mode: 0o644,
        modified: ModificationTime {
            seconds: 0,
            nanoseconds: 0,
        },
        size: ByteCount::new(5),
        identity: FileIdentity([0; 32]),
    };
    let entry = TreeEntry {
        path: EntryPath::new(b"file").unwrap(),
        kind,
        attributes: ExtendedAttributes::default(),
    };
    let said = [
        CopyMessage::Hello(CopyRequest {
            far_sends: false,
            paths: vec![path.clone()],
            ..hello(VERSION)
        }),
        CopyMessage::Begin {
            single: false,
            content: true,
        },
        CopyMessage::Entry(entry),
    ];
    let said: Vec<u8> = said.iter().flat_map(CopyMessage::to_frame).collect();
    assert!(answers(&said, |message| matches!(
        message,
        CopyMessage::Want { file: 0, .. }
    )));
    std::fs::write(folder.path().join("file"), "12345").unwrap();
    let request = CopyMessage::Hello(CopyRequest {
        paths: vec![path],
        ..hello(VERSION)
    })
    .to_frame();
    assert!(answers(&request, |message| matches!(
        message,
        CopyMessage::EndOfList { complete: true }
    )));
}

#[test]
fn a_near_end_that_says_nothing_any_more_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let (from, mut near) = io::pipe().unwrap();
    let path = folder.path().as_os_str().as_bytes().to_vec();
    let request = CopyRequest {
        timeout: 1,
        far_sends: false,
        paths: vec![path],
        ..hello(VERSION)
    };
    near.write_all(&CopyMessage::Hello(request).to_frame())
        .unwrap();
    let began = std::time::Instant::now();
    let error = far_end(from, io::sink()).unwrap_err();
    assert!(
        matches!(error, CopyError::Silent(silence) if silence == Span::from_secs(2)),
        "{error:?}"
    );
    assert!(began.elapsed() < FIRST_TIMEOUT, "{:?}", began.elapsed());
    drop(near);
}
