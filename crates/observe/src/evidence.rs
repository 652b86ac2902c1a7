//! The evidence of each transfer that was watched.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fullpipe_record::{
    Buffer, Direction, Evidence, Framing, Request, Sample, SocketReadback, Steady, Transfer,
    Writer, find_steady, steady_of_receiver,
};
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::connections::{
    ObservedConnection, WatchedConnections, acknowledged_bytes, received_bytes,
};

/// Minimum share of the bytes of the largest: a smaller transfer is left out, and so is a
/// connection of a transfer, which only carries commands.
const MIN_SHARE: f64 = 0.1;

/// Maximum number of transfers that are returned.
const MAX_TRANSFERS: usize = 8;

/// Ramp of a transfer that is judged whole: it leaves out only the first snapshot, from which the
/// counters are counted.
const FIRST_SNAPSHOT: Span = Span::from_nanos(1);

/// Returns the transfers that were watched, the one that moved most bytes first: connections of one
/// program with one other host are one transfer with as many streams. Transfers with too few
/// snapshots are left out.
///
/// The evidence is of this end alone: as the sender where most of the data was sent, else as the
/// receiver.
pub fn watched_transfers(
    watched: &WatchedConnections,
    bandwidth: Option<BitRate>,
) -> Vec<(Transfer, Evidence)> {
    let mut groups = connection_groups(watched);
    groups.retain(|group| snapshot_count(group) >= watched.fewest_snapshots);
    groups.sort_by_key(|group| std::cmp::Reverse(offered_bytes(group)));
    let most = groups
        .first()
        .map_or(ByteCount::ZERO, |group| offered_bytes(group));
    groups.retain(|group| carries_data(offered_bytes(group), most));
    groups.truncate(MAX_TRANSFERS);
    groups
        .iter()
        .map(|group| {
            let evidence = group_evidence(group, watched, bandwidth);
            (watched_transfer(group, &evidence), evidence)
        })
        .collect()
}

/// Returns the bytes that were seen to move over connections of which there are too few snapshots,
/// where that is not next to nothing compared with those of [`watched_transfers`]; zero if there
/// are none.
pub fn moved_too_briefly(watched: &WatchedConnections) -> ByteCount {
    let (judged, brief): (Vec<_>, Vec<_>) = connection_groups(watched)
        .into_iter()
        .partition(|group| snapshot_count(group) >= watched.fewest_snapshots);
    let most = judged
        .iter()
        .map(|group| offered_bytes(group))
        .max()
        .unwrap_or_default();
    let moved: ByteCount = brief.iter().flatten().map(|course| course.moved).sum();
    if carries_data(moved, most) {
        moved
    } else {
        ByteCount::ZERO
    }
}

/// Returns the connections that carry data, those of one program with one other host together.
fn connection_groups(watched: &WatchedConnections) -> Vec<Vec<ConnectionHistory<'_>>> {
    let mut groups: BTreeMap<(Option<String>, IpAddr, bool), Vec<ConnectionHistory>> =
        BTreeMap::new();
    for (stream, seen) in watched.connections.iter().enumerate() {
        let course = ConnectionHistory::from_samples(stream as u16, seen, watched);
        if course.offered > ByteCount::ZERO {
            let key = (
                seen.owner.program.clone(),
                seen.remote.ip(),
                course.receives,
            );
            groups.entry(key).or_default().push(course);
        }
    }
    let mut groups: Vec<Vec<ConnectionHistory>> = groups.into_values().collect();
    groups.iter_mut().for_each(keep_those_with_data);
    groups
}

fn offered_bytes(group: &[ConnectionHistory]) -> ByteCount {
    group.iter().map(|course| course.offered).sum()
}

fn keep_those_with_data(group: &mut Vec<ConnectionHistory>) {
    let most = group
        .iter()
        .map(|course| course.offered)
        .max()
        .unwrap_or_default();
    group.retain(|course| carries_data(course.offered, most));
}

/// Returns true if a connection of a transfer is one that carries its data, where it moved so many
/// bytes, and the one that moved most moved `most`.
pub fn carries_data(moved: ByteCount, most: ByteCount) -> bool {
    moved >= most.scale_by(MIN_SHARE)
}

/// One connection over the time for which it was watched.
struct ConnectionHistory<'w> {
    seen: &'w ObservedConnection,
    /// Set if more bytes arrived at this end than at the other.
    receives: bool,
    /// Bytes in the direction in which more were moved.
    moved: ByteCount,
    /// Bytes in that direction, with those that were written and never arrived.
    offered: ByteCount,
    samples: Vec<&'w Sample>,
}

