//! One link, two clocks: what the lab carried in real time is offered again in virtual time, and
//! has the same fate packet by packet, to the nanosecond and the byte.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path as FilePath;

use crate::common::{fullpipe, run};
use fullpipe_link::{EditEffect, LinkDirection, PacketIncident, Train, cut_train};
use fullpipe_record::{Content, Document, Edit, Fate, Path, PathTruth, SegmentTruth};
use fullpipe_scenario::Scenario;
use fullpipe_testkit::{document, load_slot, path, require};
use fullpipe_units::{ByteCount, SegCount, Span, Time};
use fullpipe_wire::{CapturedContent, LinkType, read_captured};

const TIMEOUT: u64 = 60;

/// Addresses of the sender and the receiver.
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];

const MTU: u64 = 1500;

/// Bytes of the headers of IPv4 and TCP without options.
const IP_AND_TCP: u64 = 40;

/// A step in a lab of its own, with what was captured.
struct Step {
    path: Path,
    seed: u64,
    truth: PathTruth,
    /// Packets at the sender, and at the receiver.
    captures: [Vec<Seen>; 2],
}

/// A packet or train at one end of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    at: Time,
    from: Ipv4Addr,
    train: Replayed,
}

/// A packet or train as a simulator has it: fields, and no bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Replayed {
    /// Bytes of the headers of each packet.
    headers: u64,
    /// Bytes behind them, of all packets.
    payload: u64,
    /// Largest packet of its connection.
    mtu: u64,
    /// `None` of what is not TCP.
    segment: Option<SegmentTruth>,
}

/// A packet to which something happened: when, since the first of them, what, and the bytes in the
/// queue.
type Happened = (Span, Fate, Option<ByteCount>, Option<SegmentTruth>);

impl Step {
    /// Runs a scenario of one step of two seconds over a path with `keys`.
    fn run(keys: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let head = "name = \"replay\"\ntitle = \"A path of a test\"\n\n[path]\nseed = 7";
        let text = format!("{head}\n{keys}\n\n[[step]]\nname = \"one\"\nduration = \"2s\"\n");
        let scenario = Scenario::parse("replay.toml", &text).unwrap();
        let file = folder.path().join("replay.toml");
        fs::write(&file, text).unwrap();
        let [file, to] = [file.as_path(), folder.path()].map(|path| path.to_str().unwrap());
        let report = document(&run(
            &mut fullpipe(&["lab", "run", file, "--json", "--capture", to]),
            TIMEOUT,
        ));
        // The first run finds the path as it was made, whether its figures are valid or not.
        let first = &report["lab"][0]["steps"][0]["runs"][0];
        assert_eq!(
            first["capture"]["left_out"], 0,
            "packets are missing: {}",
            first["warnings"]
        );
        let [near, far, truth] = ["sender.pcap", "receiver.pcap", "truth.json"]
            .map(|end| folder.path().join(format!("replay-one-1-{end}")));
        let truth: Document = serde_json::from_str(&fs::read_to_string(truth).unwrap()).unwrap();
        let Content::PathTruth { path_truth } = truth.content else {
            panic!("{truth:?}")
        };
        assert!(
            path_truth
                .directions
                .iter()
                .all(|direction| direction.left_out == 0)
        );
        let captures = [near, far].map(|file| read(&file));
        Self {
            path: scenario.path,
            seed: scenario.seed,
            truth: *path_truth,
            captures,
        }
    }

    /// Returns what the host that sends in this direction offered, and what arrived, as one of the
    /// captures has it.
    fn captured(&self, direction: usize, end: usize) -> Vec<Seen> {
        self.captures[end]
            .iter()
            .filter(|seen| seen.from == HOSTS[direction])
            .cloned()
            .collect()
    }

    /// Offers in virtual time what each host offered in real time, and asserts that the same
    /// arrives and the same is lost; returns the number of packets to which something happened,
    /// there and back.
    fn replay(&self) -> [usize; 2] {
        let mut links = LinkDirection::new_pair(&self.path, self.seed);
        [0, 1].map(|direction| self.replay_direction(direction, &mut links[direction]))
    }

