//! A sender's figures as `ss -tinmoe` prints them, read back as what a user hands over.

use std::fmt::Write as _;

use fullpipe_observe::{read_listing, watched_transfers};
use fullpipe_record::{Evidence, Sample, SocketMemory, TcpInfo};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

/// Time from one listing to the next.
const PERIOD: Span = Span::from_secs(1);
/// Time of the first listing that the text states, in seconds since 1970.
const EPOCH: Span = Span::from_secs(1_700_000_000);

/// Figures of a sender that receives nothing, where simulated samples lack them: the shift that a
/// maximum of 6 MiB needs, the buffer of a new connection (`tcp_rmem[1]`), and sizes of Ethernet.
const USUAL_SCALE: u8 = 7;
const USUAL_BUFFER: ByteCount = ByteCount::new(131_072);
const USUAL_MTU: ByteCount = ByteCount::new(1500);
const USUAL_MSS: ByteCount = ByteCount::new(1448);

/// Returns the evidence in `count` listings of a sender, a second apart, of which the last is taken
/// at `moment`; `None` without a sample by then, or without a connection that moved data.
pub(crate) fn listed_evidence(
    sender: &Evidence,
    moment: Span,
    count: u64,
    bandwidth: Option<BitRate>,
) -> Option<Evidence> {
    let text: String = (0..count)
        .rev()
        .map(|back| PERIOD * back)
        .filter(|back| *back <= moment)
        .map(|back| listing_text(sender, moment.saturating_sub(back)))
        .collect();
    let listing = read_listing(&text);
    let transfers = watched_transfers(&listing.watched, bandwidth);
    Some(transfers.into_iter().next()?.1)
}

/// Returns what `date +%s.%N; ss -tinmoe` prints at a moment: of each stream the last sample before
/// it.
fn listing_text(sender: &Evidence, moment: Span) -> String {
    let at = EPOCH + moment;
    let mut text = format!(
        "{}.{:06}\nState Recv-Q Send-Q Local Address:Port Peer Address:Port\n",
        at.as_micros() / 1_000_000,
        at.as_micros() % 1_000_000
    );
    for stream in 0..sender.request.streams {
        let mut before = sender.sender_samples.iter().rev();
        let sample = before.find(|sample| sample.stream == stream && sample.at <= moment);
        let socket = sender.sender_sockets.get(usize::from(stream));
        if let Some(sample) = sample {
            text += &connection_text(sample, socket.map_or("cubic", |socket| &socket.congestion));
        }
    }
    text
}

/// Returns both lines of a connection, in the order of `tcp_stats_print` (`misc/ss.c` of iproute2).
fn connection_text(sample: &Sample, congestion: &str) -> String {
    let tcp = &sample.tcp;
    let mut line = String::new();
    for (word, is_set) in [("ts", tcp.timestamps), ("sack", tcp.sack)] {
        if is_set != Some(false) {
            let _ = write!(line, " {word}");
        }
    }
    let _ = write!(line, " {congestion}");
    if let Some(send) = tcp.snd_wscale.filter(|_| tcp.window_scaling != Some(false)) {
        let receive = tcp.rcv_wscale.unwrap_or(USUAL_SCALE);
        let _ = write!(line, " wscale:{send},{receive}");
    }
    line += &path_words(tcp);
    line += &count_words(tcp);
    line += &time_words(tcp, sample.at);
    let in_flight = tcp.unacked.unwrap_or_default();
    let in_flight = in_flight.of_size(tcp.snd_mss.unwrap_or_default());
    let send_queue = in_flight + tcp.not_sent.unwrap_or_default();
    let (port, timer) = (40_000 + sample.stream, timer_word(tcp));
    let memory = sample.memory.as_ref().map(memory_word).unwrap_or_default();
    format!(
        "ESTAB 0 {} 198.18.0.1:{port} 198.18.0.2:5201{timer} ino:1 sk:1 cgroup:/ <->\n\t{memory}{line}\n",
        send_queue.get()
    )
}

