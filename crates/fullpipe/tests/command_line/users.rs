//! iperf3's authentication: a user's name and password, encrypted with the server's RSA key.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{fullpipe, pseudo_terminal, run};
use fullpipe_control::{ClientLogin, RsaPadding, RsaPublicKey, unix_seconds};
use fullpipe_iperf::UserCredentials;
use fullpipe_testkit::{
    FalseServer, Part, Running, document, free_port, require, sentence, wait_for_listener,
    write_secret,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};
use socket2::{Domain, Socket, Type};
use zeroize::Zeroizing;

const TIMEOUT: u64 = 20;

/// A file of the tests of `control`, which only its owner may read.
fn file(name: &str) -> String {
    let content = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../control/tests/rsa")
        .join(name);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("rsa-{name}"));
    // Another test may read it at the same time.
    let own = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(&own, std::fs::read(content).unwrap()).unwrap();
    own.persist(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Starts `command` as a server with users, on a port of its own.
fn serving(mut command: Command, more: &[&str]) -> (Running, u16) {
    let port = free_port();
    command.args(["-p", &port.to_string()]).args(more);
    command.args([
        "--rsa-private-key-path",
        &file("private.pem"),
        "--authorized-users-path",
        &file("users.csv"),
    ]);
    let server = Running::start(&mut command);
    wait_for_listener(port);
    (server, port)
}

fn iperf3(arguments: &[&str]) -> Command {
    let mut command = Command::new("iperf3");
    command.args(arguments);
    command
}

/// Runs the client `command` as user mario with `password`.
fn as_mario(mut command: Command, port: u16, password: &str, more: &[&str]) -> Output {
    command
        .args(["-p", &port.to_string(), "-n", "1M"])
        .args(more)
        .env("IPERF3_PASSWORD", password);
    run(
        command.args([
            "--username",
            "mario",
            "--rsa-public-key-path",
            &file("public.pem"),
        ]),
        TIMEOUT,
    )
}

fn measure() -> Command {
    fullpipe(&["measure", "127.0.0.1", "--json"])
}

fn assert_succeeded(output: &Output) {
    let said = [&output.stdout[..], &output.stderr]
        .map(String::from_utf8_lossy)
        .concat();
    assert!(output.status.success(), "{said}");
    assert!(
        !said.contains("rossi"),
        "nothing prints the password: {said}"
    );
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Ends the server, and returns what it printed.
fn log(server: Running) -> String {
    server.interrupt();
    let output = server.finish(Duration::from_secs(TIMEOUT));
    [&output.stdout[..], &output.stderr]
        .map(String::from_utf8_lossy)
        .concat()
}

#[test]
fn a_real_iperf3_server_knows_our_user() {
    require!(Iperf3);
    let (_server, port) = serving(iperf3(&["-s"]), &[]);
    let ours = [measure(), fullpipe(&["iperf3", "-c", "127.0.0.1"])];
    for client in ours {
        assert_succeeded(&as_mario(client, port, "rossi", &["--use-pkcs1-padding"]));
    }
    let refused = sentence(
        &as_mario(
            measure(),
            port,
            "Rossi",
            &["--use-pkcs1-padding", "--quiet"],
        ),
        1,
    );
    assert!(
        refused.contains("iperf3 error 142")
            && refused.contains("are name, password and clock right"),
        "{refused}"
    );
    let padded = sentence(&as_mario(measure(), port, "rossi", &["--quiet"]), 1);
    assert!(
        padded.contains("iperf3 before 3.17 needs --use-pkcs1-padding"),
        "{padded}"
    );
    let nameless = run(measure().args(["-p", &port.to_string()]), TIMEOUT);
    assert!(
        sentence(&nameless, 1).contains("it asks for a user: --username and --rsa-public-key-path")
    );
    let refused = as_mario(
        fullpipe(&["iperf3", "-c", "127.0.0.1"]),
        port,
        "Rossi",
        &["--use-pkcs1-padding"],
    );
    assert_eq!(
        (refused.status.code(), &*said(&refused)),
        (Some(1), "iperf3: error - test authorization failed\n")
    );
    assert_succeeded(&as_mario(
        measure(),
        port,
        "rossi",
        &["--use-pkcs1-padding", "-R"],
    ));
}

#[test]
fn a_real_iperf3_client_is_a_user_of_ours() {
    require!(Iperf3);
    for server in [fullpipe(&["serve"]), fullpipe(&["iperf3", "-s"])] {
        let (server, port) = serving(server, &["--use-pkcs1-padding"]);
        let client = || iperf3(&["-c", "127.0.0.1"]);
        assert_succeeded(&as_mario(client(), port, "rossi", &[]));
        let wrong = as_mario(client(), port, "Rossi", &[]);
        assert_eq!(
            (wrong.status.code(), &*said(&wrong)),
            (Some(1), "iperf3: error - test authorization failed\n")
        );
        let nameless = run(client().args(["-p", &port.to_string()]), TIMEOUT);
        assert_eq!(said(&nameless), said(&wrong));
        assert_succeeded(&as_mario(client(), port, "rossi", &["-R", "-P", "2"]));
        let log = log(server);
        let both = log.contains("the password of user \"mario\" is wrong")
            && log.contains("the client names no user");
        assert!(
            both || log
                .matches("iperf3: error - test authorization failed\n")
                .count()
                == 2,
            "{log}"
        );
    }
}

#[test]
fn between_ours_the_newer_padding_is_used_and_the_next_client_is_served() {
    let (server, port) = serving(fullpipe(&["serve"]), &[]);
    let refused = |password, more: &[&str]| {
        let refused = sentence(&as_mario(measure(), port, password, more), 1);
        assert!(refused.contains("iperf3 error 142"), "{refused}");
        refused
    };
    let wrong = refused("Rossi", &[]);
    assert_eq!(
        refused("rossi", &["--use-pkcs1-padding"]),
        wrong,
        "nobody sees why"
    );
    let output = as_mario(measure(), port, "rossi", &[]);
    assert_succeeded(&output);
    assert_eq!(
        document(&output)["measurement"]["summary"]["received"],
        1 << 20
    );
    assert_succeeded(&as_mario(
        fullpipe(&["iperf3", "-c", "127.0.0.1"]),
        port,
        "rossi",
        &["-u", "-b", "0"],
    ));
    let log = log(server);
    for why in [
        "the password of user \"mario\" is wrong",
        "another key or another padding",
    ] {
        assert!(log.contains(why), "{why:?} is not in {log}");
    }
    assert!(
        !log.contains("Rossi") && !log.contains("rossi"),
        "nothing prints the password: {log}"
    );
}

/// Asks a server for a test, with this `token`.
fn ask(port: u16, token: &str) -> TcpStream {
    ask_from(Ipv4Addr::LOCALHOST, port, token)
}

/// Does the same as [`ask_question`], from one of this host's many loopback addresses.
fn ask_from(from: Ipv4Addr, port: u16, token: &str) -> TcpStream {
    static COOKIES: AtomicU32 = AtomicU32::new(0);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket
        .connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
        .unwrap();
    let mut client = TcpStream::from(socket);
    client
        .set_read_timeout(Some(Duration::from_secs(TIMEOUT)))
        .unwrap();
    let cookie = format!("{:a>36}\0", COOKIES.fetch_add(1, Ordering::Relaxed));
    client.write_all(cookie.as_bytes()).unwrap();
    let mut state = [0];
    client.read_exact(&mut state).unwrap();
    assert_eq!(state, [9], "it asks for the parameters");
    let parameters = format!(r#"{{"tcp":true,"time":1,"authtoken":"{token}"}}"#);
    client
        .write_all(
            &[
                &(parameters.len() as u32).to_be_bytes()[..],
                parameters.as_bytes(),
            ]
            .concat(),
        )
        .unwrap();
    client
}

/// The recorded token is right but for its time, the clock; the others cannot be decrypted, or are
/// not base64.
#[test]
fn all_refusals_are_alike() {
    let (server, port) = serving(fullpipe(&["serve"]), &[]);
    let recorded = std::fs::read_to_string(file("oaep.token")).unwrap();
    let other = std::fs::read_to_string(file("pkcs1.token")).unwrap();
    for token in [recorded.trim(), other.trim(), "", "AAAA", "no base64"] {
        let begun = Instant::now();
        let mut said = Vec::new();
        ask(port, token).read_to_end(&mut said).unwrap();
        let after = begun.elapsed();
        assert_eq!(said, [0xFE, 0, 0, 0, 142, 0, 0, 0, 0], "{token}");
        assert!(after >= Duration::from_millis(250), "{token}: {after:?}");
    }
    assert_succeeded(&as_mario(measure(), port, "rossi", &[]));
    let log = log(server);
    assert!(
        log.contains("the clock of user \"mario\" differs from ours by"),
        "{log}"
    );
}

#[test]
fn guessing_passwords_becomes_slow() {
    let (server, port) = serving(fullpipe(&["serve"]), &[]);
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(move || ask(port, "AAAA").read_to_end(&mut Vec::new()).unwrap());
        }
    });
    let refused = sentence(&as_mario(measure(), port, "rossi", &[]), 1);
    assert!(
        refused.contains("iperf3 error 142"),
        "the right password too must wait: {refused}"
    );
    let log = log(server);
    assert!(
        log.contains("too many wrong passwords came from its address"),
        "{log}"
    );
}

