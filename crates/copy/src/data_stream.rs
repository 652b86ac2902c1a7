//! A TCP connection for data as a blocking stream, inside TLS 1.3 unless the user did without.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_control::ControlConnection;
use fullpipe_sys::tcp_info;
use fullpipe_units::Span;
use socket2::{SockRef, TcpKeepalive};

use crate::quic::QuicConnection;
use crate::tls::{TlsReader, TlsWriter, split_records};

/// Time after which a connection that acknowledges nothing is given up; its data then takes
/// another.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(20);

/// Bytes that one segment brings, or two.
const LITTLE: usize = 3000;

/// One connection whose other end has proved that it knows the secret.
pub(crate) struct DataStream {
    socket: Arc<TcpStream>,
    /// `None` if data is not encrypted.
    tls: Option<(TlsReader, TlsWriter)>,
    acknowledges_at_once: bool,
}

/// Connections for data. Without any, the connection of the messages carries it.
pub(crate) struct DataConnections {
    /// The TCP connections.
    pub streams: Vec<DataStream>,
    /// Number of TCP connections that carry data at first.
    pub active: u16,
    /// The QUIC connection with the number of its streams, which carry data if there is no TCP
    /// connection, or when those are given up.
    pub quic: Option<(Arc<QuicConnection>, u16)>,
    pub rtt: Span,
}

impl DataConnections {
    /// Returns no connections at all.
    pub(crate) const fn without_streams() -> Self {
        Self {
            streams: Vec::new(),
            active: 0,
            quic: None,
            rtt: Span::from_millis(1),
        }
    }

    /// Returns the number of those that carry data at first or later: of TCP connections, or of
    /// streams of QUIC.
    pub(crate) fn stream_count(&self) -> u16 {
        let quic = self.quic.as_ref().map_or(0, |(_, streams)| *streams);
        if self.streams.is_empty() {
            quic
        } else {
            self.streams.len() as u16
        }
    }
}

impl DataStream {
    /// Returns a connection whose other end is known. Keepalive ends it on a dead path if nothing
    /// is sent, as at a receiver; a sender's [`SenderMonitor`](crate::tuning::Monitor) ends it
    /// otherwise.
    ///
    /// # Errors
    /// Fails if the socket refuses an option, and if a message was read in part.
    pub(crate) fn from_control(connection: ControlConnection) -> io::Result<Self> {
        let (socket, records) = connection.into_records()?;
        let socket = socket.into_std()?;
        socket.set_nonblocking(false)?;
        let options = SockRef::from(&socket);
        let keepalive = TcpKeepalive::new()
            .with_time(DEAD_AFTER / 2)
            .with_interval(DEAD_AFTER / 4);
        options.set_tcp_keepalive(&keepalive.with_retries(2))?;
        let socket = Arc::new(socket);
        Ok(Self {
            tls: records.map(|records| split_records(&socket, records)),
            socket,
            acknowledges_at_once: false,
        })
    }

    /// Acknowledges each segment at once while little arrives: an acknowledgement that waits for
    /// the next segment (RFC 1122, section 4.2.3.2) looks like a queue on the path to a sender that
    /// gives way.
    pub(crate) fn acknowledge_at_once(&mut self) {
        self.acknowledges_at_once = true;
    }

    /// Acknowledges what was read, if it is so little that the kernel might wait.
    fn acknowledge_read(&self, read: usize) {
        if self.acknowledges_at_once && read <= LITTLE {
            // Only a hint; a connection that has ended needs none.
            let _ = SockRef::from(&*self.socket).set_tcp_quickack(true);
        }
    }

    /// Returns the shortest round-trip time so far.
    pub(crate) fn min_rtt(&self) -> Option<Span> {
        let info = tcp_info(&*self.socket).ok()?;
        info.min_rtt.or(info.rtt)
    }

    /// Returns true if a device on the way has taken window scaling away, which both hosts have.
    pub(crate) fn lost_scaling(&self) -> bool {
        tcp_info(&*self.socket).is_ok_and(|info| info.window_scaling == Some(false))
    }

    /// Returns true if TLS encrypts it.
    pub(crate) const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns both sides of TLS if it is encrypted.
    pub(crate) fn into_tls(self) -> Option<(TlsReader, TlsWriter)> {
        self.tls
    }

    /// The socket.
    pub(crate) fn tcp_socket(&self) -> &TcpStream {
        &self.socket
    }
}

impl Read for DataStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some((reading, _)) = &mut self.tls else {
                let read = (&*self.socket).read(into)?;
                self.acknowledge_read(read);
                return Ok(read);
            };
            if let Some(taken) = reading.take_payload(into) {
                return Ok(taken);
            }
            let received = reading.receive_records()?;
            self.acknowledge_read(received);
        }
    }
}

impl Write for DataStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some((_, writing)) => writing.write(bytes),
            None => (&*self.socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{CONNECT_DEADLINE, CopyCredentials, DataListener, dial_hosts};
    use rustix::net::{SendFlags, send};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    /// A user timeout ends a connection whose receiver does not read for as long, whatever it
    /// answers.
    #[test]
    fn who_does_not_read_for_long_keeps_the_connection_but_an_idle_one_is_probed() {
        let credentials = CopyCredentials::new(&[7; 32], &[]).unwrap();
        let listener = DataListener::start_listening(None, (0, 0), &credentials).unwrap();
        let hosts = [SocketAddr::from(([127, 0, 0, 1], 0))];
        let mut streams = dial_hosts(&hosts, listener.port, &credentials, &mut |_| 1)
            .unwrap()
            .1;
        streams.extend(listener.take_streams(1, CONNECT_DEADLINE));
        assert_eq!(streams.len(), 2);
        for stream in &streams {
            let options = SockRef::from(stream.tcp_socket());
            assert_eq!(
                options.tcp_user_timeout().unwrap().unwrap_or_default(),
                Duration::ZERO
            );
            assert!(options.keepalive().unwrap());
        }
    }

    /// The kernel does so for some sixteen segments (`TCP_MAX_QUICKACKS`), and then waits for each
    /// second one.
    #[test]
    fn little_that_arrives_is_acknowledged_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        SockRef::from(&listener).set_tcp_mss(1000).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        let mut stream = DataStream {
            socket: socket.into(),
            tls: None,
            acknowledges_at_once: false,
        };
        stream.acknowledge_at_once();
        let reading = thread::spawn(move || while stream.read(&mut [0; 4096]).unwrap() > 0 {});
        let segment = vec![0; tcp_info(&near).unwrap().snd_mss.unwrap().get() as usize];
        let smoothed = (0..40).map(|_| {
            // None is marked as the last, which would be acknowledged as it is read.
            send(&near, &segment, SendFlags::MORE).unwrap();
            thread::sleep(Duration::from_millis(5));
            tcp_info(&near).unwrap().rtt.unwrap()
        });
        let shortest = smoothed.skip(25).min().unwrap();
        drop(near);
        reading.join().unwrap();
        assert!(shortest < Span::from_millis(1), "{shortest}");
    }
}