/// Returns the timer of retransmissions, or of probes of a closed window, which says how many were
/// sent in vain.
fn timer_word(tcp: &TcpInfo) -> String {
    let probes = tcp.window_probes.unwrap_or_default().get();
    let timeouts = tcp.timeouts_in_a_row.unwrap_or_default().get();
    if probes > 0 {
        format!(" timer:(persist,200ms,{probes})")
    } else if tcp.unacked.unwrap_or_default() > SegCount::ZERO {
        format!(" timer:(on,200ms,{timeouts})")
    } else {
        String::new()
    }
}

fn memory_word(memory: &SocketMemory) -> String {
    let SocketMemory {
        rmem_alloc,
        rcvbuf,
        wmem_alloc,
        sndbuf,
        wmem_queued,
        drops,
    } = memory;
    let [read, read_most, written, written_most, queued] = [
        rmem_alloc,
        &USUAL_BUFFER.max(*rcvbuf),
        wmem_alloc,
        sndbuf,
        wmem_queued,
    ]
    .map(|bytes| bytes.get());
    format!(
        "skmem:(r{read},rb{read_most},t{written},tb{written_most},f0,w{queued},o0,bl0,d{drops})"
    )
}

/// Returns round trips, sizes, windows and rates.
fn path_words(tcp: &TcpInfo) -> String {
    let mut words = String::new();
    let millis = |span: Span| span.as_micros() as f64 / 1e3;
    if let Some(rto) = tcp.rto {
        let _ = write!(words, " rto:{}", millis(rto));
    }
    if let Some(backoff) = tcp.backoff.filter(|backoff| *backoff > 0) {
        let _ = write!(words, " backoff:{backoff}");
    }
    if let Some(rtt) = tcp.rtt {
        let variation = tcp.rtt_variation.unwrap_or_default();
        let _ = write!(words, " rtt:{}/{}", millis(rtt), millis(variation));
    }
    if let Some(least) = tcp.min_rtt {
        let _ = write!(words, " minrtt:{}", millis(least));
    }
    let rates = [
        (" pacing_rate", tcp.pacing_rate),
        (" delivery_rate", tcp.delivery_rate),
    ];
    for (name, rate) in rates {
        let Some(rate) = rate else { continue };
        let _ = write!(words, "{name} {}bps", rate.bps());
        // A maximum of all ones is none.
        let most = tcp.max_pacing_rate.filter(|_| name == " pacing_rate");
        if let Some(most) = most.filter(|most| most.bps() < u64::MAX / 16) {
            let _ = write!(words, "/{}bps", most.bps());
        }
    }
    if tcp.app_limited == Some(true) {
        words += " app_limited";
    }
    words
}

/// Returns the figures that are printed unless they are zero.
fn count_words(tcp: &TcpInfo) -> String {
    let bytes = [
        ("mss", tcp.snd_mss),
        ("pmtu", tcp.path_mtu.or(Some(USUAL_MTU))),
        ("rcvmss", tcp.rcv_mss),
        ("advmss", tcp.advmss.or(Some(USUAL_MSS))),
        ("bytes_sent", tcp.bytes_sent),
        ("bytes_retrans", tcp.bytes_retrans),
        ("bytes_acked", tcp.bytes_acked),
        ("bytes_received", tcp.bytes_received),
        ("rcv_space", tcp.rcv_space),
        ("rcv_ssthresh", tcp.rcv_ssthresh),
        ("notsent", tcp.not_sent),
        ("snd_wnd", tcp.snd_wnd),
        ("rcv_wnd", tcp.rcv_wnd),
    ];
    let segments = [
        ("cwnd", tcp.cwnd),
        ("ssthresh", tcp.ssthresh),
        ("segs_out", tcp.segs_out),
        ("segs_in", tcp.segs_in),
        ("data_segs_out", tcp.data_segs_out),
        ("data_segs_in", tcp.data_segs_in),
        ("delivered", tcp.delivered),
        ("delivered_ce", tcp.delivered_ce),
        ("unacked", tcp.unacked),
        ("lost", tcp.lost),
        ("sacked", tcp.sacked),
        ("dsack_dups", tcp.dsack_dups),
        ("reordering", tcp.reordering),
        ("reord_seen", tcp.reorder_events),
        ("rcv_ooopack", tcp.out_of_order_in),
    ];
    let bytes = bytes.map(|(name, bytes)| (name, bytes.map(ByteCount::get)));
    let segments = segments.map(|(name, count)| (name, count.map(SegCount::get)));
    let mut words = String::new();
    for (name, count) in bytes.into_iter().chain(segments) {
        if let Some(count) = count.filter(|count| *count > 0) {
            let _ = write!(words, " {name}:{count}");
        }
    }
    let [now, all] = [tcp.retrans, tcp.total_retrans].map(Option::unwrap_or_default);
    if all > SegCount::ZERO {
        let _ = write!(words, " retrans:{}/{}", now.get(), all.get());
    }
    words
}

