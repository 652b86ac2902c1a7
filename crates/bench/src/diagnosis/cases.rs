//! The plan: cases with one planted limit each.

use std::fmt;

use fullpipe_lab::Host;
use fullpipe_model::predict;
use fullpipe_record::{
    ApplicationWindowVerdict, Buffer, CapacityVerdict, Change, CongestionWindowVerdict, CpuVerdict,
    Direction, Edit, HostSettings, LegalVerdict, Limit, LossVerdict, MtuVerdict, PacingVerdict,
    Path, ReceiveWindowVerdict, ReceiverApplicationVerdict, Request, SendBufferVerdict,
    SenderApplicationVerdict, UnknownVerdict, Writer,
};
use fullpipe_scenario::{FlagError, PathSpec, parse_path_flag};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::plant::Plant;

/// A transfer with one planted limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    /// Name of the expected verdict and the parameters of this variant:
    /// `receive-window/so-rcvbuf 20M×150ms cubic`.
    pub(crate) name: String,
    /// Verdict that the diagnosis must reach, because the case causes this limit on purpose.
    pub(crate) expected: LegalVerdict,
    /// The path between the hosts.
    pub(crate) path: Path,
    /// Changes of this machine's settings at the host that sends.
    pub(crate) sender: Vec<Change>,
    /// Changes at the host that receives.
    pub(crate) receiver: Vec<Change>,
    /// The load.
    pub(crate) request: Request,
    /// The plant, where path, settings and load do not plant the limit.
    pub(crate) plant: Plant,
}

/// Cases of a short bench: one of each kind, and a middlebox.
const SHORT: [&str; 12] = [
    "receive-window/tcp-rmem-max 100M×40ms cubic",
    "receive-window/window-scale-stripped 100M×40ms cubic",
    "receiver-application/slow-reader 100M×40ms cubic",
    "send-buffer/tcp-wmem-max 100M×40ms cubic",
    "sender-application/rate-limited 100M×40ms bbr",
    "congestion-window/ramp-up 100M×150ms cubic",
    "capacity/link 100M×40ms bbr",
    "loss/random 100M×40ms cubic",
    "pacing/max-pacing-rate 100M×40ms cubic",
    "cpu/stolen 20M×40ms cubic sender",
    "mtu/mss-clamped 12M×25ms cubic",
    "application-window/ssh-channel 200M×150ms cubic",
];

impl Case {
    /// Returns whether it has nothing that virtual time lacks: no processor, and nothing that is
    /// planted in a host.
    pub(crate) fn is_modelled(&self) -> bool {
        self.plant == Plant::InPlan && !matches!(self.expected, LegalVerdict::Cpu(_))
    }

    /// Returns whether a short bench runs it.
    pub(crate) fn is_short(&self) -> bool {
        SHORT.contains(&self.name.as_str())
    }
}

/// A path that a limit is planted on: three times and more apart in rate and in round-trip time.
#[derive(Debug, Clone, Copy)]
struct Way {
    mbps: u64,
    rtt: u64,
}

const WAYS: [Way; 3] = [
    Way { mbps: 20, rtt: 150 },
    Way { mbps: 100, rtt: 40 },
    Way { mbps: 500, rtt: 10 },
];

/// Long ways of many segments, on which a window takes longer than a test to grow.
const LONG_WAYS: [Way; 3] = [
    Way { mbps: 30, rtt: 300 },
    Way {
        mbps: 100,
        rtt: 150,
    },
    Way { mbps: 400, rtt: 90 },
];

/// Ways that 64 KiB fill, which is what a receive buffer grows to where each packet wastes most of
/// its memory, and of which small packets are not too many for this machine.
const SMALL_WAYS: [Way; 3] = [
    Way { mbps: 4, rtt: 80 },
    Way { mbps: 12, rtt: 25 },
    Way { mbps: 40, rtt: 8 },
];

/// Ways that little processor time fills.
const SLOW_WAYS: [Way; 3] = [
    Way { mbps: 6, rtt: 150 },
    Way { mbps: 20, rtt: 40 },
    Way { mbps: 60, rtt: 10 },
];

/// Ways of 33 packets with a queue of [`SHALLOW`], which is full whenever a few packets come at
/// once, and grows full again soon after that. A packet takes so long on them that the queue lasts
/// longer than a busy machine's link stands still.
const SHALLOW_WAYS: [Way; 3] = [
    Way { mbps: 2, rtt: 200 },
    Way { mbps: 4, rtt: 100 },
    Way { mbps: 6, rtt: 66 },
];
const SHALLOW: u64 = 3;

/// Ways that a core cannot fill with small writes.
const FAST_WAYS: [Way; 3] = [
    Way { mbps: 150, rtt: 30 },
    Way { mbps: 300, rtt: 10 },
    Way { mbps: 500, rtt: 5 },
];

/// Ways of which the window of an SSH channel fills little more than half, slow enough for the
/// ciphers of a small machine.
const SSH_WAYS: [Way; 3] = [
    Way {
        mbps: 100,
        rtt: 300,
    },
    Way {
        mbps: 200,
        rtt: 150,
    },
    Way { mbps: 400, rtt: 75 },
];

const CONTROLS: [&str; 2] = ["cubic", "bbr"];
const CUBIC: &[&str] = &["cubic"];

