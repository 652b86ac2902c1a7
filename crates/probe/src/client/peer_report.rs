//! Reports of the other end while data flows.

use fullpipe_record::{EndReport, thin_out_snapshots};

use crate::machine;

/// Maximum number of samples that are kept, about 4 MB: a test may last a day. With more, every
/// second snapshot is dropped.
const MAX_SAMPLES: usize = 4_000;

/// Adds a report of the other end to the earlier ones.
pub(crate) fn merge_report(report: &mut EndReport, now: EndReport) {
    // A report without a time does not cover the whole test either.
    report.until = Some(now.until.max(report.until).unwrap_or_default());
    report.settings = now.settings.or(report.settings.take());
    report.cpu = now.cpu.or(report.cpu);
    if !now.sockets.is_empty() {
        report.sockets = now.sockets;
    }
    if !now.datagrams.is_empty() {
        report.datagrams = now.datagrams;
    }
    report.device = now.device.or(report.device.take());
    report.network = now.network.or(report.network);
    let latest = report.processors.last().map(|sample| sample.at);
    if now.processors.first().map(|sample| sample.at) > latest {
        report.processors.extend(now.processors);
        report.processors = machine::reduce_for_record(std::mem::take(&mut report.processors));
    }
    let latest = report.samples.last().map(|sample| sample.at);
    // Snapshots differ in their times.
    if now.samples.first().map(|sample| sample.at) > latest {
        report.samples.extend(now.samples);
    }
    if report.samples.len() > MAX_SAMPLES {
        thin_out_snapshots(&mut report.samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{Cpu, Datagrams, HostSettings, Sample, SocketReadback, TcpInfo};
    use fullpipe_units::{ByteCount, Ratio, Span};

    fn snapshot(second: u64, streams: u16) -> Vec<Sample> {
        let sample = |stream| Sample {
            at: Span::from_secs(second),
            stream,
            bytes: ByteCount::new(second),
            tcp: TcpInfo::default(),
            memory: None,
        };
        (0..streams).map(sample).collect()
    }

    fn at(second: u64) -> EndReport {
        EndReport {
            samples: snapshot(second, 2),
            until: Some(Span::from_secs(second)),
            ..EndReport::default()
        }
    }

    #[test]
    fn fields_reported_once_stay_and_counts_are_the_latest() {
        let mut report = EndReport::default();
        let socket = SocketReadback {
            stream: 0,
            sndbuf: ByteCount::new(1),
            rcvbuf: ByteCount::new(2),
            congestion: String::new(),
            local: String::new(),
            remote: String::new(),
            handshake: None,
            syn_quotes: Vec::new(),
        };
        let first = EndReport {
            settings: Some(HostSettings::of_linux_6_18()),
            sockets: vec![socket],
            until: Some(Span::ZERO),
            ..EndReport::default()
        };
        merge_report(&mut report, first.clone());
        assert_eq!(report, first);
        for second in 1..=3 {
            let cpu = Some(Cpu {
                user: Ratio::new(second as f64),
                system: Ratio::default(),
            });
            let datagrams = vec![Datagrams {
                received: second,
                ..Datagrams::default()
            }];
            merge_report(
                &mut report,
                EndReport {
                    cpu,
                    datagrams,
                    ..at(second)
                },
            );
        }
        assert_eq!(
            (&report.settings, &report.sockets),
            (&first.settings, &first.sockets)
        );
        assert_eq!(report.cpu.unwrap().user, Ratio::new(3.0));
        assert_eq!(
            (report.datagrams.len(), report.datagrams[0].received),
            (1, 3)
        );
        assert_eq!(
            (report.samples.len(), report.until),
            (6, Some(Span::from_secs(3)))
        );
    }

    #[test]
    fn the_samples_of_a_long_test_are_bounded_even_if_their_times_repeat() {
        let mut report = EndReport::default();
        for second in 0..20_000 {
            merge_report(&mut report, at(second));
            assert!(report.samples.len() <= MAX_SAMPLES);
        }
        assert!(report.samples.len() > MAX_SAMPLES / 4);
        assert_eq!(report.until, Some(Span::from_secs(19_999)));
        // The same time again and again.
        for _ in 0..10_000 {
            merge_report(&mut report, at(30_000));
        }
        assert!(report.samples.len() <= MAX_SAMPLES);
    }
}
