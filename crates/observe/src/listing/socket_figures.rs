//! The words that `ss` prints of a socket → the kernel's figures (`tcp_stats_print` in `misc/ss.c`
//! of iproute2).

use fullpipe_record::{SocketMemory, TcpInfo};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

/// State of a socket that is established (`net/tcp_states.h`).
const ESTABLISHED: u8 = 1;

/// Words with a value that say nothing of a limit.
const OTHER_KEYS: [&str; 15] = [
    "uid",
    "ino",
    "sk",
    "cgroup",
    "fwmark",
    "bbr",
    "dctcp",
    "flags",
    "token",
    "seq",
    "sfseq",
    "ssnoff",
    "maplen",
    "class_id",
    "bpf-map-id",
];

/// Words without a value that say nothing of a limit; `<->` is the direction of `-e`.
const OTHER_WORDS: [&str; 6] = ["<->", "-->", "<--", "---", "tcp-ulp-mptcp", "tcp-ulp-tls"];

/// The figures of one socket in one listing.
#[derive(Default)]
pub(super) struct SocketFigures {
    pub tcp: TcpInfo,
    pub memory: Option<SocketMemory>,
    pub congestion: String,
    /// Bytes that were written and not acknowledged.
    send_queue: u64,
}

/// Returns true if a line has a word that `ss` prints of a connection.
pub(super) fn are_words_of_socket(line: &str) -> bool {
    const FLAGS: [&str; 5] = ["ts", "sack", "app_limited", "pacing_rate", "delivery_rate"];
    let mut figures = SocketFigures::default();
    line.split_whitespace()
        .any(|word| match word.split_once(':') {
            Some((key, value)) => !value.is_empty() && figures.read_figure(key, value),
            None => FLAGS.contains(&word) || OTHER_WORDS.contains(&word),
        })
}

impl SocketFigures {
    pub(super) fn with_send_queue(send_queue: u64) -> Self {
        Self {
            send_queue,
            ..Self::default()
        }
    }

    /// Returns true if the kernel's view of a TCP connection was listed (`ss -i`).
    pub(super) fn is_of_tcp(&self) -> bool {
        self.tcp.cwnd.is_some() && self.tcp.snd_mss.is_some()
    }

