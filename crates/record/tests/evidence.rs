//! Evidence of a test under way.

use fullpipe_record::{CpuSample, Evidence, Machine, Sample, TcpInfo};
use fullpipe_units::{ByteCount, Span};

#[test]
fn evidence_up_to_a_moment_knows_nothing_of_what_came_later() {
    // 8 Mbit/s for four seconds, then twice as much.
    let sample = |tick: u64| Sample {
        at: Span::from_millis(50 * tick),
        stream: 0,
        bytes: ByteCount::ZERO,
        tcp: TcpInfo {
            bytes_acked: Some(ByteCount::new(50_000 * (tick + tick.saturating_sub(80)))),
            rtt: Some(Span::from_millis(if tick > 80 { 40 } else { 20 })),
            ..TcpInfo::default()
        },
        memory: None,
    };
    let samples: Vec<Sample> = (1..=200).map(sample).collect();
    let whole = Evidence {
        idle_rtt: Some(Span::from_millis(20)),
        sender_samples: samples.clone(),
        sender_machine: Machine {
            processors: [1, 5]
                .map(|at| CpuSample {
                    at: Span::from_secs(at),
                    ..CpuSample::default()
                })
                .to_vec(),
            ..Machine::default()
        },
        ..Evidence::default()
    };
    let early = whole.up_to(Span::from_secs(4));
    let steady = early.steady.expect("a steady part");
    assert_eq!(
        (
            early.sender_samples.len(),
            early.sender_machine.processors.len()
        ),
        (80, 1)
    );
    assert_eq!(early.loaded_rtt, Some(Span::from_millis(20)));
    assert!(
        (steady.rate.as_mbps() - 8.0).abs() < 0.01,
        "{}",
        steady.rate
    );
    assert!(steady.ramp + steady.duration <= Span::from_secs(4));
    // The same of a receiver, which counts what it received.
    let mut arrived = whole;
    arrived.receiver_samples = std::mem::take(&mut arrived.sender_samples);
    for sample in &mut arrived.receiver_samples {
        sample.tcp.bytes_received = sample.tcp.bytes_acked.take();
    }
    assert_eq!(arrived.up_to(Span::from_secs(4)).steady, Some(steady));
}
