//! The thread that drives a connection: datagrams in, datagrams out, and what the threads of the
//! copy have or want.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use fullpipe_sys::{
    MAX_MESSAGES, ReceivedMessage, cut_datagrams, join_datagrams, receive_messages,
};
use fullpipe_units::{BitRate, ByteCount, Span};
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, StreamEvent, StreamId,
    VarInt, WriteError,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::pipe::{QuicConnection, QuicFigures, QuicShared, QuicState};
use super::portions::PendingPortions;
use super::setup::EstablishedConnection;
use super::udp::enlarge_buffers;

/// Bytes of a message that the kernel has joined at most.
const SLOT: usize = 1 << 16;

/// Messages that one call receives.
const SLOTS: usize = 16;

/// Batches that are received, and messages that are sent, before the other is done.
const MAX_BATCHES: usize = 4;
const MAX_SENDS: usize = 16;

/// Bytes and datagrams of a message that the kernel cuts.
const MAX_CUT: usize = 65_000;
const MAX_DATAGRAMS: usize = 60;

/// The rate for which the windows of a connection suffice.
const TARGET: BitRate = BitRate::from_mbps(1000);

/// Windows are so many times the product of that rate and the round-trip time: while a lost packet
/// is retransmitted, as much arrives behind it.
const WINDOW_OF_BDP: f64 = 2.5;

/// Bounds of a window.
const WINDOWS: (u64, u64) = (8 << 20, 128 << 20);

/// Drives one connection.
pub(super) struct QuicDriver {
    socket: UdpSocket,
    remote: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    shared: Arc<QuicShared>,
    portions: PendingPortions,
    /// The portion that the library takes, and its stream.
    sending: Option<(StreamId, Bytes)>,
    /// The priority of the next portion, which is lower than that of those before it.
    priority: i32,
    /// A message that the socket had no room for: the bytes of each datagram.
    unsent: Option<usize>,
    out: Vec<u8>,
    received: Vec<u8>,
    /// The size to which the kernel cuts messages.
    cut: Option<usize>,
    /// The kernel, or the device, does not cut.
    is_whole: bool,
    seen: Instant,
    figures: QuicFigures,
}

/// The reason for which a connection ends.
enum ConnectionEnd {
    /// This end wanted it.
    Unwanted,
    Lost(String),
}

impl QuicDriver {
    /// Takes over a connection whose handshake is over.
    ///
    /// # Errors
    /// Fails if there is no descriptor left.
    pub(super) fn new(established: EstablishedConnection) -> io::Result<(QuicConnection, Self)> {
        let EstablishedConnection {
            socket,
            endpoint,
            handle,
            mut connection,
            signals,
        } = established;
        let buffer = enlarge_buffers(&socket);
        // Without it each datagram arrives alone.
        let _ = join_datagrams(&socket);
        let rtt = connection.rtt();
        let window = TARGET.bytes_in(Span::from(rtt)).get() as f64 * WINDOW_OF_BDP;
        let window = (window as u64).clamp(WINDOWS.0, WINDOWS.1);
        connection.set_send_window(window);
        connection.set_receive_window(VarInt::from_u64(window).unwrap_or(VarInt::MAX));
        let shared = Arc::new(QuicShared::new(signals, rtt, buffer)?);
        let driver = Self {
            socket,
            remote: connection.remote_address(),
            endpoint,
            handle,
            connection,
            shared: Arc::clone(&shared),
            portions: PendingPortions::default(),
            sending: None,
            priority: i32::MAX,
            unsent: None,
            out: Vec::new(),
            received: vec![0; SLOT * SLOTS],
            cut: None,
            is_whole: false,
            seen: Instant::now(),
            figures: QuicFigures::default(),
        };
        Ok((QuicConnection::new(shared), driver))
    }

    /// Drives it until it is lost or unwanted.
    pub(super) fn run_driver(mut self) {
        let why = match self.drive_connection() {
            ConnectionEnd::Unwanted => {
                self.close_connection();
                "the connection was closed".to_owned()
            }
            ConnectionEnd::Lost(why) => why,
        };
        self.shared.close_streams(&why);
    }

    fn drive_connection(&mut self) -> ConnectionEnd {
        loop {
            let now = Instant::now();
            let mut is_done = self.receive_datagrams(now);
            if self
                .connection
                .poll_timeout()
                .is_some_and(|timeout| timeout <= now)
            {
                self.connection.handle_timeout(now);
            }
            if let Err(end) = self.handle_events().and_then(|()| self.exchange_bytes(now)) {
                return end;
            }
            is_done &= self.transmit_pending(now);
            if is_done {
                self.sleep_until_event();
            }
        }
    }

