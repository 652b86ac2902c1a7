//! Connections to an FTP server (RFC 959): one of commands, and one of data for each part of a file.

use std::io::{BufReader, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fullpipe_units::printable_line;
use jiff::Timestamp;

use super::connection::{FetchFailure, TimedSocket, read_parsed};
use crate::http::{FtpFile, FtpReply, ResponseHead, WebUrl};

/// The connection of commands to an FTP server, which knows this end as anonymous (RFC 1635).
pub(super) struct FtpControl {
    stream: BufReader<TimedSocket>,
    address: SocketAddr,
    timeout: Duration,
}

impl FtpControl {
    /// Logs in over a connection that was just made.
    ///
    /// # Errors
    /// Fails if the connection breaks, or the server does not permit it.
    pub(super) fn log_in(
        socket: TimedSocket,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, FetchFailure> {
        let mut control = Self {
            stream: BufReader::new(socket),
            address,
            timeout,
        };
        check_done(&control.read_reply()?)?;
        let mut user = control.send_command("USER", b"anonymous")?;
        if user.code == 331 {
            user = control.send_command("PASS", b"fullpipe@")?;
        }
        check_done(&user)?;
        check_done(&control.send_command("TYPE", b"I")?)?;
        Ok(control)
    }

    /// Returns the address at which the server waits for a connection of data.
    ///
    /// # Errors
    /// Fails if the connection breaks, or the server has no port for it.
    pub(super) fn data_address(&mut self) -> Result<SocketAddr, FetchFailure> {
        let mut reply = self.send_command("EPSV", b"")?;
        if reply.code / 100 == 5 && self.address.is_ipv4() {
            reply = self.send_command("PASV", b"")?;
        }
        match reply.data_port() {
            Some(port) if reply.is_done() => Ok(SocketAddr::new(self.address.ip(), port)),
            _ => Err(refusal(&reply)),
        }
    }

    /// Asks for a file from the first byte of this `range` on, which comes on the connection of
    /// data. Returns what the server says of it.
    ///
    /// # Errors
    /// Fails if the connection breaks, or the server does not send the file.
    pub(super) fn retrieve(
        &mut self,
        url: &WebUrl,
        range: Option<(u64, u64)>,
    ) -> Result<ResponseHead, FetchFailure> {
        let path = url.ftp_path();
        let size = self.send_command("SIZE", &path)?.file_size();
        let changed = self.send_command("MDTM", &path)?;
        let seconds = changed.modified_seconds();
        let has_parts = match range {
            Some((first, _)) => {
                let restart = self.send_command("REST", first.to_string().as_bytes())?;
                restart.code == 350
            }
            None => false,
        };
        let file = FtpFile {
            size,
            modified: seconds.map(|seconds| (changed.text, seconds)),
            has_parts,
        };
        let head = file.response_head(range, Timestamp::now().as_second());
        if head.status != 416 {
            let reply = self.send_command("RETR", &path)?;
            if reply.code / 100 != 1 {
                return Err(refusal(&reply));
            }
        }
        Ok(head)
    }

    /// Waits for the server to say that all of the file was sent.
    ///
    /// # Errors
    /// Fails if it does not say so.
    pub(super) fn confirm_end(&mut self) -> Result<(), FetchFailure> {
        check_done(&self.read_reply()?)
    }

    fn send_command(&mut self, name: &str, argument: &[u8]) -> Result<FtpReply, FetchFailure> {
        let space = if argument.is_empty() { "" } else { " " };
        let line = [name.as_bytes(), space.as_bytes(), argument, b"\r\n"].concat();
        self.stream.get_mut().write_all(&line)?;
        self.read_reply()
    }

    fn read_reply(&mut self) -> Result<FtpReply, FetchFailure> {
        let until = Instant::now() + self.timeout;
        let socket = self.stream.get_mut();
        socket.set_deadline(Some(until), self.timeout)?;
        read_parsed(&mut self.stream, FtpReply::parse)
    }
}

fn check_done(reply: &FtpReply) -> Result<(), FetchFailure> {
    if reply.is_done() {
        Ok(())
    } else {
        Err(refusal(reply))
    }
}

/// Returns the failure of a reply that refuses: for now, or at all (RFC 959, section 4.2.1).
fn refusal(reply: &FtpReply) -> FetchFailure {
    let says = format!(
        "the server says: {} {}",
        reply.code,
        printable_line(&reply.text)
    );
    match reply.code {
        400..500 => FetchFailure::Broken(says),
        _ => FetchFailure::Final(says),
    }
}
