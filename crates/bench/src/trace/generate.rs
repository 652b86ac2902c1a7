//! Captures of transfers that never happened, as a host's own capture at their sender would hold
//! them: handshakes, slow start, an acknowledgement of every second segment, timestamps and windows
//! that move.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::frame::{ACK, FIN, Frame, MSS, SCALE, SYN, Sender, begin};

/// A capture to be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) transfers: Transfers,
    /// Bytes kept of each packet at most.
    pub(crate) snap: usize,
}

/// The connections of a capture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Transfers {
    /// One, of so many packets, with so many bytes in flight.
    One { packets: u64, flight: u64 },
    /// So many short ones at the same time.
    Many(u32),
}

/// Time of a full segment at 1 Gbit/s of Ethernet, 1538 bytes with all around it.
const SEGMENT_TIME: Duration = Duration::from_nanos(12_304);

/// Segments that are sent before the first acknowledgement (RFC 6928).
const INITIAL_WINDOW: u64 = 10;

/// Bytes that the receiving program reads at a time.
const READ: u64 = 64 << 10;

/// Bytes of text that data is taken of.
const TEXT: usize = 1 << 20;

/// Time between the packets of two of many connections.
const STEP: Duration = Duration::from_micros(1);

/// Packets of one of many connections: handshake, data with its acknowledgements, both FINs.
const SCRIPT: u32 = 3 + 3 * DATA_PAIRS + 3;
const DATA_PAIRS: u32 = 8;

/// Many connections begin in so many groups, one after another.
const GROUPS: u32 = 16;

impl Plan {
    /// Returns the plan of a capture with a tenth of the packets, for slow programs.
    pub(crate) fn tenth(self) -> Self {
        let transfers = match self.transfers {
            Transfers::One { packets, flight } => Transfers::One {
                packets: packets / 10,
                flight,
            },
            Transfers::Many(connections) => Transfers::Many(connections / 10),
        };
        Self { transfers, ..self }
    }

    /// Writes the capture as pcap with microseconds. Returns the number of its packets.
    pub(crate) fn write(self, output: &mut impl Write) -> io::Result<u64> {
        let mut capture = Capture {
            output,
            snap: self.snap,
            packets: 0,
            text: text(),
        };
        capture.head()?;
        match self.transfers {
            Transfers::One { packets, flight } => {
                one(&mut capture, packets, flight / u64::from(MSS))?;
            }
            Transfers::Many(connections) => many(&mut capture, connections)?,
        }
        Ok(capture.packets)
    }
}

/// A file that is written.
struct Capture<'o, W> {
    output: &'o mut W,
    snap: usize,
    packets: u64,
    /// Data of the packets.
    text: Vec<u8>,
}

impl<W: Write> Capture<'_, W> {
    fn head(&mut self) -> io::Result<()> {
        const MICROSECONDS: u32 = 0xA1B2_C3D4;
        const ETHERNET: u32 = 1;
        self.output.write_all(&MICROSECONDS.to_le_bytes())?;
        self.output
            .write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
        self.output.write_all(&(self.snap as u32).to_le_bytes())?;
        self.output.write_all(&ETHERNET.to_le_bytes())
    }

    fn add(&mut self, frame: &Frame, at: Duration) -> io::Result<()> {
        /// Of November 2023.
        const BEGIN: u32 = 1_700_000_000;
        let (headers, length) = frame.headers();
        let headers = &headers[..length];
        let original = headers.len() + frame.payload as usize;
        let kept = original.min(self.snap);
        let head = [
            BEGIN + at.as_secs() as u32,
            at.subsec_micros(),
            kept as u32,
            original as u32,
        ];
        for number in head {
            self.output.write_all(&number.to_le_bytes())?;
        }
        let of_headers = headers.len().min(kept);
        self.output.write_all(&headers[..of_headers])?;
        let place = frame.sequence as usize % (TEXT - MSS as usize);
        self.output
            .write_all(&self.text[place..place + kept - of_headers])?;
        self.packets += 1;
        Ok(())
    }
}

