use std::collections::HashSet;
use std::fmt;

use fullpipe_record::{Cpu, Datagrams, EndReport};
use fullpipe_units::{ByteCount, Ratio, SegCount, Span};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::inbox::{PREFIX, frame_json};
use crate::json::{self, Extension, Number, Text, Whole};
use crate::parameters::is_congestion_name;
use crate::{JsonMessage, TestError};

/// The results of one end, as it sends them to the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TestResults {
    /// Processor time of that end during the test.
    pub cpu: Cpu,
    /// Congestion control of its data sockets; known since iperf3 3.2.
    pub congestion: Option<String>,
    /// The counts of each stream of that end.
    pub streams: Vec<StreamResult>,
    /// The output of a server about the test, if it was asked for.
    pub server_output: Option<ServerOutput>,
    /// The report of that end, if both are fullpipe. Only servers send it: a client cannot know who
    /// will read it.
    pub report: Option<Box<EndReport>>,
}

/// The output of a server. It comes from the peer: escape control characters before it reaches a
/// terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerOutput {
    /// Lines of text.
    Text(String),
    /// The JSON that `iperf3 -s -J` prints. What is not JSON is sent as text.
    Json(String),
}

/// The counts of one end for one stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamResult {
    /// Number of the stream, from 0, in the order in which the connections were opened.
    pub stream: u16,
    /// Bytes sent or received, without the omitted time.
    pub bytes: ByteCount,
    /// Retransmitted segments; `None` from a receiver, or where the sender's system does not
    /// report.
    pub retransmits: Option<SegCount>,
    /// When this end began to count, since the data began to flow; zero up to iperf3 3.1, which
    /// does not say.
    pub from: Span,
    /// When it ceased; zero up to iperf3 3.1.
    pub to: Span,
    /// Counts of the stream's datagrams; all zero with TCP.
    pub datagrams: DatagramCounts,
}

/// The counts of one end for a stream of datagrams, as iperf3 counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramCounts {
    /// Since the first datagram.
    pub total: DatagramCount,
    /// The part of it that falls into the omitted time; `None` up to iperf3 3.13, which does not
    /// say.
    pub omitted: Option<DatagramCount>,
    /// Interarrival jitter (RFC 3550, section 6.4.1) at the end; zero from a sender.
    pub jitter: Span,
}

/// Datagrams of a stream up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramCount {
    /// From a sender, how many it sent; from a receiver, the highest number that it saw.
    pub packets: u64,
    /// From a receiver, how many are missing: each gap adds to them, each datagram out of order
    /// takes one away, also one that is there twice.
    pub lost: u64,
}

impl Default for DatagramCounts {
    /// None, and none of them omitted.
    fn default() -> Self {
        Self {
            total: DatagramCount::default(),
            omitted: Some(DatagramCount::default()),
            jitter: Span::ZERO,
        }
    }
}

impl DatagramCounts {
    /// Returns the counts of a sender that sent `total` datagrams in all, `omitted` of them in the
    /// omitted time.
    pub fn from_sender(total: u64, omitted: u64) -> Self {
        let [total, omitted] = [total, omitted].map(|packets| DatagramCount { packets, lost: 0 });
        Self {
            total,
            omitted: Some(omitted),
            jitter: Span::ZERO,
        }
    }

    /// Returns the counts of a receiver that saw `total` in all, `omitted` of it in the omitted
    /// time.
    pub fn from_receiver(total: &Datagrams, omitted: &Datagrams) -> Self {
        let jitter = total.jitter;
        let [total, omitted] = [total, omitted].map(|seen| DatagramCount {
            packets: seen.received.saturating_add(seen.lost),
            lost: seen.lost_like_iperf3,
        });
        Self {
            total,
            omitted: Some(omitted),
            jitter,
        }
    }

    /// Returns the counts without the omitted time, if that is known.
    pub fn counted_datagrams(&self) -> DatagramCount {
        let omitted = self.omitted.unwrap_or_default();
        DatagramCount {
            packets: self.total.packets.saturating_sub(omitted.packets),
            lost: self.total.lost.saturating_sub(omitted.lost),
        }
    }

    /// Converts the counts of a receiver to [`Datagrams`], as far as they go: iperf3 does not
    /// report which datagrams were duplicated or out of order.
    pub fn as_seen(&self) -> Datagrams {
        let DatagramCount { packets, lost } = self.counted_datagrams();
        Datagrams {
            received: packets.saturating_sub(lost),
            lost,
            lost_like_iperf3: lost,
            jitter: self.jitter,
            ..Datagrams::default()
        }
    }
}

