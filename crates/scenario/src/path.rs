use fullpipe_record::{Encapsulation, Framing, IpVersion, Path, PathDirection, Segmentation};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

use crate::FlagError;
use crate::key::{Key, quantity, require};

/// A path as a person describes it: its queue may be given in BDPs, which follow when a flag changes rate or RTT.
#[derive(Debug, Clone, PartialEq)]
pub struct PathSpec {
    pub(crate) forward: DirectionSpec,
    pub(crate) reverse: DirectionSpec,
    segmentation: Segmentation,
}

/// One direction of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DirectionSpec {
    rate: Option<BitRate>,
    /// `None` until the file or the flag has told the RTT or the delay.
    pub(crate) delay: Option<Span>,
    /// `None` for the default: one BDP, or one packet where that is more.
    queue: Option<Queue>,
    loss: Ratio,
    mtu: ByteCount,
    framing: Framing,
}

/// The size of a queue, in the units in which people think of it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Queue {
    Bytes(ByteCount),
    /// Full ones.
    Packets(SegCount),
    /// What the link sends in this time.
    Time(Span),
    /// Multiples of rate × RTT.
    Bdp(Ratio),
}

/// Which direction of a path cannot be, and why.
#[derive(Debug)]
pub(crate) struct BadQueue {
    pub(crate) reverse: bool,
    pub(crate) why: String,
}

/// The keys of `[path]` and of `--path`: each sets both directions.
pub(crate) const PATH_KEYS: &[Key<PathSpec>] = &[
    Key { name: "rate", set: |path, text| path.set_both(DirectionSpec::set_rate, text) },
    Key { name: "rtt", set: PathSpec::set_rtt },
    Key { name: "queue", set: |path, text| path.set_both(DirectionSpec::set_queue, text) },
    Key { name: "loss", set: |path, text| path.set_both(DirectionSpec::set_loss, text) },
    Key { name: "mtu", set: |path, text| path.set_both(DirectionSpec::set_mtu, text) },
    Key { name: "framing", set: |path, text| path.set_both(DirectionSpec::set_framing, text) },
    Key { name: "segmentation", set: PathSpec::set_segmentation },
];

/// The keys of `[path.forward]` and `[path.reverse]`.
pub(crate) const DIRECTION_KEYS: &[Key<DirectionSpec>] = &[
    Key { name: "rate", set: DirectionSpec::set_rate },
    Key { name: "delay", set: DirectionSpec::set_delay },
    Key { name: "queue", set: DirectionSpec::set_queue },
    Key { name: "loss", set: DirectionSpec::set_loss },
    Key { name: "mtu", set: DirectionSpec::set_mtu },
    Key { name: "framing", set: DirectionSpec::set_framing },
];

impl PathSpec {
    /// The path of `fullpipe demo`: 1 Gbit/s of Ethernet, RTT 100 ms, MTU 1500, a queue of one BDP, no loss.
    pub fn demo() -> Self {
        let direction = DirectionSpec {
            rate: Some(BitRate::from_mbps(1000)),
            delay: Some(Span::from_millis(50)),
            ..DirectionSpec::unknown()
        };
        Self { forward: direction.clone(), reverse: direction, segmentation: Segmentation::default() }
    }

    /// The path with every queue in bytes.
    ///
    /// # Errors
    ///
    /// A queue smaller than one packet, or given in time or in BDPs without a rate.
    pub fn path(&self) -> Result<Path, FlagError> {
        self.resolve().map_err(|bad| FlagError::new(format!("queue: {}", bad.why)))
    }

    /// A path of which nothing was said yet.
    pub(crate) fn unknown() -> Self {
        Self {
            forward: DirectionSpec::unknown(),
            reverse: DirectionSpec::unknown(),
            segmentation: Segmentation::default(),
        }
    }

    /// As [`PathSpec::path`]; the error tells the direction.
    pub(crate) fn resolve(&self) -> Result<Path, BadQueue> {
        let rtt = self.forward.delay.unwrap_or_default() + self.reverse.delay.unwrap_or_default();
        let resolve =
            |direction: &DirectionSpec, reverse| direction.resolve(rtt).map_err(|why| BadQueue { reverse, why });
        Ok(Path {
            forward: resolve(&self.forward, false)?,
            reverse: resolve(&self.reverse, true)?,
            segmentation: self.segmentation,
        })
    }

    fn set_both(&mut self, set: fn(&mut DirectionSpec, &str) -> Result<(), String>, text: &str) -> Result<(), String> {
        set(&mut self.forward, text)?;
        set(&mut self.reverse, text)
    }

