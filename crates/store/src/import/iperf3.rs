//! Results of iperf3: one JSON object of a test (`-J`), or one for each event (`--json-stream`).

use fullpipe_record::{Direction, StoredDocument, StoredFacts};
use fullpipe_units::{ByteCount, Ratio, Span, median, printable_line};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{ForeignRun, JsonFields};
use crate::document::{NewDocument, load_words};

/// Events of which figures are taken.
const EVENTS: [&str; 3] = ["start", "end", "error"];

/// Returns true for one line of `--json-stream`.
pub(super) fn is_event(value: &Value) -> bool {
    value["event"].is_string() && value.get("data").is_some()
}

/// Returns true for the line of `--json-stream` that begins a test.
pub(super) fn is_start(value: &Value) -> bool {
    is_event(value) && value["event"] == "start"
}

/// The lines of one test of `--json-stream`.
#[derive(Default)]
pub(super) struct TestEvents {
    test: Map<String, Value>,
    body: Vec<u8>,
}

impl TestEvents {
    /// Returns true for a line of the test, and for its whole object, which
    /// `--json-stream-full-output` prints last.
    pub(super) fn contains_value(&self, value: &Value) -> bool {
        let is_whole = value["start"].is_object() && value["end"].is_object();
        let cookie = self
            .test
            .get("start")
            .map_or("", |start| start.string_field("cookie"));
        is_event(value) || (is_whole && value["start"].string_field("cookie") == cookie)
    }

    pub(super) fn add_event(&mut self, mut value: Value, bytes: &[u8]) {
        for name in EVENTS {
            let figures = if value["event"] == name {
                value.get_mut("data")
            } else {
                value.get_mut(name)
            };
            if let Some(figures) = figures {
                self.test.entry(name).or_insert(figures.take());
            }
        }
        self.body.extend_from_slice(bytes);
        self.body.push(b'\n');
    }

    pub(super) fn into_document(self) -> Result<NewDocument, String> {
        Ok(NewDocument {
            head: iperf3_head(&Value::Object(self.test))?,
            body: self.body,
        })
    }
}

/// Returns the head of a test.
pub(super) fn iperf3_head(test: &Value) -> Result<StoredDocument, String> {
    let start = &test["start"];
    let seconds = start["timestamp"]
        .number_field("timesecs")
        .ok_or_else(|| never_began(test))?;
    let started = Timestamp::from_second(seconds as i64)
        .map_err(|_| "the start time of iperf3 is no time")?;
    let client = start["connecting_to"].string_field("host");
    let peer = if client.is_empty() {
        start["accepted_connection"].string_field("host")
    } else {
        client
    };
    Ok(ForeignRun {
        format: "iperf3",
        started,
        // "Linux NAME RELEASE …", as `uname -a` prints it.
        host: start
            .string_field("system_info")
            .split_whitespace()
            .nth(1)
            .unwrap_or_default(),
        peer,
        request_key: request_key(test),
        program: start.string_field("version"),
        facts: test_directions(test)
            .into_iter()
            .map(|direction| direction_facts(test, direction))
            .collect(),
    }
    .into_head())
}

/// Returns the sentence about a test without a start time.
pub(super) fn never_began(test: &Value) -> String {
    match test.string_field("error") {
        "" => "the test of iperf3 has no start time".to_owned(),
        error => format!(
            "the test of iperf3 failed before it began: {}",
            printable_line(error)
        ),
    }
}

pub(super) fn is_set(asked: &Value, name: &str) -> bool {
    asked.number_field(name).is_some_and(|number| number > 0.0)
}

/// Returns true for a test both ways, which version 3.12 shows by nothing but the sums of the
/// second one.
pub(super) fn goes_both_ways(test: &Value) -> bool {
    is_set(&test["start"]["test_start"], "bidir")
        || test["end"]["sum_sent_bidir_reverse"].is_object()
}

pub(super) fn test_directions(test: &Value) -> Vec<Direction> {
    if goes_both_ways(test) {
        vec![Direction::Upload, Direction::Download]
    } else if is_set(&test["start"]["test_start"], "reverse") {
        vec![Direction::Download]
    } else {
        vec![Direction::Upload]
    }
}

fn stream_count(asked: &Value) -> Option<u16> {
    asked
        .number_field("num_streams")
        .map(|streams| streams as u16)
}

