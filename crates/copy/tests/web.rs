//! Files of web servers: of nginx, and of servers that change, break off, or break the rules.

mod web {
    pub(crate) mod server;
}

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fullpipe_testkit::{Running, fullpipe, random_bytes, within};
use serde_json::Value;

use web::server::{Answer, Served, WebServer};

/// Time for a copy at most. No hostile server may hold one for longer.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Flags of a copy from a server that will not answer.
const IMPATIENT: [&str; 2] = ["--timeout", "2"];

fn copy_command(url: &str, to: &Path, flags: &[&str]) -> Command {
    let mut command = fullpipe();
    command.arg("copy").args(flags).arg(url).arg(to);
    command
}

fn run_copy(url: &str, to: &Path, flags: &[&str]) -> Output {
    Running::start(copy_command(url, to, flags).arg("--json")).finish(TIMEOUT)
}

/// Runs a copy that tells its user what happens.
fn run_copy_in_text(url: &str, to: &Path) -> Output {
    let output = Running::start(&mut copy_command(url, to, &[])).finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    output
}

fn said(output: &Output) -> String {
    let bytes = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&bytes);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn copied(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["copy"].clone()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Bytes that fill no whole number of chunks.
fn content(mib: usize) -> Vec<u8> {
    random_bytes((mib << 20) + 12_345)
}

#[test]
fn a_file_comes_in_ranges_and_is_there_the_second_time() {
    let served = Served::new(content(9));
    let server = WebServer::start(served.clone());
    let folder = tempfile::tempdir().unwrap();
    let url = server.url("/data/big%20one.nc?x=/y");
    let first = copied(&run_copy(&url, folder.path(), &[]));
    let path = folder.path().join("big one.nc");
    assert!(fs::read(&path).unwrap() == served.content());
    assert_eq!(
        first["digest"],
        blake3::hash(&served.content()).to_hex().as_str()
    );
    assert_eq!(
        (&first["files"], &first["transferred"]),
        (&1.into(), &first["bytes"])
    );
    assert_eq!(names_in(folder.path()), ["big one.nc"]);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    assert_eq!(
        modified,
        std::time::UNIX_EPOCH + Duration::from_secs(784_111_777)
    );
    let second = copied(&run_copy(&url, folder.path(), &[]));
    assert_eq!(
        (&second["present"], &second["files"]),
        (&1.into(), &0.into())
    );
}

#[test]
fn small_and_empty_files_come_too() {
    for size in [0, 1, 1 << 20, (1 << 20) + 1] {
        let served = Served::new(random_bytes(size));
        let server = WebServer::start(served.clone());
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("name");
        copied(&run_copy(&server.url("/"), &target, &[]));
        assert!(fs::read(&target).unwrap() == served.content(), "{size}");
        assert_eq!(names_in(folder.path()), ["name"], "{size}");
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    let server = WebServer::start(Served::new(content(2)));
    let folder = tempfile::tempdir().unwrap();
    let found = copied(&run_copy(
        &server.url("/a"),
        &folder.path().join("new/"),
        &["--dry-run"],
    ));
    assert_eq!(
        (&found["files"], &found["transferred"]),
        (&1.into(), &0.into())
    );
    assert!(names_in(folder.path()).is_empty());
}

/// Kills the copy each time that the server has sent another part of the file.
#[test]
fn a_copy_that_is_killed_again_and_again_goes_on_where_it_was() {
    const KILLS: u64 = 4;
    let served = Served {
        pace: Duration::from_millis(20),
        ..Served::new(content(40))
    };
    let server = WebServer::start(served.clone());
    let folder = tempfile::tempdir().unwrap();
    let size = served.content().len() as u64;
    for kill in 1..=KILLS {
        let mut running = Running::start(&mut copy_command(&server.url("/a"), folder.path(), &[]));
        let wanted = size * kill / (KILLS + 2);
        assert!(within(TIMEOUT, || served.sent() > wanted), "{kill}");
        running.kill();
        drop(running);
        assert!(!folder.path().join("a").exists());
    }
    let last = copied(&run_copy(&server.url("/a"), folder.path(), &[]));
    assert!(fs::read(folder.path().join("a")).unwrap() == served.content());
    assert_eq!(names_in(folder.path()), ["a"]);
    let transferred = last["transferred"].as_u64().unwrap();
    // What had left the server may have been lost with the sockets of those that were killed.
    assert!(
        transferred < size,
        "{transferred} of {size} came in the last run"
    );
}

#[test]
fn a_file_that_changed_between_two_runs_is_begun_anew() {
    let served = Served {
        pace: Duration::from_millis(20),
        ..Served::new(content(20))
    };
    let server = WebServer::start(served.clone());
    let folder = tempfile::tempdir().unwrap();
    let mut running = Running::start(&mut copy_command(&server.url("/a"), folder.path(), &[]));
    assert!(within(TIMEOUT, || served.sent() > 8 << 20));
    running.kill();
    drop(running);
    served.change(content(20));
    let output = run_copy_in_text(&server.url("/a"), folder.path());
    assert!(
        said(&output).contains("of another state of the file"),
        "{output:?}"
    );
    assert!(fs::read(folder.path().join("a")).unwrap() == served.content());
}

#[test]
fn a_file_that_changes_during_the_copy_is_begun_anew_once() {
    let served = Served {
        change_after: Some(5 << 20),
        ..Served::new(content(20))
    };
    let server = WebServer::start(served.clone());
    let folder = tempfile::tempdir().unwrap();
    let output = run_copy_in_text(&server.url("/a"), folder.path());
    assert!(
        said(&output).contains("has changed during the copy"),
        "{output:?}"
    );
    assert!(fs::read(folder.path().join("a")).unwrap() == served.content());
    // One that changes all the time is not copied.
    let restless = Served {
        change_after: Some(5 << 20),
        changes: true,
        ..Served::new(content(20))
    };
    let server = WebServer::start(restless);
    let folder = tempfile::tempdir().unwrap();
    let output = run_copy(&server.url("/a"), folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said(&output).contains("changes again and again"),
        "{output:?}"
    );
    assert!(!folder.path().join("a").exists());
}

#[test]
fn without_ranges_or_a_strong_validator_one_connection_carries_the_file() {
    let cases = [
        (
            "no ranges",
            Served {
                answer: Answer::Whole,
                ..Served::new(content(3))
            },
        ),
        (
            "no ranges",
            Served {
                answer: Answer::Chunked,
                ..Served::new(content(3))
            },
        ),
        (
            "no ranges",
            Served {
                answer: Answer::UntilClose,
                ..Served::new(content(3))
            },
        ),
        (
            "strong validator",
            Served {
                etag: "W/\"1\"",
                ..Served::new(content(3))
            },
        ),
        (
            "strong validator",
            Served {
                etag: "",
                ..Served::new(content(3))
            },
        ),
    ];
    for (reason, served) in cases {
        let server = WebServer::start(served.clone());
        let folder = tempfile::tempdir().unwrap();
        let output = run_copy_in_text(&server.url("/a"), folder.path());
        assert!(said(&output).contains(reason), "{output:?}");
        assert!(fs::read(folder.path().join("a")).unwrap() == served.content());
        assert_eq!(names_in(folder.path()), ["a"]);
    }
}

#[test]
fn connections_that_break_leave_no_gap() {
    let served = Served {
        breaks_after: Some(300_000),
        ..Served::new(content(6))
    };
    let server = WebServer::start(served.clone());
    let folder = tempfile::tempdir().unwrap();
    copied(&run_copy(&server.url("/a"), folder.path(), &[]));
    assert!(fs::read(folder.path().join("a")).unwrap() == served.content());
}

#[test]
fn a_server_may_be_busy_for_a_while_and_permit_few_connections() {
    let served = Served {
        busy: 2,
        permits: 2,
        pace: Duration::from_millis(10),
        ..Served::new(content(16))
    };
    let server = WebServer::start(served.clone());
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--streams", "6"];
    copied(&run_copy(&server.url("/a"), folder.path(), &flags));
    assert!(fs::read(folder.path().join("a")).unwrap() == served.content());
}

#[test]
fn a_rate_is_kept() {
    let served = Served::new(content(4));
    let server = WebServer::start(served);
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let flags = ["--bwlimit", "16Mbit/s"];
    let report = copied(&run_copy(&server.url("/a"), folder.path(), &flags));
    assert!(began.elapsed() > Duration::from_millis(1800), "{report}");
    assert_eq!(report["limit"], "rate-limit");
}

#[test]
fn digests_of_the_user_and_of_the_server_are_verified() {
    let right = Served::new(content(2));
    let digest = format!("blake3:{}", blake3::hash(&right.content()).to_hex());
    let wrong = format!("sha256:{}", "0".repeat(64));
    let of_server = Served {
        more: "Repr-Digest: sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:\r\n",
        ..Served::new(content(2))
    };
    let cases = [
        (&right, Some(digest.as_str()), 0),
        (&right, Some(wrong.as_str()), 1),
        (&of_server, None, 1),
    ];
    for (served, digest, code) in cases {
        let server = WebServer::start(served.clone());
        let folder = tempfile::tempdir().unwrap();
        let flags: Vec<&str> = digest
            .into_iter()
            .flat_map(|digest| ["--digest", digest])
            .collect();
        let output = run_copy(&server.url("/a"), folder.path(), &flags);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(said(&output).contains("digest") || code == 0, "{output:?}");
        assert_eq!(
            names_in(folder.path()).len(),
            usize::from(code == 0),
            "{digest:?}"
        );
    }
}

#[test]
fn redirections_are_followed_to_an_end() {
    let served = Served {
        redirections: 10,
        ..Served::new(content(2))
    };
    let server = WebServer::start(served.clone());
    let folder = tempfile::tempdir().unwrap();
    copied(&run_copy(&server.url("/name"), folder.path(), &[]));
    assert!(fs::read(folder.path().join("name")).unwrap() == served.content());
    let served = Served {
        redirections: 11,
        ..Served::new(content(2))
    };
    let server = WebServer::start(served);
    let output = run_copy(&server.url("/other"), folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("redirects more than 10 times"),
        "{output:?}"
    );
}

/// Servers that break the rules, each with what is said of it.
const HOSTILE: [(&str, &str); 13] = [
    (
        "HTTP/1.1 206 OK\r\nETag: \"1\"\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5\r\n\r\nabcde",
        "another range",
    ),
    (
        "HTTP/1.1 206 OK\r\nETag: \"1\"\r\nContent-Length: 5\r\n\r\nabcde",
        "another range",
    ),
    (
        "HTTP/1.1 206 OK\r\nETag: \"1\"\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 9\r\n\r\nabcdefghi",
        "more than it was asked",
    ),
    (
        "HTTP/1.1 206 OK\r\nETag: \"1\"\r\nContent-Range: bytes 0-9/5\r\nContent-Length: 9\r\n\r\n",
        "makes no sense",
    ),
    (
        "HTTP/1.1 206 OK\r\nETag: \"1\"\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 0\r\n\r\n",
        "sends nothing",
    ),
    (
        "HTTP/1.1 206 OK\r\nETag: \"1\"\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "both",
    ),
    (
        "HTTP/1.1 206 OK\r\nETag: \"1\"\r\nContent-Range: bytes 0-4/99999999999999999\r\nContent-Length: 5\r\n\r\nabcde",
        "cannot be written",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabcde",
        "closed the connection",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "has no size",
    ),
    (
        "HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/a\r\nContent-Length: 0\r\n\r\n",
        "less protected",
    ),
    (
        "HTTP/1.1 404 \x1b[2J\r\nContent-Length: 0\r\n\r\n",
        "no HTTP",
    ),
    (
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        "no such file",
    ),
    ("SSH-2.0-OpenSSH_10.2\r\n", "not HTTP/1.1"),
];

#[test]
fn servers_that_break_the_rules_get_one_sentence_and_nothing_stays() {
    for (answer, why) in HOSTILE {
        let server = WebServer::start_fixed(answer.as_bytes().to_vec());
        let folder = tempfile::tempdir().unwrap();
        let output = run_copy(&server.url("/a"), folder.path(), &IMPATIENT);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{answer}: {text}");
        assert!(text.contains(why) || why == "no HTTP", "{answer}: {text}");
        assert!(
            !text.contains('\x1b') && !folder.path().join("a").exists(),
            "{text}"
        );
    }
}

#[test]
fn a_head_without_end_and_a_silent_server_are_left() {
    for endless in [
        &b"HTTP/1.1 100 Continue\r\n\r\n"[..],
        b"X-Field: value\r\n",
        b"",
    ] {
        let server = WebServer::start_endless(b"HTTP/1.1 200 OK\r\n", endless);
        let folder = tempfile::tempdir().unwrap();
        let output = run_copy(&server.url("/a"), folder.path(), &IMPATIENT);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(names_in(folder.path()).is_empty());
    }
}

#[test]
fn what_fits_no_web_server_is_refused_before_anything_is_asked() {
    let asked = Arc::new(AtomicU64::new(0));
    let server = WebServer::start(Served {
        asked: Arc::clone(&asked),
        ..Served::new(content(1))
    });
    let folder = tempfile::tempdir().unwrap();
    let url = server.url("/a");
    let with_user = url.replace("http://", "http://user:secret@");
    let to = folder.path().to_str().unwrap();
    let cases: [&[&str]; 10] = [
        &[&url, to, "--delete"],
        &[&url, to, "--scavenge"],
        &[&url, to, "--transport", "quic"],
        &[to, &url],
        &[&url, &url, to],
        &[&url, "host:/tmp"],
        &[&with_user, to],
        &["ftps://127.0.0.1/a", to],
        &["ftp://127.0.0.1/%0d%0aDELE%20a/b", to],
        &[&server.url("/..%2fa"), to],
    ];
    for arguments in cases {
        let mut command = fullpipe();
        command.arg("copy").args(arguments);
        let output = Running::start(&mut command).finish(TIMEOUT);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(!said(&output).contains("secret"), "{output:?}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}
