//! A lab that stands, with a server of a shared folder in its receiver.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::files::{folder_in_memory, write_key};
use crate::process::{Process, RunError};

pub(super) const RECEIVER: &str = "198.18.0.2";

/// Time for a lab, a server and last words.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// Ports of measurements and of copies.
const PORTS: [u16; 2] = [5201, 5202];

pub(super) struct Scene<'s> {
    fullpipe: &'s Path,
    stop: &'s AtomicBool,
    folder: tempfile::TempDir,
    name: String,
    _lab: Process,
    programs: Vec<Process>,
}

impl<'s> Scene<'s> {
    /// Makes a lab of a scenario, and shares the folder `to` in its receiver.
    ///
    /// # Errors
    /// Fails if the user stops it, or a program cannot be started.
    pub(super) fn start(scenario: &str, fullpipe: &'s Path, stop: &'s AtomicBool) -> Result<Self, RunError> {
        let folder = folder_in_memory()?;
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("path.toml"), scenario).map_err(RunError::failed)?;
        write_key(&at("key"))?;
        std::fs::create_dir(at("to")).map_err(RunError::failed)?;
        let name = format!("copying-{}", std::process::id());
        let mut command = Command::new(fullpipe);
        command.args(["lab", "up"]).arg(at("path.toml")).args(["--json-lines", "--interval", "1", "--name", &name]);
        let mut lab = Process::start(&mut command)?;
        lab.wait_until("come up", TIMEOUT, stop, |lab| !lab.stdout().is_empty())?;
        let mut scene = Self { fullpipe, stop, folder, name, _lab: lab, programs: Vec::new() };
        let mut server = scene.fullpipe("receiver");
        server.args(["serve", "--no-iperf2", "--share"]).arg(scene.at("to")).arg("--key-file").arg(scene.at("key"));
        scene.serve(&mut server, &PORTS)?;
        Ok(scene)
    }

    /// Returns the place of a file of the scene.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command in a host of the lab, to which a program and its arguments are to be added.
    pub(super) fn command(&self, host: &str) -> Command {
        let mut command = Command::new(self.fullpipe);
        command.args(["lab", "exec", "--join", &self.name, host, "--"]);
        command
    }

    /// Returns a command in a host of the lab, to which the arguments of fullpipe are to be added.
    pub(super) fn fullpipe(&self, host: &str) -> Command {
        let mut command = self.command(host);
        command.arg(self.fullpipe);
        command
    }

    /// Returns a copy of the file to the receiver's server, to which flags may be added.
    pub(super) fn copy(&self) -> Command {
        let mut command = self.fullpipe("sender");
        command.arg("copy").arg(self.at("file")).arg(format!("fullpipe://{RECEIVER}/"));
        command.arg("--key-file").arg(self.at("key"));
        command
    }

    /// Starts a server in the receiver, and waits until it listens on these ports.
    ///
    /// # Errors
    /// Fails if the user stops it, or the server does not come.
    pub(super) fn serve(&mut self, server: &mut Command, ports: &[u16]) -> Result<(), RunError> {
        let mut server = Process::start(server)?;
        server.wait_until("answer", TIMEOUT, self.stop, |_| self.listens(ports))?;
        self.programs.push(server);
        Ok(())
    }

    fn listens(&self, ports: &[u16]) -> bool {
        let mut command = self.command("receiver");
        command.args(["cat", "/proc/net/tcp", "/proc/net/tcp6"]);
        let tables = command.output().map(|output| output.stdout).unwrap_or_default();
        let tables = String::from_utf8_lossy(&tables).into_owned();
        ports.iter().all(|port| tables.contains(&format!(":{port:04X} ")))
    }
}