/// Share of what the path carries that a planted limit leaves, if not said otherwise.
const LEFT: f64 = 0.45;

/// The same where chance decides: so little that a test sees many losses.
const LEFT_BY_CHANCE: f64 = 0.2;

impl Way {
    fn rate(self) -> BitRate {
        BitRate::from_mbps(self.mbps)
    }

    fn rtt(self) -> Span {
        Span::from_millis(self.rtt)
    }

    /// This share of bandwidth × round-trip time.
    fn bdp(self, share: f64) -> ByteCount {
        self.rate().bytes_in(self.rtt()).scale_by(share)
    }

    fn path(self, more: &str) -> Result<Path, FlagError> {
        let separator = if more.is_empty() { "" } else { "," };
        parse_path_flag(
            &format!("rate={}M,rtt={}ms{separator}{more}", self.mbps, self.rtt),
            &PathSpec::demo_path(),
        )
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}M×{}ms", self.mbps, self.rtt)
    }
}

/// A place in the plan, from which cases are made.
#[derive(Clone, Copy)]
struct Spot {
    verdict: LegalVerdict,
    way: Way,
    control: &'static str,
    streams: u16,
    direction: Direction,
}

impl Spot {
    /// One stream of the near end's.
    fn new(verdict: impl Into<LegalVerdict>, way: Way, control: &'static str) -> Self {
        Self {
            verdict: verdict.into(),
            way,
            control,
            streams: 1,
            direction: Direction::Upload,
        }
    }

    /// A stream's part of what a planted limit leaves.
    fn left(self) -> f64 {
        LEFT / f64::from(self.streams)
    }

    /// A transfer over the bare way that fills it: every buffer is large enough.
    fn bare(self) -> Result<Case, FlagError> {
        self.over("")
    }

    /// The same, with more said of the path.
    fn over(self, path: &str) -> Result<Case, FlagError> {
        let Self {
            verdict,
            way,
            control,
            streams,
            direction,
        } = self;
        // A few round trips more than slow start and thirty of steady state.
        let seconds = way.rtt().scale_by(45.0).as_secs_f64().ceil().max(5.0);
        let download = if direction == Direction::Download {
            " download"
        } else {
            ""
        };
        let many = if streams > 1 {
            format!(" {streams} streams")
        } else {
            String::new()
        };
        Ok(Case {
            name: format!("{} {way} {control}{download}{many}", verdict.name()),
            expected: verdict,
            path: way.path(path)?,
            sender: vec![Change::TcpWmemMax(ByteCount::from_mib(32))],
            receiver: vec![Change::TcpRmemMax(ByteCount::from_mib(32))],
            request: Request {
                duration: Span::from_secs_f64(seconds),
                // As large as the program likes it.
                block: ByteCount::ZERO,
                congestion: Some(control.to_owned()),
                discard: true,
                streams,
                direction,
                ..Request::default()
            },
            plant: Plant::InPlan,
        })
    }

    /// A block that a program takes `pause` for, so that it moves its part of what the path
    /// carries.
    fn block(self, pause: Span) -> ByteCount {
        self.way.rate().scale_by(self.left()).bytes_in(pause)
    }
}

/// The plan for a verdict.
enum Planting {
    /// By these cases.
    Planted(Grid),
    /// By none, for this reason.
    Unplanted(&'static str),
}

/// The spots of a verdict, and its cases at each of them.
struct Grid {
    ways: [Way; 3],
    controls: &'static [&'static str],
    /// True if four streams of the far end under Reno have the limit as well as one.
    many: bool,
    cases: fn(Spot) -> Result<Vec<Case>, FlagError>,
}

type Make = fn(Spot) -> Result<Vec<Case>, FlagError>;

/// Cases under each congestion control, and of many streams.
const fn everywhere(cases: Make) -> Planting {
    Planting::Planted(Grid {
        ways: WAYS,
        controls: &CONTROLS,
        many: true,
        cases,
    })
}

/// Cases of one stream over these ways under these congestion controls.
const fn over(ways: [Way; 3], controls: &'static [&'static str], cases: Make) -> Planting {
    Planting::Planted(Grid {
        ways,
        controls,
        many: false,
        cases,
    })
}

