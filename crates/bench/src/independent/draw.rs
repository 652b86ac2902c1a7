//! Cases drawn from a seed: a path, and one limit planted on it, for each view of a transfer.

use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::network::{FAR, FAR_ROUTER, Host, PathPlan};

/// Ports of the server, and of the receiver of cross traffic.
pub(crate) const PORT: u16 = 5201;
pub(crate) const CROSS_TRAFFIC_PORT: u16 = 5301;

/// Whose figures the verdict may rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum View {
    /// `fullpipe serve` is at the far end.
    BothEnds,
    /// `iperf3 -s` is at the far end, and the near end sends.
    Sender,
    /// `iperf3 -s` is at the far end, and sends.
    Receiver,
    /// Other programs send and receive, and the near end is watched.
    Watched,
}

/// A transfer with one planted limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    /// Number, view, verdict and parameters.
    pub(crate) name: String,
    pub(crate) view: View,
    /// Kind and cause that the diagnosis must name.
    pub(crate) expected: &'static str,
    pub(crate) path: PathPlan,
    /// Whether the user states the rate of the path.
    pub(crate) is_told: bool,
    /// Scripts of the shell that plant the limit.
    pub(crate) scripts: Vec<(Host, String)>,
    /// A control group that gives a host's program this share of a processor.
    pub(crate) quota: Option<(Host, Ratio)>,
    /// Time added to each call of this name by the far program.
    pub(crate) slow_call: Option<(&'static str, Span)>,
    /// The program at the far end. `BENCH` stands for this program and `FULLPIPE` for the one under test.
    pub(crate) server: Vec<String>,
    /// What follows `fullpipe diagnose --json`.
    pub(crate) client: Vec<String>,
    /// Sender of other data from router to router, and its server.
    pub(crate) cross_traffic: Option<[Vec<String>; 2]>,
}

impl Case {
    /// Returns the rate of the path as `fullpipe` counts it: with all that Ethernet adds to a packet.
    pub(crate) fn stated_rate(&self) -> BitRate {
        const ON_THE_WIRE: f64 = 1538.0;
        self.path.rate.scaled(ON_THE_WIRE / PACKET)
    }
}

/// Draws `count` cases of `view`.
pub(crate) fn cases(view: View, seed: u64, count: usize) -> Vec<Case> {
    let families = families(view);
    let number_of_view = view as u64 + 1;
    (0..count)
        .map(|index| {
            let family = families[index % families.len()];
            let mut draw = Draw::new(seed.wrapping_mul(1_000_003) ^ (number_of_view << 32) ^ index as u64);
            let case = draw.case(view, family);
            Case { name: format!("{seed}-{index:03} {}", case.name), ..case }
        })
        .collect()
}

/// A way to limit a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    FullLink,
    SharedWithDatagrams,
    SharedWithTcp,
    RandomLoss,
    Policer,
    ShallowQueue,
    ReceiveMaximum,
    ReceiveBuffer,
    NoScaling,
    StrippedScale,
    SendMaximum,
    SendBuffer,
    OfferedRate,
    PausingSender,
    SlowReader,
    OwnShaper,
    OwnShortQueue,
    MaxPace,
    SenderQuota,
    ReceiverQuota,
    BlackHole,
    ShortTransfer,
}

use Family::{
    BlackHole, FullLink, MaxPace, NoScaling, OfferedRate, OwnShaper, OwnShortQueue, PausingSender, Policer, RandomLoss,
    ReceiveBuffer, ReceiveMaximum, ReceiverQuota, SendBuffer, SendMaximum, SenderQuota, ShallowQueue,
    SharedWithDatagrams, SharedWithTcp, ShortTransfer, SlowReader, StrippedScale,
};

