//! The planted limit of a case: settings, devices and programs.

use fullpipe_units::{ByteCount, Ratio, Span};

use super::case::{CROSS_TRAFFIC_PORT, Case, Family, PACKET, PORT, SEGMENT, Way};
use super::network::{FAR, FAR_ROUTER, Host};
use crate::judged::{JudgedView, Random};

/// An address of socat that answers each request with zeros, for ever.
const WEB_SERVER: &str = "SYSTEM:echo HTTP/1.0 200 OK; echo; exec cat /dev/zero";

/// Makes a file that takes no room, and is larger than what a case moves.
const SPARSE_FILE: &str = "mkdir -p SCRATCH; truncate -s 4G SCRATCH/file;";

/// A web server that sends files as the kernel reads them.
const NGINX_CONFIGURATION: &str = "echo 'daemon off; user root; pid SCRATCH/nginx.pid; error_log /dev/null; \
    events {} http { access_log off; sendfile on; server { listen 5201; root SCRATCH; } }' > SCRATCH/nginx.conf;";

/// A server of SSH whose key lets the client in, too.
const SSH_SERVER: &str = "mkdir -p /run/sshd; ssh-keygen -q -t ed25519 -N '' -f SCRATCH/key; \
    exec /usr/sbin/sshd -D -p 5201 -h SCRATCH/key -o AuthorizedKeysFile=SCRATCH/key.pub -o StrictModes=no \
    -o PidFile=none -o UsePAM=no";

const SSH_OPTIONS: [&str; 8] = [
    "-i",
    "SCRATCH/key",
    "-o",
    "StrictHostKeyChecking=no",
    "-o",
    "UserKnownHostsFile=/dev/null",
    "-o",
    "LogLevel=ERROR",
];

/// Arguments of the small programs.
#[derive(Default)]
struct Small {
    sender: Vec<String>,
    receiver: Vec<String>,
}

/// A case that is being made.
pub(crate) struct Plan {
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
    /// Returns a case without a limit.
    pub(crate) fn new(
        case: Case,
        way: Way,
        left: f64,
        control: &'static str,
        streams: u32,
        downloads: bool,
    ) -> Self {
        Self {
            case,
            way,
            left,
            control,
            streams,
            downloads,
            peer: Small::default(),
            flags: Vec::new(),
            bytes: None,
        }
    }

    /// Returns the case, and whether the near end receives.
    pub(crate) fn finish(self) -> (Case, bool) {
        (self.case, self.downloads)
    }

    fn data_sender(&self) -> Host {
        if self.downloads {
            Host::Far
        } else {
            Host::Near
        }
    }

    fn data_receiver(&self) -> Host {
        if self.downloads {
            Host::Near
        } else {
            Host::Far
        }
    }

    /// The router that sends data into the delay box.
    fn data_router(&self) -> Host {
        if self.downloads {
            Host::FarRouter
        } else {
            Host::NearRouter
        }
    }

    /// The part of a stream of what the limit leaves, in bytes in flight.
    fn window(&self) -> f64 {
        (self.way.bytes() * self.left / f64::from(self.streams)).max(6_000.0)
    }

    fn script(&mut self, host: Host, script: String) {
        self.case.scripts.push((host, script));
    }

    /// Adds a rule of nftables to the packets that pass `hook` of a router.
    fn filter(&mut self, router: Host, hook: &str, rule: &str) {
        self.script(router, filtering(hook, rule));
    }

    fn flag(&mut self, words: &[&str]) {
        self.flags.extend(owned(words));
    }

    fn is_watched(&self) -> bool {
        self.case.view == JudgedView::Watched
    }

