//! One quantity and its value, from text.

use std::str::FromStr;

use fullpipe_record::{Inputs, ProgramWindow, Quantity, StatedLoad};
use fullpipe_units::{BitRate, ByteCount, Distance, ParseError, Ratio, Span};

use crate::InputError;

/// The quantities that flags, what-ifs and files may give, in the order of a table's columns.
pub const READABLE: [Quantity; 14] = [
    Quantity::Bandwidth,
    Quantity::Rtt,
    Quantity::Distance,
    Quantity::Window,
    Quantity::Buffer,
    Quantity::Sndbuf,
    Quantity::Rcvbuf,
    Quantity::AppWindow,
    Quantity::Pause,
    Quantity::Loss,
    Quantity::Mtu,
    Quantity::Streams,
    Quantity::Congestion,
    Quantity::Size,
];

/// The most streams of a transfer that can be calculated.
const MAX_STREAMS: u16 = 10_000;

/// A quantity with the value that it is given.
#[derive(Debug, Clone, PartialEq)]
pub enum QuantitySetting {
    /// Rate of the path.
    Bandwidth(BitRate),
    /// Round-trip time of the empty path.
    Rtt(Span),
    /// Distance between the hosts.
    Distance(Distance),
    /// Window of each stream.
    Window(ByteCount),
    /// Request for the socket buffers.
    Buffer(ByteCount),
    /// Request for the send buffer alone.
    Sndbuf(ByteCount),
    /// Request for the receive buffer alone.
    Rcvbuf(ByteCount),
    /// Window of the programs' own protocol.
    AppWindow(ProgramWindow),
    /// Time between an answer and the next request.
    Pause(Span),
    /// Share of packets lost.
    Loss(Ratio),
    /// Largest IP packet.
    Mtu(ByteCount),
    /// Parallel connections.
    Streams(u16),
    /// Congestion control.
    Congestion(String),
    /// Bytes to carry in all.
    Size(ByteCount),
}

impl QuantitySetting {
    /// Reads `text` as a value of `quantity`, with the units that people write.
    ///
    /// # Errors
    /// A text that is no such value, or a value with which nothing can be calculated; for a
    /// quantity that is not [`READABLE`], every text.
    pub fn read(quantity: Quantity, text: &str) -> Result<Self, InputError> {
        let text = text.trim();
        match quantity {
            Quantity::Bandwidth => parse_value(text).map(Self::Bandwidth),
            Quantity::Rtt => parse_value(text).map(Self::Rtt),
            Quantity::Distance => parse_value(text).map(Self::Distance),
            Quantity::Window => parse_value(text).map(Self::Window),
            Quantity::Buffer => parse_value(text).map(Self::Buffer),
            Quantity::Sndbuf => parse_value(text).map(Self::Sndbuf),
            Quantity::Rcvbuf => parse_value(text).map(Self::Rcvbuf),
            Quantity::AppWindow => text.parse().map(Self::AppWindow).map_err(InputError::new),
            Quantity::Pause => parse_value(text).map(Self::Pause),
            Quantity::Loss => parse_value(text).map(Self::Loss),
            Quantity::Mtu => parse_value(text).map(Self::Mtu),
            Quantity::Size => parse_value(text).map(Self::Size),
            Quantity::Streams => text
                .parse()
                .map(Self::Streams)
                .map_err(|_| InputError::new(format!("\"{text}\" is not {STREAMS}"))),
            Quantity::Congestion => Ok(Self::Congestion(text.to_owned())),
            Quantity::TcpWmem | Quantity::TcpRmem => {
                Err(InputError::new("it is a host's setting and not given here"))
            }
        }
        .and_then(Self::check_value)
    }

    /// Reads a cell of a file: as [`QuantitySetting::read`], but a bare number counts bit/s,
    /// seconds, metres, bytes, or is a fraction.
    ///
    /// # Errors
    /// As for [`QuantitySetting::read`].
    pub fn read_cell(quantity: Quantity, cell: &str) -> Result<Self, InputError> {
        match cell.parse::<f64>() {
            Ok(number) if (0.0..MAX_VALUE).contains(&number) => Self::of_number(quantity, number)
                .map_or_else(|| Self::read(quantity, cell), Self::check_value),
            _ => Self::read(quantity, cell),
        }
    }