const fn families(view: View) -> &'static [Family] {
    match view {
        View::BothEnds => &[
            FullLink,
            SharedWithDatagrams,
            SharedWithTcp,
            RandomLoss,
            Policer,
            ShallowQueue,
            ReceiveMaximum,
            ReceiveBuffer,
            NoScaling,
            StrippedScale,
            SendMaximum,
            OfferedRate,
            SlowReader,
            OwnShaper,
            OwnShortQueue,
            MaxPace,
            SenderQuota,
            ReceiverQuota,
            BlackHole,
            ShortTransfer,
        ],
        View::Sender => &[
            FullLink,
            SharedWithDatagrams,
            SharedWithTcp,
            RandomLoss,
            Policer,
            ShallowQueue,
            ReceiveMaximum,
            NoScaling,
            StrippedScale,
            SendMaximum,
            OfferedRate,
            SlowReader,
            OwnShaper,
            OwnShortQueue,
            MaxPace,
            SenderQuota,
            BlackHole,
            ShortTransfer,
        ],
        View::Receiver => &[
            FullLink,
            SharedWithDatagrams,
            SharedWithTcp,
            RandomLoss,
            Policer,
            ShallowQueue,
            ReceiveMaximum,
            ReceiveBuffer,
            NoScaling,
            StrippedScale,
            SendMaximum,
            OfferedRate,
            ReceiverQuota,
            ShortTransfer,
        ],
        View::Watched => &[
            FullLink,
            SharedWithDatagrams,
            SharedWithTcp,
            RandomLoss,
            Policer,
            ShallowQueue,
            ReceiveMaximum,
            ReceiveBuffer,
            NoScaling,
            StrippedScale,
            SendMaximum,
            SendBuffer,
            PausingSender,
            SlowReader,
            OwnShaper,
            OwnShortQueue,
            SenderQuota,
            BlackHole,
            ShortTransfer,
        ],
    }
}

/// Bytes of a full packet with Ethernet's header, and of the data in it.
const PACKET: f64 = 1514.0;
const SEGMENT: f64 = 1448.0;

struct Draw {
    random: Pcg64Mcg,
}

/// Rate in bit/s, round-trip time in seconds.
#[derive(Clone, Copy)]
struct Way {
    rate: f64,
    rtt: f64,
}

impl Way {
    /// Bandwidth × round-trip time in packets.
    fn packets(self) -> f64 {
        self.rate * self.rtt / 8.0 / PACKET
    }

    /// Bandwidth × round-trip time in bytes of data.
    fn bytes(self) -> f64 {
        self.packets() * SEGMENT
    }

    /// Data that the path carries, in bit/s.
    fn goodput(self) -> f64 {
        self.rate * SEGMENT / PACKET
    }
}

impl Draw {
    fn new(seed: u64) -> Self {
        Self { random: Pcg64Mcg::seed_from_u64(seed) }
    }

    fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.random.next_u64() as f64 / u64::MAX as f64)
    }

    /// Returns a value whose logarithm is uniform.
    fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        self.uniform(low.ln(), high.ln()).exp()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.random.next_u64() % from.len() as u64) as usize]
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.uniform(0.0, 1.0) < probability
    }

    /// Draws rate and round-trip time until they suit `family`.
    fn way(&mut self, family: Family) -> Way {
        let (rates, packets) = match family {
            // Enough losses in a run need a small window.
            RandomLoss => ((5e6, 100e6), 30.0..150.0),
            // A window that a queue cuts must grow back several times in a run.
            ShallowQueue => ((3e6, 50e6), 15.0..45.0),
            // A window without a scale must be far less than the pipe.
            NoScaling | StrippedScale => ((10e6, 500e6), 100.0..1500.0),
            // What a small share of a processor cannot fill.
            SenderQuota | ReceiverQuota => ((150e6, 500e6), 60.0..2000.0),
            // Lasts less than ten round trips.
            ShortTransfer => ((20e6, 500e6), 400.0..4000.0),
            BlackHole => ((5e6, 100e6), 40.0..1000.0),
            // Two loads at once are too many packets for two processors.
            SharedWithDatagrams | SharedWithTcp => ((5e6, 150e6), 40.0..1500.0),
            _ => ((5e6, 500e6), 40.0..2500.0),
        };
        loop {
            let way = Way { rate: self.log_uniform(rates.0, rates.1), rtt: self.log_uniform(0.003, 0.3) };
            if packets.contains(&way.packets()) {
                return way;
            }
        }
    }

    fn case(&mut self, view: View, family: Family) -> Case {
        let way = self.way(family);
        let left = self.uniform(0.25, 0.6);
        let control = match family {
            RandomLoss | ShallowQueue => self.pick(&["reno", "cubic"]),
            // BBR paces, and so does not overflow a queue of its own.
            OwnShortQueue => self.pick(&["reno", "cubic"]),
            _ => self.pick(&["reno", "cubic", "bbr"]),
        };
        let may_have_many = !matches!(
            family,
            RandomLoss
                | ShallowQueue
                | Policer
                | SenderQuota
                | ReceiverQuota
                | BlackHole
                | ShortTransfer
                | NoScaling
                | StrippedScale
        );
        let streams =
            if view != View::Watched && may_have_many && self.chance(0.25) { self.pick(&[2, 3, 5, 8]) } else { 1 };
        let downloads = match view {
            View::Sender => false,
            View::Receiver => true,
            View::BothEnds => self.chance(0.3),
            View::Watched => {
                matches!(family, ReceiveMaximum | ReceiveBuffer)
                    || (self.chance(0.4) && can_be_watched_receiving(family))
            }
        };
        let queue = self.uniform(0.8, 2.0) * way.bytes();
        let mut case = Case {
            name: String::new(),
            view,
            expected: "",
            path: PathPlan {
                rate: BitRate::from_bps_f64(way.rate),
                rtt: Span::from_secs_f64(way.rtt),
                queue: ByteCount::from_f64(queue.max(40_000.0)),
                loss: [0.0; 2],
                joins_segments: self.chance(0.5),
            },
            is_told: self.chance(0.5),
            scripts: Vec::new(),
            quota: None,
            slow_call: None,
            server: Vec::new(),
            client: Vec::new(),
            cross_traffic: None,
        };
        // The kernel takes as default only what it allows everybody; of a route it takes any.
        case.scripts.push((Host::Near, format!("ip route replace default via 198.18.10.2 congctl {control}")));
        case.scripts.push((Host::Far, format!("ip route replace default via 198.18.12.2 congctl {control}")));
        let mut plan = Plan {
            case,
            way,
            left,
            control,
            streams,
            downloads,
            peer: Small::default(),
            flags: Vec::new(),
            bytes: None,
        };
        plan.plant(family, self);
        plan.programs(family, self);
        let Plan { mut case, downloads, .. } = plan;
        case.name = format!(
            "{} {:.0}M×{:.0}ms {control} {}{streams} {}",
            case.expected,
            way.rate / 1e6,
            way.rtt * 1e3,
            if downloads { "down " } else { "" },
            if case.is_told { "told" } else { "untold" },
        );
        case
    }
}

/// Returns whether the near end's view of a download shows this limit at all.
fn can_be_watched_receiving(family: Family) -> bool {
    matches!(
        family,
        FullLink | SharedWithTcp | RandomLoss | Policer | NoScaling | StrippedScale | PausingSender | ShortTransfer
    )
}

/// What small programs are told.
#[derive(Default)]
struct Small {
    sender: Vec<String>,
    receiver: Vec<String>,
}

/// A case that is being made.
struct Plan {
    case: Case,
    way: Way,
    /// Share of the path's rate that the limit leaves.
    left: f64,
    control: &'static str,
    streams: u32,
    downloads: bool,
    peer: Small,
    flags: Vec<String>,
    bytes: Option<f64>,
}

impl Plan {
    fn data_sender(&self) -> Host {
        if self.downloads { Host::Far } else { Host::Near }
    }

    fn data_receiver(&self) -> Host {
        if self.downloads { Host::Near } else { Host::Far }
    }