    /// Plants the limit, and says what it is called.
    pub(crate) fn plant(&mut self, family: Family, draw: &mut Random) {
        self.case.expected = match family {
            Family::FullLink => "capacity/link",
            Family::SharedWithDatagrams => self.with_datagrams(draw),
            Family::SharedWithTcp => self.with_tcp(draw),
            Family::RandomLoss => self.random_loss(),
            Family::Policer | Family::PolicedBbr => self.policer(draw),
            Family::ShallowQueue => self.shallow_queue(draw),
            Family::ReceiveMaximum => self.receive_maximum(),
            Family::ReceiveBuffer => self.receive_buffer(),
            Family::NoScaling => self.no_scaling(draw),
            Family::StrippedScale => self.stripped_scale(draw),
            Family::SendMaximum => self.send_maximum(),
            Family::SendBuffer => self.send_buffer(),
            Family::OfferedRate => self.offered_rate(),
            Family::PausingSender => self.pausing_sender(draw),
            Family::SlowReader => self.slow_reader(draw),
            Family::ClosedWindow => self.close_window(draw),
            Family::OwnShaper => self.own_shaper(),
            Family::OwnShortQueue => self.own_short_queue(draw),
            Family::MaxPace => self.max_pace(),
            Family::SenderQuota => self.sender_quota(draw),
            Family::ReceiverQuota => self.receiver_quota(draw),
            Family::BlackHole => self.black_hole(draw),
            Family::ShortTransfer => self.short_transfer(draw),
            Family::BothWays => self.both_ways(),
            Family::Changing => self.changing(draw),
            Family::Loopback => self.loopback(draw),
            Family::ClampedMss => self.clamp_segments(draw),
            Family::Stalls => self.stall_path(draw),
            Family::PerFlowLimit => self.bound_each_flow(),
            Family::Allowance => self.use_up_allowance(draw),
        };
    }

