use std::iter;
use std::sync::LazyLock;

use fullpipe_record::{
    Effects, Encapsulation, Framing, IMPAIRMENTS, IpVersion, LossPattern, Path, PathChange,
    PathDirection, Segmentation, path_mtu, path_rate,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, parse_within};

use crate::FlagError;
use crate::key::{Key, TableKey, keys};
use crate::trace;

/// The stretches of a path, from the sender to the receiver: to the near relay, between the relays,
/// from the far relay.
pub type Stretches = [Path; 3];

/// A path as a person describes it: its queue may be given in BDPs, which follow when a flag
/// changes rate or RTT.
#[derive(Debug, Clone, PartialEq)]
pub struct PathSpec {
    pub(crate) forward: DirectionSpec,
    pub(crate) reverse: DirectionSpec,
    segmentation: Segmentation,
}

/// One direction of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DirectionSpec {
    pub(crate) rate: Option<BitRate>,
    /// `None` until the file or the flag gives the RTT or the delay.
    pub(crate) delay: Option<Span>,
    /// `None` for the default: one BDP, or one packet where that is more.
    queue: Option<QueueSize>,
    loss: Ratio,
    mtu: ByteCount,
    framing: Framing,
    effects: Effects,
    trace: Option<TraceFile>,
}

/// A file that is read when all is known.
#[derive(Debug, Clone, PartialEq)]
enum TraceFile {
    /// When packets may leave.
    Mahimahi(String),
    /// When the rate becomes what.
    Rates(String),
}

/// Reads a file that a path names: the name as it stands there → the text, or the reason why there
/// is none.
pub type ReadFile<'f> = &'f dyn Fn(&str) -> Result<String, String>;

/// The size of a queue, in the units in which people think of it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum QueueSize {
    Bytes(ByteCount),
    /// Full ones.
    Packets(SegCount),
    /// The bytes that the link sends in this time.
    Time(Span),
    /// Multiples of rate × RTT.
    Bdp(Ratio),
}

/// A direction of a path that cannot be, with the key that sets it and the reason.
#[derive(Debug)]
pub(crate) struct BadDirection {
    pub(crate) reverse: bool,
    pub(crate) key: &'static str,
    pub(crate) why: String,
}

