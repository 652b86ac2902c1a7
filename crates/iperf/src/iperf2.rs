//! iperf2: the part of its protocol that client and server need for tests in one direction.
//!
//! There is no control connection and nothing is agreed on. With TCP the client's first payload
//! bytes are an [`Iperf2Header`], which may be zero, and the end of the stream is the end of the
//! test. With UDP every datagram begins with an [`Iperf2Datagram`] and, behind it, the same header;
//! the client ends the test with a datagram whose number is negative, repeats it until it is
//! answered, and the answer is the server's [`Iperf2Report`].
//!
//! All of this is what iperf 2.0.10 to 2.2 speak, where numbers of datagrams have 64 bits.
//! Datagrams of older ones, with 32, are read too; their clients do not understand our report.

use std::fmt;

use fullpipe_record::{Datagrams, Direction, Request};
use fullpipe_units::{ByteCount, Span};

use crate::udp::{low_half, put_word, read_word};

/// The port on which iperf2 servers listen, TCP and UDP.
pub const DEFAULT_PORT: u16 = 5001;

/// The kind of test that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Iperf2TestKind {
    /// To receive; the usual.
    Upload,
    /// To send over the same connection.
    Reverse,
    /// To send and receive over the same connection.
    FullDuplex,
    /// To open connections back to the client at once, and send over them.
    Dual,
    /// To open connections back to the client after the client has sent, and send over them.
    Tradeoff,
    /// To send each request back.
    BounceBack,
    /// To receive, from somebody who knows a key.
    Permit,
}

impl fmt::Display for Iperf2TestKind {
    /// The test and iperf's option for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upload => "an upload",
            Self::Reverse => "a reverse test (-R)",
            Self::FullDuplex => "a full-duplex test (--full-duplex)",
            Self::Dual => "a dual test (-d), which needs connections back to the client",
            Self::Tradeoff => "a tradeoff test (-r), which needs connections back to the client",
            Self::BounceBack => "a bounce-back test (--bounceback)",
            Self::Permit => "a test with a key (--permit-key)",
        })
    }
}

/// The header at the start of a client's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iperf2Header {
    /// The kind of test that the client asks for.
    pub kind: Iperf2TestKind,
    /// True if the client waits with its data, for a moment, until it gets an [`ANSWER`] (TCP only:
    /// its options `-X` and `--trip-times`). Any other must not get one: it would close its
    /// connection with bytes unread, and so reset it.
    pub waits_for_answer: bool,
}

/// The answer of a server to a client that waits for it: message 2, of 28 bytes, from no version of
/// iperf.
pub const ANSWER: [u8; 28] = {
    let mut answer = [0; 28];
    (answer[3], answer[7]) = (2, 28);
    answer
};

/// Bytes of the header that [`Iperf2Header::tcp_header`] makes: as 2.1 has it, 24 of the oldest and
/// 36 of an extension.
pub const HEADER_LENGTH: usize = 60;

/// Offset of a header in a datagram.
const IN_DATAGRAM: usize = 16;

/// Offset of the extension's flags, from the start of the header.
const EXTENSION_FLAGS: usize = 32;

const VERSION_1: u32 = 0x8000_0000;
const EXTENDED: u32 = 0x4000_0000;
const KEY_CHECK: u32 = 0x1000_0000;
const WIDE_NUMBERS: u32 = 0x0800_0000;
const VERSION_2: u32 = 0x0400_0000;
const PEER_DETECTION: u32 = 0x0200_0000;
const BOUNCE_BACK: u32 = 0x0080_0000;
const LENGTH_IS_GIVEN: u32 = 0x0001_0000;
const RUN_NOW: u32 = 0x0000_0001;

/// Of the extension's flags, the upper half.
const REVERSE: u32 = 0x0400_0000;
const FULL_DUPLEX: u32 = 0x0800_0000;

impl Iperf2Header {
    /// Reads what a TCP connection begins with; `None` while more bytes are needed, never more than
    /// 36. A stream without a header is an upload. The header is a part of what the client sent,
    /// and counts as such.
    pub fn read_stream(stream: &[u8]) -> Option<Self> {
        let flags = read_word(stream, 0)?;
        let extension = match flags & (VERSION_2 | BOUNCE_BACK) {
            VERSION_2 => read_word(stream, EXTENSION_FLAGS)?,
            _ => 0,
        };
        Some(Self {
            kind: test_kind(flags, extension),
            waits_for_answer: flags & PEER_DETECTION != 0 && flags & BOUNCE_BACK == 0,
        })
    }

