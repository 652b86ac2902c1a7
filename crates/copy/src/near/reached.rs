//! A far end that has answered, as those reach it who search a way for data.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use fullpipe_record::{CopyTransport, HostSettings};
use fullpipe_units::Span;

use crate::connect::CopyCredentials;
use crate::control::MessageSender;
use crate::data_stream::{DataConnections, DataStream};
use crate::joining::EarlyConnections;
use crate::options::FarHost;
use crate::protocol::{CopyAnswer, CopyMessage};
use crate::quic::{self, HANDSHAKE_DEADLINE, QuicConnection};
use crate::shared::SharedFlag;
use crate::threads::start_answering;
use fullpipe_sys::lock;

/// The connections for data.
pub(super) struct ConnectedData {
    pub connections: DataConnections,
    pub transport: CopyTransport,
    pub reason: String,
}

impl ConnectedData {
    /// Adds a clause to the reason.
    pub(super) fn with_note(mut self, note: &str) -> Self {
        self.reason += note;
        self
    }
}

/// A far end that has answered, and what both ends know.
pub(super) struct ReachedFarEnd<'r> {
    pub out: &'r MessageSender,
    pub ready: &'r CopyAnswer,
    /// The name of the far host, and the way to it.
    pub way: &'r FarHost,
    /// The addresses of the far host.
    pub hosts: Vec<SocketAddr>,
    /// The address of a server that was called, which is the first of `hosts`, and the round-trip
    /// time to it.
    pub server: Option<(SocketAddr, Span)>,
    pub credentials: &'r CopyCredentials,
    pub secret: &'r [u8; 32],
    /// Connections for data to a server that were begun before it answered.
    pub early: Mutex<Option<EarlyConnections>>,
    /// Settings of this host and of its own.
    pub settings: [&'r HostSettings; 2],
    /// The transfer has ended, so that no way for data is searched for any more.
    pub is_over: SharedFlag,
}

impl ReachedFarEnd<'_> {
    /// Says which connections carry data.
    pub(super) fn announce_streams(&self, count: u16, active: u16, quic: u16) {
        self.out.send_message(&CopyMessage::Streams {
            count,
            active,
            quic,
        });
    }

    /// Returns as many connections as `count` says, of those that were begun before the server
    /// answered.
    pub(super) fn join_early(&self, count: &mut dyn FnMut(Span) -> u16) -> Vec<DataStream> {
        match (&self.server, lock(&self.early).take()) {
            (Some((_, rtt)), Some(early)) => early.take_joined(self.secret, count(*rtt)),
            _ => Vec::new(),
        }
    }

    pub(super) fn without_connections(&self, reason: String) -> ConnectedData {
        self.announce_streams(0, 0, 0);
        let transport = match self.way {
            FarHost::Ssh { .. } => CopyTransport::Ssh,
            FarHost::Server { .. } => CopyTransport::Call,
        };
        ConnectedData {
            connections: DataConnections::without_streams(),
            transport,
            reason,
        }
    }

    /// Begins to call the far end by QUIC, if that listens; the connection comes out of what is
    /// returned. Without a thread there is none.
    pub(super) fn begin_to_dial_quic(&self) -> Option<Receiver<io::Result<QuicConnection>>> {
        let (hosts, port, secret) = (self.hosts.clone(), self.ready.quic_port, *self.secret);
        if port == 0 {
            return None;
        }
        start_answering("copy-dial", move || {
            quic::dial_quic(&hosts, port, &secret, HANDSHAKE_DEADLINE)
        })
        .ok()
    }

    pub(super) fn dial_quic(&self, deadline: Duration) -> io::Result<QuicConnection> {
        if self.ready.quic_port == 0 {
            return Err(io::Error::other("it has no free port of the range"));
        }
        quic::dial_quic(&self.hosts, self.ready.quic_port, self.secret, deadline)
    }
}
