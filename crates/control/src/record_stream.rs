//! A TCP stream that is read TLS record by TLS record.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::records::HEADER;

/// A stream of which no read goes beyond the end of a record: once a message has been read, TLS
/// holds no byte of what follows it, so that its keys can be taken over.
#[derive(Debug)]
pub struct RecordStream {
    pub(crate) tcp: TcpStream,
    /// The header of a record, and how many of its bytes have come.
    header: [u8; HEADER],
    begun: usize,
    /// Bytes of the record that are still to come.
    left: usize,
}

impl RecordStream {
    pub(crate) const fn new(tcp: TcpStream) -> Self {
        Self {
            tcp,
            header: [0; HEADER],
            begun: 0,
            left: 0,
        }
    }

    /// Returns true if the last record was read to its end.
    pub(crate) const fn is_between_records(&self) -> bool {
        self.begun == 0 && self.left == 0
    }

    /// Returns the number of bytes that may be read next.
    const fn readable_bytes(&self) -> usize {
        if self.left > 0 {
            self.left
        } else {
            HEADER - self.begun
        }
    }

    fn record_read(&mut self, bytes: &[u8]) {
        if self.left > 0 {
            self.left -= bytes.len();
            return;
        }
        self.header[self.begun..self.begun + bytes.len()].copy_from_slice(bytes);
        self.begun += bytes.len();
        if self.begun == HEADER {
            self.begun = 0;
            self.left = u16::from_be_bytes([self.header[3], self.header[4]]).into();
        }
    }
}

impl AsyncRead for RecordStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let wanted = this.readable_bytes().min(into.remaining());
        let mut part = ReadBuf::new(into.initialize_unfilled_to(wanted));
        ready!(Pin::new(&mut this.tcp).poll_read(context, &mut part))?;
        this.record_read(part.filled());
        let count = part.filled().len();
        into.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(context)
    }
}