    /// Reads the one in a UDP test's first datagram. Where there is none, or it is cut off, the
    /// test is an upload.
    pub fn read_datagram(datagram: &[u8]) -> Self {
        let flags = read_word(datagram, IN_DATAGRAM).unwrap_or(0);
        let extension = read_word(datagram, IN_DATAGRAM + EXTENSION_FLAGS).unwrap_or(0);
        Self {
            kind: test_kind(flags, extension),
            waits_for_answer: false,
        }
    }

    /// Returns the header that a client that wants `request` sends first on each of its TCP
    /// connections, as a part of its data.
    ///
    /// For an upload it is zero: a server that sees an extension sends an answer, which no client
    /// would read.
    pub fn tcp_header(request: &Request) -> [u8; HEADER_LENGTH] {
        let mut header = [0; HEADER_LENGTH];
        let upper = match request.direction {
            Direction::Upload => return header,
            Direction::Download => REVERSE,
            Direction::Both => FULL_DUPLEX,
        };
        let length = u32::try_from(HEADER_LENGTH << 1).unwrap_or(u32::MAX);
        put_word(
            &mut header,
            0,
            EXTENDED | VERSION_2 | LENGTH_IS_GIVEN | length,
        );
        put_word(&mut header, 4, request.streams.into());
        put_word(&mut header, 12, saturate_u32(request.block.get()));
        put_word(&mut header, 20, request_amount(request));
        put_word(&mut header, EXTENSION_FLAGS, upper);
        put_word(&mut header, 44, request.tos.into());
        header
    }
}

/// A reader of flags as iperf's own server: the second version of the header goes before the first.
fn test_kind(flags: u32, extension: u32) -> Iperf2TestKind {
    match () {
        () if flags & BOUNCE_BACK != 0 => Iperf2TestKind::BounceBack,
        () if flags & (EXTENDED | KEY_CHECK) == EXTENDED | KEY_CHECK => Iperf2TestKind::Permit,
        () if flags & VERSION_2 != 0 && extension & REVERSE != 0 => Iperf2TestKind::Reverse,
        () if flags & VERSION_2 != 0 && extension & FULL_DUPLEX != 0 => Iperf2TestKind::FullDuplex,
        () if flags & (VERSION_1 | VERSION_2 | RUN_NOW) == VERSION_1 | RUN_NOW => {
            Iperf2TestKind::Dual
        }
        () if flags & (VERSION_1 | VERSION_2) == VERSION_1 => Iperf2TestKind::Tradeoff,
        () => Iperf2TestKind::Upload,
    }
}

/// Bytes of the test, or its time as a negative number of 10 ms.
fn request_amount(request: &Request) -> u32 {
    let hundredths = request.duration.as_nanos().div_ceil(10_000_000);
    let time = i32::try_from(hundredths).map_or(i32::MIN, |hundredths| -hundredths);
    request
        .bytes
        .map_or(time, |bytes| i32::try_from(bytes.get()).unwrap_or(i32::MAX))
        .cast_unsigned()
}

/// The header of each datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iperf2Datagram {
    /// Number of the datagram in its stream, from 1. A negative number marks the last datagram,
    /// which is itself the next of the stream, and counted: −93 follows 92.
    pub number: i64,
    /// When it was sent, in whole microseconds since 1970 by the sender's clock.
    pub sent: Span,
}

impl Iperf2Datagram {
    /// The least payload of what we send, in bytes: the number, the time, and the flags that say
    /// how wide numbers are.
    pub const LENGTH: usize = 20;

    /// Writes it to the start of a payload, numbers 64 bits wide. Servers of any age find the low
    /// half where they look.
    pub fn write_payload(self, payload: &mut [u8; Self::LENGTH]) {
        let number = self.number.cast_unsigned();
        let micros = self.sent.as_micros();
        put_word(payload, 0, low_half(number));
        put_word(payload, 4, low_half(micros / 1_000_000));
        put_word(payload, 8, (micros % 1_000_000) as u32);
        put_word(payload, 12, (number >> 32) as u32);
        put_word(payload, 16, WIDE_NUMBERS);
    }

    /// Reads it from a payload; `None` where that is too short. Numbers are 32 bits wide where the
    /// header behind does not say otherwise.
    pub fn read_payload(payload: &[u8]) -> Option<Self> {
        let (low, high) = (read_word(payload, 0)?, read_word(payload, 12)?);
        let is_wide =
            read_word(payload, IN_DATAGRAM).is_some_and(|flags| flags & WIDE_NUMBERS != 0);
        let number = if is_wide {
            join_halves(high, low).cast_signed()
        } else {
            low.cast_signed().into()
        };
        Some(Self {
            number,
            sent: read_time(payload, 4)?,
        })
    }

    /// Returns true if the datagram is the last one of its stream.
    pub const fn is_last(&self) -> bool {
        self.number < 0
    }
}

