//! Prints a page with every kind of chart, each also as text and as a table.
//!
//! Its data is made up; some is absent, single, constant, huge or hostile. Write the page to a
//! file:
//!
//! ```sh
//! cargo run -p fullpipe-report --example gallery > gallery.html
//! ```

use std::fmt::Write as _;
use std::io::{self, Write as _};

use fullpipe_report::chart::{
    ChartRow, HeatMap, HeatTile, Hue, Panel, Plot, PlotSeries, RateChange, RowChart, SCRIPT, STYLE,
    SeriesForm, escape_html,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, Time};

fn main() -> io::Result<()> {
    let mut page = Page(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Charts of fullpipe</title><style>{STYLE}body{{max-width:880px;margin:2em auto;padding:0 16px;\
         background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}}\
         h2{{font-size:19px;margin:2.5em 0 .5em}}\
         .none{{color:var(--dim)}}table{{border-collapse:collapse;font-size:13px}}td,th{{padding:1px 8px}}\
         pre{{font-size:12px;line-height:1.1;overflow-x:auto}}\
         </style><h1>Charts of fullpipe</h1>"
    ));
    page.plot(
        "Rate and round trips over time, with the ramp shaded",
        &transfer(),
    );
    page.plot("Lines by window over streams, with intervals", &windows());
    page.plot("Round trips by rate", &scatter());
    page.plot("Distributions of round trips", &distributions());
    page.plot(
        "Time–sequence: acknowledged data, data in flight, the window's edge",
        &sequence(),
    );
    page.plot("Runs over 90 days", &history());
    page.plot(
        "Means over parts of an hour, one in front of another",
        &utilisation(),
    );
    page.heat("Window × streams, with knee, edge and BDP", &tiles());
    page.rows("Ceilings, and the limit", &ceilings());
    page.rows(
        "Runs of a step, with median and interval, predicted as a tick",
        &strip(),
    );
    page.rows("Differences with their intervals", &differences());
    page.plot("No data", &Plot::new("Nothing"));
    page.plot("One sample", &over_time((0..1).map(|_| 400)));
    page.plot("Zeros", &over_time((0..100).map(|_| 0)));
    page.plot(
        "A million samples with two spikes",
        &over_time((0..1_000_000).map(spiky)),
    );
    page.plot("A hostile name", &hostile());
    page.heat("One tile", &HeatMap::new("One", vec![tile(64, 1, 300)]));
    writeln!(io::stdout(), "{}<script>{SCRIPT}</script></html>", page.0)
}

struct Page(String);

impl Page {
    fn add(&mut self, title: &str, svg: &str, text: &str, table: &str) {
        let text = escape_html(text);
        let more = format!(
            "<details><summary>As text and as a table</summary><pre>{text}</pre>{table}</details>"
        );
        let _ = write!(
            self.0,
            "<section><h2>{}</h2>{svg}{more}</section>",
            escape_html(title)
        );
    }

    fn plot(&mut self, title: &str, plot: &Plot) {
        self.add(
            title,
            &plot.to_svg(),
            &plot.to_text(),
            &plot.to_figures().to_html(),
        );
    }

    fn rows(&mut self, title: &str, rows: &RowChart) {
        self.add(
            title,
            &rows.to_svg(),
            &rows.to_text(),
            &rows.to_figures().to_html(),
        );
    }

    fn heat(&mut self, title: &str, map: &HeatMap) {
        self.add(
            title,
            &map.to_svg(),
            &map.to_text(),
            &map.to_figures().to_html(),
        );
    }
}

