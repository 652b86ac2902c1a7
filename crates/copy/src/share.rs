//! The server of a folder that is shared with those who have a key.

mod callers;
mod queues;

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_control::{
    AddressPrefix, ClientPlace, ClientPlaces, ConnectionHandover, ControlConnection,
    HandedConnections, ListenError, NoPlace, PendingClients, PinnedTls, QueueBudget, RefusalCounts,
    RefusedConnections, canonical_address, is_admitted, listen_tcp, most_descriptors,
    single_threaded_runtime,
};
use fullpipe_iperf::SharedKey;
use fullpipe_sys::{start_thread, tcp_info};
use fullpipe_units::{BitRate, ByteCount, Span, printable_bytes};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio::time::timeout;

use self::callers::CallerAdmission;
use self::queues::CopyQueues;
use crate::bounds::DirectionRates;
use crate::common::CopyCounts;
use crate::connect::{CONNECT_DEADLINE, MAX_CONNECTIONS};
use crate::data_stream::{DEAD_AFTER, DataStream};
use crate::far::{CopyScope, serve_near_end};
use crate::halves::split_stream;
use crate::joining::JoinableCopies;
use crate::options::CopyError;
use crate::protocol::CopyMessage;
use crate::pulse::{FIRST_TIMEOUT, SilenceWatch};
use crate::root::FolderRoot;
use crate::server::tls_of;
use crate::shared::SharedFlag;
use crate::ssh::GREETING;
use crate::threads::start_answering;
use crate::tree::FolderTree;

/// Time between two checks for an end, an interrupt, or a copy that has lasted too long.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Connections at once that have not proved yet that they have the key, or have not said what they
/// are for, in all, and of one address that have proved it: all those of a copy may come together.
const MAX_CALLERS: usize = 2 * MAX_CALLERS_OF_ONE;
const MAX_CALLERS_OF_ONE: usize = MAX_CONNECTIONS as usize;

/// Time that copies have to end when the server does.
const LAST_COPIES: Duration = Duration::from_secs(2);

/// A folder that is to be shared.
#[derive(Debug, Clone)]
pub struct ShareOptions {
    /// The folder.
    pub folder: PathBuf,
    /// Nothing in it may be changed.
    pub is_read_only: bool,
    /// The key that clients must have.
    pub key: SharedKey,
    /// Address to listen on; every one if absent.
    pub bind: Option<IpAddr>,
    /// Port to listen on; `None` if all clients come by [`ShareServer::handover`].
    pub port: Option<u16>,
    /// The networks that are served; all if there is none.
    pub allow: Vec<AddressPrefix>,
    /// Networks that are not served, even if they are allowed.
    pub deny: Vec<AddressPrefix>,
    /// Copies at once.
    pub copies: u32,
    /// Copies at once of one address; of IPv6, of one /64 network.
    pub copies_of_one: u32,
    /// Rate of all copies together, in each direction.
    pub rate: Option<BitRate>,
    /// Longest time of a copy.
    pub duration: Option<Span>,
    /// Bytes of files in one copy at most.
    pub bytes: Option<ByteCount>,
}

/// The error of a folder that cannot be shared.
#[derive(Debug, Error)]
pub enum ShareError {
    /// The folder cannot be opened.
    #[error("{path} cannot be shared: {cause}")]
    Folder {
        /// The folder.
        path: String,
        /// The error of the system.
        cause: io::Error,
    },
    /// The server cannot listen there.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// This host lacks something.
    #[error("the server of the folder cannot start: {0}")]
    Start(io::Error),
}

/// Something that happened at a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShareEvent {
    /// A copy is done.
    Copied {
        /// The client.
        client: SocketAddr,
        /// Bytes that crossed and were verified.
        bytes: ByteCount,
        /// Mean rate of the whole copy.
        rate: BitRate,
    },
    /// A copy ended early.
    Failed {
        /// The client.
        client: SocketAddr,
        /// The reason.
        why: String,
    },
    /// Connections were rejected: the first of a reason, or those that followed.
    Rejected(RefusedConnections),
}

/// A server that listens.
pub struct ShareServer {
    runtime: Runtime,
    listener: Option<TcpListener>,
    /// Connections that another server passes on.
    handed: HandedConnections,
    handover: ConnectionHandover,
    tls: PinnedTls,
    callers: PendingClients,
    shared: Arc<ShareState>,
}

/// Common to all copies of a server.
struct ShareState {
    options: ShareOptions,
    root: FolderRoot,
    rates: DirectionRates,
    /// Copies under way.
    copies: Arc<ClientPlaces>,
    joining: Arc<JoinableCopies>,
    stop: SharedFlag,
}