impl TestResults {
    /// The message of an end that `sends` data, or does not: four bytes of length and JSON. If it
    /// would be longer than a results message may be, the report goes without its samples, and if
    /// that is not enough, the server's output stays away.
    pub(crate) fn encode_message(&self, sends: bool) -> Vec<u8> {
        let limit = PREFIX as u64 + JsonMessage::Results.max_length().get();
        let output = self.server_output.as_ref();
        let whole = frame_json(&Sent::from_results(
            self,
            sends,
            output,
            self.report.as_deref(),
        ));
        if whole.len() as u64 <= limit {
            return whole;
        }
        let shortened = self.report.as_deref().map(|report| EndReport {
            samples: Vec::new(),
            ..report.clone()
        });
        let shorter = frame_json(&Sent::from_results(self, sends, output, shortened.as_ref()));
        if shorter.len() as u64 <= limit {
            shorter
        } else {
            frame_json(&Sent::from_results(self, sends, None, shortened.as_ref()))
        }
    }

    /// Reads the JSON of either end, without its length, for a test of `streams` streams, both
    /// directions together. What iperf3 did not always send may be missing, unknown keys are
    /// ignored, and so is an extension that cannot be read.
    ///
    /// # Errors
    ///
    /// [`TestError::Malformed`] for what is not a JSON object, and for a stream that has no count,
    /// is not one of the test, or occurs twice.
    pub fn decode_json(json: &[u8], streams: u16) -> Result<Self, TestError> {
        Self::parse_json(json, streams).map_err(|why| TestError::Malformed {
            message: JsonMessage::Results,
            why,
        })
    }

    fn parse_json(json: &[u8], streams: u16) -> Result<Self, String> {
        let mut received: Received = json::parse_object(json)?;
        let results: Vec<StreamResult> = received
            .streams
            .0
            .iter()
            .map(|stream| stream.to_stream_result(streams))
            .collect::<Result<_, _>>()?;
        let mut seen = HashSet::new();
        if let Some(twice) = results.iter().find(|result| !seen.insert(result.stream)) {
            return Err(format!("stream {} occurs twice", id_of(twice.stream)));
        }
        let (server_output, congestion) = (received.server_output(), received.congestion_used.0);
        let [user, system] = [received.cpu_util_user, received.cpu_util_system]
            .map(|percent| Ratio::new(percent.0.unwrap_or(0.0) / 100.0));
        Ok(Self {
            cpu: Cpu { user, system },
            congestion: congestion.filter(|name| is_congestion_name(name)),
            streams: results,
            server_output,
            report: received.x_fullpipe.parse_value(),
        })
    }
}

/// iperf3 numbers streams 1, 3, 4, 5, …
fn id_of(stream: u16) -> i64 {
    if stream == 0 {
        1
    } else {
        i64::from(stream) + 2
    }
}

fn stream_of(id: i64) -> Option<u16> {
    match id {
        1 => Some(0),
        3.. => u16::try_from(id - 2).ok(),
        _ => None,
    }
}

/// Keys in iperf3's order. It asks for those of datagrams with TCP too.
#[derive(Serialize)]
struct Sent<'a> {
    cpu_util_total: f64,
    cpu_util_user: f64,
    cpu_util_system: f64,
    sender_has_retransmits: i8,
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion_used: Option<&'a str>,
    streams: Vec<SentStream>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_output_text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_output_json: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    x_fullpipe: Option<&'a EndReport>,
}

#[derive(Serialize)]
struct SentStream {
    id: i64,
    bytes: u64,
    retransmits: i64,
    jitter: Span,
    errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_errors: Option<u64>,
    packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_packets: Option<u64>,
    start_time: Span,
    end_time: Span,
}

