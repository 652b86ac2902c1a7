//! The connections that two captures share: what was lost and changed between them.

use std::cmp::{Ordering, Reverse};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use foldhash::fast::RandomState;
use fullpipe_record::{
    CapturePoint, ChangedField, FlowChange, FlowDirection, FlowEnd, FlowPair, FlowReport, SynReport, WindowEdit,
};
use fullpipe_units::{ByteCount, Ratio};

/// Returns the connections that both captures have: those between the same addresses, and then those whose SYNs have
/// the same sequence numbers, whose addresses a device translates. Those with most data come first.
///
/// The end that opened a connection is not known where no SYN was captured: its ends may then stand in another order in
/// each capture, and what is returned has that of the first.
pub fn pairs(first: &[FlowReport], second: &[FlowReport]) -> Vec<FlowPair> {
    let mut search = Search { first, second, found: vec![None; first.len()], taken: vec![false; second.len()] };
    // Ports may be used again: those of the same SYN come first.
    search.by(|flow| Some((addresses(flow), number(flow, 0)?)));
    search.by(|flow| Some((addresses(flow), number(flow, 1)?)));
    // A device may renumber the sequence, and a capture may begin after the SYN.
    search.by(|flow| Some(sorted(addresses(flow))));
    search.by(|flow| Some([number(flow, 0)?, number(flow, 1)?]));
    // The SYN of one direction alone was captured.
    search.by(|flow| number(flow, 0));
    search.by(|flow| number(flow, 1));
    let matched = first.iter().zip(&search.found).filter_map(|(flow, other)| Some((flow, &second[(*other)?])));
    let mut found: Vec<(&FlowReport, &FlowReport)> = matched.collect();
    found.sort_by_key(|(flow, _)| Reverse(flow.bytes()));
    found.into_iter().map(|(flow, other)| pair(flow, other)).collect()
}

/// The connections of two captures, and those that are matched so far.
struct Search<'c> {
    first: &'c [FlowReport],
    second: &'c [FlowReport],
    /// Index in the second capture of each one of the first.
    found: Vec<Option<usize>>,
    /// The ones of the second that are matched.
    taken: Vec<bool>,
}

impl<'c> Search<'c> {
    /// Matches the connections that have the same key, in the order of the captures; those without a key stay as they
    /// are.
    fn by<K: Eq + Hash>(&mut self, key: impl Fn(&'c FlowReport) -> Option<K>) {
        let mut open: HashMap<K, VecDeque<usize>, RandomState> = HashMap::default();
        for (index, flow) in self.second.iter().enumerate().filter(|(index, _)| !self.taken[*index]) {
            if let Some(key) = key(flow) {
                open.entry(key).or_default().push_back(index);
            }
        }
        for (flow, found) in self.first.iter().zip(&mut self.found).filter(|(_, found)| found.is_none()) {
            let Some(candidates) = key(flow).and_then(|key| open.get_mut(&key)) else { continue };
            *found = candidates.pop_front_if(|index| may_be_same(flow, &self.second[*index]));
            if let Some(index) = *found {
                self.taken[index] = true;
            }
        }
    }
}

fn addresses(flow: &FlowReport) -> [&str; 2] {
    flow.ends.each_ref().map(|end| end.address.as_str())
}

fn sorted([one, other]: [&str; 2]) -> [&str; 2] {
    if one <= other { [one, other] } else { [other, one] }
}

/// Returns the sequence number of the SYN of an end.
fn number(flow: &FlowReport, end: usize) -> Option<u32> {
    Some(flow.ends[end].syn?.sequence)
}

/// Returns false for two connections whose addresses differ and the number of a SYN as well.
fn may_be_same(one: &FlowReport, other: &FlowReport) -> bool {
    let differs = |end| number(one, end).zip(number(other, end)).is_some_and(|(one, other)| one != other);
    sorted(addresses(one)) == sorted(addresses(other)) || !(differs(0) || differs(1))
}

/// One connection as both captures show it.
#[derive(Clone, Copy)]
struct Both<'c> {
    flows: [&'c FlowReport; 2],
    /// True if the ends of the second stand in the other order.
    is_turned: bool,
}

impl<'c> Both<'c> {
    fn new(one: &'c FlowReport, other: &'c FlowReport) -> Self {
        let [first, second] = addresses(other);
        Self { flows: [one, other], is_turned: addresses(one) == [second, first] && first != second }
    }

    /// Returns an end, numbered as in the first capture, as the capture at `index` shows it.
    fn end(&self, index: usize, end: usize) -> &'c FlowEnd {
        let turns = usize::from(self.is_turned && index == 1);
        &self.flows[index].ends[end ^ turns]
    }

    fn point(&self, index: usize) -> Option<CapturePoint> {
        match self.flows[index].point? {
            CapturePoint::First if self.is_turned && index == 1 => Some(CapturePoint::Second),
            CapturePoint::Second if self.is_turned && index == 1 => Some(CapturePoint::First),
            point => Some(point),
        }
    }
}

