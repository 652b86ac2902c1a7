//! Captures of cases, from both ends and from the middle of the path, and the limits that they show
//! next to that of the kernel's figures.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path as FilePath, PathBuf};

use fullpipe_lab::Host;
use fullpipe_record::{Path, Verdict};
use fullpipe_trace::{ExplainedTransfers, PacketFile};
use fullpipe_units::{Span, Time};
use fullpipe_wire::{CapturedContent as Packet, LinkType, pcap_header, pcap_record, read_captured};

use super::case_record::{CaseRecord, Observation};
use super::imperfect::{self, Imperfection};
use super::matrix::Column;
use crate::captures::{Captured, Seen, Taken, by_place, is_right, score, short_score};
use crate::records::file_name;

/// Bytes of each packet in the file from the middle: all that those from the ends have.
const SNAP_LENGTH: u32 = 128;

/// Returns the folder of the captures next to the records in `records`, which are all its files of
/// JSON.
pub(crate) fn folder(records: &FilePath) -> PathBuf {
    records.join("captures")
}

/// Returns the begin of the names of the files of a case.
pub(crate) fn stem(case: &str) -> String {
    file_name(case)
}

fn file(folder: &FilePath, case: &str, taken: &str) -> PathBuf {
    folder.join(format!("{}-{taken}.pcap", stem(case)))
}

/// A packet on its way to the file from the middle.
struct Passing {
    at: Time,
    bytes: Vec<u8>,
    original: u32,
}

/// The packets in the capture of an end that the other end sent, half of their delay before they
/// arrived.
struct Arrivals {
    file: PacketFile,
    from: Host,
    half: Span,
}

impl Arrivals {
    fn open(file: &FilePath, from: Host, delay: Span) -> io::Result<Self> {
        let file = PacketFile::open(file).map_err(io::Error::other)?;
        Ok(Self {
            file,
            from,
            half: delay.scale_by(0.5),
        })
    }

