//! The sending host's own queue or device, which drops packets.

use crate::limits::capacity::cause_of_capacity;
use crate::limits::pacing::qdisc;
use crate::limits::prelude::*;
use crate::signals::machine;
use crate::thresholds::{MIN_OWN_DROPS, MIN_OWN_DROPS_SHARE, NEXT_SIZE_FACTOR};

pub(crate) const CAUSE: Cause = Cause {
    captured_sentence: |view, _| {
        (view.capture.lost_before == 0).then(|| {
            format!(
                "The sender holds itself back and sends at times of its own, though it never pauses and the receiver \
                 allows {}: its own queue may drop packets before they are captured, or its program writes little at \
                 a time; {} is sent.",
                view.window_text(),
                view.figures.rate
            )
        })
    },
    setting_remedies: |advice| vec![advice.default_discipline(), longer_queue(advice)],
    manual_remedies: &[ManualRemedy::new(
        "longer-queue",
        Scope::Host,
        "A longer queue at the device (txqueuelen, the limit of its discipline, larger rings), or \
         fq, which lets each connection wait instead of dropping.",
    )],
    ..cause_of_capacity(&["capacity/host-queue"], |figures, _| {
        format!(
            "The sender's own queue or network device drops packets at {}: they are lost before they leave the \
                 host.",
            figures.rate
        )
    })
};

/// Finds capacity or loss that is the sending host's own queue: it dropped the packets that TCP
/// retransmitted.
pub(crate) fn behind_at_sender(figures: &SenderView, found: &Finding) -> Option<Finding> {
    let device = machine::suspected_device(figures, found)?;
    let dropped = machine::dropped_out(device);
    let again = figures.sent_again_in_all().unwrap_or(0);
    // What the host drops before it leaves is no retransmission in the kernel's count, but shrinks
    // the window: where nothing else was lost, a few are enough, unless they are the tops of a rate
    // that is reached.
    let few_are_enough = again == 0 && dropped > 0 && qdisc::find_cause(figures, found).is_none();
    let many = dropped >= MIN_OWN_DROPS && dropped as f64 >= again as f64 * MIN_OWN_DROPS_SHARE;
    (many || few_are_enough).then(|| found.as_verdict(CapacityVerdict::HostQueue))
}

/// Packets that may wait for an Ethernet device by default (`txqueuelen`).
const DEFAULT_QUEUE_PACKETS: u64 = 1000;

/// Makes room for more packets, where the length of the device's own queue counts.
fn longer_queue(advice: &RemedyAdvice) -> Option<Remedy> {
    /// Disciplines without a limit but the device's.
    const WITHOUT_A_LIMIT: [&str; 2] = ["mq", "pfifo_fast"];
    let device = advice.own_device()?;
    let mut qdiscs = device.qdiscs.iter();
    let counts = !device.qdiscs.is_empty()
        && qdiscs.all(|qdisc| WITHOUT_A_LIMIT.contains(&qdisc.kind.as_str()));
    let (name, length) = (&device.name, device.queue_length.filter(|_| counts)?);
    let packets = SegCount::new((length * NEXT_SIZE_FACTOR).get().max(DEFAULT_QUEUE_PACKETS));
    let why = format!(
        "{name} has room for {} packets and drops the others (txqueuelen): with room for {} more of a burst waits, \
         and longer.",
        length.get(),
        packets.get()
    );
    let change = Change::QueueLength {
        device: name.clone(),
        packets,
    };
    Some(advice.build_remedy("longer-queue", Scope::Host, At::Sender, vec![change], why))
}

/// Finds the queue of the sending host, if it dropped what a capture behind it never saw.
pub(crate) fn drops_before_capture(view: &CaptureView) -> Option<Finding> {
    let again = view.figures.sent_again_in_all()?;
    let found =
        view.is_at_sender() && view.capture.lost_before > 0 && view.capture.lost_before * 2 > again;
    found.then(|| Finding::always(CapacityVerdict::HostQueue))
}
