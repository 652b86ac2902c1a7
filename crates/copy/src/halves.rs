//! A connection inside TLS as two halves, of which one thread reads and another one writes.

use std::io::{self, Write};
use std::net::Shutdown;

use crate::data_stream::DataStream;
use crate::tls::{TlsReader, TlsWriter};

/// The half that writes. When it is dropped, the other end reads the end of the stream.
#[derive(Debug)]
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
