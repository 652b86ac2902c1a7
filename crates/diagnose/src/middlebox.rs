//! What devices between the ends do to windows and segments.

use fullpipe_model::framing;
use fullpipe_record::{At, Buffer, Cause, Handshake, HostSettings, IpVersion, Limit, Sample};
use fullpipe_units::{ByteCount, Ratio, SegCount, Span};

use crate::figures::Figures;
use crate::finding::Finding;
use crate::path;
use crate::snapshot::own_window;
use crate::syn_quotes;
use crate::thresholds::{CLAMPED, FAR_BELOW_UNSCALED, MSS_COSTS, SILENT_FOR, TIMEOUTS};

/// The receive window as `found`, if a device between the ends made it what it is.
///
/// Both ends must be seen to know it for certain. From the sending end alone it shows where the other's part of the handshake
/// was heard: an option that a device overwrites leaves padding, and a window that it lowers is as low there; and where a
/// router quotes an opening of this end that has lost its option. Where there is neither, scaling that was not agreed, with a
/// peer that agreed to other options of the same age, counts as taken away.
pub(crate) fn window(figures: &Figures, found: &Finding) -> Option<Finding> {
    let cause = scale_stripped(figures).or_else(|| scale_rewritten(figures)).or_else(|| clamped(figures))?;
    Some(Finding { cause, at: At::Middlebox, kind: Limit::ReceiveWindow, ..found.clone() })
}

fn scale_stripped(figures: &Figures) -> Option<Cause> {
    let evidence = figures.evidence;
    let offers = |host: Option<&HostSettings>| host.is_none_or(|host| host.window_scaling);
    let here = figures.snapshots().find_map(|snapshot| snapshot.sample.tcp.window_scaling)?;
    let there = evidence.receiver_samples.iter().find_map(|sample| sample.tcp.window_scaling);
    let both_offer = offers(evidence.sender.as_ref()) && offers(evidence.receiver.as_ref());
    // Where the two disagree, the option was lost on the way to one of them.
    let disagree = there.is_some_and(|there| there != here);
    let modern = figures.snapshots().any(|snapshot| {
        let tcp = &snapshot.sample.tcp;
        tcp.timestamps == Some(true) || tcp.sack == Some(true)
    });
    let offer_is_lost = !here && syn_quotes::lose_their_scale(evidence);
    // Of a host that is not seen, its part of the handshake tells whether it offered.
    let offered =
        evidence.receiver.is_some() || answer(figures).and_then(|answer| answer.options_overwritten) != Some(false);
    (disagree || offer_is_lost || (!here && both_offer && modern && offered)).then_some(Cause::WindowScaleStripped)
}

/// What the receiver said as the connection was opened, where the sender heard it.
fn answer(figures: &Figures) -> Option<Handshake> {
    figures.evidence.sender_sockets.iter().find_map(|socket| socket.handshake)
}

fn scale_rewritten(figures: &Figures) -> Option<Cause> {
    let read_here = shift_read(figures)?;
    let differs = match shift_sent(figures) {
        Some(sent_there) => read_here != sent_there,
        None => read_here > 0 && never_needed_a_scale(figures),
    };
    differs.then_some(Cause::WindowScaleRewritten)
}

/// How many times smaller than the receiver means them the sender takes its windows; `None` where both shift alike, or one
/// of them is not seen.
pub(crate) fn misread(figures: &Figures) -> Option<u64> {
    let scales_here = figures.snapshots().find_map(|snapshot| snapshot.sample.tcp.window_scaling)?;
    let read = if scales_here { shift_read(figures)? } else { 0 };
    1_u64.checked_shl(shift_sent(figures)?.checked_sub(read)?.into()).filter(|factor| *factor > 1)
}

/// By how much the sender shifts the windows that arrive, where it agreed to that.
fn shift_read(figures: &Figures) -> Option<u8> {
    let mut agreed =
        figures.snapshots().map(|snapshot| &snapshot.sample.tcp).filter(|tcp| tcp.window_scaling == Some(true));
    agreed.find_map(|tcp| tcp.snd_wscale)
}

/// By how much the receiver shifts those that it sends, where it agreed to that.
fn shift_sent(figures: &Figures) -> Option<u8> {
    let samples = figures.evidence.receiver_samples.iter().map(|sample| &sample.tcp);
    samples.filter(|tcp| tcp.window_scaling == Some(true)).find_map(|tcp| tcp.rcv_wscale)
}

/// Whether no window was ever so large that it takes a scale to say it, nor near that: a receiver that asked for one meant
/// more.
fn never_needed_a_scale(figures: &Figures) -> bool {
    let windows = || figures.snapshots().filter_map(|snapshot| snapshot.sample.tcp.snd_wnd);
    windows().max().is_some_and(|most| most <= FAR_BELOW_UNSCALED)
}