    /// Returns the quantity that is set.
    pub const fn quantity(&self) -> Quantity {
        match self {
            Self::Bandwidth(_) => Quantity::Bandwidth,
            Self::Rtt(_) => Quantity::Rtt,
            Self::Distance(_) => Quantity::Distance,
            Self::Window(_) => Quantity::Window,
            Self::Buffer(_) => Quantity::Buffer,
            Self::Sndbuf(_) => Quantity::Sndbuf,
            Self::Rcvbuf(_) => Quantity::Rcvbuf,
            Self::AppWindow(_) => Quantity::AppWindow,
            Self::Pause(_) => Quantity::Pause,
            Self::Loss(_) => Quantity::Loss,
            Self::Mtu(_) => Quantity::Mtu,
            Self::Streams(_) => Quantity::Streams,
            Self::Congestion(_) => Quantity::Congestion,
            Self::Size(_) => Quantity::Size,
        }
    }

    /// The value that `inputs` has of `quantity`.
    pub(crate) fn from_inputs(quantity: Quantity, inputs: &Inputs) -> Option<Self> {
        match quantity {
            Quantity::Bandwidth => inputs.bandwidth.map(Self::Bandwidth),
            Quantity::Rtt => inputs.rtt.map(Self::Rtt),
            Quantity::Distance => inputs.distance.map(Self::Distance),
            Quantity::Window => inputs.window.map(Self::Window),
            Quantity::Buffer => inputs.buffer.map(Self::Buffer),
            Quantity::Sndbuf => inputs.stated.sndbuf.map(Self::Sndbuf),
            Quantity::Rcvbuf => inputs.stated.rcvbuf.map(Self::Rcvbuf),
            Quantity::AppWindow => inputs.stated.app_window.map(Self::AppWindow),
            Quantity::Pause => inputs.stated.pause.map(Self::Pause),
            Quantity::Loss => inputs.loss.map(Self::Loss),
            Quantity::Mtu => inputs.mtu.map(Self::Mtu),
            Quantity::Streams => inputs.streams.map(Self::Streams),
            Quantity::Congestion => inputs.congestion.clone().map(Self::Congestion),
            Quantity::Size => inputs.size.map(Self::Size),
            Quantity::TcpWmem | Quantity::TcpRmem => None,
        }
    }

    /// Gives the quantity this value. A window takes the place of a buffer and a buffer that of a
    /// window: a program asks for one of them.
    pub fn apply_to(&self, inputs: &mut Inputs) {
        match self {
            Self::Bandwidth(rate) => inputs.bandwidth = Some(*rate),
            Self::Rtt(rtt) => inputs.rtt = Some(*rtt),
            Self::Distance(distance) => inputs.distance = Some(*distance),
            Self::Window(window) => (inputs.window, inputs.buffer) = (Some(*window), None),
            Self::Buffer(request) => (inputs.window, inputs.buffer) = (None, Some(*request)),
            Self::Loss(loss) => inputs.loss = Some(*loss),
            Self::Mtu(mtu) => inputs.mtu = Some(*mtu),
            Self::Streams(streams) => inputs.streams = Some(*streams),
            Self::Congestion(name) => inputs.congestion = Some(name.clone()),
            Self::Size(size) => inputs.size = Some(*size),
            _ => self.apply_to_stated(&mut inputs.stated),
        }
    }

    /// Gives the quantity this value, where it is one that is stated of programs.
    pub fn apply_to_stated(&self, stated: &mut StatedLoad) {
        match self {
            Self::Sndbuf(request) => stated.sndbuf = Some(*request),
            Self::Rcvbuf(request) => stated.rcvbuf = Some(*request),
            Self::AppWindow(window) => stated.app_window = Some(*window),
            Self::Pause(pause) => stated.pause = Some(*pause),
            _ => {}
        }
    }

    /// In bit/s, seconds, metres, bytes, as a fraction or a count; a congestion control is no
    /// number.
    pub(crate) fn as_number(&self) -> Option<f64> {
        Some(match self {
            Self::Bandwidth(rate) => rate.as_f64(),
            Self::Rtt(time) | Self::Pause(time) => time.as_secs_f64(),
            Self::Distance(distance) => distance.metres() as f64,
            Self::Window(bytes)
            | Self::Buffer(bytes)
            | Self::Sndbuf(bytes)
            | Self::Rcvbuf(bytes)
            | Self::Mtu(bytes)
            | Self::Size(bytes) => bytes.as_f64(),
            Self::AppWindow(window) if window.request == ByteCount::ZERO => window.bytes.as_f64(),
            Self::Loss(loss) => loss.get(),
            Self::Streams(streams) => f64::from(*streams),
            Self::AppWindow(_) | Self::Congestion(_) => return None,
        })
    }