/// Returns how a verdict is planted. A new verdict needs its case here, or the reason why there can
/// be none.
fn planting(verdict: LegalVerdict) -> Planting {
    match verdict {
        LegalVerdict::ReceiveWindow(verdict) => receive_window(verdict),
        LegalVerdict::ReceiverApplication(ReceiverApplicationVerdict::SlowReader) => {
            everywhere(slow_reader)
        }
        LegalVerdict::ReceiverApplication(ReceiverApplicationVerdict::Storage) => {
            everywhere(slow_file_of_receiver)
        }
        LegalVerdict::SendBuffer(SendBufferVerdict::SoSndbuf) => everywhere(fixed_send_buffer),
        LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax) => everywhere(tuned_send_buffers),
        LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle) => everywhere(slow_writer),
        LegalVerdict::SenderApplication(SenderApplicationVerdict::RateLimited) => {
            everywhere(offered_rate)
        }
        LegalVerdict::SenderApplication(SenderApplicationVerdict::Storage) => {
            everywhere(slow_file_of_sender)
        }
        LegalVerdict::ApplicationWindow(ApplicationWindowVerdict::SshChannelOfReceiver) => {
            over(SSH_WAYS, CUBIC, ssh_channel)
        }
        LegalVerdict::ApplicationWindow(ApplicationWindowVerdict::SshChannelOfSender) => {
            Planting::Unplanted(
                "the end that receives grants the window, and the verdict names that end",
            )
        }
        LegalVerdict::ApplicationWindow(_) => Planting::Unplanted(
            "the programs that keep such a window are planted where they are installed, by tests of the command line",
        ),
        LegalVerdict::CongestionWindow(verdict) => congestion_window(verdict),
        LegalVerdict::Capacity(CapacityVerdict::Link) => everywhere(|spot| Ok(vec![spot.bare()?])),
        LegalVerdict::Capacity(CapacityVerdict::Shared) => everywhere(shared_link),
        LegalVerdict::Capacity(CapacityVerdict::HostQueue) => everywhere(own_queue),
        LegalVerdict::Capacity(
            CapacityVerdict::HalfDuplexOfSender | CapacityVerdict::HalfDuplexOfReceiver,
        ) => Planting::Unplanted(
            "nothing collides on a device that Linux emulates: recorded counters show it",
        ),
        LegalVerdict::Capacity(CapacityVerdict::PerFlowLimit) => Planting::Unplanted(
            "an emulated path has one queue for all connections; `independent` bounds each of them",
        ),
        LegalVerdict::Capacity(CapacityVerdict::Allowance) => everywhere(used_up_allowance),
        LegalVerdict::Loss(LossVerdict::Random) => Planting::Planted(Grid {
            ways: WAYS,
            controls: CUBIC,
            many: true,
            cases: |spot| Ok(vec![lossy(spot, LEFT_BY_CHANCE)?]),
        }),
        LegalVerdict::Loss(LossVerdict::Policer) => everywhere(policed),
        // CUBIC takes longer to grow back a window that is this small.
        LegalVerdict::Loss(LossVerdict::ShallowQueue) => over(SHALLOW_WAYS, &["reno"], shallow),
        LegalVerdict::Loss(LossVerdict::ReceiverHost) => over(WAYS, CUBIC, dropped_by_receiver),
        LegalVerdict::Pacing(PacingVerdict::MaxPacingRate) => everywhere(asked_pace),
        LegalVerdict::Pacing(PacingVerdict::Qdisc) => everywhere(own_shaper),
        LegalVerdict::Pacing(PacingVerdict::CongestionControl) => over(WAYS, CUBIC, slow_pace),
        LegalVerdict::Cpu(verdict) => processor(verdict),
        LegalVerdict::Mtu(MtuVerdict::BlackHole) => over(SLOW_WAYS, &CONTROLS, black_hole),
        LegalVerdict::Mtu(MtuVerdict::MssClamped) => over(SMALL_WAYS, &CONTROLS, small_segments),
        LegalVerdict::Unknown(UnknownVerdict::EvidenceMissing) => {
            Planting::Unplanted("evidence that is missing limits no transfer")
        }
    }
}

fn receive_window(verdict: ReceiveWindowVerdict) -> Planting {
    match verdict {
        ReceiveWindowVerdict::SoRcvbuf => everywhere(asked_window),
        ReceiveWindowVerdict::TcpRmemMax => everywhere(tuned_window),
        ReceiveWindowVerdict::NoWindowScaling => everywhere(unscaled),
        ReceiveWindowVerdict::WindowScaleStripped => everywhere(stripped),
        ReceiveWindowVerdict::WindowScaleRewritten => everywhere(rewritten),
        ReceiveWindowVerdict::WindowClamped => everywhere(clamped),
        ReceiveWindowVerdict::MemoryPressure => Planting::Unplanted(
            "the memory of TCP is that of the whole machine, where other cases would lack it too: a test of the program \
             plants it alone",
        ),
    }
}

fn congestion_window(verdict: CongestionWindowVerdict) -> Planting {
    match verdict {
        CongestionWindowVerdict::RampUp => Planting::Planted(Grid {
            ways: LONG_WAYS,
            controls: &CONTROLS,
            many: true,
            cases: ramp_up,
        }),
        CongestionWindowVerdict::EarlyExit => over(LONG_WAYS, CUBIC, early_exit),
        CongestionWindowVerdict::Recovering => over(LONG_WAYS, CUBIC, recovering),
        CongestionWindowVerdict::Reordering => over(WAYS, CUBIC, reordered),
    }
}

fn processor(verdict: CpuVerdict) -> Planting {
    match verdict {
        CpuVerdict::UserOfSender => over(WAYS, &CONTROLS, |spot| {
            busy_program(spot, Host::Sender, "send")
        }),
        CpuVerdict::UserOfReceiver => over(WAYS, &CONTROLS, |spot| {
            busy_program(spot, Host::Receiver, "recv")
        }),
        CpuVerdict::SystemOfSender => over(FAST_WAYS, CUBIC, small_writes),
        CpuVerdict::SystemOfReceiver => Planting::Unplanted(
            "both ends run on one machine, where the kernel's work for the sender is the greater",
        ),
        CpuVerdict::StolenOfSender => over(SLOW_WAYS, &CONTROLS, |spot| {
            withheld(spot, Host::Sender, "send")
        }),
        CpuVerdict::StolenOfReceiver => over(SLOW_WAYS, &CONTROLS, |spot| {
            withheld(spot, Host::Receiver, "recv")
        }),
    }
}

