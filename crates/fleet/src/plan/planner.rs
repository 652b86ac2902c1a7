use std::collections::{BTreeMap, BTreeSet};

use fullpipe_record::Direction;

use super::mesh::{MeshHost, MeshSettings, circle_round, circle_size, rounds_of_mesh};
use super::slot::{Slot, SlotPurpose};

/// An ordered pair that is to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DuePair {
    /// Since when, in seconds since 1970.
    pub due: u64,
    /// Place of the sending host in the list of hosts.
    pub sender: usize,
    /// Place of the receiving host.
    pub receiver: usize,
}

/// When hosts, sites and whatever else carries one test at a time are taken.
#[derive(Debug, Clone, Default)]
pub struct BusyTimes(BTreeMap<String, BTreeMap<u64, u64>>);

impl BusyTimes {
    /// Notes that a resource is taken from one time to another, in seconds since 1970.
    pub fn take(&mut self, resource: &str, starts: u64, ends: u64) {
        let taken = self.0.entry(resource.to_owned()).or_default();
        taken.insert(starts, ends);
    }

    /// Returns true if a resource is free for that time.
    pub fn is_free(&self, resource: &str, starts: u64, ends: u64) -> bool {
        let last_before = self
            .0
            .get(resource)
            .and_then(|taken| taken.range(..ends).next_back());
        last_before.is_none_or(|(_, end)| *end <= starts)
    }
}

/// A slot with what it has for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSlot {
    /// The slot.
    pub slot: Slot,
    /// Hosts and uplinks that no other slot may have at that time.
    pub resources: Vec<String>,
}

/// The plan of a mesh.
pub struct MeshPlanner<'m> {
    hosts: &'m [MeshHost],
    settings: &'m MeshSettings,
    busy: BusyTimes,
    /// When each host may have its next turn.
    rested: Vec<u64>,
    /// Seconds from one turn of a host to its next one, at least.
    rest: u64,
}

impl<'m> MeshPlanner<'m> {
    /// Returns the planner of these hosts, whose times are taken so far as `busy` says, and whose
    /// newest turns began at `turns`, in seconds since 1970, 0 for a host that had none.
    pub fn new(
        hosts: &'m [MeshHost],
        settings: &'m MeshSettings,
        busy: BusyTimes,
        turns: &[u64],
    ) -> Self {
        let cell = settings.slot_seconds(SlotPurpose::Rotation);
        let rest = cell + settings.rest_seconds(rounds_of_mesh(hosts.len()));
        let rested = turns.iter().map(|turn| match turn {
            0 => 0,
            turn => turn + rest,
        });
        Self {
            hosts,
            settings,
            busy,
            rested: rested.collect(),
            rest,
        }
    }

    /// Returns the turns of pairs from one time to another, in seconds since 1970. A pair waits
    /// until both hosts, and the uplinks between their sites, are free and have rested.
    ///
    /// Pairs that are due for the same time go in the order of the circle method, so that a round
    /// has all hosts.
    pub fn plan_turns(&mut self, pairs: &[DuePair], from: u64, until: u64) -> Vec<PlannedSlot> {
        let cell = self.settings.slot_seconds(SlotPurpose::Rotation);
        let mut waiting: BTreeSet<(u64, usize, DuePair)> = pairs
            .iter()
            .map(|pair| (pair.due, self.order_of_pair(pair), *pair))
            .collect();
        let mut planned = Vec::new();
        let mut at = from.next_multiple_of(cell);
        while at < until {
            let due = waiting.range(..(at + 1, 0, DuePair::FIRST));
            let mut taken = Vec::new();
            for entry in due {
                let pair = entry.2;
                if self.rested[pair.sender].max(self.rested[pair.receiver]) > at {
                    continue;
                }
                let Some(slot) = self.try_slot(pair, SlotPurpose::Rotation, at) else {
                    continue;
                };
                for host in [pair.sender, pair.receiver] {
                    self.rested[host] = at + self.rest;
                }
                planned.push(slot);
                taken.push(*entry);
            }
            for entry in taken {
                waiting.remove(&entry);
                let due = at + self.settings.every.as_secs_f64() as u64;
                waiting.insert((due, entry.1, DuePair { due, ..entry.2 }));
            }
            at = self.next_start(at, cell, &waiting);
        }
        planned
    }