fn pair(one: &FlowReport, other: &FlowReport) -> FlowPair {
    let both = Both::new(one, other);
    let nearer = nearer_to_first(&both);
    let scales = |index| [0, 1].map(|end| both.end(index, end).syn.map(|syn| syn.window_scale));
    let same_scales = scales(0) == scales(1);
    let direction = |end: usize| {
        // What an end sends passes the capture near it first.
        let near = if end == 0 { nearer } else { nearer.map(|index| 1 - index) }.unwrap_or(0);
        direction([both.end(near, end), both.end(1 - near, end)], same_scales)
    };
    FlowPair { numbers: [one.number, other.number], nearer_to_first: nearer, directions: [direction(0), direction(1)] }
}

/// Returns the index of the flow whose capture is nearer to the first end: its SYN has more hops left there, and the
/// other's has fewer; or the capture was taken at one of the ends.
fn nearer_to_first(both: &Both<'_>) -> Option<usize> {
    let hops = |index: usize, end: usize| both.end(index, end).syn.map(|syn| syn.hops_left);
    for (end, nearer) in [(0, [0, 1]), (1, [1, 0])] {
        match hops(0, end).zip(hops(1, end)).map(|(one, other)| one.cmp(&other)) {
            Some(Ordering::Greater) => return Some(nearer[0]),
            Some(Ordering::Less) => return Some(nearer[1]),
            Some(Ordering::Equal) | None => {}
        }
    }
    match (both.point(0), both.point(1)) {
        (Some(CapturePoint::First), _) | (_, Some(CapturePoint::Second)) => Some(0),
        (Some(CapturePoint::Second), _) | (_, Some(CapturePoint::First)) => Some(1),
        _ => None,
    }
}

/// Compares what an end sent, in the capture near it and in the other. Windows count the same in both if the SYNs of
/// both ends have the same scales there.
fn direction([near, far]: [&FlowEnd; 2], same_scales: bool) -> FlowDirection {
    if near.packets == 0 || far.packets == 0 {
        return FlowDirection { from: near.address.clone(), ..FlowDirection::default() };
    }
    // What was acknowledged arrived, whether it was captured or not.
    let lost = (near.bytes + near.missing_bytes).saturating_sub(far.bytes + far.missing_bytes);
    FlowDirection {
        from: near.address.clone(),
        in_both: true,
        lost_bytes: lost,
        lost_segments: lost.get().div_ceil(near.segment_size.get().max(1)),
        lost: Ratio::of(lost.as_f64(), near.bytes.as_f64().max(1.0)),
        reordered_packets: far.reordered_packets.saturating_sub(near.reordered_packets),
        routers: near.syn.zip(far.syn).and_then(|(near, far)| near.hops_left.checked_sub(far.hops_left)),
        changes: changes([near, far], same_scales),
    }
}

fn changes([near, far]: [&FlowEnd; 2], same_scales: bool) -> Vec<FlowChange> {
    let mut changes = Vec::new();
    let mut compare = |field, [before, after]: [String; 2]| {
        if before != after {
            changes.push(FlowChange { field, before, after });
        }
    };
    compare(ChangedField::Address, [near.address.clone(), far.address.clone()]);
    if let Some((sent, arrived)) = near.syn.zip(far.syn) {
        let both = |show: fn(&SynReport) -> String| [show(&sent), show(&arrived)];
        compare(ChangedField::Mss, both(|syn| optional(syn.mss.map(ByteCount::get))));
        compare(ChangedField::WindowScale, both(|syn| optional(syn.window_scale)));
        compare(ChangedField::Sack, both(|syn| offered(syn.sack)));
        compare(ChangedField::Timestamps, both(|syn| offered(syn.timestamps)));
        compare(ChangedField::Ecn, both(|syn| offered(syn.ecn)));
        compare(ChangedField::Multipath, both(|syn| offered(syn.multipath)));
        compare(ChangedField::SynWindow, both(|syn| syn.window.get().to_string()));
        compare(ChangedField::Sequence, both(|syn| syn.sequence.to_string()));
        compare(ChangedField::Dscp, both(|syn| syn.dscp.to_string()));
    }
    if same_scales {
        let settled = |end: &FlowEnd| {
            let window = end.window.filter(|window| window.settled_share.get() >= STEADY_WINDOW)?;
            Some(window.settled.get())
        };
        if let Some((sent, arrived)) = settled(near).zip(settled(far)) {
            compare(ChangedField::Window, [sent.to_string(), arrived.to_string()]);
        }
    }
    changes
}

/// Returns what was done on the way to the windows of the receiver of most data.
pub fn window_edit(pair: &FlowPair, sender: usize) -> WindowEdit {
    let changed = |end: usize, field| pair.directions[end].changes.iter().find(move |change| change.field == field);
    let scales = [0, 1].map(|end| changed(end, ChangedField::WindowScale));
    if scales.iter().flatten().any(|change| change.after == NONE) {
        WindowEdit::ScaleStripped
    } else if scales.iter().any(Option::is_some) {
        WindowEdit::ScaleRewritten
    } else if changed(1 - sender, ChangedField::Window).is_some() {
        WindowEdit::Lowered
    } else {
        WindowEdit::Nothing
    }
}

/// Text of an option that is not there.
const NONE: &str = "none";

/// Share of the packets with one window from which that window is compared.
const STEADY_WINDOW: f64 = 0.9;

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

fn offered(is_offered: bool) -> String {
    if is_offered { "offered" } else { "not offered" }.to_owned()
}
