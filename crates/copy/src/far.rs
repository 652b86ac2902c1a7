//! The far end: started by ssh, it does what the near end asks, with the rights of its user;
//! started by a server, it does so within the folder that is shared.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fullpipe_control::{AddressPrefix, most_descriptors};
use fullpipe_units::{ByteCount, Span};

use crate::address::read_address;
use crate::bounds::{CopyBounds, DirectionRates};
use crate::common::{CopyCounts, TransferContext};
use crate::connect::{
    CONNECT_DEADLINE, CopyCredentials, DataListener, MAX_CONNECTIONS, dial_hosts,
};
use crate::control::{FrameReader, MessageSender};
use crate::data_stream::{DataConnections, DataStream};
use crate::joining::JoinableCopies;
use crate::options::CopyError;
use crate::protocol::{CopyAnswer, CopyMessage, CopyRequest, VERSION};
use crate::pulse::{FIRST_TIMEOUT, SilenceWatch};
use crate::quic::{self, HANDSHAKE_DEADLINE, MAX_STREAMS, QuicConnection, QuicListener};
use crate::receiver::ReceiveOptions;
use crate::root::FolderRoot;
use crate::session::{TransferRole, own_settings, settings_of};
use crate::ssh::GREETING;
use crate::threads::start_answering;
use crate::walk::CopySource;

/// Ports below this one are for services of a host, not for data of a shared folder.
const FIRST_PORT: u16 = 1024;

/// Paths of a shared folder that a copy may name: each takes a descriptor of the server.
const MAX_SHARED_SOURCES: usize = 64;

/// Time between two checks whether the near end is silent.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The rights of a near end, and the addresses of both.
#[derive(Clone)]
pub(crate) struct CopyScope {
    pub root: FolderRoot,
    pub is_read_only: bool,
    /// Bytes of files in one copy at most.
    pub most: Option<ByteCount>,
    /// Rates that it shares with other copies.
    pub rates: DirectionRates,
    /// Copies that take connections at the port of the call, if there is one.
    pub joining: Option<Arc<JoinableCopies>>,
    /// Address on which to listen for data; all if absent.
    pub bind: Option<IpAddr>,
    /// Address of the near end.
    pub near: Option<SocketAddr>,
    /// Address of this host as the near end knows it.
    pub own: Option<IpAddr>,
    /// The TCP connections that carry data, once they are known.
    pub carrying: Arc<OnceLock<Arc<[TcpStream]>>>,
}

impl CopyScope {
    /// Returns the time for which a near end that asks for so long may be silent. At a server,
    /// which may have many, it is no longer than until it has asked.
    fn permitted_silence(&self, asked: Duration) -> Duration {
        if self.joining.is_some() {
            asked.min(FIRST_TIMEOUT)
        } else {
            asked
        }
    }

    /// Returns the scope of the user whom ssh has let in.
    fn of_ssh() -> Self {
        Self {
            root: FolderRoot::User,
            is_read_only: false,
            most: None,
            rates: DirectionRates::default(),
            joining: None,
            bind: None,
            near: ssh_connection(0),
            own: ssh_connection(2).map(|own| own.ip()),
            carrying: Arc::default(),
        }
    }
}