/// Every case: the plan, and what is drawn from `seed`.
///
/// # Errors
/// If a path of the plan cannot be, which is a mistake in the plan.
pub(crate) fn cases(seed: u64) -> Result<Vec<Case>, FlagError> {
    let mut cases = Vec::new();
    for verdict in LegalVerdict::ALL {
        match planting(*verdict) {
            Planting::Planted(grid) => cases.extend(planted(*verdict, &grid)?),
            Planting::Unplanted(reason) => debug_assert!(!reason.is_empty()),
        }
    }
    cases.extend(drawn(seed)?);
    Ok(cases)
}

/// Returns `count` cases for virtual time, each verdict in turn over a way drawn from `seed`
/// between the least and the largest of its own, in rate and in bandwidth × round-trip time.
///
/// # Errors
/// If a path of the plan cannot be, which is a mistake in the plan.
pub(crate) fn drawn_ways(seed: u64, count: usize) -> Result<Vec<Case>, FlagError> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut cases = Vec::new();
    while cases.len() < count {
        let before = cases.len();
        for verdict in LegalVerdict::ALL {
            let Planting::Planted(grid) = planting(*verdict) else {
                continue;
            };
            let way = drawn_way(grid.ways, &mut random);
            let control = grid.controls[random.next_u64() as usize % grid.controls.len()];
            cases.extend(
                (grid.cases)(Spot::new(*verdict, way, control))?
                    .into_iter()
                    .filter(Case::is_modelled),
            );
        }
        if cases.len() == before {
            break;
        }
    }
    cases.truncate(count);
    for (number, case) in cases.iter_mut().enumerate() {
        case.name = format!("{} {number}", case.name);
    }
    Ok(cases)
}

/// Returns a way between these.
fn drawn_way(ways: [Way; 3], random: &mut Pcg64Mcg) -> Way {
    let mut between = |all: [u64; 3]| {
        let [low, high] =
            [all.iter().min(), all.iter().max()].map(|one| one.copied().unwrap_or(1) as f64);
        log_uniform(random, low, high)
    };
    let mbps = between(ways.map(|way| way.mbps));
    let product = between(ways.map(|way| way.mbps * way.rtt));
    Way {
        mbps: mbps.round() as u64,
        rtt: (product / mbps).round().clamp(3.0, 300.0) as u64,
    }
}

/// Returns a number between `low` and `high`, as likely in each part of as large a ratio.
fn log_uniform(random: &mut Pcg64Mcg, low: f64, high: f64) -> f64 {
    let share = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    low * (high / low).powf(share)
}

fn planted(verdict: LegalVerdict, grid: &Grid) -> Result<Vec<Case>, FlagError> {
    let mut cases = Vec::new();
    for control in grid.controls {
        for way in grid.ways {
            cases.extend((grid.cases)(Spot::new(verdict, way, control))?);
        }
    }
    if grid.many {
        let spot = Spot::new(verdict, grid.ways[1], "reno");
        cases.extend(many(
            Spot {
                streams: 4,
                direction: Direction::Download,
                ..spot
            },
            grid,
        )?);
    }
    Ok(cases)
}

/// Four streams of the far end's, where the limit holds four as well as one.
fn many(spot: Spot, grid: &Grid) -> Result<Vec<Case>, FlagError> {
    let mut cases = (grid.cases)(spot)?;
    // Some send one file, are of a protocol that only uploads, or are many already.
    cases.retain(|case| {
        case.request.streams == spot.streams
            && case.request.writer != Writer::Blocking
            && !matches!(
                case.plant,
                Plant::SlowFile { .. } | Plant::Iperf2 | Plant::CrossTraffic(_)
            )
    });
    Ok(cases)
}

fn asked_window(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut asked = spot.bare()?;
    asked.request.buffer = Buffer::Window(spot.way.bdp(spot.left()));
    Ok(vec![asked])
}

fn tuned_window(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut tuned = spot.bare()?;
    // The kernel advertises about five eighths of a buffer that small packets fill.
    tuned.receiver = vec![Change::TcpRmemMax(spot.way.bdp(spot.left() / 0.8))];
    Ok(vec![tuned])
}

fn unscaled(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut unscaled = spot.bare()?;
    unscaled.receiver.push(Change::WindowScaling(false));
    Ok(vec![unscaled])
}

fn fixed_send_buffer(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut fixed = spot.bare()?;
    // Only this end's buffer: iperf2's protocol does not hand the wish on. The kernel doubles it.
    fixed.request.buffer = Buffer::Request(spot.way.bdp(spot.left() / 2.0));
    fixed.plant = Plant::Iperf2;
    Ok(vec![fixed])
}

/// A small send buffer of either end, and under a writer that sleeps.
fn tuned_send_buffers(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let grown = small_send_buffer(spot)?;
    // Where packets are trains a sleeping writer overruns a small buffer (`kernel::fill`), and is
    // then held by something else.
    let mut sleeping = spot.over("segmentation=exact")?;
    sleeping.sender.clone_from(&grown.sender);
    sleeping.request.writer = Writer::Blocking;
    sleeping.name += " blocking";
    let mut cases = vec![grown, sleeping];
    if spot.direction == Direction::Upload {
        cases.push(small_send_buffer(Spot {
            direction: Direction::Download,
            ..spot
        })?);
    }
    Ok(cases)
}

