use super::*;
use crate::test_segment::empty_segment;

use fullpipe_units::Span;
use fullpipe_wire::SegmentOptions;

const MSS: u32 = 1000;

/// A capture in which a packet passes each millisecond.
struct Capture {
    flows: FlowTable,
    at: Time,
}

impl Capture {
    fn new(limits: MemoryLimits) -> Self {
        Self {
            flows: FlowTable {
                limits,
                ..FlowTable::default()
            },
            at: Time::ZERO,
        }
    }

    /// Adds packet `index` of full segments of a connection.
    fn data(&mut self, connection: u16, index: u32) {
        self.at = self.at + Span::from_millis(1);
        let segment = self.segment(connection, index);
        self.flows.add_segment(&segment, self.at);
        self.flows.follow_queued();
    }

    /// Adds a SYN that gets no answer.
    fn syn(&mut self, connection: u16) {
        let segment = self.segment(connection, 0);
        self.flows.add_segment(
            &CapturedSegment {
                flags: flags::SYN,
                payload: 0,
                ..segment
            },
            self.at,
        );
        self.flows.follow_queued();
    }

    fn segment(&self, connection: u16, index: u32) -> CapturedSegment {
        let now = (self.at.as_nanos() / 1_000_000) as u32;
        CapturedSegment {
            source: SocketAddr::from(([192, 0, 2, 1], connection)),
            sequence: index * MSS,
            acknowledgement: 1,
            flags: flags::ACK,
            payload: MSS,
            options: SegmentOptions {
                timestamps: Some((now, 1)),
                ..SegmentOptions::default()
            },
            identification: Some(index as u16 + 1),
            ..empty_segment()
        }
    }
}

#[test]
fn connections_beyond_the_limit_are_finished_when_they_are_silent_and_the_smallest_are_left_out() {
    let mut capture = Capture::new(MemoryLimits {
        followed: 40,
        finished: 100,
        ..MemoryLimits::default()
    });
    (0..30).for_each(|index| capture.data(1, index));
    for connection in 2..502 {
        let packets = if connection % 5 == 0 { 2 } else { 1 };
        (0..packets).for_each(|index| capture.data(connection, index));
        assert!(capture.flows.followed.len() <= 40 && capture.flows.finished.len() <= 100);
    }
    let FinishedFlows {
        flows,
        transfers,
        left_out,
        ..
    } = capture.flows.finish_flows(ExplainedTransfers::Largest(1));
    assert_eq!(flows.len() as u64 + left_out.missing, 501);
    assert!(
        left_out.missing >= 300 && left_out.finished_early >= 400,
        "{left_out:?}"
    );
    assert!(
        flows
            .iter()
            .zip(1..)
            .all(|(flow, number)| flow.number == number)
    );
    assert!(flows.windows(2).all(|pair| pair[0].begin <= pair[1].begin));
    assert_eq!(
        transfers[0].flows,
        [1],
        "the largest stays, though it is silent"
    );
    assert_eq!(flows[0].ends[0].unique_bytes.get(), 30_000);
    let larger = flows
        .iter()
        .filter(|flow| flow.total_bytes().get() == 2_000)
        .count();
    assert!(
        larger * 2 > flows.len(),
        "a fifth of all: {larger} of {}",
        flows.len()
    );
}

#[test]
fn parts_find_what_the_whole_finds_whoever_waits() {
    const PARTS: usize = 3;
    let capture = Capture::new(MemoryLimits::default());
    let segments: Vec<(CapturedSegment, Time)> = (0..6_000_u32)
        .map(|number| {
            let connection = 1 + (number * 41 % 97) as u16;
            // Some are retransmitted, some go back, and some SYNs get no answer.
            let segment = capture.segment(
                connection,
                number / 97 - number / 97 % 5 * u32::from(number % 7 == 0),
            );
            let [source, destination] = [segment.source, segment.destination];
            let segment = match number % 11 {
                0 => CapturedSegment {
                    source: destination,
                    destination: source,
                    payload: 100,
                    ..segment
                },
                1 if number > 5_000 => CapturedSegment {
                    flags: flags::SYN,
                    payload: 0,
                    ..segment
                },
                _ => segment,
            };
            // Several packets have the same time.
            (segment, Time::from_nanos(u64::from(number / 4) * 1_000_000))
        })
        .collect();
    let mut whole = FlowTable::default();
    let mut alone = FlowTable::without_packet_times();
    let mut one_by_one = FlowTable::default();
    let mut beginning = FlowTable::default();
    for (segment, at) in &segments {
        whole.add_segment(segment, *at);
        alone.add_segment(segment, *at);
        one_by_one.add_segment(segment, *at);
        one_by_one.follow_queued();
    }
    let (first, rest) = segments.split_at(1_000);
    for (segment, at) in first {
        beginning.add_segment(segment, *at);
    }
    let mut parts = beginning.split_parts(PARTS);
    for (number, (segment, at)) in (1_000..).zip(rest) {
        let segment = NumberedSegment::new(number, segment, *at);
        parts[segment.part_index(PARTS)].add_all(&[segment]);
    }
    assert!(
        parts.iter().all(|part| part.flow_count() > 10),
        "each has its share"
    );
    let joined = SettledFlows::finish_parts(
        parts
            .into_iter()
            .rev()
            .map(FlowTable::settle_flows)
            .collect(),
        ExplainedTransfers::Largest(3),
    );
    let whole = whole.finish_flows(ExplainedTransfers::Largest(3));
    assert!(
        whole.flows.len() >= 97 && whole.unanswered > 0,
        "{}",
        whole.flows.len()
    );
    let others = [
        one_by_one.finish_flows(ExplainedTransfers::Largest(3)),
        joined,
    ];
    let alone = alone.finish_flows(ExplainedTransfers::Largest(3));
    assert!(
        alone.times.is_empty()
            && others
                .iter()
                .all(|other| other.times.len() == whole.flows.len())
    );
    for other in others.into_iter().chain([alone]) {
        assert_eq!(other.flows, whole.flows);
        assert_eq!(other.transfers, whole.transfers);
        assert_eq!(
            (other.unanswered, other.left_out),
            (whole.unanswered, whole.left_out)
        );
    }
}