impl ShareServer {
    /// Opens the folder and listens.
    ///
    /// # Errors
    /// Fails if the folder cannot be opened, or the address is in use.
    pub fn open_share(options: ShareOptions) -> Result<Self, ShareError> {
        let path = printable_bytes(options.folder.as_os_str().as_encoded_bytes());
        let tree = FolderTree::open_root(&options.folder)
            .map_err(|cause| ShareError::Folder { path, cause })?;
        let tls = tls_of(&options.key)
            .map_err(ShareError::Start)?
            .with_parts();
        // The connections of copies take two each, so callers leave them most.
        let most_callers = usize::try_from(most_descriptors() / 4)
            .unwrap_or(usize::MAX)
            .clamp(1, MAX_CALLERS);
        let callers = PendingClients::new(most_callers, MAX_CALLERS_OF_ONE);
        let runtime = single_threaded_runtime().map_err(ShareError::Start)?;
        let listener = options
            .port
            .map(|port| runtime.block_on(async { listen_tcp(options.bind, port, |_| Ok(())) }))
            .transpose()?;
        let (handover, handed) = ConnectionHandover::new();
        let root = FolderRoot::Share(Arc::new(tree));
        Ok(Self {
            runtime,
            listener,
            handed,
            handover,
            tls,
            callers,
            shared: Arc::new(ShareState::new(options, root)),
        })
    }

    /// Returns the address on which it listens, if it does.
    pub fn listen_address(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Returns the way by which another server of this process passes the connections of clients
    /// on.
    pub fn handover(&self) -> ConnectionHandover {
        self.handover.clone()
    }

    /// Serves clients until `interrupt` is set, and then ends the copies that are under way.
    /// `report` is called with each event.
    pub fn serve_clients(self, interrupt: &AtomicBool, report: &mut dyn FnMut(ShareEvent)) {
        let (events, reported) = channel();
        let refusals = Rc::<RefCell<RefusalCounts>>::default();
        let Self {
            runtime,
            listener,
            mut handed,
            callers,
            tls,
            shared,
            ..
        } = self;
        let entrance = CallerAdmission {
            callers,
            tls,
            shared: Arc::clone(&shared),
            events,
            refusals: Rc::clone(&refusals),
        };
        LocalSet::new().block_on(
            &runtime,
            entrance.accept_callers(listener.as_ref(), &mut handed, interrupt, &mut || {
                let refused = refusals.borrow_mut().take_due(Instant::now());
                report_all(&reported, refused, report);
            }),
        );
        shared.stop.raise_flag();
        let deadline = Instant::now() + LAST_COPIES;
        while !shared.copies.are_free() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        let refused = refusals.borrow_mut().take_all(Instant::now());
        report_all(&reported, refused, report);
    }
}

fn report_all(
    reported: &Receiver<ShareEvent>,
    refused: Vec<RefusedConnections>,
    report: &mut dyn FnMut(ShareEvent),
) {
    reported
        .try_iter()
        .chain(refused.into_iter().map(ShareEvent::Rejected))
        .for_each(report);
}

impl std::fmt::Debug for ShareServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

/// A copy of a client, which has a place.
struct CopyOfOne {
    shared: Arc<ShareState>,
    _place: ClientPlace,
}

impl ShareState {
    fn new(options: ShareOptions, root: FolderRoot) -> Self {
        let rates = DirectionRates::with_rate(options.rate);
        let copies = ClientPlaces::new(options.copies, options.copies_of_one);
        Self {
            options,
            root,
            rates,
            copies,
            joining: Arc::default(),
            stop: SharedFlag::default(),
        }
    }

    /// Returns true if clients at this address are served.
    fn serves_address(&self, address: IpAddr) -> bool {
        is_admitted(address, &self.options.allow, &self.options.deny)
    }

    /// Begins the copy of a client that has proved that it has the key, or says why not.
    async fn start_copy(
        self: Arc<Self>,
        connection: ControlConnection,
        client: SocketAddr,
        events: Sender<ShareEvent>,
    ) -> Result<(), &'static str> {
        let place = match self.copies.take_place(client.ip()) {
            Ok(place) => place,
            Err(full) => {
                let why = match full {
                    NoPlace::ForAll => "too many copies are under way",
                    NoPlace::ForAddress => "too many copies of its address are under way",
                };
                let _ = timeout(CONNECT_DEADLINE, refuse_client(connection, why)).await;
                return Err(why);
            }
        };
        let copy = CopyOfOne {
            shared: self,
            _place: place,
        };
        // Without a thread the connection ends, which the client notices.
        let _ = start_thread("copy-share", move || {
            drop(events.send(copy.run_copy(connection, client)));
        });
        Ok(())
    }
}