fn small_send_buffer(spot: Spot) -> Result<Case, FlagError> {
    let mut grown = spot.bare()?;
    grown.sender = vec![Change::TcpWmemMax(spot.way.bdp(spot.left()))];
    Ok(grown)
}

/// A device edits what either end says as a connection is opened: the sender asks for half of
/// these, the receiver for the others.
fn asked_by_either_end(spot: Spot) -> Spot {
    let direction = if spot.control == CONTROLS[0] {
        Direction::Upload
    } else {
        Direction::Download
    };
    Spot { direction, ..spot }
}

fn rewritten(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut rewritten = asked_by_either_end(spot).over(&behind_routers("window-scale=6"))?;
    // Only what the receiver says is rewritten.
    rewritten.path.forward.effects.edits.retain(is_router);
    Ok(vec![rewritten])
}

fn clamped(spot: Spot) -> Result<Vec<Case>, FlagError> {
    // With this maximum the receiver shifts by 7.
    let field = spot.way.bdp(spot.left()).get() >> 7;
    let mut clamped =
        asked_by_either_end(spot).over(&behind_routers(&format!("clamp-window={field}")))?;
    clamped.path.forward.effects.edits.retain(is_router);
    clamped.receiver = vec![Change::TcpRmemMax(ByteCount::from_mib(6))];
    Ok(vec![clamped])
}

/// A device between two routers, as there is no path without any.
fn behind_routers(edit: &str) -> String {
    format!("edits=router=198.18.1.1 {edit} router=198.18.1.2")
}

fn is_router(edit: &Edit) -> bool {
    matches!(edit, Edit::Router(_))
}

/// A device that takes the scale out of what passes it: in both directions, on the way out from the
/// end that asks for the connection, or on the way back to it. Then an end that asked to send reads
/// smaller windows than are meant; one that asked to receive would have larger ones read, which
/// limits nothing.
fn stripped(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let spot = asked_by_either_end(spot);
    let both = spot.over(&behind_routers("strip-window-scale"))?;
    let one_way = |way: &str, spared: Host| {
        let mut case = Case {
            name: format!("{} {way}", both.name),
            ..both.clone()
        };
        let spared = if spared == Host::Sender {
            &mut case.path.forward
        } else {
            &mut case.path.reverse
        };
        spared.effects.edits.retain(is_router);
        case
    };
    Ok(if spot.direction == Direction::Download {
        vec![one_way("out", Host::Sender), both]
    } else {
        vec![
            one_way("out", Host::Receiver),
            one_way("back", Host::Sender),
            both,
        ]
    })
}

/// Little enough that a buffer takes it whole, however small the window is.
const SMALL_BLOCK: ByteCount = ByteCount::from_kib(32);

/// A transfer in small blocks, each of which something makes longer, and how much longer.
fn in_blocks(spot: Spot) -> Result<(Case, Span), FlagError> {
    let mut case = spot.bare()?;
    case.request.block = SMALL_BLOCK;
    // What is discarded in the kernel is taken in chunks of any size.
    case.request.rx_copy = true;
    Ok((
        case,
        spot.way.rate().scale_by(spot.left()).time_for(SMALL_BLOCK),
    ))
}

fn slow_reader(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let (case, by) = in_blocks(spot)?;
    Ok(vec![Case {
        plant: Plant::SlowCall {
            host: Host::Receiver,
            call: "recvfrom",
            by,
        },
        ..case
    }])
}

fn slow_file_of_receiver(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let (case, by) = in_blocks(spot)?;
    Ok(vec![Case {
        plant: Plant::SlowFile {
            host: Host::Receiver,
            by,
        },
        ..case
    }])
}

fn slow_writer(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let (mut case, by) = in_blocks(spot)?;
    case.request.sendfile = true;
    Ok(vec![Case {
        plant: Plant::SlowCall {
            host: Host::Sender,
            call: "sendfile",
            by,
        },
        ..case
    }])
}

fn slow_file_of_sender(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let (mut case, by) = in_blocks(spot)?;
    case.request.direction = Direction::Download;
    Ok(vec![Case {
        plant: Plant::SlowFile {
            host: Host::Sender,
            by,
        },
        ..case
    }])
}

fn offered_rate(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut offered = spot.bare()?;
    offered.request.rate = Some(spot.way.rate().scale_by(spot.left()));
    offered.request.block = spot.block(Span::from_millis(2));
    Ok(vec![offered])
}

/// A program that works on the data, as encryption does, with all of one processor.
fn busy_program(spot: Spot, host: Host, call: &'static str) -> Result<Vec<Case>, FlagError> {
    let (mut case, _) = in_blocks(spot)?;
    case.name = format!("{} {}", case.name, host.name());
    let by = spot.way.rate().scale_by(LEFT).time_for(SMALL_BLOCK);
    Ok(vec![Case {
        plant: Plant::BusyCall { host, call, by },
        ..case
    }])
}

/// A full link that others fill too, with a queue that lasts longer than a busy machine's link
/// stands still.
fn shared_link(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut shared = spot.over("queue=2bdp")?;
    shared.plant = Plant::CrossTraffic(Request {
        streams: 3,
        ..shared.request.clone()
    });
    Ok(vec![shared])
}

