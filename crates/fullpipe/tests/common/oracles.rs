//! Figures of captures by other programs, which those of `trace` are compared with.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use fullpipe_testkit::document;
use serde_json::Value;

use super::{fullpipe, run};

const TIMEOUT: u64 = 60;

/// Longest difference of two means of times in nanoseconds, one of which is rounded down.
const ROUNDING: f64 = 2e-9;

/// Returns what `trace` finds in these files.
pub(crate) fn traced(files: &[&Path]) -> Value {
    let names = files.iter().map(|file| file.to_str().unwrap());
    let words: Vec<&str> = ["trace", "--json"].into_iter().chain(names).collect();
    document(&run(&mut fullpipe(&words), TIMEOUT))["capture"].clone()
}

/// Asserts that the figures of a capture without losses on the way are those of tshark, for each
/// end of each connection: windows of zero, duplicate acknowledgements, the most in flight and
/// round-trip times.
pub(crate) fn agrees_with_tshark(file: &Path) {
    let (theirs, shown) = (tshark(file), file.display());
    for (stream, flow) in traced(&[file])["flows"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
    {
        let ends = [0, 1].map(|end| &flow["ends"][end]);
        for (end, other) in [(0, 1), (1, 0)] {
            let of_end =
                |end: usize| &theirs[&(stream, ends[end]["address"].as_str().unwrap().to_owned())];
            let (sent, answers, ours) = (of_end(end), of_end(other), ends[end]);
            let counted = (sent.packets, sent.zero_windows, sent.duplicate_acks);
            let number = |value: &Value| value.as_u64().unwrap_or_default();
            let found = (
                number(&ours["packets"]),
                number(&ours["window"]["zero"]),
                number(&ours["duplicate_acks"]),
            );
            assert_eq!(found, counted, "{shown}: {ours}");
            // A SYN or FIN counts as in flight here, and does not there.
            if ours["data_packets"] != 0 {
                assert_eq!(ours["flight"], sent.flight, "{shown}: {ours}");
            }
            // What was sent again gives no time here, and does there.
            if ours["retransmitted_packets"] != 0 {
                continue;
            }
            assert_eq!(
                number(&ours["rtt"]["samples"]),
                answers.rtts.len() as u64,
                "{shown}: {ours}"
            );
            if !answers.rtts.is_empty() {
                let mean = answers.rtts.iter().sum::<f64>() / answers.rtts.len() as f64;
                let least = answers.rtts.iter().copied().fold(f64::MAX, f64::min);
                let most = answers.rtts.iter().copied().fold(0.0, f64::max);
                for (name, theirs) in [("least", least), ("mean", mean), ("most", most)] {
                    let ours = ours["rtt"][name].as_f64().unwrap();
                    assert!(
                        (ours - theirs).abs() <= ROUNDING,
                        "{shown}: {name} {ours} and {theirs} s"
                    );
                }
            }
        }
    }
}

/// The packets of one end by tshark.
#[derive(Debug, Default)]
struct Shark {
    packets: u64,
    zero_windows: u64,
    duplicate_acks: u64,
    flight: u64,
    /// Of the data that it acknowledges.
    rtts: Vec<f64>,
}

/// Reads `file` with tshark, by stream and by the address of the end that sent.
fn tshark(file: &Path) -> BTreeMap<(usize, String), Shark> {
    const FIELDS: [&str; 7] = [
        "tcp.stream",
        "ip.src",
        "tcp.srcport",
        "tcp.analysis.zero_window",
        "tcp.analysis.duplicate_ack",
        "tcp.analysis.bytes_in_flight",
        "tcp.analysis.ack_rtt",
    ];
    let mut ends: BTreeMap<_, Shark> = BTreeMap::new();
    for [stream, address, port, zero, duplicate, flight, rtt] in tshark_fields(file, "tcp", FIELDS)
    {
        let end = ends
            .entry((stream.parse().unwrap(), format!("{address}:{port}")))
            .or_default();
        end.packets += 1;
        end.zero_windows += u64::from(!zero.is_empty());
        end.duplicate_acks += u64::from(!duplicate.is_empty());
        end.flight = end.flight.max(flight.parse().unwrap_or_default());
        end.rtts.extend(rtt.parse::<f64>().ok());
    }
    ends
}

/// Returns fields of the packets in `file` that pass `filter`, as tshark reads them; checksums are
/// checked.
pub(crate) fn tshark_fields<const N: usize>(
    file: &Path,
    filter: &str,
    fields: [&str; N],
) -> Vec<[String; N]> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args([
        "-o",
        "tcp.check_checksum:TRUE",
        "-Y",
        filter,
        "-T",
        "fields",
    ]);
    let output = run(
        command.args(fields.iter().flat_map(|name| ["-e", name])),
        TIMEOUT,
    );
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let fields = |line: &str| {
        line.split('\t')
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap()
    };
    text.lines().map(fields).collect()
}

