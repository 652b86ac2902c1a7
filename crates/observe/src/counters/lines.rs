//! The lines that programs print counters in.

use fullpipe_host::parse_backlog_drops;

use super::{CounterReader, CounterSource, ListedQdisc};

/// Maximum number of queueing disciplines that are read: a device may have one for each queue.
const MAX_QDISCS: usize = 256;

/// Fewest words of a line of `/proc/net/softnet_stat`, and the place of the processor's number,
/// which Linux has had since 5.10 (`softnet_seq_show` in `net/core/net-procfs.c`).
const SOFTNET_WORDS: usize = 9;
const SOFTNET_PROCESSOR: usize = 12;

/// Beginnings of the names of `nstat`, and the headings of `netstat -s`.
pub(super) const PROTOCOLS: [&str; 14] = [
    "TcpExt", "IpExt", "MPTcpExt", "IcmpMsg", "Icmp6", "Icmp", "UdpLite6", "UdpLite", "Udp6",
    "Udp", "Ip6", "Ip", "Tcp", "Sctp",
];

/// Sentences of `netstat -s` in place of the kernel's names (`statistics.c` of net-tools), as far as
/// their counters are used. The number stands for `#`.
const NETSTAT_TEXTS: [(&str, &str); 6] = [
    ("# segments sent out", "OutSegs"),
    ("# segments retransmitted", "RetransSegs"),
    ("# segments retransmited", "RetransSegs"),
    (
        "# packets pruned from receive queue because of socket buffer overrun",
        "PruneCalled",
    ),
    (
        "# packets collapsed in receive queue due to low socket buffer",
        "TCPRcvCollapsed",
    ),
    ("TCP ran low on memory # times", "TCPMemoryPressures"),
];

impl CounterReader {
    /// Takes a line that begins a section.
    pub(super) fn read_heading(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().take(3).collect();
        let section = match words[..] {
            ["NIC", "statistics:"] => CounterSource::Driver,
            ["Ring", "parameters", "for"] => {
                self.device = line
                    .split_whitespace()
                    .nth(3)
                    .map(|name| name.trim_end_matches(':').to_owned());
                CounterSource::Rings
            }
            ["qdisc", _, handle] if handle.ends_with(':') => {
                self.begin_qdisc(line);
                CounterSource::Qdiscs
            }
            ["#kernel"] => CounterSource::Nstat,
            [heading] => {
                let name = heading.strip_suffix(':').unwrap_or_default();
                if !PROTOCOLS.contains(&name) {
                    return false;
                }
                CounterSource::Netstat
            }
            _ => return false,
        };
        self.section = Some(section);
        true
    }

    /// Takes a line in a section, and those that are known without one.
    pub(super) fn read_counter(&mut self, line: &str) -> bool {
        if self.read_nstat(line) || self.read_softnet(line) || self.read_driver_counter(line) {
            return true;
        }
        if line.trim().is_empty() {
            return false;
        }
        let is_of_socket = line
            .split_whitespace()
            .any(|word| word.trim_end_matches(':').contains(':'));
        let is_indented = line.starts_with([' ', '\t']);
        match self.section.filter(|_| !is_of_socket) {
            Some(CounterSource::Rings) if line.contains(':') => self.read_ring(line),
            Some(CounterSource::Netstat) if is_indented => self.read_netstat(line),
            Some(CounterSource::Qdiscs) if is_indented => self.read_qdisc_counters(line),
            _ => {
                self.section = None;
                return false;
            }
        }
        true
    }

    /// Takes `TcpExtTCPRcvQDrop   3   0.0`.
    fn read_nstat(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        let [name, count, rate] = words[..] else {
            return false;
        };
        let is_known = PROTOCOLS.iter().any(|protocol| name.starts_with(protocol));
        let count = count.parse().ok();
        let count = count.filter(|_| is_known && rate.parse::<f64>().is_ok());
        self.add_count(CounterSource::Nstat, name, count)
    }

