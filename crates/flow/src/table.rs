//! The connections of a capture.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use fullpipe_record::{Evidence, FlowReport};
use fullpipe_units::Time;
use fullpipe_wire::Segment;

use crate::evidence::{evidence, transfer};
use crate::flow::{Flow, is_first_syn};
use crate::key::Key;

/// Maximum number of connection attempts that wait for an answer. Beyond it the older half is only counted.
const MAX_ATTEMPTS: usize = 1 << 18;

/// Connections so far, by keyed hashes: whoever sends the packets must not choose their places.
#[derive(Debug, Default)]
pub struct Flows {
    begin: Option<Time>,
    /// Index of the latest connection of each key.
    latest: HashMap<Key, usize, RandomState>,
    /// The connection of the segment before.
    last: Option<(Key, usize)>,
    all: Vec<Flow>,
    /// SYNs that nobody answered yet: a flood of them must not take the room of connections.
    attempts: HashMap<Key, Attempt, RandomState>,
    unanswered: u64,
}

/// Maximum number of times that a SYN is seen again. Linux sends it six times more (`tcp_syn_retries`).
const MAX_REPEATS: usize = 16;

/// A SYN that waits for its answer.
#[derive(Debug)]
struct Attempt {
    at: Time,
    syn: Segment,
    /// Times at which it was sent again.
    again: Vec<Time>,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The connections, by their first packet.
    pub flows: Vec<FlowReport>,
    /// Connection attempts that nobody answered.
    pub unanswered: u64,
    /// The transfers that were asked for, those with most data first.
    pub transfers: Vec<TransferEvidence>,
}

/// Connections that carried one transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferEvidence {
    /// Their numbers, the one with most data first.
    pub flows: Vec<u64>,
    /// Their evidence.
    pub evidence: Evidence,
}

/// The transfers of which evidence is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explained {
    /// As many of the largest.
    Largest(usize),
    /// The one that a connection of this number belongs to.
    Flow(u64),
}

/// Returns true if `segment` is the answer to a SYN.
fn answers(attempts: &HashMap<Key, Attempt, RandomState>, key: &Key, segment: &Segment) -> bool {
    // Only another connection between the same ports has one that waits.
    !attempts.is_empty() && attempts.get(key).is_some_and(|Attempt { syn, .. }| {
        segment.source == syn.destination && segment.acknowledgement == syn.sequence.wrapping_add(1)
    })
}

/// Returns the evidence of the transfers over `flows` that are to be explained.
fn transfers(flows: &[Flow], explained: Explained) -> Vec<TransferEvidence> {
    let mut by_size: Vec<usize> = (0..flows.len()).collect();
    by_size.sort_by_key(|index| Reverse(flows[*index].data()));
    let wanted = match explained {
        Explained::Largest(count) => count,
        Explained::Flow(number) => {
            by_size.retain(|index| *index as u64 + 1 == number);
            1
        }
    };
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for index in by_size {
        if found.len() == wanted {
            break;
        }
        if known.contains(&index) {
            continue;
        }
        let mut members = transfer(index, flows);
        members.retain(|member| !known.contains(member));
        members.sort_by_key(|member| Reverse(flows[*member].data()));
        known.extend(members.iter().copied());
        let of_one: Vec<&Flow> = members.iter().map(|member| &flows[*member]).collect();
        let flows = members.iter().map(|member| *member as u64 + 1).collect();
        found.extend(evidence(&of_one).map(|evidence| TransferEvidence { flows, evidence }));
    }
    found
}

impl Flows {
    /// Adds a segment that was captured at `at`.
    pub fn add(&mut self, segment: &Segment, at: Time) {
        self.begin.get_or_insert(at);
        let key = Key::of(segment);
        if self.last.is_none_or(|(last, _)| last != key) {
            self.last = self.latest.get(&key).map(|index| (key, *index));
        }
        match self.last.and_then(|(_, index)| self.all.get_mut(index)) {
            Some(flow) if !flow.is_over(segment) && !answers(&self.attempts, &key, segment) => {
                let from_first = flow.is_from_first(segment);
                flow.add(segment, at, from_first);
            }
            _ if is_first_syn(segment) => self.attempt(key, segment, at),
            _ => self.open(key, segment, at),
        }
    }

    /// Keeps a SYN until it is answered.
    fn attempt(&mut self, key: Key, segment: &Segment, at: Time) {
        if self.attempts.len() >= MAX_ATTEMPTS {
            self.forget_older_half();
        }
        let new = || Attempt { at, syn: *segment, again: Vec::new() };
        match self.attempts.entry(key) {
            Entry::Vacant(place) => {
                place.insert(new());
            }
            Entry::Occupied(place) => {
                let kept = place.into_mut();
                if kept.syn.sequence != segment.sequence || kept.syn.source != segment.source {
                    *kept = new();
                    self.unanswered += 1;
                } else if kept.again.len() < MAX_REPEATS {
                    kept.again.push(at);
                }
            }
        }
    }

    fn forget_older_half(&mut self) {
        let mut times: Vec<Time> = self.attempts.values().map(|attempt| attempt.at).collect();
        times.sort_unstable();
        let middle = times[times.len() / 2];
        let before = self.attempts.len();
        self.attempts.retain(|_, attempt| attempt.at > middle);
        self.unanswered += (before - self.attempts.len()) as u64;
    }

    /// Begins a connection with `segment`, and with the SYN before it if that is there.
    fn open(&mut self, key: Key, segment: &Segment, at: Time) {
        let attempt = self.attempts.remove(&key);
        let (first_at, first) = attempt.as_ref().map_or((at, *segment), |attempt| (attempt.at, attempt.syn));
        let mut flow = Flow::new(&first, first_at);
        if let Some(attempt) = &attempt {
            let times = std::iter::once(&attempt.at).chain(&attempt.again);
            times.for_each(|time| flow.add(&first, *time, true));
        }
        let from_first = flow.is_from_first(segment);
        flow.add(segment, at, from_first);
        self.latest.insert(key, self.all.len());
        self.last = Some((key, self.all.len()));
        self.all.push(flow);
    }

    /// Returns everything that was found, with the evidence of the transfers that are to be `explained`.
    pub fn finish(self, explained: Explained) -> Finished {
        let begin = self.begin.unwrap_or(Time::ZERO);
        let mut flows = self.all;
        flows.sort_by_key(Flow::first);
        Finished {
            flows: flows.iter().zip(1..).map(|(flow, number)| flow.report(number, begin)).collect(),
            unanswered: self.unanswered + self.attempts.len() as u64,
            transfers: transfers(&flows, explained),
        }
    }
}
