//! A transfer from its first message to its last one, at either end.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_record::HostSettings;
use fullpipe_transfer::CopyMessage;
use socket2::{Domain, SockRef, Socket, Type};

use crate::common::TransferContext;
use crate::control::FrameReader;
use crate::data_stream::DataConnections;
use crate::finish::finish_copy;
use crate::options::CopyError;
use crate::quic::QuicConnection;
use crate::receiver::FileReceiver;
use crate::sender::FileSender;
use crate::summary::Figures;
use crate::threads::start_thread;
use crate::tuning::SenderMonitor;

/// The part that this end has.
pub(crate) enum TransferRole {
    Sender(Arc<FileSender>),
    Receiver(Arc<FileReceiver>),
}

/// Figures of the sender and the receiver.
#[derive(Debug, Default)]
pub(crate) struct BothFigures {
    pub(crate) sender: Figures,
    pub(crate) receiver: Figures,
}

/// The connections that carry the data of a transfer, and the thread that watches them.
#[derive(Default)]
pub(crate) struct DataCarriers {
    pub(crate) sockets: Arc<[TcpStream]>,
    quic: Option<Arc<QuicConnection>>,
    /// The thread that watches the connections; only at a sender.
    monitor: Option<Arc<SenderMonitor>>,
}

impl TransferRole {
    fn transfer_context(&self) -> &TransferContext {
        match self {
            Self::Sender(sender) => &sender.common,
            Self::Receiver(receiver) => &receiver.common,
        }
    }

