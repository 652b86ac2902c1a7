//! The families of limits in virtual time: each transfer is simulated once, and judged from every
//! view.

use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe_diagnose::diagnose;
use fullpipe_experiment::{Interrupt, simulate_captured};
use fullpipe_record::{Buffer, Change, HostSettings, Measurement, Request, Transport, Verdict};
use fullpipe_scenario::{FlagError, PathSpec, parse_path_flag};
use fullpipe_sim::{CrossTraffic, SimulationPlan};
use fullpipe_trace::{ExplainedTransfers, PacketFile};
use fullpipe_units::{BitRate, ByteCount, Span};
use fullpipe_wire::{CapturedContent as Packet, pcap_header, pcap_record, read_captured};

use super::case::{Family, PACKET, SEGMENT, Way};
use super::draw::draw_way;
use super::random::Random;
use super::silent_tail::{append_keepalives, append_silence};
use crate::captures::{Captured, Taken};
use crate::parallel::map_in_parallel;
use crate::process::RunError;
use crate::views::{JudgedView, Judgement};

/// The families that can be simulated: what path, settings and load plant.
const FAMILIES: [Family; 20] = [
    Family::FullLink,
    Family::SharedWithDatagrams,
    Family::SharedWithTcp,
    Family::RandomLoss,
    Family::Policer,
    Family::PolicedBbr,
    Family::ShallowQueue,
    Family::ReceiveMaximum,
    Family::ReceiveBuffer,
    Family::NoScaling,
    Family::StrippedScale,
    Family::SendMaximum,
    Family::OfferedRate,
    Family::PausingSender,
    Family::SlowReader,
    Family::ClosedWindow,
    Family::MaxPace,
    Family::BlackHole,
    Family::ClampedMss,
    Family::Stalls,
];

/// Bytes of each packet in a simulated capture.
const SNAP_LENGTH: u32 = 128;

/// Share of the cases whose connection stays open after the data.
const SHARE_OF_TAILS: f64 = 0.15;

/// Time for which cross traffic runs before a load.
const LEAD: Span = Span::from_secs(3);

/// A transfer with one planted limit.
#[derive(Debug)]
pub(crate) struct VirtualCase {
    /// Seed, number, verdict and parameters.
    pub(crate) name: String,
    expected: &'static str,
    plan: SimulationPlan,
    /// The rate of the path, if the user states it.
    stated: Option<BitRate>,
    /// True if the connection stays open for long after the data.
    has_silent_tail: bool,
    /// True if the program was asked for the rate that it offers, false if it has that by itself.
    is_rate_asked: bool,
    /// Share of the path's rate that a transfer with this limit cannot exceed.
    at_most: f64,
}

/// Draws `count` cases from `seed`, of each family in turn.
///
/// # Errors
/// Fails if a path cannot be, which is a mistake in its family.
pub(crate) fn draw_virtual_cases(seed: u64, count: usize) -> Result<Vec<VirtualCase>, FlagError> {
    (0..count)
        .map(|index| VirtualDraw::new(seed, index).into_case(seed, index))
        .collect()
}

/// A case that is being drawn.
struct VirtualDraw {
    random: Random,
    family: Family,
    way: Way,
    /// Share of the path's rate that the limit leaves.
    left: f64,
    /// The path besides its rate and round-trip time, as keys of `--path`.
    path: Vec<String>,
    sender: Vec<Change>,
    receiver: Vec<Change>,
    request: Request,
    reads: Option<BitRate>,
    cross_traffic: Option<Request>,
    states_rate: bool,
}

impl VirtualDraw {
    fn new(seed: u64, index: usize) -> Self {
        let mut random = Random::new(seed.wrapping_mul(1_000_003) ^ (0xF << 32) ^ index as u64);
        let family = FAMILIES[index % FAMILIES.len()];
        let way = draw_way(&mut random, family);
        let control = match family {
            Family::RandomLoss | Family::ShallowQueue => random.pick(&["reno", "cubic"]),
            Family::PolicedBbr => "bbr",
            _ => random.pick(&["reno", "cubic", "bbr"]),
        };
        let seconds = (way.rtt * 45.0).clamp(6.0, 14.0);
        let queue = random.uniform(0.8, 2.0) * way.bytes();
        Self {
            family,
            way,
            left: random.uniform(0.25, 0.6),
            path: vec![format!("queue={:.0}kB", (queue / 1000.0).max(40.0))],
            sender: vec![Change::TcpWmemMax(ByteCount::from_mib(64))],
            receiver: vec![Change::TcpRmemMax(ByteCount::from_mib(64))],
            request: Request {
                duration: Span::from_secs_f64(seconds),
                block: ByteCount::ZERO,
                congestion: Some(control.to_owned()),
                ..Request::default()
            },
            reads: None,
            cross_traffic: None,
            states_rate: random.chance(0.5),
            random,
        }
    }

