//! TLS of a blocking connection, as the side that reads and the side that writes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use fullpipe_control::{MAX_RECORD, Records};

use crate::locks::lock;

/// Bytes that one system call receives at most, with the begin of a record that came before.
const RECEIVED: usize = (64 << 10) + MAX_RECORD;

/// The side that reads.
#[derive(Debug)]
pub(crate) struct Reading {
    records: Arc<Mutex<Records>>,
    buffer: Vec<u8>,
    /// Payload at the begin of `buffer` that is not read yet.
    unread: Range<usize>,
}

/// The side that writes.
#[derive(Debug)]
pub(crate) struct Writing {
    records: Arc<Mutex<Records>>,
    sealed: Vec<u8>,
}

/// Returns both sides of a connection.
pub(crate) fn sides(mut records: Records) -> (Reading, Writing) {
    let mut buffer = records.take_arrived();
    let unread = 0..buffer.len();
    buffer.resize(RECEIVED, 0);
    let records = Arc::new(Mutex::new(records));
    let writing = Writing { records: Arc::clone(&records), sealed: Vec::new() };
    (Reading { records, buffer, unread }, writing)
}

impl Reading {
    /// Takes payload that has come; none at the end that the other end has announced. Returns `None` if more must be
    /// received first.
    pub(crate) fn take(&mut self, into: &mut [u8]) -> Option<usize> {
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
    /// Fails with `UnexpectedEof` at an end that was not announced, and with `ConnectionAborted` for what is none of
    /// the other end.
    pub(crate) fn receive(&mut self, socket: &mut TcpStream) -> io::Result<usize> {
        let held = {
            let records = lock(&self.records);
            self.buffer[..records.held().len()].copy_from_slice(records.held());
            records.held().len()
        };
        // Without the lock: the other side may have to write before anything comes.
        let count = socket.read(&mut self.buffer[held..])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let opened = lock(&self.records).open(&mut self.buffer[..held + count]);
        self.unread = 0..opened.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
        Ok(count)
    }
}

impl Writing {
    /// Writes all of `payload`.
    ///
    /// # Errors
    /// Fails if the connection breaks.
    pub(crate) fn write(&mut self, socket: &mut TcpStream, payload: &[u8]) -> io::Result<()> {
        self.sealed.clear();
        lock(&self.records).seal(payload, &mut self.sealed).map_err(io::Error::other)?;
        socket.write_all(&self.sealed)
    }

    /// Announces the end to the other end.
    ///
    /// # Errors
    /// Fails if the connection breaks.
    pub(crate) fn end(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        self.sealed.clear();
        lock(&self.records).seal_end(&mut self.sealed).map_err(io::Error::other)?;
        socket.write_all(&self.sealed)
    }
}
