//! What the other end tells of itself while data flows.

use fullpipe_load::thin_out;
use fullpipe_record::EndReport;

use crate::machine;

/// Samples that are kept, about four megabytes: a test may last a day. When there are more, every second look goes.
const MOST_SAMPLES: usize = 4_000;

/// Adds what the other end says now to what it has said before.
pub(crate) fn add(told: &mut EndReport, now: EndReport) {
    // An end that said nothing of the time has not told of the whole either.
    told.until = Some(now.until.max(told.until).unwrap_or_default());
    told.settings = now.settings.or(told.settings.take());
    told.cpu = now.cpu.or(told.cpu);
    if !now.sockets.is_empty() {
        told.sockets = now.sockets;
    }
    if !now.datagrams.is_empty() {
        told.datagrams = now.datagrams;
    }
    told.device = now.device.or(told.device.take());
    let latest = told.processors.last().map(|look| look.at);
    if now.processors.first().is_some_and(|look| latest.is_none_or(|latest| look.at > latest)) {
        told.processors.extend(now.processors);
        told.processors = machine::kept(std::mem::take(&mut told.processors));
    }
    let latest = told.samples.last().map(|sample| sample.at);
    // Looks are told apart by their times.
    if now.samples.first().is_some_and(|sample| latest.is_none_or(|latest| sample.at > latest)) {
        told.samples.extend(now.samples);
    }
    if told.samples.len() > MOST_SAMPLES {
        thin_out(&mut told.samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{Cpu, Datagrams, HostSettings, Sample, SocketReadback, TcpInfo};
    use fullpipe_units::{ByteCount, Ratio, Span};

    fn look(second: u64, streams: u16) -> Vec<Sample> {
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
        EndReport { samples: look(second, 2), until: Some(Span::from_secs(second)), ..EndReport::default() }
    }

    #[test]
    fn what_was_said_once_stays_and_what_is_counted_is_of_the_latest() {
        let mut told = EndReport::default();
        let socket = SocketReadback {
            stream: 0,
            sndbuf: ByteCount::new(1),
            rcvbuf: ByteCount::new(2),
            congestion: String::new(),
            local: String::new(),
            remote: String::new(),
            answer: None,
            quoted: Vec::new(),
        };
        let first = EndReport {
            settings: Some(HostSettings::of_linux_6_18()),
            sockets: vec![socket],
            until: Some(Span::ZERO),
            ..EndReport::default()
        };
        add(&mut told, first.clone());
        assert_eq!(told, first);
        for second in 1..=3 {
            let cpu = Some(Cpu { user: Ratio::new(second as f64), system: Ratio::default() });
            let datagrams = vec![Datagrams { received: second, ..Datagrams::default() }];
            add(&mut told, EndReport { cpu, datagrams, ..at(second) });
        }
        assert_eq!((&told.settings, &told.sockets), (&first.settings, &first.sockets));
        assert_eq!(told.cpu.unwrap().user, Ratio::new(3.0));
        assert_eq!((told.datagrams.len(), told.datagrams[0].received), (1, 3));
        assert_eq!((told.samples.len(), told.until), (6, Some(Span::from_secs(3))));
    }

    #[test]
    fn a_long_test_is_not_kept_without_end_whatever_its_looks_say() {
        let mut told = EndReport::default();
        for second in 0..20_000 {
            add(&mut told, at(second));
            assert!(told.samples.len() <= MOST_SAMPLES);
        }
        assert!(told.samples.len() > MOST_SAMPLES / 4);
        assert_eq!(told.until, Some(Span::from_secs(19_999)));
        // The same time again and again.
        for _ in 0..10_000 {
            add(&mut told, at(30_000));
        }
        assert!(told.samples.len() <= MOST_SAMPLES);
    }
}
