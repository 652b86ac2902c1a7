//! A control connection that nobody on the way can read.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{fullpipe, run};
use fullpipe_testkit::{Running, document, free_port, sentence, wait_for_listener, write_secret};

const TIMEOUT: u64 = 20;

/// A certificate for the loopback address, and its key, in one file; and the certificate alone.
struct Certificate {
    identity: PathBuf,
    trust: PathBuf,
    _folder: tempfile::TempDir,
}

impl Certificate {
    fn make() -> Self {
        let made =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])
                .unwrap();
        Self::of(&made.cert.pem(), &made.signing_key.serialize_pem())
    }

    /// One that may sign others, as `openssl req -x509` makes it.
    fn make_authority() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self::of(
            &parameters.self_signed(&key).unwrap().pem(),
            &key.serialize_pem(),
        )
    }

    fn of(certificate: &str, key: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            write_secret(&path, content);
            path
        };
        let identity = file("identity.pem", &format!("{certificate}{key}"));
        Self {
            identity,
            trust: file("trust.pem", certificate),
            _folder: folder,
        }
    }

    fn identity(&self) -> &str {
        self.identity.to_str().unwrap()
    }

    fn trust(&self) -> &str {
        self.trust.to_str().unwrap()
    }
}

fn serve(more: &[&str]) -> (Running, u16) {
    let port = free_port();
    let server = Running::start(fullpipe(&["serve", "-p", &port.to_string()]).args(more));
    wait_for_listener(port);
    (server, port)
}

fn measured(port: u16, more: &[&str]) -> Output {
    let port = port.to_string();
    run(
        fullpipe(&["measure", "127.0.0.1", "-n", "1M", "--json", "-p", &port]).args(more),
        TIMEOUT,
    )
}

/// Returns true if a test of one mebibyte arrived whole.
fn arrived(output: &Output) -> bool {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    document(output)["measurement"]["summary"]["received"] == 1 << 20
}

/// Relays connections to `server` and keeps the bytes that the client sends on the first one.
fn relay(server: u16) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let relayed = Arc::new(Mutex::new(Vec::new()));
    let first = Arc::clone(&relayed);
    thread::spawn(move || {
        for (client, index) in listener.incoming().map_while(Result::ok).zip(0..) {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
                return;
            };
            let relayed = (index == 0).then(|| Arc::clone(&first));
            let (back, forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || pass_on(client, server, relayed.as_deref()));
            thread::spawn(move || pass_on(back, forth, None));
        }
    });
    (port, relayed)
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, relayed: Option<&Mutex<Vec<u8>>>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if let Some(relayed) = relayed {
            relayed.lock().unwrap().extend_from_slice(&buffer[..length]);
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[test]
fn the_usual_self_signed_certificate_is_trusted_if_it_is_exactly_that() {
    let (certificate, other) = (Certificate::make_authority(), Certificate::make_authority());
    let (_server, port) = serve(&["--tls", certificate.identity()]);
    assert!(arrived(&measured(port, &["--tls", certificate.trust()])));
    let refused = measured(port, &["--tls", other.trust()]);
    assert!(
        sentence(&refused, 1).contains("cannot agree on TLS"),
        "{refused:?}"
    );
}

#[test]
fn nobody_on_the_way_reads_an_encrypted_control_connection() {
    let certificate = Certificate::make();
    let (_server, port) = serve(&["--tls", certificate.identity()]);
    let says = |relayed: &Mutex<Vec<u8>>, word: &str| {
        String::from_utf8_lossy(&relayed.lock().unwrap()).contains(word)
    };
    let (clear, relayed) = relay(port);
    assert!(
        arrived(&measured(clear, &[])),
        "a client that does not ask for TLS is served in the clear"
    );
    assert!(says(&relayed, "parallel") && says(&relayed, "cpu_util_total"));
    let (encrypted, relayed) = relay(port);
    assert!(arrived(&measured(
        encrypted,
        &["--tls", certificate.trust()]
    )));
    assert!(!relayed.lock().unwrap().is_empty());
    assert!(!says(&relayed, "parallel") && !says(&relayed, "cpu_util_total"));
}

#[test]
fn both_directions_and_udp_go_with_an_encrypted_control_connection() {
    let certificate = Certificate::make();
    let (_server, port) = serve(&["--tls", certificate.identity()]);
    for more in [&["-R"][..], &["-P", "4"], &["-u", "-b", "8M"]] {
        let output = measured(port, &[more, &["--tls", certificate.trust()]].concat());
        assert!(
            output.status.success(),
            "{more:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn a_server_that_shows_another_certificate_is_not_trusted() {
    let (one, other) = (Certificate::make(), Certificate::make());
    let (_server, port) = serve(&["--tls", one.identity()]);
    let said = sentence(&measured(port, &["--tls", other.trust()]), 1);
    assert!(
        said.contains("cannot agree on TLS with 127.0.0.1"),
        "{said}"
    );
    assert!(
        arrived(&measured(port, &["--tls", one.trust()])),
        "nobody is held up by it"
    );
}

#[test]
fn a_server_without_a_certificate_is_named() {
    let certificate = Certificate::make();
    let (_server, port) = serve(&[]);
    let said = sentence(&measured(port, &["--tls", certificate.trust()]), 1);
    assert!(
        said.contains("cannot agree on TLS with 127.0.0.1") && said.contains("serve --tls"),
        "{said}"
    );
}

#[test]
fn a_file_that_is_no_certificate_is_refused() {
    let certificate = Certificate::make();
    for arguments in [
        &["serve", "--tls", "/nosuch.pem"][..],
        &["serve", "--tls", certificate.trust()],
        &["serve", "--tls", "/dev/null"],
        &["measure", "127.0.0.1", "--tls", "/dev/null"],
        &["measure", "127.0.0.1", "--tls", "/nosuch.pem"],
    ] {
        let output = run(&mut fullpipe(arguments), TIMEOUT);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("--tls"), "{said}");
    }
}

#[test]
fn a_handshake_that_stalls_has_a_deadline() {
    let certificate = Certificate::make();
    let (_server, port) = serve(&["--tls", certificate.identity(), "--client-timeout", "1"]);
    for words in [&[][..], &[0x16], &[0x16, 3, 1, 0, 200, 1, 0]] {
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        client
            .set_read_timeout(Some(std::time::Duration::from_secs(5)))
            .unwrap();
        client.write_all(words).unwrap();
        let mut said = Vec::new();
        client.read_to_end(&mut said).unwrap();
    }
    assert!(arrived(&measured(port, &["--tls", certificate.trust()])));
}
