//! `bench link-virtual`: how many packets in a second one direction of the emulated link carries in
//! virtual time.

use std::hint::black_box;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use fullpipe_link::{EditEffect, LinkDirection, Train};
use fullpipe_record::{
    Codel, Edit, Effects, Encapsulation, Framing, IpVersion, Jitter, PathDirection, Queueing,
    Reordering,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, Time, median};
use rustix::time::{ClockId, clock_gettime};

use crate::say;
use crate::statistics::quantile;

/// The runs to make.
#[derive(Debug, Args)]
pub(crate) struct VirtualLink {
    /// Number of runs over each path, each of a million packets
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    rounds: u16,
}

/// Packets of a run.
const PACKETS: u64 = 1_000_000;

/// Lengths of the trains: single packets, what the lab carries whole at 1 Gbit/s, and the longest
/// of a host.
const TRAINS: [u64; 3] = [1, 8, 45];

/// Size of each packet, headers of IP included.
const PACKET: ByteCount = ByteCount::new(1500);

/// Time between two full packets that come at 1.05 times 1 Gbit/s of Ethernet.
const GAP: Span = Span::from_nanos(12_304 * 100 / 105);

/// Full packets, with as many bytes of memory as a simulated segment of TCP needs for its fields.
#[derive(Debug, Clone)]
struct Packets {
    count: u64,
    _fields: [u64; 4],
}

impl VirtualLink {
    /// Prints the rate over each path. The exit code does not depend on it.
    pub(crate) fn run(&self) -> ExitCode {
        say(
            false,
            &format!(
                "median and fastest of {} runs, in million packets a second of processor time\n\n",
                self.rounds
            ),
        );
        for (name, path) in paths() {
            for train in TRAINS {
                let rates: Vec<f64> = (0..self.rounds)
                    .map(|seed| rate(&path, train, seed.into()) / 1e6)
                    .collect();
                let (Some(middle), Some(fastest)) = (median(rates.clone()), quantile(&rates, 1.0))
                else {
                    continue;
                };
                say(
                    false,
                    &format!("  {name:<28} trains of {train:>2}  {middle:8.2} {fastest:8.2}\n"),
                );
            }
        }
        ExitCode::SUCCESS
    }
}

/// Returns the packets per second of processor time that pass `path` when each train comes a moment
/// after the one before it and what is due is taken out in between.
fn rate(path: &PathDirection, train: u64, seed: u64) -> f64 {
    let mut link = LinkDirection::new(path, seed);
    let (mut now, gap) = (Time::ZERO, GAP * train);
    let mut arrived = 0;
    let begun = processor_time();
    for _ in 0..PACKETS / train {
        link.offer_train(
            now,
            Packets {
                count: train,
                _fields: [seed; 4],
            },
        );
        while let Some(delivery) = link.pop_arrived(now) {
            arrived += delivery.train.count;
        }
        black_box(link.next_deadline());
        now = now + gap;
    }
    let seconds = processor_time().saturating_sub(begun).as_secs_f64();
    assert!(black_box(arrived) > 0, "nothing arrived");
    (PACKETS / train * train) as f64 / seconds.max(f64::MIN_POSITIVE)
}

/// Returns the processor time of this thread: the machine may be busy with other work.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

/// Returns 1 Gbit/s and 50 ms with a queue of 20 ms, and what may be different there.
fn paths() -> Vec<(&'static str, PathDirection)> {
    let plain = PathDirection {
        rate: Some(BitRate::from_mbps(1000)),
        delay: Span::from_millis(50),
        queue: Some(ByteCount::new(2_500_000)),
        loss: Some(Ratio::ZERO),
        mtu: PACKET,
        framing: Framing::Ethernet,
        ip: IpVersion::V4,
        encapsulation: Encapsulation::default(),
        effects: Effects::default(),
    };
    let with = |effects| PathDirection {
        effects,
        ..plain.clone()
    };
    let managed = |queueing| {
        with(Effects {
            queueing,
            ..Effects::default()
        })
    };
    let jitter = fullpipe_record::Distribution::Uniform(Span::from_millis(1));
    let jitter = Some(Jitter {
        distribution: jitter,
        reorders: false,
    });
    let reordering = Some(Reordering {
        share: Ratio::new(1e-3),
        by: Span::from_millis(1),
    });
    vec![
        ("drop-tail", plain.clone()),
        (
            "drop-tail, 0.1 % lost",
            PathDirection {
                loss: Some(Ratio::new(1e-3)),
                ..plain.clone()
            },
        ),
        (
            "no rate",
            PathDirection {
                rate: None,
                queue: None,
                ..plain.clone()
            },
        ),
        (
            "reordering of 0.1 %",
            with(Effects {
                reordering,
                ..Effects::default()
            }),
        ),
        (
            "jitter",
            with(Effects {
                jitter,
                ..Effects::default()
            }),
        ),
        ("CoDel", managed(Queueing::Codel(Codel::default()))),
        ("FQ-CoDel", managed(Queueing::FqCodel(Codel::default()))),
    ]
}

impl Train for Packets {
    fn segment_count(&self) -> SegCount {
        SegCount::new(self.count)
    }

    fn segment_bytes(&self) -> ByteCount {
        PACKET
    }

    fn ip_bytes(&self) -> ByteCount {
        self.segment_count().of_size(PACKET)
    }

    fn split_off(&mut self, at: SegCount) -> Self {
        let rest = Self {
            count: self.count - at.get(),
            ..self.clone()
        };
        self.count = at.get();
        rest
    }

    fn flow_hash(&self) -> u64 {
        0
    }

    fn mark_ce(&mut self) -> bool {
        false
    }

    fn corrupt_bit(&mut self, _: u64) {}

    fn apply_edit(&mut self, _: &Edit) -> EditEffect {
        EditEffect::Unchanged
    }

    fn time_exceeded(&self, _: IpAddr) -> Option<Self> {
        None
    }

    fn too_big(&self, _: ByteCount) -> Option<Self> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_pass_every_path() {
        assert!(paths().iter().all(|(_, path)| rate(path, 45, 1) > 0.0));
    }
}
