//! Both ends, with a link between them that delays, sends at a rate, holds a queue and loses what a
//! test says.

use std::collections::VecDeque;

use fullpipe_sim::tcp::{
    AckSegment, AutotuningRules, CongestionControl, HostClock, Receiver, ReceiverSetup,
    SegmentBurst, Sender, SenderSetup, TimestampValue,
};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};

const MSS: u64 = 1448;

/// Segments one by one over a link of a rate, with a queue of `queue` segments.
struct Link {
    sender: Sender,
    receiver: Receiver,
    data: VecDeque<(Time, SegmentBurst)>,
    acks: VecDeque<(Time, AckSegment)>,
    free_at: Time,
    segment: Span,
    half: Span,
    queue: u64,
    /// Numbers of the data packets that are lost, counted from 0 in the order in which they are
    /// sent.
    lost: Vec<u64>,
    packets: u64,
    dropped: u64,
    /// True if the program reads what arrives.
    reads: bool,
    /// The echo that acknowledgements have in place of the receiver's.
    forged: Option<TimestampValue>,
    /// The window that they have in place of the receiver's.
    window: Option<ByteCount>,
    now: Time,
}

impl Link {
    fn new(control: CongestionControl, mbps: u64, rtt: u64, queue: u64) -> Self {
        Self::stamped(control, mbps, rtt, queue, true)
    }

    fn stamped(
        control: CongestionControl,
        mbps: u64,
        rtt: u64,
        queue: u64,
        timestamps: bool,
    ) -> Self {
        let clock = HostClock::new(250, Span::from_secs(1000));
        let (half, handshake) = (Span::from_micros(500 * rtt), Span::from_millis(rtt));
        let buffer = ByteCount::from_mib(256);
        let setup = SenderSetup {
            clock,
            mss: ByteCount::new(MSS),
            longest_train: SegCount::new(45),
            control,
            max_pacing_rate: None,
            buffer: (ByteCount::from_kib(16), buffer),
            handshake,
            first_window: ByteCount::new(65_160),
            window_scale: Some(13),
            timestamps,
            echo: clock.stamp_before(half),
            seed: 1,
        };
        Self {
            sender: Sender::new(&setup, Time::ZERO),
            receiver: receiver(buffer, 13, handshake),
            data: VecDeque::new(),
            acks: VecDeque::new(),
            free_at: Time::ZERO,
            segment: BitRate::from_mbps(mbps).time_for(ByteCount::new(1538)),
            half,
            queue,
            lost: Vec::new(),
            packets: 0,
            dropped: 0,
            reads: true,
            forged: None,
            window: None,
            now: Time::ZERO,
        }
    }

    fn run(&mut self, until: Time) {
        loop {
            self.sender.write(self.now, ByteCount::from_mib(64));
            while let Some(burst) = self.sender.next_burst(self.now) {
                self.offer(burst);
            }
            let Some(next) = self.next_event().filter(|next| *next < until) else {
                return;
            };
            assert!(next >= self.now, "time goes back");
            self.now = next;
            while let Some((_, burst)) = self.data.pop_front_if(|(at, _)| *at <= next) {
                let ack = self.receiver.receive_burst(next, &burst);
                self.send_ack(ack);
                if self.reads {
                    let ack = self.receiver.read(next, ByteCount::new(u64::MAX));
                    self.send_ack(ack);
                }
            }
            while let Some((_, ack)) = self.acks.pop_front_if(|(at, _)| *at <= next) {
                self.sender.receive_ack(next, &ack);
                while let Some(burst) = self.sender.next_burst(self.now) {
                    self.offer(burst);
                }
            }
            let ack = self.receiver.wake_timer(next);
            self.send_ack(ack);
            self.sender.wake_timer(next);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let deadlines = [
            self.data.front().map(|(at, _)| *at),
            self.acks.front().map(|(at, _)| *at),
            self.sender.next_deadline(),
            self.receiver.next_deadline(),
        ];
        deadlines
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.max(self.now))
    }

    fn offer(&mut self, burst: SegmentBurst) {
        let end = burst.first + burst.segments.get();
        for number in burst.first..end {
            let packet = self.packets;
            self.packets += 1;
            let waiting =
                self.free_at.duration_since(self.now).as_nanos() / self.segment.as_nanos();
            if waiting > self.queue || self.lost.contains(&packet) {
                self.dropped += 1;
                continue;
            }
            self.free_at = self.free_at.max(self.now) + self.segment;
            let pushes = burst.pushes && number + 1 == end;
            let segment = SegmentBurst {
                first: number,
                segments: SegCount::new(1),
                pushes,
                ..burst
            };
            self.data.push_back((self.free_at + self.half, segment));
        }
    }

