//! A transfer from its first message to its last one, at either end.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_record::HostSettings;
use fullpipe_sys::start_thread;
use socket2::{Domain, SockRef, Socket, Type};

use crate::common::TransferContext;
use crate::control::FrameReader;
use crate::data_stream::DataConnections;
use crate::finish::finish_copy;
use crate::options::CopyError;
use crate::protocol::{CopyMessage, CopyRequest, ExcludePatterns};
use crate::quic::QuicConnection;
use crate::receiver::{FileReceiver, ReceiveOptions};
use crate::sender::FileSender;
use crate::summary::Figures;
use crate::tuning::SenderMonitor;
use crate::walk::CopySource;

/// The part that this end has.
pub(crate) enum TransferRole {
    Sender(Arc<FileSender>),
    Receiver(Arc<FileReceiver>),
}

/// Figures of the sender and the receiver.
#[derive(Debug, Default)]
pub(crate) struct BothFigures {
    pub sender: Figures,
    pub receiver: Figures,
}

/// The connections that carry the data of a transfer, and the thread that watches them.
#[derive(Default)]
pub(crate) struct DataCarriers {
    pub sockets: Arc<[TcpStream]>,
    quic: Option<Arc<QuicConnection>>,
    /// The thread that watches the connections; only at a sender.
    monitor: Option<Arc<SenderMonitor>>,
}

impl TransferRole {
    /// Returns the role of an end that sends `sources` as `request` says.
    pub(crate) fn new_sender(
        common: TransferContext,
        sources: Vec<CopySource>,
        request: &CopyRequest,
    ) -> Self {
        let excludes = ExcludePatterns::new(request.excludes.iter().map(Vec::as_slice));
        let sender = FileSender::new(common, sources, excludes, request.attributes);
        Self::Sender(Arc::new(sender))
    }

    pub(crate) fn new_receiver(common: TransferContext, options: ReceiveOptions) -> Self {
        Self::Receiver(Arc::new(FileReceiver::new(common, options)))
    }

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
mod tests;