/// A key, and why its value cannot be.
type BadKey = (&'static str, String);

impl BadDirection {
    fn new(reverse: bool, (key, why): BadKey) -> Self {
        Self { reverse, key, why }
    }
}

/// The keys of `[path]` and of `--path`: each sets both directions.
pub(crate) static PATH_KEYS: LazyLock<Vec<TableKey<PathSpec>>> = LazyLock::new(|| {
    let both = direction_keys().map(|key| {
        TableKey::boxed(key.name, move |path: &mut PathSpec, text| {
            (key.set)(&mut path.forward, text)?;
            (key.set)(&mut path.reverse, text)
        })
    });
    iter::once(TableKey::boxed("rtt", PathSpec::set_rtt))
        .chain(both)
        .chain([TableKey::boxed("segmentation", PathSpec::set_segmentation)])
        .collect()
});

/// The keys of `[path.forward]` and `[path.reverse]`.
pub(crate) static DIRECTION_KEYS: LazyLock<Vec<TableKey<DirectionSpec>>> = LazyLock::new(|| {
    let delay = |direction: &mut DirectionSpec, text: &str| {
        direction.delay = Some(up_to_an_hour(text, "the delay of a path")?);
        Ok(())
    };
    iter::once(TableKey::boxed("delay", delay))
        .chain(direction_keys())
        .collect()
});

/// The keys of a direction that also set both, but for those of [`IMPAIRMENTS`].
const OWN_KEYS: &[Key<DirectionSpec>] = keys! { |direction, text|
    "rate" => direction.rate = Some(path_rate(text)?),
    "queue" => direction.queue = Some(QueueSize::read(text)?),
    "loss" => direction.set_loss(text)?,
    "mtu" => direction.mtu = path_mtu(text)?,
    "framing" => direction.framing = read_framing(text)?,
    "trace" => direction.trace = Some(TraceFile::read(text)?),
};

/// Returns the keys of a direction that also set both: its own, and those of [`IMPAIRMENTS`].
fn direction_keys() -> impl Iterator<Item = TableKey<DirectionSpec>> {
    let own = OWN_KEYS
        .iter()
        .map(|key| TableKey::boxed(key.name, key.set));
    let impairments = IMPAIRMENTS.iter().flat_map(|impairment| impairment.keys);
    own.chain(impairments.map(|key| {
        TableKey::boxed(key.name, |direction: &mut DirectionSpec, text| {
            (key.set)(&mut direction.effects, text)
        })
    }))
}

impl PathSpec {
    /// The path of `fullpipe demo`: 1 Gbit/s of Ethernet, RTT 100 ms, MTU 1500, a queue of one BDP,
    /// no loss.
    pub fn demo_path() -> Self {
        let direction = DirectionSpec {
            rate: Some(BitRate::from_mbps(1000)),
            delay: Some(Span::from_millis(50)),
            ..DirectionSpec::new_unset()
        };
        Self {
            forward: direction.clone(),
            reverse: direction,
            segmentation: Segmentation::default(),
        }
    }

    /// The description of `path`, to change single keys of it. Its queues are in bytes or in
    /// packets, and do not follow rate and RTT.
    pub fn from_path(path: &Path) -> Self {
        Self {
            forward: DirectionSpec::from_direction(&path.forward),
            reverse: DirectionSpec::from_direction(&path.reverse),
            segmentation: path.segmentation,
        }
    }

    /// The path with every queue in bytes.
    ///
    /// # Errors
    ///
    /// A queue smaller than one packet, or given in time or in BDPs without a rate.
    pub fn to_path(&self) -> Result<Path, FlagError> {
        self.path_with(&no_files)
    }

    /// The path with every queue in bytes and every trace read.
    ///
    /// # Errors
    ///
    /// As [`PathSpec::to_path`]; a trace that cannot be read or used.
    pub(crate) fn path_with(&self, files: ReadFile<'_>) -> Result<Path, FlagError> {
        self.resolve_path(files)
            .map_err(|bad| FlagError::new(format!("{}: {}", bad.key, bad.why)))
    }

    /// A path of which nothing was said yet.
    pub fn new_unset() -> Self {
        Self {
            forward: DirectionSpec::new_unset(),
            reverse: DirectionSpec::new_unset(),
            segmentation: Segmentation::default(),
        }
    }

    /// Leaves out traces from which the rate comes from the beginning on.
    pub(crate) fn forget_traces(&mut self) {
        self.forward.forget_trace();
        self.reverse.forget_trace();
    }

    /// As [`PathSpec::path_with`]; the error names the direction.
    pub(crate) fn resolve_path(&self, files: ReadFile<'_>) -> Result<Path, BadDirection> {
        let rtt = self.forward.delay.unwrap_or_default() + self.reverse.delay.unwrap_or_default();
        let forward = self.forward.resolve_direction(rtt, files);
        let forward = forward.map_err(|bad| BadDirection::new(false, bad))?;
        let reverse = self.reverse.resolve_direction(rtt, files);
        let reverse = reverse.map_err(|bad| BadDirection::new(true, bad))?;
        Ok(Path {
            forward,
            reverse,
            segmentation: self.segmentation,
        })
    }

    fn set_rtt(&mut self, text: &str) -> Result<(), String> {
        let rtt = up_to_an_hour(text, "the round-trip time of a path")?;
        let half = rtt / 2;
        self.forward.delay = Some(half);
        self.reverse.delay = Some(rtt - half);
        Ok(())
    }

    fn set_segmentation(&mut self, text: &str) -> Result<(), String> {
        self.segmentation = match text {
            "trains" => Segmentation::Trains,
            "exact" => Segmentation::Exact,
            _ => {
                return Err(format!(
                    "\"{text}\" is not a segmentation: write trains or exact"
                ));
            }
        };
        Ok(())
    }
}

impl DirectionSpec {
    /// Leaves out a trace, and changes of the rate that begin with the path.
    pub(crate) fn forget_trace(&mut self) {
        self.trace = None;
        let Effects {
            opportunities,
            steps,
            ..
        } = &mut self.effects;
        *opportunities = None;
        if steps
            .first()
            .is_some_and(|step| step.after == Span::ZERO && step.change.rate.is_some())
        {
            for step in &mut *steps {
                step.change.rate = None;
            }
            steps.retain(|step| step.change != PathChange::default());
        }
    }

    fn from_direction(way: &PathDirection) -> Self {
        let packets = way.effects.queue_packets.map(QueueSize::Packets);
        Self {
            rate: way.rate,
            delay: Some(way.delay),
            queue: packets.or(way.queue.map(QueueSize::Bytes)),
            loss: way.loss.unwrap_or(Ratio::ZERO),
            mtu: way.mtu,
            framing: way.framing,
            effects: Effects {
                queue_packets: None,
                ..way.effects.clone()
            },
            trace: None,
        }
    }

    fn new_unset() -> Self {
        Self {
            rate: None,
            delay: None,
            queue: None,
            loss: Ratio::ZERO,
            mtu: ByteCount::new(1500),
            framing: Framing::default(),
            effects: Effects::default(),
            trace: None,
        }
    }

    /// The direction; or a key, and why it cannot be.
    fn resolve_direction(&self, rtt: Span, files: ReadFile<'_>) -> Result<PathDirection, BadKey> {
        self.check_policer().map_err(|why| ("policer", why))?;
        let mut effects = self.effects.clone();
        if let Some(QueueSize::Packets(packets)) = self.queue {
            effects.queue_packets = Some(packets);
        }
        if let Some(trace) = &self.trace {
            trace
                .read_effects(files, &mut effects)
                .map_err(|why| ("trace", why))?;
        }
        Ok(PathDirection {
            rate: self.rate,
            delay: self.delay.unwrap_or_default(),
            queue: self.queue_bytes(rtt).map_err(|why| ("queue", why))?,
            loss: Some(self.loss),
            mtu: self.mtu,
            framing: self.framing,
            ip: IpVersion::V4,
            encapsulation: Encapsulation::default(),
            effects,
        })
    }

    fn check_policer(&self) -> Result<(), String> {
        let packet = self.max_packet();
        match self.effects.policer {
            Some(policer) if policer.burst < packet => {
                let (burst, packet) = (policer.burst.get(), packet.get());
                Err(format!(
                    "its burst of {burst} B would never pass a packet of {packet} B; make it larger"
                ))
            }
            _ => Ok(()),
        }
    }

    /// The largest packet, as the rate counts it.
    fn max_packet(&self) -> ByteCount {
        self.mtu + self.framing.packet_overhead()
    }

    fn queue_bytes(&self, rtt: Span) -> Result<Option<ByteCount>, String> {
        let packet = self.max_packet();
        let Some(queue) = self.queue else {
            return Ok(self.rate.map(|rate| rate.bytes_in(rtt).max(packet)));
        };
        let rate = self.rate.ok_or("a queue in time or in BDPs needs a rate");
        let bytes = match queue {
            QueueSize::Bytes(bytes) => bytes,
            QueueSize::Packets(packets) => packets.of_size(packet),
            QueueSize::Time(time) => rate?.bytes_in(time),
            QueueSize::Bdp(times) => rate?.bytes_in(rtt).scale_by(times.get()),
        };
        if bytes < packet {
            let (bytes, packet) = (bytes.get(), packet.get());
            return Err(format!(
                "it would hold {bytes} B, and one packet is {packet} B; make it longer"
            ));
        }
        Ok(Some(bytes))
    }

    fn set_loss(&mut self, text: &str) -> Result<(), String> {
        if text.contains(char::is_whitespace) {
            let pattern: LossPattern = text.parse()?;
            (self.loss, self.effects.losses) = (pattern.mean_loss(), Some(pattern));
            return Ok(());
        }
        self.loss = path_loss(text)?;
        self.effects.losses = None;
        Ok(())
    }
}

fn read_framing(text: &str) -> Result<Framing, String> {
    match text {
        "ethernet" => Ok(Framing::Ethernet),
        "ip" => Ok(Framing::Ip),
        _ => Err(format!("\"{text}\" is not a framing: write ethernet or ip")),
    }
}

impl TraceFile {
    fn read(text: &str) -> Result<Self, String> {
        match text.split_once(char::is_whitespace) {
            Some(("mahimahi", file)) => Ok(Self::Mahimahi(file.trim().to_owned())),
            Some(("rates", file)) => Ok(Self::Rates(file.trim().to_owned())),
            _ => Err(format!(
                "\"{text}\" is not a trace: write mahimahi FILE or rates FILE"
            )),
        }
    }

    /// Reads the file into `effects`; changes of other things than the rate stay.
    fn read_effects(&self, files: ReadFile<'_>, effects: &mut Effects) -> Result<(), String> {
        let (Self::Mahimahi(file) | Self::Rates(file)) = self;
        files(file)
            .and_then(|text| self.read_text(&text, effects))
            .map_err(|why| format!("\"{file}\": {why}"))
    }

    fn read_text(&self, text: &str, effects: &mut Effects) -> Result<(), String> {
        match self {
            Self::Mahimahi(_) => effects.opportunities = Some(trace::read_mahimahi(text)?),
            Self::Rates(_) => {
                effects.steps.extend(trace::read_rates(text)?);
                effects.steps.sort_by_key(|step| step.after);
            }
        }
        Ok(())
    }
}

/// Reads the loss of a path: below one.
pub(crate) fn path_loss(text: &str) -> Result<Ratio, String> {
    parse_within(
        text,
        ..Ratio::ONE,
        "the loss of a path",
        "it must be below 100 %",
    )
}

/// Reads a time that a packet takes at most: to Mars and back it is less than an hour.
fn up_to_an_hour(text: &str, what: &str) -> Result<Span, String> {
    parse_within(
        text,
        ..=Span::from_secs(3600),
        what,
        "it must be at most an hour",
    )
}

/// Fails: no files can be read here.
pub(crate) fn no_files(_: &str) -> Result<String, String> {
    Err("files cannot be read here".to_owned())
}

impl QueueSize {
    fn read(text: &str) -> Result<Self, String> {
        Self::from_text(text).ok_or_else(|| {
            format!("\"{text}\" is not a queue: write for example 1bdp, 64KiB, 100packets or 20ms")
        })
    }

    fn from_text(text: &str) -> Option<Self> {
        let [times, packets] = [["bdp", "BDP"], ["packets", "packet"]].map(|units| {
            let mut units = units.iter();
            units
                .find_map(|unit| text.strip_suffix(unit))
                .map(str::trim)
        });
        if let Some(times) = times {
            return times.parse().ok().map(Self::Bdp);
        }
        if let Some(packets) = packets {
            return packets.parse().ok().map(SegCount::new).map(Self::Packets);
        }
        text.parse()
            .map(Self::Time)
            .or_else(|_| text.parse().map(Self::Bytes))
            .ok()
    }
}