    /// The nearest value to a number as [`QuantitySetting::as_number`] gives it; none where the
    /// quantity is no number, or a whole one and `number` is not.
    pub(crate) fn of_number(quantity: Quantity, number: f64) -> Option<Self> {
        Some(match quantity {
            Quantity::Bandwidth => Self::Bandwidth(BitRate::from_bps_f64(number)),
            Quantity::Rtt => Self::Rtt(Span::from_secs_f64(number)),
            Quantity::Distance => Self::Distance(Distance::from_metres(number.round() as u64)),
            Quantity::Window => Self::Window(ByteCount::from_f64(number)),
            Quantity::Buffer => Self::Buffer(ByteCount::from_f64(number)),
            Quantity::Sndbuf => Self::Sndbuf(ByteCount::from_f64(number)),
            Quantity::Rcvbuf => Self::Rcvbuf(ByteCount::from_f64(number)),
            Quantity::AppWindow => Self::AppWindow(ProgramWindow {
                bytes: ByteCount::from_f64(number),
                request: ByteCount::ZERO,
            }),
            Quantity::Pause => Self::Pause(Span::from_secs_f64(number)),
            Quantity::Loss => Self::Loss(Ratio::new(number)),
            Quantity::Mtu => Self::Mtu(ByteCount::from_f64(number)),
            Quantity::Size => Self::Size(ByteCount::from_f64(number)),
            Quantity::Streams if number.fract() == 0.0 => Self::Streams(number as u16),
            Quantity::Streams | Quantity::Congestion | Quantity::TcpWmem | Quantity::TcpRmem => {
                return None;
            }
        })
    }

    /// In base units, as a cell of a file.
    pub(crate) fn to_cell(&self) -> String {
        match (self, self.as_number()) {
            (Self::Congestion(name), _) => name.clone(),
            (Self::AppWindow(ProgramWindow { bytes, request }), None) => {
                format!("{}x{}", bytes.get() / request.get().max(1), request.get())
            }
            (_, number) => number.unwrap_or_default().to_string(),
        }
    }

    /// Refuses what no formula has an answer for.
    fn check_value(self) -> Result<Self, InputError> {
        let nonsense = match &self {
            Self::Bandwidth(rate) if *rate == BitRate::ZERO => {
                "a path of 0 bit/s carries nothing; write for example 100Mbit/s"
            }
            Self::Rtt(rtt) if *rtt == Span::ZERO => {
                "a round trip takes some time; write for example 173ms"
            }
            Self::Rtt(rtt) if *rtt > Span::from_secs(3600) => {
                "a round trip takes at most an hour; write for example 173ms"
            }
            Self::Distance(distance) if *distance == Distance::ZERO => {
                "hosts that are 0 km apart have no path between them; write for example 8000km"
            }
            Self::Window(bytes) if *bytes == ByteCount::ZERO => {
                "a window of 0 bytes carries nothing; write for example 64KiB"
            }
            Self::AppWindow(window) if window.bytes == ByteCount::ZERO => {
                "a window of 0 bytes carries nothing; write for example 64KiB or 64x32KiB"
            }
            Self::Buffer(bytes) | Self::Sndbuf(bytes) | Self::Rcvbuf(bytes)
                if *bytes == ByteCount::ZERO =>
            {
                "a buffer of 0 bytes carries nothing; write for example 64KiB"
            }
            Self::Size(bytes) if *bytes == ByteCount::ZERO => {
                "0 bytes take no time; write for example 10GiB"
            }
            Self::Loss(loss) if *loss >= Ratio::ONE => {
                "a path that loses every packet carries nothing; write for example 0.01%"
            }
            Self::Mtu(mtu) if !(68..=65_535).contains(&mtu.get()) => {
                "an IPv4 packet has between 68 and 65535 bytes; write for example 1500"
            }
            Self::Streams(streams) if !(1..=MAX_STREAMS).contains(streams) => {
                return Err(InputError::new(format!("{streams} is not {STREAMS}")));
            }
            Self::Congestion(name) if !is_name(name) => {
                return Err(InputError::new(format!(
                    "\"{name}\" is not the name of a congestion control; write for example cubic or bbr"
                )));
            }
            _ => return Ok(self),
        };
        Err(InputError::new(nonsense))
    }
}

