//! Prints the time and the size of a chart of a million samples, and of a page of a thousand runs.
//!
//! ```sh
//! cargo run --release -p fullpipe-report --example speed
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "this measures how long the work takes"
)]

use std::io::{self, Write};
use std::time::Instant;

use fullpipe_record::{Content, Document, StoredDocument, StoredFacts};
use fullpipe_report::chart::{Hue, Panel, Plot, PlotSeries, SeriesForm};
use fullpipe_report::{PageSource, html_page};
use fullpipe_units::{BitRate, Span};

/// The sample of the chart that no other comes near.
const SPIKE: u64 = 654_321;

fn main() -> io::Result<()> {
    let begun = Instant::now();
    let svg = chart();
    let has_spike = svg.contains("-999 ");
    let chart = format!(
        "a chart of 1 000 000 samples: {:?}, {} bytes, spike kept: {has_spike}",
        begun.elapsed(),
        svg.len()
    );
    let document = Document::new(Content::Stored {
        stored: (0..1_000).map(run).collect(),
    });
    let begun = Instant::now();
    let page = html_page(&[PageSource {
        name: "archive",
        document: &document,
    }])
    .map_err(io::Error::other)?;
    writeln!(
        io::stdout(),
        "{chart}\na page of 1 000 runs: {:?}, {} bytes",
        begun.elapsed(),
        page.len()
    )
}

fn chart() -> String {
    let rate = |index: u64| {
        BitRate::from_mbps(if index == SPIKE {
            999
        } else {
            400 + index * 7_919 % 100
        })
    };
    let points = (0..1_000_000).map(|index| (Span::from_millis(index * 10), rate(index)));
    Plot::new("Rate")
        .with_panel(Panel::new("rate").with_series(PlotSeries::new(
            "rate",
            SeriesForm::Line,
            Hue::Blue,
            points,
        )))
        .to_svg()
}

fn run(number: u64) -> StoredDocument {
    StoredDocument {
        id: format!("01a2121b-a32a-720a-9996-{number:012x}"),
        started: format!(
            "2026-03-{:02}T{:02}:00:00Z",
            1 + number / 24 % 28,
            number % 24
        ),
        peer: format!("host-{}.example", number % 3),
        facts: vec![StoredFacts {
            steady: Some(BitRate::from_bps(
                300_000_000 + number * 7_919_777 % 40_000_000,
            )),
            rtt_loaded: Some(Span::from_micros(20_000 + number * 31 % 4_000)),
            limit: Some("send-buffer".to_owned()),
            valid: true,
            ..StoredFacts::default()
        }],
        ..StoredDocument::default()
    }
}
