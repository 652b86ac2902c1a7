//! The words for a limit that a capture shows, and its figures.

use fullpipe_record::{
    At, BurstRate, CapacityVerdict, CaptureEvidence, LegalVerdict, Limit, MtuVerdict,
    ReceiveWindowVerdict, SenderApplicationVerdict,
};
use fullpipe_units::{BitRate, count_noun};

use crate::finding::Finding;
use crate::signals::capture::CaptureView;
use crate::signals::sender::SenderView;
use crate::text::{self, Row};
use crate::thresholds::IDLE_CAPTURE_SHARE;

/// Returns the limit in one sentence, where a capture shows it by other figures than the hosts do.
pub(crate) fn captured_sentence(
    figures: &SenderView,
    capture: &CaptureEvidence,
    finding: &Finding,
) -> Option<String> {
    let view = CaptureView { figures, capture };
    let (rate, rtt) = (figures.rate, text::time_text(figures.rtt));
    let (in_flight, window) = (
        text::size_text(figures.mean_size(|one| one.outstanding)),
        allowed_window(&view),
    );
    match finding.verdict {
        LegalVerdict::Unknown(_) => Some(one_way(capture.only?, rate)),
        LegalVerdict::Mtu(MtuVerdict::BlackHole) if capture.only.is_some() => Some(format!(
            "The sender repeats its first {} again and again, and no answer was captured: full packets vanish on the \
             path, or all do.",
            view.passed_bytes()
        )),
        LegalVerdict::Capacity(CapacityVerdict::HostQueue) if capture.lost_before == 0 => Some(format!(
            "The sender holds itself back and sends at times of its own, though it never pauses and the receiver \
             allows {window}: its own queue may drop packets before they are captured, or its program writes little at \
             a time; {rate} is sent."
        )),
        LegalVerdict::ApplicationWindow(_) => Some(format!(
            "The sender holds itself back, and the receiving program answers in each round trip: it may grant a window \
             of its own, as SSH does. Always about {in_flight} is in flight, though the receiver allows {window} and \
             nothing is lost; over {rtt} that is {rate}."
        )),
        LegalVerdict::SendBuffer(_) => Some(of_buffer(&view, finding)),
        LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten) if capture.window_edit.is_none() => {
            Some(hidden_scale(&view, finding))
        }
        LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowClamped) if capture.window_edit.is_none() => {
            Some(format!(
                "Only about {in_flight} is in flight though the receiver allows {window}: data follows the \
                 acknowledgements, and a packet in each round trip is cut short, as at the end of a smaller window. A \
                 device behind this place lowers it or changes its scale, or the program offers as little at a time; \
                 over {rtt} that is {rate}."
            ))
        }
        LegalVerdict::Pacing(_) => Some(format!(
            "The sender paces its data: trains of {} come evenly, at {rate}, though the receiver allows {window} and \
             nothing is lost.",
            capture.train
        )),
        LegalVerdict::SenderApplication(SenderApplicationVerdict::RateLimited) if finding.other.is_some() => {
            Some(format!(
                "The sender offers no more: its data comes evenly, at {rate}, and neither the receiver nor the path \
                 holds it back. More was in flight at times, as of a program that catches up with its rate, or where \
                 a round trip took longer under a pace of its own."
            ))
        }
        LegalVerdict::SenderApplication(SenderApplicationVerdict::RateLimited) => Some(format!(
            "The sending program offers no more: it writes evenly, at {rate}, and {} of its packets hold no full \
             segments; neither the receiver nor the path holds it back.",
            capture.partial
        )),
        LegalVerdict::ReceiverApplication(_)
            if figures.evidence.loaded_rtt.is_some() && view.late_receiver().as_ref() == Some(finding) =>
        {
            Some(format!(
                "The receiver answers late: a round trip takes {rtt} for the sender and {} for the receiver, which has \
                 a queue of the path in its own; its program or its processor keeps the data waiting.",
                text::time_text(figures.evidence.loaded_rtt)
            ))
        }
        LegalVerdict::SenderApplication(_) if finding.may_be(Limit::Mtu) => Some(
            if view.is_at_sender() {
                "The connection is open, and hardly any data passed: the programs have none to send, or full packets \
                 of the other end vanish on their way here."
            } else {
                "The connection is open, and hardly any data came: the sender has none to send, or its full packets \
                 vanish on their way here."
            }
            .to_owned(),
        ),
        LegalVerdict::SenderApplication(_) if capture.idle.get() >= IDLE_CAPTURE_SHARE => Some(format!(
            "The sending program is slow: for {} of the time little is in flight, though the receiver allows {window} \
             and nothing is lost then.",
            capture.idle
        )),
        LegalVerdict::SenderApplication(_) => Some(format!(
            "The sending program is slow: it sends at times of its own, and not as acknowledgements come, though the \
             receiver allows {window} and nothing is lost; {rate} is what it offers."
        )),
        LegalVerdict::Mtu(MtuVerdict::BlackHole) if finding.is_one_of_several && view.is_at_sender() => Some(
            "The connection is open, and hardly any data passed: full packets of the other end vanish on their way \
             here, or the programs have none to send."
                .to_owned(),
        ),
        LegalVerdict::Mtu(MtuVerdict::BlackHole) if !view.is_at_sender() => Some(
            "The connection is open, and hardly any data came: full packets vanish on their way here, or the sender \
             has none to send."
                .to_owned(),
        ),
        _ => None,
    }
}