    /// The router that sends data into the delay box.
    fn data_router(&self) -> Host {
        if self.downloads { Host::FarRouter } else { Host::NearRouter }
    }

    /// The part of a stream of what the limit leaves, in bytes in flight.
    fn window(&self) -> f64 {
        (self.way.bytes() * self.left / f64::from(self.streams)).max(6_000.0)
    }

    fn script(&mut self, host: Host, script: String) {
        self.case.scripts.push((host, script));
    }

    fn flag(&mut self, words: &[&str]) {
        self.flags.extend(words.iter().map(|word| (*word).to_owned()));
    }

    fn is_watched(&self) -> bool {
        self.case.view == View::Watched
    }

    /// Plants the limit, and says what it is called.
    fn plant(&mut self, family: Family, draw: &mut Draw) {
        let (rate, goodput) = (self.way.rate, self.way.goodput());
        self.case.expected = match family {
            FullLink => "capacity/link",
            SharedWithDatagrams => {
                // Nothing but the stated rate tells a part of a link from a link.
                self.case.is_told = true;
                let part = draw.uniform(0.35, 0.6) * rate;
                self.cross_traffic(&["-u", "-l", "1400", "-b", &format!("{part:.0}")]);
                "capacity/shared"
            }
            SharedWithTcp => {
                self.case.is_told = true;
                let others = draw.pick(&["2", "3", "4"]);
                let others: u32 = others.parse().unwrap_or(2) * self.streams;
                self.cross_traffic(&["-C", self.control, "-P", &others.to_string()]);
                "capacity/shared"
            }
            RandomLoss => {
                // Reno: √(3⁄2p) packets (Mathis and others, 1997); CUBIC is like it where windows are small.
                let packets = self.way.packets() * self.left;
                self.case.path.loss[usize::from(self.downloads)] = 1.5 / (packets * packets);
                "loss/random"
            }
            Policer => {
                let passes = self.left * rate / 8.0;
                // Of as many milliseconds as devices have.
                let burst = (passes * draw.log_uniform(0.005, 0.08)).max(20_000.0);
                self.script(
                    self.data_router(),
                    format!(
                        "nft add table ip police; nft 'add chain ip police f {{ type filter hook forward priority 0; }}'
                         nft add rule ip police f oifname path0 limit rate over {passes:.0} bytes/second burst {burst:.0} \
                         bytes drop"
                    ),
                );
                "loss/policer"
            }
            ShallowQueue => {
                self.case.path.queue = ByteCount::from_f64(draw.uniform(3.0, 9.0) * PACKET);
                "loss/shallow-queue"
            }
            ReceiveMaximum => {
                let most = self.window() * 1.6;
                let usual = most.min(131_072.0);
                self.script(self.data_receiver(), format!("sysctl -qw net.ipv4.tcp_rmem='4096 {usual:.0} {most:.0}'"));
                "receive-window/tcp-rmem-max"
            }
            ReceiveBuffer => {
                let window = self.window();
                self.flag(&["--window", &format!("{window:.0}")]);
                self.peer.receiver = vec!["--buffer".to_owned(), format!("{window:.0}")];
                "receive-window/so-rcvbuf"
            }
            NoScaling => {
                let host = if draw.chance(0.7) { self.data_receiver() } else { self.data_sender() };
                self.script(host, "sysctl -qw net.ipv4.tcp_window_scaling=0".to_owned());
                "receive-window/no-window-scaling"
            }
            StrippedScale => {
                let router = draw.pick(&[Host::NearRouter, Host::FarRouter]);
                self.script(
                    router,
                    "nft add table ip strip; nft 'add chain ip strip f { type filter hook forward priority 0; }'
                     nft add rule ip strip f tcp flags syn reset tcp option window"
                        .to_owned(),
                );
                "receive-window/window-scale-stripped"
            }
            SendMaximum => {
                let most = self.window() * 1.5;
                let usual = most.min(65_536.0);
                self.script(self.data_sender(), format!("sysctl -qw net.ipv4.tcp_wmem='4096 {usual:.0} {most:.0}'"));
                "send-buffer/tcp-wmem-max"
            }
            SendBuffer => {
                let size = self.window() * 0.75;
                self.peer.sender = vec!["--buffer".to_owned(), format!("{size:.0}")];
                "send-buffer/so-sndbuf"
            }
            OfferedRate => {
                let offered = self.left * goodput / f64::from(self.streams);
                self.flag(&["-b", &format!("{offered:.0}")]);
                "sender-application/rate-limited"
            }
            PausingSender => {
                self.peer.sender = pausing(self.left * goodput, draw);
                "sender-application/idle"
            }
            SlowReader => {
                self.peer.receiver = pausing(self.left * goodput, draw);
                // Of 128 KiB each, as both servers read.
                let pause = 131_072.0 * 8.0 / (self.left * goodput / f64::from(self.streams));
                if !self.is_watched() {
                    let call = if self.case.view == View::BothEnds { "recvfrom" } else { "read" };
                    self.downloads = false;
                    self.case.slow_call = Some((call, Span::from_secs_f64(pause)));
                }
                "receiver-application/slow-reader"
            }
            OwnShaper => {
                self.downloads = false;
                let held = self.left * rate;
                self.script(
                    Host::Near,
                    format!("tc qdisc add dev host0 root tbf rate {held:.0}bit burst 16kb limit 4mb"),
                );
                "pacing/qdisc"
            }
            OwnShortQueue => {
                self.downloads = false;
                let held = self.left * rate;
                let limit = draw.uniform(4.0, 10.0) * PACKET;
                self.script(
                    Host::Near,
                    format!("tc qdisc add dev host0 root tbf rate {held:.0}bit burst 5000 limit {limit:.0}"),
                );
                "capacity/host-queue"
            }
            MaxPace => {
                let pace = self.left * goodput / f64::from(self.streams);
                self.flag(&["--fq-rate", &format!("{pace:.0}")]);
                "pacing/max-pacing-rate"
            }
            SenderQuota => {
                self.case.quota = Some((self.data_sender(), Ratio::new(draw.uniform(0.01, 0.025))));
                "cpu/stolen"
            }
            ReceiverQuota => {
                self.case.quota = Some((self.data_receiver(), Ratio::new(draw.uniform(0.01, 0.025))));
                "cpu/stolen"
            }
            BlackHole => {
                let mtu = draw.uniform(1280.0, 1480.0).floor();
                let router = self.data_router();
                self.script(
                    router,
                    format!(
                        "ip link set path0 mtu {mtu}
                         nft add table ip mute; nft 'add chain ip mute o {{ type filter hook output priority 0; }}'
                         nft add rule ip mute o icmp type destination-unreachable drop"
                    ),
                );
                "mtu/black-hole"
            }
            ShortTransfer => {
                self.bytes = Some(SEGMENT * draw.uniform(30.0, 150.0));
                "congestion-window/ramp-up"
            }
        };
    }