fn policed(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let police = format!(
        "policer={}k {}",
        spot.way.mbps * 400,
        spot.way.bdp(0.1).get().max(16 << 10)
    );
    // Long enough for the window to grow back to what the policer lets pass.
    Ok(vec![lasting(spot.over(&police)?, 15)])
}

/// A policer whose bucket lasts for four seconds of a full link.
fn used_up_allowance(spot: Spot) -> Result<Vec<Case>, FlagError> {
    const LASTS: Span = Span::from_secs(4);
    let saved = spot.way.rate().scale_by(1.0 - LEFT).bytes_in(LASTS);
    let police = format!(
        "policer={}k {}",
        spot.way.rate().scale_by(LEFT).bps() / 1000,
        saved.get()
    );
    Ok(vec![lasting(spot.over(&police)?, 15)])
}

fn own_queue(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut own_queue = spot.bare()?;
    // A stream leaves no more than a millisecond of packets in its host's queue
    // (`tcp_small_queue_check`); many fill it.
    own_queue.request.streams = 16;
    own_queue.plant = shaped(spot, "burst 16kb limit 24kb");
    Ok(vec![own_queue])
}

/// A token bucket on the sender's own device, below what the path carries.
fn shaped(spot: Spot, size: &str) -> Plant {
    let kilobits = spot.way.rate().scale_by(LEFT).bps() / 1000;
    Plant::Prepared {
        host: Host::Sender,
        command: format!("tc qdisc add dev path0 root tbf rate {kilobits}kbit {size}"),
    }
}

fn asked_pace(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut asked = spot.bare()?;
    asked.request.pacing = Some(spot.way.rate().scale_by(spot.left()));
    Ok(vec![asked])
}

fn own_shaper(spot: Spot) -> Result<Vec<Case>, FlagError> {
    Ok(vec![Case {
        plant: shaped(spot, "burst 64kb limit 64mb"),
        ..spot.bare()?
    }])
}

fn slow_pace(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut slow_pace = spot.bare()?;
    // Without `fq` a socket is paced from the moment it asks for a pace, here one far above the
    // path.
    slow_pace.request.pacing = Some(spot.way.rate().scale_by(4.0));
    slow_pace.plant = Plant::Prepared {
        host: Host::Sender,
        command: "sysctl -q -w net.ipv4.tcp_pacing_ca_ratio=25".to_owned(),
    };
    Ok(vec![slow_pace])
}

/// Rate of a program that works on each of its blocks with the whole of a processor.
const WHOLE_PROCESSOR: BitRate = BitRate::from_mbps(40);

/// A processor that is too slow, as a quota withholds it: with all of one, the program would carry
/// [`WHOLE_PROCESSOR`].
///
/// The program works on each of its blocks, so that the rate is the same on a slow machine and on a
/// fast one.
fn withheld(spot: Spot, host: Host, call: &'static str) -> Result<Vec<Case>, FlagError> {
    // A share of the quota that samples and the calls themselves take.
    let overhead = 0.01;
    let share = Ratio::new(spot.way.rate().scale_by(LEFT).relative_to(WHOLE_PROCESSOR) + overhead);
    let (mut case, _) = in_blocks(spot)?;
    case.name = format!("{} {}", case.name, host.name());
    let by = WHOLE_PROCESSOR.time_for(SMALL_BLOCK);
    Ok(vec![Case {
        plant: Plant::Quota {
            host,
            share,
            call,
            by,
        },
        ..case
    }])
}

/// A path that is faster than a core is with writes of so few bytes.
fn small_writes(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let bytes = match spot.way.mbps {
        ..200 => 8,
        200..400 => 16,
        400.. => 24,
    };
    let mut case = spot.bare()?;
    case.name = format!("{} {bytes}B", case.name);
    case.request.block = ByteCount::new(bytes);
    Ok(vec![case])
}

fn reordered(spot: Spot) -> Result<Vec<Case>, FlagError> {
    // RACK waits for a late packet as long as a round trip of now at most (RFC 8985, 6.2), of which
    // a full queue makes two.
    Ok(vec![
        spot.over(&format!("reorder=1% {}ms", spot.way.rtt * 5 / 2))?,
    ])
}

/// A filter of the receiving host that drops packets by chance. A ring, whose overflow is the usual
/// reason, no emulated device has.
fn dropped_by_receiver(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let (_, share) = loss_that_leaves(spot, LEFT_BY_CHANCE)?;
    // A train of segments would be dropped as one.
    let mut case = spot.over("segmentation=exact")?;
    let passes_from = (share * f64::from(u32::MAX)) as u32;
    // Classic BPF: a random number (`SKF_AD_RANDOM`) below the limit drops (`TC_ACT_SHOT`).
    let program = format!("4,32 0 0 4294963256,53 1 0 {passes_from},6 0 0 2,6 0 0 0");
    case.plant = Plant::Prepared {
        host: Host::Receiver,
        command: format!(
            "tc qdisc add dev path0 clsact && tc filter add dev path0 ingress bpf da bytecode '{program}'"
        ),
    };
    // Long enough for some losses.
    case.request.duration = spot.way.rtt().scale_by(200.0).max(Span::from_secs(15));
    Ok(vec![case])
}

