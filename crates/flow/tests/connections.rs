//! Connections made of hand-written segments.

#[path = "../src/test_segment.rs"]
mod segment;

use std::net::SocketAddr;

use fullpipe_flow::{
    ExplainedTransfers, FinishedFlows, FlowTable, FlowsWithTimes, TransferEvidence, of_both,
    window_edit,
};
use fullpipe_record::{At, CapturePoint, ChangedField, Evidence, FlowPair, FlowReport, WindowEdit};
use fullpipe_units::{ByteCount, Ratio, Span, Time};
use fullpipe_wire::{CapturedSegment, SegmentOptions, flags};
use proptest::prelude::*;
use segment::empty_segment;

const MSS: u32 = 1448;

/// A capture under way, of a connection from 40 ms away, taken at the client or the server.
struct Capture {
    flows: FlowTable,
    at: Time,
    identification: u16,
}

impl Capture {
    fn new() -> Self {
        Self {
            flows: FlowTable::default(),
            at: Time::ZERO + Span::from_secs(1_000),
            identification: 0,
        }
    }

    fn wait(&mut self, span: Span) -> &mut Self {
        self.at = self.at + span;
        self
    }

    fn add(&mut self, segment: CapturedSegment) -> &mut Self {
        self.flows.add_segment(&segment, self.at);
        self
    }

    /// Adds a segment with a new identification, from the client to the server or back.
    fn sent(&mut self, from_client: bool, segment: CapturedSegment) -> &mut Self {
        self.identification += 1;
        let identification = Some(self.identification);
        self.add(between(
            from_client,
            CapturedSegment {
                identification,
                ..segment
            },
        ))
    }

    fn handshake(&mut self, rtt: Span) -> &mut Self {
        self.handshake_with(rtt, [1, 2])
    }

    /// The client offers the first shift of windows, the server the second.
    fn handshake_with(&mut self, rtt: Span, scales: [u8; 2]) -> &mut Self {
        self.sent(
            true,
            CapturedSegment {
                sequence: 999,
                flags: flags::SYN,
                options: syn_options(scales[0]),
                ..empty_segment()
            },
        );
        self.wait(rtt);
        let answer = CapturedSegment {
            sequence: 4_999,
            acknowledgement: 1_000,
            flags: flags::SYN | flags::ACK,
            options: syn_options(scales[1]),
            ..empty_segment()
        };
        self.sent(false, answer);
        self.sent(
            true,
            CapturedSegment {
                sequence: 1_000,
                acknowledgement: 5_000,
                flags: flags::ACK,
                ..empty_segment()
            },
        )
    }

    /// The client sends its segment `index` of data.
    fn data(&mut self, index: u32) -> &mut Self {
        self.sent(true, data(index))
    }

    /// The server acknowledges all segments below `index`.
    fn ack(&mut self, index: u32) -> &mut Self {
        self.sent(false, ack(index))
    }

    fn finish(&mut self) -> FinishedFlows {
        std::mem::take(&mut self.flows).finish_flows(ExplainedTransfers::Largest(0))
    }