/// The window that arrives against the one that the receiver says it sends, each at its largest: they are not looked at
/// in the same moment. What it sent last has not arrived yet.
fn clamped(figures: &Figures) -> Option<Cause> {
    let arrives = figures.snapshots().filter_map(|snapshot| snapshot.sample.tcp.snd_wnd).max()?;
    let heard_until = figures.judged().1.saturating_sub(figures.rtt.unwrap_or_default());
    let heard = figures.evidence.receiver_samples.iter().filter(|sample| sample.at <= heard_until);
    let sent = heard.filter_map(|sample| own_window(&sample.tcp)).max();
    let lowered =
        sent.map_or_else(|| is_clamped_from_the_first(figures, arrives), |sent| arrives < sent.scaled(CLAMPED));
    lowered.then_some(Cause::WindowClamped)
}

/// Whether the field of the window holds the same number in the handshake, where it counts bytes, and at its largest,
/// `arrives`, where it counts scaled ones: that is the work of a device which knows no scale.
fn is_clamped_from_the_first(figures: &Figures, arrives: ByteCount) -> bool {
    let scale = figures.snapshots().find_map(|snapshot| snapshot.sample.tcp.snd_wscale).filter(|scale| *scale > 0);
    let first = answer(figures).and_then(|answer| answer.window);
    let both = first.zip(scale);
    both.is_some_and(|(first, scale)| Some(arrives.get()) == first.get().checked_shl(scale.into()))
}

/// Segments so small that their headers take the difference to what the path could carry, though both devices would let
/// larger ones pass and the program did not ask for it.
pub(crate) fn mss_clamped(figures: &Figures, found: &Finding) -> Option<Finding> {
    let request = &figures.evidence.request;
    // A receiver that tunes its window by what packets cost it makes a small one of many small packets.
    let by_small_packets = found.kind == Limit::ReceiveWindow && request.buffer == Buffer::Automatic;
    if request.mss.is_some() || !(found.kind == Limit::Capacity || by_small_packets) {
        return None;
    }
    let (got, possible) = (figures.mss?, possible_mss(figures)?);
    let efficiency = |mss: ByteCount| path::efficiency(figures.evidence, mss, figures.timestamps()).get();
    (efficiency(got) < efficiency(possible) * MSS_COSTS).then(|| Finding {
        kind: Limit::Mtu,
        cause: Cause::MssClamped,
        at: At::Middlebox,
        ..found.clone()
    })
}

/// Payload of the largest segment that both devices, as far as they are known, would let pass.
pub(crate) fn possible_mss(figures: &Figures) -> Option<ByteCount> {
    let evidence = figures.evidence;
    let devices = [&evidence.sender_machine.device, &evidence.receiver_machine.device];
    let devices = devices.into_iter().flatten().map(|device| device.mtu);
    let stated = figures.snapshots().filter_map(|snapshot| snapshot.sample.tcp.path_mtu).max();
    let mtu = devices.chain(stated).filter(|mtu| *mtu > ByteCount::ZERO).min()?;
    Some(mtu.saturating_sub(framing::tcp_headers(IpVersion::V4, figures.timestamps())))
}

/// Full segments that vanish: the sender times out again and again and nothing more is acknowledged, though small packets
/// come and go.
pub(crate) fn black_hole(figures: &Figures) -> Option<Finding> {
    let last: Vec<&Sample> = figures.flows.iter().filter_map(|flow| flow.whole.last().copied()).collect();
    let small_ones_pass = figures.evidence.loaded_rtt.is_some();
    let all_silent = !last.is_empty() && figures.flows.iter().all(|flow| silent_for(&flow.whole) >= SILENT_FOR);
    let all_time_out = last.iter().all(|sample| timeouts(sample) >= TIMEOUTS);
    (small_ones_pass && all_silent && all_time_out)
        .then(|| Finding::new(Limit::Mtu, Cause::BlackHole, At::Path, Ratio::ONE))
}

/// Timeouts without progress.
fn timeouts(sample: &Sample) -> u64 {
    sample.tcp.timeouts_in_a_row.map_or(0, SegCount::get)
}

/// How long before the last snapshot the last byte was acknowledged.
fn silent_for(samples: &[&Sample]) -> Span {
    let Some(last) = samples.last() else { return Span::ZERO };
    let progress = samples.iter().find(|sample| sample.tcp.bytes_acked == last.tcp.bytes_acked);
    progress.map_or(Span::ZERO, |first| last.at.saturating_sub(first.at))
}
