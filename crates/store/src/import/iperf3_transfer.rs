//! Results of iperf3 → the evidence of their transfers, to be judged.

use std::collections::BTreeMap;

use fullpipe_record::{
    Buffer, CpuSample, Direction, Evidence, Machine, Request, Sample, SocketReadback, Steady,
    TcpInfo, Transfer, TransferProgress, Writer, steady_of_receiver,
};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, count_noun, printable_line};
use serde_json::Value;

use super::iperf3::{
    goes_both_ways, host_sends, is_event, is_set, is_start, never_began, test_directions,
};
use super::json::JsonFields;
use super::{json_values, memory_for, text_in_utf_8};

/// Payload of a segment where the result states none: that of Ethernet with timestamps.
const USUAL_MSS: ByteCount = ByteCount::new(1448);

/// Least number of intervals of a test that is judged: one has the ramp.
const MIN_INTERVALS: usize = 3;

/// Returns the transfers of the tests of iperf3 in a text (`-J` or `--json-stream`), each with the
/// evidence of the end that wrote the result; of a test both ways, what that end sent. `None` if
/// the JSON is no test of iperf3.
///
/// # Errors
/// Returns a sentence, without the name of the file, if the text is no JSON, and of a test that
/// moved no data over TCP.
pub fn iperf3_transfers(bytes: &[u8]) -> Result<Option<Vec<(Transfer, Evidence)>>, String> {
    let text = text_in_utf_8(bytes)?;
    let Some(tests) = whole_tests(&text)? else {
        return Ok(None);
    };
    tests
        .iter()
        .map(test_transfer)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Returns the tests in a text, those of `--json-stream` put together; `None` if there are none.
fn whole_tests(text: &[u8]) -> Result<Option<Vec<Value>>, String> {
    let mut tests: Vec<Value> = Vec::new();
    for value in json_values(text, memory_for(text.len()), &[]) {
        let (mut value, _) = value?;
        if is_event(&value) {
            if is_start(&value) {
                tests.push(Value::Null);
            }
            if let Some(test) = tests.last_mut() {
                add_event(test, &mut value);
            }
        } else if value["start"].is_object() {
            // `--json-stream-full-output` prints the whole behind the events.
            let cookie = value["start"].string_field("cookie");
            tests.retain(|test| cookie.is_empty() || test["start"]["cookie"] != cookie);
            tests.push(value);
        } else {
            return Ok(None);
        }
    }
    Ok(Some(tests).filter(|tests| !tests.is_empty()))
}

fn add_event(test: &mut Value, event: &mut Value) {
    let data = event["data"].take();
    match event.string_field("event") {
        "interval" => match test["intervals"].as_array_mut() {
            Some(intervals) => intervals.push(data),
            None => test["intervals"] = vec![data].into(),
        },
        name => test[name] = data,
    }
}

/// Returns the transfer of a test, with its evidence: of the server's own result where the client,
/// which received, has that too (`--get-server-output`).
fn test_transfer(test: &Value) -> Result<(Transfer, Evidence), String> {
    let start = &test["start"];
    let asked = &start["test_start"];
    if asked.string_field("protocol") == "UDP" {
        return Err(about_datagrams(test));
    }
    let sends = goes_both_ways(test) || host_sends(test, test_directions(test)[0]);
    let server = &test["server_output_json"];
    if !sends && server["intervals"].is_array() {
        return test_transfer(server);
    }
    if !asked.is_object() {
        return Err(never_began(test));
    }
    let places = stream_places(test, sends);
    let samples = interval_samples(test, sends, &places);
    let intervals = samples.len() / places.len().max(1);
    let last = samples.iter().map(|sample| sample.at).max();
    let Some(last) = last.filter(|_| intervals >= MIN_INTERVALS) else {
        let few = count_noun(intervals, "interval");
        return Err(format!(
            "the test of iperf3 has {few}, too few to judge; run it for 10 s"
        ));
    };
    let bytes = TransferProgress::from_samples(&samples, last).bytes_at(last);
    let evidence = test_evidence(test, sends, &places, samples, last);
    let [local, remote] = connection_ends(&start["connected"][0]);
    let transfer = Transfer {
        program: evidence.program.clone(),
        pid: None,
        local,
        remote,
        streams: evidence.request.streams,
        direction: evidence.request.direction,
        bytes,
        watched: last,
        rate: BitRate::from_bytes_in(bytes, last),
        closed: false,
    };
    Ok((transfer, evidence))
}

/// Returns the sentence about a test of datagrams.
fn about_datagrams(test: &Value) -> String {
    let sum = &test["end"]["sum"];
    let lost = sum.percent_field("lost_percent");
    let lost = lost.map_or_else(String::new, |lost| format!(", of which {lost} were lost"));
    let rate = sum.rate_field("bits_per_second").unwrap_or_default();
    format!(
        "the test of iperf3 sent datagrams at {rate}{lost}; windows and buffers limit TCP, so test that: `iperf3 -c HOST -J`"
    )
}

/// Returns the addresses of a connection, this end's first.
fn connection_ends(connected: &Value) -> [String; 2] {
    ["local", "remote"].map(|end| {
        let host = connected.string_field(&format!("{end}_host"));
        let port = connected
            .number_field(&format!("{end}_port"))
            .unwrap_or_default();
        printable_line(&if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        })
    })
}