    /// Takes the line of one processor.
    fn read_softnet(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_number =
            |word: &&str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if words.len() < SOFTNET_WORDS || !words.iter().all(is_number) {
            return false;
        }
        let goes_on = self.section.replace(CounterSource::Softnet) == Some(CounterSource::Softnet);
        let readings = self.sources.get(&CounterSource::Softnet);
        let place = readings
            .filter(|all| goes_on && all.file == self.file)
            .map_or(0, |all| all.last.len());
        let place = words
            .get(SOFTNET_PROCESSOR)
            .map_or_else(|| format!("{place:08x}"), |word| (*word).to_owned());
        let dropped = parse_backlog_drops(line);
        self.add_count(CounterSource::Softnet, &place, Some(dropped))
    }

    /// Takes `     rx_missed_errors: 12`; without its heading only where the name is such a one, as
    /// `grep` leaves it.
    fn read_driver_counter(&mut self, line: &str) -> bool {
        let Some((name, count)) = line.rsplit_once(':') else {
            return false;
        };
        let name = name.trim();
        let is_name = name.starts_with(['r', 't']) && name.contains('_');
        let is_one_word = !name.contains(char::is_whitespace);
        let is_counter = self.section == Some(CounterSource::Driver) || (is_name && is_one_word);
        // No space stands there in words of `ss`.
        let is_apart = count.starts_with([' ', '\t']);
        let count = count.trim().parse().ok();
        let count = count.filter(|_| is_counter && is_apart);
        self.add_count(CounterSource::Driver, name, count)
    }

    /// Takes `RX:   512`, which stands once among the maximums and once among what is set.
    fn read_ring(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.trim() {
            "Pre-set maximums" => self.is_ring_maximum = true,
            "Current hardware settings" => self.is_ring_maximum = false,
            "RX" => self.ring[usize::from(self.is_ring_maximum)] = value.trim().parse().ok(),
            _ => {}
        }
    }

    /// Takes a line of `netstat -s`: a sentence, or `TCPRcvQDrop: 3`.
    fn read_netstat(&mut self, line: &str) {
        let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
        let Some(count) = line.split_whitespace().find(is_number) else {
            return;
        };
        let with_sign: Vec<&str> = line
            .split_whitespace()
            .map(|word| if word == count { "#" } else { word })
            .collect();
        let text = with_sign.join(" ");
        let known = NETSTAT_TEXTS.iter().find(|(known, _)| *known == text);
        let name = known.map(|(_, name)| *name);
        if let Some(name) = name.or_else(|| text.strip_suffix(": #")) {
            self.add_count(CounterSource::Netstat, name, count.parse().ok());
        }
    }

    /// Takes `qdisc tbf 1: dev eth0 root refcnt 2 rate 100Mbit burst 4Kb lat 50ms`.
    fn begin_qdisc(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |key: &str| {
            let place = words.iter().position(|word| *word == key)?;
            words.get(place + 1).copied()
        };
        let (kind, device) = (words[1], after("dev").unwrap_or_default());
        let parent = after("parent").unwrap_or("root");
        let rate = ["rate", "bandwidth", "maxrate"].into_iter().find_map(after);
        let listed = ListedQdisc {
            device: device.to_owned(),
            kind: kind.to_owned(),
            name: format!("{device} {kind} {} {parent}", words[2]),
            rate: rate.and_then(|rate| rate.parse().ok()),
        };
        let known = self
            .qdiscs
            .iter()
            .position(|other| other.name == listed.name);
        self.qdisc = known.unwrap_or(self.qdiscs.len());
        if known.is_none() && self.qdiscs.len() < MAX_QDISCS {
            self.qdiscs.push(listed);
        }
    }

    /// Takes `Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)`.
    fn read_qdisc_counters(&mut self, line: &str) {
        let Some(name) = self.qdiscs.get(self.qdisc).map(|qdisc| qdisc.name.clone()) else {
            return;
        };
        let words: Vec<&str> = line
            .split_whitespace()
            .map(|word| word.trim_matches(['(', ')', ',']))
            .collect();
        if words.first() != Some(&"Sent") {
            return;
        }
        for pair in words.windows(2) {
            if ["Sent", "dropped", "overlimits", "requeues"].contains(&pair[0]) {
                let name = format!("{name} {}", pair[0]);
                self.add_count(CounterSource::Qdiscs, &name, pair[1].parse().ok());
            }
        }
    }
}