/// Returns a token of a login that was made now.
fn token(user: &str, password: &str) -> String {
    let credentials =
        UserCredentials::new(user.to_owned(), Zeroizing::new(password.to_owned())).unwrap();
    let key = RsaPublicKey::from_pem(&std::fs::read(file("public.pem")).unwrap()).unwrap();
    ClientLogin::new(credentials, key, RsaPadding::Oaep)
        .create_token(unix_seconds())
        .unwrap()
}

/// Returns true if a server opens streams for this login.
fn logs_in(from: Ipv4Addr, port: u16, user: &str, password: &str) -> bool {
    let mut state = [0];
    ask_from(from, port, &token(user, password))
        .read_exact(&mut state)
        .unwrap();
    state == [10]
}

fn client(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 9, last)
}

/// Sends a hundred wrong passwords of mario in two waves, each all at once, from so many addresses.
/// Before each of them, luigi logs in from the same address if that is `interleaved`.
fn guess(port: u16, addresses: u8, interleaved: bool) {
    for wave in 0..2 {
        thread::scope(|scope| {
            for number in wave * 50..wave * 50 + 50 {
                let from = client(1 + number % addresses);
                scope.spawn(move || {
                    if interleaved {
                        logs_in(from, port, "luigi", "verdi");
                    }
                    assert!(!logs_in(from, port, "mario", &format!("guess {number}")));
                });
            }
        });
    }
}

