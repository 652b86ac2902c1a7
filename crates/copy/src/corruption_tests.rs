//! Bits flipped beneath a transport whose own checks find nothing: a proxy between both ends flips
//! them, or the one who writes the control connection.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Events, channel};
use std::thread;
use std::time::Duration;

use fullpipe_control::AddressPrefix;
use fullpipe_record::HostSettings;
use fullpipe_testkit::{random_bytes, random_digits};
use fullpipe_units::{BitRate, Span};

use crate::address::at_port;
use crate::bounds::{CopyBounds, RatePace};
use crate::common::{CopyCounts, TransferContext};
use crate::connect::{CONNECT_DEADLINE, CopyCredentials, DataListener, dial_hosts};
use crate::control::{FrameReader, MessageSender};
use crate::data_stream::{DataConnections, DataStream};
use crate::options::CopyEvent;
use crate::protocol::{BLOCK, CHUNK, DATA_HEADER, ExcludePatterns};
use crate::pulse::SilenceWatch;
use crate::receiver::{FileReceiver, ReceiveOptions};
use crate::root::FolderRoot;
use crate::sender::FileSender;
use crate::session::TransferRole;
use crate::walk::CopySource;

pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Bytes that a caller in the clear sends until the first head: its greeting, its random bytes and
/// its proof.
const CALL: u64 = 8 + 32 + 32;

/// Bytes of a file that is copied.
const SIZE: usize = 2 * CHUNK + 100_000;

/// The transport of a copy, and the place of the bit that is flipped on it.
#[derive(Debug, Clone, Copy)]
enum Flip {
    /// In the clear, at this byte of the one connection for data.
    Clear(u64),
    /// The same among blocks that are compressed.
    Compressed(u64),
    /// The same inside TLS, which is then broken.
    Tls(u64),
    /// In this block of those that cross with the messages.
    Messages(usize),
}

/// A generator of Knuth's, for places.
struct Seed(u64);

impl Seed {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Passes a connection on to `port`, and flips a bit of the byte `at` of what its caller sends.
fn proxy(port: u16, at: u64) -> u16 {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let own = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let caller = listener.accept().unwrap().0;
        let to = TcpStream::connect(at_port(LOOPBACK, port)).unwrap();
        let back = (to.try_clone().unwrap(), caller.try_clone().unwrap());
        thread::spawn(move || pass(back.0, back.1, None));
        pass(caller, to, Some(at));
    });
    own
}

fn pass(mut from: TcpStream, mut to: TcpStream, at: Option<u64>) {
    let (mut buffer, mut passed) = (vec![0; 64 << 10], 0);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if let Some(place) = at
            .and_then(|at| at.checked_sub(passed))
            .filter(|place| *place < count as u64)
        {
            buffer[place as usize] ^= 1 << (place % 8);
        }
        passed += count as u64;
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // Either may have ended by itself.
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}

/// Writes whole frames, and flips a bit in the content of one of those that carry chunks.
struct FlippingFrames {
    to: UnixStream,
    chunk: Option<usize>,
    seen: usize,
}

impl Write for FlippingFrames {
    fn write(&mut self, frames: &[u8]) -> io::Result<usize> {
        let (mut frames, mut at) = (frames.to_vec(), 0);
        let length = frames.len();
        while at < length {
            let frame = 4 + u32::from_le_bytes(frames[at..at + 4].try_into().unwrap()) as usize;
            if frame > DATA_HEADER + 1000 {
                if self.chunk == Some(self.seen) {
                    frames[at + DATA_HEADER + 999] ^= 4;
                }
                self.seen += 1;
            }
            at += frame;
        }
        self.to.write_all(&frames)?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A folder to copy from, and one to copy to.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(flip: Flip) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let content = if matches!(flip, Flip::Compressed(_)) {
            random_digits(SIZE)
        } else {
            random_bytes(SIZE)
        };
        fs::write(folder.path().join("file"), content).unwrap();
        fs::create_dir(folder.path().join("to")).unwrap();
        Self { folder }
    }