impl<'w> ConnectionHistory<'w> {
    fn from_samples(
        stream: u16,
        seen: &'w ObservedConnection,
        watched: &'w WatchedConnections,
    ) -> Self {
        let samples = watched.samples.iter();
        let samples: Vec<_> = samples.filter(|sample| sample.stream == stream).collect();
        let [sent, received] = [acknowledged_bytes, received_bytes].map(|count| {
            let [first, last] = [samples.first(), samples.last()]
                .map(|sample| sample.map_or(ByteCount::ZERO, |one| count(one)));
            last.saturating_sub(if seen.is_old { first } else { ByteCount::ZERO })
        });
        let waiting = samples
            .last()
            .map_or(ByteCount::ZERO, |last| last.unacknowledged_bytes());
        let moved = sent.max(received);
        Self {
            seen,
            receives: received > sent + waiting,
            moved,
            offered: moved.max(sent + waiting),
            samples,
        }
    }
}

fn snapshot_count(group: &[ConnectionHistory]) -> usize {
    group
        .iter()
        .map(|course| course.samples.len())
        .max()
        .unwrap_or(0)
}

/// Returns the transfer over the connections of a group, without its evidence.
fn watched_transfer(group: &[ConnectionHistory], evidence: &Evidence) -> Transfer {
    let seen = group.first().map(|course| course.seen);
    let bytes = moved_bytes(group);
    Transfer {
        program: evidence.program.clone(),
        pid: seen.and_then(|seen| seen.owner.pid),
        local: seen.map_or_else(String::new, |seen| seen.local.to_string()),
        remote: seen.map_or_else(String::new, |seen| seen.remote.to_string()),
        streams: group.len() as u16,
        direction: evidence.request.direction,
        bytes,
        watched: evidence.request.duration,
        rate: BitRate::from_bytes_in(bytes, evidence.request.duration),
        closed: group.iter().all(|course| course.seen.is_missing()),
    }
}

fn moved_bytes(group: &[ConnectionHistory]) -> ByteCount {
    group.iter().map(|course| course.moved).sum()
}

fn group_evidence(
    group: &[ConnectionHistory],
    watched: &WatchedConnections,
    bandwidth: Option<BitRate>,
) -> Evidence {
    let receives = group.iter().any(|course| course.receives);
    let begin = group
        .iter()
        .filter_map(|course| course.samples.first())
        .map(|sample| sample.at)
        .min()
        .unwrap_or_default();
    let samples: Vec<Sample> = group
        .iter()
        .zip(0..)
        .flat_map(|(course, stream)| renumber_samples(course, stream, begin))
        .collect();
    let sockets: Vec<SocketReadback> = group
        .iter()
        .zip(0..)
        .map(|(course, stream)| socket_readback(course, stream))
        .collect();
    let seen = group.first().map(|course| course.seen);
    let machine = seen.map(|seen| {
        watched
            .machines
            .connection_machine(seen.owner.pid, seen.remote.ip(), begin)
    });
    let request = group_request(group, receives, &samples, &sockets);
    let idle_rtt = samples
        .iter()
        .filter_map(|sample| sample.tcp.min_rtt)
        .filter(|rtt| *rtt > Span::ZERO)
        .min();
    let rate = BitRate::from_bytes_in(moved_bytes(group), request.duration);
    let steady = course_of_all(group, &samples, receives, rate);
    let [sender, receiver] = at_this_end(receives, watched.settings.clone());
    let [sender_sockets, receiver_sockets] = at_this_end(receives, sockets);
    let [sender_machine, receiver_machine] = at_this_end(receives, machine.unwrap_or_default());
    let [sender_samples, receiver_samples] = at_this_end(receives, samples);
    Evidence {
        request,
        idle_rtt,
        idle_spread: None,
        // The receiver's own estimate has the pauses of the sender in it.
        loaded_rtt: None,
        steady,
        sender,
        receiver,
        sender_sockets,
        receiver_sockets,
        sender_machine,
        receiver_machine,
        program: seen.and_then(|seen| seen.owner.program.clone()),
        is_watched: true,
        sender_samples,
        receiver_samples,
        bandwidth,
        framing: Framing::Ethernet,
        http2_wait: None,
        capture: None,
    }
}

/// Returns the load that would have made the transfer of a group.
fn group_request(
    group: &[ConnectionHistory],
    receives: bool,
    samples: &[Sample],
    sockets: &[SocketReadback],
) -> Request {
    let took = samples.iter().map(|sample| sample.at).max();
    Request {
        direction: if receives {
            Direction::Download
        } else {
            Direction::Upload
        },
        streams: group.len() as u16,
        duration: took.unwrap_or_default(),
        block: ByteCount::ZERO,
        buffer: fixed_buffer(group, sockets)
            .filter(|_| receives)
            .unwrap_or_default(),
        writer: Writer::Blocking,
        ..Request::default()
    }
}