/// A path with the least loss that leaves no more than this share of what it carries.
fn lossy(spot: Spot, left: f64) -> Result<Case, FlagError> {
    Ok(loss_that_leaves(spot, left)?.0)
}

/// The least loss, in steps of a tenth, that leaves no more than this share of what the path
/// carries.
fn loss_that_leaves(spot: Spot, left: f64) -> Result<(Case, f64), FlagError> {
    const NO_MORE_THAN: f64 = 0.03;
    let mut share = 1e-6;
    loop {
        let case = spot.over(&format!("loss={share:.7}"))?;
        let host = HostSettings::of_linux_6_18();
        let expected = predict(&case.path, &host, &host, &case.request);
        let rate = |kind| {
            expected
                .find_ceiling(kind)
                .map_or(BitRate::ZERO, |ceiling| ceiling.kernel_model)
        };
        if share > NO_MORE_THAN || rate(Limit::Loss) <= rate(Limit::Capacity).scale_by(left) {
            return Ok((case, share));
        }
        share *= 1.1;
    }
}

/// A queue that a few packets overflow which come together, as half of the packets of a small
/// window do.
fn shallow(spot: Spot) -> Result<Vec<Case>, FlagError> {
    const ROUND_TRIPS_OF_MANY_LOSSES: f64 = 200.0;
    let mut case = spot.over(&format!("queue={SHALLOW}packets"))?;
    case.request.duration = spot.way.rtt().scale_by(ROUND_TRIPS_OF_MANY_LOSSES);
    Ok(vec![case])
}

/// A transfer that ends while its window doubles.
fn ramp_up(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut short = spot.bare()?;
    short.request.duration = spot.way.rtt().scale_by(6.0);
    short.request.interval = spot.way.rtt().scale_by(1.0).max(Span::from_millis(100));
    Ok(vec![short])
}

/// A window that is far below what the path takes, and grows slowly.
fn early_exit(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut early = spot.bare()?;
    early.path.forward = spot.way.path(&wavering(spot.way))?.forward;
    Ok(vec![lasting(early, 8)])
}

/// The same after many losses at once.
fn recovering(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let burst: Vec<String> = (150..170).map(|packet| packet.to_string()).collect();
    let mut recovering = spot.bare()?;
    recovering.path.forward = spot
        .way
        .path(&format!("loss=packets {}", burst.join(" ")))?
        .forward;
    Ok(vec![lasting(recovering, 8)])
}

/// A delay that is 25 ms longer for one and a half round trips, and then as it was, in turn, while
/// slow start lasts: `HyStart` ends it where all round trips of a round are longer by an eighth, 16
/// ms at most.
fn wavering(way: Way) -> String {
    const LONGER: u64 = 25;
    const UNTIL: u64 = 6000;
    let (least, phase) = (way.rtt / 2, way.rtt * 3 / 2);
    let delay = |turn: u64| least + LONGER * (turn % 2);
    let turns =
        (1..=UNTIL / phase).map(|turn| format!("{}ms delay={}ms", turn * phase, delay(turn)));
    format!("changes={}", turns.collect::<Vec<_>>().join("; "))
}

fn lasting(mut case: Case, seconds: u64) -> Case {
    case.request.duration = Span::from_secs(seconds);
    case
}

/// Packets that are too large for a link on the way, which says nothing.
fn black_hole(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut hole = spot.over("narrow=1400 swallowed")?;
    hole.path.reverse.effects.narrow = None;
    Ok(vec![lasting(hole, 8)])
}

/// Packets of which half is headers.
fn small_segments(spot: Spot) -> Result<Vec<Case>, FlagError> {
    Ok(vec![spot.over(&behind_routers("clamp-mss=120"))?])
}

/// A program that keeps a window of its own above TCP.
fn ssh_channel(spot: Spot) -> Result<Vec<Case>, FlagError> {
    let mut case = spot.bare()?;
    // Both ends agree on keys before data flows.
    case.request.duration = case.request.duration.max(Span::from_secs(6));
    Ok(vec![Case {
        plant: Plant::SshChannel,
        ..case
    }])
}

