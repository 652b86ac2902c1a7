use super::*;
use crate::dump::{self, DumpProgress};

/// The answer of Linux 6.18 about a pair of devices, the second with
/// `tbf rate 200mbit burst 64kb limit 200kb`.
const NOQUEUE: &str = "9400000024000200000000001a3f0000000000000200000000000000ffffffff020000000c0001006e6f717565\
        75650005000c0000000000300007001400010000000000000000000000000000000000180003000000000000000000000000\
        00000000000000\
        00002c00030000000000000000000000000000000000000000000000000000000000000000000000000000000000";
const TBF: &str = "bc00000024000200000000001a3f0000000000000300000000000780ffffffff0300000008000100746266002c000200\
        28000100000100000000000040787d010000000000000000000000000020030000a000000000000005000c0000000000300007001400\
        01000a0100000000000003000000000000001800030000000000000000000000000000000000000000002c0003000a01000000000000\
        0300000000000000000000000000000000000000000000000000000000000000000000";
const DONE: &str = "1400000003000200000000001a3f000000000000";

fn bytes(texts: &[&str]) -> Vec<u8> {
    let digits: Vec<char> = texts
        .concat()
        .chars()
        .filter(|digit| !digit.is_whitespace())
        .collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn read(answer: &[u8], index: u32) -> (Vec<QueueState>, io::Result<bool>) {
    let mut found = Vec::new();
    let progress =
        dump::read_messages(answer, &mut |_, body| found.extend(read_queue(body, index)));
    (
        found,
        progress.map(|progress| progress == DumpProgress::Ended),
    )
}

#[test]
fn a_dump_of_the_kernel_is_read_for_one_device() {
    let (found, ended) = read(&bytes(&[NOQUEUE, TBF]), 3);
    assert!(!ended.unwrap());
    let (rate, parent) = (Some(BitRate::from_mbps(200)), 0xffff_ffff);
    assert_eq!(
        found,
        [QueueState {
            handle: 0x8007_0000,
            parent,
            kind: "tbf".to_owned(),
            rate,
            options: bytes(&[TBF])[44 + 4..][..40].to_vec(),
            ..QueueState::default()
        }]
    );
    assert!(read(&bytes(&[DONE]), 3).1.unwrap());
    assert_eq!(read(&bytes(&[NOQUEUE, TBF]), 2).0[0].kind, "noqueue");
}

#[test]
fn counts_are_taken_from_their_places() {
    let mut answer = bytes(&[TBF]);
    // `TCA_STATS2` is behind the options and `TCA_HW_OFFLOAD`, `TCA_STATS_QUEUE` behind the
    // basic counts.
    let at = 36 + 8 + 44 + 8 + 4 + 20 + 4;
    for (place, value) in [7_u32, 65_000, 11, 13, 17].into_iter().enumerate() {
        answer[at + place * 4..][..4].copy_from_slice(&value.to_ne_bytes());
    }
    let found = read(&answer, 3).0.remove(0);
    assert_eq!((found.backlog, found.dropped), (ByteCount::new(65_000), 11));
    assert_eq!((found.requeues, found.overlimits), (13, 17));
}

#[test]
fn an_error_of_the_kernel_is_one_here() {
    let mut refusal = bytes(&[DONE]);
    refusal[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
    refusal[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
    assert_eq!(
        read(&refusal, 3).1.unwrap_err().raw_os_error(),
        Some(libc::EPERM)
    );
}

#[test]
fn wide_rates_count_and_rates_without_a_limit_do_not() {
    let with = |kind: u16, value: &[u8]| {
        [
            &(4 + value.len() as u16).to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            value,
        ]
        .concat()
    };
    let wide = with(TCA_TBF_RATE64, &12_500_000_000_u64.to_ne_bytes());
    assert_eq!(qdisc_rate("tbf", &wide), Some(BitRate::from_mbps(100_000)));
    assert_eq!(
        qdisc_rate("fq", &with(TCA_FQ_FLOW_MAX_RATE, &u32::MAX.to_ne_bytes())),
        None
    );
    let slow = with(TCA_FQ_FLOW_MAX_RATE, &1_250_000_u32.to_ne_bytes());
    assert_eq!(
        (qdisc_rate("fq", &slow), qdisc_rate("pfifo", &slow)),
        (Some(BitRate::from_mbps(10)), None)
    );
}

#[test]
fn what_serves_a_class_comes_after_what_has_the_class() {
    let queue = |handle, parent| QueueState {
        handle,
        parent,
        ..QueueState::default()
    };
    let inner = [
        queue(0, 0x8001_0002),
        queue(0x0002_0000, 0x0001_0010),
        queue(0x0001_0000, 0x8001_0001),
    ];
    let all = [&inner[..], &[queue(0x8001_0000, u32::MAX)]].concat();
    let sorted: Vec<u32> = outermost_first(all)
        .iter()
        .map(|queue| queue.parent)
        .collect();
    assert_eq!(sorted, [u32::MAX, 0x8001_0002, 0x8001_0001, 0x0001_0010]);
    // Each in a class of the other: no kernel says so, and it ends.
    assert_eq!(
        outermost_first(vec![
            queue(0x0001_0000, 0x0002_0001),
            queue(0x0002_0000, 0x0001_0001)
        ])
        .len(),
        2
    );
}

#[test]
fn loopback_is_there_and_holds_nothing_to_a_rate() {
    let state = device_state("lo").unwrap();
    assert!(state.index > 0 && state.mtu > ByteCount::ZERO, "{state:?}");
    assert_eq!(state.link_header, ByteCount::ZERO, "{state:?}");
    assert!(
        state.received <= device_state("lo").unwrap().sent,
        "what it receives, it sent"
    );
    assert!(
        queue_states(state.index)
            .unwrap()
            .iter()
            .all(|queue| queue.rate.is_none())
    );
    assert_eq!(
        device_state("no-such-device").unwrap_err().raw_os_error(),
        Some(libc::ENODEV)
    );
}

proptest::proptest! {
    #[test]
    fn any_answer_is_read(mut answer in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..256)) {
        let _ = (read(&answer, 3).1, read_device(&answer));
        if answer.len() > HEADER_LENGTH {
            let length = answer.len() as u32;
            answer[..4].copy_from_slice(&length.to_ne_bytes());
            let _ = read(&answer, 3).1;
        }
        for kind in ["tbf", "fq", "cake"] {
            let _ = qdisc_rate(kind, &answer);
        }
    }
}
