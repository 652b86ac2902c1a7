//! The path as the kernel's own queueing disciplines make it: `tbf` queues and sends at a rate,
//! `netem` loses and delays.
//!
//! Between the hosts are two routers, each in a network namespace of its own. A packet is lost or
//! queued, and sent at the path's rate, where the router of its host sends to the other one; it is
//! delayed where that one sends to the far host. So it passes the stages in the order of
//! `fullpipe_link`: loss, queue, rate, delay. No discipline is on a host's own device, where it
//! would hold TCP back (TCP small queues) as no path does.
//!
//! The settings of `tbf` have been tested. Those of `netem` follow tc-netem(8) and the kernel's
//! `sch_netem.c`, and have not been tested against a kernel that has it.

use std::sync::Mutex;

use fullpipe_record::{IMPAIRMENTS, Path, PathDirection, Segmentation};
use fullpipe_sys::lock;
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
use serde::{Deserialize, Serialize};

use crate::awake::AwakeProcessors;
use crate::carried::DirectionCounts;

/// The device of each router that leads to its host. The host's own, at the other end, is called
/// the same.
pub(crate) const TO_HOST: &str = "path0";

/// The device of each router that leads to the other one.
pub(crate) const TO_ROUTER: &str = "path1";

/// Bytes of each packet above IP that the kernel counts: the header of Ethernet.
const HEADER: u64 = 14;

/// Time that a burst of `tbf` lasts after it has waited, in addition to a packet. Its timer wakes
/// up late by tens of microseconds, and the rate loses what the discipline may not make up for
/// then.
const BURST_LASTS: Span = Span::from_micros(500);

/// Packets that `netem` may hold: more than any path does, because what it delays or loses has been
/// through a queue or will be. It sets no memory aside for them.
const MANY_PACKETS: u32 = 10_000_000;

/// A queueing discipline of a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Discipline {
    /// `tbf`, `netem` or `pfifo`.
    pub kind: String,
    /// The arguments of `tc` that set it, with spaces between.
    pub arguments: String,
}

/// The kernel's counts of one direction since the path was made. The counts of drops wrap around.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Packets that left the queue.
    pub sent: Passed,
    /// Packets that left for the host.
    pub delivered: Passed,
    /// Bytes in the queue, as the path's framing counts.
    pub backlog: ByteCount,
    /// Packets that found the queue full.
    pub overflowed: u32,
    /// Packets that were lost on purpose.
    pub lost: u32,
}

/// Packets that a device has sent.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Passed {
    pub packets: u64,
    /// With the header of Ethernet.
    pub bytes: ByteCount,
}

/// The fields of [`fullpipe_record::Effects`] that the kernel's disciplines make; all others are
/// refused.
const MADE_BY_THE_KERNEL: [&str; 1] = ["queue_packets"];

/// Returns, in the plural, the first property of `path` that the kernel's disciplines do not make,
/// or not as the emulated link does.
pub(crate) fn unsupported_property(path: &Path) -> Option<&'static str> {
    let other_mtu =
        (path.forward.mtu != path.reverse.mtu).then_some("another MTU for each direction");
    other_mtu
        .or_else(|| unsupported_impairment(&path.forward))
        .or_else(|| unsupported_impairment(&path.reverse))
}

fn unsupported_impairment(direction: &PathDirection) -> Option<&'static str> {
    let mut others = IMPAIRMENTS
        .iter()
        .filter(|impairment| !MADE_BY_THE_KERNEL.contains(&impairment.field));
    others
        .find(|impairment| impairment.is_in(&direction.effects))
        .map(|impairment| impairment.plural)
}

/// The path as it comes out: without segmentation offload, because `netem` would lose trains whole.
pub(crate) fn made_exact(path: &Path) -> Path {
    Path {
        segmentation: Segmentation::Exact,
        ..path.clone()
    }
}

/// The disciplines of the sender's router and of the receiver's, in the order in which they are
/// set.
pub(crate) fn path_disciplines(path: &Path) -> [Vec<Discipline>; 2] {
    let Path {
        forward, reverse, ..
    } = path;
    [
        [line_disciplines(forward), delay_disciplines(reverse)].concat(),
        [line_disciplines(reverse), delay_disciplines(forward)].concat(),
    ]
}

