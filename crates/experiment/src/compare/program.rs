use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fullpipe_lab::Host;
use fullpipe_model::application::{self, Application};
use fullpipe_sim::TransferDivision;

use crate::prelude::*;

use super::local::printed_by;

/// The file that is moved, at the host of a lab that sends it.
pub(crate) const SOURCE: &str = "/run/compare/from/file";

/// The path of the copied file, at the host of a lab that receives it.
pub(crate) const COPY: &str = "/run/compare/to/file";

/// The folder of keys and configurations.
const FOLDER: &str = "/run/compare";

/// The key of a shared folder.
const SHARE_KEY: &str = "/run/compare/share_key";

/// Folders of system programs that the search path of an ordinary user often lacks.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Connections that aria2c is asked for.
const CONNECTIONS_OF_ARIA2: u16 = 8;

/// Chunks in which aria2c divides a file without an option for that.
const CHUNK_OF_ARIA2: ByteCount = ByteCount::from_mib(1);

/// The first version of iperf3 in which each stream has a thread that sleeps in its writes.
const WRITES_IN_THREADS: (u32, u32) = (3, 16);

/// Maximum time for a program to print its version.
const PRINTS_WITHIN: Duration = Duration::from_secs(2);

/// A program that moves a file from one host to another. The closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferProgram {
    /// iperf3, which moves as many bytes from memory to memory: the measure of the others.
    Iperf3,
    /// This program's own copy, over OpenSSH and its own connections.
    Copy,
    /// This program's own copy to its server of a shared folder.
    CopyServer,
    /// scp of OpenSSH.
    Scp,
    /// rsync over OpenSSH.
    Rsync,
    /// rsync to its daemon, without encryption.
    RsyncDaemon,
    /// curl from nginx by HTTP/1.1.
    Curl,
    /// curl from nginx by HTTP/2 over TLS.
    CurlTls,
    /// curl from vsftpd by FTP.
    Ftp,
    /// aria2c from nginx by HTTP/1.1, over eight connections.
    Aria2,
}

impl TransferProgram {
    /// Every program of the list.
    pub const ALL: [Self; 10] = [
        Self::Iperf3,
        Self::Copy,
        Self::CopyServer,
        Self::Scp,
        Self::Rsync,
        Self::RsyncDaemon,
        Self::Curl,
        Self::CurlTls,
        Self::Ftp,
        Self::Aria2,
    ];