    fn into_case(mut self, seed: u64, index: usize) -> Result<VirtualCase, FlagError> {
        let expected = self.plant_limit();
        // A sender that still waits for acknowledgements sends no keepalives.
        let has_silent_tail = self.random.chance(SHARE_OF_TAILS) && self.family != Family::Stalls;
        let Way { rate, rtt } = self.way;
        let flag = format!(
            "rate={:.0}k,rtt={:.0}us,{}",
            rate / 1e3,
            rtt * 1e6,
            self.path.join(",")
        );
        let path = parse_path_flag(&flag, &PathSpec::demo_path())?;
        let stated = path.forward.rate.filter(|_| self.states_rate);
        let host = HostSettings::of_linux_6_18();
        let hosts = [
            host.changed_by(&self.sender),
            host.changed_by(&self.receiver),
        ];
        let control = self.request.congestion.clone().unwrap_or_default();
        let name = format!(
            "{seed}-{index:03} {expected} {:.0}M×{:.0}ms {control} {}{}",
            rate / 1e6,
            rtt * 1e3,
            if stated.is_some() {
                "stated"
            } else {
                "unstated"
            },
            if has_silent_tail { " tail" } else { "" },
        );
        let lead = if self.cross_traffic.is_some() {
            LEAD
        } else {
            Span::ZERO
        };
        let cross_traffic = self.cross_traffic.map(|request| CrossTraffic {
            request,
            starts: Span::ZERO,
        });
        let plan = SimulationPlan {
            reads: self.reads,
            cross_traffic: cross_traffic.into_iter().collect(),
            lead,
            ..SimulationPlan::new(path, hosts, self.request, seed ^ index as u64)
        };
        let is_rate_asked = self.family != Family::PausingSender;
        Ok(VirtualCase {
            name,
            expected,
            plan,
            stated,
            is_rate_asked,
            has_silent_tail,
            at_most: most_of_path(self.family),
        })
    }

    /// Bytes in flight that the limit leaves.
    fn window(&self) -> f64 {
        (self.way.bytes() * self.left).max(6_000.0)
    }

    fn goodput_left(&self) -> BitRate {
        BitRate::from_bps_f64(self.left * self.way.goodput())
    }