impl<'a> Sent<'a> {
    fn from_results(
        results: &'a TestResults,
        sends: bool,
        output: Option<&'a ServerOutput>,
        report: Option<&'a EndReport>,
    ) -> Self {
        let counted = results
            .streams
            .iter()
            .any(|stream| stream.retransmits.is_some());
        let (output_text, output_json) = match output {
            None => (None, None),
            Some(ServerOutput::Text(text)) => (Some(text.as_str()), None),
            Some(ServerOutput::Json(text)) => match serde_json::from_str(text) {
                Ok(json) => (None, Some(json)),
                Err(_) => (Some(text.as_str()), None),
            },
        };
        Self {
            cpu_util_total: results.cpu.total_share().as_percent(),
            cpu_util_user: results.cpu.user.as_percent(),
            cpu_util_system: results.cpu.system.as_percent(),
            sender_has_retransmits: if sends { counted.into() } else { -1 },
            congestion_used: results.congestion.as_deref(),
            streams: results
                .streams
                .iter()
                .map(SentStream::from_result)
                .collect(),
            server_output_text: output_text,
            server_output_json: output_json,
            x_fullpipe: report,
        }
    }
}

impl SentStream {
    fn from_result(result: &StreamResult) -> Self {
        Self {
            id: id_of(result.stream),
            bytes: result.bytes.get(),
            retransmits: result
                .retransmits
                .map_or(-1, |count| i64::try_from(count.get()).unwrap_or(i64::MAX)),
            jitter: result.datagrams.jitter,
            errors: result.datagrams.total.lost,
            omitted_errors: result.datagrams.omitted.map(|omitted| omitted.lost),
            packets: result.datagrams.total.packets,
            omitted_packets: result.datagrams.omitted.map(|omitted| omitted.packets),
            start_time: result.from,
            end_time: result.to,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Received {
    cpu_util_user: Number,
    cpu_util_system: Number,
    congestion_used: Text,
    streams: ReceivedStreams,
    server_output_text: Text,
    server_output_json: Extension,
    x_fullpipe: Extension,
}

impl Received {
    fn server_output(&mut self) -> Option<ServerOutput> {
        let text = self.server_output_text.0.take().map(ServerOutput::Text);
        text.or_else(|| {
            self.server_output_json
                .json_text()
                .map(|json| ServerOutput::Json(json.to_owned()))
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReceivedStream {
    id: Whole,
    bytes: Whole,
    retransmits: Whole,
    jitter: Number,
    errors: Whole,
    omitted_errors: Whole,
    packets: Whole,
    omitted_packets: Whole,
    start_time: Number,
    end_time: Number,
}

impl ReceivedStream {
    fn to_stream_result(&self, streams: u16) -> Result<StreamResult, String> {
        let id = self.id.0.ok_or("a stream has no id")?;
        let stream = stream_of(id)
            .filter(|stream| *stream < streams)
            .ok_or(format!("no stream has the id {id}"))?;
        let bytes = self.bytes.to_count();
        let [from, to] =
            [self.start_time, self.end_time].map(|time| Span::from_secs_f64(time.0.unwrap_or(0.0)));
        Ok(StreamResult {
            stream,
            bytes: bytes
                .map(ByteCount::new)
                .ok_or(format!("stream {id} has no count of bytes"))?,
            retransmits: self.retransmits.to_count().map(SegCount::new),
            from,
            to,
            datagrams: self.datagram_counts(),
        })
    }

    fn datagram_counts(&self) -> DatagramCounts {
        // One alone says nothing.
        let omitted = self
            .omitted_packets
            .to_count()
            .zip(self.omitted_errors.to_count());
        DatagramCounts {
            total: DatagramCount {
                packets: self.packets.to_count().unwrap_or(0),
                lost: self.errors.to_count().unwrap_or(0),
            },
            omitted: omitted.map(|(packets, lost)| DatagramCount { packets, lost }),
            jitter: Span::from_secs_f64(self.jitter.0.unwrap_or(0.0)),
        }
    }
}

/// The streams of a message, never more than a test can have: an empty one takes two bytes of text,
/// but fifty of memory.
#[derive(Default)]
struct ReceivedStreams(Vec<ReceivedStream>);

impl<'de> Deserialize<'de> for ReceivedStreams {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(StreamsVisitor)
    }
}

struct StreamsVisitor;

impl<'de> Visitor<'de> for StreamsVisitor {
    type Value = ReceivedStreams;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of streams")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ReceivedStreams, A::Error> {
        const MAX_STREAMS: usize = 256;
        let mut streams = Vec::new();
        while let Some(stream) = items.next_element()? {
            if streams.len() == MAX_STREAMS {
                return Err(A::Error::custom("it has more streams than a test can have"));
            }
            streams.push(stream);
        }
        Ok(ReceivedStreams(streams))
    }
}

#[cfg(test)]
mod tests;