    fn with_datagrams(&mut self, draw: &mut Random) -> &'static str {
        // Only the stated rate distinguishes a part of a link from a link.
        self.case.states_rate = true;
        let part = draw.uniform(0.35, 0.6) * self.way.rate;
        self.cross_traffic(&["-u", "-l", "1400", "-b", &format!("{part:.0}")]);
        "capacity/shared"
    }

    fn with_tcp(&mut self, draw: &mut Random) -> &'static str {
        self.case.states_rate = true;
        let others = draw.pick(&["3", "4", "6"]);
        let others: u32 = others.parse().unwrap_or(2) * self.streams;
        self.cross_traffic(&["-C", self.control, "-P", &others.to_string()]);
        "capacity/shared"
    }

    fn random_loss(&mut self) -> &'static str {
        // Reno: √(3⁄2p) packets (Mathis and others, 1997); CUBIC is like it where windows are
        // small.
        let packets = self.way.packets() * self.left;
        self.case.path.loss[usize::from(self.downloads)] = 1.5 / (packets * packets);
        "loss/random"
    }

    fn policer(&mut self, draw: &mut Random) -> &'static str {
        let passes = self.left * self.way.rate / 8.0;
        // Of as many milliseconds as devices have.
        let burst = (passes * draw.log_uniform(0.005, 0.08)).max(20_000.0);
        self.filter(self.data_router(), "forward", &policing(passes, burst));
        "loss/policer"
    }

    fn shallow_queue(&mut self, draw: &mut Random) -> &'static str {
        self.case.path.queue = ByteCount::from_f64(draw.uniform(3.0, 9.0) * PACKET);
        "loss/shallow-queue"
    }

    fn receive_maximum(&mut self) -> &'static str {
        let most = self.window() * 1.6;
        let usual = most.min(131_072.0);
        self.script(
            self.data_receiver(),
            format!("sysctl -qw net.ipv4.tcp_rmem='4096 {usual:.0} {most:.0}'"),
        );
        "receive-window/tcp-rmem-max"
    }

    fn receive_buffer(&mut self) -> &'static str {
        let window = self.window();
        self.flag(&["--window", &format!("{window:.0}")]);
        self.peer.receiver = vec!["--buffer".to_owned(), format!("{window:.0}")];
        "receive-window/so-rcvbuf"
    }

    fn no_scaling(&mut self, draw: &mut Random) -> &'static str {
        let host = if draw.chance(0.7) {
            self.data_receiver()
        } else {
            self.data_sender()
        };
        self.script(host, "sysctl -qw net.ipv4.tcp_window_scaling=0".to_owned());
        "receive-window/no-window-scaling"
    }

    fn stripped_scale(&mut self, draw: &mut Random) -> &'static str {
        let router = draw.pick(&[Host::NearRouter, Host::FarRouter]);
        self.filter(router, "forward", "tcp flags syn reset tcp option window");
        "receive-window/window-scale-stripped"
    }

    fn send_maximum(&mut self) -> &'static str {
        let most = self.window() * 1.5;
        let usual = most.min(65_536.0);
        self.script(
            self.data_sender(),
            format!("sysctl -qw net.ipv4.tcp_wmem='4096 {usual:.0} {most:.0}'"),
        );
        "send-buffer/tcp-wmem-max"
    }

    fn send_buffer(&mut self) -> &'static str {
        let size = self.window() * 0.75;
        self.peer.sender = vec!["--buffer".to_owned(), format!("{size:.0}")];
        "send-buffer/so-sndbuf"
    }

    fn offered_rate(&mut self) -> &'static str {
        let offered = self.left * self.way.goodput() / f64::from(self.streams);
        self.flag(&["-b", &format!("{offered:.0}")]);
        "sender-application/rate-limited"
    }

    fn pausing_sender(&mut self, draw: &mut Random) -> &'static str {
        self.peer.sender = pausing(self.left * self.way.goodput(), draw);
        "sender-application/idle"
    }

    fn slow_reader(&mut self, draw: &mut Random) -> &'static str {
        self.peer.receiver = pausing(self.left * self.way.goodput(), draw);
        // Of 128 KiB each, as both servers read.
        let pause = 131_072.0 * 8.0 / (self.left * self.way.goodput() / f64::from(self.streams));
        if !self.is_watched() {
            let call = if self.case.view == JudgedView::BothEnds {
                "recvfrom"
            } else {
                "read"
            };
            self.downloads = false;
            self.case.slow_call = Some((call, Span::from_secs_f64(pause)));
        }
        "receiver-application/slow-reader"
    }

    /// A reader that takes so little that the window is closed for most of the time.
    fn close_window(&mut self, draw: &mut Random) -> &'static str {
        self.left = draw.log_uniform(0.005, 0.05);
        self.slow_reader(draw)
    }

    /// A device that makes segments so small that headers, and the memory that each takes of a
    /// buffer, cost most.
    fn clamp_segments(&mut self, draw: &mut Random) -> &'static str {
        let mss = draw.uniform(100.0, 160.0).floor();
        let router = draw.pick(&[Host::NearRouter, Host::FarRouter]);
        self.filter(
            router,
            "forward",
            &format!("tcp flags syn tcp option maxseg size set {mss}"),
        );
        "mtu/mss-clamped"
    }

    /// A path that is interrupted so often that most of the time passes in timeouts.
    fn stall_path(&mut self, draw: &mut Random) -> &'static str {
        self.case.states_rate = false;
        let whole = self.seconds(Family::Stalls);
        let (stalled, flows) = (
            whole * draw.uniform(0.2, 0.3),
            whole * draw.uniform(0.02, 0.06),
        );
        let router = self.data_router();
        let drop = filtering("forward", "oifname path0 tcp dport != 0 drop");
        let stall =
            format!("{drop}; sleep {stalled:.2}; nft delete table ip bench; sleep {flows:.2}");
        let begun = data_flows("path0");
        self.case.change = Some((
            router,
            format!("{begun}; sleep 0.5; for i in 1 2 3; do {stall}; done"),
        ));
        "loss"
    }

    /// A policer of each connection: several of them multiply what one carries.
    fn bound_each_flow(&mut self) -> &'static str {
        // Only the stated rate shows that a part of it is none.
        self.case.states_rate = true;
        let each = self.left * self.way.rate / 8.0 / f64::from(self.streams);
        let burst = (each * 0.02).max(20_000.0);
        let set = "add set ip bench flows { type ipv4_addr . inet_service . inet_service; flags dynamic; }";
        let rule = format!(
            "oifname path0 update @flows {{ ip saddr . tcp sport . tcp dport limit rate over {each:.0} bytes/second \
             burst {burst:.0} bytes }} drop"
        );
        let table = format!("nft add table ip bench; nft '{set}'; ");
        self.script(
            self.data_router(),
            table + &filtering("forward", &format!("'{rule}'")),
        );
        "capacity/per-flow-limit"
    }

    /// A bucket that lasts for a few seconds of a full link, of a shaper or of a policer.
    fn use_up_allowance(&mut self, draw: &mut Random) -> &'static str {
        let passes = self.left * self.way.rate;
        let saved = (self.way.rate - passes) / 8.0 * draw.uniform(3.5, 5.0);
        if draw.chance(0.5) {
            let shaper = format!(
                "tc qdisc add dev host0 root tbf rate {passes:.0}bit burst {saved:.0} limit {:.0}",
                self.way.bytes().max(40_000.0)
            );
            // The router behind the bottleneck.
            let router = if self.downloads {
                Host::NearRouter
            } else {
                Host::FarRouter
            };
            self.script(router, shaper);
        } else {
            self.filter(
                self.data_router(),
                "forward",
                &policing(passes / 8.0, saved),
            );
        }
        "capacity/allowance"
    }

    fn own_shaper(&mut self) -> &'static str {
        let held = self.left * self.way.rate;
        self.script(self.data_sender(), shaping(held));
        "pacing/qdisc"
    }

    fn own_short_queue(&mut self, draw: &mut Random) -> &'static str {
        let held = self.left * self.way.rate;
        let limit = draw.uniform(4.0, 10.0) * PACKET;
        self.script(
            self.data_sender(),
            format!(
                "tc qdisc add dev host0 root tbf rate {held:.0}bit burst 5000 limit {limit:.0}"
            ),
        );
        "capacity/host-queue"
    }

    fn max_pace(&mut self) -> &'static str {
        let pace = self.left * self.way.goodput() / f64::from(self.streams);
        self.flag(&["--fq-rate", &format!("{pace:.0}")]);
        "pacing/max-pacing-rate"
    }

    fn sender_quota(&mut self, draw: &mut Random) -> &'static str {
        self.case.quota = Some((self.data_sender(), Ratio::new(draw.uniform(0.005, 0.015))));
        "cpu/stolen"
    }

    fn receiver_quota(&mut self, draw: &mut Random) -> &'static str {
        self.case.quota = Some((self.data_receiver(), Ratio::new(draw.uniform(0.005, 0.015))));
        "cpu/stolen"
    }

    fn black_hole(&mut self, draw: &mut Random) -> &'static str {
        let mtu = draw.uniform(1280.0, 1480.0).floor();
        let router = self.data_router();
        self.script(router, format!("ip link set path0 mtu {mtu}"));
        self.filter(router, "output", "icmp type destination-unreachable drop");
        "mtu/black-hole"
    }

    fn short_transfer(&mut self, draw: &mut Random) -> &'static str {
        self.bytes = Some(SEGMENT * draw.uniform(30.0, 150.0));
        "congestion-window/ramp-up"
    }

    fn both_ways(&mut self) -> &'static str {
        self.downloads = false;
        self.flag(&["--bidir"]);
        "capacity/link"
    }

    /// A limit that holds for most of the transfer, and another for the rest, before it or after
    /// it.
    fn changing(&mut self, draw: &mut Random) -> &'static str {
        self.case.states_rate = false;
        let passes = self.left * self.way.rate;
        let (host, begin, end, name) = if self.downloads || draw.chance(0.5) {
            let burst = (passes / 8.0 * 0.02).max(20_000.0);
            let begin = filtering("forward", &policing(passes / 8.0, burst));
            (
                self.data_router(),
                begin,
                "nft delete table ip bench",
                "loss/policer",
            )
        } else {
            (
                Host::Near,
                shaping(passes),
                "tc qdisc del dev host0 root",
                "pacing/qdisc",
            )
        };
        let (is_first, share) = (draw.chance(0.5), draw.uniform(0.2, 0.3));
        let wait = self.seconds(Family::Changing) * if is_first { 1.0 - share } else { share };
        let change = if is_first {
            end.to_owned()
        } else {
            begin.clone()
        };
        if is_first {
            self.script(host, begin);
        }
        let device = if host == Host::Near { "host0" } else { "path0" };
        let begun = data_flows(device);
        self.case.change = Some((host, format!("{begun}; sleep {wait:.1}; {change}")));
        name
    }

    fn loopback(&mut self, draw: &mut Random) -> &'static str {
        self.case.states_rate = false;
        self.case.server_host = Host::Near;
        match draw.pick(&["rate", "quota", "reader"]) {
            "quota" if self.case.view == JudgedView::BothEnds => {
                self.case.quota = Some((Host::Near, Ratio::new(draw.uniform(0.005, 0.015))));
                "cpu/stolen"
            }
            "reader" if !self.downloads => self.slow_reader(draw),
            _ => self.offered_rate(),
        }
    }

    fn cross_traffic(&mut self, load: &[&str]) {
        // Data goes the way that the judged data goes.
        let reversed = if self.downloads { "-R" } else { "" };
        let port = CROSS_TRAFFIC_PORT.to_string();
        let client = [
            "iperf3", "-c", FAR_ROUTER, "-p", &port, "-t", "60", reversed,
        ];
        let client = client
            .iter()
            .chain(load)
            .filter(|word| !word.is_empty())
            .map(|word| (*word).to_owned())
            .collect();
        self.case.cross_traffic = Some([
            client,
            ["iperf3", "-s", "-p", &port].map(str::to_owned).to_vec(),
        ]);
    }

    /// Chooses the programs at both ends.
    pub(crate) fn programs(&mut self, family: Family, draw: &mut Random) {
        let seconds = self.seconds(family);
        if self.is_watched() {
            self.watched_programs(family, seconds, draw);
        } else {
            self.own_programs(seconds);
        }
    }

    fn seconds(&self, family: Family) -> f64 {
        let round_trips = if family == Family::ShallowQueue {
            120.0
        } else {
            45.0
        };
        let least = if family == Family::Allowance {
            13.0
        } else {
            6.0
        };
        (self.way.rtt * round_trips).clamp(least, 14.0).ceil()
    }

    fn own_programs(&mut self, seconds: f64) {
        let port = PORT.to_string();
        let server: &[&str] = match self.case.view {
            JudgedView::BothEnds => &["FULLPIPE", "serve", "-p", &port],
            _ => &["iperf3", "-s", "-p", &port],
        };
        self.case.server = owned(server);
        let target = if self.case.server_host == Host::Far {
            FAR
        } else {
            "127.0.0.1"
        };
        self.flag(&[
            target,
            "-p",
            &PORT.to_string(),
            "-C",
            self.control,
            "-P",
            &self.streams.to_string(),
        ]);
        match self.bytes {
            Some(bytes) => self.flag(&["-n", &format!("{bytes:.0}")]),
            None => self.flag(&["-t", &seconds.to_string()]),
        }
        if self.downloads {
            self.flag(&["-R"]);
        }
        self.case.client = [std::mem::take(&mut self.flags), self.bandwidth()].concat();
    }

    #[expect(clippy::too_many_lines, reason = "a list of cases")]
    fn watched_programs(&mut self, family: Family, seconds: f64, draw: &mut Random) {
        let common = match self.bytes {
            Some(bytes) => vec!["--bytes".to_owned(), format!("{bytes:.0}")],
            None => vec!["--time".to_owned(), (seconds + 3.0).to_string()],
        };
        let needs_small_programs = matches!(
            family,
            Family::SendBuffer
                | Family::ReceiveBuffer
                | Family::PausingSender
                | Family::SlowReader
                | Family::ClosedWindow
                | Family::ShortTransfer
        );
        let target = format!("{FAR}:{PORT}");
        let (listen, url) = (
            format!("TCP-LISTEN:{PORT},reuseaddr"),
            format!("http://{target}/"),
        );
        let port = PORT.to_string();
        // SSH encrypts, and allows 2 MiB in flight.
        let suits_ssh = self.way.rate < 60e6 && self.way.bytes() < 1e6;
        let program = match needs_small_programs {
            true => "small",
            false if suits_ssh => {
                draw.pick(&["small", "socat", "iperf3", "curl", "nginx", "scp", "rsync"])
            }
            false => draw.pick(&["small", "socat", "iperf3", "curl", "nginx"]),
        };
        let (server, client) = match (program, self.downloads) {
            ("socat", false) => (
                owned(&["socat", "-u", &listen, "OPEN:/dev/null"]),
                owned(&["socat", "-u", "OPEN:/dev/zero", &format!("TCP:{target}")]),
            ),
            ("socat", true) => (
                owned(&["socat", "-u", "OPEN:/dev/zero", &listen]),
                owned(&["socat", "-u", &format!("TCP:{target}"), "OPEN:/dev/null"]),
            ),
            ("curl", false) => (
                owned(&["socat", "-u", &listen, "OPEN:/dev/null"]),
                owned(&[
                    "curl",
                    "--silent",
                    "--header",
                    "Expect:",
                    "--upload-file",
                    "/dev/zero",
                    &url,
                ]),
            ),
            ("curl", true) => (
                owned(&["socat", "-u", WEB_SERVER, &listen]),
                owned(&["curl", "--silent", "--output", "/dev/null", &url]),
            ),
            ("nginx", true) => (
                script(&format!(
                    "{SPARSE_FILE} {NGINX_CONFIGURATION} exec nginx -p SCRATCH -c SCRATCH/nginx.conf"
                )),
                owned(&[
                    "curl",
                    "--silent",
                    "--output",
                    "/dev/null",
                    &format!("http://{target}/file"),
                ]),
            ),
            ("scp", downloads) => {
                let there = format!("root@{FAR}:");
                let (from, to) = if downloads {
                    (format!("{there}SCRATCH/file"), "/dev/null".to_owned())
                } else {
                    ("SCRATCH/file".to_owned(), format!("{there}/dev/null"))
                };
                let copy = [
                    owned(&["scp", "-q", "-P", &port]),
                    owned(&SSH_OPTIONS),
                    vec![from, to],
                ]
                .concat();
                (script(&format!("{SPARSE_FILE} {SSH_SERVER}")), copy)
            }
            ("rsync", downloads) => {
                let there = format!("root@{FAR}:SCRATCH/");
                let (from, to) = if downloads {
                    (format!("{there}file"), "SCRATCH/copy".to_owned())
                } else {
                    ("SCRATCH/file".to_owned(), format!("{there}copy"))
                };
                let shell = format!("ssh -p {port} {}", SSH_OPTIONS.join(" "));
                let copy = owned(&[
                    "rsync",
                    "--inplace",
                    "--whole-file",
                    "-e",
                    &shell,
                    &from,
                    &to,
                ]);
                (script(&format!("{SPARSE_FILE} {SSH_SERVER}")), copy)
            }
            ("iperf3", _) => {
                let time = (seconds + 3.0).to_string();
                let client = owned(&[
                    "iperf3",
                    "-c",
                    FAR,
                    "-p",
                    &port,
                    "-t",
                    &time,
                    "-C",
                    self.control,
                ]);
                let reversed = if self.downloads {
                    owned(&["-R"])
                } else {
                    Vec::new()
                };
                (
                    owned(&["iperf3", "-s", "-p", &port]),
                    [client, reversed].concat(),
                )
            }
            (_, downloads) => {
                let (serve, call) = if downloads {
                    ("offer", "fetch")
                } else {
                    ("take", "send")
                };
                let (far, near) = if downloads {
                    (&self.peer.sender, &self.peer.receiver)
                } else {
                    (&self.peer.receiver, &self.peer.sender)
                };
                (
                    [
                        owned(&["BENCH", "peer", serve, &port]),
                        far.clone(),
                        common.clone(),
                    ]
                    .concat(),
                    [
                        owned(&["BENCH", "peer", call, &target]),
                        near.clone(),
                        common,
                    ]
                    .concat(),
                )
            }
        };
        self.case.server = server;
        self.case.client = [
            owned(&["-t", &seconds.to_string()]),
            self.bandwidth(),
            owned(&["--"]),
            client,
        ]
        .concat();
    }

    /// Returns the flag that states the rate of the path, if the user does.
    fn bandwidth(&self) -> Vec<String> {
        let stated = self
            .case
            .states_rate
            .then(|| self.case.stated_rate().bps().to_string());
        stated
            .map(|rate| owned(&["--bandwidth", &rate]))
            .unwrap_or_default()
    }
}

