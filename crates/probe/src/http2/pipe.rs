//! The two buffers that stand for the socket of a connection.

use std::io;
use std::mem::swap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use fullpipe_sys::lock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of the input that may be unread before no more is wanted.
const MAX_UNREAD: usize = 1 << 20;

/// Both buffers, of which the library has one handle and whoever drives it the other. Nobody is
/// woken: the connection is polled after each change.
#[derive(Clone, Default)]
pub(super) struct Pipe(Arc<Mutex<PipeBuffers>>);

#[derive(Default)]
struct PipeBuffers {
    input: Vec<u8>,
    /// Bytes of the input that were read.
    read: usize,
    output: Vec<u8>,
    /// Bytes that the output may have.
    room: usize,
}

impl Pipe {
    /// Appends what came from the other end.
    pub(super) fn push_input(&self, bytes: &[u8]) {
        let mut buffers = lock(&self.0);
        if buffers.read == buffers.input.len() {
            buffers.input.clear();
            buffers.read = 0;
        }
        buffers.input.extend_from_slice(bytes);
    }

    /// Returns true while more input may come: the library leaves it unread where its answers to it are
    /// not taken, and a peer could send without end.
    pub(super) fn has_room(&self) -> bool {
        let buffers = lock(&self.0);
        buffers.input.len() - buffers.read < MAX_UNREAD
    }

    /// Lets the output have so many bytes.
    pub(super) fn set_room(&self, room: usize) {
        lock(&self.0).room = room;
    }

    /// Moves the output into an empty buffer.
    pub(super) fn take_output(&self, into: &mut Vec<u8>) {
        into.clear();
        swap(&mut lock(&self.0).output, into);
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffers = lock(&self.0);
        let unread = &buffers.input[buffers.read..];
        let count = unread.len().min(into.remaining());
        if count == 0 {
            return Poll::Pending;
        }
        into.put_slice(&unread[..count]);
        buffers.read += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffers = lock(&self.0);
        let room = buffers.room.saturating_sub(buffers.output.len());
        let count = bytes.len().min(room);
        if count == 0 {
            return Poll::Pending;
        }
        buffers.output.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