    /// Returns the program's name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Copy => "copy",
            Self::CopyServer => "copy-server",
            Self::Scp => "scp",
            Self::Rsync => "rsync",
            Self::RsyncDaemon => "rsyncd",
            Self::Curl => "curl",
            Self::CurlTls => "curl-h2",
            Self::Ftp => "ftp",
            Self::Aria2 => "aria2c",
        }
    }

    /// Returns the program of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }

    /// Returns the first executable that it needs in a lab and that is not installed.
    pub(crate) fn missing_executable(self) -> Option<&'static str> {
        missing_of(match self {
            Self::Iperf3 => &["iperf3"],
            Self::Copy => &["ssh", "sshd", "ssh-keygen"],
            Self::CopyServer => &[],
            Self::Scp => &["scp", "ssh", "sshd", "ssh-keygen"],
            Self::Rsync => &["rsync", "ssh", "sshd", "ssh-keygen"],
            Self::RsyncDaemon => &["rsync"],
            Self::Curl => &["curl", "nginx"],
            Self::CurlTls => &["curl", "nginx", "openssl"],
            Self::Ftp => &["curl", "vsftpd"],
            Self::Aria2 => &["aria2c", "nginx"],
        })
    }

    /// Returns the first executable that its client needs and that is not installed.
    pub(crate) fn missing_here(self) -> Option<&'static str> {
        missing_of(match self {
            Self::Iperf3 => &["iperf3"],
            Self::Copy => &["ssh"],
            Self::CopyServer => &[],
            Self::Scp => &["scp", "ssh"],
            Self::Rsync => &["rsync", "ssh"],
            Self::RsyncDaemon => &["rsync"],
            Self::Curl | Self::CurlTls | Self::Ftp => &["curl"],
            Self::Aria2 => &["aria2c"],
        })
    }

    /// Returns the host on which its server runs: the one that receives the file, or the one from
    /// which it is fetched.
    pub(crate) const fn server_host(self) -> Host {
        match self {
            Self::Iperf3
            | Self::Copy
            | Self::CopyServer
            | Self::Scp
            | Self::Rsync
            | Self::RsyncDaemon => Host::Receiver,
            Self::Curl | Self::CurlTls | Self::Ftp | Self::Aria2 => Host::Sender,
        }
    }

    /// Returns the port of its server.
    pub(crate) const fn server_port(self) -> u16 {
        match self {
            Self::Iperf3 => 5201,
            Self::Copy | Self::Scp | Self::Rsync => 2222,
            Self::CopyServer => 5202,
            Self::RsyncDaemon => 8730,
            Self::Curl | Self::Aria2 => 8080,
            Self::CurlTls => 8443,
            Self::Ftp => 2121,
        }
    }

    /// Returns the words that start its server.
    pub(crate) fn server_command(self) -> Vec<String> {
        let this_program = this_program();
        let share = [
            &this_program,
            "serve",
            "--no-iperf2",
            "--share",
            "/run/compare/to",
            "--key-file",
            SHARE_KEY,
        ];
        let words: &[&str] = match self {
            Self::Iperf3 => &["iperf3", "-s", "-p", "5201"],
            Self::CopyServer => &share,
            Self::Copy | Self::Scp | Self::Rsync => {
                &["sshd", "-D", "-e", "-f", "/run/compare/sshd.conf"]
            }
            Self::RsyncDaemon => &[
                "rsync",
                "--daemon",
                "--no-detach",
                "--config=/run/compare/rsyncd.conf",
            ],
            Self::Curl | Self::CurlTls | Self::Aria2 => {
                &["nginx", "-p", FOLDER, "-c", "nginx.conf"]
            }
            Self::Ftp => &["vsftpd", "/run/compare/vsftpd.conf"],
        };
        with_full_path(words)
    }

    /// Returns the words that move the file to or from the server at `far`.
    pub(crate) fn client_command(self, far: Ipv4Addr, size: ByteCount) -> Vec<String> {
        let (size, port, to) = (
            size.get().to_string(),
            self.server_port().to_string(),
            format!("{far}:{COPY}"),
        );
        let far = far.to_string();
        match self {
            Self::Iperf3 => with_full_path(&["iperf3", "-c", &far, "-p", &port, "-n", &size]),
            Self::Copy => copy_command(
                "ssh -F /run/compare/ssh.conf",
                Some(&this_program()),
                SOURCE,
                &to,
            ),
            Self::CopyServer => with_full_path(&[
                &this_program(),
                "copy",
                "--key-file",
                SHARE_KEY,
                SOURCE,
                &format!("fullpipe://{far}/file"),
            ]),
            Self::Scp => with_full_path(&["scp", "-q", "-F", "/run/compare/ssh.conf", SOURCE, &to]),
            Self::Rsync => with_full_path(&[
                "rsync",
                "-W",
                "-e",
                "ssh -F /run/compare/ssh.conf",
                SOURCE,
                &to,
            ]),
            Self::RsyncDaemon => with_full_path(&[
                "rsync",
                "-W",
                SOURCE,
                &format!("rsync://{far}:{port}/to/file"),
            ]),
            Self::Curl | Self::CurlTls | Self::Ftp | Self::Aria2 => {
                let scheme = self.url_scheme().unwrap_or_default();
                self.fetch_command(&format!("{scheme}://{far}:{port}/file"), COPY, None)
            }
        }
    }

    /// Returns the scheme of the URL that the program fetches, if it fetches one.
    pub(crate) fn url_scheme(self) -> Option<&'static str> {
        match self {
            Self::Curl | Self::Aria2 => Some("http"),
            Self::CurlTls => Some("https"),
            Self::Ftp => Some("ftp"),
            _ => None,
        }
    }

    /// Returns the words by which a program that fetches puts what is at `url` into the file `to`;
    /// curl its first bytes up to `most`.
    pub(crate) fn fetch_command(self, url: &str, to: &str, most: Option<ByteCount>) -> Vec<String> {
        match self {
            Self::Aria2 => fetching_in_parts(url, Path::new(to)),
            Self::Ftp => curl_command("--disable-eprt", url, to, most),
            Self::CurlTls => curl_command("--http2", url, to, most),
            _ => curl_command("--http1.1", url, to, most),
        }
    }

    /// Returns true if the program writes the file that it receives.
    pub(crate) fn writes_a_copy(self) -> bool {
        self != Self::Iperf3
    }

    /// Returns the number of its connections that carry the file over `path`.
    pub(crate) fn connection_count(
        self,
        path: &fullpipe_record::Path,
        [sender, receiver]: [&HostSettings; 2],
    ) -> u16 {
        match self {
            Self::Copy | Self::CopyServer => {
                fullpipe_copy::initial_connections(path.rtt(), sender, receiver)
            }
            Self::Aria2 => CONNECTIONS_OF_ARIA2,
            _ => 1,
        }
    }

    /// Returns the rule by which the program divides the file among its connections.
    pub(crate) fn file_division(self) -> TransferDivision {
        match self {
            Self::Copy | Self::CopyServer => {
                TransferDivision::Queue(ByteCount::new(fullpipe_copy::CHUNK as u64))
            }
            Self::Aria2 => TransferDivision::Ranges(CHUNK_OF_ARIA2),
            _ => TransferDivision::Equal,
        }
    }

    /// Returns the known figures of the program's writes, and of the window that it keeps above
    /// TCP. `iperf3` is the version of that program, if it is known.
    pub(crate) fn application(self, iperf3: Option<(u32, u32)>) -> Option<&'static Application> {
        application::find_application(match self {
            Self::Rsync => "rsync over ssh",
            Self::CurlTls | Self::Aria2 => "curl",
            Self::Iperf3 if iperf3.is_some_and(|version| version < WRITES_IN_THREADS) => {
                "iperf3 before 3.16"
            }
            program => program.name(),
        })
    }
}

