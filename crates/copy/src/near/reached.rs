//! A far end that has answered, as those reach it who search a way for data.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use fullpipe_record::{CopyTransport, HostSettings};
use fullpipe_transfer::{Message, Ready};
use fullpipe_units::Span;

use crate::connect::Credentials;
use crate::control::Outgoing;
use crate::data_stream::{Connections, DataStream};
use crate::joining::Early;
use crate::locks::lock;
use crate::options::FarHost;
use crate::quic::{self, HANDSHAKE_DEADLINE, QuicConnection};

/// The connections for data.
pub(super) struct Connected {
    pub(super) connections: Connections,
    pub(super) transport: CopyTransport,
    pub(super) reason: String,
}

/// A far end that has answered, and what both ends know.
pub(super) struct Reached<'r> {
    pub(super) out: &'r Outgoing,
    pub(super) ready: &'r Ready,
    /// The name of the far host, and the way to it.
    pub(super) way: &'r FarHost,
    /// The addresses of the far host.
    pub(super) hosts: Vec<SocketAddr>,
    /// The address of a server that was called, which is the first of `hosts`, and the round-trip
    /// time to it.
    pub(super) server: Option<(SocketAddr, Span)>,
    pub(super) credentials: &'r Credentials,
    pub(super) secret: &'r [u8; 32],
    /// Connections for data to a server that were begun before it answered.
    pub(super) early: Mutex<Option<Early>>,
    /// Settings of this host and of its own.
    pub(super) settings: [&'r HostSettings; 2],
    /// The transfer has ended, so that no way for data is searched for any more.
    pub(super) is_over: AtomicBool,
}

impl Reached<'_> {
    /// Says which connections carry data.
    pub(super) fn carry(&self, count: u16, active: u16, quic: u16) {
        self.out.send(&Message::Streams { count, active, quic });
    }

    /// Returns as many connections as `count` says, of those that were begun before the server answered.
    pub(super) fn join_early(&self, count: &mut dyn FnMut(Span) -> u16) -> Vec<DataStream> {
        match (&self.server, lock(&self.early).take()) {
            (Some((_, rtt)), Some(early)) => early.join(self.secret, count(*rtt)),
            _ => Vec::new(),
        }
    }

    pub(super) fn without_connections(&self, reason: String) -> Connected {
        self.carry(0, 0, 0);
        let transport = match self.way {
            FarHost::Ssh { .. } => CopyTransport::Ssh,
            FarHost::Server { .. } => CopyTransport::Call,
        };
        Connected { connections: Connections::none(), transport, reason }
    }

    /// Begins to call the far end by QUIC; the connection comes out of what is returned, unless it cannot be made.
    pub(super) fn begin_to_dial_quic(&self) -> Receiver<QuicConnection> {
        let (made, receiver) = channel();
        let (hosts, port, secret) = (self.hosts.clone(), self.ready.quic_port, *self.secret);
        let work = move || {
            if let Ok(connection) = quic::dial(&hosts, port, &secret, HANDSHAKE_DEADLINE) {
                // No thread waits for it if TCP was quicker.
                let _ = made.send(connection);
            }
        };
        if port != 0 {
            // Without a thread there is none.
            let _ = thread::Builder::new().name("copy-dial".to_owned()).spawn(work);
        }
        receiver
    }

    pub(super) fn dial_quic(&self, deadline: Duration) -> io::Result<QuicConnection> {
        if self.ready.quic_port == 0 {
            return Err(io::Error::other("it has no free port of the range"));
        }
        quic::dial(&self.hosts, self.ready.quic_port, self.secret, deadline)
    }
}
