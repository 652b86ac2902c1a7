//! Evidence that shows no limit.

use crate::limits::prelude::*;

pub(crate) const CAUSE: Cause = Cause {
    captured_sentence,
    other_end_would_show: Some("its windows, buffers and processor"),
    shows_in_few_packets: true,
    ..Cause::new(&["unknown/evidence-missing"], |_, finding| {
        format!(
            "The evidence does not show what limits this transfer; missing: {}.",
            finding.missing.join(", ")
        )
    })
};

fn captured_sentence(view: &CaptureView, _finding: &Finding) -> Option<String> {
    let seen = if view.capture.only? == At::Sender {
        let rate = view.figures.rate;
        format!("the sender's packets were captured, {rate}, and none of those that go back")
    } else {
        "the receiver's packets were captured, and none of the data that they acknowledge"
            .to_owned()
    };
    Some(format!(
        "Only {seen}: nothing shows what limits this transfer. A capture of the other direction would, or one at \
         either end."
    ))
}
