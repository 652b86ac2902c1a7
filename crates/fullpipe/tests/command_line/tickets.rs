//! Servers of tickets: each ticket admits its one test, and nothing else is admitted.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fullpipe_iperf::{SealedTicket, SharedKey, TestTicket};
use fullpipe_record::Direction;
use fullpipe_testkit::{Running, load_slot, require, write_secret};
use fullpipe_units::{BitRate, ByteCount};
use tempfile::TempDir;

use super::hostile::{HOSTILE, PROMPT, Peer, Server, refusal, state};
use crate::common::{fullpipe, run};

const SECRET: &str = "correct horse battery";

/// A server of tickets, and the files of its clients.
struct Site {
    server: Server,
    folder: TempDir,
}

impl Site {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        write_secret(&secret, SECRET);
        let flags = ["--tickets", secret.to_str().unwrap()];
        let server = Server::start(&[&flags, more].concat());
        Self { server, folder }
    }

    /// Returns the flags of a client with this ticket.
    fn flags(&self, ticket: &SealedTicket) -> [String; 2] {
        static TICKETS: AtomicU32 = AtomicU32::new(0);
        let number = TICKETS.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(format!("ticket-{number}"));
        write_secret(&path, &ticket.to_line());
        ["--ticket".to_owned(), path.to_str().unwrap().to_owned()]
    }

    /// Returns the command that measures with `flags`.
    fn measurement(&self, flags: &[&str]) -> Command {
        let port = self.server.address.port().to_string();
        fullpipe(&[&["measure", "127.0.0.1", "-p", &port], flags].concat())
    }

    /// Measures with a ticket and more flags.
    fn measure(&self, ticket: &SealedTicket, more: &[&str]) -> Output {
        let flags = self.flags(ticket);
        let flags = flags.iter().map(String::as_str).collect::<Vec<_>>();
        run(&mut self.measurement(&[&flags, more].concat()), 30)
    }

    /// Asserts that the client failed and said why, and that the log has the reason.
    fn assert_refused(&self, output: &Output, said: &str, logged: &str) {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(said), "no {said:?} in {stderr}");
        assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
        self.server.assert_says(logged);
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

fn secret(text: &str) -> SharedKey {
    SharedKey::from_file_content(text.as_bytes()).unwrap()
}

/// A ticket that is open now.
fn ticket(slot: &str) -> TestTicket {
    TestTicket {
        slot: slot.to_owned(),
        client: "a.example".to_owned(),
        opens: now() - 60,
        closes: now() + 600,
        seconds: 2,
        streams: 1,
        bytes: ByteCount::from_mib(10),
        rate: None,
        udp: false,
        direction: None,
    }
}

fn sealed(ticket: &TestTicket) -> SealedTicket {
    ticket.seal(&secret(SECRET))
}

#[test]
fn a_ticket_admits_its_test_once() {
    let _slot = load_slot();
    let site = Site::start(&[]);
    let own = sealed(&ticket("once"));
    let served = site.measure(&own, &["-n", "1M"]);
    assert!(served.status.success(), "{served:?}");
    site.server
        .assert_says("receiving, 1 stream, slot once of a.example");
    let again = site.measure(&own, &["-n", "1M"]);
    let logged = "refused the client's test: the ticket of a.example for slot once was used before";
    site.assert_refused(&again, "the ticket has been used before", logged);
    let next = TestTicket {
        udp: true,
        rate: Some(BitRate::from_mbps(10)),
        direction: Some(Direction::Download),
        ..ticket("next")
    };
    let served = site.measure(&sealed(&next), &["-u", "-b", "10M", "-t", "1", "-R"]);
    assert!(served.status.success(), "{served:?}");
}

/// A plan that names the address of somebody else must not load that.
#[test]
fn a_server_that_wants_no_ticket_gets_no_load_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ticket");
    write_secret(&file, &sealed(&ticket("stray")).to_line());
    let server = Server::start(&[]);
    let port = server.address.port().to_string();
    let words = ["measure", "127.0.0.1", "-p", &port, "-n", "1M", "--ticket"];
    let output = run(fullpipe(&words).arg(&file), 30);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("asks for no ticket"), "{said}");
    assert!(!server.log().contains("done at"), "{}", server.log());
}

#[test]
fn of_tests_with_one_ticket_at_once_one_is_served() {
    let _slot = load_slot();
    let site = Site::start(&[]);
    let flags = site.flags(&sealed(&ticket("both")));
    let flags = [&flags[0], &flags[1], "-t", "1", "-b", "10M"];
    let both: Vec<Running> = (0..4)
        .map(|_| Running::start(&mut site.measurement(&flags)))
        .collect();
    let ended = both.into_iter().map(|one| one.finish(6 * PROMPT));
    let mut codes: Vec<_> = ended.map(|output| output.status.code()).collect();
    codes.sort_unstable();
    let log = site.server.log();
    assert_eq!(codes, [Some(0), Some(1), Some(1), Some(1)], "{log}");
    assert_eq!(log.matches("receiving, 1 stream").count(), 1, "{log}");
    site.server.assert_says("for slot both was used before");
}

