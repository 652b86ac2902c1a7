//! `fullpipe copy` over loopback to its server, by each of its transports, next to one TLS stream of the same cipher,
//! in turn. The stream is that of socat, from a file to nothing, and to a file. Nothing of it is verified.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{create_dir, remove_file};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fullpipe_units::{BitRate, ByteCount, Span};

use super::files::{folder_in_memory, write_key, write_random};
use super::shown;
use crate::network::free_port;
use crate::process::{Port, Process, RunError, last_words};
use crate::statistics::ratio;

pub(super) const NAME: &str = "loopback";

/// Time for a server, and for a copy.
const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_COPY: Duration = Duration::from_mins(5);

/// The cipher of both, and the bytes that socat reads and writes at once: more make it no faster.
const CIPHER: &str = "AES-256-GCM";
const AT_ONCE: &str = "262144";

/// A way to move the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// A copy with these flags.
    Copy(&'static [&'static str]),
    /// One TLS stream.
    Stream { to_file: bool },
}

const OURS: Way = Way::Copy(&["--transport", "tcp"]);
const STREAM: Way = Way::Stream { to_file: false };

/// All of them, with their names.
const WAYS: [(&str, Way); 5] = [
    ("copy, TCP and TLS", OURS),
    ("copy, QUIC", Way::Copy(&["--transport", "quic"])),
    ("copy, TCP without TLS", Way::Copy(&["--insecure-data", "127.0.0.0/8"])),
    ("one TLS stream", STREAM),
    ("one TLS stream to a file", Way::Stream { to_file: true }),
];

/// A transfer: its time, and the processor time of both ends.
#[derive(Debug, Clone, Copy)]
struct Moved {
    took: Duration,
    cpu: Duration,
}

/// Moves a file so many times each way. Returns the text.
///
/// # Errors
/// Fails if the user stops it, or a program is missing or fails.
pub(super) fn run(fullpipe: &Path, size: ByteCount, rounds: u16, stop: &AtomicBool) -> Result<String, RunError> {
    let scene = Scene::new(fullpipe, size, stop)?;
    let mut moved: BTreeMap<Way, Vec<Moved>> = BTreeMap::new();
    for round in 0..usize::from(rounds) {
        for turn in 0..WAYS.len() {
            let (_, way) = WAYS[(turn + round) % WAYS.len()];
            moved.entry(way).or_default().push(scene.transfer(way)?);
        }
    }
    Ok(text(size, &moved))
}

fn text(size: ByteCount, moved: &BTreeMap<Way, Vec<Moved>>) -> String {
    let mut text = format!("\n{NAME}: {size} over loopback; {CIPHER} where there is TLS\n");
    let of = |way| moved.get(way).map(Vec::as_slice).unwrap_or_default();
    let rate = |moved: &Moved| BitRate::of(size, Span::from(moved.took)).as_f64() / 1e9;
    let cost = |moved: &Moved| moved.cpu.as_secs_f64() / (size.get() as f64 / 1e9);
    for (name, way) in &WAYS {
        let rates: Vec<f64> = of(way).iter().map(rate).collect();
        let costs: Vec<f64> = of(way).iter().map(cost).collect();
        let _ = writeln!(
            text,
            "  {name:<24} {:<20} Gbit/s, {:<20} CPU s/GB of both ends",
            shown(ratio(&rates)),
            shown(ratio(&costs))
        );
    }
    for (name, stream) in WAYS.iter().filter(|(_, way)| matches!(way, Way::Stream { .. })) {
        let rounds = of(&OURS).iter().zip(of(stream));
        let ratios: Vec<f64> = rounds.map(|(ours, theirs)| rate(ours) / rate(theirs)).collect();
        let _ = writeln!(text, "  copy, TCP and TLS ÷ {name}: {}", shown(ratio(&ratios)));
    }
    text
}

/// A file in memory, and what both programs need.
struct Scene<'s> {
    fullpipe: &'s Path,
    stop: &'s AtomicBool,
    folder: tempfile::TempDir,
}

