//! The limit of open files: connections take two descriptors each, and files one.

use std::io;
use std::sync::atomic::AtomicBool;

use fullpipe_copy::{CopyOptions, FarHost, Place, Share, ShareOptions, Transport, copy, far_end};
use fullpipe_iperf::Key;
use fullpipe_units::Span;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lowers the limit, and returns true if `work` raises it to its maximum.
fn is_raised_by(work: impl FnOnce()) -> bool {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), maximum }).unwrap();
    work();
    getrlimit(Resource::Nofile).current == maximum
}

/// Returns a copy from a server whose key nobody has given.
fn options() -> CopyOptions {
    let host = FarHost::Server { name: "127.0.0.1".to_owned(), port: 9 };
    CopyOptions {
        sources: vec![Place::Far { host, path: b"file".to_vec() }],
        destination: Place::Near("/".into()),
        ssh: Vec::new(),
        far_path: String::new(),
        dry_run: false,
        delete: false,
        excludes: Vec::new(),
        limit: None,
        ports: None,
        streams: None,
        transport: Transport::Auto,
        verify_disk: false,
        scavenge: false,
        no_bbr: false,
        no_compress: false,
        attributes: false,
        timeout: Span::from_secs(30),
        unencrypted: Vec::new(),
        key: None,
    }
}

fn share() -> ShareOptions {
    ShareOptions {
        folder: "/".into(),
        is_read_only: true,
        key: Key::from_file_content(b"correct horse battery").unwrap(),
        bind: Some([127, 0, 0, 1].into()),
        port: 0,
        allow: Vec::new(),
        deny: Vec::new(),
        copies: 1,
        copies_of_one: 1,
        rate: None,
        duration: None,
        bytes: None,
    }
}

#[test]
fn both_ends_and_a_server_raise_the_limit_of_open_files() {
    assert!(is_raised_by(|| assert!(copy(&options(), &AtomicBool::new(false), &mut drop).is_err())));
    assert!(is_raised_by(|| assert!(far_end(io::empty(), io::sink()).is_err())));
    assert!(is_raised_by(|| drop(Share::open(share()).unwrap())));
}
