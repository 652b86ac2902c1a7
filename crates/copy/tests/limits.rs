//! Limits of a copy: of open files, and of its request.

use std::io;
use std::sync::atomic::AtomicBool;

use fullpipe_copy::{
    CopyOptions, CopyPath, DataTransport, FarHost, ShareOptions, ShareServer, copy_files, far_end,
};
use fullpipe_iperf::SharedKey;
use fullpipe_units::Span;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lowers the limit, and returns true if `work` raises it to its maximum.
fn is_raised_by(work: impl FnOnce()) -> bool {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(100),
            maximum,
        },
    )
    .unwrap();
    work();
    getrlimit(Resource::Nofile).current == maximum
}

fn options(host: FarHost) -> CopyOptions {
    CopyOptions {
        sources: vec![CopyPath::Far {
            host,
            path: b"file".to_vec(),
        }],
        destination: CopyPath::Near("/".into()),
        ssh: Vec::new(),
        far_path: String::new(),
        dry_run: false,
        delete: false,
        excludes: Vec::new(),
        limit: None,
        ports: None,
        streams: None,
        transport: DataTransport::Auto,
        verify_disk: false,
        scavenge: false,
        no_bbr: false,
        no_compress: false,
        attributes: false,
        timeout: Span::from_secs(30),
        unencrypted: Vec::new(),
        key: None,
        digest: None,
    }
}

fn share() -> ShareOptions {
    ShareOptions {
        folder: "/".into(),
        is_read_only: true,
        key: SharedKey::from_file_content(b"correct horse battery").unwrap(),
        bind: Some([127, 0, 0, 1].into()),
        port: Some(0),
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
    // Nobody has given its key.
    let options = options(FarHost::Server {
        name: "127.0.0.1".to_owned(),
        port: 9,
    });
    assert!(is_raised_by(|| assert!(
        copy_files(&options, &AtomicBool::new(false), &mut drop).is_err()
    )));
    assert!(is_raised_by(|| assert!(
        far_end(io::empty(), io::sink()).is_err()
    )));
    assert!(is_raised_by(|| drop(
        ShareServer::open_share(share()).unwrap()
    )));
}

/// Words that did not fit were left out, or the copy ended with the words that the other end had
/// gone away.
#[test]
fn a_request_that_is_too_long_is_refused_before_the_other_end_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let called = folder.path().join("called");
    // The shell makes nothing of the host and the command behind its own.
    let ssh = ["sh", "-c", &format!("touch '{}'", called.display())]
        .map(str::to_owned)
        .to_vec();
    let excluding = |excludes| CopyOptions {
        ssh: ssh.clone(),
        excludes,
        ..options(FarHost::Ssh {
            name: folder.path().join("host").to_str().unwrap().to_owned(),
        })
    };
    let error = |excludes| {
        copy_files(&excluding(excludes), &AtomicBool::new(false), &mut drop).unwrap_err()
    };
    for excludes in [
        vec![b"a".to_vec(); 1 << 16],
        vec![vec![b'a'; 1 << 15]; 33],
        vec![vec![b'a'; 1 << 16]],
    ] {
        let error = error(excludes);
        assert!(
            error.exit_code() == 2 && error.to_string().contains("65535"),
            "{error}"
        );
    }
    assert!(!called.exists());
    assert_eq!(error(vec![b"a".to_vec()]).exit_code(), 1);
    assert!(called.exists());
}