    /// Takes in datagrams; returns true if there is none left.
    fn receive_datagrams(&mut self, now: Instant) -> bool {
        let mut arrivals = [ReceivedMessage::default(); MAX_MESSAGES];
        for _ in 0..MAX_BATCHES {
            let received = receive_messages(&self.socket, &mut self.received, SLOT, &mut arrivals);
            // An error is that of an earlier datagram, or there is none. A path that stays silent
            // has a deadline.
            let Ok(count) = received else { return true };
            for (slot, arrival) in arrivals[..count].iter().enumerate() {
                self.take_datagrams(now, slot * SLOT, arrival);
            }
        }
        false
    }

    fn take_datagrams(&mut self, now: Instant, begin: usize, arrival: &ReceivedMessage) {
        let mut joined = BytesMut::from(&self.received[begin..begin + arrival.length]);
        let size = arrival.segment.unwrap_or(arrival.length).max(1);
        while !joined.is_empty() {
            let datagram = joined.split_to(size.min(joined.len()));
            let mut answer = Vec::new();
            match self
                .endpoint
                .handle(now, self.remote, None, None, datagram, &mut answer)
            {
                Some(DatagramEvent::ConnectionEvent(_, event)) => {
                    self.connection.handle_event(event);
                }
                Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
                // No other thread uses this socket any more.
                Some(DatagramEvent::Response(_)) | None => {}
            }
        }
    }