    fn replay_direction(&self, direction: usize, link: &mut LinkDirection<Replayed>) -> usize {
        let (offered, arrived) = (
            self.captured(direction, direction),
            self.captured(direction, 1 - direction),
        );
        assert!(
            offered.len() > 100 && arrived.len() > 100,
            "{} and {} packets",
            offered.len(),
            arrived.len()
        );
        link.keep_incidents(true);
        for Seen { at, train, .. } in &offered {
            for train in link.cut_train(train.clone()).collect::<Vec<_>>() {
                link.offer_train(*at, train);
            }
        }
        let mut deliveries: Vec<_> =
            std::iter::from_fn(|| link.pop_arrived(Time::from_nanos(u64::MAX))).collect();
        // The capture ended with some packets still on their way.
        let on_their_way = deliveries.split_off(arrived.len());
        let last_offer = offered.last().unwrap().at;
        assert!(
            on_their_way
                .iter()
                .all(|delivery| delivery.due > last_offer),
            "{on_their_way:?} never arrived"
        );
        for (delivery, seen) in deliveries.iter().zip(&arrived) {
            assert_eq!((delivery.due, &delivery.train), (seen.at, &seen.train));
        }
        let end = last_offer.max(arrived.last().unwrap().at);
        let replayed = replayed(link.take_incidents(), end);
        assert_eq!(replayed, self.happened(direction));
        replayed.len()
    }

    /// Returns what the lab wrote about packets of this direction.
    fn happened(&self, direction: usize) -> Vec<Happened> {
        let packets = &self.truth.directions[direction].packets;
        let first = packets.first().map_or(Span::ZERO, |packet| packet.at);
        packets
            .iter()
            .map(|packet| (packet.at - first, packet.fate, packet.queue, packet.segment))
            .collect()
    }
}

/// Returns what a replay did to packets until the capture ended.
fn replayed(mut incidents: Vec<PacketIncident<Replayed>>, end: Time) -> Vec<Happened> {
    incidents.retain(|incident| incident.at <= end);
    incidents.sort_by_key(|incident| incident.at);
    let first = incidents.first().map_or(Time::ZERO, |incident| incident.at);
    let packets = |PacketIncident {
                       at,
                       fate,
                       queue,
                       train,
                   }: PacketIncident<Replayed>| {
        cut_train(train, SegCount::new(1))
            .map(move |train| (at.duration_since(first), fate, queue, train.segment))
    };
    incidents.into_iter().flat_map(packets).collect()
}

/// Reads the packets of a file as the lab writes it: stamps in nanoseconds, IPv4 without a link
/// layer.
fn read(file: &FilePath) -> Vec<Seen> {
    let bytes = fs::read(file).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut mtus) = (24, HashMap::new());
    std::iter::from_fn(|| {
        let begin = (at < bytes.len()).then_some(at)?;
        let (kept, length) = (word(begin + 8) as usize, word(begin + 12));
        at = begin + 16 + kept;
        let stamp = u64::from(word(begin)) * 1_000_000_000 + u64::from(word(begin + 4));
        Some(Seen::new(
            Time::from_nanos(stamp),
            &bytes[begin + 16..at],
            length,
            &mut mtus,
        ))
    })
    .collect()
}

impl Seen {
    /// Reads a packet. `mtus` has the largest packet of each connection, by its ports, as both SYNs
    /// state it.
    fn new(at: Time, kept: &[u8], length: u32, mtus: &mut HashMap<[u16; 2], u64>) -> Self {
        let from: [u8; 4] = kept[12..16].try_into().unwrap();
        let ip = usize::from(kept[0] & 0x0F) * 4;
        let mut mtu = MTU;
        let (headers, segment) = match read_captured(LinkType::RAW, kept, length as usize) {
            CapturedContent::Tcp(segment) => {
                let mut ports = [segment.source.port(), segment.destination.port()];
                ports.sort_unstable();
                let stated = mtus.entry(ports).or_insert(MTU);
                *stated = segment
                    .options
                    .mss
                    .map_or(*stated, |mss| (*stated).min(u64::from(mss) + IP_AND_TCP));
                mtu = *stated;
                let truth = SegmentTruth {
                    ports: [segment.source.port(), segment.destination.port()],
                    sequence: segment.sequence,
                    acknowledgement: segment.acknowledgement,
                    payload: segment.payload,
                    identification: segment.identification,
                };
                (length - segment.payload, Some(truth))
            }
            _ => (ip as u32, None),
        };
        let (headers, payload) = (u64::from(headers), u64::from(length - headers));
        Self {
            at,
            from: from.into(),
            train: Replayed {
                headers,
                payload,
                mtu,
                segment,
            },
        }
    }
}

impl Replayed {
    /// Payload of each packet but perhaps the last: TCP fills them.
    fn size(&self) -> u64 {
        self.mtu - self.headers
    }

