//! What tshark and tcptrace read from the same captures.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fullpipe_record::CaptureReport;

use super::contradictions::parsed_addresses;
use super::finding::FindingKind;
use super::witness::{Witnesses, ordered_pair};
use crate::process::Process;

/// Longest that a reader may take for a file; the captures of collections are small.
const TIMEOUT: Duration = Duration::from_mins(2);

const TSHARK_FIELDS: [&str; 14] = [
    "frame.protocols",
    "tcp.stream",
    "ip.src",
    "ipv6.src",
    "ip.dst",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.len",
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.zero_window",
];

/// The figures of one direction that two readers can be compared in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReadEnd {
    pub(crate) bytes: u64,
    /// Packets with data below what had been sent: retransmitted, or late.
    pub(crate) repeated: u64,
    pub(crate) zero_windows: u64,
    /// Repeated packets that open or close the connection; of ours alone.
    pub(crate) repeated_openings: u64,
}

/// The connections between two addresses, as a reader counts them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReadPair {
    pub(crate) connections: u64,
    /// The end with the lesser address first.
    pub(crate) ends: [ReadEnd; 2],
}

/// The content of a capture as a reader counts it.
pub(crate) type ReadCapture = BTreeMap<[SocketAddr; 2], ReadPair>;

/// A program that reads captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherReader {
    Tshark,
    Tcptrace,
}

impl OtherReader {
    pub(crate) const ALL: [Self; 2] = [Self::Tshark, Self::Tcptrace];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tshark => "tshark",
            Self::Tcptrace => "tcptrace",
        }
    }

    /// Returns true if the program can be started.
    pub(crate) fn is_installed(self, stop: &AtomicBool) -> bool {
        let started = Process::start(Command::new(self.name()).arg("-v"));
        started.is_ok_and(|process| process.finish(TIMEOUT, stop).is_ok())
    }

    /// Returns the counts of a file; `None` if the program cannot read it.
    pub(crate) fn read_capture(self, path: &Path, stop: &AtomicBool) -> Option<ReadCapture> {
        let mut command = Command::new(self.name());
        match self {
            Self::Tshark => {
                command
                    .args(["-n", "-r"])
                    .arg(path)
                    .args(["-T", "fields", "-E", "occurrence=l"]);
                command.args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]);
                command.args(["-o", "tcp.desegment_tcp_streams:FALSE"]);
                command.args(["-Y", "tcp && !icmp && !icmpv6"]);
                command.args(TSHARK_FIELDS.iter().flat_map(|field| ["-e", field]));
            }
            Self::Tcptrace => {
                command.args(["-ln", "--csv"]).arg(path);
            }
        }
        let ended = Process::start(&mut command)
            .ok()?
            .finish(TIMEOUT, stop)
            .ok()?;
        match self {
            Self::Tshark if !ended.succeeded && ended.stdout.is_empty() => None,
            Self::Tshark => Some(tshark_counts(&ended.stdout)),
            Self::Tcptrace => tcptrace_counts(&ended.stdout),
        }
    }
}

fn tshark_counts(output: &str) -> ReadCapture {
    let mut capture = ReadCapture::new();
    let mut streams: BTreeMap<[SocketAddr; 2], BTreeSet<&str>> = BTreeMap::new();
    for line in output.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let Some((pair, from)) = tshark_pair(&fields) else {
            continue;
        };
        let stream = fields[1];
        streams.entry(pair).or_default().insert(stream);
        let end = &mut capture.entry(pair).or_default().ends[from];
        let bytes: u64 = fields[8].parse().unwrap_or(0);
        end.bytes += bytes;
        end.repeated += u64::from(bytes > 0 && fields[9..13].iter().any(|label| !label.is_empty()));
        end.zero_windows += u64::from(!fields[13].is_empty());
    }
    for (pair, streams) in streams {
        capture.entry(pair).or_default().connections = streams.len() as u64;
    }
    capture
}

/// Returns the two addresses of a packet by its innermost headers, and the index of its sender.
fn tshark_pair(fields: &[&str]) -> Option<([SocketAddr; 2], usize)> {
    if fields.len() != TSHARK_FIELDS.len() {
        return None;
    }
    // Of a packet within another both versions of IP have addresses.
    let version = fields[0]
        .split(':')
        .rfind(|protocol| ["ip", "ipv6"].contains(protocol))?;
    let [source, destination] = if version == "ip" {
        [fields[2], fields[4]]
    } else {
        [fields[3], fields[5]]
    };
    let socket = |address: &str, port: &str| {
        let address: IpAddr = address.parse().ok()?;
        Some(SocketAddr::new(address, port.parse().ok()?))
    };
    Some(ordered_pair(
        socket(source, fields[6])?,
        socket(destination, fields[7])?,
    ))
}