    /// Takes the figures in a line. Returns the number of words that are not known.
    pub(super) fn read_words(&mut self, line: &str) -> u64 {
        let mut unknown = 0;
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            let is_known = match word {
                "send" | "pacing_rate" | "delivery_rate" => words
                    .next()
                    .is_some_and(|value| self.read_rate(word, value)),
                _ => match word.split_once(':') {
                    Some((key, value)) => self.read_figure(key, value) || OTHER_KEYS.contains(&key),
                    None => self.read_flag(word) || OTHER_WORDS.contains(&word),
                },
            };
            unknown += u64::from(!is_known);
        }
        unknown
    }

    fn read_rate(&mut self, key: &str, value: &str) -> bool {
        let mut rates = value.split('/').map(bit_rate);
        let rate = rates.next().flatten();
        match key {
            "pacing_rate" => {
                self.tcp.pacing_rate = rate;
                self.tcp.max_pacing_rate = rates.next().flatten();
            }
            "delivery_rate" => self.tcp.delivery_rate = rate,
            _ => {}
        }
        rate.is_some()
    }

    /// Takes a word without a value; the congestion control is one that stands before the figures.
    fn read_flag(&mut self, word: &str) -> bool {
        let tcp = &mut self.tcp;
        match word {
            "ts" => tcp.timestamps = Some(true),
            "usec_ts" => tcp.usec_timestamps = Some(true),
            "sack" => tcp.sack = Some(true),
            "ecn" => tcp.ecn = Some(true),
            "ecnseen" => tcp.ecn_seen = Some(true),
            "fastopen" => tcp.syn_data = Some(true),
            "app_limited" => tcp.app_limited = Some(true),
            _ => {
                let is_name = word
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
                let is_control = is_name && self.congestion.is_empty() && tcp.rto.is_none();
                if is_control {
                    word.clone_into(&mut self.congestion);
                }
                return is_control;
            }
        }
        true
    }

    /// Takes a word with a value. Returns false if the word is not known, or the value is none.
    fn read_figure(&mut self, key: &str, value: &str) -> bool {
        self.read_state(key, value) || self.read_time(key, value) || self.read_count(key, value)
    }

    fn read_state(&mut self, key: &str, value: &str) -> bool {
        let tcp = &mut self.tcp;
        let values: Vec<&str> = value.trim_matches(['(', ')']).split([',', '/']).collect();
        match (key, &values[..]) {
            ("wscale", [send, receive]) => {
                tcp.window_scaling = Some(true);
                [tcp.snd_wscale, tcp.rcv_wscale] = [send, receive].map(|one| one.parse().ok());
            }
            ("retrans", [now, all]) => {
                [tcp.retrans, tcp.total_retrans] = [now, all].map(|one| segments(one));
            }
            ("timer", [name, _, count]) => match *name {
                "on" => tcp.timeouts_in_a_row = segments(count),
                "persist" => tcp.window_probes = segments(count),
                _ => {}
            },
            ("timer", [_, _]) => {}
            ("backoff", [one]) => tcp.backoff = one.parse().ok(),
            ("skmem", all) => self.memory = Some(socket_memory(all)),
            _ => return false,
        }
        true
    }

    fn read_time(&mut self, key: &str, value: &str) -> bool {
        let (first, second) = value.split_once('/').unwrap_or((value, ""));
        let first = first.split('(').next().unwrap_or_default();
        let Some(time) = milliseconds(first) else {
            return false;
        };
        let tcp = &mut self.tcp;
        let place = match key {
            "rto" => &mut tcp.rto,
            "rtt" => {
                tcp.rtt_variation = milliseconds(second);
                &mut tcp.rtt
            }
            "ato" => &mut tcp.delayed_ack_timeout,
            "lastsnd" => &mut tcp.since_data_sent,
            "lastrcv" => &mut tcp.since_data_received,
            "lastack" => &mut tcp.since_ack_received,
            "busy" => &mut tcp.busy,
            "rwnd_limited" => &mut tcp.rwnd_limited,
            "sndbuf_limited" => &mut tcp.sndbuf_limited,
            "rcv_rtt" => &mut tcp.rcv_rtt,
            "minrtt" => &mut tcp.min_rtt,
            _ => return false,
        };
        *place = Some(time);
        true
    }

    fn read_count(&mut self, key: &str, value: &str) -> bool {
        let Ok(number) = value.parse::<u64>() else {
            return false;
        };
        let tcp = &mut self.tcp;
        let bytes = match key {
            "mss" => &mut tcp.snd_mss,
            "rcvmss" => &mut tcp.rcv_mss,
            "advmss" => &mut tcp.advmss,
            "pmtu" => &mut tcp.path_mtu,
            "bytes_sent" => &mut tcp.bytes_sent,
            "bytes_retrans" => &mut tcp.bytes_retrans,
            "bytes_acked" => &mut tcp.bytes_acked,
            "bytes_received" => &mut tcp.bytes_received,
            "rcv_space" => &mut tcp.rcv_space,
            "rcv_ssthresh" => &mut tcp.rcv_ssthresh,
            "notsent" => &mut tcp.not_sent,
            "snd_wnd" => &mut tcp.snd_wnd,
            "rcv_wnd" => &mut tcp.rcv_wnd,
            _ => return self.read_segments(key, SegCount::new(number)),
        };
        *bytes = Some(ByteCount::new(number));
        true
    }

    fn read_segments(&mut self, key: &str, count: SegCount) -> bool {
        let tcp = &mut self.tcp;
        let place = match key {
            "cwnd" => &mut tcp.cwnd,
            "ssthresh" => &mut tcp.ssthresh,
            "segs_out" => &mut tcp.segs_out,
            "segs_in" => &mut tcp.segs_in,
            "data_segs_out" => &mut tcp.data_segs_out,
            "data_segs_in" => &mut tcp.data_segs_in,
            "delivered" => &mut tcp.delivered,
            "delivered_ce" => &mut tcp.delivered_ce,
            "unacked" => &mut tcp.unacked,
            "lost" => &mut tcp.lost,
            "sacked" => &mut tcp.sacked,
            "dsack_dups" => &mut tcp.dsack_dups,
            "reordering" => &mut tcp.reordering,
            "reord_seen" => &mut tcp.reorder_events,
            "rcv_ooopack" => &mut tcp.out_of_order_in,
            "rehash" => &mut tcp.rehash,
            "fackets" => return true,
            _ => return false,
        };
        *place = Some(count);
        true
    }

    /// Returns the figures with zero in place of what `ss` leaves out if it is zero, as far as the
    /// kernel has a later figure too; of the advertised window if `shows_windows`.
    pub(super) fn with_zeros(mut self, shows_windows: bool) -> Self {
        let tcp = &mut self.tcp;
        tcp.state = Some(ESTABLISHED);
        fill_with_zero([&mut tcp.window_scaling, &mut tcp.timestamps, &mut tcp.sack]);
        fill_with_zero([
            &mut tcp.unacked,
            &mut tcp.lost,
            &mut tcp.sacked,
            &mut tcp.retrans,
            &mut tcp.total_retrans,
            &mut tcp.timeouts_in_a_row,
        ]);
        if tcp.segs_out.is_some() {
            fill_with_zero([&mut tcp.data_segs_out, &mut tcp.data_segs_in]);
            fill_with_zero([&mut tcp.bytes_acked, &mut tcp.bytes_received]);
            let in_flight = tcp.unacked.unwrap_or_default();
            let in_flight = in_flight.of_size(tcp.snd_mss.unwrap_or_default());
            let unsent = ByteCount::new(self.send_queue).saturating_sub(in_flight);
            let is_counted = tcp.min_rtt.is_some() || tcp.delivered.is_some();
            let unsent = Some(unsent).filter(|_| !is_counted).unwrap_or_default();
            tcp.not_sent.get_or_insert(unsent);
        }
        if tcp.delivered.is_some() {
            fill_with_zero([&mut tcp.app_limited]);
            fill_with_zero([&mut tcp.dsack_dups, &mut tcp.reorder_events]);
            fill_with_zero([&mut tcp.bytes_sent, &mut tcp.bytes_retrans]);
            fill_with_zero([
                &mut tcp.busy,
                &mut tcp.rwnd_limited,
                &mut tcp.sndbuf_limited,
            ]);
        }
        if shows_windows {
            fill_with_zero([&mut tcp.snd_wnd]);
            fill_with_zero([&mut tcp.out_of_order_in]);
        }
        self
    }
}

