//! Trains of numbered packets, and a driver in virtual time.

use fullpipe_link::{Delivery, Direction, Train};
use fullpipe_record::{Encapsulation, Framing, IpVersion, PathDirection};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, Time};

/// Packets `first`, `first + 1`, … of one size; the last may be smaller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) first: u64,
    pub(crate) packets: u64,
    pub(crate) size: u64,
    pub(crate) last: u64,
}

impl Burst {
    pub(crate) const fn packet(number: u64, size: u64) -> Self {
        Self { first: number, packets: 1, size, last: size }
    }

    pub(crate) fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.packets
    }
}

impl Train for Burst {
    fn segments(&self) -> SegCount {
        SegCount::new(self.packets)
    }

    fn segment_bytes(&self) -> ByteCount {
        ByteCount::new(if self.packets == 1 { self.last } else { self.size })
    }

    fn ip_bytes(&self) -> ByteCount {
        ByteCount::new((self.packets - 1) * self.size + self.last)
    }

    fn split_off(&mut self, at: SegCount) -> Self {
        let at = at.get();
        assert!(0 < at && at < self.packets, "a cut at {at} of {}", self.packets);
        let rest = Self { first: self.first + at, packets: self.packets - at, ..*self };
        (self.packets, self.last) = (at, self.size);
        rest
    }
}

/// 100 Mbit/s, no delay, no limit to the queue, no loss, Ethernet.
pub(crate) fn fast_ethernet() -> PathDirection {
    PathDirection {
        rate: Some(BitRate::from_mbps(100)),
        delay: Span::ZERO,
        queue: None,
        loss: Some(Ratio::ZERO),
        mtu: ByteCount::new(1500),
        framing: Framing::Ethernet,
        ip: IpVersion::V4,
        encapsulation: Encapsulation::default(),
    }
}

/// Everything that is still to come out, in order.
pub(crate) fn drain(link: &mut Direction<Burst>) -> Vec<Delivery<Burst>> {
    std::iter::from_fn(|| link.pop(at(u64::MAX))).collect()
}

pub(crate) const fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}
