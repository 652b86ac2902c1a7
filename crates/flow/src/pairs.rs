//! The connections that two captures share: what was lost and changed between them.

use std::cmp::{Ordering, Reverse};

use fullpipe_record::{
    CapturePoint, ChangedField, FlowChange, FlowDirection, FlowEnd, FlowPair, FlowReport, SynReport, WindowEdit,
};
use fullpipe_units::{ByteCount, Ratio};

/// Returns the connections that both captures have: those between the same addresses, and then those whose SYNs have
/// the same sequence numbers, whose addresses a device translates. Those with most data come first.
pub fn pairs(first: &[FlowReport], second: &[FlowReport]) -> Vec<FlowPair> {
    let mut taken = vec![false; second.len()];
    let mut found: Vec<(&FlowReport, &FlowReport)> = Vec::new();
    let mut alone: Vec<&FlowReport> = Vec::new();
    for flow in first {
        match take(second, &mut taken, |other| same_addresses(flow, other)) {
            Some(other) => found.push((flow, other)),
            None => alone.push(flow),
        }
    }
    for flow in alone {
        found.extend(take(second, &mut taken, |other| same_numbers(flow, other)).map(|other| (flow, other)));
    }
    found.sort_by_key(|(flow, _)| Reverse(flow.bytes()));
    found.into_iter().map(|(flow, other)| pair(flow, other)).collect()
}

fn take<'f>(flows: &'f [FlowReport], taken: &mut [bool], fits: impl Fn(&FlowReport) -> bool) -> Option<&'f FlowReport> {
    let index = (0..flows.len()).find(|index| !taken[*index] && fits(&flows[*index]))?;
    taken[index] = true;
    flows.get(index)
}

fn same_addresses(one: &FlowReport, other: &FlowReport) -> bool {
    let addresses = |flow: &FlowReport| flow.ends.each_ref().map(|end| end.address.clone());
    let numbers = |flow: &FlowReport| flow.ends[0].syn.map(|syn| syn.sequence);
    // Ports may be used again; a device may also renumber the sequence, and then there is one connection alone.
    addresses(one) == addresses(other) && (one.number == other.number || numbers(one) == numbers(other))
}

fn same_numbers(one: &FlowReport, other: &FlowReport) -> bool {
    let numbers = |flow: &FlowReport| flow.ends.each_ref().map(|end| end.syn.map(|syn| syn.sequence));
    numbers(one) == numbers(other) && numbers(one)[0].is_some()
}

fn pair(one: &FlowReport, other: &FlowReport) -> FlowPair {
    let nearer = nearer_to_first(one, other);
    let both = [one, other];
    let scales = |flow: &FlowReport| flow.ends.each_ref().map(|end| end.syn.map(|syn| syn.window_scale));
    let direction = |end: usize| {
        // What an end sends passes the capture near it first.
        let near = if end == 0 { nearer } else { nearer.map(|index| 1 - index) }.unwrap_or(0);
        direction([&both[near].ends[end], &both[1 - near].ends[end]], scales(one) == scales(other))
    };
    FlowPair { numbers: [one.number, other.number], nearer_to_first: nearer, directions: [direction(0), direction(1)] }
}

/// Returns the index of the flow whose capture is nearer to the first end: its SYN has more hops left there, and the
/// other's has fewer; or the capture was taken at one of the ends.
fn nearer_to_first(one: &FlowReport, other: &FlowReport) -> Option<usize> {
    let hops = |flow: &FlowReport, end: usize| flow.ends[end].syn.map(|syn| syn.hops_left);
    for (end, nearer) in [(0, [0, 1]), (1, [1, 0])] {
        match hops(one, end).zip(hops(other, end)).map(|(one, other)| one.cmp(&other)) {
            Some(Ordering::Greater) => return Some(nearer[0]),
            Some(Ordering::Less) => return Some(nearer[1]),
            Some(Ordering::Equal) | None => {}
        }
    }
    match (one.point, other.point) {
        (Some(CapturePoint::First), _) | (_, Some(CapturePoint::Second)) => Some(0),
        (Some(CapturePoint::Second), _) | (_, Some(CapturePoint::First)) => Some(1),
        _ => None,
    }
}

/// Compares what an end sent, in the capture near it and in the other. Windows count the same in both if the SYNs of
/// both ends have the same scales there.
fn direction([near, far]: [&FlowEnd; 2], same_scales: bool) -> FlowDirection {
    // What was acknowledged arrived, whether it was captured or not.
    let lost = (near.bytes + near.missing_bytes).saturating_sub(far.bytes + far.missing_bytes);
    let full = near.mss.or(far.mss).map_or(1_448, ByteCount::get).max(1);
    let full = if near.timestamps { full.saturating_sub(12).max(1) } else { full };
    FlowDirection {
        from: near.address.clone(),
        lost_bytes: lost,
        lost_segments: lost.get().div_ceil(full),
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
        // Of windows that vary, not even the most arrives as large as most were sent where a device lowers them.
        let varying = near.window.zip(far.window).map(|(sent, arrived)| (sent.settled.get(), arrived.most.get()));
        let is_whole = far.packets as f64 >= near.packets as f64 * WHOLE;
        let lowered = varying.filter(|(sent, arrived)| arrived < sent && is_whole);
        if let Some((sent, arrived)) = settled(near).zip(settled(far)).or(lowered) {
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

/// Share of the packets in one capture that the other has, if both hold all of the connection.
const WHOLE: f64 = 0.9;

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

fn offered(is_offered: bool) -> String {
    if is_offered { "offered" } else { "not offered" }.to_owned()
}