    /// Plants the limit, and returns its name.
    fn plant_limit(&mut self) -> &'static str {
        match self.family {
            Family::SharedWithDatagrams | Family::SharedWithTcp => self.share_link(),
            Family::RandomLoss => self.lose_packets(),
            Family::Policer | Family::PolicedBbr => self.police_rate(),
            Family::ShallowQueue => self.shorten_queue(),
            Family::ReceiveMaximum | Family::ReceiveBuffer => self.bound_window(),
            Family::NoScaling | Family::StrippedScale => self.take_scale(),
            Family::SendMaximum => self.bound_send_buffer(),
            Family::OfferedRate | Family::PausingSender => self.offer_rate(),
            Family::SlowReader | Family::ClosedWindow => self.read_slowly(),
            Family::MaxPace => self.pace_sender(),
            Family::BlackHole => self.narrow_link(),
            Family::ClampedMss => self.clamp_segments(),
            Family::Stalls => self.stall_path(),
            _ => "capacity/link",
        }
    }

    fn share_link(&mut self) -> &'static str {
        // Only the stated rate distinguishes a part of a link from a link.
        self.states_rate = true;
        let duration = self.request.duration + LEAD + LEAD;
        let datagrams = BitRate::from_bps_f64(self.random.uniform(0.35, 0.6) * self.way.rate);
        let others = self.random.pick(&[3, 4, 6]);
        self.cross_traffic = Some(match self.family {
            Family::SharedWithDatagrams => Request {
                transport: Transport::Udp,
                rate: Some(datagrams),
                block: ByteCount::new(1400),
                duration,
                ..Request::default()
            },
            _ => Request {
                streams: others,
                duration,
                ..self.request.clone()
            },
        });
        "capacity/shared"
    }

    fn lose_packets(&mut self) -> &'static str {
        // Reno: √(3⁄2p) packets (Mathis and others, 1997); CUBIC is like it where windows are
        // small.
        let packets = self.way.packets() * self.left;
        self.path
            .push(format!("loss={:.7}", 1.5 / (packets * packets)));
        "loss/random"
    }

    fn police_rate(&mut self) -> &'static str {
        let passes = self.left * self.way.rate;
        // Of as many milliseconds as devices have.
        let burst = (passes / 8.0 * self.random.log_uniform(0.005, 0.08)).max(20_000.0);
        self.path
            .push(format!("policer={:.0}k {burst:.0}", passes / 1e3));
        "loss/policer"
    }

    fn shorten_queue(&mut self) -> &'static str {
        let packets = self.random.uniform(3.0, 9.0);
        self.path = vec![format!("queue={packets:.0}packets")];
        // A test of any length has to see it.
        let seconds = (self.way.rtt * 120.0).clamp(6.0, 14.0) * self.random.uniform(0.7, 2.0);
        self.request.duration = Span::from_secs_f64(seconds);
        "loss/shallow-queue"
    }

    fn bound_window(&mut self) -> &'static str {
        let window = ByteCount::from_f64(self.window());
        if self.family == Family::ReceiveMaximum {
            self.receiver = vec![Change::TcpRmemMax(window.scale_by(1.6))];
            return "receive-window/tcp-rmem-max";
        }
        self.request.buffer = Buffer::Window(window);
        "receive-window/so-rcvbuf"
    }

    fn take_scale(&mut self) -> &'static str {
        if self.family == Family::NoScaling {
            let changes = if self.random.chance(0.7) {
                &mut self.receiver
            } else {
                &mut self.sender
            };
            changes.push(Change::WindowScaling(false));
            return "receive-window/no-window-scaling";
        }
        self.path.push(behind_routers("strip-window-scale"));
        "receive-window/window-scale-stripped"
    }

    fn bound_send_buffer(&mut self) -> &'static str {
        self.sender = vec![Change::TcpWmemMax(ByteCount::from_f64(self.window()))];
        "send-buffer/tcp-wmem-max"
    }

    fn offer_rate(&mut self) -> &'static str {
        let rate = self.goodput_left();
        self.request.rate = Some(rate);
        let is_steady = self.family == Family::OfferedRate;
        let pause = if is_steady {
            0.002
        } else {
            self.random.log_uniform(0.01, 0.2)
        };
        self.request.block = rate
            .bytes_in(Span::from_secs_f64(pause))
            .max(ByteCount::new(1000));
        if is_steady {
            "sender-application/rate-limited"
        } else {
            "sender-application/idle"
        }
    }

    fn read_slowly(&mut self) -> &'static str {
        let left = if self.family == Family::SlowReader {
            self.left
        } else {
            self.random.log_uniform(0.005, 0.05)
        };
        self.reads = Some(BitRate::from_bps_f64(left * self.way.goodput()));
        if self.random.chance(0.5) {
            self.receiver = vec![Change::TcpRmemMax(ByteCount::from_mib(6))];
        }
        "receiver-application/slow-reader"
    }

    fn pace_sender(&mut self) -> &'static str {
        self.request.pacing = Some(self.goodput_left());
        "pacing/max-pacing-rate"
    }

    fn narrow_link(&mut self) -> &'static str {
        let mtu = self.random.uniform(1280.0, 1480.0);
        self.path.push(format!("narrow={mtu:.0} swallowed"));
        "mtu/black-hole"
    }

    fn clamp_segments(&mut self) -> &'static str {
        let mss = self.random.uniform(100.0, 160.0);
        self.receiver = vec![Change::TcpRmemMax(ByteCount::from_mib(32))];
        self.path
            .push(behind_routers(&format!("clamp-mss={mss:.0}")));
        "mtu/mss-clamped"
    }

    /// Interrupts the path so often and for so long that most of the time passes in timeouts.
    fn stall_path(&mut self) -> &'static str {
        let whole = self.request.duration.as_secs_f64();
        let mut steps = Vec::new();
        let mut at = whole * self.random.uniform(0.05, 0.12);
        while at < whole * 0.8 {
            let until = at + whole * self.random.uniform(0.2, 0.3);
            steps.push(format!("{at:.2}s loss=100%; {until:.2}s loss=0"));
            at = until + whole * self.random.uniform(0.02, 0.06);
        }
        self.path.push(format!("changes={}", steps.join("; ")));
        "loss"
    }
}

fn behind_routers(edit: &str) -> String {
    format!("edits=router=198.18.1.1 {edit} router=198.18.1.2")
}

/// Returns the share of the path's rate above which the planted limit was none.
fn most_of_path(family: Family) -> f64 {
    match family {
        Family::FullLink | Family::ClampedMss => f64::INFINITY,
        Family::SharedWithDatagrams | Family::SharedWithTcp => 0.7,
        Family::ShallowQueue => 0.87,
        _ => 0.85,
    }
}