/// The report that a server sends in answer to the last datagram of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Iperf2Report {
    /// Bytes of payload that it received.
    pub bytes: ByteCount,
    /// From the first datagram to the last, in whole microseconds.
    pub duration: Span,
    /// Datagrams that are missing.
    pub lost: u64,
    /// Datagrams that came behind a later one.
    pub out_of_order: u64,
    /// Highest number, that of the last datagram included.
    pub datagrams: u64,
    /// Interarrival jitter (RFC 3550, section 6.4.1), in whole microseconds.
    pub jitter: Span,
}

impl Iperf2Report {
    /// Bytes of the report of 2.1 and later.
    const LONG: usize = 128;

    /// Bytes of it that every version reads.
    const SHORT: usize = 56;

    /// Returns the answer of a server to `last`, the datagram that ends a stream. The answer is
    /// never longer, so that no client can make the server send more than it sent itself. `None`
    /// where that leaves no room.
    ///
    /// A last datagram shorter than 128 bytes gets the short form, which has 32 bits for each
    /// count: more is given as 2³²−1.
    pub fn encode_answer(&self, last: &[u8]) -> Option<Vec<u8>> {
        let is_long = last.len() >= Self::LONG;
        let length = if is_long { Self::LONG } else { Self::SHORT };
        let mut answer = vec![0; length];
        answer[..IN_DATAGRAM].copy_from_slice(last.get(..length)?.get(..IN_DATAGRAM)?);
        let bytes = self.bytes.get();
        let counts = [self.lost, self.out_of_order, self.datagrams];
        let (flags, short): (_, fn(u64) -> u32) = if is_long {
            (VERSION_1 | WIDE_NUMBERS, low_half)
        } else {
            (VERSION_1, saturate_u32)
        };
        let [duration, jitter] = [self.duration, self.jitter].map(time_words);
        let words = [flags, (bytes >> 32) as u32, low_half(bytes)]
            .into_iter()
            .chain(duration)
            .chain(counts.map(short))
            .chain(jitter);
        for (word, at) in words.zip((IN_DATAGRAM..).step_by(4)) {
            put_word(&mut answer, at, word);
        }
        if is_long {
            for (count, at) in counts.into_iter().zip((HIGH_HALVES..).step_by(4)) {
                put_word(&mut answer, at, (count >> 32) as u32);
            }
        }
        Some(answer)
    }

    /// Reads what a server answered, of either length; `None` where it is not a report.
    pub fn read_answer(datagram: &[u8]) -> Option<Self> {
        let flags = read_word(datagram, IN_DATAGRAM)?;
        if flags & VERSION_1 == 0 {
            return None;
        }
        let is_wide = flags & WIDE_NUMBERS != 0 && datagram.len() >= Self::LONG;
        let [lost, out_of_order, datagrams] = [0, 4, 8].map(|at| {
            let high = is_wide.then(|| read_word(datagram, HIGH_HALVES + at));
            let low = read_word(datagram, IN_DATAGRAM + 4 * 5 + at)?;
            Some(join_halves(high.flatten().unwrap_or(0), low))
        });
        let [high, low] = [4, 8].map(|at| read_word(datagram, IN_DATAGRAM + at));
        Some(Self {
            bytes: ByteCount::new(join_halves(high?, low?)),
            duration: read_time(datagram, IN_DATAGRAM + 4 * 3)?,
            lost: lost?,
            out_of_order: out_of_order?,
            datagrams: datagrams?,
            jitter: read_time(datagram, IN_DATAGRAM + 4 * 8)?,
        })
    }

    /// Converts the counts to [`Datagrams`]. iperf2 does not distinguish duplicates from datagrams
    /// out of order.
    pub fn as_seen(&self) -> Datagrams {
        Datagrams {
            received: self.datagrams.saturating_sub(self.lost),
            lost: self.lost,
            reordered: self.out_of_order,
            jitter: self.jitter,
            lost_like_iperf3: self.lost,
            out_of_order_like_iperf3: self.out_of_order,
            ..Datagrams::default()
        }
    }
}

/// Offset in a report of the high halves of its three counts.
const HIGH_HALVES: usize = 116;

/// Seconds and microseconds, in two words.
fn read_time(bytes: &[u8], at: usize) -> Option<Span> {
    Some(
        Span::from_secs(read_word(bytes, at)?.into())
            + Span::from_micros(read_word(bytes, at + 4)?.into()),
    )
}

/// Returns a time as whole seconds and the microseconds beyond them.
fn time_words(span: Span) -> [u32; 2] {
    let micros = span.as_micros();
    [
        saturate_u32(micros / 1_000_000),
        (micros % 1_000_000) as u32,
    ]
}

fn join_halves(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn saturate_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
