//! The thread that receives a stream of datagrams, and answers a hello whose first answer was lost.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::SystemTime;

use fullpipe_iperf::udp::{self, DatagramHeader};
use fullpipe_iperf::{JitterEstimate, SequenceCounter};
use fullpipe_record::Datagrams;
use fullpipe_sys::{
    MAX_MESSAGES, ReceivedMessage, join_datagrams, receive_messages, stamp_arrivals,
};
use fullpipe_units::{ByteCount, Span};

use super::lane::{RunningStream, StreamCount, StreamRole};
use super::pause::ReadPause;
use super::plan::TransferPlan;
use super::shared::TransferState;

/// Messages that are taken from the kernel at once.
const MESSAGES: usize = 32;

/// Room for each: the longest there is, and so much more that their headers do not compete for the
/// same lines of the cache.
const SLOT: usize = 65_536 + 1_536;

/// Counts numbered datagrams until it is stopped.
pub(crate) fn receive_datagrams(
    socket: &UdpSocket,
    stream: &RunningStream,
    shared: &TransferState,
    plan: &TransferPlan,
) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // Where the kernel stamps nothing, this end does, a little later.
    let _ = stamp_arrivals(socket);
    if plan.offload
        && let Err(error) = join_datagrams(socket)
        && plan.notes_lack_of_offload
    {
        shared.add_note(format!(
            "datagrams were received one by one, as the kernel joins none: {error}"
        ));
    }
    let (mut data, mut arrivals) = (
        vec![0; MESSAGES * SLOT],
        [ReceivedMessage::default(); MAX_MESSAGES],
    );
    let mut tally = DatagramTally::new(plan.wide_counters);
    let mut pause = ReadPause::new();
    while !shared.is_stopped(StreamRole::Receiver) {
        match receive_messages(socket, &mut data, SLOT, &mut arrivals) {
            Ok(count) => {
                for (message, arrival) in data.chunks(SLOT).zip(&arrivals[..count]) {
                    if tally.record_message(message, arrival) {
                        // If this answer is lost as well, the other end asks once more. An end that
                        // sends data reads nothing, so it never answers an answer.
                        let _ = socket.send(&udp::REPLY);
                    }
                }
                if arrivals[..count].iter().any(ReceivedMessage::is_joined) {
                    stream.note_joined_datagrams();
                }
                *stream.lock_count() = tally.to_stream_count();
                pause.note_read(
                    arrivals[..count]
                        .iter()
                        .map(|arrival| arrival.length as u64)
                        .sum(),
                );
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => pause.until_more(socket),
            Err(error) if is_passing(&error) => {}
            Err(_) if shared.is_stopped(StreamRole::Receiver) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns true for an error that passes: a signal, or the ICMP error of a datagram that found no
/// receiver, such as a greeting.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    )
}

/// The datagrams of a stream that have arrived.
struct DatagramTally {
    wide: bool,
    bytes: ByteCount,
    sequence: SequenceCounter,
    jitter: JitterEstimate,
}

impl DatagramTally {
    fn new(wide: bool) -> Self {
        Self {
            wide,
            bytes: ByteCount::ZERO,
            sequence: SequenceCounter::new(wide),
            jitter: JitterEstimate::default(),
        }
    }

    /// Takes in a message, which may be several datagrams. What is too short for a number is none
    /// of the stream's. Returns true if a hello is among them: the other end has no answer to an
    /// earlier one.
    fn record_message(&mut self, message: &[u8], arrival: &ReceivedMessage) -> bool {
        let at = arrival.at.unwrap_or_else(wall_clock);
        let message = message.get(..arrival.length).unwrap_or(message);
        let mut has_hello = false;
        for datagram in message.chunks(arrival.segment.unwrap_or(message.len()).max(1)) {
            if udp::is_hello(datagram) {
                has_hello = true;
            } else if let Some(header) = DatagramHeader::read_payload(self.wide, datagram) {
                self.bytes += ByteCount::new(datagram.len() as u64);
                self.sequence.record_datagram(header.sequence);
                self.jitter.record_datagram(header.sent, at);
            }
        }
        has_hello
    }

    fn to_stream_count(&self) -> StreamCount {
        let datagrams = Datagrams {
            jitter: self.jitter.get(),
            ..self.sequence.datagram_counts()
        };
        StreamCount {
            bytes: self.bytes,
            datagrams_sent: 0,
            datagrams,
        }
    }
}

/// The clock by which the kernel stamps. Where it is set during a test, that is one change too many
/// in the jitter, which fades like any other.
fn wall_clock() -> Span {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_iperf::udp::MIN_PAYLOAD;

    fn datagram(sequence: u64) -> [u8; 100] {
        let (mut datagram, mut header) = ([0; 100], [0; MIN_PAYLOAD]);
        DatagramHeader {
            sent: Span::from_micros(1_000_002),
            sequence,
        }
        .write_payload(false, &mut header);
        datagram[..MIN_PAYLOAD].copy_from_slice(&header);
        datagram
    }

    #[test]
    fn joined_datagrams_are_counted_each() {
        let mut tally = DatagramTally::new(false);
        let message = [datagram(1), datagram(2), datagram(4)].concat();
        tally.record_message(
            &message,
            &ReceivedMessage {
                length: 250,
                segment: Some(100),
                at: None,
            },
        );
        let count = tally.to_stream_count();
        assert_eq!(
            (
                count.bytes.get(),
                count.datagrams.received,
                count.datagrams.lost
            ),
            (250, 3, 1)
        );
    }

    #[test]
    fn a_hello_is_noticed_even_where_the_kernel_joined_it_to_data() {
        let mut tally = DatagramTally::new(false);
        let single = ReceivedMessage {
            length: 4,
            segment: None,
            at: None,
        };
        assert!(
            tally.record_message(&udp::HELLO, &single) && tally.to_stream_count().bytes.get() == 0
        );
        let own = udp::hello_with(&fullpipe_iperf::TestCookie::from_bytes([b'c'; 37]));
        assert!(
            tally.record_message(
                &own,
                &ReceivedMessage {
                    length: own.len(),
                    ..single
                }
            ) && tally.to_stream_count().bytes.get() == 0
        );
        let mut joined = [0; 104];
        joined[..100].copy_from_slice(&datagram(1));
        joined[100..].copy_from_slice(&udp::HELLO);
        assert!(tally.record_message(
            &joined,
            &ReceivedMessage {
                length: 104,
                segment: Some(100),
                at: None
            }
        ));
        assert!(!tally.record_message(
            &datagram(2),
            &ReceivedMessage {
                length: 100,
                segment: None,
                at: None
            }
        ));
        assert_eq!(tally.to_stream_count().datagrams.received, 2);
    }

    #[test]
    fn what_has_no_number_is_counted_nowhere() {
        let mut tally = DatagramTally::new(false);
        for length in 0..12 {
            tally.record_message(
                &datagram(1),
                &ReceivedMessage {
                    length,
                    segment: None,
                    at: None,
                },
            );
        }
        // The rest of a joined message is cut off within its header.
        tally.record_message(
            &datagram(1),
            &ReceivedMessage {
                length: 100,
                segment: Some(90),
                at: None,
            },
        );
        tally.record_message(
            &[],
            &ReceivedMessage {
                length: usize::MAX,
                segment: Some(usize::MAX),
                at: None,
            },
        );
        assert_eq!(tally.to_stream_count().bytes.get(), 90);
        assert_eq!(tally.to_stream_count().datagrams.received, 1);
    }
}