/// Returns the version of the iperf3 of this host: its client is what sends.
pub(crate) fn version_of_iperf3() -> Option<(u32, u32)> {
    let mut command = Command::new(find_executable("iperf3")?);
    command.arg("--version");
    parse_version(&printed_by(&mut command, PRINTS_WITHIN))
}

/// Reads the version in the first line of what `iperf3 --version` prints.
fn parse_version(printed: &str) -> Option<(u32, u32)> {
    let (major, minor) = printed.split_whitespace().nth(1)?.split_once('.')?;
    let minor = minor.split(|one: char| !one.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the words by which this program copies `from` to `to` over `ssh`; the program there has
/// the name `far_path`, or its usual one.
pub(crate) fn copy_command(ssh: &str, far_path: Option<&str>, from: &str, to: &str) -> Vec<String> {
    let far_path = far_path.into_iter().flat_map(|path| ["--far-path", path]);
    let words = ["copy", "-e", ssh]
        .into_iter()
        .chain(far_path)
        .chain([from, to]);
    std::iter::once(this_program())
        .chain(words.map(str::to_owned))
        .collect()
}

/// Returns the path of this program, which both hosts of a lab see.
fn this_program() -> String {
    std::env::current_exe().map_or_else(
        |_| "fullpipe".to_owned(),
        |path| path.to_string_lossy().into_owned(),
    )
}

/// Returns the words by which curl fetches `url` into the file `to`, or its first bytes up to
/// `most`.
fn curl_command(flag: &str, url: &str, to: &str, most: Option<ByteCount>) -> Vec<String> {
    let mut words = with_full_path(&["curl", "-sS", "--fail", "--insecure", flag, "-o", to]);
    words.extend(most.into_iter().flat_map(|most| {
        [
            "-r".to_owned(),
            format!("0-{}", most.get().saturating_sub(1)),
        ]
    }));
    words.push(url.to_owned());
    words
}

/// Returns the words by which aria2c fetches `url` into the file `to`, each part over a connection
/// of its own.
fn fetching_in_parts(url: &str, to: &Path) -> Vec<String> {
    let count = CONNECTIONS_OF_ARIA2.to_string();
    let folder = to.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    with_full_path(&[
        "aria2c",
        "--no-conf",
        "--quiet",
        "--check-certificate=false",
        "--file-allocation=none",
        "--min-split-size=1M",
        "-x",
        &count,
        "-s",
        &count,
        "-d",
        &folder,
        "-o",
        &name,
        url,
    ])
}

fn missing_of(needed: &[&'static str]) -> Option<&'static str> {
    needed
        .iter()
        .copied()
        .find(|name| find_executable(name).is_none())
}

/// Returns `words` with the full path of the program, where it is found: sshd starts itself again
/// by it.
pub(crate) fn with_full_path(words: &[&str]) -> Vec<String> {
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    if let Some(path) = words.first().and_then(|name| find_executable(name)) {
        words[0] = path.to_string_lossy().into_owned();
    }
    words
}

/// Returns the path of an executable of this name.
fn find_executable(name: &str) -> Option<PathBuf> {
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&search_path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    folders
        .map(|folder| folder.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests;
