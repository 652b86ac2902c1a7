//! Data from files and to files, at either end of a measurement over loopback.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;
use std::time::Duration;

use crate::common::{fullpipe, run};
use fullpipe_testkit::{Running, document, free_port, sentence, wait_for_listener, within};
use serde_json::Value;

const LENGTH: usize = 5_000_001;

/// A folder of this test that is gone when it is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("storage-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A file with bytes that do not repeat soon.
    fn filled(&self, name: &str) -> String {
        let content: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        fs::write(self.0.join(name), content).unwrap();
        self.file(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `measure` with the arguments `measures` against a server with the arguments `serves`.
fn measured(serves: &[&str], measures: &[&str]) -> Output {
    let port = free_port();
    let server = Running::start(fullpipe(&["serve", "-1", "-p", &port.to_string()]).args(serves));
    wait_for_listener(port);
    let output = run(
        fullpipe(&["measure", "127.0.0.1", "--json", "-p", &port.to_string()]).args(measures),
        20,
    );
    drop(server);
    output
}

fn measurement(output: &Output) -> Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    document(output)["measurement"].clone()
}

#[test]
fn a_file_is_sent_whole_and_the_server_stores_it_and_forgets_it() {
    let (folder, store) = (Folder::new("sent"), Folder::new("store"));
    let file = folder.filled("file");
    let measured = measurement(&measured(
        &["--store", store.0.to_str().unwrap()],
        &["--file", &file],
    ));
    assert_eq!(measured["summary"]["received"], LENGTH);
    let (read, kept) = (
        &measured["local"]["storage"],
        &measured["remote"]["storage"],
    );
    assert_eq!(
        (&read["bytes"], &read["writes"]),
        (&LENGTH.into(), &false.into()),
        "{read}"
    );
    assert_eq!(
        (&kept["bytes"], &kept["writes"]),
        (&LENGTH.into(), &true.into()),
        "{kept}"
    );
    assert!(read["busy"].as_f64() > Some(0.0) && kept["busy"].as_f64() > Some(0.0));
    assert_eq!(
        fs::read_dir(&store.0).unwrap().count(),
        0,
        "nothing remains"
    );
}

#[test]
fn a_file_of_the_server_arrives_in_a_new_file() {
    let folder = Folder::new("arrived");
    let (file, copy) = (folder.filled("file"), folder.file("copy"));
    // The server sends it over and over, for as long as the client wants it.
    let arguments = ["-R", "-t", "0.3", "--file", &copy];
    let stated = measurement(&measured(&["--file", &file], &arguments));
    let (found, expected) = (fs::read(&copy).unwrap(), fs::read(&file).unwrap());
    assert!(
        found.len() > LENGTH && found[..LENGTH] == expected[..],
        "what was sent is what is there"
    );
    assert_eq!(stated["local"]["storage"]["writes"], true);
    assert_eq!(stated["remote"]["storage"]["writes"], false);
    // It is there now, and stays.
    let refused = measured(&[], &arguments);
    assert_eq!(refused.status.code(), Some(2));
    assert!(fs::read(&copy).unwrap() == found);
}

#[test]
fn a_disk_that_is_full_ends_the_test_and_says_so() {
    let output = measured(&[], &["-R", "-t", "5", "--file", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    let stated = document(&output);
    let message = stated["error"]["message"].as_str().unwrap();
    assert!(message.contains("No space left on device"), "{message}");
}

/// Returns whether a process has this file open.
fn is_open(file: &str) -> bool {
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_dir(entry.ok()?.path().join("fd")).ok());
    // Others end meanwhile.
    let mut links = processes
        .flatten()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| link == Path::new(file))
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_is_an_error() {
    let folder = Folder::new("cut");
    let file = folder.filled("file");
    let cutter = {
        let file = file.clone();
        thread::spawn(move || {
            assert!(
                within(Duration::from_secs(20), || is_open(&file)),
                "nobody opens it"
            );
            thread::sleep(Duration::from_millis(300));
            File::options()
                .write(true)
                .open(file)
                .unwrap()
                .set_len(100_000)
                .unwrap();
        })
    };
    // Two seconds at this rate.
    let output = measured(&[], &["--file", &file, "-b", "20M"]);
    cutter.join().unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let stated = document(&output);
    let message = stated["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("it was cut while it was sent"),
        "{message}"
    );
}

#[test]
fn files_that_cannot_be_used_are_named_before_anything_is_sent() {
    for (arguments, why) in [
        (
            ["measure", "127.0.0.1", "--file", "/nosuch"],
            "cannot open /nosuch: No such file or directory",
        ),
        (
            ["measure", "127.0.0.1", "--file", "/dev"],
            "cannot open /dev: it is no regular file",
        ),
        (
            ["serve", "-1", "--file", "/nosuch"],
            "cannot use /nosuch: No such file or directory",
        ),
        (
            ["serve", "-1", "--store", "/nosuch"],
            "cannot use /nosuch: No such file or directory",
        ),
    ] {
        let said = sentence(&run(&mut fullpipe(&arguments), 10), 2);
        assert!(said.starts_with(why), "{said}");
    }
}
