//! A transfer from its first message to its last one, at either end.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fullpipe_host::{SysctlTree, inspect};
use fullpipe_record::HostSettings;
use fullpipe_transfer::Message;
use socket2::{Domain, SockRef, Socket, Type};

use crate::common::Common;
use crate::control::Frames;
use crate::data_stream::Connections;
use crate::finish::finish;
use crate::options::CopyError;
use crate::quic::QuicConnection;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::summary::Figures;
use crate::tuning::Monitor;

/// The part that this end has.
pub(crate) enum End {
    Sender(Arc<Sender>),
    Receiver(Arc<Receiver>),
}

/// Figures of the sender and the receiver.
#[derive(Debug, Default)]
pub(crate) struct BothFigures {
    pub(crate) sender: Figures,
    pub(crate) receiver: Figures,
}

/// The connections that carry the data of a transfer, and the thread that watches them.
#[derive(Default)]
pub(crate) struct Carriers {
    pub(crate) sockets: Arc<[TcpStream]>,
    quic: Option<Arc<QuicConnection>>,
    /// The thread that watches the connections; only at a sender.
    monitor: Option<Arc<Monitor>>,
}

impl End {
    fn common(&self) -> &Common {
        match self {
            Self::Sender(sender) => &sender.common,
            Self::Receiver(receiver) => &receiver.common,
        }
    }

    /// Begins what needs no connection for data: a sender lists its files.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(crate) fn begin(&self) -> Result<(), CopyError> {
        match self {
            Self::Sender(sender) => sender.begin().map_err(CopyError::io("cannot start a thread")),
            Self::Receiver(_) => Ok(()),
        }
    }

    /// Lets these connections carry the data; they may come after the first messages. `settings` are those of this host
    /// and the other one. A failure ends the transfer.
    pub(crate) fn carry(&self, connections: Connections, settings: [HostSettings; 2]) -> Carriers {
        let mut carriers = Carriers::default();
        if let Err(error) = self.start(connections, settings, &mut carriers) {
            self.common().abort(error);
        }
        carriers
    }

    fn start(
        &self,
        connections: Connections,
        settings: [HostSettings; 2],
        carriers: &mut Carriers,
    ) -> Result<(), CopyError> {
        let sockets = connections.streams.iter().map(|stream| stream.socket().try_clone());
        carriers.sockets = sockets.collect::<io::Result<_>>().map_err(CopyError::io("cannot watch"))?;
        carriers.quic = connections.quic.as_ref().map(|(connection, _)| Arc::clone(connection));
        let failed = CopyError::io("cannot start a thread");
        match self {
            Self::Sender(sender) => {
                let Connections { quic, rtt, .. } = &connections;
                let watched = Arc::clone(&carriers.sockets);
                let monitor = Monitor::new(sender, watched, quic.clone(), *rtt, settings);
                carriers.monitor = Some(watch(monitor).map_err(&failed)?);
                sender.start(connections).map_err(&failed)
            }
            Self::Receiver(receiver) => {
                receiver.start(connections).map_err(&failed)?;
                let finisher = Arc::clone(receiver);
                thread::Builder::new().spawn(move || finish(&finisher)).map(drop).map_err(&failed)
            }
        }
    }

    /// Lets these connections carry the data, and runs the transfer to its end.
    ///
    /// # Errors
    /// Fails if the other end goes away, gives up or breaks the rules, or the destination cannot be used at all.
    #[cfg(test)]
    pub(crate) fn run<R: Read>(
        &self,
        frames: &mut Frames<R>,
        connections: Connections,
        settings: [HostSettings; 2],
    ) -> Result<BothFigures, CopyError> {
        let carriers = self.carry(connections, settings);
        let followed = self.follow(frames);
        self.end(followed, &carriers)
    }

    /// Ends a transfer after its last message.
    ///
    /// # Errors
    /// Fails as [`End::follow`] did.
    pub(crate) fn end(
        &self,
        followed: Result<Figures, CopyError>,
        carriers: &Carriers,
    ) -> Result<BothFigures, CopyError> {
        let figures = followed.map(|other| self.figures(other, carriers));
        match &figures {
            Ok(_) => forget_unsent(&*carriers.sockets),
            Err(_) => self.give_up(),
        }
        shut_down(&carriers.sockets);
        if let Some(connection) = &carriers.quic {
            connection.close();
        }
        figures
    }

    /// Ends the work of a transfer that has failed, and so lets go of its files.
    pub(crate) fn give_up(&self) {
        self.common().abort(CopyError::Gone);
        if let Self::Sender(sender) = self {
            sender.queue.end();
        }
    }

    /// Returns the figures of both ends; the receiver gets those of the sender.
    fn figures(&self, other: Figures, carriers: &Carriers) -> BothFigures {
        match self {
            Self::Sender(sender) => {
                let figures = carriers.monitor.as_ref().map(|monitor| monitor.figures()).unwrap_or_default();
                sender.common.out.send(&Message::Figures(figures.to_json()));
                BothFigures { sender: figures, receiver: other }
            }
            Self::Receiver(receiver) => {
                BothFigures { sender: other, receiver: Figures::of_receiver(receiver.working()) }
            }
        }
    }

    /// Carries out what the other end says. Returns true when everything is done.
    ///
    /// # Errors
    /// Fails if it breaks the rules or gives up, or the destination cannot be used at all.
    pub(crate) fn handle(&self, message: Message<'_>) -> Result<bool, CopyError> {
        match self {
            Self::Sender(sender) => sender.handle(message),
            Self::Receiver(receiver) => receiver.handle(message).map(|()| false),
        }
    }

    /// Carries out messages until everything is done, and returns the figures of the other end.
    ///
    /// # Errors
    /// Fails if the other end goes away, gives up or breaks the rules, or the destination cannot be used at all.
    pub(crate) fn follow<R: Read>(&self, frames: &mut Frames<R>) -> Result<Figures, CopyError> {
        let mut figures = Figures::default();
        loop {
            let frame = frames.next();
            if let Some(error) = self.common().error() {
                return Err(error);
            }
            let Ok(Some(frame)) = frame else {
                return if self.has_everything() { Ok(figures) } else { Err(CopyError::Gone) };
            };
            if frame.is_empty() {
                continue;
            }
            match Message::read(frame)? {
                Message::Figures(json) => {
                    figures = Figures::from_json(&json);
                    // A sender's are the last message.
                    if matches!(self, Self::Receiver(_)) {
                        return Ok(figures);
                    }
                }
                message => {
                    if self.handle(message)? {
                        return Ok(figures);
                    }
                }
            }
        }
    }

    /// Returns true if nothing is left for this end but the figures of the sender.
    fn has_everything(&self) -> bool {
        matches!(self, Self::Receiver(receiver) if receiver.is_over())
    }
}