    fn send_ack(&mut self, ack: Option<AckSegment>) {
        let seen = |ack: AckSegment| {
            let (echo, window) = (
                self.forged.unwrap_or(ack.echo),
                self.window.unwrap_or(ack.window),
            );
            AckSegment {
                echo,
                window,
                ..ack
            }
        };
        self.acks
            .extend(ack.map(|ack| (self.now + self.half, seen(ack))));
    }

    fn mbps(&self) -> f64 {
        BitRate::from_bytes_in(
            self.receiver.bytes_read(),
            self.now.duration_since(Time::ZERO),
        )
        .as_mbps()
    }
}

/// A receiver whose buffer grows to `max_buffer`, and whose windows have a shift of `scale`.
fn receiver(max_buffer: ByteCount, scale: u8, handshake: Span) -> Receiver {
    let setup = ReceiverSetup {
        clock: HostClock::new(250, Span::from_secs(1000)),
        mss: ByteCount::new(MSS),
        buffer: ByteCount::from_kib(128),
        max_buffer,
        autotuning: AutotuningRules::Growing,
        share: [128, 160],
        window_scale: Some(scale),
        first_window: ByteCount::new(65_160),
        max_blocks: 3,
        timestamps: true,
        echo: HostClock::new(250, Span::from_secs(1000)).stamp_before(Span::ZERO),
    };
    Receiver::new(&setup, handshake, Time::ZERO)
}

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

#[test]
fn every_control_fills_a_link_with_a_queue_of_its_product() {
    for control in CongestionControl::ALL {
        let mut link = Link::new(control, 100, 20, 162);
        link.run(seconds(10));
        let payload = 100.0 * 1448.0 / 1538.0;
        assert!(
            link.mbps() > 0.97 * payload,
            "{control}: {} Mbit/s",
            link.mbps()
        );
        assert_eq!(
            link.sender.retransmitted_segments().get(),
            link.dropped,
            "{control}"
        );
        assert_eq!(
            link.sender.tcp_info(link.now).total_rto,
            Some(SegCount::ZERO),
            "{control}"
        );
    }
}

#[test]
fn a_lost_segment_is_sent_once_more_a_round_trip_later() {
    let mut link = Link::new(CongestionControl::Cubic, 100, 20, 100_000);
    link.lost = vec![300];
    link.run(seconds(1));
    let info = link.sender.tcp_info(link.now);
    assert_eq!(
        (link.sender.retransmitted_segments().get(), info.total_rto),
        (1, Some(SegCount::ZERO))
    );
    assert!(info.ssthresh.is_some());
    assert_eq!(
        link.receiver.tcp_info(link.now).data_segs_in.unwrap().get(),
        link.packets - 1 - link.data.len() as u64
    );
}

#[test]
fn the_end_of_a_flight_that_is_lost_is_probed_for_and_not_waited_for() {
    let mut link = Link::new(CongestionControl::Cubic, 100, 20, 100_000);
    // Everything that is outstanding at the end, but for its first segments.
    link.sender.write(Time::ZERO, ByteCount::new(30 * MSS));
    link.sender.finish_stream();
    link.lost = (8..10).collect();
    while let Some(burst) = link.sender.next_burst(link.now) {
        link.offer(burst);
    }
    for _ in 0..300 {
        let Some(next) = link.next_event() else { break };
        link.now = next;
        while let Some((_, burst)) = link.data.pop_front_if(|(at, _)| *at <= next) {
            let ack = link.receiver.receive_burst(next, &burst);
            link.send_ack(ack);
        }
        while let Some((_, ack)) = link.acks.pop_front_if(|(at, _)| *at <= next) {
            link.sender.receive_ack(next, &ack);
        }
        let ack = link.receiver.wake_timer(next);
        link.send_ack(ack);
        link.sender.wake_timer(next);
        while let Some(burst) = link.sender.next_burst(next) {
            link.offer(burst);
        }
    }
    assert!(link.sender.is_done());
    assert_eq!(
        link.sender.tcp_info(link.now).total_rto,
        Some(SegCount::ZERO)
    );
    assert!(
        link.now < Time::ZERO + Span::from_millis(200),
        "{:?}",
        link.now
    );
}

#[test]
fn without_timestamps_no_echo_counts() {
    let run = |timestamps: bool, forged: Option<TimestampValue>| {
        let mut link = Link::stamped(CongestionControl::Cubic, 100, 40, 100, timestamps);
        (link.lost, link.forged) = ((300..340).chain(500..560).chain(900..901).collect(), forged);
        link.run(seconds(4));
        (link.sender.tcp_info(link.now), link.packets)
    };
    let oldest = Some(TimestampValue::default());
    assert_eq!(run(false, None), run(false, oldest));
    assert_ne!(run(true, None), run(true, oldest), "with them they do");
}

#[test]
fn a_window_that_becomes_smaller_holds_back_at_once() {
    let mut link = Link::new(CongestionControl::Cubic, 100, 20, 100_000);
    link.window = Some(ByteCount::new(5 * MSS));
    link.run(Time::ZERO + Span::from_millis(100));
    // The first window, and what the smaller one allows in each of four round trips.
    assert!((25..=30).contains(&link.packets), "{}", link.packets);
}

