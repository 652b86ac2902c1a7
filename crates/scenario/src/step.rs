use fullpipe_record::{
    Buffer, Change, Direction, Path, ProgramWindow, Published, Request, StatedLoad, Transport,
    Writer,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::host::read_switch;
use crate::key::{Key, buffer_size, keys, parse_quantity, parse_within, require_valid};
use crate::path::Stretches;
use crate::{CrossTraffic, StepBounds};

/// One measurement of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioStep {
    /// Name of the step, unlike that of every other step.
    pub name: String,
    /// The load. The congestion control of TCP is set: `cubic` if the file does not say.
    pub request: Request,
    /// Loads that grow, in place of the one that the request says.
    pub ramp: Option<StepRamp>,
    /// The cross traffic.
    pub cross_traffic: Vec<CrossTraffic>,
    /// Whole path of the step, where it is not that of the scenario.
    pub path: Option<Path>,
    /// The stretches of its own path.
    pub stretches: Option<Stretches>,
    /// True if a pair of relays joins the stretches; packets are forwarded if not.
    pub relays: bool,
    /// Settings of the host that sends that differ from the scenario's.
    pub sender: Vec<Change>,
    /// Settings of the host that receives that differ from the scenario's.
    pub receiver: Vec<Change>,
    /// The source's measurement, if there is one.
    pub published: Option<Published>,
    /// The bounds.
    pub bounds: StepBounds,
}

/// Loads that grow in equal steps, as shares of what the path carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRamp {
    /// The first.
    pub from: Ratio,
    /// The last.
    pub to: Ratio,
    /// Number of loads.
    pub loads: u16,
}

/// The keys of `[[step]]` but for its name, its sections and its bounds.
pub(crate) const STEP_KEYS: &[Key<ScenarioStep>] = keys! { |step, text|
    "transport" => step.request.transport = read_transport(text)?,
    "window" => set_buffer_once(&mut step.request, Buffer::Window(read_window(text)?))?,
    "buffer" => set_buffer_once(&mut step.request, Buffer::Request(buffer_size(text)?))?,
    "sndbuf" => step.stated_load().sndbuf = Some(buffer_size(text)?),
    "rcvbuf" => step.stated_load().rcvbuf = Some(buffer_size(text)?),
    "app_window" => step.set_app_window(text)?,
    "requests" => step.set_app_window(text)?,
    "request_size" => step.set_app_window(&format!("1x{text}"))?,
    "pause" => step.stated_load().pause = Some(parse_quantity(text)?),
    "read_rate" => step.stated_load().read_rate = Some(offered_rate(text)?),
    "fq_rate" => step.request.pacing = Some(offered_rate(text)?),
    "blocking" => step.request.writer = if read_switch(text)? {
        Writer::Blocking
    } else {
        Writer::Retrying
    },
    "streams" => step.request.streams = read_streams(text)?,
    "rate" => step.request.rate = Some(offered_rate(text)?),
    "length" => step.request.block = read_length(text)?,
    "congestion" => step.request.congestion = Some(congestion_control(text)?),
    "duration" => step.request.duration = read_duration(text)?,
    // iperf3's own limit (MAX_OMIT_TIME).
    "omit" => step.request.omit =
        parse_within(text, ..=Span::from_secs(600), "a time to omit", "600s is the most")?,
    "direction" => step.request.direction = read_direction(text)?,
    "relays" => step.relays = read_switch(text)?,
};

/// The keys of `published = { … }`.
pub(crate) const PUBLISHED_KEYS: &[Key<Published>] = keys! { |published, text|
    "rate" => published.rate = Some(parse_quantity(text)?),
    "loss" => published.loss = Some(parse_quantity(text)?),
    "jitter" => published.jitter = Some(parse_quantity(text)?),
    "reordered" => published.reordered = Some(read_count(text)?),
};

/// The keys of `ramp = { … }`.
pub(crate) const RAMP_KEYS: &[Key<StepRamp>] = keys! { |ramp, text|
    "from" => ramp.from = parse_quantity(text)?,
    "to" => ramp.to = parse_quantity(text)?,
    "loads" => ramp.loads = read_loads(text)?,
};

/// The largest window that TCP can advertise: 65 535 shifted by 14 (RFC 7323, section 2.3).
const MAX_WINDOW: ByteCount = ByteCount::new(65_535 << 14);

impl ScenarioStep {
    /// A step of which only the name was said yet.
    pub fn with_name(name: String) -> Self {
        Self {
            name,
            request: Request {
                offload: true,
                ..Request::default()
            },
            ramp: None,
            cross_traffic: Vec::new(),
            path: None,
            stretches: None,
            relays: false,
            sender: Vec::new(),
            receiver: Vec::new(),
            published: None,
            bounds: StepBounds::default(),
        }
    }

    /// Returns what is stated of programs and devices.
    fn stated_load(&mut self) -> &mut StatedLoad {
        self.request.stated.get_or_insert_default()
    }

    fn set_app_window(&mut self, text: &str) -> Result<(), String> {
        let window: ProgramWindow = text.parse()?;
        let window = require_valid(
            window,
            window.bytes > ByteCount::ZERO,
            text,
            "the window of an application",
            "it carries nothing; write for example 64KiB or 64x32KiB",
        )?;
        if self.request.stated_load().app_window.is_some() {
            return Err("write one of app_window, requests and request_size".to_owned());
        }
        self.stated_load().app_window = Some(window);
        Ok(())
    }
}

impl StepRamp {
    /// A ramp of which nothing was said yet.
    pub(crate) const fn new_unset() -> Self {
        Self {
            from: Ratio::ZERO,
            to: Ratio::ZERO,
            loads: 0,
        }
    }