impl<'s> Scene<'s> {
    fn new(fullpipe: &'s Path, size: ByteCount, stop: &'s AtomicBool) -> Result<Self, RunError> {
        let scene = Self { fullpipe, stop, folder: folder_in_memory()? };
        write_key(&scene.at("key"))?;
        create_dir(scene.at("to")).map_err(RunError::failed)?;
        write_random(&scene.at("file"), size)?;
        let mut certificate = Command::new("openssl");
        certificate.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        certificate.args(["-subj", "/CN=localhost", "-days", "2", "-keyout"]).arg(scene.at("private.pem"));
        certificate.arg("-out").arg(scene.at("certificate.pem"));
        let made = Process::start(&mut certificate)?.finish(TIMEOUT, stop)?;
        if !made.succeeded {
            return Err(RunError::Failed(last_words(&made.stderr, "openssl made no certificate")));
        }
        Ok(scene)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn transfer(&self, way: Way) -> Result<Moved, RunError> {
        let moved = match way {
            Way::Copy(flags) => self.copy(flags)?,
            Way::Stream { to_file } => self.stream(to_file)?,
        };
        // The next one makes the file anew.
        let _ = remove_file(self.at("to").join("file"));
        Ok(moved)
    }

    fn copy(&self, flags: &[&str]) -> Result<Moved, RunError> {
        let port = free_port()?;
        let mut server = Command::new(self.fullpipe);
        server.args(["serve", "--no-iperf2", "-B", "127.0.0.1", "-p", &free_port()?.to_string(), "--share"]);
        server.arg(self.at("to")).args(["--share-port", &port.to_string(), "--key-file"]).arg(self.at("key"));
        let mut server = Process::start(&mut server)?;
        server.wait_for_port(Port::Tcp(port), TIMEOUT, self.stop)?;
        let before = server.cpu();
        let mut client = Command::new(self.fullpipe);
        client.arg("copy").args(flags).arg(self.at("file")).arg(format!("fullpipe://127.0.0.1:{port}/"));
        client.arg("--key-file").arg(self.at("key"));
        let began = Instant::now();
        let ended = Process::start(&mut client)?.finish(MAX_COPY, self.stop)?;
        if !ended.succeeded {
            return Err(RunError::Failed(last_words(&ended.stderr, "fullpipe copy failed")));
        }
        Ok(Moved { took: began.elapsed(), cpu: ended.cpu + server.cpu().saturating_sub(before) })
    }

    fn stream(&self, to_file: bool) -> Result<Moved, RunError> {
        let port = free_port()?;
        let (certificate, private) = (self.at("certificate.pem"), self.at("private.pem"));
        let (certificate, private) = (certificate.display(), private.display());
        let mut far = Command::new("socat");
        far.args(["-u", "-b", AT_ONCE]);
        far.arg(format!("OPENSSL-LISTEN:{port},bind=127.0.0.1,cert={certificate},key={private},verify=0"));
        let copy = self.at("to").join("file");
        far.arg(if to_file { format!("CREATE:{}", copy.display()) } else { "/dev/null".to_owned() });
        let mut far = Process::start(&mut far)?;
        far.wait_for_port(Port::Tcp(port), TIMEOUT, self.stop)?;
        let before = far.cpu();
        let mut near = Command::new("socat");
        near.args(["-u", "-b", AT_ONCE]).arg(self.at("file"));
        near.arg(format!("OPENSSL:127.0.0.1:{port},verify=0,commonname=localhost"));
        let began = Instant::now();
        let near = Process::start(&mut near)?.finish(MAX_COPY, self.stop)?;
        let far = far.finish(TIMEOUT, self.stop)?;
        let took = began.elapsed();
        for end in [&near, &far] {
            if !end.succeeded {
                return Err(RunError::Failed(last_words(&end.stderr, "socat failed")));
            }
        }
        Ok(Moved { took, cpu: near.cpu + far.cpu.saturating_sub(before) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_same_round() {
        let took = |seconds: [u64; 3]| {
            let moved = |seconds| Moved { took: Duration::from_secs(seconds), cpu: Duration::from_secs(6) };
            seconds.map(moved).to_vec()
        };
        let moved = BTreeMap::from([(OURS, took([2, 4, 8])), (STREAM, took([2, 5, 6]))]);
        let text = text(ByteCount::new(2_000_000_000), &moved);
        assert!(text.contains("copy, TCP and TLS ÷ one TLS stream: 1.00 [0.75, 1.25]"), "{text}");
        assert!(text.contains("4.00 [2.00, 8.00]    Gbit/s, 3.00 [3.00, 3.00]"), "{text}");
    }
}