/// Returns the sentence on a window whose scale changes where no capture shows it.
fn hidden_scale(view: &CaptureView, finding: &Finding) -> String {
    let window = allowed_window(view);
    if finding.other == Some(ReceiveWindowVerdict::WindowScaleStripped.into()) {
        "The sender asks for the window again and again and sends nothing: it takes it for less than a segment, as \
         where a device removes or changes its scale, which the handshake would show; or its program pauses."
            .to_owned()
    } else if view.closed_on_the_way().is_some() {
        format!(
            "The sender asks for the window again and again and sends nothing, though the receiver allows {window}: it \
             may take it for less than a segment, as where a device changes its scale, or its program pauses."
        )
    } else {
        let in_flight = text::size_text(view.figures.mean_size(|one| one.outstanding));
        format!(
            "Only about {in_flight} is in flight though the receiver allows {window}: as much as its windows hold \
             under a smaller scale. A device behind this place changes it, or the sender's buffer is as large; over {} \
             that is {}.",
            text::time_text(view.figures.rtt),
            view.figures.rate
        )
    }
}

/// Returns the receiver's window in words. If neither a handshake nor the data in flight shows its
/// scale, it is never full.
fn allowed_window(view: &CaptureView) -> String {
    match view.figures.mean_size(|one| one.window) {
        None if view.lacks_handshake() => "more, whatever the scale of its windows,".to_owned(),
        window => text::size_text(window),
    }
}

/// Returns the sentence about a send buffer, or what looks like one from the place of the capture.
fn of_buffer(view: &CaptureView, finding: &Finding) -> String {
    let figures = view.figures;
    let (rate, rtt) = (figures.rate, text::time_text(figures.rtt));
    let (in_flight, window) = (
        text::size_text(figures.mean_size(|one| one.outstanding)),
        allowed_window(view),
    );
    let waits_in_host = finding.other == Some(CapacityVerdict::HostQueue.into());
    if view.is_at_sender() && !waits_in_host {
        return format!(
            "The sender's buffer holds no more: always about {in_flight} is in flight, and more is sent only as \
             acknowledgements come, though the receiver allows {window} and nothing is lost; over {rtt} that is {rate}."
        );
    }
    let alike = if waits_in_host {
        "Data waits there all the time: for its buffer, for a pace of its device, or for room in the queue of that."
    } else if finding.other.is_some() {
        "Its buffer, and a window that a device behind this place lowers, look alike from here."
    } else {
        "Its buffer, its program and a pace of its device look alike from here."
    };
    format!(
        "The sender holds itself back: always about {in_flight} is in flight, though the receiver allows {window} and \
         nothing is lost; over {rtt} that is {rate}. {alike}"
    )
}

/// Returns the sentence about a capture that has the packets of `end` alone.
fn one_way(end: At, rate: BitRate) -> String {
    let seen = if end == At::Sender {
        format!("the sender's packets were captured, {rate}, and none of those that go back")
    } else {
        "the receiver's packets were captured, and none of the data that they acknowledge"
            .to_owned()
    };
    format!(
        "Only {seen}: nothing shows what limits this transfer. A capture of the other direction would, or one at \
         either end."
    )
}

/// Returns the figures of a capture that decide.
pub(crate) fn capture_rows(capture: &CaptureEvidence) -> Vec<Row> {
    let place = match capture.point {
        Some(At::Sender) => "at the sender",
        Some(At::Receiver) => "at the receiver",
        Some(_) => "between the ends",
        None => "at a place that the packets do not show",
    };
    let only = capture.only.map(|end| match end {
        At::Sender => "of the sender alone",
        _ => "of the receiver alone",
    });
    let two_way = only.is_none();
    let lost = (capture.lost_before > 0).then(|| count_noun(capture.lost_before, "segment"));
    vec![
        ("captured", Some(place.to_owned())),
        ("captured packets", only.map(str::to_owned)),
        (
            "sent on acknowledgements",
            capture.clocked.map(|share| share.to_string()),
        ),
        (
            "little in flight",
            two_way.then(|| format!("{} of the time", capture.idle)),
        ),
        (
            "sent most often at",
            capture
                .departures
                .map(|burst| sent_most_often_at(burst, capture.sustained)),
        ),
        (
            "acknowledged most often at",
            capture.acknowledgements.map(text_of_burst),
        ),
        (
            "no full segments",
            Some(format!("{} of the packets", capture.partial)),
        ),
        ("lost before this point", lost),
    ]
}

/// Returns the most frequent rate of the data, with what was sustained where that is clearly less.
fn sent_most_often_at(burst: BurstRate, sustained: Option<BitRate>) -> String {
    const FASTER: f64 = 1.1;
    let own = text_of_burst(burst);
    match sustained.filter(|sustained| burst.rate > sustained.scale_by(FASTER)) {
        Some(sustained) => format!("{own}, in bursts; over 200 ms at most {sustained}"),
        None => own,
    }
}

fn text_of_burst(burst: BurstRate) -> String {
    format!("{}, {} of the data", burst.rate, burst.share)
}
