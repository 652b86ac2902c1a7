//! Transfers to simulate, whose hosts never limit them.

use std::time::Instant;

use fullpipe_record::{HostSettings, Path, PathDirection, Request};
use fullpipe_sim::{Plan, Simulation};
use fullpipe_units::{BitRate, ByteCount, Span, Time};

/// CUBIC over `mbps` × `rtt` milliseconds with a queue of a bandwidth-delay product, between hosts whose buffers never
/// limit.
pub(crate) fn plan(mbps: u64, rtt: u64, seconds: u64, change: impl FnOnce(&mut Plan)) -> Plan {
    let (rate, rtt) = (BitRate::from_mbps(mbps), Span::from_millis(rtt));
    let direction = PathDirection { queue: Some(rate.bytes_in(rtt)), ..PathDirection::of_rate(Some(rate)) };
    let mut host = HostSettings::of_linux_6_18();
    (host.tcp_rmem.max, host.tcp_wmem.max) = (MAX_BUFFER, MAX_BUFFER);
    let request = Request { duration: Span::from_secs(seconds), ..Request::default() };
    let mut plan = Plan::new(Path::symmetric(&direction, rtt), [host.clone(), host], request, 1);
    change(&mut plan);
    plan
}

/// Of a host: `tcp_rmem` is a number of 31 bits.
const MAX_BUFFER: ByteCount = ByteCount::new(0x7fff_ffff);

/// Simulates a transfer up to its record. Returns the segments that arrived, and the seconds simulated and spent.
pub(crate) fn simulated(plan: Plan) -> (f64, [f64; 2]) {
    let began = Instant::now();
    let mut simulation = started(plan);
    simulation.run_until(Time::from_nanos(u64::MAX));
    let [forward, _] = simulation.counters();
    let over = simulation.now().since(Time::ZERO).as_secs_f64();
    drop(std::hint::black_box(simulation.measure()));
    (forward.delivered.segments.get() as f64, [over, began.elapsed().as_secs_f64()])
}

/// Begins to simulate a transfer.
#[expect(clippy::expect_used, reason = "a plan that cannot be simulated is a fault of this program")]
pub(crate) fn started(plan: Plan) -> Simulation {
    Simulation::new(plan).expect("all of it is modelled")
}