    /// Copies the file, and returns what was said of it; an error if the transfer ended.
    fn copy(&self, flip: Option<Flip>) -> Result<Vec<String>, String> {
        let (at, in_the_clear) = match flip {
            Some(Flip::Clear(at) | Flip::Compressed(at)) => (at, true),
            Some(Flip::Tls(at)) => (at, false),
            Some(Flip::Messages(_)) | None => (u64::MAX, true),
        };
        let named = in_the_clear.then(|| "127.0.0.0/8".parse::<AddressPrefix>().unwrap());
        let credentials = CopyCredentials::new(&[7; 32], named.as_slice()).unwrap();
        let listener = DataListener::start_listening(None, (0, 0), &credentials).unwrap();
        let (mut made, mut taken) = (Vec::new(), Vec::new());
        let chunk = if let Some(Flip::Messages(chunk)) = flip {
            Some(chunk)
        } else {
            None
        };
        if chunk.is_none() {
            let through = proxy(listener.port, at);
            made = dial_hosts(&[LOOPBACK], through, &credentials, &mut |_| 1)
                .map_err(|error| error.to_string())?
                .1;
            taken = listener.take_streams(1, CONNECT_DEADLINE);
        }
        let (near, far) = UnixStream::pair().unwrap();
        let to = self.folder.path().join("to");
        let receiver = thread::spawn(move || receive(&far, &to, taken));
        // Where nothing is slow, nothing is compressed.
        let slow = matches!(flip, Some(Flip::Compressed(_)))
            .then(|| Arc::new(RatePace::new(BitRate::from_mbps(200))));
        let bounds = CopyBounds::new(slow.into_iter().collect(), None);
        let said = send(&near, &self.folder.path().join("file"), made, bounds, chunk);
        near.shutdown(Shutdown::Both).unwrap();
        receiver.join().unwrap();
        said.map(|(notes, _)| notes)
    }

    fn is_right(&self) -> bool {
        fs::read(self.folder.path().join("file")).unwrap()
            == fs::read(self.folder.path().join("to/file")).unwrap()
    }
}

pub(crate) fn receive(control: &UnixStream, to: &Path, streams: Vec<DataStream>) {
    let pulse = SilenceWatch::new(Duration::from_secs(20));
    let (out, writer) = MessageSender::start_writer(control.try_clone().unwrap(), &pulse).unwrap();
    let options = ReceiveOptions {
        root: FolderRoot::User,
        path: to.to_owned(),
        dry_run: false,
        delete: false,
        excludes: ExcludePatterns::default(),
        verify_disk: false,
        attributes: false,
        timeout: pulse.silence_timeout(),
        tops: None,
    };
    let receiver = Arc::new(FileReceiver::new(
        TransferContext::new(out.clone(), Arc::default(), None),
        options,
    ));
    let settings = [HostSettings::of_linux_6_18(), HostSettings::of_linux_6_18()];
    let mut frames = FrameReader::new(control, &pulse);
    // Its reason is that of the sender, which the test sees.
    if let Err(error) =
        TransferRole::Receiver(receiver).run_transfer(&mut frames, connections(streams), settings)
    {
        let refused = crate::protocol::CopyMessage::Refused {
            code: 1,
            why: error.to_string(),
        };
        out.send_message(&refused);
    }
    out.close_direction();
    writer.join().unwrap();
}

pub(crate) fn connections(streams: Vec<DataStream>) -> DataConnections {
    DataConnections {
        active: streams.len() as u16,
        streams,
        quic: None,
        rtt: Span::from_millis(1),
    }
}

/// Returns what was said of the copy, and how many blocks were sent again because they were
/// overdue.
pub(crate) fn send(
    control: &UnixStream,
    file: &Path,
    streams: Vec<DataStream>,
    bounds: CopyBounds,
    chunk: Option<usize>,
) -> Result<(Vec<String>, u64), String> {
    let pulse = SilenceWatch::new(Duration::from_secs(20));
    let to = FlippingFrames {
        to: control.try_clone().unwrap(),
        chunk,
        seen: 0,
    };
    let (out, writer) = MessageSender::start_writer(to, &pulse).unwrap();
    let (events, noted) = channel();
    let tally = Arc::new(CopyCounts::default());
    let common =
        TransferContext::new(out.clone(), Arc::clone(&tally), Some(events)).with_bounds(bounds);
    let sender = FileSender::new(
        common,
        vec![CopySource::open_source(&FolderRoot::User, file).unwrap()],
        ExcludePatterns::default(),
        false,
    );
    let settings = [HostSettings::of_linux_6_18(), HostSettings::of_linux_6_18()];
    let sender = Arc::new(sender);
    let end = TransferRole::Sender(Arc::clone(&sender));
    end.start_listing().unwrap();
    let done = end.run_transfer(
        &mut FrameReader::new(control, &pulse),
        connections(streams),
        settings,
    );
    out.close_direction();
    writer.join().unwrap();
    done.map_err(|error| error.to_string())?;
    assert_eq!(
        (tally.failure_names(), tally.last_digest().is_some()),
        (Vec::new(), true)
    );
    Ok((notes(&noted), sender.queue.repeated()))
}

