use fullpipe_record::{Published, Request};
use fullpipe_units::{BitRate, Span};

use crate::key::{Key, parse_quantity, require_valid};
use crate::step::{LoadKeys, offered_rate};

/// A load that runs during that of a step, in the same direction, and ends with it.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossTraffic {
    /// The load; its rate is the highest, its duration without meaning.
    pub request: Request,
    /// The lowest rate that each phase draws from; the highest is the request's.
    pub lowest: Option<BitRate>,
    /// When it begins.
    pub starts: LoadStart,
    /// Time for which it is on, and then off, in turn; without end if absent.
    pub on_off: Option<(Span, Span)>,
    /// The source's measurement of it.
    pub published: Option<Published>,
}

/// The start of a load, relative to that of the step's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadStart {
    /// So long before the step's own.
    Before(Span),
    /// So long after it.
    After(Span),
}

/// The keys of `[[step.cross_traffic]]` but for what was published.
pub(crate) const CROSS_TRAFFIC_KEYS: &[Key<CrossTraffic>] = &[
    Key::new("transport", |cross_traffic, text| {
        cross_traffic.request.set_transport(text)
    }),
    Key::new("window", |cross_traffic, text| {
        cross_traffic.request.set_window(text)
    }),
    Key::new("buffer", |cross_traffic, text| {
        cross_traffic.request.set_buffer(text)
    }),
    Key::new("streams", |cross_traffic, text| {
        cross_traffic.request.set_streams(text)
    }),
    Key::new("rate", CrossTraffic::set_rate),
    Key::new("length", |cross_traffic, text| {
        cross_traffic.request.set_length(text)
    }),
    Key::new("congestion", |cross_traffic, text| {
        cross_traffic.request.set_congestion(text)
    }),
    Key::new("before", |cross_traffic, text| {
        cross_traffic.set_start(text, LoadStart::Before)
    }),
    Key::new("after", |cross_traffic, text| {
        cross_traffic.set_start(text, LoadStart::After)
    }),
    Key::new("on", |cross_traffic, text| {
        cross_traffic.set_phase(text, |(on, _), time| *on = time)
    }),
    Key::new("off", |cross_traffic, text| {
        cross_traffic.set_phase(text, |(_, off), time| *off = time)
    }),
];

/// The start of a load of which nothing is said.
const AT_ONCE: LoadStart = LoadStart::Before(Span::ZERO);

impl CrossTraffic {
    /// A load of which nothing was said yet.
    pub(crate) fn new_unset() -> Self {
        let request = Request {
            offload: true,
            ..Request::default()
        };
        Self {
            request,
            lowest: None,
            starts: AT_ONCE,
            on_off: None,
            published: None,
        }
    }

    /// One rate, or a range `100M..250M`.
    fn set_rate(&mut self, text: &str) -> Result<(), String> {
        let (lowest, highest) = text
            .split_once("..")
            .map_or((None, text), |(low, high)| (Some(low), high));
        let highest = offered_rate(highest)?;
        self.lowest = lowest.map(offered_rate).transpose()?;
        self.request.rate = Some(highest);
        if self.lowest.is_some_and(|lowest| lowest >= highest) {
            return Err(format!(
                "\"{text}\" is no range of rates: it must go from a rate to a higher one"
            ));
        }
        Ok(())
    }

    fn set_start(&mut self, text: &str, starts: fn(Span) -> LoadStart) -> Result<(), String> {
        if self.starts != AT_ONCE {
            return Err("write before or after, not both".to_owned());
        }
        let time = parse_quantity(text)?;
        let valid = (Span::from_nanos(1)..=MAX_TIME).contains(&time);
        self.starts = starts(require_valid(
            time,
            valid,
            text,
            "a start",
            "it must be above 0 and at most 10 minutes",
        )?);
        Ok(())
    }

    fn set_phase(&mut self, text: &str, set: fn(&mut (Span, Span), Span)) -> Result<(), String> {
        let time = parse_quantity(text)?;
        // A phase is a measurement of its own, which takes some round trips to set up.
        let valid = (MIN_PHASE..=MAX_TIME).contains(&time);
        let time = require_valid(
            time,
            valid,
            text,
            "a phase",
            "it must be from 500ms to 10 minutes",
        )?;
        set(self.on_off.get_or_insert((Span::ZERO, Span::ZERO)), time);
        Ok(())
    }

    /// Returns the key that is missing next to another, if one is.
    pub(crate) fn missing_key(&self) -> Option<&'static str> {
        match self.on_off {
            Some((Span::ZERO, _)) => Some("on"),
            Some((_, Span::ZERO)) => Some("off"),
            _ => None,
        }
    }
}

const MIN_PHASE: Span = Span::from_millis(500);
const MAX_TIME: Span = Span::from_secs(600);
