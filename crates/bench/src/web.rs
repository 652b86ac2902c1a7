//! `bench web`: how fast curl downloads over loopback with TLS from `fullpipe serve --web` and from
//! nginx, in turn.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use tempfile::TempDir;

use crate::comparison::{Outcome, Quantity, alternate};
use crate::network::free_port;
use crate::process::{Port, Process, RunError, last_words};
use crate::report::outcome_text;
use crate::{INTERRUPTED, LACKING, say};

/// Longest time until a server answers.
const STARTING: Duration = Duration::from_secs(10);

/// Longest time of a download.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Bytes of the object, which a connection loads so many times.
const OBJECT: u64 = 256 << 20;
const LOADS: u64 = 8;

/// Arguments of `openssl` for a certificate.
const SELF_SIGNED: &str =
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost";

/// Downloads from both servers.
#[derive(Debug, Args)]
pub(crate) struct WebDownloads {
    /// Number of downloads from each server by each version of HTTP
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    rounds: u16,
    /// The program [default: next to this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) fullpipe: Option<PathBuf>,
}

/// Both servers, with one certificate. They end with the value.
struct Servers {
    _running: [Process; 2],
    _folder: TempDir,
    /// Of `fullpipe serve --web` and of nginx.
    ports: [u16; 2],
}

impl WebDownloads {
    /// Downloads, and prints the rates. The exit code does not depend on them.
    pub(crate) fn run(&self, program: &Path, stop: &AtomicBool) -> ExitCode {
        let servers = match Servers::start(program, stop) {
            Ok(servers) => servers,
            Err(error) => {
                say(true, &format!("fullpipe-bench: {error}\n"));
                return ExitCode::from(LACKING);
            }
        };
        for version in ["--http1.1", "--http2"] {
            let outcome = self.compare(&servers, version, stop);
            say(
                false,
                &format!("curl {version}\n{}\n", outcome_text(&outcome)),
            );
            if outcome.interrupted {
                return ExitCode::from(INTERRUPTED);
            }
        }
        ExitCode::SUCCESS
    }

    fn compare(&self, servers: &Servers, version: &str, stop: &AtomicBool) -> Outcome {
        let names = ["fullpipe serve --web", "nginx"].map(str::to_owned);
        let quantities = [Quantity::BitsPerSecond];
        alternate(&names, &quantities, self.rounds.into(), |number| {
            let objects = [format!("__down?bytes={OBJECT}"), "object".to_owned()];
            let url = format!(
                "https://127.0.0.1:{}/{}",
                servers.ports[number], objects[number]
            );
            Ok(vec![download(&url, version, stop)?])
        })
    }
}

impl Servers {
    /// Starts them, in memory as far as there are files.
    fn start(program: &Path, stop: &AtomicBool) -> Result<Self, RunError> {
        let folder = TempDir::with_prefix_in("fullpipe-bench-", "/dev/shm")?;
        let at = |name: &str| folder.path().join(name);
        let mut random = File::open("/dev/urandom")?;
        let mut object = File::create(at("object"))?;
        io::copy(&mut io::Read::take(&mut random, OBJECT), &mut object)?;
        let (key, chain) = (at("key.pem"), at("chain.pem"));
        let mut openssl = Command::new("openssl");
        openssl.args(SELF_SIGNED.split(' '));
        openssl.arg("-keyout").arg(&key).arg("-out").arg(&chain);
        finish(&mut openssl, stop)?;
        let ports = [free_port()?, free_port()?];
        fs::write(
            at("nginx.conf"),
            nginx_configuration(folder.path(), ports[1]),
        )?;
        let mut nginx = Command::new("nginx");
        nginx.arg("-c").arg(at("nginx.conf"));
        let mut own = Command::new(program);
        own.args(["serve", "--port", "0", "--no-iperf2", "--web"]);
        own.arg(format!("127.0.0.1:{}", ports[0]));
        own.arg("--cert").arg(&chain).arg("--key-pem").arg(&key);
        let mut running = [Process::start(&mut own)?, Process::start(&mut nginx)?];
        for (server, port) in running.iter_mut().zip(ports) {
            server.wait_for_port(Port::Tcp(port), STARTING, stop)?;
        }
        Ok(Self {
            _running: running,
            _folder: folder,
            ports,
        })
    }
}

/// Returns a configuration as nginx has it for large files: by `sendfile`, with HTTP/2.
fn nginx_configuration(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr; events {{}}
        http {{ access_log off; sendfile on; server {{ listen 127.0.0.1:{port} ssl http2; root {folder};
        ssl_certificate {folder}/chain.pem; ssl_certificate_key {folder}/key.pem; ssl_protocols TLSv1.3; }} }}"
    )
}

/// Loads the object at `url` some times over one connection. Returns the rate in bit/s.
fn download(url: &str, version: &str, stop: &AtomicBool) -> Result<f64, RunError> {
    let mut curl = Command::new("curl");
    curl.args(["-sSk", "--fail", version, "-o", "/dev/null"]);
    curl.arg(format!("{url}#[1-{LOADS}]"));
    let begun = Instant::now();
    finish(&mut curl, stop)?;
    Ok((8 * OBJECT * LOADS) as f64 / begun.elapsed().as_secs_f64())
}

fn finish(command: &mut Command, stop: &AtomicBool) -> Result<(), RunError> {
    let ended = Process::start(command)?.finish(TIMEOUT, stop)?;
    if ended.succeeded {
        Ok(())
    } else {
        Err(RunError::Failed(last_words(&ended.stderr, "failed")))
    }
}