    /// The packets from number `first` on, which carry `payload` bytes.
    fn part(&self, first: u64, payload: u64) -> Self {
        let segment = self.segment.map(|segment| SegmentTruth {
            sequence: segment.sequence.wrapping_add((first * self.size()) as u32),
            payload: payload as u32,
            identification: segment
                .identification
                .map(|number| number.wrapping_add(first as u16)),
            ..segment
        });
        Self {
            payload,
            segment,
            ..self.clone()
        }
    }
}

impl Train for Replayed {
    fn segment_count(&self) -> SegCount {
        SegCount::new(self.payload.div_ceil(self.size()).max(1))
    }

    fn segment_bytes(&self) -> ByteCount {
        ByteCount::new(self.headers + self.payload.min(self.size()))
    }

    fn ip_bytes(&self) -> ByteCount {
        self.segment_count().of_size(ByteCount::new(self.headers)) + ByteCount::new(self.payload)
    }

    fn split_off(&mut self, at: SegCount) -> Self {
        let before = at.get() * self.size();
        let rest = self.part(at.get(), self.payload - before);
        *self = self.part(0, before);
        rest
    }

    fn flow_hash(&self) -> u64 {
        self.segment.map_or(0, |segment| {
            u64::from(segment.ports[0]) << 16 | u64::from(segment.ports[1])
        })
    }

    fn mark_ce(&mut self) -> bool {
        false
    }

    fn corrupt_bit(&mut self, _: u64) {}

    fn apply_edit(&mut self, _: &Edit) -> EditEffect {
        EditEffect::Unchanged
    }

    fn time_exceeded(&self, _: IpAddr) -> Option<Self> {
        None
    }

    fn too_big(&self, _: ByteCount) -> Option<Self> {
        None
    }
}

#[test]
fn random_losses_hit_the_same_packets_in_both_clocks() {
    require!(Lab);
    let _slot = load_slot();
    let step = Step::run("rate = \"50Mbit/s\"\nrtt = \"10ms\"\nqueue = \"1MiB\"\nloss = \"0.5%\"");
    let [there, back] = step.replay();
    assert!(
        there > 10 && back > 0,
        "{there} and {back} packets were lost"
    );
}

#[test]
fn packets_are_late_and_overtaken_alike_in_both_clocks() {
    require!(Lab);
    let _slot = load_slot();
    let keys =
        "rate = \"50Mbit/s\"\nrtt = \"10ms\"\nreorder = \"1% 3ms\"\njitter = \"exponential 1ms\"";
    let [there, _] = Step::run(keys).replay();
    assert!(there > 10, "{there} packets were overtaken");
}

/// Each number is that of a data packet of the test, whatever the handshake and the control
/// connection sent before.
#[test]
fn listed_data_packets_of_the_test_are_lost_and_no_others() {
    const NUMBERS: [usize; 5] = [1, 3, 4, 40, 2_000];
    require!(Lab);
    let _slot = load_slot();
    let numbers = NUMBERS.map(|number| number.to_string()).join(" ");
    // The queue holds whatever window there is, so that it drops nothing.
    let keys = format!(
        "rate = \"50Mbit/s\"\nrtt = \"10ms\"\nqueue = \"8MiB\"\n[path.forward]\nloss = \"data {numbers}\""
    );
    let step = Step::run(&keys);
    assert_eq!(step.replay(), [NUMBERS.len(), 0]);
    let lost: Vec<SegmentTruth> = step
        .happened(0)
        .into_iter()
        .filter_map(|(_, _, _, segment)| segment)
        .collect();
    let full = |train: &Replayed| train.headers + train.payload == MTU;
    let packets = step
        .captured(0, 0)
        .into_iter()
        .flat_map(|seen| cut_train(seen.train, SegCount::new(1)));
    let data = packets
        .filter(full)
        .filter_map(|packet| packet.segment)
        .filter(|data| data.ports == lost[0].ports);
    let data: Vec<SegmentTruth> = data.collect();
    assert_eq!(
        lost,
        NUMBERS.map(|number| data[number - 1]),
        "counted from one"
    );
}

/// Tests that load the machine.
mod tests_alone {
    use super::*;

    #[test]
    fn a_shallow_queue_drops_the_same_packets_of_trains_in_both_clocks() {
        require!(Lab);
        let _path = path();
        let step = Step::run("rate = \"1Gbit/s\"\nrtt = \"10ms\"\nqueue = \"150KiB\"");
        let [there, _] = step.replay();
        assert!(there > 10, "{there} packets were dropped");
    }
}