/// Returns the load in words, as for a test of this program.
fn request_key(test: &Value) -> String {
    let start = &test["start"];
    let asked = &start["test_start"];
    let direction = match test_directions(test)[..] {
        [direction] => direction,
        _ => Direction::Both,
    };
    let transport = asked.string_field("protocol").to_ascii_lowercase();
    let seconds = asked.number_field("duration").unwrap_or_default();
    let words = load_words(
        &transport,
        direction,
        stream_count(asked).unwrap_or(1),
        seconds,
    );
    let unusual =
        ["omit", "bytes", "blocks", "target_bitrate", "tos"].map(|name| (name, &asked[name]));
    let unusual = unusual
        .into_iter()
        .chain([("buffer", &start["sock_bufsize"])]);
    let unusual = unusual.filter(|(_, value)| value.as_f64().is_some_and(|number| number > 0.0));
    unusual.fold(words, |words, (name, value)| {
        format!("{words}, {name}={value}")
    }) + ", iperf3"
}

fn direction_facts(test: &Value, direction: Direction) -> StoredFacts {
    let (start, end) = (&test["start"], &test["end"]);
    let is_second = goes_both_ways(test) && direction == Direction::Download;
    let suffix = if is_second { "_bidir_reverse" } else { "" };
    let [sent, received, sum] =
        ["sum_sent", "sum_received", "sum"].map(|name| &end[format!("{name}{suffix}")]);
    // Of datagrams, versions before 3.10 print only one sum, of those that were sent.
    let is_received_known = received.is_object();
    let received = if is_received_known { received } else { sum };
    let loss = datagram_loss(test, received);
    let arrived = received
        .rate_field("bits_per_second")
        .map(|rate| match loss {
            Some(loss) if !is_received_known => rate.scale_by(1.0 - loss.get()),
            _ => rate,
        });
    // A server that sends does not know what arrives.
    let arrived = arrived
        .filter(|rate| rate.bps() > 0)
        .or_else(|| sent.rate_field("bits_per_second"));
    let cpu = &end["cpu_utilization_percent"];
    let ends = if host_sends(test, direction) {
        ["host_total", "remote_total"]
    } else {
        ["remote_total", "host_total"]
    };
    let [cpu_sender, cpu_receiver] =
        ends.map(|total| cpu.percent_field(total).filter(|share| share.get() > 0.0));
    let has_error = test.get("error").is_some();
    // A server that receives does not know what was sent, and writes zero.
    let bytes = [sent, received]
        .into_iter()
        .find_map(|sum| sum.known_bytes_field("bytes"));
    StoredFacts {
        direction,
        rate: arrived,
        rtt_loaded: median_rtt(test, direction),
        retransmits: sent.segments_field("retransmits"),
        loss,
        cpu_sender,
        cpu_receiver,
        valid: !has_error && arrived.is_some_and(|rate| rate.bps() > 0),
        streams: stream_count(&start["test_start"]),
        buffer: start.known_bytes_field("sock_bufsize"),
        window: max_window(test, direction),
        congestion: Some(end.string_field("sender_tcp_congestion"))
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
        sent: bytes,
        duration: received.seconds_field("seconds"),
        ..StoredFacts::default()
    }
}

/// Returns true if the host that wrote the result sent the data of this direction.
pub(super) fn host_sends(test: &Value, direction: Direction) -> bool {
    test["start"]["connecting_to"].is_object() == (direction == Direction::Upload)
}

/// Returns the share of datagrams that were lost; `None` where none were counted, as by a server
/// that sends.
fn datagram_loss(test: &Value, received: &Value) -> Option<Ratio> {
    let is_udp = test["start"]["test_start"].string_field("protocol") == "UDP";
    received
        .percent_field("lost_percent")
        .filter(|_| is_udp && is_set(received, "packets"))
}

/// Returns the median over the streams of one direction of their mean round-trip time, which the
/// kernel of the sender estimated, in µs.
fn median_rtt(test: &Value, direction: Direction) -> Option<Span> {
    let means = stream_senders(test, direction);
    median(
        means
            .filter_map(|sender| sender.known_micros_field("mean_rtt"))
            .collect(),
    )
}

/// Returns the largest window that a stream of one direction was allowed.
fn max_window(test: &Value, direction: Direction) -> Option<ByteCount> {
    stream_senders(test, direction)
        .filter_map(|sender| sender.known_bytes_field("max_snd_wnd"))
        .max()
}

/// Returns the senders of the streams of one direction. Those of a test both ways that this host
/// received have figures, too, but of its own end, whose kernel sent acknowledgements only.
fn stream_senders(test: &Value, direction: Direction) -> impl Iterator<Item = &Value> {
    let is_bidir = goes_both_ways(test);
    let all = test["end"]["streams"]
        .as_array()
        .filter(|_| !is_bidir || host_sends(test, direction));
    let senders = all.into_iter().flatten().map(|stream| &stream["sender"]);
    senders.filter(move |sender| !is_bidir || sender["sender"] == true)
}
