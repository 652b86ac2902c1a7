//! A transfer from its first connection to its last message, at either end.

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

impl End {
    fn common(&self) -> &Common {
        match self {
            Self::Sender(sender) => &sender.common,
            Self::Receiver(receiver) => &receiver.common,
        }
    }

    /// Runs the transfer. `settings` are those of this host and the other one.
    ///
    /// # Errors
    /// Fails if the other end goes away, gives up or breaks the rules, or the destination cannot be used at all.
    pub(crate) fn run<R: Read>(
        &self,
        frames: &mut Frames<R>,
        connections: Connections,
        settings: [HostSettings; 2],
    ) -> Result<BothFigures, CopyError> {
        let streams = &connections.streams;
        let sockets = || streams.iter().map(|stream| stream.socket().try_clone()).collect::<io::Result<Vec<_>>>();
        let [watched, ours] = [sockets(), sockets()].map(|sockets| sockets.map_err(CopyError::io("cannot watch")));
        let (watched, ours) = (watched?, ours?);
        let quic = connections.quic.as_ref().map(|(connection, _)| Arc::clone(connection));
        let result = self.run_to_end(frames, connections, watched, settings);
        match &result {
            Ok(_) => forget_unsent(&ours),
            Err(_) => self.give_up(),
        }
        shut_down(&ours);
        if let Some(connection) = quic {
            connection.close();
        }
        result
    }

    /// Ends the work of a transfer that has failed, and so lets go of its files.
    fn give_up(&self) {
        self.common().abort(CopyError::Gone);
        if let Self::Sender(sender) = self {
            sender.queue.end();
        }
    }

    fn run_to_end<R: Read>(
        &self,
        frames: &mut Frames<R>,
        connections: Connections,
        watched: Vec<TcpStream>,
        settings: [HostSettings; 2],
    ) -> Result<BothFigures, CopyError> {
        let failed = CopyError::io("cannot start a thread");
        match self {
            Self::Sender(sender) => {
                let Connections { quic, rtt, .. } = &connections;
                let monitor = Monitor::new(sender, watched, quic.clone(), *rtt, settings);
                let monitor = watch(monitor).map_err(&failed)?;
                sender.start(connections).map_err(&failed)?;
                let receiver = self.follow(frames, |message| sender.handle(message))?;
                let figures = monitor.figures();
                sender.common.out.send(&Message::Figures(figures.to_json()));
                Ok(BothFigures { sender: figures, receiver })
            }
            Self::Receiver(receiver) => {
                receiver.start(connections).map_err(&failed)?;
                let finisher = Arc::clone(receiver);
                thread::spawn(move || finish(&finisher));
                let sender = self.follow(frames, |message| receiver.handle(message).map(|()| false))?;
                Ok(BothFigures { sender, receiver: Figures::of_receiver(receiver.working()) })
            }
        }
    }

    /// Passes messages on until everything is done, and returns the figures of the other end.
    fn follow<R: Read>(
        &self,
        frames: &mut Frames<R>,
        mut handle: impl FnMut(Message<'_>) -> Result<bool, CopyError>,
    ) -> Result<Figures, CopyError> {
        let mut figures = Figures::default();
        loop {
            let frame = frames.next();
            if let Some(error) = self.common().error() {
                return Err(error);
            }
            let Ok(Some(frame)) = frame else { return Err(CopyError::Gone) };
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
                    if handle(message)? {
                        return Ok(figures);
                    }
                }
            }
        }
    }
}

/// Lets nothing that is left in the buffers of these connections be sent once they are closed: everything has arrived,
/// and what slow ones still carry has arrived on others.
fn forget_unsent(sockets: &[TcpStream]) {
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
        let options = ReceiveOptions {
            root: Root::User,
            path: folder.path().to_owned(),
            dry_run: false,
            delete: false,
            excludes: Excludes::default(),
            verify_disk: false,
            attributes: false,
            timeout: Duration::from_secs(9),
            tops: None,
        };
        let common = Common::new(Outgoing::start(io::sink(), &pulse).unwrap().0, Arc::default(), None);
        let end = End::Receiver(Arc::new(Receiver::new(common, options)));
        let said = [
            Message::Begin { single: false, content: true },
            Message::EndOfList { complete: true },
            Message::Figures(Vec::new()),
        ];
        let said: Vec<u8> = said.iter().flat_map(Message::frame).collect();
        let connections = Connections { streams, active: 1, quic: None, rtt: Span::from_millis(1) };
        let settings = [HostSettings::of_linux_6_18(), HostSettings::of_linux_6_18()];
        assert!(end.run(&mut Frames::new(&said[..], &pulse), connections, settings).is_ok());
        kept.socket().set_read_timeout(Some(CONNECT_DEADLINE)).unwrap();
        let ended = kept.read(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(ended, Ok(0) | Err(io::ErrorKind::ConnectionReset)), "{ended:?}");
    }
}