/// A number from 0 to 99 that is as good as random.
fn noise(index: u64) -> u64 {
    (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 100
}

fn spiky(index: u64) -> u64 {
    match index {
        250_000 => 990,
        600_000 => 20,
        _ => 400 + noise(index),
    }
}

fn mbps(rate: u64) -> BitRate {
    BitRate::from_mbps(rate)
}

fn over_time(rates: impl Iterator<Item = u64>) -> Plot {
    let points = rates
        .enumerate()
        .map(|(index, rate)| (Span::from_millis(index as u64 * 10), mbps(rate)));
    Plot::new("Rate over time").with_panel(Panel::new("rate").with_series(PlotSeries::new(
        "rate",
        SeriesForm::Line,
        Hue::Blue,
        points,
    )))
}

fn transfer() -> Plot {
    let rate = |index: u64| {
        if index < 16 {
            (1 << index.min(9)) * 941 / 512
        } else {
            938 + noise(index) / 25
        }
    };
    let rates = (0..120).map(|index| (Span::from_millis(index * 100), mbps(rate(index).min(941))));
    let rtt = |index: u64| 100_000 + index.saturating_sub(40).min(78) * 1_000 + noise(index) * 10;
    let rtts = (0..480).map(|index| (Span::from_millis(index * 25), Span::from_micros(rtt(index))));
    let idle = Span::from_millis(100);
    Plot::new("Rate and round-trip time over time")
        .with_panel(
            Panel::new("rate")
                .with_series(
                    PlotSeries::new("rate", SeriesForm::Line, Hue::Blue, rates)
                        .with_label("steady 941.4"),
                )
                .with_level(BitRate::from_bps(941_500_000), "predicted 941.5"),
        )
        .with_panel(
            Panel::new("round trip")
                .with_series(
                    PlotSeries::new("round trip", SeriesForm::Dots, Hue::Plum, rtts)
                        .with_label("loaded 178 ms"),
                )
                .with_level(idle, "idle 100 ms"),
        )
        .with_shade(Span::ZERO, Span::from_millis(1_600), "ramp 1.6 s")
}

fn windows() -> Plot {
    let streams = [1_u64, 2, 4, 8, 12, 16, 20, 30, 40, 60, 90];
    let rate = |streams: u64, window: u64| {
        (streams * window * 8 / 154 / 10).min(460 - 400 / (streams + 1))
    };
    let hues = [Hue::Grey, Hue::Green, Hue::Orange, Hue::Blue];
    let panel = [64_u64, 256, 512, 1024].iter().zip(hues).fold(
        Panel::new("rate"),
        |panel, (window, hue)| {
            let name = format!("{window} KiB");
            let points = streams.map(|streams| (streams, mbps(rate(streams, *window))));
            let ranges = streams.map(|streams| {
                let middle = mbps(rate(streams, *window));
                (streams, middle.scale_by(0.95), middle.scale_by(1.04))
            });
            panel
                .with_series(
                    PlotSeries::new(&name, SeriesForm::Line, hue, points).with_label(&name),
                )
                .with_series(PlotSeries::from_ranges(
                    &format!("{name}, interval"),
                    hue,
                    ranges,
                ))
        },
    );
    Plot::new_logarithmic("Rate by streams and window")
        .with_axis_name("streams")
        .with_panel(panel.with_level(mbps(585), "the link, 585.6"))
}

fn scatter() -> Plot {
    let clean = (0..60).map(|index| {
        (
            mbps(index * 8),
            Span::from_micros(154_000 + noise(index) * 20),
        )
    });
    let again = (0..30).map(|index| {
        (
            mbps(320 + index * 5),
            Span::from_micros(155_000 + index * 400 + noise(index) * 50),
        )
    });
    Plot::new("Round-trip time by rate")
        .with_axis_name("rate")
        .with_panel(
            Panel::new("round trip")
                .with_series(PlotSeries::new(
                    "nothing sent again",
                    SeriesForm::Dots,
                    Hue::Blue,
                    clean,
                ))
                .with_series(
                    PlotSeries::new("some sent again", SeriesForm::Dots, Hue::Orange, again)
                        .with_label("some sent again"),
                ),
        )
}

fn distributions() -> Plot {
    let values = |base: u64, spread: u64| {
        (0..300)
            .map(|index| Span::from_micros(base + noise(index) * spread))
            .collect()
    };
    Plot::new("Round-trip times, idle and loaded")
        .with_axis_name("round trip")
        .with_panel(
            Panel::new("share of the round trips")
                .with_series(
                    PlotSeries::from_distribution("idle", Hue::Blue, values(100_000, 40))
                        .with_label("idle"),
                )
                .with_series(
                    PlotSeries::from_distribution("loaded", Hue::Plum, values(120_000, 600))
                        .with_label("loaded"),
                ),
        )
}

fn utilisation() -> Plot {
    let minute = |minute: u64| Span::from_secs(60 * minute);
    let share = |percent: u64| Ratio::new(percent as f64 / 100.0);
    let runs = (0..20).map(|run| {
        (
            minute(3 * run),
            minute(3 * run + 1),
            share(30 + noise(run) / 2),
        )
    });
    let others = (0..60).map(|at| (minute(at), minute(at + 1), share(5 + noise(at) / 5)));
    Plot::new("Utilisation over an hour").with_panel(
        Panel::new("use of eth0, 1 Gbit/s")
            .with_series(
                PlotSeries::from_bars("with the runs", Hue::Blue, runs).with_label("with the runs"),
            )
            .with_series(
                PlotSeries::from_bars("other traffic", Hue::Green, others)
                    .with_label("other traffic"),
            ),
    )
}

fn sequence() -> Plot {
    let acked = |index: u64| ByteCount::from_kib(index * index.min(40) * 3);
    let points = |add: u64| {
        (0..150).map(move |index| {
            (
                Span::from_millis(index * 20),
                acked(index) + ByteCount::from_kib(add),
            )
        })
    };
    let flight = (0..150).map(|index| {
        let at = acked(index);
        (
            Span::from_millis(index * 20),
            at,
            at + ByteCount::from_kib(900 + noise(index) * 5),
        )
    });
    Plot::new("Time–sequence").with_panel(
        Panel::new("data")
            .with_series(
                PlotSeries::new("acknowledged", SeriesForm::Steps, Hue::Green, points(0))
                    .with_label("acknowledged"),
            )
            .with_series(PlotSeries::from_ranges("in flight", Hue::Blue, flight))
            .with_series(
                PlotSeries::new(
                    "window's edge",
                    SeriesForm::Steps,
                    Hue::Orange,
                    points(2_000),
                )
                .with_label("window's edge"),
            ),
    )
}

fn history() -> Plot {
    let begin = 1_790_000_000_000_000_000;
    let rate = |index: u64| {
        if index < 200 {
            612 - noise(index) / 2
        } else {
            422 - noise(index) / 3
        }
    };
    let runs = (0..360).map(|index| {
        (
            Time::from_nanos(begin + index * 21_600_000_000_000),
            mbps(rate(index)),
        )
    });
    Plot::new("Rate by day").with_panel(Panel::new("rate").with_series(PlotSeries::new(
        "rate",
        SeriesForm::Dots,
        Hue::Blue,
        runs,
    )))
}

fn tile(window: u64, streams: u64, rate: u64) -> HeatTile {
    let is_measured =
        streams * window >= 2_048 && noise(streams * window + streams) < 60 || streams == 1;
    HeatTile {
        window: ByteCount::from_kib(window),
        streams,
        rate: mbps(rate),
        is_measured,
        note: String::new(),
    }
}

fn tiles() -> HeatMap {
    let windows = [8_u64, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
    let streams = [1_u64, 2, 4, 6, 8, 10, 12, 16, 20, 30, 40, 60, 90];
    let rate = |streams: u64, window: u64| {
        let full = streams as f64 * window as f64 * 8.192 / 154.0;
        (full / (1.0 + full / 470.0)).round() as u64
    };
    let all = windows.iter().flat_map(|window| {
        streams
            .iter()
            .map(|streams| tile(*window, *streams, rate(*streams, *window)))
    });
    HeatMap::new("Rate by window and streams", all.collect())
        .with_knee(ByteCount::from_kib(512), 30)
        .with_bdp(ByteCount::from_kib(11_673))
}

fn ceilings() -> RowChart {
    RowChart::new("Ceilings", ["limit", "ceiling"])
        .with_row(
            ChartRow::new("send-buffer", "323 Mbit/s · the limit", Hue::Orange)
                .with_bar(mbps(323))
                .with_prediction(mbps(321)),
        )
        .with_row(ChartRow::new("receive-window", "502 Mbit/s", Hue::Grey).with_bar(mbps(502)))
        .with_row(ChartRow::new("capacity", "941.5 Mbit/s", Hue::Grey).with_bar(mbps(941)))
}

fn strip() -> RowChart {
    let row = |name: &str, base: u64, hue| {
        let runs = (0..12).map(|index| mbps(base + noise(index) / 2));
        ChartRow::new(name, &format!("{} Mbit/s, 12 runs", base + 25), hue)
            .with_dots(runs)
            .with_dot(mbps(base + 25))
            .with_interval(mbps(base + 12), mbps(base + 40))
            .with_prediction(mbps(base + 30))
    };
    RowChart::new("Runs", ["step", "median"])
        .with_row(row("1 stream, 64 KiB", 20, Hue::Blue))
        .with_row(row("4 streams, 64 KiB", 120, Hue::Blue))
        .with_row(row("8 streams, 1 MiB", 430, Hue::Blue))
}

fn differences() -> RowChart {
    let change = |factor| RateChange(Ratio::new(factor));
    let row = |name, figure, hue, [low, middle, high]: [f64; 3]| {
        ChartRow::new(name, figure, hue)
            .with_dot(change(middle))
            .with_interval(change(low), change(high))
    };
    RowChart::new("Differences", ["change", "difference, 95 % interval"])
        .with_row(row(
            "tcp_wmem 4 → 24 MiB",
            "+191 % (+188 to +193 %)",
            Hue::Green,
            [2.88, 2.91, 2.93],
        ))
        .with_row(row(
            "CUBIC → BBR",
            "+3.1 % (+0.8 to +5.4 %)",
            Hue::Green,
            [1.008, 1.031, 1.054],
        ))
        .with_row(
            row(
                "MTU 1500 → 9000",
                "+1.2 % (−0.9 to +3.3 %): no difference shown",
                Hue::Grey,
                [0.991, 1.012, 1.033],
            )
            .with_hollow_dot(),
        )
        .with_row(row(
            "this week → last week",
            "−31 % (−35 to −27 %)",
            Hue::Orange,
            [0.65, 0.69, 0.73],
        ))
}

fn hostile() -> Plot {
    let name = "<script>alert('x')</script> \u{202e}drowssap & \"quotes\"";
    let points = [(Span::ZERO, mbps(1)), (Span::from_secs(1), mbps(2))];
    let series = PlotSeries::new(name, SeriesForm::Line, Hue::Blue, points).with_label(name);
    Plot::new(name)
        .with_panel(Panel::new(name).with_series(series))
        .with_shade(Span::ZERO, Span::from_secs(1), &"x".repeat(1_000_000))
}