#[test]
fn a_connection_gives_up_after_15_timeouts() {
    let mut link = Link::new(CongestionControl::Cubic, 100, 20, 100_000);
    link.lost = (500..10_000).collect();
    link.run(seconds(900));
    assert!(!link.sender.is_dead());
    link.run(seconds(2_000));
    assert!(link.sender.is_dead());
    // 924.6 s after the first segment was retransmitted, and then the next timeout.
    assert!(
        (924.0..1_050.0).contains(&link.now.duration_since(Time::ZERO).as_secs_f64()),
        "{:?}",
        link.now
    );
    assert_eq!(
        (
            link.sender.next_deadline(),
            link.sender.next_burst(link.now)
        ),
        (None, None)
    );
}

#[test]
fn a_program_that_reads_nothing_closes_the_window_and_is_probed() {
    let mut link = Link::new(CongestionControl::Cubic, 100, 20, 100_000);
    link.receiver = receiver(ByteCount::from_kib(128), 1, Span::from_millis(20));
    link.reads = false;
    link.run(seconds(5));
    let info = link.sender.tcp_info(link.now);
    assert_eq!(info.unacked, Some(SegCount::ZERO));
    let before = link.sender.acknowledged_segments();
    assert!((20..120).contains(&before), "{before}");
    assert!(info.rwnd_limited.unwrap() + Span::from_millis(100) > info.busy.unwrap());
    link.reads = true;
    let ack = link.receiver.read(link.now, ByteCount::new(u64::MAX));
    link.send_ack(ack);
    link.run(seconds(6));
    assert!(link.sender.acknowledged_segments() > before + 100);
}

/// Acknowledgements of four segments that arrive `pause` milliseconds behind others, over a path
/// whose handshake took `rtt`.
fn acks_after(pause: u64, rtt: u64) -> usize {
    let mut receiver = receiver(ByteCount::from_kib(128), 7, Span::from_millis(rtt));
    let mut arrive = |first: u64, millis: u64| {
        let now = Time::ZERO + Span::from_millis(millis);
        let stamp = HostClock::new(250, Span::from_secs(1000)).stamp_before(Span::ZERO);
        let segments = SegCount::new(1);
        let burst = SegmentBurst {
            first,
            segments,
            stamp,
            echo: stamp,
            pushes: false,
            is_probe: false,
        };
        receiver.wake_timer(now);
        let answer = receiver.receive_burst(now, &burst);
        let after_read = receiver.read(now, ByteCount::new(u64::MAX));
        usize::from(answer.is_some()) + usize::from(after_read.is_some())
    };
    for first in 0..60 {
        arrive(first, 10 * first);
    }
    (60..64)
        .map(|first| arrive(first, 10 * first + pause))
        .sum()
}

#[test]
fn a_receiver_acknowledges_each_segment_after_a_pause_longer_than_its_timeout() {
    // The timeout of 20 ms is 220 ms, that of 200 ms is 600 ms.
    let counts =
        [(100, 20), (300, 20), (300, 200), (700, 200)].map(|(pause, rtt)| acks_after(pause, rtt));
    assert_eq!(counts, [2, 4, 2, 4]);
}

#[test]
fn a_connection_that_changes_to_bbr_fills_a_path_that_loses_by_chance() {
    let mut link = Link::new(CongestionControl::Cubic, 100, 40, 400);
    link.lost = (500..100_000).step_by(997).collect();
    link.run(seconds(5));
    let before = link.sender.acknowledged_segments();
    link.sender
        .use_congestion(link.now, CongestionControl::Bbr, 1);
    link.run(seconds(10));
    let after = link.sender.acknowledged_segments() - before;
    assert!(after > 2 * before, "{before} segments, then {after}");
    let carried = BitRate::from_bytes_in(ByteCount::new(after * MSS), Span::from_secs(5)).as_mbps();
    assert!(carried > 80.0, "{carried} Mbit/s");
}

#[test]
fn extra_calls_change_nothing() {
    let run = |extra: bool| {
        let mut link = Link::new(CongestionControl::Bbr, 20, 40, 50);
        link.lost = vec![50, 51, 52, 400, 401, 900];
        for millis in 1..3_000 {
            link.run(Time::ZERO + Span::from_millis(millis));
            if extra {
                link.now = Time::ZERO + Span::from_millis(millis);
                link.sender.wake_timer(link.now);
                assert_eq!(link.sender.next_burst(link.now), None);
                assert_eq!(link.receiver.wake_timer(link.now), None);
            }
        }
        (
            link.packets,
            link.sender.retransmitted_segments(),
            link.receiver.bytes_read(),
        )
    };
    assert_eq!(run(false), run(true));
}