    fn cross_traffic(&mut self, load: &[&str]) {
        // Data goes the way that the judged data goes.
        let reversed = if self.downloads { "-R" } else { "" };
        let port = CROSS_TRAFFIC_PORT.to_string();
        let client = ["iperf3", "-c", FAR_ROUTER, "-p", &port, "-t", "60", reversed];
        let client = client.iter().chain(load).filter(|word| !word.is_empty()).map(|word| (*word).to_owned()).collect();
        self.case.cross_traffic = Some([client, ["iperf3", "-s", "-p", &port].map(str::to_owned).to_vec()]);
    }

    /// Chooses the programs at both ends.
    fn programs(&mut self, family: Family, draw: &mut Draw) {
        let round_trips = if family == ShallowQueue { 120.0 } else { 45.0 };
        let seconds = (self.way.rtt * round_trips).clamp(6.0, 14.0).ceil();
        if self.is_watched() {
            self.watched_programs(family, seconds, draw);
        } else {
            self.own_programs(seconds);
        }
    }

    fn own_programs(&mut self, seconds: f64) {
        let port = PORT.to_string();
        let server: &[&str] = match self.case.view {
            View::BothEnds => &["FULLPIPE", "serve", "-p", &port],
            _ => &["iperf3", "-s", "-p", &port],
        };
        self.case.server = server.iter().map(|word| (*word).to_owned()).collect();
        self.flag(&[FAR, "-p", &PORT.to_string(), "-C", self.control, "-P", &self.streams.to_string()]);
        match self.bytes {
            Some(bytes) => self.flag(&["-n", &format!("{bytes:.0}")]),
            None => self.flag(&["-t", &seconds.to_string()]),
        }
        if self.downloads {
            self.flag(&["-R"]);
        }
        if self.case.is_told {
            let rate = self.case.stated_rate().bps().to_string();
            self.flag(&["--bandwidth", &rate]);
        }
        self.case.client = std::mem::take(&mut self.flags);
    }

