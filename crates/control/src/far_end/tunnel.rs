//! A port of this host that leads through ssh to one of another host.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use super::{
    END_DEADLINE, FarEndError, LOGIN_DEADLINE, SshHost, ended_ssh, silent_host, start_ssh,
};

/// Time between two attempts to reach the port.
const RETRY: Duration = Duration::from_millis(20);

/// Command at the other host that ends with this process: ssh itself would go on.
const UNTIL_INPUT_ENDS: &str = "cat";

/// A connection of ssh by which a port of this host's loopback leads to one of another host's. It
/// ends with this value, and with this process.
#[derive(Debug)]
pub struct SshTunnel {
    ssh: Child,
    /// The port here.
    pub port: u16,
}

impl SshTunnel {
    /// Opens the way to `far_port` of a host's loopback by the command line `ssh`, on a connection
    /// of its own (ssh(1), `-L`).
    ///
    /// # Errors
    /// Fails if no port is free here, or ssh does not offer it within two minutes.
    pub fn open(host: &SshHost, ssh: &[String], far_port: u16) -> Result<Self, FarEndError> {
        let no_port = |cause| {
            let host = &host.login;
            FarEndError::Failed(format!("cannot lead data to {host} through ssh: {cause}"))
        };
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(no_port)?;
        let port = free.local_addr().map_err(no_port)?.port();
        drop(free);
        let options = [
            "-o".to_owned(),
            "ExitOnForwardFailure=yes".to_owned(),
            // A connection that others share would keep the port after this one.
            "-o".to_owned(),
            "ControlPath=none".to_owned(),
            "-L".to_owned(),
            format!("127.0.0.1:{port}:127.0.0.1:{far_port}"),
        ];
        let ssh = start_ssh(host, ssh, &options, UNTIL_INPUT_ENDS)?;
        let mut tunnel = Self { ssh, port };
        tunnel.await_port(host)?;
        Ok(tunnel)
    }

    fn await_port(&mut self, host: &SshHost) -> Result<(), FarEndError> {
        let deadline = Instant::now() + LOGIN_DEADLINE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if let Ok(Some(status)) = self.ssh.try_wait() {
                let when = "before data could go through it";
                return Err(ended_ssh(&host.login, &status.to_string(), when));
            }
            if Instant::now() > deadline {
                let when = "before data could go through ssh";
                return Err(silent_host(&host.login, LOGIN_DEADLINE, when));
            }
            thread::sleep(RETRY);
        }
        Ok(())
    }
}

impl Drop for SshTunnel {
    fn drop(&mut self) {
        self.ssh.stdin = None;
        if !fullpipe_sys::ends_within(&mut self.ssh, END_DEADLINE) {
            let _ = self.ssh.kill();
            let _ = self.ssh.wait();
        }
    }
}