    /// Returns true if the load grows from step to step.
    pub(crate) fn is_growing(&self) -> bool {
        self.from > Ratio::ZERO && self.from < self.to && self.loads > 0
    }
}

fn read_loads(text: &str) -> Result<u16, String> {
    let loads = text.parse().ok().filter(|loads| (2..=100).contains(loads));
    loads.ok_or_else(|| format!("\"{text}\" is no number of loads: it must be from 2 to 100"))
}

fn read_direction(text: &str) -> Result<Direction, String> {
    match text {
        "upload" => Ok(Direction::Upload),
        "download" => Ok(Direction::Download),
        "both" => Ok(Direction::Both),
        _ => Err(format!(
            "\"{text}\" is not a direction: write upload, download or both"
        )),
    }
}

pub(crate) fn read_transport(text: &str) -> Result<Transport, String> {
    match text {
        "tcp" => Ok(Transport::Tcp),
        "udp" => Ok(Transport::Udp),
        _ => Err(format!("\"{text}\" is not a transport: write tcp or udp")),
    }
}

pub(crate) fn read_window(text: &str) -> Result<ByteCount, String> {
    parse_within(
        text,
        ByteCount::new(1)..=MAX_WINDOW,
        "a window of TCP",
        "it must be from 1 to 1073725440 B",
    )
}

/// Reads what a datagram can carry over IPv4 (RFC 768, RFC 791), and more than iperf3's header
/// needs.
pub(crate) fn read_length(text: &str) -> Result<ByteCount, String> {
    parse_within(
        text,
        ByteCount::new(32)..=ByteCount::new(65_507),
        "the length of a datagram",
        "it must be from 32 to 65507 B",
    )
}

pub(crate) fn set_buffer_once(request: &mut Request, buffer: Buffer) -> Result<(), String> {
    if request.buffer != Buffer::Automatic {
        return Err("write a window or a buffer, not both".to_owned());
    }
    request.buffer = buffer;
    Ok(())
}

/// Completes the load with what the file need not say. Fails with the key, and why, of what does
/// not fit its transport: datagrams have neither window nor congestion control, and TCP no length.
pub(crate) fn complete_request(request: &mut Request) -> Result<(), (&'static str, &'static str)> {
    let has_length = request.block != Request::default().block;
    if let Some(unfit) = unfit_statement(request) {
        return Err(unfit);
    }
    let unfit = match request.transport {
        Transport::Udp if matches!(request.buffer, Buffer::Window(_)) => (
            "window",
            "datagrams have no window; write transport = \"tcp\", or a buffer",
        ),
        Transport::Udp if request.congestion.is_some() => (
            "congestion",
            "datagrams have no congestion control; write transport = \"tcp\"",
        ),
        Transport::Tcp if has_length => (
            "length",
            "it is that of datagrams; write transport = \"udp\"",
        ),
        Transport::Udp => {
            // Unless the file says how long datagrams are, they are as long as the path takes.
            if !has_length {
                request.block = ByteCount::ZERO;
            }
            return Ok(());
        }
        Transport::Tcp => {
            request.offload = false;
            request.congestion.get_or_insert_with(|| "cubic".to_owned());
            return Ok(());
        }
    };
    Err(unfit)
}

/// Returns the key of a statement that has no effect in this load, and why.
fn unfit_statement(request: &Request) -> Option<(&'static str, &'static str)> {
    const OF_TCP: &str = "it is that of a byte stream; write transport = \"tcp\"";
    let stated = request.stated_load();
    let is_udp = request.transport == Transport::Udp;
    let has_window = matches!(request.buffer, Buffer::Window(_));
    [
        ("app_window", OF_TCP, is_udp && stated.app_window.is_some()),
        ("read_rate", OF_TCP, is_udp && stated.read_rate.is_some()),
        ("blocking", OF_TCP, is_udp && request.writer == Writer::Blocking),
        (
            "rcvbuf",
            "write a window or a buffer, not both",
            has_window && stated.rcvbuf.is_some(),
        ),
        (
            "pause",
            "it is the time between an answer and the next request; add app_window, requests or request_size",
            stated.pause.is_some() && stated.app_window.is_none(),
        ),
    ]
    .into_iter()
    .find_map(|(key, why, is_so)| is_so.then_some((key, why)))
}

pub(crate) fn offered_rate(text: &str) -> Result<BitRate, String> {
    parse_within(
        text,
        BitRate::from_bps(1)..,
        "the rate of a load",
        "nothing would be sent",
    )
}

fn read_count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("\"{text}\" is not a count: it must be a whole number"))
}

pub(crate) fn read_streams(text: &str) -> Result<u16, String> {
    // 128 is what iperf3 allows (MAX_STREAMS).
    let streams = text
        .parse()
        .ok()
        .filter(|streams| (1..=128).contains(streams));
    streams.ok_or_else(|| {
        format!("\"{text}\" is not a number of streams: it must be a whole number from 1 to 128")
    })
}

pub(crate) fn congestion_control(text: &str) -> Result<String, String> {
    // TCP_CA_NAME_MAX is 16 with the zero at the end.
    let valid = (1..16).contains(&text.len())
        && text
            .chars()
            .all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-'));
    require_valid(
        text.to_owned(),
        valid,
        text,
        "a congestion control",
        "write for example cubic, reno or bbr",
    )
}

pub(crate) fn read_duration(text: &str) -> Result<Span, String> {
    parse_within(
        text,
        Span::from_secs(1)..=Span::from_secs(86_400),
        "the duration of a step",
        "it must be from 1s to 24h",
    )
}
