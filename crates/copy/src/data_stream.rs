//! A TCP connection for data, inside TLS 1.3, as a blocking stream.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use fullpipe_control::Peer;
use fullpipe_sys::tcp_info;
use fullpipe_units::Span;
use socket2::{SockRef, TcpKeepalive};
use tokio_rustls::rustls::Connection;

/// Plaintext that TLS takes at once: as many records are written by one system call.
const TLS_BUFFER: usize = 256 << 10;

/// Time after which a connection that acknowledges nothing is given up; its data then takes another.
const DEAD_AFTER: Duration = Duration::from_secs(20);

/// One connection whose other end has proved that it knows the secret.
#[derive(Debug)]
pub(crate) struct DataStream {
    socket: TcpStream,
    tls: Connection,
}

impl DataStream {
    /// Returns the connection of a peer.
    ///
    /// # Errors
    /// Fails if it is not encrypted, or the socket refuses an option.
    pub(crate) fn of(peer: Peer) -> io::Result<Self> {
        let (socket, tls) = peer.control.into_parts();
        let mut tls = tls.ok_or_else(|| io::Error::other("a connection for data is always encrypted"))?;
        tls.set_buffer_limit(Some(TLS_BUFFER));
        let socket = socket.into_std()?;
        socket.set_nonblocking(false)?;
        let options = SockRef::from(&socket);
        options.set_tcp_nodelay(true)?;
        options.set_tcp_user_timeout(Some(DEAD_AFTER))?;
        let keepalive = TcpKeepalive::new().with_time(DEAD_AFTER / 2).with_interval(DEAD_AFTER / 4);
        options.set_tcp_keepalive(&keepalive.with_retries(2))?;
        Ok(Self { socket, tls })
    }

    /// Returns the shortest round-trip time so far.
    pub(crate) fn rtt(&self) -> Option<Span> {
        let info = tcp_info(&self.socket).ok()?;
        info.min_rtt.or(info.rtt)
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    fn send_records(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

impl Read for DataStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.send_records()?;
            if self.tls.read_tls(&mut self.socket)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
        }
    }
}

impl Write for DataStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.tls.writer().write(bytes)?;
        self.send_records()?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_records()
    }
}
