//! Small programs that send and receive as programs do which nobody tuned: odd buffers, odd pauses.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use crate::say;

/// Longest that a peer waits for the other one, and the other one for data.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A small program at one end of a transfer.
#[derive(Debug, Args)]
pub(crate) struct Peer {
    #[command(subcommand)]
    role: Role,
    /// Bytes of each call of `write` or `read`
    #[arg(long, global = true, default_value_t = 65_536, value_name = "BYTES")]
    call: usize,
    /// Pause after so many calls; 0 for none
    #[arg(long, global = true, default_value_t = 0, value_name = "N")]
    calls: u32,
    /// Length of a pause
    #[arg(long, global = true, default_value_t = 0, value_name = "MICROSECONDS")]
    pause: u64,
    /// `SO_SNDBUF` or `SO_RCVBUF`
    #[arg(long, global = true, value_name = "BYTES")]
    buffer: Option<usize>,
    /// Time after which it ends
    #[arg(long, global = true, default_value_t = 60.0, value_name = "SECONDS")]
    time: f64,
    /// Bytes after which it ends
    #[arg(long, global = true, default_value_t = u64::MAX, value_name = "BYTES")]
    bytes: u64,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Connect and send
    Send { target: String },
    /// Wait for a connection and receive
    Take { port: u16 },
    /// Connect and receive
    Fetch { target: String },
    /// Wait for a connection and send
    Offer { port: u16 },
}

impl Peer {
    /// Runs it.
    pub(crate) fn run(&self) -> ExitCode {
        match self.transfer() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say(true, &format!("peer: {error}\n"));
                ExitCode::FAILURE
            }
        }
    }

    fn transfer(&self) -> io::Result<()> {
        let stream = match &self.role {
            Role::Send { target } | Role::Fetch { target } => TcpStream::connect(target)?,
            Role::Take { port } | Role::Offer { port } => self.accept(*port)?,
        };
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let sends = matches!(self.role, Role::Send { .. } | Role::Offer { .. });
        if let Some(size) = self.buffer {
            if sends {
                set_socket_send_buffer_size(&stream, size)
            } else {
                set_socket_recv_buffer_size(&stream, size)
            }?;
        }
        self.move_data(stream, sends)
    }

    /// Only a listener's buffer is in time for the scale of the window.
    fn accept(&self, port: u16) -> io::Result<TcpStream> {
        let listener = TcpListener::bind(("0.0.0.0", port))?;
        if let (Role::Take { .. }, Some(size)) = (&self.role, self.buffer) {
            set_socket_recv_buffer_size(&listener, size)?;
        }
        Ok(listener.accept()?.0)
    }

    fn move_data(&self, mut stream: TcpStream, sends: bool) -> io::Result<()> {
        let mut data = vec![0; self.call];
        let (began, mut moved, mut calls) = (Instant::now(), 0_u64, 0_u32);
        while moved < self.bytes && began.elapsed().as_secs_f64() < self.time {
            let length = if sends {
                stream.write(&data)?
            } else {
                stream.read(&mut data)?
            };
            if length == 0 {
                return Ok(());
            }
            moved += length as u64;
            calls += 1;
            if self.calls > 0 && calls.is_multiple_of(self.calls) {
                thread::sleep(Duration::from_micros(self.pause));
            }
        }
        Ok(())
    }
}
