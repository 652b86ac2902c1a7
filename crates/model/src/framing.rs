//! Payload, packets and bytes on the wire: RFC 791 and 8200 without options and extension headers,
//! RFC 9293, IEEE 802.3.
//!
//! The bytes that tags and tunnels add to each packet are an
//! [`packet_overhead`](fullpipe_record::PathDirection::packet_overhead), and what a tunnel leaves of the MTU an
//! [inner MTU](fullpipe_record::PathDirection::inner_mtu).

use fullpipe_record::IpVersion;

use crate::prelude::*;

const TCP_HEADER: ByteCount = ByteCount::new(20);
/// RFC 7323's option, padded: on every packet once both ends agreed to it.
const TIMESTAMPS: ByteCount = ByteCount::new(12);
const UDP_HEADER: ByteCount = ByteCount::new(8);

/// Bytes of IP and TCP before the payload of a data segment: over IPv4 52 with timestamps and 40
/// without, 20 more over IPv6.
pub fn tcp_headers(ip: IpVersion, timestamps: bool) -> ByteCount {
    let options = if timestamps {
        TIMESTAMPS
    } else {
        ByteCount::ZERO
    };
    ip.header_bytes() + TCP_HEADER + options
}

/// Bytes of IP and UDP before the payload of a datagram that fits a packet.
pub fn udp_headers(ip: IpVersion) -> ByteCount {
    ip.header_bytes() + UDP_HEADER
}

/// Payload of a full segment in a packet of at most `mtu` bytes; nothing where the headers alone
/// fill it.
///
/// `mtu` is that of the hosts' packets, so without a tunnel's headers. `wanted` is what a program
/// asks with `TCP_MAXSEG`. As in Linux (`tcp_mtu_to_mss`) it counts the timestamps: a request of
/// 1460 gives 1448 where they are on.
pub fn segment_payload(
    mtu: ByteCount,
    ip: IpVersion,
    timestamps: bool,
    wanted: Option<ByteCount>,
) -> ByteCount {
    let room = mtu.saturating_sub(tcp_headers(ip, false));
    let asked = wanted.map_or(room, |wanted| wanted.min(room));
    if timestamps {
        asked.saturating_sub(TIMESTAMPS)
    } else {
        asked
    }
}

/// Bytes that a packet of `headers` and `payload` takes of a rate under which each packet costs
/// `overhead` more.
pub fn wire_bytes(payload: ByteCount, headers: ByteCount, overhead: ByteCount) -> ByteCount {
    payload + headers + overhead
}

