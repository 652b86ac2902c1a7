//! A receiving program that is slow, by itself or for the file that it writes.

pub(crate) mod slow_reader;

use fullpipe_record::{At, Limit, ReceiverApplicationVerdict, Scope};
use fullpipe_units::{ByteCount, Ratio};

use crate::finding::Finding;
use crate::limits::{LimitFacts, receive_window, sender_application};
use crate::remedies::manual_remedy::ManualRemedy;
use crate::signals::machine;
use crate::signals::sender::SenderView;
use crate::text::{Row, size_text};

/// Returns the file that the receiving program writes for most of the time, if `found` is that
/// program or its window.
pub(crate) fn find_cause(figures: &SenderView, found: &Finding) -> Option<Finding> {
    if !matches!(
        found.limit_kind(),
        Limit::ReceiverApplication | Limit::ReceiveWindow
    ) {
        return None;
    }
    let busy = machine::busy_with_file(figures, &figures.evidence.receiver_machine)?;
    Some(Finding::new(ReceiverApplicationVerdict::Storage, busy))
}

/// The figures of a slow receiving program.
pub(crate) struct ReceiverProgramFacts {
    verdict: ReceiverApplicationVerdict,
    share: Ratio,
    /// Room that it leaves, in the mean.
    room: Option<ByteCount>,
    /// Room that it once left.
    most_room: Option<ByteCount>,
    shown: Vec<Row>,
}

impl ReceiverProgramFacts {
    pub(crate) fn from_figures(
        verdict: ReceiverApplicationVerdict,
        share: Ratio,
        figures: &SenderView,
    ) -> Self {
        Self {
            verdict,
            share,
            room: figures.mean_size(|snapshot| snapshot.window),
            most_room: slow_reader::largest_window(figures),
            shown: receive_window::window_rows(figures),
        }
    }
}

impl LimitFacts for ReceiverProgramFacts {
    fn sentence(&self) -> String {
        match self.verdict {
            ReceiverApplicationVerdict::Storage => {
                format!(
                    "Writing the file holds the transfer back: it took {} of the receiver's time.",
                    self.share
                )
            }
            ReceiverApplicationVerdict::SlowReader if self.most_room == Some(ByteCount::ZERO) => {
                "The receiving program reads too slowly: its window stays closed.".to_owned()
            }
            ReceiverApplicationVerdict::SlowReader => format!(
                "The receiving program reads too slowly: it leaves room for {} at a time, where there was once room \
                 for {}.",
                size_text(self.room),
                size_text(self.most_room),
            ),
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn other_end_would_show(&self) -> Option<&'static str> {
        Some("whether its program, its disk or its processor is slow")
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            ReceiverApplicationVerdict::Storage => sender_application::FASTER_STORAGE,
            ReceiverApplicationVerdict::SlowReader => &[ManualRemedy {
                id: "faster-reader",
                scope: Scope::Application,
                at: Some(At::Receiver),
                why: "The receiving program must take the data faster; no setting of TCP helps.",
            }],
        }
    }
}