/// Returns the parts of the intervals that count, one for each stream that the end sends, or
/// receives.
fn stream_intervals(test: &Value, sends: bool) -> impl Iterator<Item = &Value> {
    let intervals = test["intervals"].as_array().into_iter().flatten();
    let streams = intervals
        .filter_map(|interval| interval["streams"].as_array())
        .flatten();
    streams.filter(move |part| part["omitted"] != true && part["sender"] != !sends)
}

/// Numbers of the streams by their sockets.
type StreamPlaces = BTreeMap<u64, u16>;

fn stream_places(test: &Value, sends: bool) -> StreamPlaces {
    let mut places = StreamPlaces::new();
    for socket in stream_intervals(test, sends).filter_map(|part| part["socket"].as_u64()) {
        let next = places.len() as u16;
        places.entry(socket).or_insert(next);
    }
    places
}

/// Returns a sample for the end of every interval of each stream.
fn interval_samples(test: &Value, sends: bool, places: &StreamPlaces) -> Vec<Sample> {
    let mss = segment_size(test);
    let has_unsent = keeps_buffer_filled(test);
    let mut counts: BTreeMap<u16, (ByteCount, SegCount)> = BTreeMap::new();
    let parts = stream_intervals(test, sends).filter_map(|part| {
        let stream = *places.get(&part["socket"].as_u64()?)?;
        let at = part.seconds_field("end")?;
        let (bytes, retransmitted) = counts.entry(stream).or_default();
        *bytes += part.bytes_field("bytes").unwrap_or_default();
        *retransmitted += part.segments_field("retransmits").unwrap_or_default();
        let tcp = if sends {
            TcpInfo {
                bytes_acked: Some(*bytes),
                total_retrans: part.get("retransmits").map(|_| *retransmitted),
                not_sent: part.bytes_field("snd_cwnd").filter(|_| has_unsent),
                ..interval_figures(part, mss)
            }
        } else {
            TcpInfo::default()
        };
        Some(Sample {
            at,
            stream,
            bytes: *bytes,
            tcp,
            memory: None,
        })
    });
    parts.collect()
}

/// Returns true if as much as the congestion window waits to be sent: iperf3 writes as fast as it
/// can, and the kernel makes a buffer that nobody fixed at least twice the window
/// (`tcp_sndbuf_expand`). Said of BBR alone, which leaves its window half empty: with another
/// congestion control, what is in flight shows by itself whether the window is full.
fn keeps_buffer_filled(test: &Value) -> bool {
    let start = &test["start"];
    let is_bbr = test["end"]
        .string_field("sender_tcp_congestion")
        .starts_with("bbr");
    is_bbr && !is_set(start, "sock_bufsize") && !is_set(&start["test_start"], "target_bitrate")
}

/// Returns the kernel's figures at the end of an interval. What was in flight is not stated: it is
/// the product of rate and round-trip time (Little's law), but no more than the window.
fn interval_figures(part: &Value, mss: ByteCount) -> TcpInfo {
    let window = part.known_bytes_field("snd_cwnd");
    let rtt = part.known_micros_field("rtt");
    let rate = part.rate_field("bits_per_second");
    let in_flight = window
        .zip(rtt.zip(rate))
        .map(|(window, (rtt, rate))| rate.bytes_in(rtt).min(window));
    let segments = |bytes: ByteCount| SegCount::new(bytes.get() / mss.get());
    TcpInfo {
        snd_mss: Some(mss),
        cwnd: window.map(segments),
        unacked: in_flight.map(segments),
        rtt,
        rtt_variation: part.known_micros_field("rttvar"),
        path_mtu: part.known_bytes_field("pmtu"),
        snd_wnd: part.known_bytes_field("snd_wnd"),
        ..TcpInfo::default()
    }
}

