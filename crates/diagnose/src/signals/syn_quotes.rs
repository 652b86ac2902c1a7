//! The place of a device that changes SYN segments, by the SYN probes that routers quote.

use fullpipe_record::{Evidence, HostSettings, SynQuote};

/// Returns true if the offer to scale windows does not reach the other end.
pub(crate) fn lose_their_scale(evidence: &Evidence) -> bool {
    SynQuotes::from_evidence(evidence).is_some_and(|quotes| quotes.lose_their_scale())
}

/// Returns the place of a device that changes SYN segments, as far as routers show it.
pub(crate) fn device_place(evidence: &Evidence) -> String {
    let place = SynQuotes::from_evidence(evidence).and_then(|quotes| quotes.device_place());
    place.unwrap_or_else(|| "between the ends".to_owned())
}

/// Returns the options of the SYN segments that each router quoted, where a device shows.
pub(crate) fn quoted_options(evidence: &Evidence) -> Option<String> {
    let quotes = SynQuotes::from_evidence(evidence)?;
    quotes.device_place().map(|_| quotes.quoted_options())
}

/// SYN probes of one end as routers on the way to the other quoted them.
struct SynQuotes<'e> {
    end: &'static str,
    /// True if that end offers to scale windows.
    offers: bool,
    /// Quote of each router, the nearest first; there is at least one.
    quotes: &'e [SynQuote],
}

impl<'e> SynQuotes<'e> {
    /// Returns the probes of the end that sent some; `None` where no router quoted any.
    pub(crate) fn from_evidence(evidence: &'e Evidence) -> Option<Self> {
        let sender = ("the sender", &evidence.sender, &evidence.sender_sockets);
        let receiver = (
            "the receiver",
            &evidence.receiver,
            &evidence.receiver_sockets,
        );
        [sender, receiver]
            .into_iter()
            .find_map(|(end, settings, sockets)| {
                let quotes = &sockets.first()?.syn_quotes;
                let offers = settings
                    .as_ref()
                    .is_some_and(|host: &HostSettings| host.window_scaling);
                (!quotes.is_empty()).then_some(Self {
                    end,
                    offers,
                    quotes,
                })
            })
    }

    pub(crate) fn lose_their_scale(&self) -> bool {
        self.offers
            && self
                .quotes
                .iter()
                .any(|quoted| quoted.window_scale.is_none())
    }

    /// Returns the two hops between which the quoted SYN first differs.
    pub(crate) fn device_place(&self) -> Option<String> {
        let first = self.quotes.first()?;
        if self.offers && first.window_scale.is_none() {
            return Some(format!("between {} and {}", self.end, first.by));
        }
        let changed = self.quotes.windows(2).find(|pair| {
            pair[0].window_scale != pair[1].window_scale || pair[0].mss != pair[1].mss
        })?;
        Some(format!("between {} and {}", changed[0].by, changed[1].by))
    }

    pub(crate) fn quoted_options(&self) -> String {
        let texts = self.quotes.iter().map(|quoted| {
            let scale = quoted
                .window_scale
                .map_or_else(|| "no scale".to_owned(), |shift| format!("scale {shift}"));
            let mss = quoted
                .mss
                .map_or_else(|| "no MSS".to_owned(), |mss| format!("MSS {}", mss.get()));
            format!("{scale}, {mss} at {}", quoted.by)
        });
        texts.collect::<Vec<_>>().join("; ")
    }
}