impl VirtualCase {
    /// Simulates the transfer, and returns the verdict of every view; none where the limit was
    /// none.
    ///
    /// # Errors
    /// Fails if it is interrupted, cannot be simulated, or its captures cannot be written.
    fn judge(&self, views: &[JudgedView], stop: &AtomicBool) -> Result<Vec<Judgement>, RunError> {
        let (measurement, files) =
            simulate_captured(self.plan.clone(), Interrupt(stop)).map_err(RunError::failed)?;
        if !self.is_planted(&measurement) {
            return Ok(Vec::new());
        }
        let mut judged = Vec::new();
        for view in JudgedView::OF_KERNEL
            .into_iter()
            .filter(|view| views.contains(view))
        {
            let mut evidence = view.evidence(&measurement, self.stated);
            evidence.request.rate = evidence.request.rate.filter(|_| self.is_rate_asked);
            // A load of its own closes its connections.
            if self.has_silent_tail && view == JudgedView::Watched {
                append_silence(&mut evidence.sender_samples);
            }
            judged.push(self.judgement(view, Some(diagnose(&evidence))));
        }
        let scratch = tempfile::tempdir().map_err(RunError::failed)?;
        let captured = self
            .judge_captures(&measurement, scratch.path(), &files)
            .map_err(RunError::failed)?;
        judged.extend(
            captured
                .into_iter()
                .filter(|judgement| views.contains(&judgement.view)),
        );
        Ok(judged)
    }

    fn judgement(&self, view: JudgedView, verdict: Option<Verdict>) -> Judgement {
        Judgement {
            transfer: self.name.clone(),
            view,
            expected: self.expected.to_owned(),
            verdict,
        }
    }

    /// Returns the verdicts on the captures of both ends, each and together.
    fn judge_captures(
        &self,
        measurement: &Measurement,
        scratch: &Path,
        files: &[Vec<u8>; 2],
    ) -> io::Result<Vec<Judgement>> {
        let [sender, receiver] = ["sender.pcap", "receiver.pcap"].map(|name| scratch.join(name));
        for (path, file) in [&sender, &receiver].into_iter().zip(files) {
            let file = without_cross_traffic(file)?;
            std::fs::write(
                path,
                if self.has_silent_tail {
                    append_keepalives(&file, self.plan.path.rtt())?
                } else {
                    file
                },
            )?;
        }
        let captured = Captured {
            name: &self.name,
            expected: self.expected,
            bandwidth: self.stated,
            explained: ExplainedTransfers::of_test(measurement),
        };
        let seen = [
            (
                JudgedView::CapturedAtSender,
                captured.seen(Taken::Sender, &sender, None),
            ),
            (
                JudgedView::CapturedAtReceiver,
                captured.seen(Taken::Receiver, &receiver, None),
            ),
            (
                JudgedView::CapturedAtBoth,
                captured.seen(Taken::BothEnds, &sender, Some(&receiver)),
            ),
        ];
        Ok(seen
            .into_iter()
            .map(|(view, seen)| self.judgement(view, seen.and_then(|seen| seen.verdict)))
            .collect())
    }

    /// Returns true if the planted limit can have been the limit: a full path has none but its
    /// rate.
    fn is_planted(&self, measurement: &Measurement) -> bool {
        const FULL: f64 = 0.7;
        let path = self.plan.path.forward.rate.unwrap_or(BitRate::ZERO);
        let steady = measurement
            .summary
            .steady
            .map_or(measurement.summary.rate, |steady| steady.rate);
        let share = steady.relative_to(path) * PACKET / SEGMENT;
        share < self.at_most && (self.expected != "capacity/link" || share > FULL)
    }
}

/// Port of the first connection of a simulation, at the end that opens it.
const FIRST_PORT: u16 = 40_000;

/// Returns a capture with the packets of its first connection alone: cross traffic passes other
/// hosts.
fn without_cross_traffic(file: &[u8]) -> io::Result<Vec<u8>> {
    let mut packets =
        PacketFile::new(Cursor::new(file.to_vec()), "capture").map_err(io::Error::other)?;
    let mut kept = Vec::new();
    while let Some(packet) = packets.next_packet().map_err(io::Error::other)? {
        if kept.is_empty() {
            kept.extend(pcap_header(packet.link, SNAP_LENGTH));
        }
        let captured = read_captured(packet.link, packet.bytes, packet.original as usize);
        let is_first = |address: SocketAddr| address.port() == FIRST_PORT;
        let is_own = matches!(captured, Packet::Tcp(segment) if is_first(segment.source) || is_first(segment.destination));
        if is_own {
            kept.extend(pcap_record(
                packet.at,
                packet.bytes.len() as u32,
                packet.original,
            ));
            kept.extend(packet.bytes);
        }
    }
    Ok(kept)
}

/// Judges cases from these views on all processors, and returns the verdicts in the order of the
/// cases.
///
/// # Errors
/// Fails if a case cannot be simulated, or its captures cannot be written.
pub(crate) fn judge_virtual_cases(
    cases: &[VirtualCase],
    views: &[JudgedView],
    stop: &AtomicBool,
) -> Result<Vec<Judgement>, RunError> {
    let judged = map_in_parallel(cases, |_, case| {
        if stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        case.judge(views, stop)
    });
    let judged: Vec<Vec<Judgement>> = judged.into_iter().collect::<Result<_, _>>()?;
    Ok(judged.into_iter().flatten().collect())
}
