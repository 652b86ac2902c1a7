//! Silence after the data, as of a connection that its programs leave open: it changes no verdict.

use std::io::{self, Cursor};
use std::ops::Range;

use fullpipe_record::Sample;
use fullpipe_trace::PacketFile;
use fullpipe_units::{Span, Time};
use fullpipe_wire::{CapturedContent, CapturedSegment, pcap_record, read_captured};

/// Time from one keepalive to the next.
const INTERVAL: Span = Span::from_secs(10);
/// Number of keepalives.
const KEEPALIVES: u64 = 10;
/// Bytes of an IPv4 header without options, and the places of the fields in it and behind it.
const IP_HEADER: usize = 20;
const SEQUENCE: Range<usize> = 24..28;
const ACKNOWLEDGEMENT: Range<usize> = 28..32;

/// Adds samples of a connection in which nothing moves any more.
pub(crate) fn append_silence(samples: &mut Vec<Sample>) {
    let Some(last) = samples.last().cloned() else {
        return;
    };
    for second in 1..=(INTERVAL * KEEPALIVES).as_secs_f64() as u64 {
        let passed = Span::from_secs(second);
        let mut sample = Sample {
            at: last.at + passed,
            ..last.clone()
        };
        sample.tcp.since_data_sent = last.tcp.since_data_sent.map(|since| since + passed);
        sample.tcp.since_ack_received = last.tcp.since_ack_received.map(|since| since + passed);
        samples.push(sample);
    }
}

/// A packet of IPv4 in a capture.
struct KeptPacket {
    at: Time,
    header: Vec<u8>,
    segment: CapturedSegment,
}

/// Returns a capture of raw IPv4 with keepalives of the sender behind its last packet, each with
/// its answer. What was on the way at last is acknowledged a round trip later, of `rtt`.
///
/// # Errors
/// Fails if the capture cannot be read.
pub(crate) fn append_keepalives(file: &[u8], rtt: Span) -> io::Result<Vec<u8>> {
    let mut extended = file.to_vec();
    let mut packets =
        PacketFile::new(Cursor::new(file.to_vec()), "capture").map_err(io::Error::other)?;
    let (mut data, mut answer, mut last) = (None, None, Time::ZERO);
    while let Some(packet) = packets.next_packet().map_err(io::Error::other)? {
        last = packet.at;
        let captured = read_captured(packet.link, packet.bytes, packet.original as usize);
        let CapturedContent::Tcp(segment) = captured else {
            continue;
        };
        let header = packet.bytes[..header_length(packet.bytes)].to_vec();
        let kept = KeptPacket {
            at: packet.at,
            header,
            segment,
        };
        *if segment.payload > 0 {
            &mut data
        } else {
            &mut answer
        } = Some(kept);
    }
    let (Some(data), Some(answer)) = (data, answer) else {
        return Ok(extended);
    };
    let next = data.segment.sequence.wrapping_add(data.segment.payload);
    extended.extend(record_of(
        &answer,
        last + rtt,
        answer.segment.sequence,
        next,
    ));
    for number in 1..=KEEPALIVES {
        let at = last + INTERVAL * number;
        extended.extend(record_of(
            &data,
            at,
            next.wrapping_sub(1),
            data.segment.acknowledgement,
        ));
        // The answer takes as long as the last one did, or no time if that came before the data.
        let answered = at + answer.at.duration_since(data.at);
        extended.extend(record_of(&answer, answered, answer.segment.sequence, next));
    }
    Ok(extended)
}

/// Returns the bytes of the headers of IP and TCP.
fn header_length(packet: &[u8]) -> usize {
    let words = packet.get(IP_HEADER + 12).map_or(5, |byte| byte >> 4);
    (IP_HEADER + usize::from(words) * 4).min(packet.len())
}

/// Returns the record of a packet without data, with the headers of another one.
fn record_of(packet: &KeptPacket, at: Time, sequence: u32, acknowledged: u32) -> Vec<u8> {
    let mut header = packet.header.clone();
    let length = header.len() as u32;
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    header[SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
    header[ACKNOWLEDGEMENT].copy_from_slice(&acknowledged.to_be_bytes());
    let mut record = pcap_record(at, length, length).to_vec();
    record.extend(header);
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::TcpInfo;
    use fullpipe_units::ByteCount;
    use fullpipe_wire::{LinkType, pcap_header};

    /// Returns a packet without options, with so many bytes of data.
    fn packet(ports: [u16; 2], sequence: u32, payload: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0];
        packet.extend((40 + payload).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet.extend(sequence.to_be_bytes());
        packet.extend([0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        packet.resize(40 + usize::from(payload), 0);
        packet
    }

    #[test]
    fn keepalives_begin_below_what_was_sent_and_are_answered() {
        let mut file = pcap_header(LinkType::RAW, 65_535).to_vec();
        for (millis, bytes) in [
            (0, packet([4000, 80], 100, 1000)),
            (40, packet([80, 4000], 1, 0)),
        ] {
            let at = Time::ZERO + Span::from_millis(millis);
            file.extend(pcap_record(at, bytes.len() as u32, bytes.len() as u32));
            file.extend(bytes);
        }
        let extended = append_keepalives(&file, Span::from_millis(40)).unwrap();
        let mut packets = PacketFile::new(Cursor::new(extended), "extended").unwrap();
        let mut seen = Vec::new();
        while let Some(packet) = packets.next_packet().unwrap() {
            let CapturedContent::Tcp(segment) =
                read_captured(packet.link, packet.bytes, packet.original as usize)
            else {
                panic!("{packet:?}");
            };
            let millis = packet.at.duration_since(Time::ZERO).as_millis_f64() as u64;
            seen.push((
                millis,
                segment.source.port(),
                segment.sequence,
                segment.acknowledgement,
            ));
        }
        assert_eq!(seen.len(), 3 + 2 * KEEPALIVES as usize);
        let keepalive = [(10_040, 4000, 1099, 1), (10_080, 80, 1, 1100)];
        assert_eq!((seen[2], &seen[3..5]), ((80, 80, 1, 1100), &keepalive[..]));
    }

    #[test]
    fn nothing_moves_in_a_silence_but_the_time_since() {
        let tcp = TcpInfo {
            since_data_sent: Some(Span::from_millis(5)),
            ..TcpInfo::default()
        };
        let bytes = ByteCount::new(1000);
        let mut samples = vec![Sample {
            at: Span::from_secs(8),
            stream: 0,
            bytes,
            tcp,
            memory: None,
        }];
        append_silence(&mut samples);
        let last = samples.last().unwrap();
        assert_eq!(
            (samples.len(), last.at, last.bytes),
            (101, Span::from_secs(108), bytes)
        );
        assert_eq!(last.tcp.since_data_sent, Some(Span::from_millis(100_005)));
    }
}
