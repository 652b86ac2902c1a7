//! The comparisons.

use std::sync::atomic::AtomicBool;

use clap::ValueEnum;
use fullpipe_lab::AwakeProcessors;
use fullpipe_record::Segmentation;

use crate::comparison::Outcome;
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
    /// and datagrams of 1448 bytes as fast as they go; then both again without keeping the
    /// processors awake
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

/// The length of a run and the number of rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    /// True if the processors are kept awake.
    pub(crate) keeps_awake: bool,
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

    /// Returns whether it decides by itself when the processors are kept awake.
    pub(crate) fn decides_on_sleep(self) -> bool {
        self == Self::DropIn
    }

    /// Runs it.
    pub(crate) fn run(self, effort: Effort, tools: &Tools, stop: &AtomicBool) -> Outcome {
        if let (Err(why), false) = (&tools.iperf3.version, self == Self::LabFigures) {
            return Outcome::skipped(&format!("there is nothing to compare with: {why}"));
        }
        let compare = |contestants: Vec<Contestant>, joint, traffic, streams| {
            let absent: Vec<String> = contestants
                .iter()
                .filter_map(|contestant| absent(contestant, tools))
                .collect();
            let present: Vec<Contestant> = contestants
                .into_iter()
                .filter(|contestant| self::absent(contestant, tools).is_none())
                .collect();
            let load = Load {
                traffic,
                streams,
                seconds: effort.seconds,
            };
            throughput::compare(&present, joint, &load, effort.rounds, tools, stop)
                .with_notes(absent)
        };
        match self {
            Self::Tcp => compare(everybody(), Joint::Loopback, Traffic::Tcp, 1),
            Self::RxCopy => compare(
                vec![copying(tools), iperf3()],
                Joint::Loopback,
                Traffic::Tcp,
                1,
            ),
            Self::Ends => compare(mixed(), Joint::Loopback, Traffic::Tcp, 1),
            Self::SkipRxCopy if !tools.iperf3.knows(SKIP_RX_COPY) => Outcome::skipped(&format!(
                "the iperf3 that is installed has no {SKIP_RX_COPY}"
            )),
            Self::SkipRxCopy => compare(discarding(), Joint::Loopback, Traffic::Tcp, 1),
            Self::DropIn => drop_in(effort.keeps_awake, compare),
            Self::Udp => compare(everybody(), Joint::Loopback, Traffic::Flood, 1),
            Self::UdpVeth => compare(everybody(), Joint::VethSingle, Traffic::Flood, 1),
            Self::Streams => compare(everybody(), Joint::Loopback, Traffic::Tcp, 4),
            Self::StreamsVeth => compare(everybody(), Joint::Veth, Traffic::Tcp, 4),
            Self::LabTrains => emulated::compare(Segmentation::Trains, effort, tools, stop),
            Self::LabExact => emulated::compare(Segmentation::Exact, effort, tools, stop),
            Self::LabSegmentation => emulated::compare_segmentation(effort, tools, stop),
            Self::LabFigures => lab_figures::measure(tools, stop),
            Self::Start => start::compare(tools, stop),
        }
    }
}

const SKIP_RX_COPY: &str = "--skip-rx-copy";
const RX_COPY: &str = "--rx-copy";

fn everybody() -> Vec<Contestant> {
    vec![
        fullpipe(&[]),
        Contestant::alone("iperf", Program::Iperf2, &[]),
        iperf3(),
    ]
}

fn fullpipe(flags: &[&'static str]) -> Contestant {
    Contestant::alone("fullpipe", Program::Fullpipe, flags)
}

fn iperf3() -> Contestant {
    Contestant::alone("iperf3", Program::Iperf3, &[])
}

/// A `fullpipe` without the flag always copies.
fn copying(tools: &Tools) -> Contestant {
    if tools.fullpipe.knows(RX_COPY) {
        Contestant::alone("fullpipe --rx-copy", Program::Fullpipe, &[RX_COPY])
    } else {
        Contestant::alone("fullpipe (no --rx-copy)", Program::Fullpipe, &[])
    }
}

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
        iperf3(),
    ]
}

fn drop_in(
    keeps_awake: bool,
    compare: impl Fn(Vec<Contestant>, Joint, Traffic, u16) -> Outcome,
) -> Outcome {
    let in_turn = |outcome: Outcome, kind: &str| {
        [Traffic::Tcp, Traffic::Flood]
            .into_iter()
            .fold(outcome, |outcome, traffic| {
                if outcome.interrupted {
                    return outcome;
                }
                let contestants = [
                    ("fullpipe iperf3", Program::DropIn),
                    ("iperf3", Program::Iperf3),
                ];
                let contestants = contestants.map(|(name, program)| {
                    Contestant::alone(&format!("{name}{kind}"), program, &[])
                });
                outcome.followed_by(compare(contestants.into(), Joint::Loopback, traffic, 1))
            })
    };
    let mut outcome = Outcome::default();
    if keeps_awake {
        let _awake = AwakeProcessors::keep_awake();
        outcome = in_turn(outcome, "");
    }
    in_turn(outcome, ", ordinary")
}

fn discarding() -> Vec<Contestant> {
    vec![
        fullpipe(&[]),
        Contestant::alone("iperf3 --skip-rx-copy", Program::Iperf3, &[SKIP_RX_COPY]),
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
