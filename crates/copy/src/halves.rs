//! A connection inside TLS as two halves, of which one thread reads and another one writes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use tokio_rustls::rustls::Connection;

use crate::data_stream::DataStream;
use crate::locks::lock;

/// Bytes that are read at once: a record and its head (RFC 8446, section 5.2).
const RECEIVED: usize = 5 + (1 << 14) + 256;

/// The half that reads.
#[derive(Debug)]
pub(crate) struct ReadHalf {
    socket: TcpStream,
    tls: Arc<Mutex<Connection>>,
    received: Vec<u8>,
    /// The part of `received` that TLS has not taken yet.
    rest: std::ops::Range<usize>,
}

/// The half that writes. When it is dropped, the other end reads the end of the stream.
#[derive(Debug)]
pub(crate) struct WriteHalf {
    socket: TcpStream,
    tls: Arc<Mutex<Connection>>,
}

/// Parts a connection.
///
/// # Errors
/// Fails if it is not encrypted, or there is no descriptor left.
pub(crate) fn halves(stream: DataStream) -> io::Result<(ReadHalf, WriteHalf)> {
    let (socket, tls) = stream.into_parts();
    let tls = Arc::new(Mutex::new(tls.ok_or_else(|| io::Error::other("it is not encrypted"))?));
    let write = WriteHalf { socket: socket.try_clone()?, tls: Arc::clone(&tls) };
    Ok((ReadHalf { socket, tls, received: vec![0; RECEIVED], rest: 0..0 }, write))
}

impl Read for ReadHalf {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            {
                let mut tls = lock(&self.tls);
                match tls.reader().read(into) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
                if !self.rest.is_empty() {
                    let taken = tls.read_tls(&mut &self.received[self.rest.clone()])?;
                    self.rest.start += taken;
                    tls.process_new_packets()
                        .map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
                    continue;
                }
            }
            // Without the lock: the other half may have to write before anything comes.
            let count = self.socket.read(&mut self.received)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.rest = 0..count;
        }
    }
}

impl WriteHalf {
    fn send(&mut self, prepare: impl FnOnce(&mut Connection) -> io::Result<usize>) -> io::Result<usize> {
        let mut records = Vec::new();
        let taken = {
            let mut tls = lock(&self.tls);
            let taken = prepare(&mut tls)?;
            while tls.wants_write() {
                tls.write_tls(&mut records)?;
            }
            taken
        };
        self.socket.write_all(&records)?;
        Ok(taken)
    }
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(|tls| tls.writer().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        let closed = self.send(|tls| {
            tls.send_close_notify();
            Ok(0)
        });
        // The other end may have gone before.
        let _ = closed.and_then(|_| self.socket.shutdown(Shutdown::Write));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{CONNECT_DEADLINE, Credentials, Listener, dial};
    use std::net::SocketAddr;
    use std::thread;

    #[test]
    fn both_directions_flow_at_once_and_end() {
        const SIZE: usize = 5_000_000;
        let credentials = Credentials::new(&[7; 32], &[]).unwrap();
        let listener = Listener::start(None, (0, 0), &credentials).unwrap();
        let hosts = [SocketAddr::from(([127, 0, 0, 1], 0))];
        let made = dial(&hosts, listener.port, &credentials, &mut |_| 1).unwrap().1.pop().unwrap();
        let taken = listener.take(1, CONNECT_DEADLINE).pop().unwrap();
        let content: Vec<u8> = (0..SIZE).map(|at| (at / 3) as u8).collect();
        thread::scope(|threads| {
            for stream in [made, taken] {
                let (mut from, mut to) = halves(stream).unwrap();
                let content = &content;
                threads.spawn(move || to.write_all(content).unwrap());
                threads.spawn(move || {
                    let mut received = vec![0; SIZE];
                    from.read_exact(&mut received).unwrap();
                    assert!(received == *content);
                    assert_eq!(from.read(&mut [0]).unwrap(), 0);
                });
            }
        });
    }
}