/// Returns the counts of tcptrace; `None` if it printed no table, as of a file that it cannot read.
fn tcptrace_counts(output: &str) -> Option<ReadCapture> {
    let mut lines = output
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let names: Vec<&str> = lines.next()?.split(',').collect();
    if names[0] != "conn_#" {
        return None;
    }
    let mut capture = ReadCapture::new();
    for line in lines {
        let values: Vec<&str> = line.split(',').map(str::trim).collect();
        let row = TcptraceRow {
            names: &names,
            values: &values,
        };
        row.add_to(&mut capture);
    }
    Some(capture)
}

struct TcptraceRow<'r> {
    names: &'r [&'r str],
    values: &'r [&'r str],
}

impl TcptraceRow<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        let index = self.names.iter().position(|known| *known == name)?;
        self.values.get(index).copied()
    }

    fn count(&self, name: &str, direction: &str) -> u64 {
        self.text(&format!("{name}_{direction}"))
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

    fn address(&self, end: &str) -> Option<SocketAddr> {
        let address: IpAddr = self.text(&format!("host_{end}"))?.parse().ok()?;
        Some(SocketAddr::new(
            address,
            self.text(&format!("port_{end}"))?.parse().ok()?,
        ))
    }

    fn add_to(&self, capture: &mut ReadCapture) -> Option<()> {
        let (pair, first) = ordered_pair(self.address("a")?, self.address("b")?);
        let read = capture.entry(pair).or_default();
        read.connections += 1;
        for (direction, index) in [("a2b", first), ("b2a", 1 - first)] {
            let end = &mut read.ends[index];
            end.bytes += self.count("actual_data_bytes", direction);
            end.repeated +=
                self.count("rexmt_data_pkts", direction) + self.count("outoforder_pkts", direction);
            end.zero_windows += self.count("zero_win_adv", direction);
        }
        Some(())
    }
}

/// Returns the counts of `trace`, and the addresses of which no figure can be compared: packets
/// that were captured twice are left out here alone.
fn own_counts(report: &CaptureReport) -> (ReadCapture, BTreeSet<[SocketAddr; 2]>) {
    let (mut capture, mut duplicated) = (ReadCapture::new(), BTreeSet::new());
    for flow in &report.flows {
        let Some([one, other]) = parsed_addresses(flow) else {
            continue;
        };
        let (pair, first) = ordered_pair(one, other);
        let read = capture.entry(pair).or_default();
        read.connections += 1;
        for (index, end) in [first, 1 - first].into_iter().zip(&flow.ends) {
            let read = &mut read.ends[index];
            read.bytes += end.bytes.get();
            read.repeated += end.retransmitted_packets + end.late_packets;
            read.zero_windows += end.window.map_or(0, |window| window.zero);
            read.repeated_openings += end.syns.saturating_sub(1) + end.fins.saturating_sub(1);
        }
        if flow.ends.iter().any(|end| end.duplicates > 0) {
            duplicated.insert(pair);
        }
    }
    (capture, duplicated)
}

/// A figure that another reader has otherwise.
struct ReaderDifference {
    kind: FindingKind,
    /// The figure, or the direction of a connection that it is of.
    subject: String,
    ours: u64,
    theirs: u64,
}

/// Returns the differences between the report and other readers, each with the figures of all
/// readers that differ.
pub(crate) fn find_differences(
    report: &CaptureReport,
    witnesses: &Witnesses,
    reads: &[(OtherReader, ReadCapture)],
) -> Vec<(FindingKind, String)> {
    let mut differing: BTreeMap<(FindingKind, String, u64), Vec<String>> = BTreeMap::new();
    for (reader, read) in reads {
        for difference in differences_from(report, witnesses, *reader, read) {
            let ReaderDifference {
                kind,
                subject,
                ours,
                theirs,
            } = difference;
            differing
                .entry((kind, subject, ours))
                .or_default()
                .push(format!("{} {theirs}", reader.name()));
        }
    }
    let differing = differing.into_iter();
    differing
        .map(|((kind, subject, ours), theirs)| {
            (
                kind,
                format!("{subject}: {ours} here, {}", theirs.join(", ")),
            )
        })
        .collect()
}

fn differences_from(
    report: &CaptureReport,
    witnesses: &Witnesses,
    reader: OtherReader,
    read: &ReadCapture,
) -> Vec<ReaderDifference> {
    // Link types that it does not know are no error of tcptrace's.
    if reader == OtherReader::Tcptrace && read.is_empty() {
        return Vec::new();
    }
    let (own, duplicated) = own_counts(report);
    let mut found: Vec<ReaderDifference> =
        connection_difference(report, read).into_iter().collect();
    for (pair, theirs) in read.iter().filter(|(pair, _)| !duplicated.contains(*pair)) {
        let Some(own) = own
            .get(pair)
            .filter(|own| own.connections == theirs.connections)
        else {
            continue;
        };
        for (index, (own, theirs)) in own.ends.iter().zip(&theirs.ends).enumerate() {
            let probes = witnesses
                .get(pair)
                .map_or(0, |connection| connection.ends[index].probes);
            // Tcptrace takes a repeated SYN for repeated data.
            let openings = if reader == OtherReader::Tcptrace {
                own.repeated_openings
            } else {
                0
            };
            let subject = format!("{} {}", pair[index], pair[1 - index]);
            for (kind, ours, theirs) in end_differences(own, theirs, [probes, openings]) {
                found.push(ReaderDifference {
                    kind,
                    subject: subject.clone(),
                    ours,
                    theirs,
                });
            }
        }
    }
    found
}

