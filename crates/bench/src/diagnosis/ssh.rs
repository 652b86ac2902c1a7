//! A transfer through a channel of OpenSSH, which has a window of its own.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use fullpipe_units::ByteCount;

/// It wants to be started by its whole path.
const SERVER: &str = "/usr/sbin/sshd";

const KEYGEN: &str = "ssh-keygen";

/// Folder in which the server separates its privileges; distributions make it when they start the
/// service.
const SEPARATION: &str = "/run/sshd";

const PORT: u16 = 2222;

/// Checks that this machine has the programs.
///
/// # Errors
/// If one cannot be started.
pub(crate) fn check_programs() -> io::Result<()> {
    for program in [SERVER, "ssh"] {
        let asked = Command::new(program).arg("-V").output();
        asked.map_err(|error| named(program, &error))?;
    }
    Ok(())
}

/// Keys of both ends and the server's configuration, in files.
#[derive(Debug)]
pub(crate) struct Ssh {
    folder: PathBuf,
}

impl Ssh {
    /// Puts them into `folder`, where they are not there yet.
    ///
    /// # Errors
    /// If a key or a file cannot be made.
    pub(crate) fn prepare(folder: &Path) -> io::Result<Self> {
        let ssh = Self {
            folder: folder.to_owned(),
        };
        ["host", "user"]
            .into_iter()
            .try_for_each(|key| ssh.make_key(key))?;
        let lines = format!(
            "Port {PORT}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin yes\n",
            ssh.file("host"),
            ssh.file("user.pub")
        );
        fs::write(ssh.file("sshd.conf"), lines)?;
        fs::create_dir_all(SEPARATION).map_err(|error| named(SEPARATION, &error))?;
        Ok(ssh)
    }

    fn make_key(&self, name: &str) -> io::Result<()> {
        let file = self.file(name);
        if Path::new(&file).exists() {
            return Ok(());
        }
        let made = Command::new(KEYGEN)
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &file])
            .status();
        let status = made.map_err(|error| named(KEYGEN, &error))?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("{KEYGEN} made no key")))
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// For the shell: the server, which says on standard output that it listens.
    pub(crate) fn server(&self) -> String {
        format!("exec {SERVER} -D -e -f {} 2>&1", self.file("sshd.conf"))
    }

    /// For the shell: sends so much through a channel to the server at `address`, which throws it
    /// away.
    pub(crate) fn client(&self, address: Ipv4Addr, bytes: ByteCount) -> String {
        format!(
            "head -c {} /dev/zero | ssh -F none -p {PORT} -i {} -o BatchMode=yes -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR {address} 'cat > /dev/null'",
            bytes.get(),
            self.file("user")
        )
    }
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
