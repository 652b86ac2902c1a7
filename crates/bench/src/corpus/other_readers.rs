//! Connections, bytes and retransmissions as tshark and tcptrace count them in the same captures.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fullpipe_record::CaptureReport;

use super::contradictions::{Contradiction, parsed_addresses};
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

/// The figures of one direction in which two readers can be compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct DirectionCounts {
    bytes: u64,
    /// Packets with data below what had been sent: retransmitted, or late.
    repeated: u64,
    zero_windows: u64,
    /// Repeated packets that open or close the connection; of ours alone.
    repeated_openings: u64,
}

/// The connections between two addresses, as a reader counts them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PairCounts {
    connections: u64,
    /// The end with the lesser address first.
    ends: [DirectionCounts; 2],
}

/// The content of a capture as a reader counts it.
pub(crate) type CaptureCounts = BTreeMap<[SocketAddr; 2], PairCounts>;

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
    pub(crate) fn read_capture(self, path: &Path, stop: &AtomicBool) -> Option<CaptureCounts> {
        let mut command = Command::new(self.name());
        if self == Self::Tcptrace {
            command.args(["-ln", "--csv"]).arg(path);
        } else {
            command.args(["-n", "-r"]).arg(path);
            command.args(["-T", "fields", "-E", "occurrence=l"]);
            command.args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]);
            command.args(["-o", "tcp.desegment_tcp_streams:FALSE"]);
            command.args(["-Y", "tcp && !icmp && !icmpv6"]);
            command.args(TSHARK_FIELDS.iter().flat_map(|field| ["-e", field]));
        }
        let process = Process::start(&mut command).ok()?;
        let ended = process.finish(TIMEOUT, stop).ok()?;
        match self {
            Self::Tshark if !ended.succeeded && ended.stdout.is_empty() => None,
            Self::Tshark => Some(tshark_counts(&ended.stdout)),
            Self::Tcptrace => tcptrace_counts(&ended.stdout),
        }
    }
}

fn tshark_counts(output: &str) -> CaptureCounts {
    let mut counts = CaptureCounts::new();
    let mut streams = BTreeSet::new();
    for line in output.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let Some((addresses, from)) = tshark_addresses(&fields) else {
            continue;
        };
        let pair = counts.entry(addresses).or_default();
        pair.connections += u64::from(streams.insert((addresses, fields[1])));
        let end = &mut pair.ends[from];
        let bytes: u64 = fields[8].parse().unwrap_or(0);
        end.bytes += bytes;
        end.repeated += u64::from(bytes > 0 && fields[9..13].iter().any(|label| !label.is_empty()));
        end.zero_windows += u64::from(!fields[13].is_empty());
    }
    counts
}

/// Returns the two addresses of a packet by its innermost headers, and the index of its sender.
fn tshark_addresses(fields: &[&str]) -> Option<([SocketAddr; 2], usize)> {
    if fields.len() != TSHARK_FIELDS.len() {
        return None;
    }
    // Of a packet within another both versions of IP have addresses.
    let mut protocols = fields[0].rsplit(':');
    let version = protocols.find(|protocol| ["ip", "ipv6"].contains(protocol))?;
    let first = if version == "ip" { 2 } else { 3 };
    Some(ordered_pair(
        parse_socket(fields[first], fields[6])?,
        parse_socket(fields[first + 2], fields[7])?,
    ))
}

fn parse_socket(address: &str, port: &str) -> Option<SocketAddr> {
    let address: IpAddr = address.parse().ok()?;
    Some(SocketAddr::new(address, port.parse().ok()?))
}

/// Returns the counts of tcptrace; `None` if it printed no table, as of a file that it cannot read.
fn tcptrace_counts(output: &str) -> Option<CaptureCounts> {
    let mut lines = output
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let names = lines.next().filter(|names| names[0] == "conn_#")?;
    let mut counts = CaptureCounts::new();
    for values in lines {
        let row: BTreeMap<&str, &str> = names.iter().copied().zip(values).collect();
        add_tcptrace_row(&row, &mut counts);
    }
    Some(counts)
}

