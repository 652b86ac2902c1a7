//! The report that a fullpipe server sends a fullpipe client while data flows: the state byte and
//! an [`EndReport`] of what there is so far, behind its length.

use fullpipe_record::EndReport;

use crate::inbox::{PREFIX, frame_json};
use crate::json::{self, count_objects};
use crate::{JsonMessage, StateByte, TestError};

/// The message; `None` if it would be longer than a report may be.
pub(crate) fn encode_report(report: &EndReport) -> Option<Vec<u8>> {
    let message = frame_json(report);
    let fits = (message.len() - PREFIX) as u64 <= JsonMessage::Report.max_length().get();
    fits.then(|| [&[StateByte::Report.to_byte()][..], &message].concat())
}

/// Reads the JSON of a report in a test of so many data `connections`.
///
/// # Errors
///
/// [`TestError::Malformed`] for what is no report, and for one with more than one sample of each
/// connection.
pub(crate) fn decode_report(json: &[u8], connections: u16) -> Result<EndReport, TestError> {
    parse_report(json, connections).map_err(|why| TestError::Malformed {
        message: JsonMessage::Report,
        why,
    })
}

fn parse_report(json: &[u8], connections: u16) -> Result<EndReport, String> {
    if count_objects(json) > MAX_OBJECTS {
        return Err("it has more objects than a report can have".to_owned());
    }
    let report: EndReport = json::parse_object(json)?;
    let most = usize::from(connections);
    if report.samples.len() > most || report.sockets.len() > most || report.datagrams.len() > most {
        return Err("it describes more streams than the test has".to_owned());
    }
    let mut samples = report.samples.iter();
    if samples.any(|sample| sample.stream >= connections) {
        return Err("it describes a stream that the test does not have".to_owned());
    }
    if report.processors.len() > 1 {
        return Err("it has more than one sample of its processors".to_owned());
    }
    let mut samples = report.samples.iter();
    if samples.any(|sample| sample.at != report.samples[0].at) {
        return Err("it has more than one sample of its streams".to_owned());
    }
    Ok(report)
}

/// A sample has three objects, a socket and the counts of datagrams one each; a test has 256
/// connections at most. Of processors and queueing disciplines, with an object each, there are 576
/// at most.
const MAX_OBJECTS: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{Sample, SocketMemory, TcpInfo};
    use fullpipe_units::{ByteCount, Span};

    fn sample(stream: u16) -> Sample {
        let (tcp, memory) = (TcpInfo::default(), Some(SocketMemory::default()));
        Sample {
            at: Span::from_secs(1),
            stream,
            bytes: ByteCount::new(5),
            tcp,
            memory,
        }
    }

    fn refused(json: &str) -> String {
        decode_report(json.as_bytes(), 2).unwrap_err().to_string()
    }

    #[test]
    fn a_sample_of_every_stream_arrives_as_it_was_sent() {
        let report = EndReport {
            samples: (0..256).map(sample).collect(),
            until: Some(Span::from_secs(1)),
            ..EndReport::default()
        };
        let message = encode_report(&report).unwrap();
        assert_eq!(message[0], 0x66);
        assert_eq!(
            message[1..5],
            u32::try_from(message.len() - 5).unwrap().to_be_bytes()
        );
        assert_eq!(decode_report(&message[5..], 256), Ok(report));
    }

    #[test]
    fn a_report_that_is_too_long_is_not_sent() {
        let report = EndReport {
            output: Some("x".repeat(1 << 20)),
            ..EndReport::default()
        };
        assert_eq!(encode_report(&report), None);
    }

    #[test]
    fn what_is_no_report_is_malformed() {
        for json in [
            "",
            "[]",
            "7",
            "{",
            "{}",
            r#"{"sockets":[]}"#,
            r#"{"sockets":[],"samples":[{}]}"#,
        ] {
            assert!(
                refused(json).starts_with("cannot read the other end's interim results: "),
                "{json}"
            );
        }
        let blown_up = format!(
            r#"{{"sockets":[],"samples":[],"datagrams":[{}]}}"#,
            vec!["{}"; 300_000].join(",")
        );
        assert!(refused(&blown_up).ends_with("more objects than a report can have"));
    }

    #[test]
    fn a_report_describes_the_streams_of_its_test() {
        let of = |samples| {
            let message = encode_report(&EndReport {
                samples,
                ..EndReport::default()
            })
            .unwrap();
            decode_report(&message[5..], 2).map(|report| report.samples.len())
        };
        assert_eq!(of(vec![sample(0), sample(1)]), Ok(2));
        assert!(
            of(vec![sample(2)])
                .unwrap_err()
                .to_string()
                .ends_with("a stream that the test does not have")
        );
        let later = Sample {
            at: Span::from_secs(2),
            ..sample(1)
        };
        assert!(
            of(vec![sample(0), later])
                .unwrap_err()
                .to_string()
                .ends_with("more than one sample of its streams")
        );
        assert!(
            of(vec![sample(0); 3])
                .unwrap_err()
                .to_string()
                .ends_with("more streams than the test has")
        );
        assert!(
            refused(r#"{"sockets":[],"samples":[],"datagrams":[{},{},{}]}"#)
                .contains("more streams")
        );
        assert!(
            refused(r#"{"sockets":[],"samples":[],"processors":[{},{}]}"#)
                .contains("more than one sample of its pro")
        );
    }
}
