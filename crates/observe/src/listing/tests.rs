use super::*;
use crate::watched_transfers;
use fullpipe_record::{Direction, Evidence, SocketMemory, Transfer};
use fullpipe_units::{SegCount, Span};

const SEND_BUFFER: &str = include_str!("recorded/sndbuf.txt");
const PACED_PROGRAM: &str = include_str!("recorded/rate.txt");
const FIVE: &str = include_str!("recorded/loss-five.txt");
const RECEIVER: &str = include_str!("recorded/loss-receiver.txt");

fn largest(text: &str) -> (Transfer, Evidence) {
    let listing = read_listing(text);
    assert_eq!(listing.other_lines, Vec::<&str>::new());
    assert_eq!(listing.unknown_words, 0);
    watched_transfers(&listing.watched, None).remove(0)
}

fn ms(milliseconds: u64) -> Span {
    Span::from_millis(milliseconds)
}

#[test]
fn one_listing_has_the_begin_of_the_connection_and_one_look() {
    let (transfer, evidence) = largest(SEND_BUFFER);
    assert_eq!(transfer.direction, Direction::Upload);
    assert_eq!(transfer.bytes, ByteCount::new(9_961_473));
    // `busy` and the time since data came, which was never.
    assert_eq!(transfer.watched, ms(6988));
    let [first, look] = &evidence.sender_samples[..] else {
        panic!("{evidence:#?}");
    };
    assert_eq!(
        (first.at, first.tcp.bytes_acked),
        (Span::ZERO, Some(ByteCount::ZERO))
    );
    assert_eq!(look.tcp.busy, Some(ms(6988)));
    assert_eq!(look.tcp.sndbuf_limited, Some(ms(5252)));
    assert_eq!(look.tcp.rwnd_limited, Some(Span::ZERO));
    assert_eq!(look.tcp.rtt, Some(Span::from_micros(41_386)));
    assert_eq!(look.tcp.pacing_rate, Some(BitRate::from_bps(47_870_624)));
    assert_eq!(look.tcp.total_retrans, Some(SegCount::ZERO));
    assert_eq!(look.tcp.snd_wscale, Some(10));
    assert_eq!(look.tcp.app_limited, Some(true));
    assert_eq!(evidence.few_looks(), Some(1));
    let memory = SocketMemory {
        rcvbuf: ByteCount::new(131_072),
        sndbuf: ByteCount::new(65_536),
        wmem_queued: ByteCount::new(75_520),
        ..SocketMemory::default()
    };
    assert_eq!(look.memory, Some(memory));
    assert_eq!(evidence.sender_sockets[0].congestion, "bbr");
}

#[test]
fn the_age_of_an_idle_sender_is_the_time_in_which_nothing_came() {
    let (transfer, evidence) = largest(PACED_PROGRAM);
    assert_eq!(transfer.watched, ms(6864));
    assert_eq!(evidence.sender_samples[1].tcp.busy, Some(ms(4224)));
}

#[test]
fn several_listings_are_looks_at_their_times() {
    let listing = read_listing(FIVE);
    assert_eq!((listing.listings, listing.is_period_assumed), (5, false));
    let (transfer, evidence) = largest(FIVE);
    assert_eq!(evidence.sender_samples.len(), 5);
    assert!(
        (ms(4000)..ms(4200)).contains(&transfer.watched),
        "{}",
        transfer.watched
    );
    let is_time = |line: &&str| line.split_whitespace().count() == 1;
    let without_times: Vec<&str> = FIVE.lines().filter(|line| !is_time(line)).collect();
    let without_times = without_times.join("\n");
    let listing = read_listing(&without_times);
    assert_eq!((listing.listings, listing.is_period_assumed), (5, true));
    let (transfer, _) = largest(&without_times);
    assert_eq!(transfer.watched, ms(4000));
}

/// As two people, or two hosts, hand them over together.
#[test]
fn listings_of_different_connections_are_one_look_at_each() {
    let elsewhere = PACED_PROGRAM.replace("198.18.0.2", "198.51.100.7");
    let both = [SEND_BUFFER, &elsewhere].concat();
    let listing = read_listing(&both);
    assert_eq!((listing.listings, listing.is_period_assumed), (1, false));
    let transfers = watched_transfers(&listing.watched, None);
    assert_eq!(transfers.len(), 2);
    let alone = largest(SEND_BUFFER);
    assert!(transfers.contains(&alone), "{transfers:?}");
}

#[test]
fn a_receiver_is_one() {
    let (transfer, evidence) = largest(RECEIVER);
    assert_eq!(transfer.direction, Direction::Download);
    assert_eq!(evidence.receiver_samples.len(), 2);
    assert!(evidence.receiver_samples[1].tcp.out_of_order_in > Some(SegCount::ZERO));
}