/// Asserts that the figures of a capture are those of tcptrace, for each end of each connection. It
/// counts one byte too many in flight, and 2³² too few where sequence numbers begin anew at zero;
/// its smallest window is not zero where there is a larger one.
pub(crate) fn agrees_with_tcptrace(file: &Path) {
    let output = run(Command::new("tcptrace").arg("-nlrW").arg(file), TIMEOUT);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let blocks: Vec<&str> = text
        .split("\nTCP connection ")
        .skip(1)
        .filter(|block| !block.starts_with("info"))
        .collect();
    let (capture, shown) = (traced(&[file]), file.display());
    let flows = capture["flows"].as_array().unwrap();
    assert_eq!(blocks.len(), flows.len(), "{text}");
    for (block, flow) in blocks.iter().zip(flows) {
        for (label, name) in LABELS {
            let theirs = labelled(block, label);
            for (ours, theirs) in flow["ends"].as_array().unwrap().iter().zip(theirs) {
                if label == "min win adv" && ours["window"]["zero"] != 0 {
                    continue;
                }
                let ours = name
                    .split('/')
                    .fold(ours, |value, key| &value[key])
                    .as_u64()
                    .unwrap_or_default();
                assert_eq!(ours, theirs, "{label} of {shown}: {flow}\n{block}");
            }
        }
        let in_flight = labelled(block, "max owin");
        for (ours, theirs) in flow["ends"].as_array().unwrap().iter().zip(in_flight) {
            let begins_anew = theirs > u32::MAX.into();
            if ours["data_packets"] != 0 && !begins_anew {
                assert_eq!(
                    ours["flight"].as_u64().unwrap() + 1,
                    theirs,
                    "max owin of {shown}\n{block}"
                );
            }
        }
    }
}

/// Labels of tcptrace, each with the figure of an end that it is.
const LABELS: [(&str, &str); 14] = [
    ("total packets", "packets"),
    ("actual data pkts", "data_packets"),
    ("actual data bytes", "bytes"),
    ("unique bytes sent", "unique_bytes"),
    ("rexmt data pkts", "retransmitted_packets"),
    ("rexmt data bytes", "retransmitted_bytes"),
    ("outoforder pkts", "late_packets"),
    ("sack pkts sent", "sack_packets"),
    ("max win adv", "window/most"),
    ("min win adv", "window/least"),
    ("zero win adv", "window/zero"),
    ("max segm size", "largest"),
    ("min segm size", "smallest"),
    ("initial window", "initial_window"),
];

/// Returns the first values with this label for both ends.
fn labelled(block: &str, label: &str) -> [u64; 2] {
    let label = format!("{label}:");
    let values = |line: &str| -> Vec<u64> {
        line.split(&label)
            .skip(1)
            .filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
            .collect()
    };
    // The lines before those with a column for each end have totals.
    let both = block
        .lines()
        .find_map(|line| <[u64; 2]>::try_from(values(line)).ok());
    both.unwrap_or_else(|| panic!("no {label} in {block}"))
}