/// Sets the figures that are not known to zero, or false.
fn fill_with_zero<'f, T: Default + 'f>(figures: impl IntoIterator<Item = &'f mut Option<T>>) {
    for figure in figures {
        figure.get_or_insert_with(T::default);
    }
}

/// Returns the memory in `(r0,rb131072,t0,tb87040,f0,w0,o0,bl0,d0)`.
fn socket_memory(parts: &[&str]) -> SocketMemory {
    let mut memory = SocketMemory::default();
    for part in parts {
        let digits = part.find(|one: char| one.is_ascii_digit());
        let (key, value) = part.split_at(digits.unwrap_or(part.len()));
        let Ok(number) = value.parse::<u64>() else {
            continue;
        };
        let bytes = ByteCount::new(number);
        match key {
            "r" => memory.rmem_alloc = bytes,
            "rb" => memory.rcvbuf = bytes,
            "t" => memory.wmem_alloc = bytes,
            "tb" => memory.sndbuf = bytes,
            "w" => memory.wmem_queued = bytes,
            "d" => memory.drops = number,
            _ => {}
        }
    }
    memory
}

fn segments(text: &str) -> Option<SegCount> {
    text.parse().ok().map(SegCount::new)
}

/// Returns the time in `204`, `20.5` or `1508ms`.
fn milliseconds(text: &str) -> Option<Span> {
    let number = text.strip_suffix("ms").unwrap_or(text);
    format!("{number}ms").parse().ok()
}

/// Returns the rate in `1234bps`, `1.2Mbps` or `258Gbps`.
fn bit_rate(text: &str) -> Option<BitRate> {
    text.parse().ok().filter(|_| text.ends_with("bps"))
}
