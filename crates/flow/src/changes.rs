//! The fields that a device changed between two captures.

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

/// Compares what an end sent in the capture near it and in the other. Windows count the same in
/// both if the SYNs of both ends have the same scales there.
pub(crate) fn compare_ends([near, far]: [&FlowEnd; 2], same_scales: bool) -> Vec<FlowChange> {
    let mut changes = Vec::new();
    let mut compare = |field, [before, after]: [String; 2]| {
        if before != after {
            changes.push(FlowChange {
                field,
                before,
                after,
            });
        }
    };
    compare(
        ChangedField::Address,
        [near.address.clone(), far.address.clone()],
    );
    // Of most connections nothing was changed but the hops that are left.
    let is_changed = |(sent, arrived): &(SynReport, SynReport)| {
        *sent
            != SynReport {
                hops_left: sent.hops_left,
                ..*arrived
            }
    };
    if let Some((sent, arrived)) = near.syn.zip(far.syn).filter(is_changed) {
        let is_cut = sent.options_cut || arrived.options_cut;
        for (field, show) in SYN_FIELDS {
            let shown = [show(&sent), show(&arrived)];
            // What a snap length may have cut off is not known to be absent.
            let is_absent = |text: &String| [NONE, NOT_OFFERED].contains(&text.as_str());
            if !is_cut || field == ChangedField::Ecn || !shown.iter().any(is_absent) {
                compare(field, shown);
            }
        }
    }
    if same_scales {
        let settled = |end: &FlowEnd| {
            let window = end
                .window
                .filter(|window| window.settled_share.get() >= STEADY_WINDOW)?;
            Some(window.settled.get())
        };
        // Of windows that vary, not even the most arrives as large as most were sent where a device
        // lowers them.
        let varying = near
            .window
            .zip(far.window)
            .map(|(sent, arrived)| (sent.settled.get(), arrived.most.get()));
        let is_whole = far.packets as f64 >= near.packets as f64 * WHOLE;
        let lowered = varying.filter(|(sent, arrived)| arrived < sent && is_whole);
        if let Some((sent, arrived)) = settled(near).zip(settled(far)).or(lowered) {
            compare(
                ChangedField::Window,
                [sent.to_string(), arrived.to_string()],
            );
        }
    }
    changes
}

/// Returns the change that devices on the path made to the windows of the receiver of most data.
pub fn window_edit(pair: &FlowPair, sender: usize) -> WindowEdit {
    let changed = |end: usize, field| {
        pair.directions[end]
            .changes
            .iter()
            .find(move |change| change.field == field)
    };
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

/// Returns the segment size (MSS) that a SYN announces before and behind a device that lowers it;
/// of both directions, the larger step. `None` where none is lowered.
pub(crate) fn clamped_mss(pair: &FlowPair) -> Option<[ByteCount; 2]> {
    let changes = pair
        .directions
        .iter()
        .flat_map(|direction| &direction.changes);
    let of_mss = changes.filter(|change| change.field == ChangedField::Mss);
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