/// Of 64 guesses at once all were checked, and a login of one's own made it possible to guess on.
#[test]
fn in_whatever_form_passwords_are_guessed_few_are_checked_and_others_log_in() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users.csv");
    let luigi = "luigi,6563eb2f7a0f30dbab92de13eef27f52bc74b1eeee4ae937f0b60ac2db4cc418\n";
    write_secret(
        &users,
        &[&std::fs::read_to_string(file("users.csv")).unwrap(), luigi].concat(),
    );
    for (addresses, interleaved) in [(1, false), (100, false), (1, true), (50, true)] {
        let port = free_port();
        let mut command = fullpipe(&["serve", "--json-lines", "-p", &port.to_string()]);
        command
            .args(["--rsa-private-key-path", &file("private.pem")])
            .arg("--authorized-users-path")
            .arg(&users);
        let server = Running::start(&mut command);
        wait_for_listener(port);
        assert!(logs_in(client(200), port, "mario", "rossi"));
        guess(port, addresses, interleaved);
        // Those of other prefixes log in, and mario does from where mario has before.
        assert!(
            logs_in(client(201), port, "luigi", "verdi")
                && logs_in(client(200), port, "mario", "rossi")
        );
        let wrong: u64 = log(server)
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["data"].take())
            .filter(|data| {
                data["why"]
                    .as_str()
                    .is_some_and(|why| why.contains("\"mario\" is wrong"))
            })
            .map(|data| data["connections"].as_u64().unwrap_or(1))
            .sum();
        assert!(
            (1..=12).contains(&wrong),
            "{addresses}, {interleaved}: {wrong} were checked"
        );
    }
}