    fn watched_programs(&mut self, family: Family, seconds: f64, draw: &mut Draw) {
        let common = match self.bytes {
            Some(bytes) => vec!["--bytes".to_owned(), format!("{bytes:.0}")],
            None => vec!["--time".to_owned(), (seconds + 3.0).to_string()],
        };
        let needs_small_programs =
            matches!(family, SendBuffer | ReceiveBuffer | PausingSender | SlowReader | ShortTransfer);
        let target = format!("{FAR}:{PORT}");
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let port = PORT.to_string();
        let program = if needs_small_programs { "small" } else { draw.pick(&["small", "socat", "iperf3"]) };
        let (server, client) = match (program, self.downloads) {
            ("socat", false) => (
                words(&["socat", "-u", &format!("TCP-LISTEN:{PORT},reuseaddr"), "OPEN:/dev/null"]),
                words(&["socat", "-u", "OPEN:/dev/zero", &format!("TCP:{target}")]),
            ),
            ("socat", true) => (
                words(&["socat", "-u", "OPEN:/dev/zero", &format!("TCP-LISTEN:{PORT},reuseaddr")]),
                words(&["socat", "-u", &format!("TCP:{target}"), "OPEN:/dev/null"]),
            ),
            ("iperf3", _) => {
                let time = (seconds + 3.0).to_string();
                let client = words(&["iperf3", "-c", FAR, "-p", &port, "-t", &time, "-C", self.control]);
                let reversed = if self.downloads { words(&["-R"]) } else { Vec::new() };
                (words(&["iperf3", "-s", "-p", &port]), [client, reversed].concat())
            }
            (_, downloads) => {
                let (serve, call) = if downloads { ("offer", "fetch") } else { ("take", "send") };
                let (far, near) = if downloads {
                    (&self.peer.sender, &self.peer.receiver)
                } else {
                    (&self.peer.receiver, &self.peer.sender)
                };
                (
                    [words(&["BENCH", "peer", serve, &port]), far.clone(), common.clone()].concat(),
                    [words(&["BENCH", "peer", call, &target]), near.clone(), common].concat(),
                )
            }
        };
        let mut watch = words(&["-t", &seconds.to_string()]);
        if self.case.is_told {
            watch.extend(words(&["--bandwidth", &self.case.stated_rate().bps().to_string()]));
        }
        self.case.server = server;
        self.case.client = [watch, words(&["--"]), client].concat();
    }
}

/// Returns flags of a small program that moves so many bits per second and pauses in between.
fn pausing(rate: f64, draw: &mut Draw) -> Vec<String> {
    let call = draw.log_uniform(4_000.0, 200_000.0).floor();
    let pause = call * 8.0 / rate;
    // Shorter pauses than a timer can keep are taken together.
    let calls = (0.002 / pause).ceil().max(1.0);
    ["--call", &call.to_string(), "--calls", &calls.to_string(), "--pause", &format!("{:.0}", pause * calls * 1e6)]
        .map(str::to_owned)
        .to_vec()
}
