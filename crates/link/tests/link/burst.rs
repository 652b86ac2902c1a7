//! Trains of numbered packets, and a driver in virtual time.

use std::net::IpAddr;

use fullpipe_link::{ArrivedTrain, EditEffect, LinkDirection, Train};
use fullpipe_record::{Edit, Effects, Encapsulation, Framing, IpVersion, PathDirection};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, Time};

/// Packets `first`, `first + 1`, … of one size; the last may be smaller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) first: u64,
    pub(crate) packets: u64,
    pub(crate) size: u64,
    pub(crate) last: u64,
    /// The connection.
    pub(crate) flow: u64,
    pub(crate) ecn: Ecn,
    /// True if a bit is wrong.
    pub(crate) corrupt: bool,
    /// The edits that middleboxes made.
    pub(crate) edits: Vec<Edit>,
    /// Hops that are left.
    pub(crate) hops: u8,
    /// Of a router's answer: the MTU that it states.
    pub(crate) answers: Option<u64>,
    /// The router where the packet had no hops left, of which this is the answer.
    pub(crate) expired_at: Option<IpAddr>,
}

/// The value of the ECN field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ecn {
    Not,
    Capable,
    Marked,
}

impl Burst {
    pub(crate) fn train(first: u64, packets: u64, size: u64, last: u64) -> Self {
        Self {
            first,
            packets,
            size,
            last,
            flow: 0,
            ecn: Ecn::Not,
            corrupt: false,
            edits: Vec::new(),
            hops: 64,
            answers: None,
            expired_at: None,
        }
    }

    pub(crate) fn packet(number: u64, size: u64) -> Self {
        Self::train(number, 1, size, size)
    }

    /// The same of connection `flow`, with ECN.
    pub(crate) fn of_flow(self, flow: u64) -> Self {
        Self {
            flow,
            ecn: Ecn::Capable,
            ..self
        }
    }

    pub(crate) fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.packets
    }
}

impl Train for Burst {
    fn segment_count(&self) -> SegCount {
        SegCount::new(self.packets)
    }

    fn segment_bytes(&self) -> ByteCount {
        ByteCount::new(if self.packets == 1 {
            self.last
        } else {
            self.size
        })
    }

    fn ip_bytes(&self) -> ByteCount {
        ByteCount::new((self.packets - 1) * self.size + self.last)
    }

    fn split_off(&mut self, at: SegCount) -> Self {
        let at = at.get();
        assert!(
            0 < at && at < self.packets,
            "a cut at {at} of {}",
            self.packets
        );
        let rest = Self {
            first: self.first + at,
            packets: self.packets - at,
            ..self.clone()
        };
        (self.packets, self.last) = (at, self.size);
        rest
    }

    fn flow_hash(&self) -> u64 {
        self.flow
    }

    fn mark_ce(&mut self) -> bool {
        let capable = self.ecn != Ecn::Not;
        if capable {
            self.ecn = Ecn::Marked;
        }
        capable
    }

    fn corrupt_bit(&mut self, _: u64) {
        assert_eq!(self.packets, 1);
        self.corrupt = true;
    }

    fn apply_edit(&mut self, edit: &Edit) -> EditEffect {
        self.edits.push(*edit);
        match edit {
            Edit::Router(_) if self.hops == 1 => return EditEffect::Stopped,
            Edit::Router(_) => self.hops -= 1,
            _ => {}
        }
        EditEffect::Changed
    }

    fn time_exceeded(&self, by: IpAddr) -> Option<Self> {
        Some(Self {
            expired_at: Some(by),
            ..self.clone()
        })
    }

    fn too_big(&self, mtu: ByteCount) -> Option<Self> {
        assert!(self.size > mtu.get());
        Some(Self {
            answers: Some(mtu.get()),
            ..Self::packet(self.first, 576)
        })
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
        effects: Effects::default(),
    }
}

/// Everything that is still to come out, in order.
pub(crate) fn drain(link: &mut LinkDirection<Burst>) -> Vec<ArrivedTrain<Burst>> {
    std::iter::from_fn(|| link.pop_arrived(at(u64::MAX))).collect()
}

pub(crate) const fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}