/// Returns the difference in the number of connections, if there is one.
fn connection_difference(report: &CaptureReport, read: &ReadCapture) -> Option<ReaderDifference> {
    let ours = report.flows.len() as u64 + report.unanswered + report.left_out;
    let theirs: u64 = read.values().map(|pair| pair.connections).sum();
    let is_silent = ours == 0 && report.notes.is_empty();
    let kind = if is_silent {
        FindingKind::NotRead
    } else {
        FindingKind::Connections
    };
    let said = if report.notes.is_empty() {
        ", and no note"
    } else {
        ""
    };
    let subject = format!("connections{said}");
    (ours != theirs).then_some(ReaderDifference {
        kind,
        subject,
        ours,
        theirs,
    })
}

/// Returns the differences in one direction, with both figures. Readers may count probes, of a byte
/// each, as data and as retransmissions or not, and some count repeated openings as
/// retransmissions.
fn end_differences(
    own: &ReadEnd,
    theirs: &ReadEnd,
    [probes, openings]: [u64; 2],
) -> Vec<(FindingKind, u64, u64)> {
    let may_differ = probes + openings;
    let same_repetitions = own.repeated.abs_diff(theirs.repeated) <= may_differ;
    [
        (
            FindingKind::Bytes,
            own.bytes,
            theirs.bytes,
            own.bytes.abs_diff(theirs.bytes) <= probes,
        ),
        (
            FindingKind::Retransmissions,
            own.repeated,
            theirs.repeated,
            same_repetitions,
        ),
        (
            FindingKind::ZeroWindows,
            own.zero_windows,
            theirs.zero_windows,
            own.zero_windows == theirs.zero_windows,
        ),
    ]
    .into_iter()
    .filter_map(|(kind, ours, theirs, is_same)| (!is_same).then_some((kind, ours, theirs)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::witness::read_witnesses;
    use super::*;
    use crate::corpus::simulated_capture;
    use fullpipe_experiment::{Interrupt, KnownFacts, judge_files};
    use fullpipe_testkit::require;
    use fullpipe_trace::ExplainedTransfers;

    #[test]
    fn every_reader_counts_the_same_in_a_clean_transfer_and_a_difference_is_found() {
        require!(Tshark, Tcptrace);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), simulated_capture()).unwrap();
        let never = AtomicBool::new(false);
        let judged = judge_files(
            file.path(),
            None,
            ExplainedTransfers::Largest(1),
            &KnownFacts::default(),
            Interrupt(&never),
        );
        let mut report = judged.unwrap();
        let witnesses = read_witnesses(file.path()).unwrap();
        let read = OtherReader::ALL
            .map(|reader| (reader, reader.read_capture(file.path(), &never).unwrap()));
        assert!(read.iter().all(|(_, read)| read.len() == 1), "{read:?}");
        assert_eq!(find_differences(&report, &witnesses, &read), []);
        report.unanswered += 1;
        report.flows[0].ends[0].late_packets += 3;
        let differences = find_differences(&report, &witnesses, &read);
        let kinds: Vec<FindingKind> = differences.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(
            kinds,
            [FindingKind::Connections, FindingKind::Retransmissions],
            "{differences:?}"
        );
        assert_eq!(
            differences[0].1,
            "connections, and no note: 2 here, tshark 1, tcptrace 1"
        );
    }

    #[test]
    fn the_innermost_addresses_are_those_of_the_connection() {
        let of_tunnel = [
            "raw:ipv6:ip:tcp",
            "0",
            "192.0.2.1",
            "fe80::1",
            "192.0.2.2",
            "fe80::2",
            "4000",
            "80",
        ];
        let fields: Vec<&str> = of_tunnel
            .into_iter()
            .chain(["100", "", "", "", "", ""])
            .collect();
        let (pair, from) = tshark_pair(&fields).unwrap();
        assert_eq!(
            (pair, from),
            (
                ["192.0.2.1:4000", "192.0.2.2:80"].map(|end| end.parse().unwrap()),
                0
            )
        );
    }

    #[test]
    fn probes_count_as_either() {
        let end = |repeated| ReadEnd {
            repeated,
            ..ReadEnd::default()
        };
        assert_eq!(end_differences(&end(0), &end(2), [2, 0]), []);
        assert_eq!(end_differences(&end(0), &end(3), [2, 1]), []);
        assert_eq!(
            end_differences(&end(0), &end(3), [2, 0]),
            [(FindingKind::Retransmissions, 0, 3)]
        );
    }
}
