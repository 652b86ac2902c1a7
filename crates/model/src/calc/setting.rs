//! One quantity and its value, from text.

use std::str::FromStr;

use fullpipe_record::ProgramWindow;
use fullpipe_units::{Distance, ParseError};

use crate::prelude::*;

use super::InputError;

/// The most streams of a transfer that can be calculated.
const MAX_STREAMS: u16 = 10_000;

/// A type of the values of quantities.
trait SettingValue: Sized {
    fn read(text: &str) -> Result<Self, InputError>;

    /// In bit/s, seconds, metres, bytes, as a fraction or a count; `None` of what is no number.
    fn number(&self) -> Option<f64>;

    /// The nearest value to a number as [`SettingValue::number`] gives it; `None` where it has to
    /// be a whole one and is not.
    fn from_number(number: f64) -> Option<Self>;
}

/// Defines the settings by their quantities, the types of their values, and the fields of
/// [`Inputs`] that hold them.
macro_rules! settings {
    ($($(#[$doc:meta])* $quantity:ident($value:ty) in $($field:ident).+;)*) => {
        /// A quantity with the value that it is given.
        #[derive(Debug, Clone, PartialEq)]
        pub enum QuantitySetting {
            $($(#[$doc])* $quantity($value),)*
        }

        /// The quantities that flags, what-ifs and files may give, in the order of a table's
        /// columns.
        pub const READABLE: [Quantity; [$(Quantity::$quantity),*].len()] =
            [$(Quantity::$quantity),*];

        impl QuantitySetting {
            /// Returns the quantity that is set.
            pub const fn quantity(&self) -> Quantity {
                match self {
                    $(Self::$quantity(_) => Quantity::$quantity,)*
                }
            }

            fn read_unchecked(quantity: Quantity, text: &str) -> Result<Self, InputError> {
                match quantity {
                    $(Quantity::$quantity => SettingValue::read(text).map(Self::$quantity),)*
                    Quantity::TcpWmem | Quantity::TcpRmem => {
                        Err(InputError::new("it is a host's setting and not given here"))
                    }
                }
            }

            /// The value that `inputs` has of `quantity`.
            pub(crate) fn from_inputs(quantity: Quantity, inputs: &Inputs) -> Option<Self> {
                match quantity {
                    $(Quantity::$quantity => {
                        Clone::clone(&inputs.$($field).+).map(Self::$quantity)
                    })*
                    Quantity::TcpWmem | Quantity::TcpRmem => None,
                }
            }

            /// Gives the quantity this value. A window takes the place of a buffer and a buffer
            /// that of a window: a program asks for one of them.
            pub fn apply_to(&self, inputs: &mut Inputs) {
                match self {
                    $(Self::$quantity(value) => {
                        inputs.$($field).+ = Some(Clone::clone(value));
                    })*
                }
                match self {
                    Self::Window(_) => inputs.buffer = None,
                    Self::Buffer(_) => inputs.window = None,
                    _ => {}
                }
            }

            /// In bit/s, seconds, metres, bytes, as a fraction or a count; a congestion control and
            /// requests are no number.
            pub(crate) fn as_number(&self) -> Option<f64> {
                match self {
                    $(Self::$quantity(value) => value.number(),)*
                }
            }

            /// The nearest value to a number as [`QuantitySetting::as_number`] gives it; none where
            /// the quantity is no number, or a whole one and `number` is not.
            pub(crate) fn of_number(quantity: Quantity, number: f64) -> Option<Self> {
                match quantity {
                    $(Quantity::$quantity => {
                        SettingValue::from_number(number).map(Self::$quantity)
                    })*
                    Quantity::TcpWmem | Quantity::TcpRmem => None,
                }
            }
        }
    };
}

settings! {
    /// Rate of the path.
    Bandwidth(BitRate) in bandwidth;
    /// Round-trip time of the empty path.
    Rtt(Span) in rtt;
    /// Distance between the hosts.
    Distance(Distance) in distance;
    /// Window of each stream.
    Window(ByteCount) in window;
    /// Request for the socket buffers.
    Buffer(ByteCount) in buffer;
    /// Request for the send buffer alone.
    Sndbuf(ByteCount) in stated.sndbuf;
    /// Request for the receive buffer alone.
    Rcvbuf(ByteCount) in stated.rcvbuf;
    /// Window of the programs' own protocol.
    AppWindow(ProgramWindow) in stated.app_window;
    /// Time between an answer and the next request.
    Pause(Span) in stated.pause;
    /// Share of packets lost.
    Loss(Ratio) in loss;
    /// Largest IP packet.
    Mtu(ByteCount) in mtu;
    /// Parallel connections.
    Streams(u16) in streams;
    /// Congestion control.
    Congestion(String) in congestion;
    /// Bytes to carry in all.
    Size(ByteCount) in size;
}

macro_rules! measured_values {
    ($($value:ty: $number:path, $from:path;)*) => {$(
        impl SettingValue for $value {
            fn read(text: &str) -> Result<Self, InputError> {
                parse_value(text)
            }

            fn number(&self) -> Option<f64> {
                Some($number(*self))
            }

            fn from_number(number: f64) -> Option<Self> {
                Some($from(number))
            }
        }
    )*};
}

measured_values! {
    BitRate: BitRate::as_f64, BitRate::from_bps_f64;
    Span: Span::as_secs_f64, Span::from_secs_f64;
    Distance: metres, nearest_metre;
    ByteCount: ByteCount::as_f64, ByteCount::from_f64;
    Ratio: Ratio::get, Ratio::new;
}

fn metres(distance: Distance) -> f64 {
    distance.metres() as f64
}

fn nearest_metre(metres: f64) -> Distance {
    Distance::from_metres(metres.round() as u64)
}

impl SettingValue for ProgramWindow {
    fn read(text: &str) -> Result<Self, InputError> {
        text.parse().map_err(InputError::new)
    }

    fn number(&self) -> Option<f64> {
        (self.request == ByteCount::ZERO).then(|| self.bytes.as_f64())
    }

    fn from_number(number: f64) -> Option<Self> {
        Some(Self {
            bytes: ByteCount::from_f64(number),
            request: ByteCount::ZERO,
        })
    }
}

impl SettingValue for u16 {
    fn read(text: &str) -> Result<Self, InputError> {
        text.parse()
            .map_err(|_| InputError::new(format!("\"{text}\" is not {STREAMS}")))
    }

    fn number(&self) -> Option<f64> {
        Some(f64::from(*self))
    }

    fn from_number(number: f64) -> Option<Self> {
        (number.fract() == 0.0).then_some(number as Self)
    }
}

impl SettingValue for String {
    fn read(text: &str) -> Result<Self, InputError> {
        Ok(text.to_owned())
    }

    fn number(&self) -> Option<f64> {
        None
    }

    fn from_number(_number: f64) -> Option<Self> {
        None
    }
}

impl QuantitySetting {
    /// Reads `text` as a value of `quantity`, with the units that people write.
    ///
    /// # Errors
    /// A text that is no such value, or a value with which nothing can be calculated; for a
    /// quantity that is not [`READABLE`], every text.
    pub fn read(quantity: Quantity, text: &str) -> Result<Self, InputError> {
        Self::read_unchecked(quantity, text.trim()).and_then(Self::check_value)
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