/// Loss, queue and rate, where the first router of a direction sends to the second.
fn line_disciplines(direction: &PathDirection) -> Vec<Discipline> {
    let mut stages = Vec::new();
    let loss = direction.loss.unwrap_or_default();
    if loss > Ratio::ZERO {
        stages.push((
            "netem",
            format!("loss {}% limit {MANY_PACKETS}", loss.as_percent()),
        ));
    }
    let mut sizes = String::new();
    if let Some(rate) = direction.rate {
        // The size of a packet is set once for all stages, so that the queue counts as the rate
        // does.
        sizes = format!("stab overhead {} ", packet_overhead(direction));
        stages.push((
            "tbf",
            format!(
                "rate {}bit burst {} limit {}",
                rate.bps(),
                burst_bytes(direction, rate),
                queue_limit(direction)
            ),
        ));
        if let Some(packets) = direction.effects.queue_packets {
            stages.push(("pfifo", format!("limit {}", packets.get())));
        }
    }
    stacked_disciplines(TO_ROUTER, &sizes, &stages)
}

/// Delay, where the second router of a direction sends to the host.
fn delay_disciplines(direction: &PathDirection) -> Vec<Discipline> {
    let micros = direction.delay.as_nanos() as f64 / 1000.0;
    let delay = (direction.delay > Span::ZERO)
        .then(|| ("netem", format!("delay {micros}us limit {MANY_PACKETS}")));
    stacked_disciplines(TO_HOST, "", delay.as_slice())
}

/// Each stage below the one before it, the first at the root of `device`.
fn stacked_disciplines(device: &str, sizes: &str, stages: &[(&str, String)]) -> Vec<Discipline> {
    let mut stacked = Vec::new();
    for (place, (kind, options)) in stages.iter().enumerate() {
        let (above, sizes) = if place == 0 {
            ("root".to_owned(), sizes)
        } else {
            (format!("parent {place}:1"), "")
        };
        let handle = place + 1;
        stacked.push(Discipline {
            kind: (*kind).to_owned(),
            arguments: format!(
                "qdisc add dev {device} {above} handle {handle}: {sizes}{kind} {options}"
            ),
        });
    }
    stacked
}

/// Returns the bytes of each packet that the path counts and the kernel does not.
fn packet_overhead(direction: &PathDirection) -> i64 {
    direction.framing.packet_overhead().get().cast_signed() - HEADER.cast_signed()
}

fn burst_bytes(direction: &PathDirection, rate: BitRate) -> u64 {
    (direction.mtu + direction.framing.packet_overhead() + rate.bytes_in(BURST_LASTS)).get()
}

/// `tc` takes 32 bits: more than that no queue holds in memory.
fn queue_limit(direction: &PathDirection) -> u64 {
    direction
        .queue
        .map_or(u64::MAX, ByteCount::get)
        .min(u32::MAX.into())
}

/// The parent's side of such a path.
pub(crate) struct KernelPath {
    last: Mutex<[Counts; 2]>,
    /// The timers of the disciplines are late where processors sleep.
    _awake: AwakeProcessors,
}

impl KernelPath {
    /// Of a path that was just made.
    pub(crate) fn new() -> Self {
        Self {
            last: Mutex::default(),
            _awake: AwakeProcessors::keep_awake(),
        }
    }

    /// Returns the counts of each direction of `path`, forward first, since the last call.
    pub(crate) fn take_counts(&self, path: &Path, counts: [Counts; 2]) -> [DirectionCounts; 2] {
        let mut last = lock(&self.last);
        let [forward, reverse] = std::mem::replace(&mut *last, counts);
        [
            direction_counts(&path.forward, counts[0], forward),
            direction_counts(&path.reverse, counts[1], reverse),
        ]
    }
}

fn direction_counts(direction: &PathDirection, now: Counts, since: Counts) -> DirectionCounts {
    let [sent, delivered, sent_before, delivered_before] =
        [now.sent, now.delivered, since.sent, since.delivered]
            .map(|passed| framed_bytes(direction, passed));
    DirectionCounts {
        delivered: delivered.saturating_sub(delivered_before),
        backlog: now.backlog,
        propagating: sent.saturating_sub(delivered),
        overflowed: now.overflowed.wrapping_sub(since.overflowed).into(),
        lost: now.lost.wrapping_sub(since.lost).into(),
        reordered: None,
        busy: direction.rate.map_or(Span::ZERO, |rate| {
            rate.time_for(sent.saturating_sub(sent_before))
        }),
        timing: None,
    }
}

/// Bytes of what a device has sent, as the path's framing counts.
fn framed_bytes(direction: &PathDirection, passed: Passed) -> ByteCount {
    let extra = packet_overhead(direction).wrapping_mul(passed.packets.cast_signed());
    ByteCount::new(passed.bytes.get().saturating_add_signed(extra))
}

#[cfg(test)]
mod tests {
    use fullpipe_record::{Distribution, Effects, Encapsulation, Framing, IpVersion, Jitter};
    use fullpipe_units::SegCount;