#[test]
fn what_no_ticket_permits_is_refused_and_each_reason_is_said() {
    require!(Iperf3);
    let site = Site::start(&[]);
    let forged = ticket("1").seal(&secret("incorrect horse battery"));
    let early = TestTicket {
        opens: now() + 300,
        ..ticket("2")
    };
    let late = TestTicket {
        closes: now() - 30,
        ..ticket("3")
    };
    let slow = TestTicket {
        rate: Some(BitRate::from_mbps(5)),
        ..ticket("8")
    };
    let upload = TestTicket {
        direction: Some(Direction::Upload),
        ..ticket("9")
    };
    let short: &[&str] = &["-t", "1"];
    for (ticket, flags, said, logged) in [
        (
            forged,
            short,
            "is the ticket whole, and for this server?",
            "the client's ticket is forged",
        ),
        (
            sealed(&early),
            short,
            "the time of the ticket has not come",
            "for slot 2 opens in ",
        ),
        (
            sealed(&late),
            short,
            "the time of the ticket is over",
            "for slot 3 closed 3",
        ),
        (
            sealed(&ticket("4")),
            &["-t", "3"],
            "longer than",
            "slot 4 permits 2 s; 3 s asked for",
        ),
        (
            sealed(&ticket("5")),
            &["-P", "2", "-t", "1"],
            "so many parallel",
            "slot 5 permits 1 stream; 2",
        ),
        (
            sealed(&ticket("6")),
            &["-n", "11M"],
            "longer than",
            "slot 6 permits 10 MiB; 11 MiB asked for",
        ),
        (
            sealed(&ticket("7")),
            &["-u", "-t", "1"],
            "this kind of test",
            "slot 7 permits no UDP",
        ),
        (
            sealed(&slow),
            short,
            "the total rate",
            "slot 8 permits 5 Mbit/s; no limit asked for",
        ),
        (
            sealed(&upload),
            &["-R", "-t", "1"],
            "this kind of test",
            "slot 9 permits upload only",
        ),
    ] {
        site.assert_refused(&site.measure(&ticket, flags), said, logged);
    }
    let without = run(&mut site.measurement(short), 30);
    let said = "it serves only clients that have a ticket; --ticket gives one";
    site.assert_refused(&without, said, "the client has no ticket");
    let secret = site.folder.path().join("secret");
    let with_secret = ["--key-file", secret.to_str().unwrap(), "-t", "1"];
    let with_secret = run(&mut site.measurement(&with_secret), 30);
    site.assert_refused(&with_secret, said, "the client has no ticket");
    let port = site.server.address.port().to_string();
    let mut iperf3 = Command::new("iperf3");
    let iperf3 = run(iperf3.args(["-c", "127.0.0.1", "-t", "1", "-p", &port]), 30);
    assert!(!iperf3.status.success(), "{iperf3:?}");
    let mut peer = Peer::call(site.server.address, HOSTILE).unwrap();
    peer.ask(r#"{"tcp":true,"time":1}"#).unwrap();
    assert_eq!(refusal(&peer.ending(PROMPT).0), Some(142));
    let log = site.server.log();
    assert!(
        !log.contains("receiving") && !log.contains("sending"),
        "{log}"
    );
}

#[test]
fn a_ticket_that_was_only_seen_opens_no_stream() {
    let site = Site::start(&[]);
    let seen = sealed(&ticket("seen"));
    let mut thief = Peer::call(site.server.address, HOSTILE).unwrap();
    let text = seen.text();
    thief
        .ask(&format!(
            r#"{{"tcp":true,"time":1,"x_fullpipe":{{"version":3,"ticket":"{text}"}}}}"#
        ))
        .unwrap();
    thief.expect(state::KEY).unwrap();
    let mut nonce = [0; 32];
    thief.control.read_exact(&mut nonce).unwrap();
    let mut stream = thief.open().unwrap();
    stream.set_read_timeout(Some(PROMPT)).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer, [state::DENIED]);
    let proof = [&[state::KEY][..], &nonce].concat();
    thief.control.write_all(&proof).unwrap();
    assert_eq!(refusal(&thief.ending(PROMPT).0), Some(142));
    let served = site.measure(&seen, &["-n", "1M"]);
    assert!(served.status.success(), "its slot is not used: {served:?}");
}

#[test]
fn a_test_ends_at_the_bytes_of_its_ticket() {
    let _slot = load_slot();
    let site = Site::start(&[]);
    for (slot, flags) in [
        ("up", &["-b", "100M", "-t", "2"][..]),
        ("down", &["-b", "100M", "-t", "2", "-R"]),
    ] {
        let small = TestTicket {
            bytes: ByteCount::from_mib(4),
            ..ticket(slot)
        };
        let cut = site.measure(&sealed(&small), flags);
        assert_eq!(cut.status.code(), Some(1), "{cut:?}");
    }
    let log = site.server.log();
    let cuts = log
        .matches("it carried more than the 4 MiB that are permitted")
        .count();
    assert_eq!(cuts, 2, "{log}");
}

#[test]
fn flags_that_no_ticket_fits_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| -> String {
        let path: PathBuf = folder.path().join(name);
        write_secret(&path, content);
        path.to_str().unwrap().to_owned()
    };
    let key = file("key", SECRET);
    let own = file("ticket", &sealed(&ticket("1")).to_line());
    for (flags, why) in [
        (
            &["serve", "--tickets", &key, "--key-file", &key][..],
            "--key-file",
        ),
        (&["serve", "--tickets", &key, "--web", "0"], "--web"),
        (&["serve", "--tickets", &key, "--share", "/tmp"], "--share"),
        (
            &["serve", "--tickets", &key, "--iperf2-port", "0"],
            "--iperf2-port",
        ),
        (
            &["measure", "127.0.0.1", "--ticket", &own, "--key-file", &key],
            "--key-file",
        ),
        (
            &["measure", "127.0.0.1", "--ticket", &own, "--iperf2"],
            "--iperf2",
        ),
        (
            &["measure", "ssh://127.0.0.1", "--ticket", &own],
            "leave out --iperf2 and --ticket",
        ),
        (
            &["diagnose", "127.0.0.1", "--ticket", &key],
            "it is not TICKET.KEY",
        ),
    ] {
        let refused = Running::start(&mut fullpipe(flags)).finish(Duration::from_secs(20));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(2) && said.contains(why),
            "{flags:?}: {said}"
        );
    }
}