/// Returns words of a small vocabulary, which gzip makes a third of.
fn text() -> Vec<u8> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut draw = |below: u64| (random.next_u64() % below) as usize;
    let words: Vec<Vec<u8>> = (0..4096)
        .map(|_| (0..2 + draw(8)).map(|_| b'a' + draw(26) as u8).collect())
        .collect();
    let mut text = Vec::with_capacity(TEXT + 16);
    while text.len() < TEXT {
        text.extend_from_slice(&words[draw(4096)]);
        text.push(b' ');
    }
    text
}

/// An acknowledgement on its way.
struct Acknowledgement {
    at: Duration,
    /// Segments below it.
    segments: u64,
    /// Timestamp of the older of both segments.
    echo: u32,
}

/// Writes a transfer that doubles its window each round trip, up to `most` segments in flight.
fn one(capture: &mut Capture<'_, impl Write>, packets: u64, most: u64) -> io::Result<()> {
    let round_trip = SEGMENT_TIME * most as u32;
    let [client, server] = Sender::both(0);
    let answered = millis(round_trip / 2);
    capture.add(&syn(client, [millis(Duration::ZERO), 0]), Duration::ZERO)?;
    capture.add(
        &syn_answer(server, [answered, millis(Duration::ZERO)]),
        round_trip,
    )?;
    capture.add(
        &client.packet(ACK, [millis(round_trip), answered]),
        round_trip,
    )?;
    let (mut sent, mut acknowledged, mut window) = (0, 0, INITIAL_WINDOW.min(most));
    let (mut next, mut echoed) = (round_trip, answered);
    let mut waiting: VecDeque<Acknowledgement> = VecDeque::new();
    while capture.packets < packets {
        let due = waiting.front().map(|acknowledgement| acknowledgement.at);
        if sent - acknowledged < window && due.is_none_or(|due| next <= due) {
            capture.add(&client.data(sent, [millis(next), echoed]), next)?;
            sent += 1;
            if sent % 2 == 0 {
                let echo = millis(next.saturating_sub(SEGMENT_TIME));
                waiting.push_back(Acknowledgement {
                    at: next + round_trip,
                    segments: sent,
                    echo,
                });
            }
            next += SEGMENT_TIME;
        } else if let Some(Acknowledgement { at, segments, echo }) = waiting.pop_front() {
            let value = millis(at.saturating_sub(round_trip / 2));
            // The buffer grows with the window of the sender, and the program reads 64 KiB at a
            // time.
            let free = 2 * window * u64::from(MSS) + READ - segments * u64::from(MSS) % READ;
            capture.add(&acknowledgement(server, segments, [value, echo], free), at)?;
            (acknowledged, window, echoed) = (segments, (window + 2).min(most), value);
            next = next.max(at);
        }
    }
    Ok(())
}

fn syn(client: Sender, timestamps: [u32; 2]) -> Frame {
    Frame {
        sequence: 0,
        acknowledgement: 0,
        window: 64_240,
        ..client.packet(SYN, timestamps)
    }
}

fn syn_answer(server: Sender, timestamps: [u32; 2]) -> Frame {
    Frame {
        sequence: 0,
        window: 65_160,
        ..server.packet(SYN | ACK, timestamps)
    }
}

/// Returns the acknowledgement of so many segments, with a window of `free` bytes.
fn acknowledgement(server: Sender, segments: u64, timestamps: [u32; 2], free: u64) -> Frame {
    Frame {
        acknowledgement: begin(segments),
        window: (free >> SCALE) as u16,
        ..server.packet(ACK, timestamps)
    }
}

/// Writes short connections, whose packets take turns in an order that no cache foresees.
fn many(capture: &mut Capture<'_, impl Write>, connections: u32) -> io::Result<()> {
    /// A prime beyond any number of connections, so that each has its turn.
    const STRIDE: u64 = 1_000_003;
    let mut at = Duration::ZERO;
    for round in 0..SCRIPT + GROUPS {
        for turn in 0..connections {
            let number = (u64::from(turn) * STRIDE % u64::from(connections)) as u32;
            let step = round
                .checked_sub(number % GROUPS)
                .filter(|step| *step < SCRIPT);
            if let Some(step) = step {
                capture.add(&scripted(number, step, millis(at)), at)?;
                at += STEP;
            }
        }
    }
    Ok(())
}