    fn set_rtt(&mut self, text: &str) -> Result<(), String> {
        let rtt: Span = quantity(text)?;
        let half = rtt / 2;
        self.forward.delay = Some(half);
        self.reverse.delay = Some(rtt - half);
        Ok(())
    }

    fn set_segmentation(&mut self, text: &str) -> Result<(), String> {
        self.segmentation = match text {
            "trains" => Segmentation::Trains,
            "exact" => Segmentation::Exact,
            _ => return Err(format!("\"{text}\" is not a segmentation: write trains or exact")),
        };
        Ok(())
    }
}

impl DirectionSpec {
    pub(crate) fn rate(&self) -> Option<BitRate> {
        self.rate
    }

    fn unknown() -> Self {
        Self {
            rate: None,
            delay: None,
            queue: None,
            loss: Ratio::ZERO,
            mtu: ByteCount::new(1500),
            framing: Framing::default(),
        }
    }

    fn resolve(&self, rtt: Span) -> Result<PathDirection, String> {
        Ok(PathDirection {
            rate: self.rate,
            delay: self.delay.unwrap_or_default(),
            queue: self.queue_bytes(rtt)?,
            loss: Some(self.loss),
            mtu: self.mtu,
            framing: self.framing,
            ip: IpVersion::V4,
            encapsulation: Encapsulation::default(),
        })
    }

    fn queue_bytes(&self, rtt: Span) -> Result<Option<ByteCount>, String> {
        let packet = self.mtu + self.framing.overhead();
        let Some(queue) = self.queue else {
            return Ok(self.rate.map(|rate| rate.bytes_in(rtt).max(packet)));
        };
        let rate = || self.rate.ok_or("a queue in time or in BDPs needs a rate");
        let bytes = match queue {
            Queue::Bytes(bytes) => bytes,
            Queue::Packets(packets) => packets.of_size(packet),
            Queue::Time(time) => rate()?.bytes_in(time),
            Queue::Bdp(times) => rate()?.bytes_in(rtt).scaled(times.get()),
        };
        if bytes < packet {
            let (bytes, packet) = (bytes.get(), packet.get());
            return Err(format!("it would hold {bytes} B, and one packet is {packet} B; make it longer"));
        }
        Ok(Some(bytes))
    }

    fn set_rate(&mut self, text: &str) -> Result<(), String> {
        let rate = quantity(text)?;
        self.rate = Some(require(rate, rate > BitRate::ZERO, text, "the rate of a path", "nothing would ever arrive")?);
        Ok(())
    }

    fn set_delay(&mut self, text: &str) -> Result<(), String> {
        self.delay = Some(quantity(text)?);
        Ok(())
    }

    fn set_queue(&mut self, text: &str) -> Result<(), String> {
        let queue = Queue::read(text);
        self.queue =
            Some(queue.ok_or_else(|| {
                format!("\"{text}\" is not a queue: write for example 1bdp, 64KiB, 100packets or 20ms")
            })?);
        Ok(())
    }

    fn set_loss(&mut self, text: &str) -> Result<(), String> {
        let loss = quantity(text)?;
        self.loss = require(loss, loss < Ratio::ONE, text, "the loss of a path", "it must be below 100 %")?;
        Ok(())
    }

    fn set_mtu(&mut self, text: &str) -> Result<(), String> {
        let mtu: ByteCount = quantity(text)?;
        // RFC 791: every host forwards 68 B; the length field ends at 65 535.
        let valid = (68..=65_535).contains(&mtu.get());
        self.mtu = require(mtu, valid, text, "an MTU", "it must be from 68 to 65535 B")?;
        Ok(())
    }

    fn set_framing(&mut self, text: &str) -> Result<(), String> {
        self.framing = match text {
            "ethernet" => Framing::Ethernet,
            "ip" => Framing::Ip,
            _ => return Err(format!("\"{text}\" is not a framing: write ethernet or ip")),
        };
        Ok(())
    }
}

impl Queue {
    fn read(text: &str) -> Option<Self> {
        let number_before = |units: [&str; 2]| units.iter().find_map(|unit| text.strip_suffix(unit)).map(str::trim);
        if let Some(times) = number_before(["bdp", "BDP"]) {
            return times.parse().ok().map(Self::Bdp);
        }
        if let Some(packets) = number_before(["packets", "packet"]) {
            return packets.parse().ok().map(SegCount::new).map(Self::Packets);
        }
        text.parse().map(Self::Time).or_else(|_| text.parse().map(Self::Bytes)).ok()
    }
}