fn parse_value<T: FromStr<Err = ParseError>>(text: &str) -> Result<T, InputError> {
    text.parse()
        .map_err(|error: ParseError| InputError::new(error.to_string()))
}

/// As the kernel's are, so that one can stand in a cell without quotes.
fn is_name(name: &str) -> bool {
    (1..16).contains(&name.len())
        && name
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-')
}

const STREAMS: &str = "a number of streams from 1 to 10000; write for example 4";
/// Beyond it no rate, size or time of this field reaches: the bound that text with units has too.
const MAX_VALUE: f64 = 9.2e18;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_has_units_and_cells_may_be_bare() {
        for (quantity, text, cell) in [
            (Quantity::Bandwidth, "100Mbit/s", "1e8"),
            (Quantity::Rtt, "173ms", "0.173"),
            (Quantity::Distance, "8000km", "8e6"),
            (Quantity::Window, "64KiB", "65536"),
            (Quantity::Buffer, "1M", "1048576"),
            (Quantity::Loss, "0.01%", "0.0001"),
            (Quantity::Mtu, "9000", "9000"),
            (Quantity::Streams, "4", "4"),
            (Quantity::Congestion, "bbr", "bbr"),
            (Quantity::Size, "1GB", "1000000000"),
        ] {
            let read = QuantitySetting::read(quantity, text).unwrap();
            assert_eq!(read.quantity(), quantity);
            assert_eq!(
                QuantitySetting::read_cell(quantity, cell).unwrap(),
                read,
                "{text}"
            );
            assert_eq!(
                QuantitySetting::read_cell(quantity, text).unwrap(),
                read,
                "{text}"
            );
            assert_eq!(
                QuantitySetting::read_cell(quantity, &read.to_cell()).unwrap(),
                read,
                "{text}"
            );
        }
    }

    #[test]
    fn nonsense_is_reported_in_a_sentence_that_says_what_is_valid() {
        for (quantity, text, part) in [
            (Quantity::Bandwidth, "0", "100Mbit/s"),
            (Quantity::Bandwidth, "5ms", "100Mbit/s"),
            (Quantity::Bandwidth, "-1M", "negative"),
            (Quantity::Bandwidth, "1e30", "too large"),
            (Quantity::Rtt, "0s", "173ms"),
            (Quantity::Rtt, "5", "unit is missing"),
            (Quantity::Rtt, "100Mbit/s", "173ms"),
            (Quantity::Rtt, "nan", "number"),
            (Quantity::Distance, "0km", "8000km"),
            (Quantity::Distance, "5ms", "8000km"),
            (Quantity::Window, "0", "64KiB"),
            (Quantity::Window, "inf", "number"),
            (Quantity::Buffer, "0", "64KiB"),
            (Quantity::Loss, "100%", "0.01%"),
            (Quantity::Loss, "-1e-4", "negative"),
            (Quantity::Mtu, "67", "1500"),
            (Quantity::Mtu, "1M", "1500"),
            (Quantity::Streams, "0", "from 1 to 10000"),
            (Quantity::Streams, "1.5", "from 1 to 10000"),
            (Quantity::Streams, "10001", "from 1 to 10000"),
            (Quantity::Congestion, "", "cubic"),
            (Quantity::Congestion, "a,b", "cubic"),
            (Quantity::Size, "0", "10GiB"),
            (Quantity::TcpWmem, "1M", "host"),
        ] {
            let stated = QuantitySetting::read(quantity, text)
                .unwrap_err()
                .to_string();
            assert!(stated.contains(part), "{quantity:?} {text}: {stated}");
            let bare_time = quantity == Quantity::Rtt && text == "5";
            assert!(
                bare_time || QuantitySetting::read_cell(quantity, text).is_err(),
                "{quantity:?} {text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_setting_or_an_error(
            text in "\\PC*|[0-9.eE+-]{0,6}[a-zA-Z/%]{0,6}",
            which in 0..READABLE.len(),
        ) {
            let _ = QuantitySetting::read(READABLE[which], &text);
            if let Ok(setting) = QuantitySetting::read_cell(READABLE[which], &text) {
                // The smallest units have fewer digits than a time in seconds has, at most.
                let again = QuantitySetting::read_cell(READABLE[which], &setting.to_cell()).unwrap();
                let (a, b) = (again.as_number(), setting.as_number());
                prop_assert!(a.zip(b).is_none_or(|(a, b)| (a - b).abs() <= b * 1e-12));
            }
        }
    }
}
