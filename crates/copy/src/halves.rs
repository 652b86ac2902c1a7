//! A connection inside TLS as two halves, of which one thread reads and another one writes.

use std::io::{self, Write};
use std::net::Shutdown;

use crate::data_stream::DataStream;
use crate::tls::{TlsReader, TlsWriter};

/// The half that writes. When it is dropped, the other end reads the end of the stream.
pub(crate) struct WriteHalf(TlsWriter);

/// Parts a connection.
///
/// # Errors
/// Fails if it is not encrypted.
pub(crate) fn split_stream(stream: DataStream) -> io::Result<(TlsReader, WriteHalf)> {
    let (reading, writing) = stream
        .into_tls()
        .ok_or_else(|| io::Error::other("it is not encrypted"))?;
    Ok((reading, WriteHalf(writing)))
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        let Self(writing) = self;
        // The other end may have gone before.
        let _ = writing
            .announce_end()
            .and_then(|()| writing.socket.shutdown(Shutdown::Write));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{CONNECT_DEADLINE, CopyCredentials, DataListener, dial_hosts};
    use std::io::Read;
    use std::net::SocketAddr;
    use std::thread;

    #[test]
    fn both_directions_flow_at_once_and_end() {
        const SIZE: usize = 5_000_000;
        let credentials = CopyCredentials::new(&[7; 32], &[]).unwrap();
        let listener = DataListener::start_listening(None, (0, 0), &credentials).unwrap();
        let hosts = [SocketAddr::from(([127, 0, 0, 1], 0))];
        let made = dial_hosts(&hosts, listener.port, &credentials, &mut |_| 1)
            .unwrap()
            .1
            .pop()
            .unwrap();
        let taken = listener.take_streams(1, CONNECT_DEADLINE).pop().unwrap();
        let content: Vec<u8> = (0..SIZE).map(|at| (at / 3) as u8).collect();
        thread::scope(|threads| {
            for stream in [made, taken] {
                let (mut from, mut to) = split_stream(stream).unwrap();
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