/// Lets nothing that is left in the buffers of these connections be sent once they are closed: everything has arrived,
/// and what slow ones still carry has arrived on others.
pub(crate) fn forget_unsent<'s>(sockets: impl IntoIterator<Item = &'s TcpStream>) {
    for socket in sockets {
        // It may have ended by itself.
        let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    }
}

/// Ends the threads that wait for something on these connections, which the other end might never close.
fn shut_down(sockets: &[TcpStream]) {
    for socket in sockets {
        // It may have ended by itself.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

fn watch(monitor: Monitor) -> io::Result<Arc<Monitor>> {
    let monitor = Arc::new(monitor);
    let watching = Arc::clone(&monitor);
    thread::Builder::new().name("copy-monitor".to_owned()).spawn(move || watching.watch())?;
    Ok(monitor)
}

/// Returns the settings of this host, with the congestion controls that this user may choose; the kernel's defaults
/// where they cannot be read.
pub(crate) fn own_settings() -> HostSettings {
    let mut settings = inspect(&SysctlTree::of_this_host()).unwrap_or_else(|_| HostSettings::of_linux_6_18());
    settings.available_congestion_controls.retain(|name| is_permitted(name));
    settings
}

fn is_permitted(congestion_control: &str) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    socket.is_ok_and(|socket| socket.set_tcp_congestion(congestion_control.as_bytes()).is_ok())
}

/// Reads the settings of the other host.
pub(crate) fn settings_of(json: &[u8]) -> HostSettings {
    serde_json::from_slice(json).unwrap_or_else(|_| HostSettings::of_linux_6_18())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{CONNECT_DEADLINE, Credentials, Listener, dial};
    use crate::control::Outgoing;
    use crate::pulse::Pulse;
    use crate::receiver::ReceiveOptions;
    use crate::root::Root;
    use fullpipe_transfer::Excludes;
    use fullpipe_units::Span;
    use std::net::SocketAddr;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::time::Instant;

    fn receiver(folder: &Path, pulse: &Arc<Pulse>) -> Arc<Receiver> {
        let options = ReceiveOptions {
            root: Root::User,
            path: folder.to_owned(),
            dry_run: false,
            delete: false,
            excludes: Excludes::default(),
            verify_disk: false,
            attributes: false,
            timeout: Duration::from_secs(9),
            tops: None,
        };
        let common = Common::new(Outgoing::start(io::sink(), pulse).unwrap().0, Arc::default(), None);
        Arc::new(Receiver::new(common, options))
    }

    fn settings() -> [HostSettings; 2] {
        [HostSettings::of_linux_6_18(), HostSettings::of_linux_6_18()]
    }

    const NO_FILES: [Message<'static>; 2] =
        [Message::Begin { single: false, content: true }, Message::EndOfList { complete: true }];

    /// A client that closed nothing once kept a thread for each connection at the server.
    #[test]
    fn connections_end_with_a_copy_that_is_done_even_if_their_sender_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let pulse = Pulse::new(Duration::from_secs(9));
        let credentials = Credentials::new(&[7; 32], &["127.0.0.0/8".parse().unwrap()]).unwrap();
        let listener = Listener::start(None, (0, 0), &credentials).unwrap();
        let hosts = [SocketAddr::from(([127, 0, 0, 1], 0))];
        let mut kept = dial(&hosts, listener.port, &credentials, &mut |_| 1).unwrap().1.pop().unwrap();
        let streams = listener.take(1, CONNECT_DEADLINE);
        let end = End::Receiver(receiver(folder.path(), &pulse));
        let said = NO_FILES.into_iter().chain([Message::Figures(Vec::new())]);
        let said: Vec<u8> = said.flat_map(|message| message.frame()).collect();
        let connections = Connections { streams, active: 1, quic: None, rtt: Span::from_millis(1) };
        assert!(end.run(&mut Frames::new(&said[..], &pulse), connections, settings()).is_ok());
        kept.socket().set_read_timeout(Some(CONNECT_DEADLINE)).unwrap();
        let ended = kept.read(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(ended, Ok(0) | Err(io::ErrorKind::ConnectionReset)), "{ended:?}");
    }

    /// With three a connection, those of a copy once needed more than the usual limit of 1024.
    #[test]
    fn connections_take_two_descriptors_each() {
        let pulse = Pulse::new(Duration::from_secs(9));
        let credentials = Credentials::new(&[7; 32], &[]).unwrap();
        let listener = Listener::start(None, (0, 0), &credentials).unwrap();
        let hosts = [SocketAddr::from(([127, 0, 0, 1], 0))];
        let streams = dial(&hosts, listener.port, &credentials, &mut |_| 2).unwrap().1;
        let of_them: Vec<u64> = streams.iter().map(|stream| inode(stream.socket())).collect();
        let count = || descriptors().filter(|inode| of_them.contains(inode)).count();
        let _kept = listener.take(2, CONNECT_DEADLINE);
        assert_eq!(count(), 2);
        let common = Common::new(Outgoing::start(io::sink(), &pulse).unwrap().0, Arc::default(), None);
        let end = End::Sender(Arc::new(Sender::new(common, Vec::new(), Excludes::default(), false)));
        let connections = Connections { streams, active: 2, quic: None, rtt: Span::from_millis(1) };
        let carriers = end.carry(connections, settings());
        assert_eq!(count(), 4);
        end.give_up();
        shut_down(&carriers.sockets);
    }

    fn inode(socket: &TcpStream) -> u64 {
        rustix::fs::fstat(socket).unwrap().st_ino
    }

    /// Returns the inodes of all descriptors of this process.
    fn descriptors() -> impl Iterator<Item = u64> {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap();
        entries.filter_map(|entry| Some(std::fs::metadata(entry.ok()?.path()).ok()?.ino()))
    }

    /// A sender that goes away, at once or when the receiver has said that everything is done.
    struct Going {
        said: io::Cursor<Vec<u8>>,
        waits_for: Option<Arc<Receiver>>,
    }

    impl Read for Going {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.said.read(into)?;
            let deadline = Instant::now() + CONNECT_DEADLINE;
            let waits = || self.waits_for.as_ref().is_some_and(|receiver| !receiver.is_over());
            while count == 0 && waits() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            Ok(count)
        }
    }

    #[test]
    fn a_receiver_that_has_everything_does_not_need_the_last_words_of_the_sender() {
        for (is_complete, is_done) in [(true, true), (false, false)] {
            let folder = tempfile::tempdir().unwrap();
            let pulse = Pulse::new(Duration::from_secs(9));
            let receiver = receiver(folder.path(), &pulse);
            let messages = NO_FILES.into_iter().take(if is_complete { 2 } else { 1 });
            let said = io::Cursor::new(messages.flat_map(|message| message.frame()).collect());
            let waits_for = is_complete.then(|| Arc::clone(&receiver));
            let end = End::Receiver(receiver);
            let mut frames = Frames::new(Going { said, waits_for }, &pulse);
            let ended = end.run(&mut frames, Connections::none(), settings());
            assert_eq!(ended.is_ok(), is_done, "{ended:?}");
        }
    }
}