    fn only(&mut self) -> FlowReport {
        let finished = self.finish();
        assert_eq!(finished.flows.len(), 1);
        finished.flows.into_iter().next().unwrap()
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn between(from_client: bool, segment: CapturedSegment) -> CapturedSegment {
    let (client, server) = (address("192.0.2.1:40000"), address("198.51.100.2:5201"));
    let (source, destination) = if from_client {
        (client, server)
    } else {
        (server, client)
    };
    CapturedSegment {
        source,
        destination,
        ..segment
    }
}

fn syn_options(scale: u8) -> SegmentOptions {
    SegmentOptions {
        mss: Some(1460),
        window_scale: Some(scale),
        sack_permitted: true,
        ..SegmentOptions::default()
    }
}

fn data(index: u32) -> CapturedSegment {
    CapturedSegment {
        sequence: 1_000 + index * MSS,
        acknowledgement: 5_000,
        flags: flags::ACK,
        payload: MSS,
        ..empty_segment()
    }
}

fn ack(index: u32) -> CapturedSegment {
    CapturedSegment {
        sequence: 5_000,
        acknowledgement: 1_000 + index * MSS,
        flags: flags::ACK,
        ..empty_segment()
    }
}

const RTT: Span = Span::from_millis(40);

#[test]
fn a_shift_of_windows_above_the_largest_counts_as_that() {
    let mut capture = Capture::new();
    capture
        .handshake_with(RTT, [255, 200])
        .data(0)
        .wait(RTT)
        .ack(1)
        .data(1)
        .wait(RTT)
        .ack(2);
    let FinishedFlows {
        flows, transfers, ..
    } = capture.flows.finish_flows(ExplainedTransfers::Largest(1));
    let largest = 1_000 << 14;
    assert_eq!(flows[0].ends[1].window.unwrap().settled.get(), largest);
    let seen = transfers[0]
        .evidence
        .sender_samples
        .iter()
        .filter_map(|sample| sample.tcp.snd_wnd);
    assert_eq!(seen.max().unwrap().get(), largest);
    assert_eq!(
        flows[0].ends[1].window_scale,
        Some(200),
        "as it stands in the SYN"
    );
}

#[test]
fn a_transfer_is_counted_from_its_handshake_on() {
    let mut capture = Capture::new();
    capture
        .handshake(RTT)
        .data(0)
        .data(1)
        .wait(RTT)
        .ack(2)
        .data(2)
        .wait(RTT)
        .ack(3);
    let flow = capture.only();
    let [client, server] = &flow.ends;
    assert!(flow.has_handshake);
    assert_eq!(
        (client.address.as_str(), server.address.as_str()),
        ("192.0.2.1:40000", "198.51.100.2:5201")
    );
    assert_eq!(
        (
            client.packets,
            client.data_packets,
            client.unique_bytes.get()
        ),
        (5, 3, 3 * 1448)
    );
    assert_eq!(
        (client.retransmitted_packets, client.missing_bytes.get()),
        (0, 0)
    );
    assert_eq!(
        (
            client.mss.unwrap().get(),
            client.window_scale,
            server.window_scale
        ),
        (1460, Some(1), Some(2))
    );
    assert_eq!(client.initial_window.get(), 2 * 1448);
    assert_eq!(client.flight.get(), 2 * 1448);
    assert_eq!(client.rtt.unwrap().least, RTT);
    assert_eq!(server.window.unwrap().settled.get(), 4_000);
    assert_eq!(flow.duration, RTT * 3);
}

#[test]
fn an_initial_window_ends_with_the_acknowledgement_of_some_of_it() {
    let mut capture = Capture::new();
    // A greeting of the server, sent before anything of the client's arrived.
    let greeting = CapturedSegment {
        payload: 20,
        ..ack(0)
    };
    capture
        .handshake(RTT)
        .data(0)
        .sent(false, greeting)
        .data(1)
        .wait(RTT)
        .ack(2)
        .data(2);
    assert_eq!(
        capture.only().ends[0].initial_window.get(),
        2 * u64::from(MSS)
    );
}

#[test]
fn a_capture_is_taken_where_answers_come_at_once() {
    let mut at_client = Capture::new();
    at_client.handshake(RTT).data(0).wait(RTT).ack(1);
    assert_eq!(at_client.only().point, Some(CapturePoint::First));

    let mut at_server = Capture::new();
    at_server.sent(
        true,
        CapturedSegment {
            sequence: 999,
            flags: flags::SYN,
            ..empty_segment()
        },
    );
    let answer = CapturedSegment {
        sequence: 4_999,
        acknowledgement: 1_000,
        flags: flags::SYN | flags::ACK,
        ..empty_segment()
    };
    at_server.sent(false, answer).wait(RTT).data(0).ack(1);
    assert_eq!(at_server.only().point, Some(CapturePoint::Second));
}

#[test]
fn a_segment_that_is_sent_again_counts_once() {
    let mut capture = Capture::new();
    capture
        .handshake(RTT)
        .data(0)
        .data(1)
        .wait(RTT)
        .ack(1)
        .wait(RTT)
        .data(1)
        .wait(RTT)
        .ack(2);
    let [client, _] = capture.only().ends;
    assert_eq!(
        (client.bytes.get(), client.unique_bytes.get()),
        (3 * 1448, 2 * 1448)
    );
    assert_eq!(
        (
            client.retransmitted_packets,
            client.retransmitted_bytes.get()
        ),
        (1, 1448)
    );
    assert_eq!(
        client.rtt.unwrap().samples,
        2,
        "of the SYN and the first segment alone"
    );
}

#[test]
fn behind_a_loss_a_late_arrival_is_retransmitted_if_it_was_sent_later_and_reordered_otherwise() {
    let mut lost = Capture::new();
    lost.handshake(RTT)
        .data(0)
        .data(2)
        .data(3)
        .wait(RTT)
        .data(1);
    let [client, _] = lost.only().ends;
    assert_eq!(
        (
            client.late_packets,
            client.reordered_packets,
            client.retransmitted_packets
        ),
        (1, 0, 0)
    );

    let mut overtaken = Capture::new();
    overtaken.handshake(RTT).data(0);
    let late = between(
        true,
        CapturedSegment {
            identification: Some(100),
            ..data(1)
        },
    );
    let early = between(
        true,
        CapturedSegment {
            identification: Some(101),
            ..data(2)
        },
    );
    overtaken.add(early).add(late);
    let [client, _] = overtaken.only().ends;
    assert_eq!((client.late_packets, client.reordered_packets), (1, 1));
}

#[test]
fn random_identifications_hide_no_loss() {
    /// Returns the packets that were reordered of a transfer whose every tenth segment is lost
    /// before the capture and sent again two later.
    fn reordered(
        identification: impl Fn(u32) -> u16,
        timestamp: impl Fn(u32) -> Option<u32>,
    ) -> [u64; 2] {
        let mut capture = Capture::new();
        capture.handshake(RTT);
        let order = (0..400_u32)
            .filter(|index| index % 10 != 7)
            .flat_map(|index| {
                let repair = (index % 10 == 9).then(|| index - 2);
                std::iter::once(index).chain(repair)
            });
        for (time, index) in (0..).zip(order) {
            let timestamps = timestamp(time).map(|value| (value, 1));
            let options = SegmentOptions {
                timestamps,
                ..SegmentOptions::default()
            };
            let identification = Some(identification(time));
            capture
                .add(between(
                    true,
                    CapturedSegment {
                        identification,
                        options,
                        ..data(index)
                    },
                ))
                .wait(Span::from_millis(1));
        }
        let [client, _] = capture.only().ends;
        [client.late_packets, client.reordered_packets]
    }
    let random = |time: u32| (time.wrapping_mul(0x9E37_79B9) >> 13) as u16;
    let counted = |time: u32| (time * 3) as u16;
    assert_eq!(reordered(random, |time| Some(1_000 + time)), [40, 0]);
    assert_eq!(reordered(random, |_| None), [40, 0]);
    assert_eq!(
        reordered(random, |_| Some(1_000)),
        [40, 0],
        "a clock that stands still"
    );
    assert_eq!(reordered(counted, |_| None), [40, 0]);
    // The network delays it.
    assert_eq!(
        reordered(counted, |time| Some(
            1_000 + time - u32::from(time % 10 == 9) * 5
        )),
        [40, 40]
    );
}

#[test]
fn losses_by_the_thousand_at_a_time_are_no_repetitions() {
    let mut capture = Capture::new();
    capture.handshake(RTT);
    (0..4_000)
        .step_by(2)
        .for_each(|index| _ = capture.data(index));
    (1..4_000)
        .step_by(2)
        .for_each(|index| _ = capture.data(index));
    let [client, _] = capture.only().ends;
    assert_eq!(
        (client.retransmitted_packets, client.late_packets),
        (0, 1_999)
    );
    assert_eq!(client.unique_bytes.get(), 4_000 * u64::from(MSS));
}

#[test]
fn what_is_acknowledged_and_was_never_seen_is_missing_from_the_capture() {
    let mut capture = Capture::new();
    capture.handshake(RTT).data(0).data(2).wait(RTT).ack(3);
    let [client, _] = capture.only().ends;
    assert_eq!((client.missing_bytes.get(), client.late_packets), (1448, 0));
}

#[test]
fn a_mirror_of_both_ports_shows_each_packet_twice_and_it_counts_once() {
    let mut capture = Capture::new();
    capture.handshake(RTT);
    let one = between(
        true,
        CapturedSegment {
            identification: Some(77),
            ..data(0)
        },
    );
    capture
        .add(one)
        .wait(Span::from_micros(3))
        .add(CapturedSegment {
            hops_left: 63,
            ..one
        });
    let [client, _] = capture.only().ends;
    assert_eq!(
        (
            client.data_packets,
            client.duplicates,
            client.retransmitted_packets
        ),
        (1, 1, 0)
    );
}

#[test]
fn duplicate_acknowledgements_of_ipv6_differ_in_their_blocks() {
    let mut capture = Capture::new();
    capture.handshake(RTT);
    (0..50).for_each(|index| _ = capture.data(index));
    for index in 0..40 {
        let sack = [
            (1_000 + 2 * MSS, 1_000 + (3 + index) * MSS),
            (0, 0),
            (0, 0),
            (0, 0),
        ];
        let options = SegmentOptions {
            sack,
            sack_blocks: 1,
            timestamps: Some((7, 1)),
            ..SegmentOptions::default()
        };
        capture
            .wait(Span::from_micros(12))
            .add(between(false, CapturedSegment { options, ..ack(1) }));
    }
    let [_, server] = capture.only().ends;
    assert_eq!((server.duplicates, server.duplicate_acks), (0, 39));
}

#[test]
fn duplicate_acknowledgements_and_closed_windows_are_counted() {
    let mut capture = Capture::new();
    capture
        .handshake(RTT)
        .data(0)
        .data(1)
        .data(2)
        .wait(RTT)
        .ack(1)
        .ack(1)
        .ack(1);
    capture.sent(
        false,
        CapturedSegment {
            window: 0,
            ..ack(3)
        },
    );
    let [_, server] = capture.only().ends;
    assert_eq!((server.duplicate_acks, server.window.unwrap().zero), (2, 1));
}

#[test]
fn the_same_ports_again_are_another_connection() {
    let mut capture = Capture::new();
    capture.handshake(RTT).data(0).wait(Span::from_secs(90));
    capture.sent(
        true,
        CapturedSegment {
            sequence: 77_000,
            flags: flags::SYN,
            ..empty_segment()
        },
    );
    let answer = CapturedSegment {
        sequence: 1,
        acknowledgement: 77_001,
        flags: flags::SYN | flags::ACK,
        ..empty_segment()
    };
    let finished = capture.sent(false, answer).finish();
    assert_eq!(
        finished
            .flows
            .iter()
            .map(|flow| flow.number)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(finished.flows[1].ends[0].packets, 1);
}

/// The number of connections of a capture that begins with a whole one, closed by both ends or by a
/// RST of the server, and goes on with `later` packets after so long.
fn connections_with(is_reset: bool, later: &[(bool, CapturedSegment)], after: Span) -> usize {
    let mut capture = Capture::new();
    capture.handshake(RTT).data(0).wait(RTT).ack(1);
    if is_reset {
        capture.sent(
            false,
            CapturedSegment {
                flags: flags::RST | flags::ACK,
                ..ack(1)
            },
        );
    } else {
        let fin = flags::FIN | flags::ACK;
        capture.sent(
            true,
            CapturedSegment {
                payload: 0,
                flags: fin,
                ..data(1)
            },
        );
        capture.sent(
            false,
            CapturedSegment {
                acknowledgement: ack(1).acknowledgement + 1,
                flags: fin,
                ..ack(1)
            },
        );
    }
    capture.wait(after);
    for (from_client, segment) in later {
        capture.sent(*from_client, *segment);
    }
    capture.finish().flows.len()
}

#[test]
fn the_same_ports_again_are_another_connection_though_its_syn_is_missing() {
    let moved = |segment: CapturedSegment, by: u32| CapturedSegment {
        sequence: segment.sequence.wrapping_add(by),
        acknowledgement: segment.acknowledgement.wrapping_add(by),
        ..segment
    };
    let (second, minute) = (Span::from_secs(1), Span::from_secs(61));
    let next = |by: u32| [(true, moved(data(1), by)), (false, moved(ack(2), by))];
    assert_eq!(connections_with(false, &next(1_500_000_000), second), 2);
    assert_eq!(
        connections_with(false, &next(10_000), second),
        2,
        "nothing lies behind a FIN"
    );
    assert_eq!(connections_with(true, &next(1_500_000_000), second), 2);
    assert_eq!(
        connections_with(true, &next(10_000), second),
        1,
        "behind a RST comes what was on its way"
    );
    // What comes late is of the same one.
    let repeated = [(true, data(0)), (false, ack(1))];
    assert_eq!(connections_with(false, &repeated, second), 1);
    assert_eq!(connections_with(false, &repeated, minute), 2);
    let fin = [(
        false,
        CapturedSegment {
            flags: flags::FIN | flags::ACK,
            ..ack(1)
        },
    )];
    assert_eq!(connections_with(false, &fin, minute), 1);
    let reset = [(
        false,
        moved(
            CapturedSegment {
                flags: flags::RST,
                ..ack(1)
            },
            1_500_000_000,
        ),
    )];
    assert_eq!(connections_with(false, &reset, second), 1);
}

#[test]
fn a_forged_reset_ends_no_connection() {
    let mut capture = Capture::new();
    capture.handshake(RTT).data(0).wait(RTT).ack(1);
    capture.sent(
        false,
        CapturedSegment {
            sequence: 2_000_000_000,
            flags: flags::RST,
            ..empty_segment()
        },
    );
    for index in 1..100 {
        capture.data(index).wait(Span::from_secs(2)).ack(index + 1);
    }
    assert_eq!(capture.finish().flows.len(), 1);
}

#[test]
fn a_reset_that_ends_nothing_ends_nothing_later() {
    const LENGTH: u32 = 1 << 20;
    // More than the sequence numbers there are. Of one end all packets are lost to the capture, or
    // of none.
    for lost in [None, Some(true), Some(false)] {
        let mut capture = Capture::new();
        capture.handshake(RTT);
        for index in 0..5_000_u32 {
            let sent = 1_000_u32.wrapping_add(index.wrapping_mul(LENGTH));
            if lost != Some(true) || index < 2 {
                capture.sent(
                    true,
                    CapturedSegment {
                        sequence: sent,
                        payload: LENGTH,
                        ..data(0)
                    },
                );
            }
            capture.wait(RTT);
            if lost != Some(false) || index < 2 {
                capture.sent(
                    false,
                    CapturedSegment {
                        acknowledgement: sent.wrapping_add(LENGTH),
                        ..ack(0)
                    },
                );
            }
            if index == 10 || index == 3_000 {
                capture.sent(
                    false,
                    CapturedSegment {
                        sequence: 2_000_000_000,
                        flags: flags::RST,
                        ..empty_segment()
                    },
                );
            }
        }
        assert_eq!(capture.finish().flows.len(), 1, "{lost:?}");
    }
}

#[test]
fn an_answer_to_another_syn_begins_another_connection() {
    let answer = |sequence: u32, acknowledgement: u32| {
        (
            false,
            CapturedSegment {
                sequence,
                acknowledgement,
                flags: flags::SYN | flags::ACK,
                ..empty_segment()
            },
        )
    };
    let of_server = |packets: &[(bool, CapturedSegment)]| {
        let mut capture = Capture::new();
        for (from_client, segment) in packets {
            capture.sent(*from_client, *segment).wait(RTT);
        }
        capture.finish().flows.len()
    };
    let data = |sequence: u32| {
        (
            false,
            CapturedSegment {
                sequence,
                payload: 500,
                ..ack(0)
            },
        )
    };
    assert_eq!(
        of_server(&[answer(4_999, 1_000), data(5_000), answer(2_000_000_000, 77)]),
        2
    );
    assert_eq!(
        of_server(&[data(5_000), answer(2_000_000_000, 77), data(2_000_000_001)]),
        2
    );
    let both = [(
        true,
        CapturedSegment {
            sequence: 999,
            acknowledgement: 5_000,
            flags: flags::SYN | flags::ACK,
            ..empty_segment()
        },
    )];
    assert_eq!(
        of_server(&[[answer(4_999, 1_000)], both].concat()),
        1,
        "both open it at the same time"
    );
    // The server sends its answer again, maybe made of a cookie; or the packets of a handshake
    // change their order.
    assert_eq!(
        of_server(&[answer(4_999, 1_000), data(5_000), answer(4_999, 1_000)]),
        1
    );
    assert_eq!(
        of_server(&[answer(4_999, 1_000), answer(7_000, 1_000), data(7_001)]),
        1
    );
    let mut capture = Capture::new();
    let third = CapturedSegment {
        sequence: 1_000,
        acknowledgement: 5_000,
        flags: flags::ACK,
        ..empty_segment()
    };
    capture
        .sent(true, third)
        .wait(Span::from_micros(20))
        .sent(false, answer(4_999, 1_000).1)
        .data(0);
    assert_eq!(capture.finish().flows.len(), 1);
}

#[test]
fn attempts_that_nobody_answers_are_only_counted() {
    let mut flows = FlowTable::default();
    for port in 0..600_000_u32 {
        let source = SocketAddr::from(([10, 0, (port >> 16) as u8, 1], port as u16));
        let syn = CapturedSegment {
            source,
            sequence: port,
            flags: flags::SYN,
            ..empty_segment()
        };
        flows.add_segment(&syn, Time::ZERO + Span::from_micros(port.into()));
    }
    let finished = flows.finish_flows(ExplainedTransfers::Largest(0));
    assert_eq!((finished.flows.len(), finished.unanswered), (0, 600_000));
}

#[test]
fn a_capture_that_begins_in_the_middle_has_windows_without_a_scale_and_no_handshake() {
    let mut capture = Capture::new();
    capture.data(7).wait(RTT).ack(8).data(8).wait(RTT).ack(9);
    let flow = capture.only();
    assert!(!flow.has_handshake && flow.ends[1].window.unwrap().is_unscaled);
    assert_eq!(
        (
            flow.ends[0].unique_bytes.get(),
            flow.ends[0].missing_bytes.get()
        ),
        (2 * 1448, 0)
    );
    assert_eq!(flow.point, None, "nothing answered the server");
}

/// The evidence of the only transfer.
fn evidence(capture: &mut Capture) -> Evidence {
    let finished = std::mem::take(&mut capture.flows).finish_flows(ExplainedTransfers::Largest(1));
    assert_eq!(finished.transfers.len(), 1);
    finished.transfers.into_iter().next().unwrap().evidence
}

/// Bytes in flight by the samples, the last first.
fn in_flight(evidence: &Evidence) -> Vec<u64> {
    evidence
        .sender_samples
        .iter()
        .rev()
        .filter_map(|sample| Some(sample.outstanding_bytes()?.get()))
        .collect()
}

/// A segment whose timestamp is `value` milliseconds and which echoes `echo`.
fn at_milliseconds(segment: CapturedSegment, value: u32, echo: u32) -> CapturedSegment {
    CapturedSegment {
        options: SegmentOptions {
            timestamps: Some((value, echo)),
            ..segment.options
        },
        ..segment
    }
}

#[test]
fn echoed_timestamps_show_at_the_receiver_what_the_sender_has_in_flight() {
    const WINDOW: u32 = 10;
    let mut capture = Capture::new();
    capture.sent(
        true,
        CapturedSegment {
            sequence: 999,
            flags: flags::SYN,
            options: syn_options(1),
            ..empty_segment()
        },
    );
    let answer = CapturedSegment {
        sequence: 4_999,
        acknowledgement: 1_000,
        flags: flags::SYN | flags::ACK,
        options: syn_options(2),
        ..empty_segment()
    };
    capture.sent(false, answer).wait(Span::from_millis(40));
    // Each segment comes 40 ms after the acknowledgement that allows it.
    for index in 0..500 {
        let (round, now) = (index / WINDOW, 1_000 + index / WINDOW * 40 + index % WINDOW);
        let echo = if round == 0 { 900 } else { now - 40 };
        capture.sent(true, at_milliseconds(data(index), now - 20, echo));
        capture.sent(false, at_milliseconds(ack(index + 1), now, now - 20));
        capture.wait(Span::from_millis(if index % WINDOW == WINDOW - 1 {
            31
        } else {
            1
        }));
    }
    let evidence = evidence(&mut capture);
    let seen = evidence.capture.unwrap();
    assert_eq!((seen.point, seen.by_echo), (Some(At::Receiver), true));
    let window = u64::from(WINDOW * MSS);
    let all = in_flight(&evidence);
    assert!(
        all.len() > 40 && all[..all.len() - 4].iter().all(|size| *size == window),
        "{all:?}"
    );
    let rtt = evidence.sender_samples.last().unwrap().tcp.rtt.unwrap();
    assert!((rtt.as_millis_f64() - 40.0).abs() < 1.0, "{rtt}");
}

#[test]
fn without_timestamps_the_time_of_an_answer_stands_in() {
    const WINDOW: u32 = 10;
    let mut capture = Capture::new();
    capture.sent(
        true,
        CapturedSegment {
            sequence: 999,
            flags: flags::SYN,
            options: syn_options(1),
            ..empty_segment()
        },
    );
    let answer = CapturedSegment {
        sequence: 4_999,
        acknowledgement: 1_000,
        flags: flags::SYN | flags::ACK,
        ..empty_segment()
    };
    capture.sent(false, answer).wait(RTT);
    capture.sent(
        true,
        CapturedSegment {
            sequence: 1_000,
            acknowledgement: 5_000,
            flags: flags::ACK,
            ..empty_segment()
        },
    );
    for index in 0..500 {
        capture.data(index).ack(index + 1);
        capture.wait(Span::from_millis(if index % WINDOW == WINDOW - 1 {
            31
        } else {
            1
        }));
    }
    let all = in_flight(&evidence(&mut capture));
    let window = u64::from(WINDOW * MSS);
    assert!(
        all.len() > 40 && all[..all.len() - 4].iter().all(|size| *size == window),
        "{all:?}"
    );
}

#[test]
fn a_burst_that_is_answered_while_it_passes_hides_no_round_trip() {
    let stamped = |own: u32, echo: u32, segment: CapturedSegment| {
        let options = SegmentOptions {
            timestamps: Some((own, echo)),
            ..segment.options
        };
        CapturedSegment { options, ..segment }
    };
    let mut capture = Capture::new();
    capture.sent(
        true,
        stamped(
            1,
            0,
            CapturedSegment {
                sequence: 999,
                flags: flags::SYN,
                options: syn_options(1),
                ..empty_segment()
            },
        ),
    );
    let flags = flags::SYN | flags::ACK;
    let answer = CapturedSegment {
        sequence: 4_999,
        acknowledgement: 1_000,
        flags,
        options: syn_options(2),
        ..empty_segment()
    };
    capture
        .wait(Span::from_millis(20))
        .sent(false, stamped(1, 1, answer))
        .wait(Span::from_millis(20));
    // Twenty segments of one timestamp, each acknowledged 20 ms later: the first one when half of
    // them have passed.
    for step in 0..30 {
        if step < 20 {
            capture.sent(true, stamped(7, 1, data(step)));
        }
        if step >= 10 {
            capture.sent(false, stamped(2, 7, ack(step - 9)));
        }
        capture.wait(Span::from_millis(2));
    }
    assert_eq!(capture.only().point, Some(CapturePoint::Between));
}

#[test]
fn what_the_sending_host_dropped_itself_shows_in_its_own_capture() {
    let mut capture = Capture::new();
    capture.handshake(Span::from_millis(40));
    // Segment 3 never leaves the host; its repair is the first copy that a capture behind the queue
    // sees.
    for index in [0, 1, 2, 4, 5, 3, 6] {
        capture.data(index).wait(Span::from_millis(1));
    }
    capture.wait(Span::from_millis(40)).ack(7);
    let evidence = evidence(&mut capture);
    let seen = evidence.capture.unwrap();
    assert_eq!((seen.point, seen.lost_before), (Some(At::Sender), 1));
    assert_eq!(
        evidence
            .sender_samples
            .last()
            .unwrap()
            .tcp
            .total_retrans
            .unwrap()
            .get(),
        1
    );
}

#[test]
fn data_whose_first_copy_comes_behind_its_repair_was_not_lost() {
    // At the server, an acknowledgement comes at once, and data after a round trip.
    let lost_before = |comes_late: bool| {
        let mut capture = Capture::new();
        capture.handshake(Span::from_millis(40)).data(0);
        let late = CapturedSegment {
            identification: Some(capture.identification + 1),
            ..data(1)
        };
        capture.identification += 1;
        (2..6).for_each(|index| _ = capture.wait(Span::from_millis(1)).data(index));
        capture.ack(1).wait(Span::from_millis(40)).data(1).ack(6);
        if comes_late {
            capture.wait(Span::from_millis(20)).add(between(true, late));
        }
        capture.wait(Span::from_millis(20)).data(6).ack(7);
        let evidence = evidence(&mut capture);
        let again = evidence
            .sender_samples
            .last()
            .unwrap()
            .tcp
            .total_retrans
            .unwrap()
            .get();
        (evidence.capture.unwrap().lost_before, again)
    };
    assert_eq!((lost_before(false), lost_before(true)), ((1, 1), (0, 1)));
}

#[test]
fn packets_from_below_what_was_acknowledged_ask_for_the_window() {
    let mut capture = Capture::new();
    capture.handshake(Span::from_millis(40)).data(0).ack(1);
    for millis in [200, 400] {
        capture
            .wait(Span::from_millis(millis))
            .sent(
                true,
                CapturedSegment {
                    payload: 0,
                    sequence: 1_447,
                    ..data(0)
                },
            )
            .ack(1);
    }
    assert_eq!(evidence(&mut capture).capture.unwrap().probes, 2);
}

#[test]
fn a_byte_that_asks_whether_a_closed_window_is_open_was_not_lost() {
    let closed = CapturedSegment {
        window: 0,
        ..ack(1)
    };
    let next_byte = CapturedSegment {
        payload: 1,
        ..data(1)
    };
    let mut capture = Capture::new();
    capture.handshake(RTT).data(0).wait(RTT).sent(false, closed);
    for _ in 0..3 {
        capture
            .wait(Span::from_secs(5))
            .sent(true, next_byte)
            .wait(RTT)
            .sent(false, closed);
    }
    // The last one is taken as the window opens.
    let taken = 1_001 + MSS;
    capture
        .wait(Span::from_secs(5))
        .sent(true, next_byte)
        .wait(RTT);
    capture.sent(
        false,
        CapturedSegment {
            acknowledgement: taken,
            ..ack(1)
        },
    );
    capture
        .sent(
            true,
            CapturedSegment {
                sequence: taken,
                ..data(1)
            },
        )
        .wait(RTT);
    capture.sent(
        false,
        CapturedSegment {
            acknowledgement: taken + MSS,
            ..ack(1)
        },
    );
    let FinishedFlows {
        flows, transfers, ..
    } = capture.flows.finish_flows(ExplainedTransfers::Largest(1));
    let [client, server] = &flows[0].ends;
    assert_eq!(
        (client.unique_bytes.get(), client.missing_bytes.get()),
        (2 * u64::from(MSS) + 1, 0)
    );
    assert_eq!(
        (
            client.retransmitted_packets,
            client.late_packets,
            client.flight.get()
        ),
        (0, 0, u64::from(MSS))
    );
    assert_eq!(server.window.unwrap().zero, 4);
    let capture = transfers[0].evidence.capture.unwrap();
    assert_eq!(
        (
            capture.probes,
            client.stalls.timeout_count,
            client.stalls.no_data
        ),
        (4, 0, Span::ZERO)
    );
    assert_eq!(client.stalls.closed_window, Span::from_secs(20) + RTT * 4);
    assert_eq!(capture.idle, Ratio::ZERO, "the receiver allowed nothing");
}

#[test]
fn times_without_data_are_booked_by_what_they_waited_for() {
    let second = Span::from_secs(1);
    let mut capture = Capture::new();
    capture.handshake(RTT).wait(second).data(0).wait(RTT).ack(1);
    // Nothing to send, a timeout twice as long as the one before, a closed window, and no more
    // data.
    capture
        .wait(second * 2)
        .data(1)
        .wait(RTT)
        .ack(2)
        .data(2)
        .data(3);
    capture
        .wait(second * 3)
        .data(2)
        .wait(second * 6)
        .data(2)
        .wait(RTT)
        .ack(4);
    capture.data(4).wait(RTT).sent(
        false,
        CapturedSegment {
            window: 0,
            ..ack(5)
        },
    );
    capture
        .wait(second * 7)
        .ack(5)
        .data(5)
        .wait(RTT)
        .ack(6)
        .wait(second * 8)
        .ack(6);
    let stalls = capture.only().ends[0].stalls;
    assert_eq!(stalls.before_data, second);
    assert_eq!((stalls.timeouts, stalls.timeout_count), (second * 9, 2));
    assert_eq!(stalls.closed_window, second * 7);
    assert_eq!(stalls.no_data, second * 2);
    assert_eq!(stalls.after_data, second * 8);
}

#[test]
fn a_window_that_is_closed_at_the_end_is_no_silence_after_the_data() {
    let mut capture = Capture::new();
    capture.data(7).wait(RTT).sent(
        false,
        CapturedSegment {
            window: 0,
            ..ack(8)
        },
    );
    let probe = CapturedSegment {
        payload: 0,
        sequence: 999 + 8 * MSS,
        ..data(8)
    };
    capture.wait(Span::from_secs(9)).sent(true, probe).sent(
        false,
        CapturedSegment {
            window: 0,
            ..ack(8)
        },
    );
    let flow = capture.only();
    let stalls = flow.ends[0].stalls;
    assert_eq!(
        (stalls.closed_window, stalls.after_data),
        (Span::from_secs(9), Span::ZERO)
    );
    let window = flow.ends[1].window.unwrap();
    assert!(
        window.is_unscaled && window.zero == 2,
        "zero is zero at any scale: {window:?}"
    );
}

#[test]
fn options_that_a_snap_length_cut_off_are_unknown_and_not_absent() {
    let cut = SegmentOptions {
        mss: Some(1460),
        cut: true,
        ..SegmentOptions::default()
    };
    let whole = SegmentOptions {
        mss: Some(1460),
        ..SegmentOptions::default()
    };
    let seen = |options: [SegmentOptions; 2]| {
        let mut capture = Capture::new();
        capture.sent(
            true,
            CapturedSegment {
                sequence: 999,
                flags: flags::SYN,
                options: options[0],
                ..empty_segment()
            },
        );
        let answer = CapturedSegment {
            sequence: 4_999,
            acknowledgement: 1_000,
            flags: flags::SYN | flags::ACK,
            ..empty_segment()
        };
        capture.wait(RTT).sent(
            false,
            CapturedSegment {
                options: options[1],
                ..answer
            },
        );
        for index in 0..40 {
            capture.data(index);
        }
        capture.wait(RTT).ack(40);
        let FinishedFlows {
            flows, transfers, ..
        } = capture.flows.finish_flows(ExplainedTransfers::Largest(1));
        let evidence = &transfers[0].evidence;
        let tcp = &evidence.sender_samples.last().unwrap().tcp;
        let offers = evidence
            .capture
            .map(|capture| [capture.sender_offers_scale, capture.receiver_offers_scale]);
        (
            offers.unwrap(),
            tcp.window_scaling,
            tcp.sack,
            flows[0].ends[1].window.unwrap().is_unscaled,
        )
    };
    assert_eq!(
        seen([whole, whole]),
        ([Some(false); 2], Some(false), Some(false), false)
    );
    assert_eq!(seen([cut, cut]), ([None; 2], None, None, true));
    assert_eq!(
        seen([cut, syn_options(7)]),
        ([None, Some(true)], None, None, true)
    );
    assert_eq!(
        seen([cut, whole]),
        ([None, Some(false)], Some(false), Some(false), false),
        "both must offer it"
    );
}

#[test]
fn a_byte_that_keeps_a_connection_alive_was_not_lost() {
    let last_byte = CapturedSegment {
        payload: 1,
        sequence: 999 + MSS,
        ..data(0)
    };
    let mut capture = Capture::new();
    capture.handshake(RTT).data(0).wait(RTT).ack(1);
    for _ in 0..2 {
        capture
            .wait(Span::from_secs(30))
            .sent(true, last_byte)
            .wait(RTT)
            .ack(1);
    }
    capture.data(1).wait(RTT).ack(2);
    let FinishedFlows {
        flows, transfers, ..
    } = capture.flows.finish_flows(ExplainedTransfers::Largest(1));
    let client = &flows[0].ends[0];
    assert_eq!(
        (client.data_packets, client.unique_bytes.get()),
        (2, 2 * u64::from(MSS))
    );
    assert_eq!(
        (
            client.retransmitted_packets,
            client.retransmitted_bytes.get()
        ),
        (0, 0)
    );
    assert_eq!(transfers[0].evidence.capture.as_ref().unwrap().probes, 2);

    let mut capture = Capture::new();
    let byte = CapturedSegment {
        payload: 1,
        ..data(0)
    };
    capture.handshake(RTT).sent(true, byte).ack(0).sent(
        false,
        CapturedSegment {
            acknowledgement: 1_001,
            ..ack(0)
        },
    );
    let flow = capture.wait(Span::from_millis(300)).sent(true, byte).only();
    assert_eq!(
        flow.ends[0].retransmitted_packets, 1,
        "its acknowledgement was lost behind the capture"
    );

    let mut capture = Capture::new();
    for _ in 0..3 {
        capture
            .wait(Span::from_secs(30))
            .sent(true, last_byte)
            .wait(RTT)
            .ack(1);
    }
    assert_eq!(
        capture.only().ends[0].retransmitted_packets,
        0,
        "the capture begins in the silence"
    );
}

#[test]
fn a_pace_and_parts_of_segments_are_seen_in_the_trains() {
    let mut capture = Capture::new();
    capture.handshake(Span::from_millis(40));
    // 1000 B every millisecond are 8 Mbit/s.
    for index in 0..400_u32 {
        let flags = flags::ACK | flags::PSH;
        let part = CapturedSegment {
            sequence: 1_000 + index * 1_000,
            payload: 1_000,
            flags,
            ..data(0)
        };
        capture.sent(true, part).wait(Span::from_millis(1));
        if index >= 40 {
            capture.sent(
                false,
                CapturedSegment {
                    acknowledgement: 1_000 + (index - 39) * 1_000,
                    ..ack(0)
                },
            );
        }
    }
    let seen = evidence(&mut capture).capture.unwrap();
    let pace = seen.departures.unwrap();
    assert!(
        (pace.rate.as_mbps() - 8.0).abs() < 0.3 && pace.share.get() > 0.95,
        "{pace:?}"
    );
    assert!(
        seen.partial.get() > 0.99 && seen.idle.get() < 0.01,
        "{seen:?}"
    );
}

#[test]
fn connections_side_by_side_are_one_transfer() {
    let mut flows = FlowTable::default();
    let at = |millis: u64| Time::ZERO + Span::from_millis(millis);
    for index in 0..1_000_u32 {
        for stream in 0..3_u16 {
            let source = SocketAddr::new(address("192.0.2.1:0").ip(), 40_000 + stream);
            flows.add_segment(
                &CapturedSegment {
                    source,
                    ..data(index)
                },
                at(u64::from(index)),
            );
        }
        // Another server's connection at the same time.
        flows.add_segment(
            &CapturedSegment {
                destination: address("198.51.100.2:22"),
                ..data(index)
            },
            at(u64::from(index)),
        );
    }
    let finished = flows.finish_flows(ExplainedTransfers::Largest(2));
    let sizes: Vec<usize> = finished
        .transfers
        .iter()
        .map(|transfer| transfer.flows.len())
        .collect();
    assert_eq!(sizes, [3, 1]);
    assert_eq!(finished.transfers[0].evidence.request.streams, 3);
}

#[test]
fn the_same_packets_within_a_tunnel_are_no_second_stream() {
    let mut flows = FlowTable::default();
    for index in 0..1_000_u32 {
        let at = Time::ZERO + Span::from_millis(index.into());
        for network in [0, 7] {
            flows.add_segment(
                &CapturedSegment {
                    network,
                    ..data(index)
                },
                at + Span::from_micros(u64::from(network) * 3),
            );
        }
    }
    let finished = flows.finish_flows(ExplainedTransfers::Largest(2));
    let sizes: Vec<usize> = finished
        .transfers
        .iter()
        .map(|transfer| transfer.flows.len())
        .collect();
    assert_eq!((finished.flows.len(), sizes), (2, vec![1, 1]));
}

/// The packets of one end of a transfer of 2000 segments in two seconds. Adds a handshake and
/// `count` segments with their acknowledgements, in a network for each direction. Segments have
/// numbers `shift` higher.
fn transfer_in(capture: &mut Capture, networks: [u32; 2], count: u32, shift: u32) {
    let mut pass = |from_client: bool, segment: CapturedSegment| {
        let network = networks[usize::from(!from_client)];
        let (sequence, acknowledgement) =
            (segment.sequence + shift, segment.acknowledgement + shift);
        capture.wait(Span::from_millis(1)).sent(
            from_client,
            CapturedSegment {
                network,
                sequence,
                acknowledgement,
                ..segment
            },
        );
    };
    pass(
        true,
        CapturedSegment {
            sequence: 999,
            flags: flags::SYN,
            options: syn_options(1),
            ..empty_segment()
        },
    );
    let syn_ack = flags::SYN | flags::ACK;
    let answer = CapturedSegment {
        sequence: 4_999,
        acknowledgement: 1_000,
        flags: syn_ack,
        options: syn_options(2),
        ..empty_segment()
    };
    pass(false, answer);
    for index in 0..count {
        pass(true, data(index));
        pass(false, ack(index + 1));
    }
}

#[test]
fn directions_that_pass_in_different_networks_are_one_connection() {
    for networks in [[7, 0], [0, 7], [7, 8]] {
        let mut capture = Capture::new();
        // Of others, of which it is known that there are several networks.
        let other = CapturedSegment {
            source: address("192.0.2.9:1"),
            destination: address("192.0.2.8:2"),
            ..data(0)
        };
        capture
            .add(CapturedSegment {
                network: 7,
                ..other
            })
            .add(CapturedSegment {
                network: 9,
                ..other
            });
        transfer_in(&mut capture, networks, 100, 0);
        let finished = capture.finish();
        assert_eq!(
            (finished.flows.len(), finished.unanswered),
            (3, 0),
            "{networks:?}"
        );
        let flow = finished
            .flows
            .iter()
            .find(|flow| flow.has_handshake)
            .unwrap();
        assert_eq!(flow.ends.each_ref().map(|end| end.packets), [101, 101]);
        assert_eq!(
            (flow.total_bytes().get(), flow.ends[0].missing_bytes.get()),
            (100 * u64::from(MSS), 0)
        );
    }
}

#[test]
fn directions_in_different_networks_are_found_from_the_middle_on() {
    for first_from_client in [true, false] {
        let mut capture = Capture::new();
        for index in 0..100 {
            let mut pass = |from_client: bool| {
                let segment = if from_client {
                    data(index)
                } else {
                    ack(index.saturating_sub(20))
                };
                capture.wait(Span::from_millis(1));
                capture.sent(
                    from_client,
                    CapturedSegment {
                        network: u32::from(from_client),
                        ..segment
                    },
                );
            };
            pass(first_from_client);
            pass(!first_from_client);
        }
        assert_eq!(capture.only().total_bytes().get(), 100 * u64::from(MSS));
    }
}

#[test]
fn hosts_with_the_same_addresses_in_other_networks_are_others() {
    let mut capture = Capture::new();
    for (network, count) in [(1, 30), (2, 50), (3, 70)] {
        transfer_in(&mut capture, [network, network], count, network << 28);
    }
    let sizes: Vec<u64> = capture
        .finish()
        .flows
        .iter()
        .map(|flow| flow.total_bytes().get() / u64::from(MSS))
        .collect();
    assert_eq!(sizes, [30, 50, 70]);
    // One direction of each of two, and what may be the other one of both.
    for index in 0..50 {
        for network in [1, 2] {
            capture.sent(
                true,
                CapturedSegment {
                    network,
                    ..data(index)
                },
            );
        }
        capture.sent(
            false,
            CapturedSegment {
                network: 3,
                ..ack(index)
            },
        );
    }
    assert_eq!(capture.finish().flows.len(), 3);
    // Numbers that do not fit.
    for index in 0..50 {
        capture.sent(
            true,
            CapturedSegment {
                network: 1,
                ..data(index)
            },
        );
        let elsewhere = ack(index).acknowledgement + (1 << 30);
        capture.sent(
            false,
            CapturedSegment {
                network: 2,
                acknowledgement: elsewhere,
                ..ack(index)
            },
        );
    }
    assert_eq!(capture.finish().flows.len(), 2);
}

#[test]
fn two_syns_that_cross_open_one_connection() {
    let mut capture = Capture::new();
    let syn = CapturedSegment {
        flags: flags::SYN,
        options: syn_options(1),
        ..empty_segment()
    };
    let crossing = [
        CapturedSegment {
            sequence: 999,
            ..syn
        },
        CapturedSegment {
            sequence: 4_999,
            ..syn
        },
    ];
    let answers = [(999, 5_000), (4_999, 1_000)].map(|(sequence, acknowledgement)| {
        let flags = flags::SYN | flags::ACK;
        CapturedSegment {
            sequence,
            acknowledgement,
            flags,
            options: syn_options(1),
            ..empty_segment()
        }
    });
    capture
        .sent(true, crossing[0])
        .sent(false, crossing[1])
        .wait(Span::from_secs(1))
        .sent(false, crossing[1]);
    capture
        .sent(true, answers[0])
        .sent(false, answers[1])
        .data(0)
        .data(1)
        .ack(2);
    let finished = capture.finish();
    assert_eq!((finished.flows.len(), finished.unanswered), (1, 0));
    let flow = &finished.flows[0];
    assert!(flow.has_handshake && flow.ends.iter().all(|end| end.window_scale == Some(1)));
    assert_eq!(
        (flow.total_bytes().get(), flow.ends[1].packets),
        (2 * u64::from(MSS), 4)
    );
}

#[test]
fn a_stale_acknowledgement_between_a_syn_and_its_answer_is_of_another_connection() {
    let mut capture = Capture::new();
    let syn = CapturedSegment {
        sequence: 999,
        flags: flags::SYN,
        options: syn_options(1),
        ..empty_segment()
    };
    let stale = CapturedSegment {
        sequence: 3_000_000_000,
        acknowledgement: 2_000_000_000,
        flags: flags::ACK,
        ..empty_segment()
    };
    let reset = CapturedSegment {
        sequence: 2_000_000_000,
        flags: flags::RST,
        ..empty_segment()
    };
    capture
        .sent(true, syn)
        .wait(RTT)
        .sent(false, stale)
        .sent(true, reset)
        .wait(Span::from_secs(1));
    capture.handshake(RTT).data(0).data(1).wait(RTT).ack(2);
    let finished = capture.finish();
    assert_eq!(
        (finished.flows.len(), finished.unanswered),
        (2, 0),
        "{finished:?}"
    );
    let flow = finished
        .flows
        .iter()
        .find(|flow| flow.has_handshake)
        .unwrap();
    assert_eq!(
        (
            flow.total_bytes().get(),
            flow.ends[0].syns,
            flow.ends[1].packets
        ),
        (2 * u64::from(MSS), 2, 2)
    );
    assert!(
        flow.ends
            .iter()
            .all(|end| end.missing_bytes == ByteCount::ZERO && end.unseen == ByteCount::ZERO)
    );
}

#[test]
fn a_syn_that_passes_behind_its_answer_opens_no_other_connection() {
    let mut capture = Capture::new();
    let answer = CapturedSegment {
        sequence: 4_999,
        acknowledgement: 1_000,
        flags: flags::SYN | flags::ACK,
        ..empty_segment()
    };
    capture.sent(
        false,
        CapturedSegment {
            options: syn_options(2),
            ..answer
        },
    );
    capture.sent(
        true,
        CapturedSegment {
            sequence: 999,
            flags: flags::SYN,
            options: syn_options(1),
            ..empty_segment()
        },
    );
    capture.data(0).ack(1);
    let finished = capture.finish();
    assert_eq!((finished.flows.len(), finished.unanswered), (1, 0));
    let ends = &finished.flows[0].ends;
    assert_eq!(
        ends.each_ref().map(|end| end.window_scale),
        [Some(1), Some(2)]
    );
    assert!(finished.flows[0].has_handshake, "its SYN is there");
    // The next one between the same ports is another.
    let again = CapturedSegment {
        sequence: 77_777,
        flags: flags::SYN,
        ..empty_segment()
    };
    assert_eq!(
        capture
            .sent(false, answer)
            .sent(true, again)
            .finish()
            .unanswered,
        1
    );
}

fn one_way(from_client: bool) -> FinishedFlows {
    let mut capture = Capture::new();
    let flags = flags::SYN | flags::ACK;
    if from_client {
        capture.sent(
            true,
            CapturedSegment {
                sequence: 999,
                flags: flags::SYN,
                options: syn_options(1),
                ..empty_segment()
            },
        );
    } else {
        let answer = CapturedSegment {
            sequence: 4_999,
            acknowledgement: 1_000,
            flags,
            options: syn_options(2),
            ..empty_segment()
        };
        capture.sent(false, answer);
    }
    for index in 0..2_000 {
        capture.sent(
            from_client,
            if from_client {
                data(index)
            } else {
                ack(index + 1)
            },
        );
        capture.wait(Span::from_millis(1));
    }
    capture.flows.finish_flows(ExplainedTransfers::Largest(1))
}

#[test]
fn of_data_alone_its_rate_is_known_and_neither_flight_nor_window() {
    let FinishedFlows {
        flows, transfers, ..
    } = one_way(true);
    assert_eq!(
        (flows[0].sender_index(), flows[0].ends[0].flight.get()),
        (0, 0)
    );
    let evidence = &transfers[0].evidence;
    assert_eq!(evidence.capture.unwrap().only, Some(At::Sender));
    let last = evidence.sender_samples.last().unwrap();
    assert_eq!(
        (last.bytes.get(), last.outstanding_bytes(), last.tcp.snd_wnd),
        (2_000 * u64::from(MSS), None, None)
    );
    let rate = evidence.steady.unwrap().rate.as_mbps();
    assert!((rate - f64::from(MSS) * 8e-3).abs() < 0.1, "{rate}");
}

#[test]
fn of_acknowledgements_alone_the_sender_is_the_end_without_a_packet() {
    let FinishedFlows {
        flows, transfers, ..
    } = one_way(false);
    let sender = flows[0].sender_index();
    assert_eq!(flows[0].ends[sender].address, "192.0.2.1:40000");
    assert_eq!(
        flows[0].ends[sender].missing_bytes.get(),
        2_000 * u64::from(MSS)
    );
    assert!((flows[0].ends[sender].rate.as_mbps() - f64::from(MSS) * 8e-3).abs() < 0.1);
    assert_eq!(
        transfers[0].evidence.capture.unwrap().only,
        Some(At::Receiver)
    );
}

#[test]
fn without_a_syn_jumbo_frames_are_segments() {
    const JUMBO: u32 = 8_948;
    let mut capture = Capture::new();
    for index in 0..100 {
        capture.sent(
            true,
            CapturedSegment {
                sequence: 1_000 + index * JUMBO,
                payload: JUMBO,
                ..data(0)
            },
        );
    }
    let FinishedFlows {
        flows, transfers, ..
    } = capture.flows.finish_flows(ExplainedTransfers::Largest(1));
    assert_eq!(flows[0].ends[0].segment_size.get(), u64::from(JUMBO));
    let last = transfers[0].evidence.sender_samples.last().unwrap();
    assert_eq!(
        (
            last.tcp.snd_mss.unwrap().get(),
            last.tcp.data_segs_out.unwrap().get()
        ),
        (u64::from(JUMBO), 100)
    );
}

#[test]
fn the_transfer_of_a_connection_is_explained_though_another_is_larger() {
    let explained = |server: &str| {
        let mut flows = FlowTable::default();
        for index in 0..1_000_u32 {
            let at = Time::ZERO + Span::from_millis(index.into());
            flows.add_segment(&data(index), at);
            if index.is_multiple_of(4) {
                flows.add_segment(
                    &CapturedSegment {
                        destination: address("198.51.100.2:22"),
                        ..data(index)
                    },
                    at,
                );
            }
        }
        let FinishedFlows {
            flows, transfers, ..
        } = flows.finish_flows(ExplainedTransfers::Between([
            address(server),
            address("192.0.2.1:40000"),
        ]));
        assert_eq!(transfers.len(), 1);
        let number = usize::try_from(transfers[0].flows[0]).unwrap();
        flows[number - 1].ends[1].address.clone()
    };
    assert_eq!(explained("198.51.100.2:22"), "198.51.100.2:22");
    assert_eq!(
        explained("198.51.100.2:23"),
        "198.51.100.2:5201",
        "the largest where there is no such one"
    );
}

#[test]
fn acknowledgements_of_what_arrived_twice_are_counted() {
    let mut capture = Capture::new();
    capture.handshake(RTT).data(0).data(1).data(2).data(3);
    let at = |index: u32| 1_000 + index * MSS;
    let with = |index: u32, blocks: &[(u32, u32)]| {
        let mut sack = [(0, 0); 4];
        sack[..blocks.len()].copy_from_slice(blocks);
        let options = SegmentOptions {
            sack,
            sack_blocks: blocks.len() as u8,
            ..SegmentOptions::default()
        };
        CapturedSegment {
            options,
            ..ack(index)
        }
    };
    // One that was acknowledged (RFC 2883, 4.1), one within a block above (4.2), and a block that
    // says neither.
    capture.sent(false, with(2, &[(at(0), at(1))]));
    capture.sent(false, with(2, &[(at(3), at(4)), (at(3), at(4))]));
    capture.sent(false, with(2, &[(at(3), at(4))]));
    let FinishedFlows { transfers, .. } =
        capture.flows.finish_flows(ExplainedTransfers::Largest(1));
    let last = transfers[0].evidence.sender_samples.last().unwrap();
    assert_eq!(last.tcp.dsack_dups.unwrap().get(), 2);
}

#[test]
fn a_syn_that_is_sent_again_is_counted_and_its_answer_measures_nothing() {
    let mut capture = Capture::new();
    let syn = CapturedSegment {
        sequence: 999,
        flags: flags::SYN,
        options: syn_options(1),
        ..empty_segment()
    };
    capture
        .sent(true, syn)
        .wait(Span::from_secs(1))
        .sent(true, syn)
        .wait(RTT);
    let answer = CapturedSegment {
        sequence: 4_999,
        acknowledgement: 1_000,
        flags: flags::SYN | flags::ACK,
        ..empty_segment()
    };
    capture.sent(false, answer);
    let flow = capture.only();
    assert_eq!((flow.ends[0].syns, flow.ends[0].packets), (2, 2));
    assert_eq!(flow.ends[0].rtt, None);
}

#[test]
fn a_handshake_of_which_a_part_was_sent_again_shows_no_idle_round_trip() {
    let syn = CapturedSegment {
        sequence: 999,
        flags: flags::SYN,
        options: syn_options(1),
        ..empty_segment()
    };
    let syn_ack = flags::SYN | flags::ACK;
    let answer = CapturedSegment {
        sequence: 4_999,
        acknowledgement: 1_000,
        flags: syn_ack,
        ..syn
    };
    let idle = |lost: &[CapturedSegment]| {
        let mut capture = Capture::new();
        for segment in lost {
            capture.sent(true, *segment).wait(Span::from_secs(1));
        }
        capture
            .sent(true, syn)
            .wait(RTT)
            .sent(false, answer)
            .data(0)
            .wait(RTT)
            .ack(1);
        evidence(&mut capture).idle_rtt
    };
    assert_eq!((idle(&[]), idle(&[syn])), (Some(RTT), None));
    let mut capture = Capture::new();
    capture
        .sent(true, syn)
        .sent(false, answer)
        .wait(Span::from_secs(1))
        .sent(false, answer)
        .wait(RTT);
    capture.data(0).ack(1);
    assert_eq!(
        evidence(&mut capture).idle_rtt,
        None,
        "the answer was lost behind the capture"
    );
}

/// Compares captures of which no times are known.
fn pairs(first: &[FlowReport], second: &[FlowReport]) -> Vec<FlowPair> {
    let without_times = |flows| FlowsWithTimes { flows, times: &[] };
    fullpipe_flow::match_flows(without_times(first), without_times(second))
}

/// A connection of three segments as it passes a place `hops` routers behind the client, which a
/// device before it may have changed.
fn passing(hops: u8, edit: impl Fn(CapturedSegment) -> CapturedSegment) -> Vec<FlowReport> {
    let mut capture = Capture::new();
    let syn = CapturedSegment {
        sequence: 999,
        flags: flags::SYN,
        options: syn_options(7),
        hops_left: 64 - hops,
        ..empty_segment()
    };
    let first_syn = edit(syn);
    let acknowledging = |segment: CapturedSegment| {
        let acknowledgement = segment
            .acknowledgement
            .wrapping_add(first_syn.sequence - syn.sequence);
        CapturedSegment {
            acknowledgement,
            ..segment
        }
    };
    let answer = CapturedSegment {
        sequence: 4_999,
        acknowledgement: 1_000,
        flags: flags::SYN | flags::ACK,
        options: syn_options(9),
        hops_left: 60 + hops,
        ..empty_segment()
    };
    capture
        .sent(true, first_syn)
        .sent(false, acknowledging(answer));
    for index in 0..3 {
        capture.add(between(true, edit(data(index))));
    }
    capture.sent(false, acknowledging(ack(3)));
    capture.finish().flows
}

#[test]
fn two_captures_show_what_was_lost_and_changed_between_them() {
    let near = passing(0, |segment| segment);
    let lowered = |segment: CapturedSegment| CapturedSegment {
        options: SegmentOptions {
            mss: segment.options.mss.map(|_| 1_380),
            window_scale: None,
            ..segment.options
        },
        sequence: segment.sequence.wrapping_add(7_000),
        ..segment
    };
    let mut far = passing(3, lowered);
    far[0].ends[0].bytes = near[0].ends[0]
        .bytes
        .saturating_sub(ByteCount::new(u64::from(MSS)));
    for (flows, index) in [([&near, &far], 0), ([&far, &near], 1)] {
        let found = pairs(flows[0], flows[1]);
        let [pair] = &found[..] else {
            panic!("one pair: {found:?}")
        };
        assert_eq!((pair.numbers, pair.nearer_to_first), ([1, 1], Some(index)));
        let [there, back] = &pair.directions;
        assert_eq!(
            (there.lost_segments, there.routers, back.routers),
            (1, Some(3), Some(3))
        );
        let fields: Vec<ChangedField> = there.changes.iter().map(|change| change.field).collect();
        assert_eq!(
            fields,
            [
                ChangedField::Mss,
                ChangedField::WindowScale,
                ChangedField::Sequence
            ]
        );
        assert_eq!(
            (
                there.changes[0].before.as_str(),
                there.changes[0].after.as_str()
            ),
            ("1460", "1380")
        );
        assert!(
            back.changes.is_empty() && back.lost_segments == 0,
            "{back:?}"
        );
        assert_eq!(window_edit(pair, 0), WindowEdit::ScaleStripped);
    }
}

#[test]
fn an_option_that_one_of_two_captures_cut_off_was_not_changed() {
    let near = passing(0, |segment| segment);
    let far = passing(3, |segment| CapturedSegment {
        options: SegmentOptions {
            cut: segment.options.mss.is_some(),
            window_scale: None,
            ..segment.options
        },
        ..segment
    });
    let found = pairs(&near, &far);
    assert!(
        found[0]
            .directions
            .iter()
            .all(|direction| direction.changes.is_empty()),
        "{found:?}"
    );
}

#[test]
fn a_device_that_lowers_the_segment_size_is_seen_in_both_syns() {
    let at = |hops, mss| {
        let edit = move |segment: CapturedSegment| CapturedSegment {
            options: SegmentOptions {
                mss: segment.options.mss.map(|_| mss),
                ..segment.options
            },
            ..segment
        };
        let flows = passing(hops, edit);
        let mut capture = Capture::new();
        capture.handshake(RTT).data(0).wait(RTT).ack(1);
        (
            flows,
            std::mem::take(&mut capture.flows)
                .finish_flows(ExplainedTransfers::Largest(1))
                .transfers,
        )
    };
    let clamped = |[near, far]: [(Vec<FlowReport>, Vec<TransferEvidence>); 2]| {
        let found = pairs(&near.0, &far.0);
        of_both(near.1, &far.1, &near.0, &found)[0]
            .evidence
            .capture
            .unwrap()
            .clamped_mss
    };
    assert_eq!(
        clamped([at(0, 1460), at(3, 1360)]),
        Some([1460, 1360].map(ByteCount::new))
    );
    assert_eq!(
        clamped([at(3, 1360), at(0, 1460)]),
        Some([1460, 1360].map(ByteCount::new))
    );
    assert_eq!(clamped([at(0, 1460), at(3, 1460)]), None);
}

#[test]
fn a_connection_is_known_behind_a_device_that_translates_its_address() {
    let near = passing(0, |segment| segment);
    let mut far = passing(1, |segment| segment);
    far[0].ends[0].address = "203.0.113.9:61000".to_owned();
    let found = pairs(&near, &far);
    let change = &found[0].directions[0].changes[0];
    assert_eq!(
        (change.field, change.after.as_str()),
        (ChangedField::Address, "203.0.113.9:61000")
    );
    assert_eq!(window_edit(&found[0], 0), WindowEdit::Nothing);
    // A device that renumbers leaves the number of the other end.
    far[0].ends[0].syn.as_mut().unwrap().sequence += 1;
    assert_eq!(pairs(&near, &far).len(), 1);
    far[0].ends[1].syn.as_mut().unwrap().sequence += 1;
    assert_eq!(pairs(&near, &far), []);
}

#[test]
fn data_that_never_came_shows_in_the_numbers_of_later_packets() {
    let mut capture = Capture::new();
    let bare = CapturedSegment {
        payload: 0,
        ..data(10)
    };
    capture
        .handshake(RTT)
        .data(0)
        .wait(RTT)
        .ack(1)
        .sent(true, bare);
    let finished = std::mem::take(&mut capture.flows).finish_flows(ExplainedTransfers::Largest(1));
    let unseen = finished.transfers[0].evidence.capture.unwrap().unseen;
    assert_eq!(unseen.get(), 9 * u64::from(MSS));
}

#[test]
fn a_hundred_thousand_connections_are_found_again_without_comparing_each_with_each() {
    const COUNT: u32 = 100_000;
    let model = passing(0, |segment| segment).remove(0);
    let flows = |address: fn(u32) -> String| -> Vec<FlowReport> {
        let numbered = |index: u32| {
            let mut flow = model.clone();
            flow.number = u64::from(index) + 1;
            flow.ends[0].address = address(index);
            for end in &mut flow.ends {
                end.syn.as_mut().unwrap().sequence += index;
            }
            flow
        };
        (0..COUNT).map(numbered).collect()
    };
    let first = flows(|index| format!("192.0.2.1:{index}"));
    let mut translated = flows(|index| format!("203.0.113.9:{index}"));
    translated.reverse();
    let found = pairs(&first, &translated);
    assert_eq!(found.len(), COUNT as usize);
    assert!(found.iter().all(|pair| pair.numbers[0] == pair.numbers[1]));
    // The same ports again and again.
    for flow in &mut translated {
        flow.ends[0].address.clone_from(&first[0].ends[0].address);
    }
    let found = pairs(&translated, &translated);
    assert_eq!(found.len(), COUNT as usize);
    assert!(found.iter().all(|pair| pair.numbers[0] == pair.numbers[1]));
}

#[test]
fn a_capture_of_one_direction_alone_is_found_again() {
    let whole = passing(0, |segment| segment);
    let only = |from_client: bool, with_syn: bool| {
        let mut capture = Capture::new();
        let syn = CapturedSegment {
            sequence: 999,
            flags: flags::SYN,
            options: syn_options(7),
            hops_left: 61,
            ..empty_segment()
        };
        let answer = CapturedSegment {
            sequence: 4_999,
            acknowledgement: 1_000,
            flags: flags::SYN | flags::ACK,
            hops_left: 63,
            ..empty_segment()
        };
        if with_syn {
            capture.sent(from_client, if from_client { syn } else { answer });
        }
        for index in 0..3 {
            capture.sent(
                from_client,
                if from_client {
                    data(index)
                } else {
                    ack(index + 1)
                },
            );
        }
        capture.finish().flows
    };
    for (from_client, with_syn) in [(true, true), (true, false), (false, true), (false, false)] {
        let part = only(from_client, with_syn);
        for (flows, nearer) in [([&whole, &part], 0), ([&part, &whole], 1)] {
            let found = pairs(flows[0], flows[1]);
            let [pair] = &found[..] else {
                panic!("one pair: {found:?}")
            };
            assert_eq!(
                pair.nearer_to_first,
                with_syn.then_some(nearer),
                "by the hop limits of the SYNs"
            );
            let is_turned = flows[0][0].ends[0].address.starts_with("198");
            let client = &pair.directions[usize::from(is_turned)];
            assert!(client.from.starts_with("192"), "{pair:?}");
            assert!(
                pair.directions
                    .iter()
                    .all(|direction| direction.lost_segments == 0),
                "{pair:?}"
            );
            let in_both = pair
                .directions
                .each_ref()
                .map(|direction| direction.in_both);
            assert_eq!(
                in_both,
                if from_client == is_turned {
                    [false, true]
                } else {
                    [true, false]
                }
            );
        }
    }
}

/// Two captures of one transfer of `count` segments, a segment every millisecond, whose
/// acknowledgements come one by one. It takes 10 ms there and 10 ms back, and 5 ms more there for
/// odd segments; `edit` is the work of a device between both, and the second clock is two seconds
/// ahead and gains 100 ppm. Both begin with segment `first`, behind a handshake if that is zero.
/// Every `lost`th segment does not arrive until it is sent again.
fn two_captures(
    range: [u32; 2],
    lost: u32,
    edit: impl Fn(CapturedSegment) -> CapturedSegment,
    back: impl Fn(CapturedSegment) -> CapturedSegment,
) -> [FinishedFlows; 2] {
    cut_captures(range, lost, [[0, u64::MAX]; 2], edit, back)
}

const MILLISECOND: u64 = 1_000_000;

/// Returns the same of captures that begin and end at `cuts`, in milliseconds of the path's own
/// clock.
fn cut_captures(
    [first, count]: [u32; 2],
    lost: u32,
    cuts: [[u64; 2]; 2],
    edit: impl Fn(CapturedSegment) -> CapturedSegment,
    back: impl Fn(CapturedSegment) -> CapturedSegment,
) -> [FinishedFlows; 2] {
    let mut events: [Vec<(u64, CapturedSegment)>; 2] = [Vec::new(), Vec::new()];
    let mut there = |at: u64, delay: u64, arrives: bool, segment: CapturedSegment| {
        let segment = between(true, segment);
        events[0].push((at, segment));
        events[1].extend(arrives.then(|| (at + delay, edit(segment))));
    };
    if first == 0 {
        there(
            0,
            10 * MILLISECOND,
            true,
            CapturedSegment {
                sequence: 999,
                flags: flags::SYN,
                ..empty_segment()
            },
        );
    }
    for index in first..count {
        let at = u64::from(index + 30) * MILLISECOND;
        let is_lost = lost > 0 && index % lost == lost - 1;
        let delay = 10 * MILLISECOND + u64::from(index % 2) * 5 * MILLISECOND;
        there(at, delay, !is_lost, data(index));
        if is_lost {
            there(at + 100 * MILLISECOND, delay, true, data(index));
        }
    }
    let mut here = |at: u64, segment: CapturedSegment| {
        let segment = between(false, segment);
        events[1].push((at, back(segment)));
        events[0].push((at + 10 * MILLISECOND, segment));
    };
    if first == 0 {
        let flags = flags::SYN | flags::ACK;
        here(
            10 * MILLISECOND,
            CapturedSegment {
                sequence: 4_999,
                acknowledgement: 1_000,
                flags,
                ..empty_segment()
            },
        );
    }
    for index in first..count {
        here(u64::from(index + 200) * MILLISECOND, ack(index + 1));
    }
    for (events, [from, to]) in events.iter_mut().zip(cuts) {
        events.retain(|(at, _)| (from..to).contains(&(at / MILLISECOND)));
        events.sort_by_key(|event| event.0);
    }
    let mut captures = events;
    for event in &mut captures[1] {
        event.0 = event.0 + event.0 / 10_000 + 2_000 * MILLISECOND;
    }
    captures.map(|events| {
        let mut capture = Capture::new();
        let begin = capture.at;
        for (at, segment) in events {
            capture.at = begin + Span::from_nanos(at);
            capture.add(segment);
        }
        capture.finish()
    })
}

fn compared([one, other]: &[FinishedFlows; 2]) -> FlowPair {
    fn with_times(finished: &FinishedFlows) -> FlowsWithTimes<'_> {
        FlowsWithTimes {
            flows: &finished.flows,
            times: &finished.times,
        }
    }
    let found = fullpipe_flow::match_flows(with_times(one), with_times(other));
    assert_eq!(found.len(), 1);
    found.into_iter().next().unwrap()
}

fn assert_clocks(pair: &FlowPair, nearer: usize) {
    assert_eq!(pair.nearer_to_first, Some(nearer), "{pair:?}");
    let (skew, offset) = (pair.clock_skew.unwrap(), pair.clock_offset.unwrap());
    assert_eq!((skew.faster, offset.ahead), (1 - nearer, 1 - nearer));
    assert!((skew.by.get() - 100e-6).abs() < 1e-7, "{skew:?}");
    assert!(
        (offset.by.as_millis_f64() - 2_000.0).abs() < 0.1,
        "{offset:?}"
    );
    assert!(
        (offset.rtt.as_millis_f64() - 20.0).abs() < 0.01,
        "{offset:?}"
    );
    let [there, back] = pair
        .directions
        .each_ref()
        .map(|direction| direction.delay.unwrap());
    assert!(
        (there.most.as_millis_f64() - 5.0).abs() < 0.01 && there.median <= there.p95,
        "{there:?}"
    );
    assert!(back.most.as_millis_f64() < 0.01, "{back:?}");
}

#[test]
fn two_captures_show_skew_offset_and_delays_of_their_clocks() {
    let captures = two_captures([0, 9_000], 0, |segment| segment, |segment| segment);
    assert_clocks(&compared(&captures), 0);
    // In the other order the first clock is the faster one, and it is the times that show who is
    // nearer.
    let [one, other] = captures;
    assert_clocks(&compared(&[other, one]), 1);
}

#[test]
fn a_capture_from_the_middle_on_and_one_behind_a_device_that_renumbers_show_the_same() {
    const SHIFT: u32 = 3_999_999_999;
    assert_clocks(
        &compared(&two_captures(
            [700, 9_000],
            0,
            |segment| segment,
            |segment| segment,
        )),
        0,
    );
    let translated = address("203.0.113.9:61000");
    let edit = |segment: CapturedSegment| CapturedSegment {
        source: translated,
        sequence: segment.sequence.wrapping_add(SHIFT),
        ..segment
    };
    let back = |segment: CapturedSegment| CapturedSegment {
        destination: translated,
        acknowledgement: segment.acknowledgement.wrapping_add(SHIFT),
        ..segment
    };
    let captures = two_captures([0, 9_000], 0, edit, back);
    let pair = compared(&captures);
    assert_clocks(&pair, 0);
    let fields: Vec<ChangedField> = pair.directions[0]
        .changes
        .iter()
        .map(|change| change.field)
        .collect();
    assert_eq!(fields, [ChangedField::Address, ChangedField::Sequence]);
}

#[test]
fn losses_are_placed_and_repairs_add_nothing_to_the_delay() {
    let pair = compared(&two_captures(
        [0, 9_000],
        100,
        |segment| segment,
        |segment| segment,
    ));
    assert_clocks(&pair, 0);
    let there = &pair.directions[0];
    assert_eq!(
        (there.lost_before, there.lost_segments, there.repeated),
        (0, 90, 0)
    );
    let course = there.loss_course.as_ref().unwrap();
    let lost: u64 = course.lost.iter().map(|bytes| bytes.get()).sum();
    assert_eq!(lost, 90 * u64::from(MSS));
    assert!(
        course.lost.iter().all(|bytes| bytes.get() > 0),
        "as often at any time: {course:?}"
    );
    // Behind the farther capture: both have all copies.
    let mut capture = Capture::new();
    capture.handshake(RTT).data(0).data(1).wait(RTT).data(1);
    let behind = capture.finish();
    let pair = compared(&[behind.clone(), behind]);
    assert_eq!(
        (
            pair.directions[0].lost_segments,
            pair.directions[0].repeated
        ),
        (0, 1)
    );
    // Before the nearer one: both have the repair alone.
    let mut capture = Capture::new();
    capture.handshake(RTT).data(0).data(2).wait(RTT).data(1);
    let before = capture.finish();
    let pair = compared(&[before.clone(), before]);
    assert_eq!(
        (
            pair.directions[0].lost_segments,
            pair.directions[0].lost_before
        ),
        (0, 1)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The bug: all that was under way when the second capture ended counted as lost.
    #[test]
    fn what_is_under_way_when_a_capture_begins_or_ends_is_not_lost(
        begins in [0_u64..400, 0_u64..400],
        ends in [700_u64..1_500, 700_u64..1_500],
        every in prop_oneof![Just(0_u32), 7_u32..60],
        first in prop_oneof![Just(0_u32), Just(5)],
        is_turned: bool,
    ) {
        let cuts = [[begins[0], ends[0]], [begins[1], ends[1]]];
        let [near, far] = cut_captures([first, 1_000], every, cuts, |segment| segment, |segment| segment);
        // A capture that begins with a repair counts as missing what passed before it.
        let missing: u64 = far.flows[0].ends.iter().map(|end| end.missing_bytes.get() / u64::from(MSS)).sum();
        let pair = if is_turned { compared(&[far, near]) } else { compared(&[near, far]) };
        let there = pair.directions.iter().find(|direction| direction.from.starts_with("192")).unwrap();
        let sent_at = |index: u32| u64::from(index + 30);
        let is_lost = |index: u32| every > 0 && index % every == every - 1;
        let between = |from: u64, to: u64| {
            (first..1_000).filter(|index| is_lost(*index) && (from..to).contains(&sent_at(*index))).count() as u64
        };
        let truth = between(begins[0], ends[0]);
        prop_assert!(there.lost_segments <= truth, "{} of {truth}: {there:?}", there.lost_segments);
        // A repair that came takes 115 ms. At the ends of both captures a position more is not
        // known.
        let sure = between(begins[0].max(begins[1]) + 40, ends[0].min(ends[1]).saturating_sub(160));
        prop_assert!(there.lost_segments + missing >= sure, "{} of {sure}: {there:?}", there.lost_segments);
        let course: u64 = there.loss_course.iter().flat_map(|course| &course.lost).map(|bytes| bytes.get()).sum();
        prop_assert!(course >= there.lost_bytes.get());
        prop_assert!(there.lost.get() <= 1.0);
        prop_assert!(pair.directions.iter().all(|other| other.lost_bytes <= there.lost_bytes));
    }
}

#[test]
fn the_second_capture_explains_the_connection_of_the_first() {
    let transfers = |ports: [u16; 2], explained: ExplainedTransfers<'_>| {
        let mut flows = FlowTable::default();
        for (port, count) in ports.into_iter().zip([100, 2_000]) {
            for index in 0..count {
                let source = SocketAddr::new(address("192.0.2.1:0").ip(), port);
                flows.add_segment(
                    &CapturedSegment {
                        source,
                        ..data(index)
                    },
                    Time::ZERO + Span::from_millis(index.into()),
                );
            }
        }
        flows.finish_flows(explained)
    };
    let first = transfers([40_001, 40_000], ExplainedTransfers::Flow(1));
    let wanted = &first.flows[0];
    // In the second it is the larger one, and comes last.
    let second = transfers([40_000, 40_001], ExplainedTransfers::Same(wanted));
    let number = second.transfers[0].flows[0];
    assert_eq!(
        second.flows[usize::try_from(number).unwrap() - 1].ends[0].address,
        wanted.ends[0].address
    );
    let mut other = wanted.clone();
    other.ends[0].address = "192.0.2.9:1".to_owned();
    assert_eq!(
        transfers([40_000, 40_001], ExplainedTransfers::Same(&other)).transfers,
        []
    );
}