/// Cases with ceilings that follow from figures, with figures drawn from `seed`.
fn drawn(seed: u64) -> Result<Vec<Case>, FlagError> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut between = |low, high| log_uniform(&mut random, low, high);
    let mut cases = Vec::new();
    for number in 0..12 {
        let mbps = between(10.0, 400.0) as u64;
        // No more in flight than the ways of the plan have, and no less than a window that scales.
        let rtt = (between(2e5, 1e6) * 8.0 / (mbps as f64 * 1e3)).clamp(8.0, 200.0) as u64;
        let left = between(0.2, 0.6);
        let way = Way { mbps, rtt };
        let control = CONTROLS[number % 2];
        let mut case = match number % 6 {
            0 => {
                let mut case = Spot::new(ReceiveWindowVerdict::SoRcvbuf, way, control).bare()?;
                case.request.buffer = Buffer::Window(way.bdp(left));
                case
            }
            1 => {
                let mut case = Spot::new(SendBufferVerdict::TcpWmemMax, way, control).bare()?;
                case.sender = vec![Change::TcpWmemMax(way.bdp(left))];
                case
            }
            2 => Spot::new(CapacityVerdict::Link, way, control).bare()?,
            3 => {
                let mut case =
                    Spot::new(SenderApplicationVerdict::RateLimited, way, control).bare()?;
                case.request.rate = Some(way.rate().scale_by(left));
                case.request.block = way.rate().scale_by(left).bytes_in(Span::from_millis(2));
                case
            }
            4 => lossy(Spot::new(LossVerdict::Random, way, CONTROLS[0]), left / 2.0)?,
            _ => {
                let mut case = Spot::new(PacingVerdict::MaxPacingRate, way, control).bare()?;
                case.request.pacing = Some(way.rate().scale_by(left));
                case
            }
        };
        case.name = format!("{} drawn {left:.2}", case.name);
        cases.push(case);
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_model::application::find_application;
    use fullpipe_record::At;
    use std::collections::{BTreeMap, BTreeSet};

    fn of_label(cases: &[Case]) -> BTreeMap<String, Vec<&Case>> {
        let mut by_label: BTreeMap<String, Vec<&Case>> = BTreeMap::new();
        for case in cases {
            by_label
                .entry(case.expected.name().to_owned())
                .or_default()
                .push(case);
        }
        by_label
    }

    #[test]
    fn every_cause_has_three_variants_far_apart() {
        for (label, cases) in of_label(&cases(1).unwrap()) {
            // Drawn ones come on top.
            let cases: Vec<_> = cases
                .into_iter()
                .filter(|case| !case.name.contains("drawn"))
                .collect();
            let rates: BTreeSet<u64> = cases
                .iter()
                .filter_map(|case| Some(case.path.forward.rate?.bps()))
                .collect();
            let trips: BTreeSet<u64> = cases
                .iter()
                .map(|case| case.path.rtt().as_micros())
                .collect();
            assert!(cases.len() >= 3, "{label}: {}", cases.len());
            for figures in [rates, trips] {
                let (least, most) = (figures.first().unwrap(), figures.last().unwrap());
                assert!(most >= &(least * 3), "{label}: {figures:?}");
            }
        }
    }

    #[test]
    fn a_verdict_without_a_case_says_why() {
        let planned = cases(1).unwrap();
        for verdict in LegalVerdict::ALL {
            let has_cases = planned.iter().any(|case| case.expected == *verdict);
            match planting(*verdict) {
                Planting::Planted(_) => assert!(has_cases, "{}", verdict.name()),
                Planting::Unplanted(reason) => {
                    assert!(!has_cases && reason.contains(' '), "{}", verdict.name());
                }
            }
        }
        assert_eq!(planned.len(), 240);
    }

    #[test]
    fn an_ssh_channel_leaves_much_of_its_path() {
        let host = HostSettings::of_linux_6_18();
        for way in SSH_WAYS {
            let spot = Spot::new(
                ApplicationWindowVerdict::SshChannelOfReceiver,
                way,
                CONTROLS[0],
            );
            let case = &ssh_channel(spot).unwrap()[0];
            let carried = predict(&case.path, &host, &host, &case.request)
                .find_ceiling(Limit::Capacity)
                .unwrap()
                .kernel_model;
            let let_through = find_application("ssh")
                .unwrap()
                .window_ceiling(way.rtt())
                .unwrap();
            assert!(
                let_through.relative_to(carried) <= 0.6,
                "{}: {let_through} of {carried}",
                case.name
            );
        }
    }

    #[test]
    fn the_planted_ceiling_is_well_below_every_other() {
        let mut known = 0;
        for case in cases(1).unwrap() {
            let host = HostSettings::of_linux_6_18();
            let end = |changes: &[Change]| host.changed_by(changes);
            let got = predict(
                &case.path,
                &end(&case.sender),
                &end(&case.receiver),
                &case.request,
            );
            let Some(planted) = got.find_ceiling(case.expected.limit_kind()) else {
                continue;
            };
            // What is asked of both buffers binds both; a plant that the model does not know leaves
            // other ceilings alone.
            if matches!(
                case.plant,
                Plant::Iperf2 | Plant::CrossTraffic(_) | Plant::Prepared { .. }
            ) {
                continue;
            }
            if case.expected.limit_place() == At::Middlebox {
                continue;
            }
            known += 1;
            for other in got
                .ceilings
                .iter()
                .filter(|ceiling| ceiling.kind != planted.kind)
            {
                let share = planted.kernel_model.relative_to(other.kernel_model);
                assert!(
                    share <= 0.75,
                    "{}: {share:.2} of {}",
                    case.name,
                    other.kind.name()
                );
            }
        }
        assert!(known > 50, "{known}");
    }

    #[test]
    fn the_same_seed_draws_the_same_cases() {
        assert_eq!(cases(7).unwrap(), cases(7).unwrap());
        assert_ne!(cases(7).unwrap(), cases(8).unwrap());
    }

    #[test]
    fn a_short_bench_has_one_of_each_kind() {
        let cases = cases(1).unwrap();
        let kinds = |short: bool| -> BTreeSet<Limit> {
            cases
                .iter()
                .filter(|case| case.is_short() || !short)
                .map(|case| case.expected.limit_kind())
                .collect()
        };
        assert_eq!(kinds(true), kinds(false));
        assert_eq!(
            cases.iter().filter(|case| case.is_short()).count(),
            SHORT.len()
        );
    }

    #[test]
    fn names_are_unique() {
        let cases = cases(1).unwrap();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
    }
}
