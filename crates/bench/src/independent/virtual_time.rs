//! The families of limits in virtual time.

use fullpipe_record::{Buffer, Change, HostSettings, Request, Transport};
use fullpipe_scenario::{FlagError, PathSpec, parse_path_flag};
use fullpipe_sim::{CrossTraffic, SimulationPlan};
use fullpipe_units::{BitRate, ByteCount, Span};

use super::case::{PACKET, SEGMENT};
use super::family::{FAMILIES as TABLE, Family, Way};
use crate::judged::{Random, VirtualCase};
use crate::process::RunError;

/// The families that can be simulated: what path, settings and load plant.
const FAMILIES: [&str; 20] = [
    "full-link",
    "shared-with-datagrams",
    "shared-with-tcp",
    "random-loss",
    "policer",
    "policed-bbr",
    "shallow-queue",
    "receive-maximum",
    "receive-buffer",
    "no-scaling",
    "stripped-scale",
    "send-maximum",
    "offered-rate",
    "pausing-sender",
    "slow-reader",
    "closed-window",
    "max-pace",
    "black-hole",
    "clamped-mss",
    "stalls",
];

/// Share of the cases whose connection stays open after the data.
const SHARE_OF_TAILS: f64 = 0.15;

/// Time for which cross traffic runs before a load.
const LEAD: Span = Span::from_secs(3);

/// Draws `count` cases from `seed`, of each family in turn.
///
/// # Errors
/// Fails if a path cannot be, which is a mistake in its family.
pub(crate) fn draw_virtual_cases(seed: u64, count: usize) -> Result<Vec<VirtualCase>, RunError> {
    let families = Family::read_all(TABLE)?;
    let draw = |index: usize| {
        let name = FAMILIES[index % FAMILIES.len()];
        let family = families.iter().find(|family| family.name == name);
        let family = family.ok_or_else(|| RunError::failed("a family is not in the table"))?;
        let draw = VirtualDraw::new(family.clone(), seed, index);
        draw.into_case(seed, index).map_err(RunError::failed)
    };
    (0..count).map(draw).collect()
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
    fn new(family: Family, seed: u64, index: usize) -> Self {
        let mut random = Random::new(seed.wrapping_mul(1_000_003) ^ (0xF << 32) ^ index as u64);
        let way = family.draw_way(&mut random);
        let control = family.draw_control(&mut random);
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
                congestion: Some(control),
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
        let has_silent_tail = self.random.chance(SHARE_OF_TAILS) && self.family.name != "stalls";
        let listed_at = self.random.uniform(0.7, 1.0);
        let Way { rate, rtt } = self.way;
        let flag = format!(
            "rate={:.0}k,rtt={:.0}us,{}",
            rate / 1e3,
            rtt * 1e6,
            self.path.join(",")
        );
        let path = parse_path_flag(&flag, &PathSpec::demo_path())?;
        let host = HostSettings::of_linux_6_18();
        let hosts = [&self.sender, &self.receiver].map(|changes| host.changed_by(changes));
        let control = self.request.congestion.clone().unwrap_or_default();
        let name = format!(
            "{seed}-{index:03} {expected} {:.0}M×{:.0}ms {control} {}{}",
            rate / 1e6,
            rtt * 1e3,
            if self.states_rate {
                "stated"
            } else {
                "unstated"
            },
            if has_silent_tail { " tail" } else { "" },
        );
        let rates = [self.least_share(), self.most_share()].map(|share| {
            let carried = path.forward.rate.unwrap_or_default();
            carried.scale_by(share * SEGMENT / PACKET)
        });
        let cross_traffic = self.cross_traffic.map(|request| CrossTraffic {
            request,
            starts: Span::ZERO,
        });
        let plan = SimulationPlan {
            reads: self.reads,
            lead: cross_traffic.as_ref().map_or(Span::ZERO, |_| LEAD),
            cross_traffic: cross_traffic.into_iter().collect(),
            ..SimulationPlan::new(path, hosts, self.request, seed ^ index as u64)
        };
        Ok(VirtualCase {
            name,
            expected: expected.to_owned(),
            plan,
            states_rate: self.states_rate,
            is_rate_asked: self.family.name != "pausing-sender",
            has_silent_tail,
            listed_at,
            rates,
        })
    }

    /// Returns the share of the path's rate above which the planted limit was none.
    fn most_share(&self) -> f64 {
        match self.family.name.as_str() {
            "full-link" | "clamped-mss" => f64::INFINITY,
            "shared-with-datagrams" | "shared-with-tcp" => 0.7,
            "shallow-queue" => 0.87,
            _ => 0.85,
        }
    }

    /// Returns the share that a full path exceeds, which has no limit but its rate.
    fn least_share(&self) -> f64 {
        if self.family.name == "full-link" {
            0.7
        } else {
            0.0
        }
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
        match self.family.name.as_str() {
            "shared-with-datagrams" | "shared-with-tcp" => self.share_link(),
            "random-loss" => self.lose_packets(),
            "policer" | "policed-bbr" => self.police_rate(),
            "shallow-queue" => self.shorten_queue(),
            "receive-maximum" | "receive-buffer" => self.bound_window(),
            "no-scaling" | "stripped-scale" => self.take_scale(),
            "send-maximum" => self.bound_send_buffer(),
            "offered-rate" | "pausing-sender" => self.offer_rate(),
            "slow-reader" | "closed-window" => self.read_slowly(),
            "max-pace" => self.pace_sender(),
            "black-hole" => self.narrow_link(),
            "clamped-mss" => self.clamp_segments(),
            "stalls" => self.stall_path(),
            _ => "capacity/link",
        }
    }

    fn share_link(&mut self) -> &'static str {
        // Only the stated rate distinguishes a part of a link from a link.
        self.states_rate = true;
        let duration = self.request.duration + LEAD + LEAD;
        let datagrams = BitRate::from_bps_f64(self.random.uniform(0.35, 0.6) * self.way.rate);
        let others = self.random.pick(&[3, 4, 6]);
        self.cross_traffic = Some(match self.family.name.as_str() {
            "shared-with-datagrams" => Request {
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
        let loss = self.way.loss_that_leaves(self.left);
        self.path.push(format!("loss={loss:.7}"));
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
        if self.family.name == "receive-maximum" {
            self.receiver = vec![Change::TcpRmemMax(window.scale_by(1.6))];
            return "receive-window/tcp-rmem-max";
        }
        self.request.buffer = Buffer::Window(window);
        "receive-window/so-rcvbuf"
    }

    fn take_scale(&mut self) -> &'static str {
        if self.family.name == "no-scaling" {
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
        let is_steady = self.family.name == "offered-rate";
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
        let left = if self.family.name == "slow-reader" {
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