    use super::*;

    fn path(rate: Option<u64>, loss: f64, delays: [Span; 2]) -> Path {
        let direction = |delay| PathDirection {
            rate: rate.map(BitRate::from_mbps),
            delay,
            queue: Some(ByteCount::new(100_000)),
            loss: Some(Ratio::new(loss)),
            mtu: ByteCount::new(1500),
            framing: Framing::Ethernet,
            ip: IpVersion::V4,
            encapsulation: Encapsulation::default(),
            effects: Effects::default(),
        };
        let [forward, reverse] = delays.map(direction);
        Path {
            forward,
            reverse,
            segmentation: Segmentation::default(),
        }
    }

    fn arguments(path: &Path) -> [Vec<String>; 2] {
        path_disciplines(path).map(|router| {
            router
                .into_iter()
                .map(|discipline| discipline.arguments)
                .collect()
        })
    }

    #[test]
    fn a_rate_alone_is_the_same_in_both_routers_and_needs_no_netem() {
        let line = "qdisc add dev path1 root handle 1: stab overhead 24 tbf rate 100000000bit burst 7788 limit 100000";
        assert_eq!(
            arguments(&path(Some(100), 0.0, [Span::ZERO; 2])),
            [[line], [line]]
        );
    }

    #[test]
    fn each_direction_is_lost_queued_and_then_delayed_by_the_other_router() {
        let mut path = path(
            Some(100),
            0.001,
            [Span::from_micros(1500), Span::from_nanos(20_000_500)],
        );
        path.reverse.rate = Some(BitRate::from_mbps(10));
        path.reverse.loss = None;
        path.reverse.framing = Framing::Ip;
        path.reverse.effects.queue_packets = Some(SegCount::new(100));
        let [sender, receiver] = arguments(&path);
        assert_eq!(
            sender,
            [
                "qdisc add dev path1 root handle 1: stab overhead 24 netem loss 0.1% limit 10000000",
                "qdisc add dev path1 parent 1:1 handle 2: tbf rate 100000000bit burst 7788 limit 100000",
                "qdisc add dev path0 root handle 1: netem delay 20000.5us limit 10000000",
            ]
        );
        assert_eq!(
            receiver,
            [
                "qdisc add dev path1 root handle 1: stab overhead -14 tbf rate 10000000bit burst 2125 limit 100000",
                "qdisc add dev path1 parent 1:1 handle 2: pfifo limit 100",
                "qdisc add dev path0 root handle 1: netem delay 1500us limit 10000000",
            ]
        );
    }

    #[test]
    fn a_path_without_anything_has_no_disciplines() {
        assert_eq!(
            path_disciplines(&path(None, 0.0, [Span::ZERO; 2])),
            [vec![], vec![]]
        );
    }

    #[test]
    fn a_path_that_the_kernel_cannot_make_is_refused_by_name() {
        let plain = path(Some(100), 0.001, [Span::from_millis(10); 2]);
        assert_eq!(unsupported_property(&plain), None);
        let mut jittery = plain.clone();
        let distribution = Distribution::Uniform(Span::from_millis(2));
        jittery.reverse.effects.jitter = Some(Jitter {
            distribution,
            reorders: false,
        });
        assert_eq!(unsupported_property(&jittery), Some("jitter"));
        let mut unequal = plain;
        unequal.reverse.mtu = ByteCount::new(9000);
        assert_eq!(
            unsupported_property(&unequal),
            Some("another MTU for each direction")
        );
    }

    #[test]
    fn what_was_carried_is_the_difference_of_two_counts() {
        let (path, kernel) = (path(Some(100), 0.0, [Span::ZERO; 2]), KernelPath::new());
        let passed = |packets| Passed {
            packets,
            bytes: ByteCount::new(packets * 1514),
        };
        let first = Counts {
            sent: passed(10),
            delivered: passed(8),
            overflowed: u32::MAX,
            ..Counts::default()
        };
        kernel.take_counts(&path, [first, Counts::default()]);
        let second = Counts {
            sent: passed(30),
            delivered: passed(18),
            overflowed: 2,
            lost: 1,
            ..first
        };
        let [forward, reverse] = kernel.take_counts(&path, [second, Counts::default()]);
        assert_eq!(forward.delivered, ByteCount::new(10 * 1538));
        assert_eq!(
            (forward.propagating, forward.overflowed, forward.lost),
            (ByteCount::new(12 * 1538), 3, 1)
        );
        assert_eq!(
            forward.busy,
            BitRate::from_mbps(100).time_for(ByteCount::new(20 * 1538))
        );
        assert_eq!(reverse.delivered, ByteCount::ZERO);
    }
}
