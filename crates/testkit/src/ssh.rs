use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Pid;
use tempfile::TempDir;

use crate::mark::processes;
use crate::{Running, wait_for_listener};

/// Folder in which the server of OpenSSH separates its privileges; distributions make it when they
/// start the service.
const SEPARATION: &str = "/run/sshd";

/// A server of OpenSSH for root, with keys and a configuration of its own, and the client that may
/// log in. A test needs `Sshd` and `Root` for it.
#[derive(Debug)]
pub struct SshServer {
    folder: TempDir,
    port: u16,
}

impl SshServer {
    /// Makes the keys of a server that will listen on `port`.
    ///
    /// # Panics
    /// If they cannot be made.
    pub fn on(port: u16) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let made = Self { folder, port };
        for key in ["host", "user"] {
            let mut command = Command::new("ssh-keygen");
            let status = command
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &made.file(key)])
                .status();
            assert!(
                status.is_ok_and(|status| status.success()),
                "ssh-keygen fails"
            );
        }
        let server = format!(
            "Port {port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\nSetEnv XDG_CACHE_HOME={}\n",
            made.file("host"),
            made.file("user.pub"),
            made.cache().display()
        );
        let client = format!(
            "User root\nIdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile /dev/null\n\
             StrictHostKeyChecking no\nBatchMode yes\nLogLevel ERROR\n",
            made.file("user")
        );
        fs::write(made.file("server"), server).expect("a file can be written");
        fs::write(made.file("client"), client).expect("a file can be written");
        fs::create_dir_all(SEPARATION).expect("root can make a folder");
        made
    }

    /// The folder for caches of those who log in.
    pub fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// The programs that sessions of this server have started as far ends and that still run.
    pub fn far_ends(&self) -> Vec<Pid> {
        let cache = format!("XDG_CACHE_HOME={}\0", self.cache().display());
        let far_ends = processes().filter_map(|(pid, folder)| {
            let has = |file: &str, text: &str| {
                let content = fs::read(folder.join(file)).unwrap_or_default();
                String::from_utf8_lossy(&content).contains(text)
            };
            let is_ours = has("environ", &cache) && has("cmdline", "\0serve\0--far-end\0");
            Pid::from_raw(pid.cast_signed()).filter(|_| is_ours)
        });
        far_ends.collect()
    }

    /// The command line of the server, which stays in the foreground.
    pub fn command(&self) -> Vec<String> {
        let configuration = self.file("server");
        ["/usr/sbin/sshd", "-D", "-e", "-f", &configuration]
            .map(str::to_owned)
            .to_vec()
    }

    /// Starts the server here, and waits until it listens.
    ///
    /// # Panics
    /// If it does not.
    pub fn start(&self) -> Running {
        let command = self.command();
        let server = Running::start(Command::new(&command[0]).args(&command[1..]));
        wait_for_listener(self.port);
        server
    }

    /// The command line of a client that reaches the server on its own port, without the host.
    pub fn client(&self) -> String {
        self.client_at(self.port)
    }

    /// The command line of a client that reaches the server on another port, without the host.
    pub fn client_at(&self, port: u16) -> String {
        format!("ssh -F {} -p {port}", self.file("client"))
    }

    /// The command line of an `sftp` that reads commands, without the host.
    pub fn sftp_client(&self) -> String {
        let (configuration, port) = (self.file("client"), self.port);
        format!("sftp -F {configuration} -P {port} -b - -s /usr/lib/openssh/sftp-server")
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}
