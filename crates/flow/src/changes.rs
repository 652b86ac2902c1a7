//! The fields that a device changed between two captures.

use std::iter::once;

use fullpipe_record::{ChangedField, FlowChange, FlowEnd, FlowPair, SynReport, WindowEdit};
use fullpipe_units::ByteCount;

/// Returns the text of a field.
type ShowField = fn(&SynReport) -> String;

/// The fields of a SYN that are compared, each with its text.
const SYN_FIELDS: [(ChangedField, ShowField); 9] = [
    (ChangedField::Mss, |syn| {
        optional_text(syn.mss.map(ByteCount::get))
    }),
    (ChangedField::WindowScale, |syn| {
        optional_text(syn.window_scale)
    }),
    (ChangedField::Sack, |syn| offered_text(syn.sack)),
    (ChangedField::Timestamps, |syn| offered_text(syn.timestamps)),
    (ChangedField::Ecn, |syn| offered_text(syn.ecn)),
    (ChangedField::Multipath, |syn| offered_text(syn.multipath)),
    (ChangedField::SynWindow, |syn| syn.window.get().to_string()),
    (ChangedField::Sequence, |syn| syn.sequence.to_string()),
    (ChangedField::Dscp, |syn| syn.dscp.to_string()),
];

/// A field with its text in the capture near the end that sent it, and in the other.
type ComparedField = (ChangedField, [String; 2]);

/// Compares what an end sent in the capture near it and in the other. Windows count the same in
/// both if the SYNs of both ends have the same scales there.
pub(crate) fn compare_ends(ends: [&FlowEnd; 2], same_scales: bool) -> Vec<FlowChange> {
    let [near, far] = ends;
    let windows = compared_windows(ends).filter(|_| same_scales);
    once((ChangedField::Address, ends.map(|end| end.address.clone())))
        .chain(near.syn.zip(far.syn).into_iter().flat_map(syn_fields))
        .chain(
            windows.map(|windows| (ChangedField::Window, windows.map(|bytes| bytes.to_string()))),
        )
        .filter(|(_, [before, after])| before != after)
        .map(|(field, [before, after])| FlowChange {
            field,
            before,
            after,
        })
        .collect()
}

/// Returns the fields of a SYN as it was sent and as it arrived, as far as both are known.
fn syn_fields((sent, arrived): (SynReport, SynReport)) -> Vec<ComparedField> {
    let unchanged = SynReport {
        hops_left: sent.hops_left,
        ..arrived
    };
    // Of most connections nothing was changed but the hops that are left.
    if sent == unchanged {
        return Vec::new();
    }
    let is_cut = sent.options_cut || arrived.options_cut;
    SYN_FIELDS
        .map(|(field, show)| (field, [show(&sent), show(&arrived)]))
        .into_iter()
        // What a snap length may have cut off is not known to be absent.
        .filter(|(field, texts)| {
            let is_known = !texts
                .iter()
                .any(|text| [NONE, NOT_OFFERED].contains(&text.as_str()));
            !is_cut || *field == ChangedField::Ecn || is_known
        })
        .collect()
}

/// Returns the windows of an end that are to be the same in both captures: those that it settled
/// at.
fn compared_windows([near, far]: [&FlowEnd; 2]) -> Option<[u64; 2]> {
    let (sent, arrived) = near.window.zip(far.window)?;
    let settled = [sent, arrived].map(|window| window.settled.get());
    if [sent, arrived]
        .iter()
        .all(|window| window.settled_share.get() >= STEADY_WINDOW)
    {
        return Some(settled);
    }
    // Of windows that vary, not even the most arrives as large as most were sent where a device
    // lowers them.
    let is_whole = far.packets as f64 >= near.packets as f64 * WHOLE;
    (is_whole && arrived.most < sent.settled).then_some([settled[0], arrived.most.get()])
}

/// Returns the change of a field in what an end sent.
fn find_change(pair: &FlowPair, end: usize, field: ChangedField) -> Option<&FlowChange> {
    let changes = &pair.directions[end].changes;
    changes.iter().find(|change| change.field == field)
}

/// Returns the change that devices on the path made to the windows of the receiver of most data.
pub fn window_edit(pair: &FlowPair, sender: usize) -> WindowEdit {
    let scales = [0, 1].map(|end| find_change(pair, end, ChangedField::WindowScale));
    if scales.iter().flatten().any(|change| change.after == NONE) {
        WindowEdit::ScaleStripped
    } else if scales.iter().any(Option::is_some) {
        WindowEdit::ScaleRewritten
    } else if find_change(pair, 1 - sender, ChangedField::Window).is_some() {
        WindowEdit::Lowered
    } else {
        WindowEdit::Nothing
    }
}

/// Returns the segment size (MSS) that a SYN announces before and behind a device that lowers it;
/// of both directions, the larger step. `None` where none is lowered.
pub(crate) fn clamped_mss(pair: &FlowPair) -> Option<[ByteCount; 2]> {
    let of_mss = (0..2).filter_map(|end| find_change(pair, end, ChangedField::Mss));
    let sizes =
        of_mss.filter_map(|change| Some([change.before.parse().ok()?, change.after.parse().ok()?]));
    let lowered = sizes.filter(|[before, after]| after < before);
    lowered
        .max_by_key(|[before, after]| before - after)
        .map(|sizes: [u64; 2]| sizes.map(ByteCount::new))
}

/// Text of an option that is not there.
const NONE: &str = "none";
const NOT_OFFERED: &str = "not offered";

/// Share of the packets with one window from which that window is compared.
const STEADY_WINDOW: f64 = 0.9;

/// Share of the packets in one capture that the other has, if both hold all of the connection.
const WHOLE: f64 = 0.9;

fn optional_text<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

fn offered_text(is_offered: bool) -> String {
    if is_offered { "offered" } else { NOT_OFFERED }.to_owned()
}
