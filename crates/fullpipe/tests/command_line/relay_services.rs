//! Servers and clients that know nothing of relays, through a pair.

use std::fs;
use std::process::Command;

use fullpipe_testkit::{Postgres, Running, SshServer, free_port, require, wait_for_listener};

use crate::common::run;
use crate::relay::{Kind, Relays};

/// Bytes that each service carries.
const BYTES: usize = 3_000_000;

#[test]
fn iperf3_works_through_relays() {
    require!(Iperf3);
    for kind in [Kind::Alone, Kind::Tls] {
        let port = free_port();
        let relays = Relays::start(kind, port);
        for reverse in [&["-R"][..], &[]] {
            // One that has just served a test may still be busy with its end.
            let mut server = Command::new("iperf3");
            let _server = Running::start(server.args(["-s", "-1", "-p", &port.to_string()]));
            wait_for_listener(port);
            let to = relays.port.to_string();
            succeeds(
                Command::new("iperf3")
                    .args(["-c", "127.0.0.1", "-p", &to, "-n", "20M"])
                    .args(reverse),
            );
        }
    }
}

#[test]
fn ssh_works_through_a_pair() {
    require!(Sshd, Root);
    let port = free_port();
    let sshd = SshServer::on(port);
    let _server = sshd.start();
    let relays = Relays::start(Kind::Tls, port);
    let echo = format!(
        "head -c {BYTES} /dev/zero | {} 127.0.0.1 cat | wc -c",
        sshd.client_at(relays.port)
    );
    assert_eq!(
        succeeds(Command::new("bash").args(["-c", &echo])).trim(),
        BYTES.to_string()
    );
}

#[test]
fn nginx_works_through_a_pair_that_compresses() {
    require!(Nginx, Curl);
    let folder = tempfile::tempdir().unwrap();
    let (at, port) = (folder.path().display(), free_port());
    let configuration = format!(
        "daemon off;\nmaster_process off;\nerror_log stderr;\npid {at}/pid;\nevents {{}}\nhttp {{\n\
         access_log off;\nclient_body_temp_path {at};\nproxy_temp_path {at};\nfastcgi_temp_path {at};\n\
         uwsgi_temp_path {at};\nscgi_temp_path {at};\nserver {{ listen 127.0.0.1:{port}; root {at}; }}\n}}\n"
    );
    fs::write(folder.path().join("nginx.conf"), configuration).unwrap();
    let content: Vec<u8> = (0..BYTES).map(|place| (place / 7) as u8).collect();
    fs::write(folder.path().join("file"), &content).unwrap();
    let _server = Running::start(
        Command::new("/usr/sbin/nginx")
            .arg("-c")
            .arg(folder.path().join("nginx.conf")),
    );
    wait_for_listener(port);
    let relays = Relays::start(Kind::Compressed, port);
    let received = folder.path().join("received");
    let url = format!("http://127.0.0.1:{}/file", relays.port);
    succeeds(
        Command::new("curl")
            .args(["--silent", "--fail", "--output"])
            .arg(&received)
            .arg(&url),
    );
    assert!(fs::read(received).unwrap() == content);
}

#[test]
fn postgresql_works_through_a_pair() {
    require!(Postgres, Socat);
    let postgres = Postgres::start();
    let port = free_port();
    let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr");
    let socket = format!("UNIX-CONNECT:{}", postgres.socket().display());
    let _server = Running::start(Command::new("socat").args([listen, socket]));
    wait_for_listener(port);
    let relays = Relays::start(Kind::Tls, port);
    let address = format!(
        "host=127.0.0.1 port={} user=postgres dbname=postgres",
        relays.port
    );
    let query = format!("SELECT length(repeat('x', {BYTES})), repeat('y', {BYTES})");
    let answer = succeeds(Command::new("psql").args([
        "--no-psqlrc",
        "--tuples-only",
        "--no-align",
        &address,
        "-c",
        &query,
    ]));
    assert_eq!(answer.trim(), format!("{BYTES}|{}", "y".repeat(BYTES)));
}

/// Returns what a client prints, which must succeed.
fn succeeds(command: &mut Command) -> String {
    let output = run(command, 30);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
