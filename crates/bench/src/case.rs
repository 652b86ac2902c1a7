//! The comparisons.

use std::sync::atomic::AtomicBool;

use clap::ValueEnum;
use fullpipe_record::Segmentation;

use crate::comparison::{Effort, Outcome};
use crate::network::Joint;
use crate::program::{Load, Program, Tools, Traffic};
use crate::throughput::{self, Contestant};
use crate::{emulated, lab_figures, start};

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// One TCP stream over loopback, each program as it is by default
    Tcp,
    /// One TCP stream whose receiver copies, as iperf3's does
    RxCopy,
    /// One TCP stream to and from iperf3
    Ends,
    /// One TCP stream against an iperf3 whose receiver does not copy
    SkipRxCopy,
    /// `fullpipe iperf3` at both ends against iperf3 at both ends, over loopback: one TCP stream,
    /// and datagrams of 1448 bytes as fast as they go
    DropIn,
    /// UDP as fast as it goes over loopback, 1448 bytes a datagram
    Udp,
    /// The same datagrams over a pair of devices without UDP segmentation
    UdpVeth,
    /// Four TCP streams over loopback
    Streams,
    /// Four TCP streams over a pair of devices
    StreamsVeth,
    /// One TCP stream over the lab's path, in trains, against a pair of devices
    LabTrains,
    /// The same, segment by segment
    LabExact,
    /// The same transfer at 1 Gbit/s, segment by segment and in trains
    LabSegmentation,
    /// The lab against its own path: round trips, lateness, rate and memory
    LabFigures,
    /// From the start of the program to its first byte of data, over loopback
    Start,
}

impl Case {
    /// As it is called on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    /// Returns what `--help` says of it.
    pub(crate) fn title(self) -> String {
        let help = self
            .to_possible_value()
            .and_then(|value| value.get_help().map(ToString::to_string));
        help.unwrap_or_default()
    }

    /// Runs it.
    pub(crate) fn run(self, effort: Effort, tools: &Tools, stop: &AtomicBool) -> Outcome {
        if let (Err(why), false) = (&tools.iperf3.version, self == Self::LabFigures) {
            return Outcome::skipped(&format!("there is nothing to compare with: {why}"));
        }
        let compare = |contestants: Vec<Contestant>, joint, traffic, streams| {
            let why_absent = |contestant: &Contestant| absent(contestant, tools);
            let absent: Vec<String> = contestants.iter().filter_map(why_absent).collect();
            let mut present = contestants;
            present.retain(|contestant| why_absent(contestant).is_none());
            let load = Load {
                traffic,
                streams,
                seconds: effort.seconds,
            };
            throughput::compare(&present, joint, &load, effort.rounds, tools, stop)
                .with_notes(absent)
        };
        let alone = |name: &str, program, flag: &'static str| {
            let flags = Some(flag).filter(|flag| !flag.is_empty());
            Contestant::alone(name, program, flags.as_slice())
        };
        let (fullpipe, iperf3) = (
            || alone("fullpipe", Program::Fullpipe, ""),
            || alone("iperf3", Program::Iperf3, ""),
        );
        let all = || vec![fullpipe(), alone("iperf", Program::Iperf2, ""), iperf3()];
        let (loopback, tcp, flood) = (Joint::Loopback, Traffic::Tcp, Traffic::Flood);
        match self {
            Self::Tcp => compare(all(), loopback, tcp, 1),
            Self::RxCopy => {
                let copying = alone("fullpipe --rx-copy", Program::Fullpipe, "--rx-copy");
                compare(vec![copying, iperf3()], loopback, tcp, 1)
            }
            Self::Ends => compare(mixed(), loopback, tcp, 1),
            Self::SkipRxCopy if !tools.iperf3.knows(SKIP_RX_COPY) => Outcome::skipped(&format!(
                "the iperf3 that is installed has no {SKIP_RX_COPY}"
            )),
            Self::SkipRxCopy => {
                let skipping = alone("iperf3 --skip-rx-copy", Program::Iperf3, SKIP_RX_COPY);
                compare(vec![fullpipe(), skipping], loopback, tcp, 1)
            }
            Self::DropIn => {
                let drop_in = || vec![alone("fullpipe iperf3", Program::DropIn, ""), iperf3()];
                let streams = compare(drop_in(), loopback, tcp, 1);
                if streams.interrupted {
                    return streams;
                }
                streams.followed_by(compare(drop_in(), loopback, flood, 1))
            }
            Self::Udp => compare(all(), loopback, flood, 1),
            Self::UdpVeth => compare(all(), Joint::VethSingle, flood, 1),
            Self::Streams => compare(all(), loopback, tcp, 4),
            Self::StreamsVeth => compare(all(), Joint::Veth, tcp, 4),
            Self::LabTrains => emulated::compare(Segmentation::Trains, effort, tools, stop),
            Self::LabExact => emulated::compare(Segmentation::Exact, effort, tools, stop),
            Self::LabSegmentation => emulated::compare_segmentation(effort, tools, stop),
            Self::LabFigures => lab_figures::measure(tools, stop),
            Self::Start => start::compare(tools, stop),
        }
    }
}

const SKIP_RX_COPY: &str = "--skip-rx-copy";
fn mixed() -> Vec<Contestant> {
    let between = |name: &str, client, server| Contestant {
        name: name.to_owned(),
        client,
        server,
        flags: Vec::new(),
    };
    vec![
        between("fullpipe to iperf3", Program::Fullpipe, Program::Iperf3),
        between("iperf3 to fullpipe", Program::Iperf3, Program::Fullpipe),
        between("iperf3", Program::Iperf3, Program::Iperf3),
    ]
}

/// Why a contestant cannot take part.
fn absent(contestant: &Contestant, tools: &Tools) -> Option<String> {
    let versions = [contestant.client, contestant.server].map(|program| &tools.of(program).version);
    versions
        .into_iter()
        .find_map(|version| version.as_ref().err())
        .map(|why| format!("{}: {why}", contestant.name))
}