    /// Returns the next start of a round at which a pair may be due and two hosts have rested.
    fn next_start(&self, at: u64, cell: u64, waiting: &BTreeSet<(u64, usize, DuePair)>) -> u64 {
        let mut rested = self.rested.clone();
        rested.sort_unstable();
        let second = rested.get(1).copied().unwrap_or(u64::MAX);
        let due = waiting.first().map_or(u64::MAX, |first| first.0);
        let next = second.max(due).max(at + 1);
        next.checked_next_multiple_of(cell).unwrap_or(u64::MAX)
    }

    /// Returns the first slots of a pair from a time on, one for each purpose, however short a time
    /// its hosts have rested; fewer if there is no room until then.
    pub fn plan_at_once(
        &mut self,
        pair: DuePair,
        purposes: &[SlotPurpose],
        from: u64,
        until: u64,
    ) -> Vec<PlannedSlot> {
        let mut planned: Vec<PlannedSlot> = Vec::new();
        let mut at = from;
        for purpose in purposes {
            while at < until {
                let slot = self.try_slot(pair, *purpose, at);
                at += 1;
                if let Some(slot) = slot {
                    at = slot.slot.ends;
                    planned.push(slot);
                    break;
                }
            }
        }
        planned
    }

    /// Returns the place of a pair among those that are due at the same time.
    fn order_of_pair(&self, pair: &DuePair) -> usize {
        let round = circle_round(pair.sender, pair.receiver, self.hosts.len());
        if pair.sender < pair.receiver {
            round
        } else {
            round + circle_size(self.hosts.len())
        }
    }

    /// Takes a slot if all that it needs is free.
    fn try_slot(&mut self, pair: DuePair, purpose: SlotPurpose, at: u64) -> Option<PlannedSlot> {
        let ends = at + self.settings.slot_seconds(purpose);
        let [sender, receiver] = [pair.sender, pair.receiver].map(|host| &self.hosts[host]);
        let (client, server, direction) = roles(sender, receiver)?;
        let resources = self.free_resources(sender, receiver, at, ends)?;
        for resource in &resources {
            self.busy.take(resource, at, ends);
        }
        let slot = Slot {
            id: Slot::id_at(&client.name, &server.name, direction, at),
            client: client.name.clone(),
            server: server.name.clone(),
            direction,
            purpose,
            starts: at,
            ends,
            load: self.settings.load(purpose),
        };
        Some(PlannedSlot { slot, resources })
    }

    fn free_resources(
        &self,
        sender: &MeshHost,
        receiver: &MeshHost,
        at: u64,
        ends: u64,
    ) -> Option<Vec<String>> {
        let is_free = |resource: &String| self.busy.is_free(resource, at, ends);
        let mut resources = vec![host_resource(sender), host_resource(receiver)];
        if !resources.iter().all(is_free) {
            return None;
        }
        if sender.site != receiver.site {
            for site in [&sender.site, &receiver.site] {
                let lanes = 1..=self.settings.tests_of_site;
                let mut lanes = lanes.map(|lane| format!("site:{site}#{lane}"));
                resources.push(lanes.find(is_free)?);
            }
        }
        Some(resources)
    }
}

impl DuePair {
    const FIRST: Self = Self {
        due: 0,
        sender: 0,
        receiver: 0,
    };
}

fn host_resource(host: &MeshHost) -> String {
    format!("host:{}", host.name)
}

/// Returns who connects to whom, so that data goes from the sender to the receiver; `None` if
/// neither can be reached.
fn roles<'h>(
    sender: &'h MeshHost,
    receiver: &'h MeshHost,
) -> Option<(&'h MeshHost, &'h MeshHost, Direction)> {
    if receiver.reach.is_some() {
        return Some((sender, receiver, Direction::Upload));
    }
    let is_reached = sender.reach.is_some();
    is_reached.then_some((receiver, sender, Direction::Download))
}
