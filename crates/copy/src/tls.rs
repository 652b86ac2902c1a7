//! TLS of a blocking connection, as the side that reads and the side that writes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use fullpipe_control::{MAX_RECORD, TlsRecords};

use fullpipe_sys::lock;

/// Bytes that one system call receives at most, with the begin of a record that came before.
const RECEIVED: usize = (64 << 10) + MAX_RECORD;

/// The side that reads.
pub(crate) struct TlsReader {
    socket: Arc<TcpStream>,
    records: Arc<Mutex<TlsRecords>>,
    buffer: Vec<u8>,
    /// Payload at the begin of `buffer` that is not read yet.
    unread: Range<usize>,
}

/// The side that writes.
pub(crate) struct TlsWriter {
    pub socket: Arc<TcpStream>,
    records: Arc<Mutex<TlsRecords>>,
    sealed: Vec<u8>,
}

/// Returns both sides of a connection over this socket.
pub(crate) fn split_records(
    socket: &Arc<TcpStream>,
    mut records: TlsRecords,
) -> (TlsReader, TlsWriter) {
    let mut buffer = records.take_arrived();
    let unread = 0..buffer.len();
    buffer.resize(RECEIVED, 0);
    let records = Arc::new(Mutex::new(records));
    let writing = TlsWriter {
        socket: Arc::clone(socket),
        records: Arc::clone(&records),
        sealed: Vec::new(),
    };
    let reading = TlsReader {
        socket: Arc::clone(socket),
        records,
        buffer,
        unread,
    };
    (reading, writing)
}

impl TlsReader {
    /// Takes payload that has come; none at the end that the other end has announced. Returns
    /// `None` if more must be received first.
    pub(crate) fn take_payload(&mut self, into: &mut [u8]) -> Option<usize> {
        if self.unread.is_empty() {
            return lock(&self.records).has_ended().then_some(0);
        }
        let count = into.len().min(self.unread.len());
        into[..count].copy_from_slice(&self.buffer[self.unread.start..][..count]);
        self.unread.start += count;
        Some(count)
    }

    /// Receives bytes of the connection, once all payload is taken. Returns their number.
    ///
    /// # Errors
    /// Fails with `UnexpectedEof` at an end that was not announced, and with `ConnectionAborted`
    /// for what is none of the other end.
    pub(crate) fn receive_records(&mut self) -> io::Result<usize> {
        let held = {
            let records = lock(&self.records);
            self.buffer[..records.partial_record().len()].copy_from_slice(records.partial_record());
            records.partial_record().len()
        };
        // Without the lock: the other side may have to write before anything comes.
        let count = (&*self.socket).read(&mut self.buffer[held..])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let opened = lock(&self.records).open_records(&mut self.buffer[..held + count]);
        self.unread =
            0..opened.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
        Ok(count)
    }
}

impl Read for TlsReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(taken) = self.take_payload(into) {
                return Ok(taken);
            }
            self.receive_records()?;
        }
    }
}

impl Write for TlsWriter {
    fn write(&mut self, payload: &[u8]) -> io::Result<usize> {
        self.sealed.clear();
        lock(&self.records)
            .seal_payload(payload, &mut self.sealed)
            .map_err(io::Error::other)?;
        (&*self.socket).write_all(&self.sealed)?;
        Ok(payload.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsWriter {
    /// Announces the end to the other end.
    ///
    /// # Errors
    /// Fails if the connection breaks.
    pub(crate) fn announce_end(&mut self) -> io::Result<()> {
        self.sealed.clear();
        lock(&self.records)
            .seal_end(&mut self.sealed)
            .map_err(io::Error::other)?;
        (&*self.socket).write_all(&self.sealed)
    }
}