#[test]
fn how_far_clocks_may_differ_is_the_operators_choice() {
    // The recorded token is older than ten seconds, and not as old as this.
    let (_server, port) = serving(fullpipe(&["serve"]), &["--time-skew-threshold", "3e9"]);
    let token = std::fs::read_to_string(file("oaep.token")).unwrap();
    let mut state = [0];
    ask(port, token.trim()).read_exact(&mut state).unwrap();
    assert_eq!(state, [10], "it opens the data connections");
}

#[test]
fn the_silent_refusal_of_3_21_is_explained() {
    let server = FalseServer::start(Part::Answers(&[9]));
    let refused = sentence(&as_mario(measure(), server.port(), "rossi", &[]), 1);
    assert!(
        refused.contains("closed the control connection"),
        "{refused}"
    );
    assert!(
        refused.contains("are name, password and clock right"),
        "{refused}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn files_and_flags_that_do_not_fit_are_refused() {
    let (private, public, users) = (file("private.pem"), file("public.pem"), file("users.csv"));
    let elliptic = file("elliptic.pem");
    for (arguments, why) in [
        (
            &["measure", "h", "--username", "mario"][..],
            "--rsa-public-key-path",
        ),
        (
            &["measure", "h", "--rsa-public-key-path", &public],
            "--username",
        ),
        (&["measure", "h", "--use-pkcs1-padding"], "--username"),
        (
            &[
                "measure",
                "h",
                "--username",
                "mario",
                "--rsa-public-key-path",
                "/nosuch",
            ],
            "No such file",
        ),
        (
            &[
                "measure",
                "h",
                "--username",
                "mario",
                "--rsa-public-key-path",
                &users,
            ],
            "no public key in PEM",
        ),
        (
            &[
                "measure",
                "h",
                "--username",
                "mario",
                "--rsa-public-key-path",
                &elliptic,
            ],
            "none of RSA",
        ),
        (
            &["serve", "--rsa-private-key-path", &private],
            "--authorized-users-path",
        ),
        (
            &["serve", "--authorized-users-path", &users],
            "--rsa-private-key-path",
        ),
        (
            &["serve", "--time-skew-threshold", "5"],
            "--rsa-private-key-path",
        ),
        (
            &[
                "serve",
                "--rsa-private-key-path",
                &public,
                "--authorized-users-path",
                &users,
            ],
            "no private key in PEM",
        ),
        (
            &[
                "serve",
                "--rsa-private-key-path",
                &elliptic,
                "--authorized-users-path",
                &users,
            ],
            "none of RSA",
        ),
        (
            &[
                "serve",
                "--rsa-private-key-path",
                &private,
                "--authorized-users-path",
                &private,
            ],
            "it names no user",
        ),
        (
            &[
                "serve",
                "--rsa-private-key-path",
                &private,
                "--authorized-users-path",
                "/nosuch",
            ],
            "No such file",
        ),
    ] {
        let output = run(&mut fullpipe(arguments), TIMEOUT);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(why),
            "{arguments:?}: {}",
            said(&output)
        );
    }
}