/// Payload ÷ bytes on the wire, from 0 to 1, for TCP as for UDP.
pub fn payload_share(payload: ByteCount, headers: ByteCount, overhead: ByteCount) -> Ratio {
    Ratio::from_quotient(
        payload.as_f64(),
        wire_bytes(payload, headers, overhead).as_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture;
    use fullpipe_record::IpVersion::{V4, V6};
    use fullpipe_record::{Encapsulation, Framing, PathDirection, Tunnel};
    use fullpipe_units::{BitRate, Span};
    use proptest::prelude::*;

    const ETHERNET: ByteCount = Framing::Ethernet.packet_overhead();

    fn link(mtu: u64, ip: IpVersion, encapsulation: Encapsulation) -> PathDirection {
        let direction = test_fixture::ethernet_path(BitRate::from_mbps(1000), Span::ZERO).forward;
        PathDirection {
            mtu: ByteCount::new(mtu),
            ip,
            encapsulation,
            ..direction
        }
    }

    fn full_segment(link: &PathDirection, timestamps: bool) -> ByteCount {
        segment_payload(link.inner_mtu(), link.ip, timestamps, None)
    }

    fn full_efficiency(link: &PathDirection, timestamps: bool) -> Ratio {
        payload_share(
            full_segment(link, timestamps),
            tcp_headers(link.ip, timestamps),
            link.packet_overhead(),
        )
    }

    fn percent(share: Ratio) -> String {
        format!("{:.3}", share.as_percent())
    }

    #[test]
    fn a_segment_is_what_the_headers_leave() {
        for (mtu, ip, timestamps, wanted, payload) in [
            (1500, V4, true, None, 1448),
            (1500, V4, false, None, 1460),
            (1500, V6, true, None, 1428),
            (1500, V6, false, None, 1440),
            (9000, V4, true, None, 8948),
            (9000, V6, false, None, 8940),
            (1500, V4, true, Some(1460), 1448),
            (1500, V4, false, Some(1400), 1400),
            (1500, V4, false, Some(9000), 1460),
            (1500, V6, false, Some(1460), 1440),
            (52, V4, true, None, 0),
            (0, V6, false, None, 0),
            (1500, V4, true, Some(0), 0),
        ] {
            let got = segment_payload(
                ByteCount::new(mtu),
                ip,
                timestamps,
                wanted.map(ByteCount::new),
            );
            assert_eq!(
                got.get(),
                payload,
                "MTU {mtu}, {ip:?}, timestamps {timestamps}, wanted {wanted:?}"
            );
        }
    }

    #[test]
    fn efficiencies_of_ethernet() {
        for (mtu, vlan_tags, percents) in [
            (1500, 0, ["94.148", "94.928", "92.848", "93.628"]),
            (1500, 1, ["93.904", "94.682", "92.607", "93.385"]),
            (1500, 2, ["93.661", "94.437", "92.367", "93.144"]),
            (9000, 0, ["99.004", "99.137", "98.783", "98.916"]),
        ] {
            let got = [(V4, true), (V4, false), (V6, true), (V6, false)].map(|(ip, timestamps)| {
                percent(full_efficiency(
                    &link(
                        mtu,
                        ip,
                        Encapsulation {
                            vlan_tags,
                            tunnel: None,
                        },
                    ),
                    timestamps,
                ))
            });
            assert_eq!(got, percents, "MTU {mtu}, {vlan_tags} tags");
        }
    }

    #[test]
    fn a_gigabit_carries_941_megabits() {
        for (ip, timestamps, mbps) in [
            (V4, true, 941.48),
            (V4, false, 949.28),
            (V6, true, 928.48),
            (V6, false, 936.28),
        ] {
            let link = link(1500, ip, Encapsulation::default());
            let payload =
                BitRate::from_mbps(1000).scale_by(full_efficiency(&link, timestamps).get());
            assert_eq!(format!("{:.2}", payload.as_mbps()), format!("{mbps:.2}"));
        }
    }

    #[test]
    fn the_capture_with_segments_of_1432_bytes() {
        let (payload, headers) = (ByteCount::new(1432), tcp_headers(V4, true));
        assert_eq!(wire_bytes(payload, headers, ETHERNET).get(), 1522);
        assert_eq!(percent(payload_share(payload, headers, ETHERNET)), "94.087");
    }

    #[test]
    fn datagrams_fill_98_of_100() {
        let payload = ByteCount::new(1470);
        assert_eq!(
            percent(payload_share(
                payload,
                udp_headers(V4),
                Framing::Ip.packet_overhead()
            )),
            "98.131"
        );
        assert_eq!(
            wire_bytes(payload, udp_headers(V4), Framing::Ip.packet_overhead()).get(),
            1498
        );
        assert_eq!(
            percent(payload_share(
                ByteCount::new(1452),
                udp_headers(V6),
                ETHERNET
            )),
            "94.408"
        );
    }

    #[test]
    fn a_tunnel_takes_from_the_segment_and_nothing_else() {
        // The segments that these tunnels are known for, without timestamps: PPPoE's 1452, GRE's
        // 1436, VXLAN's 1410.
        for (tunnel, ip, segment) in [
            (Tunnel::Pppoe, V4, 1452),
            (Tunnel::Gre, V4, 1436),
            (Tunnel::Vxlan, V4, 1410),
            (Tunnel::WireGuard, V4, 1400),
            (Tunnel::WireGuard, V6, 1360),
            (Tunnel::Ipsec, V4, 1406),
        ] {
            let link = link(
                1500,
                ip,
                Encapsulation {
                    vlan_tags: 0,
                    tunnel: Some(tunnel),
                },
            );
            assert_eq!(
                full_segment(&link, false).get(),
                segment,
                "{tunnel:?} over {ip:?}"
            );
            let wire = wire_bytes(
                full_segment(&link, false),
                tcp_headers(ip, false),
                link.packet_overhead(),
            );
            assert_eq!(wire.get(), 1538, "{tunnel:?} over {ip:?}");
        }
    }

    #[test]
    fn a_rate_of_ip_packets_counts_no_tag() {
        let tagged = Encapsulation {
            vlan_tags: 2,
            tunnel: Some(Tunnel::Gre),
        };
        let link = PathDirection {
            framing: Framing::Ip,
            ..link(1500, V4, tagged)
        };
        assert_eq!(link.packet_overhead().get(), 24);
    }

    #[test]
    fn payload_of_9344_kbit_is_about_ten_megabits_with_headers() {
        let share = payload_share(ByteCount::new(1460), tcp_headers(V4, false), ETHERNET);
        let wire = BitRate::from_bps(9_344_000).scale_by(1.0 / share.get());
        assert_eq!(wire.to_string(), "9.843 Mbit/s");
    }

    fn links() -> impl Strategy<Value = PathDirection> {
        let tunnels = [
            Tunnel::Gre,
            Tunnel::Vxlan,
            Tunnel::WireGuard,
            Tunnel::Ipsec,
            Tunnel::Pppoe,
        ];
        let tunnel = proptest::option::of(prop::sample::select(tunnels.to_vec()));
        let mtu = prop_oneof![0_u64..10_000, 0_u64..1 << 40];
        (mtu, any::<bool>(), any::<u8>(), tunnel, any::<bool>()).prop_map(
            |(mtu, v6, vlan_tags, tunnel, frames)| {
                let framing = if frames {
                    Framing::Ethernet
                } else {
                    Framing::Ip
                };
                let ip = if v6 { V6 } else { V4 };
                PathDirection {
                    framing,
                    ..link(mtu, ip, Encapsulation { vlan_tags, tunnel })
                }
            },
        )
    }

    proptest! {
        #[test]
        fn at_any_size_the_efficiency_is_a_share(payload: u64, headers: u64, overhead: u64) {
            let share = payload_share(ByteCount::new(payload), ByteCount::new(headers), ByteCount::new(overhead));
            prop_assert!(share <= Ratio::ONE);
        }

        #[test]
        fn efficiency_grows_with_the_segment(
            link in links(), payload: u32, more: u32, timestamps: bool,
        ) {
            let headers = tcp_headers(link.ip, timestamps);
            let of = |payload| payload_share(ByteCount::new(payload), headers, link.packet_overhead());
            let payload = u64::from(payload);
            prop_assert!(of(payload + u64::from(more)) >= of(payload));
        }

        #[test]
        fn what_is_wrapped_around_a_packet_never_gains(link in links(), timestamps: bool) {
            let bare = PathDirection { encapsulation: Encapsulation::default(), ..link.clone() };
            prop_assert!(full_efficiency(&link, timestamps) <= full_efficiency(&bare, timestamps));
        }

        #[test]
        fn a_larger_mtu_is_never_less_efficient(link in links(), more: u32, timestamps: bool) {
            let larger = PathDirection { mtu: link.mtu + ByteCount::new(more.into()), ..link.clone() };
            prop_assert!(full_efficiency(&larger, timestamps) >= full_efficiency(&link, timestamps));
        }

        #[test]
        fn a_segment_and_its_headers_fit_the_packet(link in links(), timestamps: bool, wanted: Option<u64>) {
            let payload = segment_payload(link.inner_mtu(), link.ip, timestamps, wanted.map(ByteCount::new));
            if payload > ByteCount::ZERO {
                prop_assert!(payload + tcp_headers(link.ip, timestamps) <= link.inner_mtu());
            }
        }
    }
}
