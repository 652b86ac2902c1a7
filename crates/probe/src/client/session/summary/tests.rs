use super::*;

#[test]
fn a_rate_that_is_missed_by_more_than_1_percent_is_named() {
    let rate = Some(BitRate::from_mbps(50));
    let block = ByteCount::new(1_448);
    let request = Request {
        transport: Transport::Udp,
        rate,
        block,
        streams: 2,
        ..Request::default()
    };
    let unmet = |request: &Request, bytes, seconds| {
        unmet_rate(
            request,
            Direction::Upload,
            ByteCount::new(bytes),
            Span::from_secs(seconds),
        )
    };
    // 100 Mbit/s for 3 s are 37.5 MB.
    assert_eq!(unmet(&request, 37_130_000, 3), None);
    let why = unmet(&request, 31_500_000, 3).unwrap();
    assert!(
        why.starts_with("this end offered 84 Mbit/s of the 100 Mbit/s asked for: its host was too"),
        "{why}"
    );
    // In such a short time a datagram is more than that.
    let slow = Request {
        rate: Some(BitRate::from_bps(100_000)),
        streams: 1,
        ..request.clone()
    };
    assert_eq!(unmet(&slow, 12_500 - 1_448, 1), None);
    for other in [
        Request {
            transport: Transport::Tcp,
            ..request.clone()
        },
        Request {
            bytes: Some(ByteCount::new(1)),
            ..request.clone()
        },
        Request {
            rate: None,
            ..request.clone()
        },
    ] {
        assert_eq!(unmet(&other, 1_448, 3), None);
    }
}

#[test]
fn a_download_from_a_peer_without_samples_is_judged_by_what_arrived_here() {
    let at = |tick: u64| Sample {
        at: Span::from_millis(50 * tick),
        stream: 0,
        bytes: ByteCount::ZERO,
        tcp: TcpInfo {
            bytes_acked: Some(ByteCount::new(38)),
            bytes_received: Some(ByteCount::new(62_500 * tick)),
            ..TcpInfo::default()
        },
        memory: None,
    };
    let ours: Vec<Sample> = (1..=100).map(at).collect();
    let steady = steady_part(
        best_samples(Direction::Download, &ours, &[]),
        None,
        Span::from_secs(5),
    );
    assert_eq!(steady.unwrap().rate, BitRate::from_mbps(10));
    assert_eq!(
        best_samples(Direction::Download, &ours, &ours[..1]),
        (&ours[..1], StreamRole::Sender)
    );
    assert_eq!(
        best_samples(Direction::Upload, &ours, &[]),
        (&ours[..], StreamRole::Sender)
    );
}