    fn handle_events(&mut self) -> Result<(), ConnectionEnd> {
        while let Some(event) = next_event(self.handle, &mut self.connection, &mut self.endpoint) {
            match event {
                Event::ConnectionLost { reason } => {
                    return Err(ConnectionEnd::Lost(reason.to_string()));
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while let Some(id) = self.connection.streams().accept(Dir::Uni) {
                        self.portions.add_stream(id);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Passes bytes between the threads of the copy and the connection.
    fn exchange_bytes(&mut self, now: Instant) -> Result<(), ConnectionEnd> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock_state();
        if state.is_unwanted {
            return Err(ConnectionEnd::Unwanted);
        }
        let has_come = self
            .portions
            .read_portions(&mut self.connection, &mut state.incoming);
        let (has_room, written) = self.write_outgoing(&mut state);
        let is_busy = self.sending.is_some() || !state.outgoing.is_empty();
        self.update_figures(now, is_busy);
        state.figures = self.figures;
        drop(state);
        let has_come = has_come.map_err(|_| {
            ConnectionEnd::Lost("the other end sent portions that do not fit".to_owned())
        })?;
        if has_come || has_room {
            self.shared.notify_streams();
        }
        written.map_err(ConnectionEnd::Lost)
    }

    /// Passes portions on, as far as the windows permit. Returns true if one was taken, which
    /// leaves room for another, and the reason if the connection broke.
    fn write_outgoing(&mut self, state: &mut QuicState) -> (bool, Result<(), String>) {
        let mut has_room = false;
        while self.sending.is_some() || !state.outgoing.is_empty() {
            if self.sending.is_none() {
                let Some(id) = self.connection.streams().open(Dir::Uni) else {
                    break;
                };
                // What is lost of a portion is retransmitted before later ones, which wait for it
                // at the receiver.
                let _ = self.connection.send_stream(id).set_priority(self.priority);
                self.priority = self.priority.saturating_sub(1);
                self.sending = state.take_outgoing().map(|portion| (id, portion));
                has_room = true;
            }
            match self.write_portion() {
                Ok(true) => self.sending = None,
                Ok(false) => break,
                Err(why) => return (has_room, Err(why)),
            }
        }
        (has_room, Ok(()))
    }

    fn update_figures(&mut self, now: Instant, is_busy: bool) {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.seen, now));
        if is_busy {
            self.figures.busy += passed;
        }
        let path = self.connection.stats().path;
        self.figures.packets = path.sent_packets;
        self.figures.lost = path.lost_packets;
        self.figures.rtt = path.rtt;
        self.figures.loss_events = path.congestion_events;
    }

    /// Passes the portion on, as far as the windows permit; returns whether all of it.
    fn write_portion(&mut self) -> Result<bool, String> {
        let Some((id, portion)) = &mut self.sending else {
            return Ok(true);
        };
        let written = self
            .connection
            .send_stream(*id)
            .write_chunks(std::slice::from_mut(portion));
        match written {
            Ok(_) | Err(WriteError::Blocked) => {}
            Err(error) => return Err(error.to_string()),
        }
        if !portion.is_empty() {
            return Ok(false);
        }
        self.connection
            .send_stream(*id)
            .finish()
            .map_err(|error| error.to_string())?;
        Ok(true)
    }

    /// Sends what the library has, for a while; returns false if there is more, and room for it.
    fn transmit_pending(&mut self, now: Instant) -> bool {
        for _ in 0..MAX_SENDS {
            if self.unsent.is_none() {
                self.out.clear();
                let size = usize::from(self.connection.current_mtu());
                let most = if self.is_whole {
                    1
                } else {
                    (MAX_CUT / size).clamp(1, MAX_DATAGRAMS)
                };
                let Some(transmit) = self.connection.poll_transmit(now, most, &mut self.out) else {
                    return true;
                };
                self.unsent = Some(transmit.segment_size.unwrap_or(transmit.size));
            }
            let Some(size) = self.unsent else { return true };
            match self.send_datagrams(size) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                // What does not leave this host is lost as others on the way are, and a path that
                // stays silent has a deadline.
                _ => self.unsent = None,
            }
        }
        false
    }

    fn send_datagrams(&mut self, size: usize) -> io::Result<()> {
        let is_joined = self.out.len() > size;
        if !self.is_whole && is_joined && self.cut != Some(size) {
            self.is_whole = cut_datagrams(&self.socket, Some(ByteCount::new(size as u64))).is_err();
            self.cut = Some(size);
        } else if !is_joined && self.cut.is_some_and(|cut| size > cut) {
            cut_datagrams(&self.socket, None)?;
            self.cut = None;
        }
        if self.is_whole && is_joined {
            return self.send_each(size);
        }
        match self.socket.send(&self.out) {
            Ok(_) => Ok(()),
            // A device without checksums of its own does not cut (`udp_send_skb`).
            Err(error)
                if is_joined
                    && matches!(Errno::from_io_error(&error), Some(Errno::IO | Errno::INVAL)) =>
            {
                cut_datagrams(&self.socket, None)?;
                (self.is_whole, self.cut) = (true, None);
                self.send_each(size)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends datagrams of this size one by one.
    fn send_each(&self, size: usize) -> io::Result<()> {
        self.out
            .chunks(size)
            .try_for_each(|datagram| self.socket.send(datagram).map(drop))
    }

    fn sleep_until_event(&mut self) {
        let is_full = self.unsent.is_some();
        // What fails fails again where it is received.
        let _ = poll_socket(
            &self.socket,
            is_full,
            Some(&self.shared.wake),
            self.connection.poll_timeout(),
        );
    }

    /// Says to the other end that nothing comes any more.
    fn close_connection(&mut self) {
        let now = Instant::now();
        self.connection.close(now, 0_u32.into(), Bytes::new());
        (self.unsent, self.is_whole) = (None, true);
        self.transmit_pending(now);
    }
}

/// Lets the endpoint and the connection agree, and returns the next event of the connection.
pub(super) fn next_event(
    handle: ConnectionHandle,
    connection: &mut Connection,
    endpoint: &mut Endpoint,
) -> Option<Event> {
    while let Some(event) = connection.poll_endpoint_events() {
        if let Some(answer) = endpoint.handle_event(handle, event) {
            connection.handle_event(answer);
        }
    }
    // What is said of data that is not read is of no use before the handshake is over.
    while let Some(event) = connection.poll() {
        if !matches!(event, Event::HandshakeDataReady) {
            return Some(event);
        }
    }
    None
}

/// Waits until there is a datagram, room for one if asked for, somebody who wakes, or a time has
/// come.
pub(super) fn poll_socket(
    socket: &UdpSocket,
    for_room: bool,
    wake: Option<&OwnedFd>,
    until: Option<Instant>,
) -> io::Result<()> {
    let flags = if for_room {
        PollFlags::IN | PollFlags::OUT
    } else {
        PollFlags::IN
    };
    let mut waits = vec![PollFd::new(socket, flags)];
    waits.extend(wake.map(|wake| PollFd::new(wake, PollFlags::IN)));
    let time = until.map(|until| until.saturating_duration_since(Instant::now()));
    let time = time.map(|time| Timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    match poll(&mut waits, time.as_ref()) {
        // Who waits finds out again what is due.
        Err(Errno::INTR) => {}
        polled => drop(polled?),
    }
    if let Some(wake) = wake {
        // It is empty if the socket was the reason.
        let _ = rustix::io::read(wake, &mut [0; 8]);
    }
    Ok(())
}