fn segment_size(test: &Value) -> ByteCount {
    ["tcp_mss", "tcp_mss_default"]
        .into_iter()
        .find_map(|name| test["start"].known_bytes_field(name))
        .unwrap_or(USUAL_MSS)
}

/// Returns the evidence of the end that wrote the result, of samples up to `last`.
fn test_evidence(
    test: &Value,
    sends: bool,
    places: &StreamPlaces,
    samples: Vec<Sample>,
    last: Span,
) -> Evidence {
    let sockets = socket_readbacks(test, sends, places);
    let [here, there] = ["host", "remote"].map(|end| machine_of_end(test, end, last));
    let evidence = Evidence {
        request: test_request(test, sends, places.len() as u16, last),
        program: Some("iperf3".to_owned()),
        is_watched: true,
        ..Evidence::default()
    };
    if sends {
        Evidence {
            steady: later_part(&samples, last),
            sender_samples: samples,
            sender_sockets: sockets,
            sender_machine: here,
            receiver_machine: there,
            ..evidence
        }
    } else {
        Evidence {
            steady: steady_of_receiver(&samples, None, last),
            receiver_samples: samples,
            receiver_sockets: sockets,
            receiver_machine: here,
            sender_machine: there,
            ..evidence
        }
    }
}

/// Returns all but the first interval, which has the ramp: intervals of a second are too coarse to
/// find its end, and a steady part of a few of them may lie between two losses.
fn later_part(samples: &[Sample], last: Span) -> Option<Steady> {
    let ramp = samples.iter().map(|sample| sample.at).min()?;
    let duration = last.saturating_sub(ramp);
    let progress = TransferProgress::from_samples(samples, last);
    (duration > ramp).then(|| progress.steady_between(ramp, last))
}

/// Returns the load of a test, as seen from the end that wrote the result.
fn test_request(test: &Value, sends: bool, streams: u16, last: Span) -> Request {
    let start = &test["start"];
    let asked = &start["test_start"];
    let known_rate = |value: &Value, name| {
        let rate = value.rate_field(name);
        rate.filter(|rate| *rate > BitRate::ZERO)
    };
    Request {
        direction: if sends {
            Direction::Upload
        } else {
            Direction::Download
        },
        streams,
        duration: last,
        block: asked.bytes_field("blksize").unwrap_or_default(),
        rate: [asked, start]
            .into_iter()
            .find_map(|value| known_rate(value, "target_bitrate")),
        pacing: known_rate(start, "fq_rate"),
        buffer: start
            .known_bytes_field("sock_bufsize")
            .map_or(Buffer::Automatic, Buffer::Request),
        writer: Writer::Blocking,
        ..Request::default()
    }
}

/// Returns the sockets of the streams, with the buffers that were read back.
fn socket_readbacks(test: &Value, sends: bool, places: &StreamPlaces) -> Vec<SocketReadback> {
    let (start, end) = (&test["start"], &test["end"]);
    let name = if sends {
        "sender_tcp_congestion"
    } else {
        "receiver_tcp_congestion"
    };
    let buffer = |name| start.bytes_field(name).unwrap_or_default();
    let connected = start["connected"].as_array().into_iter().flatten();
    let sockets = connected.filter_map(|connected| {
        let [local, remote] = connection_ends(connected);
        Some(SocketReadback {
            stream: *places.get(&connected["socket"].as_u64()?)?,
            sndbuf: buffer("sndbuf_actual"),
            rcvbuf: buffer("rcvbuf_actual"),
            congestion: printable_line(end.string_field(name)),
            local,
            remote,
            handshake: None,
            syn_quotes: Vec::new(),
        })
    });
    sockets.collect()
}

