//! Files of FTP servers that change, know few commands, or break the rules. A real one is in the
//! tests of the command line.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fullpipe_testkit::{Running, fullpipe, random_bytes};

const TIMEOUT: Duration = Duration::from_mins(1);

/// Times of a file and of its successor.
const TIMES: [&str; 2] = ["19941106084937", "19941106084938"];

/// An FTP server on a loopback port, which does what a test wants.
#[derive(Debug, Default)]
struct FtpServer {
    file: Mutex<(Vec<u8>, usize)>,
    /// Replies in place of the usual ones; an empty one is never sent, and nothing after it.
    replies: HashMap<&'static str, String>,
    /// Transfers before which the file becomes another one.
    change_before: Option<u64>,
    /// Set if a user is refused, once, after the first transfer.
    refuses_once: AtomicBool,
    transfers: AtomicU64,
}

impl FtpServer {
    fn new(content: Vec<u8>, replies: &[(&'static str, &str)]) -> Self {
        let replies = replies
            .iter()
            .map(|(command, reply)| (*command, (*reply).to_owned()));
        Self {
            file: Mutex::new((content, 0)),
            replies: replies.collect(),
            ..Self::default()
        }
    }

    /// Serves each connection in a thread of its own. Returns the URL of the file.
    fn start(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Arc::clone(self);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = Arc::clone(&server);
                thread::spawn(move || server.serve(&stream));
            }
        });
        format!("ftp://127.0.0.1:{port}/pub/file")
    }

    fn serve(&self, mut control: &TcpStream) -> io::Result<()> {
        let mut lines = BufReader::new(control).lines();
        let (mut line, mut offset, mut data) = (String::new(), 0, None);
        loop {
            let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
            let (content, state) = self.file.lock().unwrap().clone();
            if command == "REST" {
                offset = argument.parse().unwrap();
            }
            let usual = match command {
                "" => "220-Hello\r\n220 of 2\r\n".to_owned(),
                "USER" => "331 password?\r\n".to_owned(),
                "PASS" => "230 in\r\n".to_owned(),
                "EPSV" | "PASV" => {
                    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                    let port = listener.local_addr()?.port();
                    data = Some(listener);
                    if command == "EPSV" {
                        format!("229 data (|||{port}|)\r\n")
                    } else {
                        // Another host's address.
                        let [high, low] = port.to_be_bytes();
                        format!("227 data (192,0,2,1,{high},{low})\r\n")
                    }
                }
                "SIZE" => format!("213 {}\r\n", content.len()),
                "MDTM" => format!("213 {}\r\n", TIMES[state]),
                "REST" => "350 on\r\n".to_owned(),
                "RETR" => "150 here\r\n".to_owned(),
                _ => "200 fine\r\n".to_owned(),
            };
            let usual = if command == "USER"
                && self.transfers.load(Ordering::Relaxed) > 0
                && self.refuses_once.swap(false, Ordering::Relaxed)
            {
                "530 full\r\n".to_owned()
            } else {
                usual
            };
            let reply = self.replies.get(command).unwrap_or(&usual);
            if reply.is_empty() {
                thread::sleep(TIMEOUT);
                return Ok(());
            }
            control.write_all(reply.as_bytes())?;
            if let ("RETR", true, Some(listener)) = (command, reply.starts_with('1'), &data) {
                self.send_file(listener, offset)?;
                let end = self
                    .replies
                    .get("end")
                    .map_or("226 sent\r\n", String::as_str);
                control.write_all(end.as_bytes())?;
            }
            let Some(next) = lines.next() else {
                return Ok(());
            };
            line = next?;
        }
    }

    fn send_file(&self, listener: &TcpListener, offset: usize) -> io::Result<()> {
        let (mut data, _) = listener.accept()?;
        let transfer = self.transfers.fetch_add(1, Ordering::Relaxed);
        if self.change_before == Some(transfer) {
            let mut file = self.file.lock().unwrap();
            file.0.reverse();
            file.1 += 1;
        }
        let (content, _) = self.file.lock().unwrap().clone();
        // A client that has what it wants closes the connection.
        let _ = data.write_all(&content[offset..]);
        Ok(())
    }
}

fn run_copy(url: &str, to: &Path, flags: &[&str]) -> Output {
    let mut command = fullpipe();
    command.arg("copy").args(flags).arg(url).arg(to);
    Running::start(&mut command).finish(TIMEOUT)
}

