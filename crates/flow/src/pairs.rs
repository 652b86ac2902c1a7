//! The connections that two captures share.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use foldhash::fast::RandomState;
use fullpipe_record::{FlowPair, FlowReport};

use crate::comparison::{compare_flows, end_addresses};
use crate::passages::PacketTimes;

/// Returns the connections that both captures have: those between the same addresses, and then
/// those whose SYNs have the same sequence numbers, whose addresses a device translates. Those with
/// most data come first.
///
/// The end that opened a connection is not known where no SYN was captured: its ends may then stand
/// in another order in each capture, and what is returned has that of the first.
pub fn match_flows(first: FlowsWithTimes<'_>, second: FlowsWithTimes<'_>) -> Vec<FlowPair> {
    let search = FlowSearch::new_search(first.flows, second.flows);
    let matched = search
        .found
        .iter()
        .enumerate()
        .filter_map(|(index, other)| Some((index, (*other)?)));
    let mut found: Vec<(usize, usize)> = matched.collect();
    found.sort_by_key(|(index, _)| Reverse(first.flows[*index].total_bytes()));
    found
        .into_iter()
        .filter_map(|(index, other)| {
            Some(compare_flows(
                first.get_flow(index)?,
                second.get_flow(other)?,
            ))
        })
        .collect()
}

/// Returns the number that a connection of another capture has among `flows`.
pub(crate) fn number_of(flow: &FlowReport, flows: &[FlowReport]) -> Option<u64> {
    let search = FlowSearch::new_search(std::slice::from_ref(flow), flows);
    Some(flows[search.found[0]?].number)
}

/// The connections of a capture.
#[derive(Debug, Clone, Copy)]
pub struct FlowsWithTimes<'c> {
    /// Figures of the connections.
    pub flows: &'c [FlowReport],
    /// The times of packets of each, in the same order; without them, clocks and delays are not
    /// compared.
    pub times: &'c [PacketTimes],
}

impl<'c> FlowsWithTimes<'c> {
    fn get_flow(&self, index: usize) -> Option<(&'c FlowReport, Option<&'c PacketTimes>)> {
        Some((self.flows.get(index)?, self.times.get(index)))
    }
}

/// The connections of two captures, and those that are matched so far.
struct FlowSearch<'c> {
    first: &'c [FlowReport],
    second: &'c [FlowReport],
    /// Index in the second capture of each one of the first.
    found: Vec<Option<usize>>,
    /// The ones of the second that are matched.
    taken: Vec<bool>,
}

impl<'c> FlowSearch<'c> {
    fn new_search(first: &'c [FlowReport], second: &'c [FlowReport]) -> Self {
        let mut search = Self {
            first,
            second,
            found: vec![None; first.len()],
            taken: vec![false; second.len()],
        };
        // Ports may be used again: those of the same SYN come first.
        search.match_by_key(|flow| Some((end_addresses(flow), syn_number(flow, 0)?)));
        search.match_by_key(|flow| Some((end_addresses(flow), syn_number(flow, 1)?)));
        // A device may renumber the sequence, and a capture may begin after the SYN.
        search.match_by_key(|flow| Some(sorted_addresses(end_addresses(flow))));
        search.match_by_key(|flow| Some([syn_number(flow, 0)?, syn_number(flow, 1)?]));
        // A device may do both, or the SYN of one direction alone was captured.
        search.match_by_key(|flow| syn_number(flow, 0));
        search.match_by_key(|flow| syn_number(flow, 1));
        search
    }

    /// Matches the connections that have the same key, in the order of the captures; those without
    /// a key stay as they are.
    fn match_by_key<K: Eq + Hash>(&mut self, key: impl Fn(&'c FlowReport) -> Option<K>) {
        let mut open: HashMap<K, VecDeque<usize>, RandomState> = HashMap::default();
        for (index, flow) in self
            .second
            .iter()
            .enumerate()
            .filter(|(index, _)| !self.taken[*index])
        {
            if let Some(key) = key(flow) {
                open.entry(key).or_default().push_back(index);
            }
        }
        for (flow, found) in self
            .first
            .iter()
            .zip(&mut self.found)
            .filter(|(_, found)| found.is_none())
        {
            let Some(candidates) = key(flow).and_then(|key| open.get_mut(&key)) else {
                continue;
            };
            *found = candidates.pop_front_if(|index| may_be_same(flow, &self.second[*index]));
            if let Some(index) = *found {
                self.taken[index] = true;
            }
        }
    }
}

fn sorted_addresses([one, other]: [&str; 2]) -> [&str; 2] {
    if one <= other {
        [one, other]
    } else {
        [other, one]
    }
}

/// Returns the sequence number of the SYN of an end.
fn syn_number(flow: &FlowReport, end: usize) -> Option<u32> {
    Some(flow.ends[end].syn?.sequence)
}

/// Returns false for two connections that have neither an address in common nor the numbers of both
/// SYNs.
fn may_be_same(one: &FlowReport, other: &FlowReport) -> bool {
    let has_other_syn = (0..2).any(|end| {
        syn_number(one, end)
            .zip(syn_number(other, end))
            .is_some_and(|(one, other)| one != other)
    });
    let shares_address = end_addresses(one)
        .iter()
        .any(|address| end_addresses(other).contains(address));
    shares_address || !has_other_syn
}