/// As forums have it: lines broken, the header gone, one line for each connection, without `-n`.
#[test]
fn the_shape_of_the_text_does_not_matter() {
    let (_, whole) = largest(SEND_BUFFER);
    let words: Vec<&str> = SEND_BUFFER.split_whitespace().collect();
    let (head, figures) =
        words[words.iter().position(|word| *word == "ESTAB").unwrap()..].split_at(5);
    let head = head.join(" ").replace(":5201", ":https");
    let figures_in_lines: Vec<String> = figures.chunks(5).map(|words| words.join(" ")).collect();
    let broken = format!("tcp {head}\n{}", figures_in_lines.join("\n"));
    let hidden = format!("{} {}", head.replace("ESTAB ", ""), figures.join(" "));
    for text in [broken, hidden] {
        let (transfer, evidence) = largest(&text);
        assert!(transfer.remote.ends_with(":443"), "{}", transfer.remote);
        assert_eq!(evidence.sender_samples[1].tcp, whole.sender_samples[1].tcp);
    }
}

#[test]
fn owners_addresses_and_units_of_every_kind_are_read() {
    let text = "ESTAB 0 0 [fe80::1%eth0]:22 [::ffff:10.0.0.7]:5201 users:((\"a \\\"b\" \u{1b}[2J\",pid=7,fd=5),(\"c\",pid=8,fd=6)) timer:(on,1min,3)\n\
                \t ts sack cubic wscale:7,7 rto:204 rtt:0.5/0.1 mss:1448 cwnd:10 ssthresh:7 segs_out:5 send 1.2Gbps \
                pacing_rate 2.5Mbps/1Gbps delivery_rate 30Kbps unacked:2 future:1 tcp-ulp-mptcp flags:Mec token:0(id:0)/1(id:0)\n";
    let listing = read_listing(text);
    assert_eq!(listing.unknown_words, 1, "future:1");
    let seen = &listing.watched.connections[0];
    assert_eq!(seen.remote.to_string(), "10.0.0.7:5201");
    assert_eq!(seen.owner.pid, Some(7));
    let tcp = &listing.watched.samples[1].tcp;
    assert_eq!(tcp.pacing_rate, Some(BitRate::from_bps(2_500_000)));
    assert_eq!(tcp.max_pacing_rate, Some(BitRate::from_bps(1_000_000_000)));
    assert_eq!(tcp.timeouts_in_a_row, Some(SegCount::new(3)));
    // Nothing says that this kernel has such clocks.
    assert_eq!(tcp.busy, None);
}

#[test]
fn sockets_without_data_or_figures_are_counted() {
    let text = "State Recv-Q Send-Q Local Peer\nLISTEN 0 128 *:22 *:*\n\t cubic cwnd:10 mss:536\n\
                mptcp ESTAB 0 0 10.0.0.1:5 10.0.0.2:6\n\t subflows:1\nESTAB 0 0 10.0.0.1:7 10.0.0.2:8\n\
                udp ESTAB 0 0 10.0.0.1:9 10.0.0.2:10\nhello\n";
    let listing = read_listing(text);
    assert_eq!((listing.listings, listing.without_figures), (1, 4));
    assert_eq!(listing.other_lines, ["\t subflows:1", "hello"]);
    assert!(watched_transfers(&listing.watched, None).is_empty());
}

/// From loopback: IPv6 with a receiver that reads too slowly, and a subflow of MPTCP, at both ends.
#[test]
fn the_text_of_every_version_is_read() {
    for (text, has_windows) in [
        (include_str!("recorded/iproute2-5.10.txt"), false),
        (include_str!("recorded/iproute2-7.1.txt"), true),
    ] {
        let listing = read_listing(text);
        assert_eq!((listing.unknown_words, listing.without_figures), (0, 0));
        let transfers = watched_transfers(&listing.watched, None);
        assert_eq!(transfers.len(), 4);
        let (slow, evidence) = &transfers[0];
        assert!(slow.local.starts_with("[::1]:") && slow.pid == Some(373));
        let tcp = &evidence.sender_samples[1].tcp;
        assert_eq!(tcp.snd_wnd.is_some(), has_windows);
        assert!(
            tcp.rwnd_limited
                .zip(tcp.busy)
                .is_some_and(|(window, busy)| window * 10 > busy * 8)
        );
    }
    let listing = read_listing(include_str!("recorded/iproute2-7.1-mptcp.txt"));
    assert_eq!(listing.without_figures, 2, "sockets of MPTCP itself");
    assert_eq!(watched_transfers(&listing.watched, None).len(), 4);
}