/// Returns the processor time of the program at one end, of its share in percent.
fn machine_of_end(test: &Value, end: &str, last: Span) -> Machine {
    let time = |name: &str| {
        let share = test["end"]["cpu_utilization_percent"].percent_field(&format!("{end}_{name}"));
        share.map(|share| last.scale_by(share.get()))
    };
    let whole = time("total").zip(time("user")).map(|(total, user)| {
        let whole = CpuSample {
            at: last,
            user,
            system: total.saturating_sub(user),
            ..CpuSample::default()
        };
        vec![CpuSample::default(), whole]
    });
    Machine {
        processors: whole.unwrap_or_default(),
        ..Machine::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: &[u8] = include_bytes!("../../tests/files/iperf3-window.json");

    fn only(text: &[u8]) -> (Transfer, Evidence) {
        iperf3_transfers(text).unwrap().unwrap().remove(0)
    }

    fn json(text: &[u8]) -> Value {
        serde_json::from_slice(text).unwrap()
    }

    /// Over 100 Mbit/s and 40 ms, with `-w 64K`.
    #[test]
    fn a_sender_has_its_windows_its_buffers_and_what_was_in_flight() {
        let (transfer, evidence) = only(WINDOW);
        assert_eq!(
            (transfer.direction, transfer.streams),
            (Direction::Upload, 1)
        );
        assert_eq!(transfer.bytes, ByteCount::new(6_650_856));
        assert_eq!(transfer.remote, "198.18.0.2:5201");
        assert_eq!(
            evidence.request.buffer,
            Buffer::Request(ByteCount::new(65_536))
        );
        assert_eq!(evidence.sender_sockets[0].sndbuf, ByteCount::new(131_072));
        let tcp = &evidence.sender_samples[0].tcp;
        assert_eq!(tcp.snd_wnd, Some(ByteCount::new(80_480)));
        assert_eq!(tcp.congestion_window(), Some(ByteCount::new(249_056)));
        // 12.7 Mbit/s over 43.4 ms.
        assert_eq!(tcp.unacked, Some(SegCount::new(47)));
        assert_eq!(tcp.not_sent, None, "its buffer is fixed");
        let steady = evidence.steady.unwrap();
        assert!(
            (steady.rate.as_f64() / 13.5e6 - 1.0).abs() < 0.05,
            "{}",
            steady.rate
        );
        let [_, cpu] = &evidence.receiver_machine.processors[..] else {
            panic!("{:?}", evidence.receiver_machine);
        };
        assert_eq!(cpu.at, transfer.watched);
    }

    #[test]
    fn a_stream_of_events_is_the_same_test() {
        let mut test = json(WINDOW);
        let (_, whole) = only(WINDOW);
        let intervals = test["intervals"].take();
        let event = |name: &str, data: &Value| {
            format!("{}\n", serde_json::json!({"event": name, "data": data}))
        };
        let mut text = event("start", &test["start"]);
        for interval in intervals.as_array().unwrap() {
            text += &event("interval", interval);
        }
        text += &event("end", &test["end"]);
        assert_eq!(only(text.as_bytes()).1, whole);
    }

    #[test]
    fn a_receiver_knows_only_what_arrived_unless_it_has_the_result_of_the_server() {
        let mut client = json(WINDOW);
        let server = client.clone();
        client["start"]["test_start"]["reverse"] = 1.into();
        for interval in client["intervals"].as_array_mut().unwrap() {
            interval["streams"][0]["sender"] = false.into();
        }
        let (transfer, evidence) = only(client.to_string().as_bytes());
        assert_eq!(transfer.direction, Direction::Download);
        assert!(evidence.sender_samples.is_empty() && evidence.receiver_samples.len() == 4);
        client["server_output_json"] = server;
        let (transfer, evidence) = only(client.to_string().as_bytes());
        assert_eq!(
            (transfer.direction, evidence.sender_samples.len()),
            (Direction::Upload, 4)
        );
    }

    #[test]
    fn tests_that_cannot_be_judged_are_refused_with_the_reason() {
        let files: [(&[u8], &str); 4] = [
            (
                include_bytes!("../../tests/files/iperf3-udp.json"),
                "sent datagrams at 5.236 Mbit/s",
            ),
            (
                include_bytes!("../../tests/files/iperf3-refused.json"),
                "failed before it began",
            ),
            (
                include_bytes!("../../tests/files/iperf3-tcp.json"),
                "1 interval, too few",
            ),
            (b"{\"start\":", "not JSON"),
        ];
        for (text, says) in files {
            let why = iperf3_transfers(text).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
        for other in ["{}", "{\"schema\":2}"] {
            assert_eq!(iperf3_transfers(other.as_bytes()), Ok(None));
        }
    }
}