#[test]
fn without_a_password_and_a_terminal_nothing_is_sent() {
    let port = free_port().to_string();
    let flags = [
        "-p",
        &port,
        "--username",
        "mario",
        "--rsa-public-key-path",
        &file("public.pem"),
    ];
    let lacking = run(measure().args(flags).env_remove("IPERF3_PASSWORD"), TIMEOUT);
    assert!(
        sentence(&lacking, 2).contains("put it into IPERF3_PASSWORD"),
        "{}",
        said(&lacking)
    );
    let empty = run(measure().args(flags).env("IPERF3_PASSWORD", ""), TIMEOUT);
    assert!(
        sentence(&empty, 2).contains("the password is empty"),
        "{}",
        said(&empty)
    );
    let drop_in = run(
        fullpipe(&["iperf3", "-c", "127.0.0.1"])
            .args(flags)
            .env_remove("IPERF3_PASSWORD"),
        TIMEOUT,
    );
    let words = "iperf3: parameter error - you must specify a username, password, and path to a valid RSA public key";
    assert_eq!(drop_in.status.code(), Some(1));
    assert!(said(&drop_in).starts_with(words), "{}", said(&drop_in));
}

/// A terminal whose other end we hold.
struct Desk {
    ours: File,
    theirs: File,
}

impl Desk {
    fn new() -> Self {
        let (ours, theirs) = pseudo_terminal();
        Self { ours, theirs }
    }

    /// Starts a measurement at this terminal as user mario, and waits until it asks for the
    /// password.
    fn start(&mut self, port: u16) -> Child {
        let end = || self.theirs.try_clone().unwrap();
        let mut command = fullpipe(&[
            "measure",
            "127.0.0.1",
            "-n",
            "1M",
            "--json",
            "-p",
            &port.to_string(),
        ]);
        command.args([
            "--username",
            "mario",
            "--rsa-public-key-path",
            &file("public.pem"),
        ]);
        let child = command
            .env_remove("IPERF3_PASSWORD")
            .stdin(end())
            .stderr(end())
            .stdout(Stdio::piped())
            .spawn();
        let child = child.unwrap();
        assert_eq!(
            self.shown("Password of mario: ".len()),
            "Password of mario: "
        );
        child
    }

    /// The next so many bytes on the screen.
    fn shown(&mut self, length: usize) -> String {
        let timeout = Timespec {
            tv_sec: TIMEOUT.cast_signed(),
            tv_nsec: 0,
        };
        let mut shown = vec![0; length];
        for byte in shown.chunks_mut(1) {
            let waited = poll(
                &mut [PollFd::new(&self.ours, PollFlags::IN)],
                Some(&timeout),
            )
            .unwrap();
            assert_eq!(waited, 1, "nothing more is shown");
            self.ours.read_exact(byte).unwrap();
        }
        String::from_utf8(shown).unwrap()
    }

    fn shows_what_is_typed(&self) -> bool {
        tcgetattr(&self.theirs)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    }
}

#[test]
fn a_password_is_asked_for_and_not_shown() {
    let (_server, port) = serving(fullpipe(&["serve"]), &[]);
    let mut desk = Desk::new();
    let client = desk.start(port);
    assert!(!desk.shows_what_is_typed());
    desk.ours.write_all(b"rossi\n").unwrap();
    assert_succeeded(&client.wait_with_output().unwrap());
    assert!(desk.shows_what_is_typed());
    desk.theirs.write_all(b"end").unwrap();
    assert_eq!(desk.shown("\r\nend".len()), "\r\nend", "and nothing else");
}

#[test]
fn who_interrupts_a_question_has_his_terminal_back() {
    let mut desk = Desk::new();
    let mut client = desk.start(free_port());
    kill_process(Pid::from_child(&client), Signal::INT).unwrap();
    assert_eq!(client.wait().unwrap().code(), Some(130));
    assert!(desk.shows_what_is_typed());
}

#[test]
fn a_password_that_the_key_cannot_carry_is_refused() {
    let (_server, port) = serving(fullpipe(&["serve"]), &[]);
    let refused = sentence(&as_mario(measure(), port, &"x".repeat(300), &[]), 2);
    assert!(
        refused.contains("too long for the server's key of 2048 bits"),
        "{refused}"
    );
}
