use fullpipe_record::{Buffer, Published, Request};
use fullpipe_units::{BitRate, Span};

use crate::key::{Key, buffer_size, keys, parse_within};
use crate::step::{
    congestion_control, offered_rate, read_length, read_streams, read_transport, read_window,
    set_buffer_once,
};

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
pub(crate) const CROSS_TRAFFIC_KEYS: &[Key<CrossTraffic>] = keys! { |load, text|
    "transport" => load.request.transport = read_transport(text)?,
    "window" => set_buffer_once(&mut load.request, Buffer::Window(read_window(text)?))?,
    "buffer" => set_buffer_once(&mut load.request, Buffer::Request(buffer_size(text)?))?,
    "streams" => load.request.streams = read_streams(text)?,
    "rate" => load.set_rate(text)?,
    "length" => load.request.block = read_length(text)?,
    "congestion" => load.request.congestion = Some(congestion_control(text)?),
    "before" => load.set_start(text, LoadStart::Before)?,
    "after" => load.set_start(text, LoadStart::After)?,
    "on" => load.phases().0 = read_phase(text)?,
    "off" => load.phases().1 = read_phase(text)?,
};

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
        self.starts = starts(parse_within(
            text,
            Span::from_nanos(1)..=MAX_TIME,
            "a start",
            "it must be above 0 and at most 10 minutes",
        )?);
        Ok(())
    }

    fn phases(&mut self) -> &mut (Span, Span) {
        self.on_off.get_or_insert((Span::ZERO, Span::ZERO))
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

/// A phase is a measurement of its own, which takes some round trips to set up.
fn read_phase(text: &str) -> Result<Span, String> {
    parse_within(
        text,
        MIN_PHASE..=MAX_TIME,
        "a phase",
        "it must be from 500ms to 10 minutes",
    )
}

const MIN_PHASE: Span = Span::from_millis(500);
const MAX_TIME: Span = Span::from_secs(600);