    fn next(&mut self) -> io::Result<Option<Passing>> {
        while let Some(packet) = self.file.next_packet().map_err(io::Error::other)? {
            match read_captured(packet.link, packet.bytes, packet.original as usize) {
                Packet::Tcp(segment) if segment.source.ip() == self.from.address() => {
                    let at = Time::ZERO
                        + packet
                            .at
                            .duration_since(Time::ZERO)
                            .saturating_sub(self.half);
                    return Ok(Some(Passing {
                        at,
                        bytes: packet.bytes.to_vec(),
                        original: packet.original,
                    }));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// Writes the captures of both ends of a case over `path`, the sender's first, and the one from the
/// middle.
///
/// # Errors
/// Fails if a file cannot be written.
pub(crate) fn write(
    folder: &FilePath,
    case: &str,
    path: &Path,
    ends: &[Vec<u8>; 2],
) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (at, bytes) in [Host::Sender, Host::Receiver].into_iter().zip(ends) {
        std::fs::write(file(folder, case, at.name()), bytes)?;
    }
    write_middle(folder, case, path)
}

/// Writes the capture from the middle of `path` to `folder`, which holds those of both ends: behind
/// the queue of each direction and half of its delay, so that no packet is in it that was lost.
///
/// # Errors
/// Fails if a file cannot be read or written.
pub(crate) fn write_middle(folder: &FilePath, case: &str, path: &Path) -> io::Result<()> {
    let arrivals = |at: Host, delay: Span| {
        Arrivals::open(&file(folder, case, at.name()), at.peer_host(), delay)
    };
    let mut there = arrivals(Host::Receiver, path.forward.delay)?;
    let mut back = arrivals(Host::Sender, path.reverse.delay)?;
    let mut middle = BufWriter::new(File::create(file(folder, case, "middle"))?);
    middle.write_all(&pcap_header(LinkType::RAW, SNAP_LENGTH))?;
    let mut waiting = [there.next()?, back.next()?];
    loop {
        let comes_back = match &waiting {
            [None, None] => break,
            [Some(one), Some(other)] => other.at < one.at,
            [one, _] => one.is_none(),
        };
        let (place, next) = if comes_back {
            (1, back.next()?)
        } else {
            (0, there.next()?)
        };
        if let Some(Passing {
            at,
            bytes,
            original,
        }) = std::mem::replace(&mut waiting[place], next)
        {
            middle.write_all(&pcap_record(at, bytes.len() as u32, original))?;
            middle.write_all(&bytes)?;
        }
    }
    middle.flush()
}

/// The verdicts on a case by the kernel's figures and by its captures.
pub(crate) struct Compared {
    measured: Verdict,
    seen: Vec<Seen>,
}

impl Compared {
    /// Returns what the captures in `folder` show of the transfer of `record`, with the capacity of
    /// the path stated to both views.
    pub(crate) fn of(record: &CaseRecord, folder: &FilePath) -> Self {
        let captured = captured(record);
        let [sender, receiver, middle] =
            ["sender", "receiver", "middle"].map(|taken| file(folder, &record.name, taken));
        let seen = [
            captured.seen(Taken::Sender, &sender, None),
            captured.seen(Taken::Receiver, &receiver, None),
            captured.seen(Taken::Middle, &middle, None),
            captured.seen(Taken::BothEnds, &sender, Some(&receiver)),
        ];
        Self {
            measured: Column::BEST_INFORMED.verdict(record),
            seen: seen.into_iter().flatten().collect(),
        }
    }
}

/// Returns what the captures of both ends in `folder` show of the transfer of `record` once they
/// are imperfect in this way.
///
/// # Errors
/// Fails if a file cannot be read or written.
pub(crate) fn seen_imperfectly(
    record: &CaseRecord,
    folder: &FilePath,
    how: Imperfection,
) -> io::Result<Vec<Seen>> {
    let scratch = tempfile::tempdir_in(folder)?;
    let seed = record.name.bytes().fold(0_u64, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(byte.into())
    });
    let written = |at: Host| {
        let [from, to] =
            [folder, scratch.path()].map(|folder| file(folder, &record.name, at.name()));
        // The far host has none of a transfer over the near one's loopback.
        if from.exists() {
            imperfect::write(how, at, &from, &to, seed)?;
        }
        io::Result::Ok(to)
    };
    let (sender, receiver) = (written(Host::Sender)?, written(Host::Receiver)?);
    let captured = captured(record);
    let seen = [
        captured.seen(Taken::Sender, &sender, None),
        captured.seen(Taken::Receiver, &receiver, None),
        captured.seen(Taken::BothEnds, &sender, Some(&receiver)),
    ];
    Ok(seen.into_iter().flatten().collect())
}

/// Returns the verdicts on captures that are imperfect in this way: those that are wrong in a line
/// each, and the score.
pub(crate) fn text_of_imperfect(how: Imperfection, seen: &[Seen]) -> String {
    let wrong: String = seen
        .iter()
        .filter(|seen| !seen.is_right())
        .map(Seen::line)
        .collect();
    format!(
        "\n{how}\n{wrong}{}",
        short_score(&seen.iter().collect::<Vec<_>>())
    )
}

fn captured(record: &CaseRecord) -> Captured<'_> {
    Captured {
        name: &record.name,
        expected: record.expected_verdict.name(),
        bandwidth: record.bandwidth,
        explained: match &record.observation {
            Observation::Measured(measurement) => ExplainedTransfers::of_test(measurement),
            Observation::Watched(_) => ExplainedTransfers::Largest(1),
        },
    }
}

/// Returns the verdicts on captures in a line each, their score, and how often they agree with the
/// kernel's figures.
pub(crate) fn text(compared: &[Compared]) -> String {
    let seen: Vec<&Seen> = compared.iter().flat_map(|one| &one.seen).collect();
    let lines: String = seen.iter().map(|seen| seen.line()).collect();
    lines + &score(&seen) + &agreement(compared)
}

/// Returns the share of agreeing verdicts by the captures that were read, and each disagreement in
/// a line.
fn agreement(compared: &[Compared]) -> String {
    let seen: Vec<&Seen> = compared.iter().flat_map(|one| &one.seen).collect();
    let mut text = String::new();
    for (taken, _) in by_place(&seen) {
        let pairs = compared.iter().filter_map(|one| {
            Some((
                &one.measured,
                one.seen.iter().find(|seen| seen.taken == taken)?,
            ))
        });
        let judged: Vec<(&Verdict, &Seen, Option<bool>)> = pairs
            .map(|(measured, seen)| (measured, seen, agrees(measured, seen)))
            .collect();
        let known: Vec<_> = judged
            .iter()
            .filter(|(.., agrees)| agrees.is_some())
            .collect();
        let agreeing = known
            .iter()
            .filter(|(.., agrees)| *agrees == Some(true))
            .count();
        let _ = writeln!(
            text,
            "\nCaptured at {taken:?}: {agreeing} of {} agree with the kernel's figures ({:.0} %), {} name no limit in \
             one of both",
            known.len(),
            agreeing as f64 / known.len().max(1) as f64 * 100.0,
            judged.len() - known.len(),
        );
        for (measured, seen, _) in judged.iter().filter(|(.., agrees)| *agrees != Some(true)) {
            let _ = writeln!(text, "  {}", disagreement(measured, seen));
        }
    }
    text
}

fn agrees(measured: &Verdict, seen: &Seen) -> Option<bool> {
    seen.verdict.as_ref()?.agrees_with(measured)
}

/// Returns both verdicts next to what was planted, and which is right.
fn disagreement(measured: &Verdict, seen: &Seen) -> String {
    let right = match (is_right(measured, &seen.expected), seen.is_right()) {
        (true, true) => "both are right",
        (true, false) => "the kernel's figures are right",
        (false, true) => "the packets are right",
        (false, false) => "neither is right",
    };
    format!(
        "{}: planted {}; the kernel's figures: {}; the packets: {}; {right}",
        seen.name,
        seen.expected,
        measured.name(),
        seen.said()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{At, LegalVerdict, PathDirection};
    use fullpipe_scenario::{PathSpec, parse_path_flag};

    /// Returns a segment from one host to the other, with a number to know it by.
    fn segment(from: Host, number: u16) -> Vec<u8> {
        let ip = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
        let tcp = [[0; 4], [0x50, 0x10, 0, 0], [0; 4]].concat();
        let addresses = [from, from.peer_host()]
            .map(|host| host.address().octets())
            .concat();
        let ports = [number.to_be_bytes(), 5201_u16.to_be_bytes()].concat();
        [&ip[..], &addresses, &ports, &[0; 4], &tcp].concat()
    }

    /// Writes packets with these times in milliseconds, senders and numbers.
    fn write(file: &FilePath, packets: &[(u64, Host, u16)]) {
        let mut bytes = pcap_header(LinkType::RAW, SNAP_LENGTH).to_vec();
        for &(at, from, number) in packets {
            let packet = segment(from, number);
            let at = Time::ZERO + Span::from_millis(at);
            bytes.extend(pcap_record(at, packet.len() as u32, packet.len() as u32));
            bytes.extend(packet);
        }
        std::fs::write(file, bytes).unwrap();
    }

    /// Returns the times in milliseconds and the numbers of the packets in a file.
    fn read(file: &FilePath) -> Vec<(u64, u16)> {
        let (mut file, mut packets) = (PacketFile::open(file).unwrap(), Vec::new());
        while let Some(packet) = file.next_packet().unwrap() {
            let Packet::Tcp(segment) =
                read_captured(packet.link, packet.bytes, packet.original as usize)
            else {
                panic!("a segment was written");
            };
            packets.push((packet.at.as_nanos() / 1_000_000, segment.source.port()));
        }
        packets
    }

    #[test]
    fn the_middle_sees_what_arrives_at_both_ends_half_of_the_delay_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = parse_path_flag("rate=100M,rtt=40ms", &PathSpec::demo_path()).unwrap();
        let reverse = PathDirection {
            delay: Span::from_millis(60),
            ..path.reverse
        };
        let path = Path { reverse, ..path };
        let (sender, receiver) = (Host::Sender, Host::Receiver);
        // Packet 2 is lost.
        let there = [(1_000, sender, 1), (1_001, sender, 2), (1_002, sender, 3)];
        write(
            &file(folder.path(), "a/b", "sender"),
            &[&there[..], &[(1_080, receiver, 11), (1_090, receiver, 12)]].concat(),
        );
        let back = [(1_020, receiver, 11), (1_030, receiver, 12)];
        write(
            &file(folder.path(), "a/b", "receiver"),
            &[&[(1_020, sender, 1)], &back[..], &[(1_075, sender, 3)]].concat(),
        );
        write_middle(folder.path(), "a/b", &path).unwrap();
        assert_eq!(
            read(&file(folder.path(), "a/b", "middle")),
            [(1_010, 1), (1_050, 11), (1_060, 12), (1_065, 3)]
        );
    }

    fn verdict(name: &str) -> Verdict {
        let record: CaseRecord =
            serde_json::from_str(include_str!("../recorded/diagnosis.json")).unwrap();
        let legal = LegalVerdict::from_name(name).unwrap();
        let verdict = Column::BEST_INFORMED.verdict(&record);
        Verdict {
            kind: legal.limit_kind(),
            cause: legal.limit_cause(),
            at: legal.limit_place(),
            candidates: Vec::new(),
            ..verdict
        }
    }

    /// Returns a case by what was planted, what the kernel's figures show and what a capture at the
    /// sender shows.
    fn case([expected, measured, seen]: [&str; 3]) -> Compared {
        let (name, expected) = (expected.to_owned(), expected.to_owned());
        let verdict = Some(verdict(seen));
        let seen = Seen {
            taken: Taken::Sender,
            expected,
            name,
            verdict,
            point: Some(At::Sender),
            sender: None,
        };
        Compared {
            measured: self::verdict(measured),
            seen: vec![seen],
        }
    }

    #[test]
    fn each_disagreement_is_listed_with_the_view_that_is_right() {
        let [loss, link, clamped] = ["loss/random", "capacity/link", "mtu/mss-clamped"];
        let cases = [
            [loss, loss, "loss/policer"],
            [loss, link, loss],
            [clamped, clamped, link],
            [clamped, link, loss],
        ];
        let text = agreement(&cases.map(case));
        assert!(
            text.contains("Captured at Sender: 1 of 4 agree with the kernel's figures (25 %)"),
            "{text}"
        );
        let line = |planted: &str, figures: &str, packets: &str, right: &str| {
            let views = format!("the kernel's figures: {figures}; the packets: {packets}");
            text.contains(&format!(
                "  {planted}: planted {planted}; {views}; {right}\n"
            ))
        };
        assert!(line(loss, link, loss, "the packets are right"), "{text}");
        assert!(
            line(clamped, clamped, link, "the kernel's figures are right"),
            "{text}"
        );
        assert!(line(clamped, link, loss, "neither is right"), "{text}");
        assert_eq!(
            text.lines().filter(|line| line.contains("planted")).count(),
            3,
            "{text}"
        );
    }
}
