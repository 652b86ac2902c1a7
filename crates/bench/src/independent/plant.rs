//! The planted limit of a case: settings, devices and programs.

use fullpipe_units::{ByteCount, Ratio, Span};

use super::case::{CROSS_TRAFFIC_PORT, Case, PACKET, PORT, SEGMENT};
use super::draw::congestion_routes;
use super::family::{Family, Way};
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

const SSH_OPTIONS: &str = "-i SCRATCH/key -o StrictHostKeyChecking=no \
    -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR";

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
    control: String,
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
        control: &str,
        streams: u32,
        downloads: bool,
    ) -> Self {
        Self {
            case,
            way,
            left,
            control: control.to_owned(),
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

    fn is_watched(&self) -> bool {
        self.case.view == JudgedView::Watched
    }

    /// Plants the limit.
    pub(crate) fn plant(&mut self, family: &Family, draw: &mut Random) {
        self.case.states_rate = family.states_rate.unwrap_or(self.case.states_rate);
        if family.name == "both-ways" {
            self.downloads = false;
        }
        let drawn: Vec<f64> = family.draws.iter().map(|one| one.draw(draw)).collect();
        self.plant_in_path(family, &drawn);
        self.plant_in_hosts(family, &drawn);
        match family.name.as_str() {
            "pausing-sender" => {
                self.peer.sender = pausing(self.left * self.way.goodput(), draw);
            }
            "slow-reader" => self.read_slowly(draw),
            "closed-window" => {
                self.left = draw.log_uniform(0.005, 0.05);
                self.read_slowly(draw);
            }
            "changing" => self.change_limit(family, draw),
            "loopback" => self.limit_loopback(draw),
            "stalls" => self.stall_path(family, draw),
            "per-flow-limit" => self.bound_each_flow(),
            "allowance" => self.use_up_allowance(drawn[0], drawn[1] > 0.0),
            _ => {}
        }
    }

    /// Plants what the table says of hosts and their programs.
    fn plant_in_hosts(&mut self, family: &Family, drawn: &[f64]) {
        for [host, script] in &family.scripts {
            let script = self.filled(script, drawn);
            self.script(self.named_host(host, drawn), script);
        }
        if let Some([host, hook, rule]) = &family.filter {
            let rule = self.filled(rule, drawn);
            self.filter(self.named_host(host, drawn), hook, &rule);
        }
        let filled = |words: &[String]| -> Vec<String> {
            words.iter().map(|word| self.filled(word, drawn)).collect()
        };
        let [flags, sender, receiver] =
            [&family.flags, &family.sender, &family.receiver].map(|words| filled(words));
        self.flags.extend(flags);
        self.peer = Small { sender, receiver };
    }

    /// Plants what is drawn for the path, its other loads and the length of the transfer.
    fn plant_in_path(&mut self, family: &Family, drawn: &[f64]) {
        let share = || Ratio::new(drawn[0]);
        match family.name.as_str() {
            "shared-with-datagrams" => {
                let part = drawn[0] * self.way.rate;
                self.cross_traffic(&format!("-u -l 1400 -b {part:.0}"));
            }
            "shared-with-tcp" => {
                let others = drawn[0] as u32 * self.streams;
                self.cross_traffic(&format!("-C {} -P {others}", self.control));
            }
            "random-loss" => {
                let loss = self.way.loss_that_leaves(self.left);
                self.case.path.loss[usize::from(self.downloads)] = loss;
            }
            "shallow-queue" => self.case.path.queue = ByteCount::from_f64(drawn[0] * PACKET),
            "sender-quota" => self.case.quota = Some((self.data_sender(), share())),
            "receiver-quota" => self.case.quota = Some((self.data_receiver(), share())),
            "short-transfer" => self.bytes = Some(SEGMENT * drawn[0]),
            _ => {}
        }
    }

    /// Returns the host that the table means.
    fn named_host(&self, name: &str, drawn: &[f64]) -> Host {
        let is_last_drawn = drawn.last().is_some_and(|last| *last > 0.0);
        match name {
            "receiver-by-chance" if is_last_drawn => self.data_receiver(),
            "sender" | "receiver-by-chance" => self.data_sender(),
            "receiver" => self.data_receiver(),
            "drawn-router" if is_last_drawn => Host::FarRouter,
            "drawn-router" => Host::NearRouter,
            _ => self.data_router(),
        }
    }

    /// Returns a text with the figures of the case in place of their names.
    fn filled(&self, text: &str, drawn: &[f64]) -> String {
        let drawn = drawn.first().copied().unwrap_or(0.0);
        let (window, left) = (self.window(), self.left * self.way.rate);
        let (rmem, wmem) = (window * 1.6, window * 1.5);
        let figures = [
            ("{window}", window),
            ("{window_bits}", window.log2().floor()),
            ("{rmem}", rmem),
            ("{rmem_usual}", rmem.min(131_072.0)),
            ("{wmem}", wmem),
            ("{wmem_usual}", wmem.min(65_536.0)),
            ("{sndbuf}", window * 0.75),
            ("{left}", left),
            ("{left_bytes}", left / 8.0),
            ("{burst}", (left / 8.0 * drawn).max(20_000.0)),
            (
                "{goodput}",
                self.left * self.way.goodput() / f64::from(self.streams),
            ),
            ("{goodput_bytes}", self.left * self.way.goodput() / 8.0),
            ("{bytes}", drawn * PACKET),
            ("{floor}", drawn.floor()),
        ];
        let mut filled = text.to_owned();
        for (name, figure) in figures {
            filled = filled.replace(name, &format!("{figure:.0}"));
        }
        filled
    }

    fn read_slowly(&mut self, draw: &mut Random) {
        self.peer.receiver = pausing(self.left * self.way.goodput(), draw);
        // Of 128 KiB each, as both servers read.
        let pause = 131_072.0 * 8.0 / (self.left * self.way.goodput() / f64::from(self.streams));
        if !self.is_watched() {
            let is_own = self.case.view == JudgedView::BothEnds;
            let call = if is_own { "recvfrom" } else { "read" };
            self.downloads = false;
            self.case.slow_call = Some((call, Span::from_secs_f64(pause)));
        }
    }

    fn stall_path(&mut self, family: &Family, draw: &mut Random) {
        let whole = self.seconds(family);
        let stalled = whole * draw.uniform(0.2, 0.3);
        let flows = whole * draw.uniform(0.02, 0.06);
        let drop = filtering("forward", "oifname path0 tcp dport != 0 drop");
        let stall =
            format!("{drop}; sleep {stalled:.2}; nft delete table ip bench; sleep {flows:.2}");
        let begun = data_flows("path0");
        let script = format!("{begun}; sleep 0.5; for i in 1 2 3; do {stall}; done");
        self.case.change = Some((self.data_router(), script));
    }

    fn bound_each_flow(&mut self) {
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
    }

    /// A bucket that lasts for so many seconds of a full link, of a shaper or of a policer.
    fn use_up_allowance(&mut self, seconds: f64, is_shaper: bool) {
        let passes = self.left * self.way.rate;
        let saved = (self.way.rate - passes) / 8.0 * seconds;
        if is_shaper {
            let limit = self.way.bytes().max(40_000.0);
            let shaper = format!(
                "tc qdisc add dev host0 root tbf rate {passes:.0}bit burst {saved:.0} limit {limit:.0}"
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
    }

    /// A limit that holds for most of the transfer, and another for the rest, before it or after
    /// it.
    fn change_limit(&mut self, family: &Family, draw: &mut Random) {
        let passes = self.left * self.way.rate;
        let is_policer = self.downloads || draw.chance(0.5);
        let (host, device, begin, end) = if is_policer {
            let burst = (passes / 8.0 * 0.02).max(20_000.0);
            let begin = filtering("forward", &policing(passes / 8.0, burst));
            (
                self.data_router(),
                "path0",
                begin,
                "nft delete table ip bench",
            )
        } else {
            let end = "tc qdisc del dev host0 root";
            (Host::Near, "host0", shaping(passes), end)
        };
        if !is_policer {
            "pacing/qdisc".clone_into(&mut self.case.expected);
        }
        let (is_first, share) = (draw.chance(0.5), draw.uniform(0.2, 0.3));
        let wait = self.seconds(family) * if is_first { 1.0 - share } else { share };
        let change = if is_first { end } else { &begin };
        let begun = data_flows(device);
        self.case.change = Some((host, format!("{begun}; sleep {wait:.1}; {change}")));
        if is_first {
            self.script(host, begin);
        }
    }

    fn limit_loopback(&mut self, draw: &mut Random) {
        self.case.server_host = Host::Near;
        match draw.pick(&["rate", "quota", "reader"]) {
            "quota" if self.case.view == JudgedView::BothEnds => {
                self.case.quota = Some((Host::Near, Ratio::new(draw.uniform(0.005, 0.015))));
                "cpu/stolen".clone_into(&mut self.case.expected);
            }
            "reader" if !self.downloads => {
                self.read_slowly(draw);
                "receiver-application/slow-reader".clone_into(&mut self.case.expected);
            }
            _ => {
                let offered = self.left * self.way.goodput() / f64::from(self.streams);
                self.flags.extend(words(&format!("-b {offered:.0}")));
            }
        }
    }

    fn cross_traffic(&mut self, load: &str) {
        // Data goes the way that the judged data goes.
        let (port, reversed) = (CROSS_TRAFFIC_PORT, if self.downloads { "-R" } else { "" });
        let client = format!("iperf3 -c {FAR_ROUTER} -p {port} -t 60 {reversed} {load}");
        let server = format!("iperf3 -s -p {port}");
        self.case.cross_traffic = Some([words(&client), words(&server)]);
    }

    /// Chooses the programs at both ends.
    pub(crate) fn programs(&mut self, family: &Family, draw: &mut Random) {
        let seconds = self.seconds(family);
        if self.case.is_of_web {
            self.clients_of_web(family, seconds, draw);
        } else if self.is_watched() {
            self.watched_programs(family, seconds, draw);
        } else {
            self.own_programs(seconds);
        }
    }

    fn seconds(&self, family: &Family) -> f64 {
        let seconds = self.way.rtt * family.round_trips;
        seconds.clamp(family.min_seconds, 14.0).ceil()
    }

    fn own_programs(&mut self, seconds: f64) {
        self.case.server = match self.case.view {
            JudgedView::BothEnds => words(&format!("FULLPIPE serve -p {PORT}")),
            _ => words(&format!("iperf3 -s -p {PORT}")),
        };
        let target = match self.case.server_host {
            Host::Far => FAR,
            _ => "127.0.0.1",
        };
        let (control, streams) = (&self.control, self.streams);
        let amount = match self.bytes {
            Some(bytes) => format!("-n {bytes:.0}"),
            None => format!("-t {seconds}"),
        };
        let reversed = if self.downloads { "-R" } else { "" };
        let load = format!("{target} -p {PORT} -C {control} -P {streams} {amount} {reversed}");
        let flags = std::mem::take(&mut self.flags);
        self.case.client = [flags, words(&load), self.bandwidth()].concat();
    }

    /// Chooses a client of `fullpipe serve --web`: this program's of ndt7, curl, or nghttp.
    fn clients_of_web(&mut self, family: &Family, seconds: f64, draw: &mut Random) {
        self.case.states_rate = false;
        let is_full = self.case.expected == "capacity/link";
        let left = if is_full { 1.0 } else { self.left };
        let bytes = left * self.way.goodput() / 8.0 * seconds;
        let flags = std::mem::take(&mut self.flags).join(" ");
        let is_ndt7 = match (family.small_programs, self.downloads) {
            (true, _) => false,
            _ if family.http2 => false,
            (false, true) => self.control == "bbr",
            (false, false) => draw.chance(0.5),
        };
        let curl = format!("curl --silent --insecure {flags} https://{FAR}:{PORT}");
        self.case.client = match (is_ndt7, self.downloads) {
            // A window of half the size, of which half is granted at a time, takes four times as long.
            (false, true) if family.http2 => words(&format!(
                "nghttp --null-out --no-dep {flags} https://{FAR}:{PORT}/__down?bytes={:.0}",
                bytes / 2.0
            )),
            (false, true) => words(&format!(
                "{curl}/__down?bytes={bytes:.0} --output /dev/null"
            )),
            (false, false) => script(&format!(
                "mkdir -p SCRATCH; truncate -s {bytes:.0} SCRATCH/file; \
                 exec {curl}/__up --request POST --upload-file SCRATCH/file"
            )),
            // What it downloads before an upload is another transfer. A server ends ndt7 after 10 s.
            (true, downloads) => words(&format!(
                "FULLPIPE measure ndt7://{FAR}:{PORT} --no-store -t {} {flags} {}",
                seconds.min(10.0),
                if downloads { "--reverse" } else { "" }
            )),
        };
        self.case.server = words(&format!(
            "FULLPIPE serve --port 0 --no-iperf2 --json-lines --web {FAR}:{PORT}"
        ));
        self.case.scripts.extend(congestion_routes(&self.control));
    }

    fn watched_programs(&mut self, family: &Family, seconds: f64, draw: &mut Random) {
        // SSH encrypts, and allows 2 MiB in flight.
        let suits_ssh = self.way.rate < 60e6 && self.way.bytes() < 1e6;
        let program = if family.small_programs {
            "small"
        } else if suits_ssh {
            draw.pick(&["small", "socat", "iperf3", "curl", "nginx", "scp", "rsync"])
        } else {
            draw.pick(&["small", "socat", "iperf3", "curl", "nginx"])
        };
        let [server, client] = match program {
            "socat" | "curl" | "nginx" => self.web_programs(program, seconds),
            "scp" | "rsync" => self.ssh_programs(program),
            "iperf3" => {
                let (time, control) = (seconds + 3.0, &self.control);
                let reversed = if self.downloads { "-R" } else { "" };
                let client = format!("iperf3 -c {FAR} -p {PORT} -t {time} -C {control} {reversed}");
                [words(&format!("iperf3 -s -p {PORT}")), words(&client)]
            }
            _ => self.small_programs(seconds),
        };
        let time = words(&format!("-t {seconds}"));
        self.case.client = [time, self.bandwidth(), words("--"), client].concat();
        self.case.server = server;
    }

    /// Returns a server that throws away what comes, or sends zeros, and a client. What nginx does not
    /// take, the small programs move.
    fn web_programs(&self, program: &str, seconds: f64) -> [Vec<String>; 2] {
        let (target, listen) = (
            format!("{FAR}:{PORT}"),
            format!("TCP-LISTEN:{PORT},reuseaddr"),
        );
        let sink = words(&format!("socat -u {listen} OPEN:/dev/null"));
        match (program, self.downloads) {
            ("socat", false) => [
                sink,
                words(&format!("socat -u OPEN:/dev/zero TCP:{target}")),
            ],
            ("socat", true) => [
                words(&format!("socat -u OPEN:/dev/zero {listen}")),
                words(&format!("socat -u TCP:{target} OPEN:/dev/null")),
            ],
            ("curl", false) => {
                let put = "curl --silent --header Expect: --upload-file /dev/zero";
                [sink, words(&format!("{put} http://{target}/"))]
            }
            ("curl", true) => [
                owned(&["socat", "-u", WEB_SERVER, &listen]),
                words(&format!(
                    "curl --silent --output /dev/null http://{target}/"
                )),
            ],
            (_, true) => [
                script(&format!(
                    "{SPARSE_FILE} {NGINX_CONFIGURATION} exec nginx -p SCRATCH -c SCRATCH/nginx.conf"
                )),
                words(&format!(
                    "curl --silent --output /dev/null http://{target}/file"
                )),
            ],
            (_, false) => self.small_programs(seconds),
        }
    }

    fn ssh_programs(&self, program: &str) -> [Vec<String>; 2] {
        let there = format!("root@{FAR}:");
        let copy = if program == "scp" {
            let files = if self.downloads {
                format!("{there}SCRATCH/file /dev/null")
            } else {
                format!("SCRATCH/file {there}/dev/null")
            };
            words(&format!("scp -q -P {PORT} {SSH_OPTIONS} {files}"))
        } else {
            let files = if self.downloads {
                format!("{there}SCRATCH/file SCRATCH/copy")
            } else {
                format!("SCRATCH/file {there}SCRATCH/copy")
            };
            let mut copy = words("rsync --inplace --whole-file -e");
            copy.push(format!("ssh -p {PORT} {SSH_OPTIONS}"));
            copy.extend(words(&files));
            copy
        };
        [script(&format!("{SPARSE_FILE} {SSH_SERVER}")), copy]
    }

    fn small_programs(&self, seconds: f64) -> [Vec<String>; 2] {
        let amount = match self.bytes {
            Some(bytes) => format!("--bytes {bytes:.0}"),
            None => format!("--time {}", seconds + 3.0),
        };
        let (sender, receiver) = (&self.peer.sender, &self.peer.receiver);
        let (serve, call, far, near) = if self.downloads {
            ("offer", "fetch", sender, receiver)
        } else {
            ("take", "send", receiver, sender)
        };
        let server = words(&format!("BENCH peer {serve} {PORT}"));
        let client = words(&format!("BENCH peer {call} {FAR}:{PORT}"));
        [(server, far), (client, near)]
            .map(|(program, arguments)| [&program[..], arguments, &words(&amount)].concat())
    }

    /// Returns the flag that states the rate of the path, if the user does.
    fn bandwidth(&self) -> Vec<String> {
        let rate = self.case.stated_rate().bps();
        if self.case.states_rate {
            words(&format!("--bandwidth {rate}"))
        } else {
            Vec::new()
        }
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

/// Returns the words of a command none of which has a space.
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns flags of a small program that moves so many bits per second and pauses in between.
fn pausing(rate: f64, draw: &mut Random) -> Vec<String> {
    let call = draw.log_uniform(4_000.0, 200_000.0).floor();
    let pause = call * 8.0 / rate;
    // Shorter pauses than a timer can keep are taken together.
    let calls = (0.002 / pause).ceil().max(1.0);
    let pause = pause * calls * 1e6;
    words(&format!("--call {call} --calls {calls} --pause {pause:.0}"))
}
