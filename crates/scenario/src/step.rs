use fullpipe_record::{Buffer, Direction, Published, Request};
use fullpipe_units::{ByteCount, Span};

use crate::StepBounds;
use crate::key::{Key, buffer_size, quantity, require};

/// One measurement of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its name, unlike that of every other step.
    pub name: String,
    /// The load. Its congestion control is set: `cubic` if the file does not say.
    pub request: Request,
    /// What the source measured, where it did.
    pub published: Option<Published>,
    /// What must come out.
    pub bounds: StepBounds,
}

/// The keys of `[[step]]` but for its name and bounds.
pub(crate) const STEP_KEYS: &[Key<Step>] = &[
    Key { name: "window", set: Step::set_window },
    Key { name: "buffer", set: Step::set_buffer },
    Key { name: "streams", set: Step::set_streams },
    Key { name: "congestion", set: Step::set_congestion },
    Key { name: "duration", set: Step::set_duration },
    Key { name: "direction", set: Step::set_direction },
    Key { name: "published", set: Step::set_published },
];

/// The largest window that TCP can advertise: 65 535 shifted by 14 (RFC 7323, section 2.3).
const LARGEST_WINDOW: u64 = 65_535 << 14;

impl Step {
    /// A step of which only the name was said yet.
    pub(crate) fn named(name: String) -> Self {
        let request = Request { congestion: Some("cubic".to_owned()), ..Request::default() };
        Self { name, request, published: None, bounds: StepBounds::default() }
    }

    fn set_window(&mut self, text: &str) -> Result<(), String> {
        let window: ByteCount = quantity(text)?;
        let valid = (1..=LARGEST_WINDOW).contains(&window.get());
        let window = require(window, valid, text, "a window of TCP", "it must be from 1 to 1073725440 B")?;
        self.set_once(Buffer::Window(window))
    }

    fn set_buffer(&mut self, text: &str) -> Result<(), String> {
        self.set_once(Buffer::Request(buffer_size(text)?))
    }

    fn set_once(&mut self, buffer: Buffer) -> Result<(), String> {
        if self.request.buffer != Buffer::Automatic {
            return Err("write a window or a buffer, not both".to_owned());
        }
        self.request.buffer = buffer;
        Ok(())
    }

    fn set_streams(&mut self, text: &str) -> Result<(), String> {
        self.request.streams = streams(text)?;
        Ok(())
    }

    fn set_congestion(&mut self, text: &str) -> Result<(), String> {
        self.request.congestion = Some(congestion_control(text)?);
        Ok(())
    }

    fn set_duration(&mut self, text: &str) -> Result<(), String> {
        self.request.duration = duration(text)?;
        Ok(())
    }

    fn set_direction(&mut self, text: &str) -> Result<(), String> {
        self.request.direction = match text {
            "upload" => Direction::Upload,
            "download" => Direction::Download,
            "both" => Direction::Both,
            _ => return Err(format!("\"{text}\" is not a direction: write upload, download or both")),
        };
        Ok(())
    }

    fn set_published(&mut self, text: &str) -> Result<(), String> {
        self.published = Some(Published { rate: quantity(text)? });
        Ok(())
    }
}

pub(crate) fn streams(text: &str) -> Result<u16, String> {
    // 128 is what iperf3 allows (MAX_STREAMS).
    let streams = text.parse().ok().filter(|streams| (1..=128).contains(streams));
    streams.ok_or_else(|| format!("\"{text}\" is not a number of streams: it must be a whole number from 1 to 128"))
}

pub(crate) fn congestion_control(text: &str) -> Result<String, String> {
    // TCP_CA_NAME_MAX is 16 with the zero at the end.
    let in_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    let valid = (1..16).contains(&text.len()) && text.chars().all(in_name);
    require(text.to_owned(), valid, text, "a congestion control", "write for example cubic, reno or bbr")
}

pub(crate) fn duration(text: &str) -> Result<Span, String> {
    let duration = quantity(text)?;
    let valid = (Span::from_secs(1)..=Span::from_secs(86_400)).contains(&duration);
    require(duration, valid, text, "the duration of a step", "it must be from 1s to 24h")
}