#[test]
fn a_socket_connected_to_itself_opens_its_connection_and_sends_all_of_it() {
    let mut capture = Capture::new(MemoryLimits::default());
    let segment = capture.segment(1, 7);
    let itself = CapturedSegment {
        destination: segment.source,
        payload: 0,
        ..segment
    };
    let syn = CapturedSegment {
        flags: flags::SYN,
        ..itself
    };
    let answer = CapturedSegment {
        flags: flags::SYN | flags::ACK,
        acknowledgement: itself.sequence + 1,
        ..itself
    };
    let data = CapturedSegment {
        sequence: itself.sequence + 1,
        payload: MSS,
        ..itself
    };
    for segment in [syn, answer, data] {
        capture.flows.add_segment(&segment, capture.at);
    }
    let FinishedFlows {
        flows, unanswered, ..
    } = capture.flows.finish_flows(ExplainedTransfers::Largest(1));
    assert_eq!(
        (flows.len(), unanswered, flows[0].has_handshake),
        (1, 0, true)
    );
    let [first, second] = &flows[0].ends;
    assert_eq!(
        (first.packets + first.duplicates, second.packets),
        (3, 0),
        "{first:?}"
    );
    assert_eq!(
        (first.address.as_str(), &first.address),
        ("192.0.2.1:1", &second.address)
    );
}

#[test]
fn a_flood_of_syns_takes_no_more_room_than_is_allowed() {
    let attempts = 7 << 6;
    let mut capture = Capture::new(MemoryLimits {
        attempts,
        ..MemoryLimits::default()
    });
    for connection in 0..5_000 {
        capture.at = capture.at + Span::from_micros(1);
        capture.syn(connection);
        assert!(
            capture.flows.attempts.capacity() <= attempts,
            "after {connection}"
        );
    }
    assert_eq!(
        capture
            .flows
            .finish_flows(ExplainedTransfers::Largest(1))
            .unanswered,
        5_000
    );
}

#[test]
fn a_connection_takes_less_than_two_kilobytes_until_it_has_many_packets() {
    let mut capture = Capture::new(MemoryLimits::default());
    capture.syn(1);
    let answer = CapturedSegment {
        acknowledgement: 1,
        payload: 0,
        ..capture.segment(1, 0)
    };
    let answer = CapturedSegment {
        source: answer.destination,
        destination: answer.source,
        ..answer
    };
    capture.flows.add_segment(&answer, capture.at);
    capture.flows.follow_queued();
    (0..29).for_each(|index| capture.data(1, index));
    let flow = &capture.flows.followed[0];
    let taken = size_of_val(flow) + flow.waiting_packets().heap_bytes();
    assert!(taken < 2 << 10 && flow.flow_state().is_none(), "{taken}");
    capture.data(1, 29);
    let flow = &capture.flows.followed[0];
    assert!(flow.waiting_packets().len() == 0 && flow.flow_state().is_some());
}

#[test]
fn small_connections_are_thinned_out_and_the_largest_keeps_its_course() {
    let room = 1 << 20;
    let mut capture = Capture::new(MemoryLimits {
        room,
        ..MemoryLimits::default()
    });
    for round in 0..400 {
        (0..8).for_each(|index| capture.data(1, round * 8 + index));
        (2..32).for_each(|connection| capture.data(connection, round));
        assert!(
            capture
                .flows
                .followed
                .iter()
                .map(FollowedFlow::heap_bytes)
                .sum::<usize>()
                <= room
        );
    }
    let FinishedFlows {
        flows,
        transfers,
        left_out,
        ..
    } = capture.flows.finish_flows(ExplainedTransfers::Largest(1));
    assert_eq!(
        (flows.len(), left_out.missing, left_out.finished_early),
        (31, 0, 0)
    );
    assert!((20..=30).contains(&left_out.thinned), "{left_out:?}");
    assert_eq!(
        flows[1].ends[0].unique_bytes.get(),
        400_000,
        "its data is counted all the same"
    );
    // All are one transfer, the largest connection first.
    let samples = &transfers[0].evidence.sender_samples;
    let of = |stream: u16| {
        samples
            .iter()
            .filter(|sample| sample.stream == stream)
            .count()
    };
    assert!(of(0) > 50 && of(0) > 4 * of(1), "{} and {}", of(0), of(1));
}