/// Returns packet `step` of one of many connections, at the time `now`.
fn scripted(number: u32, step: u32, now: u32) -> Frame {
    /// The client's FIN, its answer, and the acknowledgement of that.
    const CLOSES: u32 = SCRIPT - 3;
    const CLOSED: u32 = SCRIPT - 2;
    const ENDED: u32 = SCRIPT - 1;
    let [client, server] = Sender::both(number);
    let (times, end) = ([now; 2], begin(u64::from(2 * DATA_PAIRS)));
    match step {
        0 => syn(client, [now, 0]),
        1 => syn_answer(server, times),
        2 => client.packet(ACK, times),
        CLOSES => Frame {
            sequence: end,
            ..client.packet(FIN | ACK, times)
        },
        CLOSED => Frame {
            acknowledgement: end + 1,
            ..server.packet(FIN | ACK, times)
        },
        ENDED => Frame {
            sequence: end + 1,
            acknowledgement: 2,
            ..client.packet(ACK, times)
        },
        _ => {
            let (pair, part) = (u64::from((step - 3) / 3), u64::from((step - 3) % 3));
            let free = 4 * READ - 2 * pair * u64::from(MSS);
            if part == 2 {
                acknowledgement(server, 2 * pair + 2, times, free)
            } else {
                client.data(2 * pair + part, times)
            }
        }
    }
}

/// Returns a timestamp of a clock of milliseconds.
fn millis(at: Duration) -> u32 {
    const BEGIN: u32 = 5_000_000;
    BEGIN + at.as_millis() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use std::sync::atomic::AtomicBool;

    use fullpipe_record::CaptureReport;
    use fullpipe_trace::{CaptureUse, ExplainedTransfers, PacketFile, read_flows};

    fn read(plan: Plan) -> CaptureReport {
        let mut bytes = Vec::new();
        let packets = plan.write(&mut bytes).unwrap();
        let mut file = PacketFile::new(Cursor::new(bytes), "made").unwrap();
        let wanted = CaptureUse {
            explained: ExplainedTransfers::Largest(0),
            is_compared: false,
        };
        let report = read_flows(&mut file, "made", wanted, &AtomicBool::new(false)).report;
        assert_eq!(
            (report.packets, report.segments, &report.notes),
            (packets, packets, &Vec::new())
        );
        report
    }

    #[test]
    fn a_transfer_has_in_flight_what_was_planned_and_loses_nothing() {
        let report = read(Plan {
            transfers: Transfers::One {
                packets: 60_000,
                flight: 1_448_000,
            },
            snap: 96,
        });
        let [client, server] = &report.flows[0].ends;
        assert_eq!(client.flight.get(), 1_448_000);
        assert_eq!(
            (
                client.retransmitted_packets,
                client.late_packets,
                client.missing_bytes.get()
            ),
            (0, 0, 0)
        );
        assert_eq!(
            (client.duplicates, server.duplicates, server.duplicate_acks),
            (0, 0, 0)
        );
        // As a window of 1000 segments takes at 1 Gbit/s, and one more for the second of a pair.
        let rtt = client.rtt.unwrap();
        assert!((rtt.median.as_secs_f64() - 0.0123).abs() < 2e-4, "{rtt:?}");
        assert!(
            server
                .window
                .is_some_and(|window| window.most.get() > 1_448_000),
            "{server:?}"
        );
    }

    #[test]
    fn each_of_many_transfers_is_whole() {
        let report = read(Plan {
            transfers: Transfers::Many(1000),
            snap: 1514,
        });
        assert_eq!(report.flows.len(), 1000);
        for flow in &report.flows {
            let [client, server] = &flow.ends;
            assert_eq!(client.packets + server.packets, u64::from(SCRIPT));
            assert_eq!(client.unique_bytes.get(), u64::from(2 * DATA_PAIRS * MSS));
            assert_eq!(
                (client.fins, server.fins, client.missing_bytes.get()),
                (1, 1, 0)
            );
        }
    }

    #[test]
    fn a_tenth_of_a_capture_has_a_tenth_of_its_packets() {
        for transfers in [
            Transfers::One {
                packets: 10_000,
                flight: 144_800,
            },
            Transfers::Many(1000),
        ] {
            let plan = Plan {
                transfers,
                snap: 96,
            };
            let packets = |plan: Plan| plan.write(&mut io::sink()).unwrap();
            assert_eq!(packets(plan.tenth()) * 10, packets(plan));
        }
    }
}
