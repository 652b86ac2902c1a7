//! A TCP stream that is read TLS record by TLS record.

use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::records::{HEADER, MAX_RECORD};

/// Types of records (RFC 8446, appendix B.1).
const TYPES: RangeInclusive<u8> = 20..=23;

/// A stream that hands over no byte of a record before all of it has come, and none of the next one
/// with it: TLS then holds no part of a record when its keys are taken over.
#[derive(Debug)]
pub struct RecordStream {
    pub(crate) tcp: TcpStream,
    /// The begin of a record, or all of it.
    record: Vec<u8>,
    /// Bytes of the record that were handed over, once it is complete.
    given: usize,
}

impl RecordStream {
    pub(crate) const fn new(tcp: TcpStream) -> Self {
        Self {
            tcp,
            record: Vec::new(),
            given: 0,
        }
    }

    /// Returns the connection and the begin of a record that has come; `None` if a part of a record
    /// was handed over.
    pub(crate) fn into_parts(self) -> Option<(TcpStream, Vec<u8>)> {
        (self.given == 0).then_some((self.tcp, self.record))
    }

    /// Returns the number of bytes that are still to come of the record, or of its header; none of
    /// what is no record, which TLS sees by its header.
    fn missing_bytes(&self) -> usize {
        let Some(&[kind, major, _, high, low]) = self.record.first_chunk::<HEADER>() else {
            return HEADER - self.record.len();
        };
        let whole = HEADER + usize::from(u16::from_be_bytes([high, low]));
        if TYPES.contains(&kind) && major == 3 && whole <= MAX_RECORD {
            whole - self.record.len()
        } else {
            0
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
        while this.given == 0
            && let missing @ 1.. = this.missing_bytes()
        {
            let held = this.record.len();
            this.record.resize(held + missing, 0);
            let mut part = ReadBuf::new(&mut this.record[held..]);
            let read = Pin::new(&mut this.tcp).poll_read(context, &mut part);
            let count = part.filled().len();
            this.record.truncate(held + count);
            ready!(read)?;
            if count == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        let count = into.remaining().min(this.record.len() - this.given);
        into.put_slice(&this.record[this.given..this.given + count]);
        this.given += count;
        if this.given == this.record.len() {
            (this.record, this.given) = (Vec::new(), 0);
        }
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