/// Says to a client why its copy does not begin, and waits until it has gone: what it has sent and
/// this end has not read would break the connection before it reads that.
async fn refuse_client(mut connection: ControlConnection, why: &str) -> io::Result<()> {
    let said = CopyMessage::Refused {
        code: 1,
        why: why.to_owned(),
    }
    .to_frame();
    connection.write_all(&[GREETING, &said].concat()).await?;
    connection.shutdown().await?;
    while !connection.receive_bytes().await?.is_empty() {}
    Ok(())
}

impl CopyOfOne {
    fn run_copy(self, connection: ControlConnection, client: SocketAddr) -> ShareEvent {
        let began = Instant::now();
        let tally = Arc::<CopyCounts>::default();
        match self.serve_copy(connection, client, Arc::clone(&tally), began) {
            Ok(()) => {
                let bytes = ByteCount::new(tally.verified.current_value());
                ShareEvent::Copied {
                    client,
                    bytes,
                    rate: BitRate::from_bytes_in(bytes, began.elapsed().into()),
                }
            }
            Err(error) => ShareEvent::Failed {
                client,
                why: error.to_string(),
            },
        }
    }

    fn serve_copy(
        &self,
        connection: ControlConnection,
        client: SocketAddr,
        tally: Arc<CopyCounts>,
        began: Instant,
    ) -> Result<(), CopyError> {
        let failed = CopyError::from_io("cannot serve it");
        let stream = DataStream::from_control(connection).map_err(&failed)?;
        let socket = stream.tcp_socket().try_clone().map_err(&failed)?;
        let (from, to) = split_stream(stream).map_err(&failed)?;
        let (pulse, scope) = (SilenceWatch::new(FIRST_TIMEOUT), self.client_scope(client));
        let share = QueueBudget::of_this_process().join(Some(client.ip()));
        let mut queues = CopyQueues::new(socket, Arc::clone(&scope.carrying), share, began);
        let serving = Arc::clone(&pulse);
        let ended = start_answering("copy", move || {
            serve_near_end(from, to, &serving, &scope, tally)
        })
        .map_err(&failed)?;
        self.wait_for_end(&ended, &pulse, &mut queues, began)
    }

    /// Waits for the end of a copy, and ends it by its connection if it must.
    fn wait_for_end(
        &self,
        ended: &Receiver<Result<(), CopyError>>,
        pulse: &SilenceWatch,
        queues: &mut CopyQueues,
        began: Instant,
    ) -> Result<(), CopyError> {
        let mut reason = None;
        loop {
            match ended.recv_timeout(POLL_INTERVAL) {
                Ok(served) => return reason.map_or(served, Err),
                Err(RecvTimeoutError::Disconnected) => return Err(CopyError::Gone),
                Err(RecvTimeoutError::Timeout) if reason.is_none() => {
                    reason = self.reason_to_end(pulse, queues, began);
                    if reason.is_some() {
                        queues.end();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn reason_to_end(
        &self,
        pulse: &SilenceWatch,
        queues: &mut CopyQueues,
        began: Instant,
    ) -> Option<CopyError> {
        let longest = self.shared.options.duration;
        if let Err(excess) = queues.check(Instant::now()) {
            return Some(CopyError::from_refusal(&excess));
        }
        match () {
            // The one who would read may wait for a lock.
            () if tcp_info(&queues.call).is_ok_and(|info| info.is_silent(DEAD_AFTER.into())) => {
                Some(CopyError::Silent(DEAD_AFTER.into()))
            }
            () if pulse.is_silent() => Some(CopyError::Silent(pulse.silence_timeout().into())),
            () if self.shared.stop.is_raised() => Some(CopyError::Interrupted),
            () if longest.is_some_and(|longest| Span::from(began.elapsed()) > longest) => {
                Some(CopyError::from_refusal(&"it took longer than a copy may"))
            }
            () => None,
        }
    }

    fn client_scope(&self, client: SocketAddr) -> CopyScope {
        let shared = &self.shared;
        CopyScope {
            root: shared.root.clone(),
            is_read_only: shared.options.is_read_only,
            most: shared.options.bytes,
            rates: shared.rates.clone(),
            joining: Some(Arc::clone(&shared.joining)),
            bind: shared.options.bind,
            near: Some(canonical_address(client)),
            own: None,
            carrying: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests;
