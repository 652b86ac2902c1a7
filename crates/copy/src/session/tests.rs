use super::*;
use crate::connect::{CONNECT_DEADLINE, CopyCredentials, DataListener, dial_hosts};
use crate::control::MessageSender;
use crate::pulse::SilenceWatch;
use crate::receiver::ReceiveOptions;
use crate::root::FolderRoot;
use fullpipe_units::Span;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use crate::protocol::ExcludePatterns;

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
    let credentials = CopyCredentials::new(&[7; 32], &["127.0.0.0/8".parse().unwrap()]).unwrap();
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
        let ended = end.run_transfer(&mut frames, DataConnections::without_streams(), settings());
        assert_eq!(ended.is_ok(), is_done, "{ended:?}");
    }
}