/// Returns the clocks, in whole milliseconds. Where nothing has come, `lastrcv` is the age.
fn time_words(tcp: &TcpInfo, age: Span) -> String {
    let since_received = tcp.since_data_received.or(Some(age));
    let clocks = [
        ("lastsnd", tcp.since_data_sent, ""),
        ("lastrcv", since_received, ""),
        ("lastack", tcp.since_ack_received, ""),
        ("busy", tcp.busy, "ms"),
        ("rwnd_limited", tcp.rwnd_limited, "ms"),
        ("sndbuf_limited", tcp.sndbuf_limited, "ms"),
    ];
    let mut words = String::new();
    for (name, time, unit) in clocks {
        let millis = time.unwrap_or_default().as_micros() / 1000;
        if millis > 0 {
            let _ = write!(words, " {name}:{millis}{unit}");
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use fullpipe_experiment::{Interrupt, simulate_plan};
    use fullpipe_record::{Change, Framing, HostSettings, Request};
    use fullpipe_scenario::{PathSpec, parse_path_flag};
    use fullpipe_sim::SimulationPlan;

    /// Returns a sender of eight seconds whose buffer is a quarter of the BDP.
    fn limited_sender() -> Evidence {
        let path = parse_path_flag("rate=20M,rtt=100ms", &PathSpec::demo_path()).unwrap();
        let host = HostSettings::of_linux_6_18();
        let small = host.changed_by(&[Change::TcpWmemMax(ByteCount::new(62_500))]);
        let request = Request {
            duration: Span::from_secs(8),
            ..Request::default()
        };
        let plan = SimulationPlan::new(path, [small, host], request, 1);
        let stop = AtomicBool::new(false);
        let measurement = simulate_plan(plan, Interrupt(&stop)).unwrap();
        Evidence::from_measurement(&measurement, None, Framing::Ethernet)
    }

    #[test]
    fn figures_come_back_from_a_listing() {
        let (sender, moment) = (limited_sender(), Span::from_secs(7));
        let mut before = sender.sender_samples.iter().rev();
        let sent = &before.find(|sample| sample.at <= moment).unwrap().tcp;
        let whole = |time: Option<Span>| time.map(|time| time.as_micros() / 1000);
        for (count, samples) in [(1, 2), (5, 5)] {
            let listed = listed_evidence(&sender, moment, count, None).unwrap();
            assert_eq!(listed.sender_samples.len(), samples);
            let last = &listed.sender_samples.last().unwrap().tcp;
            assert_eq!(last.bytes_acked, sent.bytes_acked);
            assert_eq!(last.cwnd, sent.cwnd);
            assert_eq!(last.rwnd_limited, Some(Span::ZERO));
            assert!(whole(last.sndbuf_limited) > Some(3000), "{last:?}");
            assert_eq!(whole(last.sndbuf_limited), whole(sent.sndbuf_limited));
        }
    }

    #[test]
    fn nothing_is_listed_before_a_transfer() {
        assert!(listed_evidence(&limited_sender(), Span::ZERO, 5, None).is_none());
    }
}