/// Returns the script that waits until data flows over a device: a load begins some time after its
/// program.
fn data_flows(device: &str) -> String {
    let flows = format!("awk '/{device}/ {{ exit $2 + $10 < 200000 }}' /proc/net/dev");
    format!("until {flows}; do sleep 0.05; done")
}

/// Returns the script that adds a rule of nftables to the packets that pass `hook`.
fn filtering(hook: &str, rule: &str) -> String {
    let chain = format!("add chain ip bench {hook} {{ type filter hook {hook} priority 0; }}");
    format!("nft add table ip bench; nft '{chain}'; nft add rule ip bench {hook} {rule}")
}

/// Returns the rule that drops what exceeds a rate, in bytes per second, and a burst, in bytes.
fn policing(passes: f64, burst: f64) -> String {
    format!("oifname path0 limit rate over {passes:.0} bytes/second burst {burst:.0} bytes drop")
}

/// Returns the script that shapes what a host sends to a rate in bit/s.
fn shaping(rate: f64) -> String {
    format!("tc qdisc add dev host0 root tbf rate {rate:.0}bit burst 16kb limit 4mb")
}

fn script(text: &str) -> Vec<String> {
    owned(&["sh", "-ec", text])
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns flags of a small program that moves so many bits per second and pauses in between.
fn pausing(rate: f64, draw: &mut Random) -> Vec<String> {
    let call = draw.log_uniform(4_000.0, 200_000.0).floor();
    let pause = call * 8.0 / rate;
    // Shorter pauses than a timer can keep are taken together.
    let calls = (0.002 / pause).ceil().max(1.0);
    [
        "--call",
        &call.to_string(),
        "--calls",
        &calls.to_string(),
        "--pause",
        &format!("{:.0}", pause * calls * 1e6),
    ]
    .map(str::to_owned)
    .to_vec()
}