/// Returns `known` for this end, and nothing for the other: the sender's first.
fn at_this_end<T: Default>(receives: bool, known: T) -> [T; 2] {
    if receives {
        [T::default(), known]
    } else {
        [known, T::default()]
    }
}

fn renumber_samples(course: &ConnectionHistory, stream: u16, begin: Span) -> Vec<Sample> {
    let bytes = if course.receives {
        received_bytes
    } else {
        acknowledged_bytes
    };
    let samples = course.samples.iter().map(|sample| Sample {
        at: sample.at.saturating_sub(begin),
        stream,
        bytes: bytes(sample),
        tcp: sample.tcp.clone(),
        memory: sample.memory,
    });
    samples.collect()
}

/// Returns the part of a transfer that is judged. If it was under way when the watching began, that
/// is the whole, as its ramp was not seen.
fn course_of_all(
    group: &[ConnectionHistory],
    samples: &[Sample],
    receives: bool,
    rate: BitRate,
) -> Option<Steady> {
    let took = samples.iter().map(|sample| sample.at).max()?;
    let ended_at = group
        .iter()
        .zip(0..)
        .map(|(_, stream)| last_data(samples, stream))
        .max()?;
    if group.iter().any(|course| course.seen.is_old) {
        let duration = took.saturating_sub(FIRST_SNAPSHOT);
        return Some(Steady {
            ramp: FIRST_SNAPSHOT,
            ramp_rate: rate,
            rate,
            duration,
        });
    }
    let with_data: Vec<Sample> = samples
        .iter()
        .filter(|sample| sample.at <= ended_at)
        .cloned()
        .collect();
    if receives {
        steady_of_receiver(&with_data, None, ended_at)
    } else {
        find_steady(&with_data, None, ended_at)
    }
}

/// Returns the time of the sample in which the last data of a stream had arrived; of its last
/// sample where more than a segment is still on its way. Programs exchange a few messages after the
/// data, which take round trips.
pub fn last_data(samples: &[Sample], stream: u16) -> Span {
    let mut own = samples.iter().filter(|sample| sample.stream == stream);
    let Some(last) = own.clone().next_back() else {
        return Span::ZERO;
    };
    let segment = last.tcp.snd_mss.unwrap_or_default();
    let is_over = last.unacknowledged_bytes() <= segment;
    own.find(|sample| is_over && last.bytes.saturating_sub(sample.bytes) <= segment)
        .unwrap_or(last)
        .at
}

fn socket_readback(course: &ConnectionHistory, stream: u16) -> SocketReadback {
    let memory = course
        .samples
        .first()
        .and_then(|sample| sample.memory)
        .unwrap_or_default();
    SocketReadback {
        stream,
        sndbuf: memory.sndbuf,
        rcvbuf: memory.rcvbuf,
        congestion: course.seen.congestion.clone(),
        local: course.seen.local.to_string(),
        remote: course.seen.remote.to_string(),
        handshake: None,
        syn_quotes: Vec::new(),
    }
}

/// Returns the receive buffer that the program asked for, half of what the kernel reports; `None`
/// unless the programs of all connections asked for one.
fn fixed_buffer(group: &[ConnectionHistory], sockets: &[SocketReadback]) -> Option<Buffer> {
    let is_fixed = group.iter().all(|course| course.seen.has_fixed_rcvbuf);
    let size = sockets
        .first()
        .map(|socket| ByteCount::new(socket.rcvbuf.get() / 2));
    size.filter(|_| is_fixed).map(Buffer::Request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::TcpInfo;
    use fullpipe_units::SegCount;

    /// Returns samples of one stream, each 100 ms after the one before, with these bytes.
    fn samples(bytes: &[u64], in_flight: u64) -> Vec<Sample> {
        let tcp = TcpInfo {
            snd_mss: Some(ByteCount::new(1000)),
            unacked: Some(SegCount::new(in_flight)),
            ..TcpInfo::default()
        };
        let sample = |(number, bytes): (u64, &u64)| Sample {
            at: Span::from_millis(100) * number,
            stream: 0,
            bytes: ByteCount::new(*bytes),
            tcp: tcp.clone(),
            memory: None,
        };
        (0..).zip(bytes).map(sample).collect()
    }

    #[test]
    fn messages_after_the_data_are_not_its_course() {
        let course = [0, 50_000, 100_000, 100_000, 100_040, 100_300];
        assert_eq!(last_data(&samples(&course, 1), 0), Span::from_millis(200));
    }

    #[test]
    fn data_that_never_arrives_is() {
        let course = [0, 50_000, 100_000, 100_000, 100_000, 100_000];
        assert_eq!(last_data(&samples(&course, 9), 0), Span::from_millis(500));
        assert_eq!(last_data(&[], 0), Span::ZERO);
    }
}