fn notes(events: &Events<CopyEvent>) -> Vec<String> {
    let note = |event| match event {
        CopyEvent::Note(text) => Some(text),
        _ => None,
    };
    events.try_iter().filter_map(note).collect()
}

/// Copies with one flipped bit. The bit must be found, and the file be right; where the transfer
/// ends, a second one must make it so. Returns how it was found.
fn found(flip: Flip) -> String {
    let scene = Scene::new(flip);
    let said = match scene.copy(Some(flip)) {
        Ok(notes) => notes,
        Err(error) => {
            assert!(
                !scene.folder.path().join("to/file").exists(),
                "{flip:?}: {error}"
            );
            scene.copy(None).unwrap();
            vec![error]
        }
    };
    assert!(scene.is_right(), "{flip:?}: another file arrived: {said:?}");
    said.first()
        .unwrap_or_else(|| panic!("{flip:?}: nothing was noticed"))
        .clone()
}

/// Returns a place in one of the first blocks, which may be half as long, behind the head of a
/// frame of zstd, of which some bits mean nothing; seldom one in the head of a block.
fn compressed_place(seed: &mut Seed) -> u64 {
    CALL + 2 * DATA_HEADER as u64 + 20 + seed.below(4 * BLOCK as u64)
}

/// Returns a place behind the handshakes, in the first chunk, and in no head of a block.
fn place(seed: &mut Seed) -> u64 {
    let frame = (DATA_HEADER + BLOCK) as u64;
    CALL + DATA_HEADER as u64 + frame * seed.below(16) + 2000 + seed.below(BLOCK as u64 - 2000)
}

#[test]
fn a_flipped_bit_of_a_chunk_is_found_on_every_transport() {
    let mut seed = Seed(24);
    for _ in 0..3 {
        let at = place(&mut seed);
        assert!(found(Flip::Clear(at)).contains("arrived with wrong content"));
        let at = place(&mut seed);
        assert!(found(Flip::Tls(at)).contains("broke"));
        let chunk = seed.below(3) as usize;
        assert!(found(Flip::Messages(chunk)).contains("arrived with wrong content"));
        let first = CALL + 2 * DATA_HEADER as u64 + 20 + seed.below(BLOCK as u64 / 4);
        assert!(found(Flip::Compressed(first)).contains("arrived with wrong content"));
    }
}

#[test]
fn a_flipped_bit_of_a_head_breaks_its_connection() {
    // That of the connection itself: nobody could say which of them it is, and the transfer ends.
    found(Flip::Clear(CALL + 9));
    for at in [0, 4, 9, 20, DATA_HEADER as u64 - 1] {
        let text = found(Flip::Clear(CALL + DATA_HEADER as u64 + at));
        assert!(text.contains("broke"), "{at}: {text}");
    }
}

#[test]
#[ignore = "prints figures, and takes minutes"]
fn of_a_thousand_flipped_bits_all_are_found() {
    let mut seed = Seed(1);
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for round in 0..1000 {
        let flip = match round % 5 {
            0 => Flip::Messages(seed.below(3) as usize),
            1 => Flip::Tls(place(&mut seed)),
            2 => Flip::Clear(place(&mut seed)),
            3 => Flip::Compressed(compressed_place(&mut seed)),
            _ => Flip::Clear(CALL + seed.below(4 * DATA_HEADER as u64)),
        };
        let how = found(flip);
        *counts
            .entry(
                how.chars()
                    .filter(|letter| !letter.is_ascii_digit())
                    .collect(),
            )
            .or_default() += 1;
    }
    let mut text = io::stdout().lock();
    for (how, count) in counts {
        writeln!(text, "{count:5} {how}").unwrap();
    }
}