    /// Begins what needs no connection for data: a sender lists its files.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(crate) fn start_listing(&self) -> Result<(), CopyError> {
        match self {
            Self::Sender(sender) => sender
                .start_listing()
                .map_err(CopyError::from_io("cannot start a thread")),
            Self::Receiver(_) => Ok(()),
        }
    }

    /// Lets these connections carry the data; they may come after the first messages. `settings`
    /// are those of this host and the other one. A failure ends the transfer.
    pub(crate) fn carry_data(
        &self,
        connections: DataConnections,
        settings: [HostSettings; 2],
    ) -> DataCarriers {
        let mut carriers = DataCarriers::default();
        if let Err(error) = self.start_carriers(connections, settings, &mut carriers) {
            self.transfer_context().abort_transfer(error);
        }
        carriers
    }

    fn start_carriers(
        &self,
        connections: DataConnections,
        settings: [HostSettings; 2],
        carriers: &mut DataCarriers,
    ) -> Result<(), CopyError> {
        let sockets = connections
            .streams
            .iter()
            .map(|stream| stream.tcp_socket().try_clone());
        carriers.sockets = sockets
            .collect::<io::Result<_>>()
            .map_err(CopyError::from_io("cannot watch"))?;
        carriers.quic = connections
            .quic
            .as_ref()
            .map(|(connection, _)| Arc::clone(connection));
        let failed = CopyError::from_io("cannot start a thread");
        match self {
            Self::Sender(sender) => {
                let DataConnections { quic, rtt, .. } = &connections;
                let watched = Arc::clone(&carriers.sockets);
                let monitor = SenderMonitor::new(sender, watched, quic.clone(), *rtt, settings);
                carriers.monitor = Some(start_monitor(monitor).map_err(&failed)?);
                sender.start_sending(connections).map_err(&failed)
            }
            Self::Receiver(receiver) => {
                receiver.start_receiving(connections).map_err(&failed)?;
                let finisher = Arc::clone(receiver);
                thread::Builder::new()
                    .spawn(move || finish_copy(&finisher))
                    .map(drop)
                    .map_err(&failed)
            }
        }
    }

    /// Lets these connections carry the data, and runs the transfer to its end.
    ///
    /// # Errors
    /// Fails if the other end goes away, gives up or breaks the rules, or the destination cannot be
    /// used at all.
    #[cfg(test)]
    pub(crate) fn run_transfer<R: Read>(
        &self,
        frames: &mut FrameReader<R>,
        connections: DataConnections,
        settings: [HostSettings; 2],
    ) -> Result<BothFigures, CopyError> {
        let carriers = self.carry_data(connections, settings);
        let followed = self.handle_messages(frames);
        self.end_transfer(followed, &carriers)
    }

    /// Ends a transfer after its last message.
    ///
    /// # Errors
    /// Fails as [`TransferRole::handle_messages`] did.
    pub(crate) fn end_transfer(
        &self,
        followed: Result<Figures, CopyError>,
        carriers: &DataCarriers,
    ) -> Result<BothFigures, CopyError> {
        let figures = followed.map(|other| self.both_figures(other, carriers));
        match &figures {
            Ok(_) => forget_unsent(&*carriers.sockets),
            Err(_) => self.give_up(),
        }
        shut_down(&carriers.sockets);
        if let Some(connection) = &carriers.quic {
            connection.close_connection();
        }
        figures
    }

    /// Ends the work of a transfer that has failed, and so lets go of its files.
    pub(crate) fn give_up(&self) {
        self.transfer_context().abort_transfer(CopyError::Gone);
        if let Self::Sender(sender) = self {
            sender.queue.end_work();
        }
    }

    /// Returns the figures of both ends; the receiver gets those of the sender.
    fn both_figures(&self, other: Figures, carriers: &DataCarriers) -> BothFigures {
        match self {
            Self::Sender(sender) => {
                let figures = carriers
                    .monitor
                    .as_ref()
                    .map(|monitor| monitor.sender_figures())
                    .unwrap_or_default();
                sender
                    .common
                    .out
                    .send_message(&CopyMessage::Figures(figures.to_json()));
                BothFigures {
                    sender: figures,
                    receiver: other,
                }
            }
            Self::Receiver(receiver) => BothFigures {
                sender: other,
                receiver: Figures::of_receiver(receiver.work_seconds()),
            },
        }
    }

    /// Carries out what the other end says. Returns true when everything is done.
    ///
    /// # Errors
    /// Fails if it breaks the rules or gives up, or the destination cannot be used at all.
    pub(crate) fn handle_message(&self, message: CopyMessage<'_>) -> Result<bool, CopyError> {
        match self {
            Self::Sender(sender) => sender.handle_message(message),
            Self::Receiver(receiver) => receiver.handle_message(message).map(|()| false),
        }
    }

    /// Carries out messages until everything is done, and returns the figures of the other end.
    ///
    /// # Errors
    /// Fails if the other end goes away, gives up or breaks the rules, or the destination cannot be
    /// used at all.
    pub(crate) fn handle_messages<R: Read>(
        &self,
        frames: &mut FrameReader<R>,
    ) -> Result<Figures, CopyError> {
        let mut figures = Figures::default();
        loop {
            let frame = frames.next_frame();
            if let Some(error) = self.transfer_context().take_error() {
                return Err(error);
            }
            let Ok(Some(frame)) = frame else {
                return if self.has_everything() {
                    Ok(figures)
                } else {
                    Err(CopyError::Gone)
                };
            };
            if frame.is_empty() {
                continue;
            }
            match CopyMessage::read(frame)? {
                CopyMessage::Figures(json) => {
                    figures = Figures::from_json(&json);
                    // A sender's are the last message.
                    if matches!(self, Self::Receiver(_)) {
                        return Ok(figures);
                    }
                }
                message => {
                    if self.handle_message(message)? {
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

/// Lets nothing that is left in the buffers of these connections be sent once they are closed:
/// everything has arrived, and what slow ones still carry has arrived on others.
pub(crate) fn forget_unsent<'s>(sockets: impl IntoIterator<Item = &'s TcpStream>) {
    for socket in sockets {
        // It may have ended by itself.
        let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    }
}

/// Ends the threads that wait for something on these connections, which the other end might never
/// close.
fn shut_down(sockets: &[TcpStream]) {
    for socket in sockets {
        // It may have ended by itself.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

fn start_monitor(monitor: SenderMonitor) -> io::Result<Arc<SenderMonitor>> {
    let monitor = Arc::new(monitor);
    let watching = Arc::clone(&monitor);
    start_thread("copy-monitor", move || watching.watch_transfer())?;
    Ok(monitor)
}

/// Returns the settings of this host, with the congestion controls that this user may choose; the
/// kernel's defaults where they cannot be read.
pub(crate) fn own_settings() -> HostSettings {
    let mut settings =
        inspect_host(&SysctlTree::of_this_host()).unwrap_or_else(|_| HostSettings::of_linux_6_18());
    settings
        .available_congestion_controls
        .retain(|name| is_permitted(name));
    settings
}

fn is_permitted(congestion_control: &str) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    socket.is_ok_and(|socket| {
        socket
            .set_tcp_congestion(congestion_control.as_bytes())
            .is_ok()
    })
}

/// Reads the settings of the other host.
pub(crate) fn settings_of(json: &[u8]) -> HostSettings {
    serde_json::from_slice(json).unwrap_or_else(|_| HostSettings::of_linux_6_18())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{CONNECT_DEADLINE, CopyCredentials, DataListener, dial_hosts};
    use crate::control::MessageSender;
    use crate::pulse::SilenceWatch;
    use crate::receiver::ReceiveOptions;
    use crate::root::FolderRoot;
    use fullpipe_transfer::ExcludePatterns;
    use fullpipe_units::Span;
    use std::net::SocketAddr;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::time::Instant;

    fn receiver(folder: &Path, pulse: &Arc<SilenceWatch>) -> Arc<FileReceiver> {
        let options = ReceiveOptions {
            root: FolderRoot::User,
            path: folder.to_owned(),
            dry_run: false,
            delete: false,
            excludes: ExcludePatterns::default(),
            verify_disk: false,
            attributes: false,
            timeout: Duration::from_secs(9),
            tops: None,
        };
        let common = TransferContext::new(
            MessageSender::start_writer(io::sink(), pulse).unwrap().0,
            Arc::default(),
            None,
        );
        Arc::new(FileReceiver::new(common, options))
    }

    fn settings() -> [HostSettings; 2] {
        [HostSettings::of_linux_6_18(), HostSettings::of_linux_6_18()]
    }

    const NO_FILES: [CopyMessage<'static>; 2] = [
        CopyMessage::Begin {
            single: false,
            content: true,
        },
        CopyMessage::EndOfList { complete: true },
    ];

    /// A client that closed nothing once kept a thread for each connection at the server.
    #[test]
    fn connections_end_with_a_copy_that_is_done_even_if_their_sender_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let pulse = SilenceWatch::new(Duration::from_secs(9));
        let credentials =
            CopyCredentials::new(&[7; 32], &["127.0.0.0/8".parse().unwrap()]).unwrap();
        let listener = DataListener::start_listening(None, (0, 0), &credentials).unwrap();
        let hosts = [SocketAddr::from(([127, 0, 0, 1], 0))];
        let mut kept = dial_hosts(&hosts, listener.port, &credentials, &mut |_| 1)
            .unwrap()
            .1
            .pop()
            .unwrap();
        let streams = listener.take_streams(1, CONNECT_DEADLINE);
        let end = TransferRole::Receiver(receiver(folder.path(), &pulse));
        let said = NO_FILES
            .into_iter()
            .chain([CopyMessage::Figures(Vec::new())]);
        let said: Vec<u8> = said.flat_map(|message| message.to_frame()).collect();
        let connections = DataConnections {
            streams,
            active: 1,
            quic: None,
            rtt: Span::from_millis(1),
        };
        assert!(
            end.run_transfer(
                &mut FrameReader::new(&said[..], &pulse),
                connections,
                settings()
            )
            .is_ok()
        );
        kept.tcp_socket()
            .set_read_timeout(Some(CONNECT_DEADLINE))
            .unwrap();
        let ended = kept.read(&mut [0]).map_err(|error| error.kind());
        assert!(
            matches!(ended, Ok(0) | Err(io::ErrorKind::ConnectionReset)),
            "{ended:?}"
        );
    }

    /// With three a connection, those of a copy once needed more than the usual limit of 1024.
    #[test]
    fn connections_take_two_descriptors_each() {
        let pulse = SilenceWatch::new(Duration::from_secs(9));
        let credentials = CopyCredentials::new(&[7; 32], &[]).unwrap();
        let listener = DataListener::start_listening(None, (0, 0), &credentials).unwrap();
        let hosts = [SocketAddr::from(([127, 0, 0, 1], 0))];
        let streams = dial_hosts(&hosts, listener.port, &credentials, &mut |_| 2)
            .unwrap()
            .1;
        let of_them: Vec<u64> = streams
            .iter()
            .map(|stream| inode(stream.tcp_socket()))
            .collect();
        let count = || {
            descriptors()
                .filter(|inode| of_them.contains(inode))
                .count()
        };
        let _kept = listener.take_streams(2, CONNECT_DEADLINE);
        assert_eq!(count(), 2);
        let common = TransferContext::new(
            MessageSender::start_writer(io::sink(), &pulse).unwrap().0,
            Arc::default(),
            None,
        );
        let end = TransferRole::Sender(Arc::new(FileSender::new(
            common,
            Vec::new(),
            ExcludePatterns::default(),
            false,
        )));
        let connections = DataConnections {
            streams,
            active: 2,
            quic: None,
            rtt: Span::from_millis(1),
        };
        let carriers = end.carry_data(connections, settings());
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
        waits_for: Option<Arc<FileReceiver>>,
    }

    impl Read for Going {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.said.read(into)?;
            let deadline = Instant::now() + CONNECT_DEADLINE;
            let waits = || {
                self.waits_for
                    .as_ref()
                    .is_some_and(|receiver| !receiver.is_over())
            };
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
            let pulse = SilenceWatch::new(Duration::from_secs(9));
            let receiver = receiver(folder.path(), &pulse);
            let messages = NO_FILES.into_iter().take(if is_complete { 2 } else { 1 });
            let said = io::Cursor::new(messages.flat_map(|message| message.to_frame()).collect());
            let waits_for = is_complete.then(|| Arc::clone(&receiver));
            let end = TransferRole::Receiver(receiver);
            let mut frames = FrameReader::new(Going { said, waits_for }, &pulse);
            let ended =
                end.run_transfer(&mut frames, DataConnections::without_streams(), settings());
            assert_eq!(ended.is_ok(), is_done, "{ended:?}");
        }
    }
}
