use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use fullpipe_lab::Host;
use fullpipe_model::application;
use fullpipe_units::ByteCount;

/// The file that is moved, at the host that sends it.
const SOURCE: &str = "/run/compare/from/file";

/// The same at the host that receives it.
pub(crate) const COPY: &str = "/run/compare/to/file";

/// The folder of keys and configurations.
const FOLDER: &str = "/run/compare";

/// Folders of system programs that the search path of an ordinary user often lacks.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program that moves a file from one host to another. The closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// iperf3, which moves as many bytes from memory to memory: the measure of the others.
    Iperf3,
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
}

impl Program {
    /// Every program of the list.
    pub const ALL: [Self; 7] =
        [Self::Iperf3, Self::Scp, Self::Rsync, Self::RsyncDaemon, Self::Curl, Self::CurlTls, Self::Ftp];

    /// Returns its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Scp => "scp",
            Self::Rsync => "rsync",
            Self::RsyncDaemon => "rsyncd",
            Self::Curl => "curl",
            Self::CurlTls => "curl-h2",
            Self::Ftp => "ftp",
        }
    }

    /// Returns the program of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }

    /// Returns the first executable that it needs and that is not installed.
    pub(crate) fn missing(self) -> Option<&'static str> {
        let needed: &[&'static str] = match self {
            Self::Iperf3 => &["iperf3"],
            Self::Scp => &["scp", "ssh", "sshd", "ssh-keygen"],
            Self::Rsync => &["rsync", "ssh", "sshd", "ssh-keygen"],
            Self::RsyncDaemon => &["rsync"],
            Self::Curl => &["curl", "nginx"],
            Self::CurlTls => &["curl", "nginx", "openssl"],
            Self::Ftp => &["curl", "vsftpd"],
        };
        needed.iter().copied().find(|name| installed(name).is_none())
    }

    /// Returns the host on which its server runs: the one that receives the file, or the one from which it is fetched.
    pub(crate) const fn server_host(self) -> Host {
        match self {
            Self::Iperf3 | Self::Scp | Self::Rsync | Self::RsyncDaemon => Host::Receiver,
            Self::Curl | Self::CurlTls | Self::Ftp => Host::Sender,
        }
    }

    /// Returns the port of its server.
    pub(crate) const fn port(self) -> u16 {
        match self {
            Self::Iperf3 => 5201,
            Self::Scp | Self::Rsync => 2222,
            Self::RsyncDaemon => 8730,
            Self::Curl => 8080,
            Self::CurlTls => 8443,
            Self::Ftp => 2121,
        }
    }

    /// Returns the words that start its server.
    pub(crate) fn server(self) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Iperf3 => &["iperf3", "-s", "-p", "5201"],
            Self::Scp | Self::Rsync => &["sshd", "-D", "-e", "-f", "/run/compare/sshd.conf"],
            Self::RsyncDaemon => &["rsync", "--daemon", "--no-detach", "--config=/run/compare/rsyncd.conf"],
            Self::Curl | Self::CurlTls => &["nginx", "-p", FOLDER, "-c", "nginx.conf"],
            Self::Ftp => &["vsftpd", "/run/compare/vsftpd.conf"],
        };
        located(words)
    }

    /// Returns the words that move the file to or from the server at `far`.
    pub(crate) fn client(self, far: Ipv4Addr, size: ByteCount) -> Vec<String> {
        let (size, port, to) = (size.get().to_string(), self.port().to_string(), format!("{far}:{COPY}"));
        let far = far.to_string();
        let fetch = |flag: &str, scheme: &str| {
            let url = format!("{scheme}://{far}:{port}/file");
            located(&["curl", "-sS", "--fail", "--insecure", flag, "-o", COPY, &url])
        };
        match self {
            Self::Iperf3 => located(&["iperf3", "-c", &far, "-p", &port, "-n", &size]),
            Self::Scp => located(&["scp", "-q", "-F", "/run/compare/ssh.conf", SOURCE, &to]),
            Self::Rsync => located(&["rsync", "-W", "-e", "ssh -F /run/compare/ssh.conf", SOURCE, &to]),
            Self::RsyncDaemon => located(&["rsync", "-W", SOURCE, &format!("rsync://{far}:{port}/to/file")]),
            Self::Curl => fetch("--http1.1", "http"),
            Self::CurlTls => fetch("--http2", "https"),
            Self::Ftp => fetch("--disable-eprt", "ftp"),
        }
    }

    /// Returns true if it writes the file that it receives.
    pub(crate) fn writes_a_copy(self) -> bool {
        self != Self::Iperf3
    }

    /// Returns the window that it keeps above TCP, where one is known.
    pub(crate) fn application(self) -> Option<&'static application::Application> {
        application::named(match self {
            Self::Scp => "scp",
            Self::Rsync => "rsync over ssh",
            Self::Iperf3 | Self::RsyncDaemon | Self::Curl | Self::CurlTls | Self::Ftp => return None,
        })
    }
}

/// Returns `words` with the full path of the program, where it is found: sshd starts itself again by it.
fn located(words: &[&str]) -> Vec<String> {
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    if let Some(path) = words.first().and_then(|name| installed(name)) {
        words[0] = path.to_string_lossy().into_owned();
    }
    words
}

/// Returns the path of an executable of this name.
fn installed(name: &str) -> Option<PathBuf> {
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&search_path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_a_name_of_its_own_and_a_server_on_a_port_of_its_own_kind() {
        for program in Program::ALL {
            assert_eq!(Program::named(program.name()), Some(program));
            let client = program.client(Ipv4Addr::new(198, 18, 0, 2), ByteCount::from_mib(1));
            assert!(client.len() > 3 && !program.server().is_empty(), "{client:?}");
        }
        assert_eq!(Program::named("telnet"), None);
    }

    #[test]
    fn words_with_spaces_stay_whole() {
        let words = Program::Rsync.client(Ipv4Addr::LOCALHOST, ByteCount::from_mib(1));
        assert!(words.contains(&"ssh -F /run/compare/ssh.conf".to_owned()), "{words:?}");
    }

    #[test]
    fn an_executable_is_found_in_the_search_path() {
        assert!(installed("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(installed("no-such-program-at-all"), None);
    }
}