fn add_tcptrace_row(row: &BTreeMap<&str, &str>, counts: &mut CaptureCounts) -> Option<()> {
    let (addresses, first) = ordered_pair(
        parse_socket(row.get("host_a")?, row.get("port_a")?)?,
        parse_socket(row.get("host_b")?, row.get("port_b")?)?,
    );
    let pair = counts.entry(addresses).or_default();
    pair.connections += 1;
    for (direction, index) in [("a2b", first), ("b2a", 1 - first)] {
        let count = |name: &str| {
            let text = row.get(format!("{name}_{direction}").as_str());
            text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        };
        let end = &mut pair.ends[index];
        end.bytes += count("actual_data_bytes");
        end.repeated += count("rexmt_data_pkts") + count("outoforder_pkts");
        end.zero_windows += count("zero_win_adv");
    }
    Some(())
}

/// Returns the counts of `trace`, without the addresses of which packets were captured twice: those
/// are left out by `trace` alone, so that no figure can be compared.
fn own_counts(report: &CaptureReport) -> CaptureCounts {
    let (mut counts, mut duplicated) = (CaptureCounts::new(), BTreeSet::new());
    for flow in &report.flows {
        let Some([one, other]) = parsed_addresses(flow) else {
            continue;
        };
        let (addresses, first) = ordered_pair(one, other);
        let pair = counts.entry(addresses).or_default();
        pair.connections += 1;
        for (index, end) in [first, 1 - first].into_iter().zip(&flow.ends) {
            let counted = &mut pair.ends[index];
            counted.bytes += end.bytes.get();
            counted.repeated += end.retransmitted_packets + end.late_packets;
            counted.zero_windows += end.window.map_or(0, |window| window.zero);
            counted.repeated_openings += end.syns.saturating_sub(1) + end.fins.saturating_sub(1);
            if end.duplicates > 0 {
                duplicated.insert(addresses);
            }
        }
    }
    counts.retain(|addresses, _| !duplicated.contains(addresses));
    counts
}