/// Serves one near end over standard input and output, until it goes away or says nothing any more.
///
/// # Errors
/// Fails if the near end goes away early, is silent or breaks the rules. It knows every other
/// reason, which it shows to its user. Threads that wait for a silent one end with this process,
/// and its locks with them.
pub fn far_end(
    from: impl Read + Send + 'static,
    to: impl Write + Send + 'static,
) -> Result<(), CopyError> {
    // Connections take two each.
    most_descriptors();
    let pulse = SilenceWatch::new(FIRST_TIMEOUT);
    let serving = Arc::clone(&pulse);
    let ended = start_answering("copy", move || {
        serve_near_end(from, to, &serving, &CopyScope::of_ssh(), Arc::default())
    })
    .map_err(CopyError::from_io("cannot start a thread"))?;
    loop {
        match ended.recv_timeout(POLL_INTERVAL) {
            Ok(served) => return served,
            Err(RecvTimeoutError::Timeout) if pulse.is_silent() => {
                return Err(CopyError::Silent(Span::from(pulse.silence_timeout())));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(CopyError::Gone),
        }
    }
}

/// Serves one near end, until it goes away.
///
/// # Errors
/// Fails if the near end goes away early or breaks the rules, or asks for what it may not have.
pub(crate) fn serve_near_end(
    from: impl Read,
    mut to: impl Write + Send + 'static,
    pulse: &Arc<SilenceWatch>,
    scope: &CopyScope,
    tally: Arc<CopyCounts>,
) -> Result<(), CopyError> {
    let failed = CopyError::from_io("cannot answer the near end");
    to.write_all(GREETING)
        .and_then(|()| to.flush())
        .map_err(&failed)?;
    let (out, writer) = MessageSender::start_writer(to, pulse).map_err(&failed)?;
    let mut frames = FrameReader::new(from, pulse);
    let served = serve_request(&mut frames, &out, pulse, scope, tally);
    out.close_after(&served);
    // The near end closes when it has read everything.
    while let Ok(Some(_)) = frames.next_frame() {}
    drop(writer);
    served
}

fn serve_request<R: Read>(
    frames: &mut FrameReader<R>,
    out: &MessageSender,
    pulse: &SilenceWatch,
    scope: &CopyScope,
    tally: Arc<CopyCounts>,
) -> Result<(), CopyError> {
    let hello = read_request(frames)?;
    pulse.set_timeout(scope.permitted_silence(Duration::from_secs(hello.timeout.into())));
    let credentials = CopyCredentials::new(&hello.secret, &unencrypted_networks(&hello)?)
        .map_err(CopyError::from_io("cannot make a key"))?;
    let end = transfer_role(&hello, out, pulse, scope, tally)?;
    let listener = start_listener(&hello, scope, &credentials);
    let joining = scope.joining.as_ref();
    let taking =
        joining.map(|joining| joining.register_copy(&hello.secret, listener.joined.clone()));
    let quic = quic_listener(&hello, scope);
    let settings = own_settings();
    out.send_message(&CopyMessage::Ready(CopyAnswer {
        port: listener.port,
        quic_port: quic.as_ref().map_or(0, |listener| listener.port),
        address: scope
            .own
            .map_or_else(Vec::new, |address| address.to_string().into_bytes()),
        settings: serde_json::to_vec(&settings).unwrap_or_default(),
    }));
    end.start_listing()?;
    let mut awaited = AwaitedConnections {
        listener: Some(listener),
        quic,
        near: scope.near,
        credentials,
        secret: hello.secret,
    };
    let connected = awaited.await_connections(frames, &end);
    drop(taking);
    match connected {
        Ok(connections) => {
            let carriers = end.carry_data(connections, [settings, settings_of(&hello.settings)]);
            // It is set once.
            let _ = scope.carrying.set(Arc::clone(&carriers.sockets));
            end.end_transfer(end.handle_messages(frames), &carriers)
                .map(drop)
        }
        Err(error) => {
            end.give_up();
            Err(error)
        }
    }
}

/// Reads the request. One of another version may have other fields.
fn read_request<R: Read>(frames: &mut FrameReader<R>) -> Result<CopyRequest, CopyError> {
    let frame = frames.next_message()?;
    if let Some(version) = CopyRequest::version_of(frame).filter(|version| *version != VERSION) {
        let why = format!(
            "the far end speaks version {VERSION} of the protocol of copies, and this one version {version}: install \
             the same fullpipe at both"
        );
        return Err(CopyError::Refused { code: 1, why });
    }
    let CopyMessage::Hello(hello) = CopyMessage::read(frame)? else {
        return Err(CopyError::from_rule("it does not begin with its request"));
    };
    Ok(hello)
}

fn permits_ports(hello: &CopyRequest, scope: &CopyScope) -> bool {
    matches!(scope.root, FolderRoot::User) || hello.ports == (0, 0) || hello.ports.0 >= FIRST_PORT
}

fn start_listener(
    hello: &CopyRequest,
    scope: &CopyScope,
    credentials: &CopyCredentials,
) -> DataListener {
    let started = permits_ports(hello, scope)
        .then(|| DataListener::start_listening(scope.bind, hello.ports, credentials).ok());
    started.flatten().unwrap_or_else(DataListener::without_port)
}

fn quic_listener(hello: &CopyRequest, scope: &CopyScope) -> Option<QuicListener> {
    let is_wanted = hello.quic && permits_ports(hello, scope);
    is_wanted
        .then(|| QuicListener::start_listening(scope.bind, hello.ports, &hello.secret).ok())
        .flatten()
}

/// The ways in which connections for data may come.
struct AwaitedConnections {
    listener: Option<DataListener>,
    quic: Option<QuicListener>,
    near: Option<SocketAddr>,
    credentials: CopyCredentials,
    secret: [u8; 32],
}

impl AwaitedConnections {
    /// Waits until the near end says which connections carry data, and returns them. Lets `end`
    /// carry out what it says meanwhile of the files.
    fn await_connections<R: Read>(
        &mut self,
        frames: &mut FrameReader<R>,
        end: &TransferRole,
    ) -> Result<DataConnections, CopyError> {
        let (mut dialling, mut quic) = (None, None);
        loop {
            // The near end notices when nothing comes.
            match CopyMessage::read(frames.next_message()?)? {
                CopyMessage::Dial { port } if dialling.is_none() => {
                    dialling = Some(DialledConnections::start_dialling(
                        self.near,
                        port,
                        &self.credentials,
                    ));
                }
                CopyMessage::DialQuic { port } if quic.is_none() => {
                    let near = self.near.as_slice();
                    quic = Some(quic::dial_quic(near, port, &self.secret, HANDSHAKE_DEADLINE).ok());
                }
                CopyMessage::Streams {
                    count,
                    active,
                    quic: streams,
                } if count <= MAX_CONNECTIONS && streams <= MAX_STREAMS => {
                    let quic = self.take_quic(quic.flatten(), streams);
                    // If it carries nothing, it is not waited for.
                    let dialled = dialling
                        .filter(|_| count > 0)
                        .and_then(|made| made?.recv().ok()?);
                    return Ok(self.take_connections(dialled, count, active, quic));
                }
                CopyMessage::Dial { .. }
                | CopyMessage::DialQuic { .. }
                | CopyMessage::Streams { .. } => {
                    return Err(CopyError::from_rule(
                        "it wants more connections than a copy may have",
                    ));
                }
                message => {
                    if end.handle_message(message)? {
                        return Err(CopyError::from_rule(
                            "it does not say which connections carry data",
                        ));
                    }
                }
            }
        }
    }

    fn take_connections(
        &mut self,
        dialled: Option<DialledConnections>,
        count: u16,
        active: u16,
        quic: Option<(Arc<QuicConnection>, u16)>,
    ) -> DataConnections {
        // It ends here in any case: no connection is to come later.
        let streams = match (dialled, self.listener.take()) {
            (Some(dialled), _) => dialled.up_to(count, &self.credentials),
            (None, Some(listener)) => listener.take_streams(count.into(), CONNECT_DEADLINE),
            (None, None) => Vec::new(),
        };
        let rtt = streams
            .first()
            .and_then(DataStream::min_rtt)
            .or(quic.as_ref().map(|(quic, _)| quic.handshake_rtt()));
        DataConnections {
            streams,
            active,
            quic,
            rtt: rtt.unwrap_or(Span::from_millis(1)),
        }
    }

    /// Returns the QUIC connection if the near end speaks of one: that which this end made, or the
    /// one that came.
    fn take_quic(
        &mut self,
        made: Option<QuicConnection>,
        streams: u16,
    ) -> Option<(Arc<QuicConnection>, u16)> {
        let listener = self.quic.take();
        if streams == 0 {
            return None;
        }
        let connection = made.or_else(|| listener?.take_connection(HANDSHAKE_DEADLINE))?;
        Some((Arc::new(connection), streams))
    }
}

/// Connections that this end has made.
struct DialledConnections {
    host: SocketAddr,
    port: u16,
    streams: Vec<DataStream>,
}

impl DialledConnections {
    /// Begins to make one to the near end; it comes out of what is returned, unless it cannot be
    /// made. Without a thread there is none.
    fn start_dialling(
        near: Option<SocketAddr>,
        port: u16,
        credentials: &CopyCredentials,
    ) -> Option<Receiver<Option<Self>>> {
        let credentials = credentials.clone();
        start_answering("copy-dial", move || {
            let made = dial_hosts(near.as_slice(), port, &credentials, &mut |_| 1);
            made.ok().map(|(host, streams)| Self {
                host,
                port,
                streams,
            })
        })
        .ok()
    }

    /// Makes more of them, and returns `count`, or as many as there are.
    fn up_to(mut self, count: u16, credentials: &CopyCredentials) -> Vec<DataStream> {
        let more = count.saturating_sub(self.streams.len() as u16);
        if more > 0
            && let Ok((_, others)) = dial_hosts(&[self.host], self.port, credentials, &mut |_| more)
        {
            self.streams.extend(others);
        }
        self.streams.truncate(count.into());
        self.streams
    }
}

fn unencrypted_networks(hello: &CopyRequest) -> Result<Vec<AddressPrefix>, CopyError> {
    hello
        .unencrypted
        .iter()
        .map(|text| String::from_utf8_lossy(text).parse::<AddressPrefix>())
        .collect::<Result<_, _>>()
        .map_err(|error| CopyError::Protocol(error.to_string()))
}

fn transfer_role(
    hello: &CopyRequest,
    out: &MessageSender,
    pulse: &SilenceWatch,
    scope: &CopyScope,
    tally: Arc<CopyCounts>,
) -> Result<TransferRole, CopyError> {
    let paces = scope.rates.direction_paces(hello.far_sends);
    let bounds = CopyBounds::new(paces, scope.most).with_request(hello, hello.far_sends);
    let common = TransferContext::new(out.clone(), tally, None).with_bounds(bounds);
    let paths: Vec<PathBuf> = hello
        .paths
        .iter()
        .map(|path| scope.root.request_path(path))
        .collect();
    if hello.far_sends {
        let sources = open_sources(scope, &paths)?;
        return Ok(TransferRole::new_sender(common, sources, hello));
    }
    let place = (scope.root.clone(), destination_path(hello, scope, paths)?);
    let options = ReceiveOptions::from_request(hello, place, pulse.silence_timeout());
    Ok(TransferRole::new_receiver(common, options))
}

fn open_sources(scope: &CopyScope, paths: &[PathBuf]) -> Result<Vec<CopySource>, CopyError> {
    if matches!(scope.root, FolderRoot::Share(_)) && paths.len() > MAX_SHARED_SOURCES {
        let why = format!("the server lets no copy name more than {MAX_SHARED_SOURCES} paths");
        return Err(CopyError::Refused { code: 2, why });
    }
    paths
        .iter()
        .map(|path| CopySource::open_source(&scope.root, path))
        .collect()
}

fn destination_path(
    hello: &CopyRequest,
    scope: &CopyScope,
    paths: Vec<PathBuf>,
) -> Result<PathBuf, CopyError> {
    if scope.is_read_only && !hello.dry_run {
        return Err(CopyError::Refused {
            code: 1,
            why: "the server lets its folder be read, not changed".to_owned(),
        });
    }
    <[PathBuf; 1]>::try_from(paths)
        .map(|[path]| path)
        .map_err(|_| CopyError::from_rule("it names not one destination"))
}

/// Returns an address of the connection that ssh uses: the near end's is the first word, this
/// host's the third.
fn ssh_connection(word: usize) -> Option<SocketAddr> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    read_address(connection.split_whitespace().nth(word)?)
}

#[cfg(test)]
mod tests;
