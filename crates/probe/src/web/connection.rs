//! A connection of the web between two transfers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_control::{ControlConnection, MAX_RECORD, TlsRecords};
use fullpipe_http::RequestRefusal;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::engine::{FramedStream, Framing};

/// Bytes that are read at once, besides a part of a record of TLS.
const READ: usize = 16 << 10;

/// A connection, inside TLS or not.
pub(crate) struct WebConnection {
    socket: TcpStream,
    records: Option<TlsRecords>,
    /// Payload that came and was not read.
    input: Vec<u8>,
    speaks_http2: bool,
}

/// The error of a connection of which no head could be read.
pub(crate) enum HeadFailure {
    /// The connection ended or broke.
    Ended,
    /// What came is no head that this end takes.
    Refused(RequestRefusal),
}

impl From<io::Error> for HeadFailure {
    fn from(_: io::Error) -> Self {
        Self::Ended
    }
}

impl WebConnection {
    /// Returns the connection after its handshake, if it has one.
    ///
    /// # Errors
    /// Fails if its records cannot be taken over.
    pub(crate) fn from_control(control: ControlConnection) -> io::Result<Self> {
        let speaks_http2 = control.speaks_http2();
        let (socket, mut records) = control.into_records()?;
        socket.set_nodelay(true)?;
        let input = records.as_mut().map(TlsRecords::take_arrived);
        Ok(Self {
            socket,
            records,
            input: input.unwrap_or_default(),
            speaks_http2,
        })
    }

    /// Returns what is left of a framed stream whose thread has ended: its frames, and the
    /// connection if it can be used further.
    pub(crate) fn from_framed(framed: Arc<FramedStream>) -> (Option<Framing>, Option<Self>) {
        let Some((socket, state)) = FramedStream::into_parts(framed) else {
            return (None, None);
        };
        if !state.has_ended {
            // The kernel would keep what was written as long as the other end answers.
            let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
        }
        let socket = TcpStream::from_std(socket).ok();
        let connection = socket.filter(|_| state.has_ended).map(|socket| Self {
            socket,
            records: state.records,
            input: state.input,
            speaks_http2: matches!(state.framing, Framing::Http2(_)),
        });
        (Some(state.framing), connection)
    }

    /// Returns the stream that carries a transfer.
    ///
    /// # Errors
    /// Fails if the socket cannot leave the runtime.
    pub(crate) fn into_framed(self, framing: Framing) -> io::Result<Arc<FramedStream>> {
        let socket = self.socket.into_std()?;
        Ok(FramedStream::new(socket, self.records, self.input, framing))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.records.is_some()
    }

    /// Returns true if both ends have agreed on HTTP/2.
    pub(crate) fn speaks_http2(&self) -> bool {
        self.speaks_http2
    }

    /// Returns payload that came and was not read; it is empty the second time.
    pub(crate) fn take_input(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.input)
    }

    /// Reads a head by `parse`, which returns it with its length once it is complete, and fails
    /// before it takes more memory than a head may. Deadlines are the caller's affair.
    ///
    /// # Errors
    /// Fails if the connection ends, or `parse` does.
    pub(crate) async fn read_head<H>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<Option<(H, usize)>, RequestRefusal>,
    ) -> Result<H, HeadFailure> {
        loop {
            if let Some((head, length)) = parse(&self.input).map_err(HeadFailure::Refused)? {
                self.input.drain(..length);
                return Ok(head);
            }
            self.read_more().await?;
        }
    }

    /// Waits for payload. Deadlines are the caller's affair.
    ///
    /// # Errors
    /// Fails if the connection ends.
    pub(crate) async fn read_more(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ + MAX_RECORD];
        let held = self
            .records
            .as_ref()
            .map_or(&[][..], TlsRecords::partial_record);
        let begin = held.len();
        buffer[..begin].copy_from_slice(held);
        let count = self.socket.read(&mut buffer[begin..]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let payload = match &mut self.records {
            None => count,
            Some(records) => records
                .open_records(&mut buffer[..begin + count])
                .map_err(io::Error::other)?,
        };
        self.input.extend_from_slice(&buffer[..payload]);
        match &self.records {
            Some(records) if records.has_ended() => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Sends all of `bytes`. Deadlines are the caller's affair.
    ///
    /// # Errors
    /// Fails if the connection broke.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(records) = &mut self.records else {
            return self.socket.write_all(bytes).await;
        };
        let mut sealed = Vec::with_capacity(bytes.len() + MAX_RECORD);
        records
            .seal_payload(bytes, &mut sealed)
            .map_err(io::Error::other)?;
        self.socket.write_all(&sealed).await
    }

    /// Ends what this end sends.
    pub(crate) async fn finish(mut self) {
        let mut sealed = Vec::new();
        if let Some(records) = &mut self.records {
            let _ = records.seal_end(&mut sealed);
        }
        let _ = self.socket.write_all(&sealed).await;
        let _ = self.socket.shutdown().await;
    }
}
