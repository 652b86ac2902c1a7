//! The lines of figures, and the heads above them.

use super::amount::{self, RateUnit, two_digits};
use crate::text::prelude::*;
pub(crate) const SEPARATOR: &str = "- - - - - - - - - - - - - - - - - - - - - - - - -\n";

/// Figures of a line: of one stream, or of all in one direction.
pub(crate) struct ResultLine<'t> {
    /// Number of the stream, as `  5`, or `SUM`.
    pub name: &'t str,
    /// Direction, as `[TX-C]`, if data goes both ways, else empty.
    pub tag: &'t str,
    /// Start of the time, in seconds.
    pub from: f64,
    /// End of the time, in seconds.
    pub to: f64,
    pub bytes: ByteCount,
    pub count: LineCounts,
    /// Last word: `sender`, `receiver`, `(omitted)`, or nothing.
    pub word: &'t str,
}

/// Counts of a line other than bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LineCounts {
    Nothing,
    /// Retransmitted segments.
    Retransmits(u64),
    /// Retransmitted segments, and the congestion window at the end.
    Window(u64, ByteCount),
    /// Datagrams sent.
    Sent(u64),
    /// Datagrams that arrived and that were lost.
    Arrived(LineDatagrams),
}

/// Counts of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct LineDatagrams {
    /// Jitter, in milliseconds.
    pub jitter: f64,
    pub lost: u64,
    /// Lost and received.
    pub datagrams: u64,
}

impl LineDatagrams {
    /// Returns the share of lost datagrams, in percent; 0 if there are none.
    pub(crate) fn lost_percent(self) -> f64 {
        share_percent(self.lost, self.datagrams)
    }
}

/// Returns the share of `part` in `whole`, in percent; 0 if `whole` is 0.
pub(crate) fn share_percent(part: u64, whole: u64) -> f64 {
    if whole > 0 {
        100.0 * part as f64 / whole as f64
    } else {
        0.0
    }
}

impl ResultLine<'_> {
    /// Returns the line with its newline.
    pub(crate) fn to_text(&self, unit: RateUnit) -> String {
        let Self {
            name,
            tag,
            from,
            to,
            word,
            ..
        } = self;
        let transfer = amount::format_bytes(self.bytes);
        let rate = amount::format_rate(self.bytes, to - from, unit);
        let count = match self.count {
            LineCounts::Nothing => " ".repeat(14),
            LineCounts::Retransmits(again) => format!("{again:3}           "),
            LineCounts::Window(again, window) => {
                format!("{again:3}   {}     ", amount::format_bytes(window))
            }
            // Where data goes both ways, the head leaves room for the jitter of the others.
            LineCounts::Sent(sent) => {
                format!("{}{sent}", if tag.is_empty() { " " } else { "           " })
            }
            LineCounts::Arrived(arrived) => format!(
                "{:5.3} ms  {}/{} ({}%)",
                arrived.jitter,
                arrived.lost,
                arrived.datagrams,
                two_digits(arrived.lost_percent())
            ),
        };
        let gap = text_if(!matches!(self.count, LineCounts::Sent(_)), " ");
        format!("[{name}]{tag} {from:6.2}-{to:<6.2} sec  {transfer}  {rate} {gap}{count}  {word}\n")
    }
}

/// Head of the columns of datagrams that arrived.
pub(crate) const ARRIVED_COLUMNS: &str = "         Jitter    Lost/Total Datagrams";

/// Returns the head above lines of figures, with these columns behind the rates.
pub(crate) fn head_line(columns: &str, both_ways: bool) -> String {
    let role = text_if(both_ways, "[Role]");
    format!("[ ID]{role} Interval           Transfer     Bitrate{columns}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(tag: &str, count: LineCounts, word: &str) -> String {
        let bytes = ByteCount::new(1_181_116_006);
        ResultLine {
            name: "  5",
            tag,
            from: 0.0,
            to: 1.0,
            bytes,
            count,
            word,
        }
        .to_text(RateUnit::Bits)
    }

    #[test]
    fn lines_are_those_of_iperf3_to_the_space() {
        let head = "[  5]   0.00-1.00   sec  1.10 GBytes  9.45 Gbits/sec";
        let window = ByteCount::new(1_310_720);
        assert_eq!(
            line("", LineCounts::Window(12, window), ""),
            format!("{head}   12   1.25 MBytes       \n")
        );
        assert_eq!(
            line("", LineCounts::Retransmits(0), "sender"),
            format!("{head}    0             sender\n")
        );
        assert_eq!(
            line("", LineCounts::Nothing, "receiver"),
            format!("{head}                  receiver\n")
        );
        assert_eq!(
            line("", LineCounts::Sent(86), ""),
            format!("{head}  86  \n")
        );
        let arrived = LineDatagrams {
            jitter: 0.0125,
            lost: 3,
            datagrams: 86,
        };
        assert_eq!(
            line("", LineCounts::Arrived(arrived), "receiver"),
            format!("{head}  0.013 ms  3/86 (3.5%)  receiver\n")
        );
    }

    #[test]
    fn both_ways_every_line_says_which() {
        let sent = line("[TX-C]", LineCounts::Sent(86), "");
        assert_eq!(
            sent,
            "[  5][TX-C]   0.00-1.00   sec  1.10 GBytes  9.45 Gbits/sec            86  \n"
        );
        assert_eq!(
            head_line("         Retr  Cwnd", true),
            "[ ID][Role] Interval           Transfer     Bitrate         Retr  Cwnd\n"
        );
    }
}
