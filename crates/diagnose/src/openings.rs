//! Where on the way a device changes how connections are opened, as routers tell.

use fullpipe_record::{Evidence, HostSettings, Quoted};

/// Whether the offer to scale windows does not get to the other end.
pub(crate) fn lose_their_scale(evidence: &Evidence) -> bool {
    Openings::of(evidence).is_some_and(|openings| openings.lose_their_scale())
}

/// Where a device is that changes what passes it, as far as routers tell.
pub(crate) fn place(evidence: &Evidence) -> String {
    let place = Openings::of(evidence).and_then(|openings| openings.place());
    place.unwrap_or_else(|| "between the ends".to_owned())
}

/// What openings said at each router, where a device shows.
pub(crate) fn told(evidence: &Evidence) -> Option<String> {
    let openings = Openings::of(evidence)?;
    openings.place().map(|_| openings.told())
}

/// How openings of one end fared on the way to the other.
struct Openings<'e> {
    end: &'static str,
    /// Whether that end offers to scale windows.
    offers: bool,
    /// At each router that told, the nearest first; there is one at least.
    quoted: &'e [Quoted],
}

impl<'e> Openings<'e> {
    /// Those of the end that sent some; `None` where no router quoted any.
    fn of(evidence: &'e Evidence) -> Option<Self> {
        let sender = ("the sender", &evidence.sender, &evidence.sender_sockets);
        let receiver = ("the receiver", &evidence.receiver, &evidence.receiver_sockets);
        [sender, receiver].into_iter().find_map(|(end, settings, sockets)| {
            let quoted = &sockets.first()?.quoted;
            let offers = settings.as_ref().is_some_and(|host: &HostSettings| host.window_scaling);
            (!quoted.is_empty()).then_some(Self { end, offers, quoted })
        })
    }

    fn lose_their_scale(&self) -> bool {
        self.offers && self.quoted.iter().any(|quoted| quoted.window_scale.is_none())
    }

    /// Between which two the device is, where one shows.
    fn place(&self) -> Option<String> {
        let first = self.quoted.first()?;
        if self.offers && first.window_scale.is_none() {
            return Some(format!("between {} and {}", self.end, first.by));
        }
        let says = |quoted: &Quoted| (quoted.window_scale, quoted.mss);
        let changed = self.quoted.windows(2).find(|pair| says(&pair[0]) != says(&pair[1]))?;
        Some(format!("between {} and {}", changed[0].by, changed[1].by))
    }

    fn told(&self) -> String {
        let text = |quoted: &Quoted| {
            let scale = quoted.window_scale.map_or_else(|| "no scale".to_owned(), |shift| format!("scale {shift}"));
            let mss = quoted.mss.map_or_else(|| "no MSS".to_owned(), |mss| format!("MSS {}", mss.get()));
            format!("{scale}, {mss} at {}", quoted.by)
        };
        self.quoted.iter().map(text).collect::<Vec<_>>().join("; ")
    }
}