/// A figure that another reader has otherwise: its kind, the figure or the direction of a
/// connection, ours, and theirs.
type CountDifference = (&'static str, String, [u64; 2]);

/// Returns the differences between the report and other readers, each with the figures of all
/// readers that differ.
pub(crate) fn find_differences(
    report: &CaptureReport,
    witnesses: &Witnesses,
    reads: &[(OtherReader, CaptureCounts)],
) -> Vec<Contradiction> {
    let mut differing: BTreeMap<(&'static str, String, u64), Vec<String>> = BTreeMap::new();
    for (reader, counts) in reads {
        for (kind, subject, [ours, theirs]) in differences_from(report, witnesses, *reader, counts)
        {
            let readers = differing.entry((kind, subject, ours)).or_default();
            readers.push(format!("{} {theirs}", reader.name()));
        }
    }
    differing
        .into_iter()
        .map(|((kind, subject, ours), readers)| {
            let figures = format!("{subject}: {ours} here, {}", readers.join(", "));
            (kind, figures)
        })
        .collect()
}

fn differences_from(
    report: &CaptureReport,
    witnesses: &Witnesses,
    reader: OtherReader,
    counts: &CaptureCounts,
) -> Vec<CountDifference> {
    // Link types that it does not know are no error of tcptrace's.
    if reader == OtherReader::Tcptrace && counts.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<CountDifference> =
        connection_difference(report, counts).into_iter().collect();
    let own = own_counts(report);
    for (addresses, theirs) in counts {
        let Some(own) = own
            .get(addresses)
            .filter(|own| own.connections == theirs.connections)
        else {
            continue;
        };
        let witness = witnesses.get(addresses);
        for (index, (own, theirs)) in own.ends.iter().zip(&theirs.ends).enumerate() {
            let probes = witness.map_or(0, |connection| connection.ends[index].probes);
            // Tcptrace takes a repeated SYN for repeated data.
            let openings = match reader {
                OtherReader::Tcptrace => own.repeated_openings,
                OtherReader::Tshark => 0,
            };
            let subject = format!("{} {}", addresses[index], addresses[1 - index]);
            let differences = end_differences(own, theirs, [probes, openings]);
            found.extend(differences.map(|(kind, both)| (kind, subject.clone(), both)));
        }
    }
    found
}

/// Returns the difference in the number of connections, if there is one.
fn connection_difference(
    report: &CaptureReport,
    counts: &CaptureCounts,
) -> Option<CountDifference> {
    let ours = report.flows.len() as u64 + report.unanswered + report.left_out;
    let theirs: u64 = counts.values().map(|pair| pair.connections).sum();
    let (kind, subject) = match report.notes.is_empty() {
        true if ours == 0 => ("not-read", "connections, and no note"),
        true => ("connections", "connections, and no note"),
        false => ("connections", "connections"),
    };
    (ours != theirs).then(|| (kind, subject.to_owned(), [ours, theirs]))
}

/// Returns the differences in one direction, with both figures. Readers may count probes, of a byte
/// each, as data and as retransmissions or not, and some count repeated openings as
/// retransmissions.
fn end_differences(
    own: &DirectionCounts,
    theirs: &DirectionCounts,
    [probes, openings]: [u64; 2],
) -> impl Iterator<Item = (&'static str, [u64; 2])> + use<> {
    let repeated = [own.repeated, theirs.repeated];
    [
        ("bytes", [own.bytes, theirs.bytes], probes),
        ("retransmissions", repeated, probes + openings),
        ("zero-windows", [own.zero_windows, theirs.zero_windows], 0),
    ]
    .into_iter()
    .filter(|(_, [ours, theirs], permitted)| ours.abs_diff(*theirs) > *permitted)
    .map(|(kind, both, _)| (kind, both))
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
    fn readers_agree_on_a_clean_transfer_and_a_difference_is_found() {
        require!(Tshark, Tcptrace);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), simulated_capture()).unwrap();
        let never = AtomicBool::new(false);
        let explained = ExplainedTransfers::Largest(1);
        let known = KnownFacts::default();
        let judged = judge_files(file.path(), None, explained, &known, Interrupt(&never));
        let mut report = judged.unwrap();
        let witnesses = read_witnesses(file.path()).unwrap();
        let reads = OtherReader::ALL
            .map(|reader| (reader, reader.read_capture(file.path(), &never).unwrap()));
        assert!(reads.iter().all(|(_, read)| read.len() == 1), "{reads:?}");
        assert!(find_differences(&report, &witnesses, &reads).is_empty());
        report.unanswered += 1;
        report.flows[0].ends[0].late_packets += 3;
        let differences = find_differences(&report, &witnesses, &reads);
        let kinds: Vec<&str> = differences.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, ["connections", "retransmissions"], "{differences:?}");
        assert_eq!(
            differences[0].1,
            "connections, and no note: 2 here, tshark 1, tcptrace 1"
        );
    }

    #[test]
    fn the_inner_addresses_of_a_tunnel_are_those_of_the_connection() {
        let outer = ["raw:ipv6:ip:tcp", "0", "192.0.2.1", "fe80::1", "192.0.2.2"];
        let inner = ["fe80::2", "4000", "80", "100", "", "", "", "", ""];
        let fields: Vec<&str> = outer.into_iter().chain(inner).collect();
        let ends = ["192.0.2.1:4000", "192.0.2.2:80"].map(|end| end.parse().unwrap());
        assert_eq!(tshark_addresses(&fields), Some((ends, 0)));
    }

    #[test]
    fn probes_count_as_either() {
        let counts = |repeated| DirectionCounts {
            repeated,
            ..DirectionCounts::default()
        };
        let differences = |theirs, permitted| {
            end_differences(&counts(0), &counts(theirs), permitted).collect::<Vec<_>>()
        };
        assert!(differences(2, [2, 0]).is_empty() && differences(3, [2, 1]).is_empty());
        assert_eq!(differences(3, [2, 0]), [("retransmissions", [0, 3])]);
    }
}
