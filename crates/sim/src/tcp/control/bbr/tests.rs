use super::*;
use crate::tcp::rate::DeliveryRate;

const RTT: u64 = 100_000;

/// A pipe of `bdp` segments that acknowledges what is sent one round trip later, a window at a
/// time.
struct Pipe {
    bbr: Bbr,
    delivery: DeliveryRate,
    now: BbrSituation,
    bdp: u64,
}

impl Pipe {
    fn new(bdp: u64) -> Self {
        let now = BbrSituation {
            micros: 1_000_000,
            ticks: 250,
            departs_in: 0,
            delivered: 0,
            delivered_at: 1_000_000,
            lost: 0,
            in_flight: 0,
            cwnd: 10,
            outcome: RecoveryPhase::Fine,
            smoothed_rtt: RTT,
        };
        Self {
            bbr: Bbr::new(250, 1448, u64::MAX, 1, RTT, &now),
            delivery: DeliveryRate::default(),
            now,
            bdp,
        }
    }

    /// A round trip in which at most a pipe's worth is delivered, and the queue adds to its
    /// time.
    fn round(&mut self, losses: u64) {
        let cwnd = self.now.cwnd;
        let queue = cwnd.saturating_sub(self.bdp);
        let rtt = RTT + queue * RTT / self.bdp;
        let sent = self.delivery.record_sent_segment(self.now.micros, true);
        self.now.micros += rtt;
        self.now.ticks = self.now.micros / 4_000;
        self.delivery.delivered += cwnd;
        let mut sample = RateSample::new(cwnd);
        (sample.acked, sample.losses, sample.rtt) = (cwnd, losses, Some(rtt));
        let mut first = 0;
        sample.record_delivery(&mut first, sent, self.delivery.delivered);
        self.delivery
            .finish_sample(&mut sample, self.now.micros, RTT);
        self.now.delivered = self.delivery.delivered;
        self.now.delivered_at = self.now.micros;
        self.now.lost += losses;
        self.now.in_flight = 0;
        self.now.cwnd = self.bbr.process_ack(&sample, &self.now).cwnd;
    }
}

#[test]
fn startup_finds_the_bandwidth_and_ends() {
    let mut pipe = Pipe::new(1_000);
    for _ in 0..20 {
        pipe.round(0);
    }
    assert_eq!(pipe.bbr.mode, BbrMode::ProbeBandwidth);
    let bandwidth = (pipe.bbr.max_bandwidth() * RTT) >> BANDWIDTH_SCALE;
    assert!((998..=1_001).contains(&bandwidth), "{bandwidth}");
    // Twice the product and its allowances.
    assert!((2_000..3_100).contains(&pipe.now.cwnd), "{}", pipe.now.cwnd);
}

#[test]
fn after_ten_seconds_the_round_trip_is_probed_with_four_segments() {
    let mut pipe = Pipe::new(1_000);
    let mut least = u64::MAX;
    for _ in 0..200 {
        pipe.round(0);
        if pipe.now.ticks > 3_000 {
            least = least.min(pipe.now.cwnd);
        }
    }
    assert_eq!(least, 4);
    assert_eq!(pipe.bbr.mode, BbrMode::ProbeBandwidth);
    assert!(pipe.now.cwnd > 1_000);
}

#[test]
fn many_losses_at_an_even_rate_are_a_policer() {
    let mut pipe = Pipe::new(1_000);
    for _ in 0..60 {
        pipe.round(pipe.now.cwnd / 3);
    }
    assert!(pipe.bbr.long.in_use);
}
