//! Payload, packets and bytes on the wire, over IPv4 without IP options.

use fullpipe_record::Framing;
use fullpipe_units::{ByteCount, Ratio};

/// IPv4 and UDP.
pub const UDP_HEADERS: ByteCount = ByteCount::new(20 + 8);

const TCP_HEADERS: ByteCount = ByteCount::new(20 + 20);
/// RFC 7323's option, padded: on every packet once both ends agreed to it.
const TIMESTAMPS: ByteCount = ByteCount::new(12);

/// Bytes of IPv4 and TCP before the payload of a data segment: 52 with timestamps, 40 without.
pub fn tcp_headers(timestamps: bool) -> ByteCount {
    if timestamps { TCP_HEADERS + TIMESTAMPS } else { TCP_HEADERS }
}

/// Payload of a full segment in a packet of at most `mtu` bytes; nothing where the headers alone fill it.
///
/// `wanted` is what a program asks with `TCP_MAXSEG`. As in Linux (`tcp_mtu_to_mss`) it counts the timestamps: a
/// request of 1460 gives 1448 where they are on.
pub fn mss(mtu: ByteCount, timestamps: bool, wanted: Option<ByteCount>) -> ByteCount {
    let room = mtu.saturating_sub(TCP_HEADERS);
    let asked = wanted.map_or(room, |wanted| wanted.min(room));
    if timestamps { asked.saturating_sub(TIMESTAMPS) } else { asked }
}

/// Bytes that a packet of `headers` and `payload` takes of a rate that counts as `framing` says.
pub fn wire_bytes(payload: ByteCount, headers: ByteCount, framing: Framing) -> ByteCount {
    payload + headers + framing.overhead()
}

/// Payload ÷ bytes on the wire, from 0 to 1.
pub fn efficiency(payload: ByteCount, headers: ByteCount, framing: Framing) -> Ratio {
    Ratio::of(payload.as_f64(), wire_bytes(payload, headers, framing).as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::BitRate;
    use proptest::prelude::*;

    fn percent(payload: u64, headers: ByteCount, framing: Framing) -> String {
        format!("{:.3}", efficiency(ByteCount::new(payload), headers, framing).percent())
    }

    #[test]
    fn a_segment_is_what_the_headers_leave() {
        for (mtu, timestamps, wanted, payload) in [
            (1500, true, None, 1448),
            (1500, false, None, 1460),
            (9000, true, None, 8948),
            (9000, false, None, 8960),
            (1500, true, Some(1460), 1448),
            (1500, false, Some(1400), 1400),
            (1500, false, Some(9000), 1460),
            (52, true, None, 0),
            (0, false, None, 0),
            (1500, true, Some(0), 0),
        ] {
            let got = mss(ByteCount::new(mtu), timestamps, wanted.map(ByteCount::new));
            assert_eq!(got.get(), payload, "MTU {mtu}, timestamps {timestamps}, wanted {wanted:?}");
        }
    }

    #[test]
    fn efficiencies_of_ethernet() {
        assert_eq!(percent(1448, tcp_headers(true), Framing::Ethernet), "94.148");
        assert_eq!(percent(1460, tcp_headers(false), Framing::Ethernet), "94.928");
        assert_eq!(percent(8948, tcp_headers(true), Framing::Ethernet), "99.004");
        assert_eq!(percent(8960, tcp_headers(false), Framing::Ethernet), "99.137");
        // The capture with segments of 1432 B: 1522 B on the wire.
        assert_eq!(percent(1432, tcp_headers(true), Framing::Ethernet), "94.087");
        assert_eq!(wire_bytes(ByteCount::new(1432), tcp_headers(true), Framing::Ethernet), ByteCount::new(1522));
    }

    #[test]
    fn datagrams_fill_98_of_100() {
        assert_eq!(percent(1470, UDP_HEADERS, Framing::Ip), "98.131");
    }

    #[test]
    fn payload_of_9344_kbit_is_about_ten_megabits_with_headers() {
        let share = efficiency(ByteCount::new(1460), tcp_headers(false), Framing::Ethernet);
        let wire = BitRate::from_bps(9_344_000).scaled(1.0 / share.get());
        assert_eq!(wire.to_string(), "9.843 Mbit/s");
    }

    proptest! {
        #[test]
        fn efficiency_is_a_share_and_grows_with_the_segment(payload: u32, more: u32, timestamps: bool) {
            let (payload, more) = (u64::from(payload), u64::from(more));
            let of = |payload| efficiency(ByteCount::new(payload), tcp_headers(timestamps), Framing::Ethernet);
            prop_assert!(of(payload) <= Ratio::ONE);
            prop_assert!(of(payload + more) >= of(payload));
        }

        #[test]
        fn a_segment_and_its_headers_fit_the_packet(mtu: u64, timestamps: bool, wanted: Option<u64>) {
            let payload = mss(ByteCount::new(mtu), timestamps, wanted.map(ByteCount::new));
            if payload > ByteCount::ZERO {
                prop_assert!(payload.get() + tcp_headers(timestamps).get() <= mtu);
            }
        }
    }
}