fn said(output: &Output) -> String {
    let bytes = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&bytes);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_copied(server: &FtpServer, folder: &Path, output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let content = fs::read(folder.join("file")).unwrap();
    assert!(content == server.file.lock().unwrap().0);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
}

#[test]
fn parts_come_on_connections_of_their_own_and_the_second_time_nothing() {
    let server = Arc::new(FtpServer::new(random_bytes((6 << 20) + 7), &[]));
    let url = server.start();
    let folder = tempfile::tempdir().unwrap();
    let output = run_copy(&url, folder.path(), &[]);
    assert_copied(&server, folder.path(), &output);
    let transfers = server.transfers.load(Ordering::Relaxed);
    assert!(transfers > 2, "{transfers}");
    let again = run_copy(&url, folder.path(), &[]);
    assert!(said(&again).contains("there already"), "{again:?}");
}

#[test]
fn empty_files_come_and_files_of_a_part_too() {
    for size in [0, 1, 1 << 20] {
        let server = Arc::new(FtpServer::new(random_bytes(size), &[]));
        let folder = tempfile::tempdir().unwrap();
        let output = run_copy(&server.start(), folder.path(), &[]);
        assert_copied(&server, folder.path(), &output);
    }
}

#[test]
fn a_server_of_few_commands_sends_the_file_on_one_connection_of_its_own_host() {
    let unknown = "502 what?\r\n";
    let replies = ["SIZE", "MDTM", "REST", "EPSV"].map(|command| (command, unknown));
    let server = Arc::new(FtpServer::new(random_bytes(3 << 20), &replies));
    let folder = tempfile::tempdir().unwrap();
    let output = run_copy(&server.start(), folder.path(), &[]);
    assert_copied(&server, folder.path(), &output);
    assert!(said(&output).contains("one connection"), "{output:?}");
    assert_eq!(server.transfers.load(Ordering::Relaxed), 1);
}

#[test]
fn a_file_that_changes_between_two_parts_is_begun_anew() {
    for change_before in [1, 2, 3] {
        let mut server = FtpServer::new(random_bytes(6 << 20), &[]);
        server.change_before = Some(change_before);
        let server = Arc::new(server);
        let folder = tempfile::tempdir().unwrap();
        let output = run_copy(&server.start(), folder.path(), &[]);
        assert_copied(&server, folder.path(), &output);
        assert!(said(&output).contains("has changed"), "{output:?}");
    }
}

#[test]
fn what_has_come_stays_where_a_server_does_not_tell_at_the_end_whether_it_changed() {
    let server = Arc::new(FtpServer::new(random_bytes(1 << 20), &[]));
    server.refuses_once.store(true, Ordering::Relaxed);
    let url = server.start();
    let folder = tempfile::tempdir().unwrap();
    let refused = run_copy(&url, folder.path(), &[]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(said(&refused).contains("530 full"), "{refused:?}");
    assert!(fs::read_dir(folder.path()).unwrap().count() > 0);
    let output = run_copy(&url, folder.path(), &[]);
    assert_copied(&server, folder.path(), &output);
}

#[test]
fn servers_that_refuse_or_break_the_rules_get_one_sentence_and_nothing_stays() {
    let endless = "220-a\r\n".repeat(4000);
    let no_size = ("SIZE", "502 no\r\n");
    let cases: [(&[(&'static str, &str)], &str); 9] = [
        (&[("", "SSH-2.0-OpenSSH_10.2\r\n")], "not FTP"),
        (&[("", &endless)], "longer than 16 KiB"),
        (&[("", "421 \x1b[2Jfull\r\n")], "421"),
        (
            &[("PASS", "530 no anonymous users\r\n")],
            "530 no anonymous users",
        ),
        (&[("EPSV", "229 data (|||0|)\r\n")], "229"),
        (&[("RETR", "550 no such file\r\n")], "550 no such file"),
        (&[("RETR", "")], "says nothing any more"),
        (&[("", "")], "says nothing any more"),
        (&[no_size, ("end", "426 torn\r\n")], "426 torn"),
    ];
    for (replies, sentence) in cases {
        let server = Arc::new(FtpServer::new(random_bytes(100_000), replies));
        let folder = tempfile::tempdir().unwrap();
        let output = run_copy(&server.start(), folder.path(), &["--timeout", "2"]);
        assert_eq!(output.status.code(), Some(1), "{sentence}: {output:?}");
        assert!(said(&output).contains(sentence), "{sentence}: {output:?}");
        assert!(!said(&output).contains('\x1b'), "{output:?}");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            0,
            "{sentence}"
        );
    }
}
