//! What runs now, and the form of a new test.

use fullpipe_record::{Direction, HistoryReport, Interval, StoredDocument, StoredFacts};
use fullpipe_report::chart::{Hue, Panel, Plot, SeriesForm, displayable_text, escape_html};
use fullpipe_units::{BitRate, ByteCount, Span, median};

use super::measurements::{options, short_time};
use super::shell::{NavigationPage, whole_page};
use crate::answer::Refusal;
use crate::route::{Query, link_with_query};
use crate::runs::{RunState, TestRequest};

/// Runs whose median is taken for the rate of the next one.
const RECENT_RUNS: usize = 5;

/// Rate of a path that nothing is known of, for a forecast that is stated as one.
const ASSUMED_RATE: BitRate = BitRate::from_mbps(1000);

/// Returns the page of what runs now, with the `newest` documents of the archive.
pub(crate) fn now_page(run: &RunState, newest: &[StoredDocument]) -> String {
    let rows: String = newest.iter().map(newest_item).collect();
    let listed = if rows.is_empty() {
        "<p>The archive has no document yet.</p>\n".to_owned()
    } else {
        format!("<ul class=\"newest\">{rows}</ul>\n")
    };
    let content = format!(
        "<h1>Now</h1>\n<section id=\"live\" data-live aria-live=\"polite\">{}</section>\n\
         <p id=\"lost\" role=\"alert\" hidden>The server does not answer. This page goes on when it does.</p>\n\
         <h2>Newest</h2>\n{listed}",
        live_part(run)
    );
    whole_page("Now", Some(NavigationPage::Now), &content)
}

fn newest_item(document: &StoredDocument) -> String {
    let first = document.facts.first();
    let rate = first.and_then(|facts| facts.steady.or(facts.rate));
    let limit = first.and_then(StoredFacts::limit_name);
    let subject = if document.peer.is_empty() {
        &document.kind
    } else {
        &document.peer
    };
    let figures = [rate.map(|rate| rate.to_string()), limit];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    format!(
        "<li><a href=\"/documents/{}\">{} {}</a> {}</li>",
        escape_html(&document.id),
        escape_html(&short_time(&document.started)),
        escape_html(&displayable_text(subject)),
        escape_html(&displayable_text(&figures.join(", ")))
    )
}

/// Returns what the page shows of a run: the part that is replaced as it goes on.
pub(crate) fn live_part(run: &RunState) -> String {
    match run {
        RunState::Idle => "<p>Nothing runs. <a href=\"/new\">Start a test</a></p>".to_owned(),
        RunState::Running(run) => format!(
            "<p>{} for {} s. <button type=\"button\" data-stop>Stop</button></p>{}",
            escape_html(&displayable_text(&run.request.title())),
            run.request.seconds,
            live_chart(&run.intervals, run.request.seconds)
        ),
        RunState::Kept { request, id } => format!(
            "<p>{} is over: <a href=\"/documents/{}\" data-result>the result</a>. <a href=\"/new\">Start another one</a></p>",
            escape_html(&displayable_text(&request.title())),
            escape_html(id)
        ),
        RunState::Failed { request, why } => format!(
            "<p role=\"alert\">{} failed: {}. <a href=\"/new\">Start another one</a></p>",
            escape_html(&displayable_text(&request.title())),
            escape_html(&displayable_text(why))
        ),
    }
}

/// Returns the chart of the rates so far, with the newest as a figure.
fn live_chart(intervals: &[Interval], seconds: u16) -> String {
    let Some(newest) = intervals.last() else {
        return "<p>It begins.</p>".to_owned();
    };
    let rates = |direction| {
        let own = intervals
            .iter()
            .filter(move |interval| interval.direction == direction);
        own.map(|interval| (interval.to, interval.rate))
    };
    let trips = intervals
        .iter()
        .filter_map(|interval| Some((interval.to, interval.echo_rtt.or(interval.rtt)?)));
    let line = SeriesForm::Line;
    let plot = Plot::new("The test that runs")
        .with_axis_end(Span::from_secs(seconds.into()))
        .with_panel(
            Panel::new("Rate")
                .with_points("upload", line, Hue::Blue, rates(Direction::Upload))
                .with_points("download", line, Hue::Orange, rates(Direction::Download)),
        )
        .with_panel(Panel::new("Round-trip time").with_points(
            "round trip",
            line,
            Hue::Plum,
            trips,
        ));
    format!(
        "<p class=\"rate\" data-rate=\"{}\">{}</p>{}",
        newest.rate.as_f64(),
        newest.rate,
        plot.to_svg()
    )
}

/// The form of a new test, as far as it is filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestForm(Option<TestRequest>);

impl TestForm {
    /// Reads what the form sent.
    ///
    /// # Errors
    /// Fails if a number is none, or beyond its bounds.
    pub(crate) fn from_query(query: &Query) -> Result<Self, Refusal> {
        let Some(host) = query.value("host") else {
            return Ok(Self(None));
        };
        let number = |name: &str, default: u16| match query.value(name) {
            Some(text) => text
                .parse()
                .map_err(|_| Refusal::bad_request(format!("{name} is a number"))),
            None => Ok(default),
        };
        let request = TestRequest {
            host: host.to_owned(),
            reverse: query.value("direction") == Some("download"),
            seconds: number("seconds", 10)?,
            streams: number("streams", 1)?,
        };
        request.check_bounds()?;
        Ok(Self(Some(request)))
    }

    /// Returns the host of the test, once there is one.
    pub(crate) fn host(&self) -> Option<&str> {
        self.0.as_ref().map(|request| request.host.as_str())
    }
}

/// Returns the page of a new test to one of `hosts`; once the form is filled in, with what it will
/// move as the `history` of that host lets expect, to be confirmed.
pub(crate) fn new_test_page(
    form: &TestForm,
    hosts: &[String],
    history: Option<&HistoryReport>,
) -> String {
    let mut content = "<h1>New test</h1>\n".to_owned();
    if hosts.is_empty() {
        content += "<p>Tests go to hosts that the archive knows, or that <code>fullpipe web --targets</code> names. \
                    There is none yet: <code>fullpipe measure HOST --store FILE</code> makes the first.</p>\n";
        return whole_page("New test", Some(NavigationPage::NewTest), &content);
    }
    content += &test_form(form, hosts);
    if let Some(request) = &form.0 {
        content += &forecast_part(request, history);
    }
    whole_page("New test", Some(NavigationPage::NewTest), &content)
}

fn test_form(form: &TestForm, hosts: &[String]) -> String {
    let (host, direction, seconds, streams) = match &form.0 {
        Some(request) => (
            request.host.as_str(),
            request.direction().name(),
            request.seconds,
            request.streams,
        ),
        None => (hosts.first().map_or("", String::as_str), "upload", 10, 1),
    };
    let offered = hosts.iter().map(|host| (host.as_str(), host.as_str()));
    let directions = [
        ("upload", "this host sends"),
        ("download", "the other host sends"),
    ];
    format!(
        "<form class=\"fields\"><label>Host <select name=\"host\">{}</select></label>\
         <label>Direction <select name=\"direction\">{}</select></label>\
         <label>Seconds <input name=\"seconds\" type=\"number\" min=\"1\" max=\"{}\" value=\"{seconds}\"></label>\
         <label>Streams <input name=\"streams\" type=\"number\" min=\"1\" max=\"{}\" value=\"{streams}\"></label>\
         <button>What will it move?</button></form>\n",
        options(offered, host),
        options(directions, direction),
        TestRequest::MAX_SECONDS,
        TestRequest::MAX_STREAMS,
    )
}

fn forecast_part(request: &TestRequest, history: Option<&HistoryReport>) -> String {
    let known = history.and_then(|history| recent_rate(history, request.direction()));
    let rate = known.map_or(ASSUMED_RATE, |(rate, _)| rate);
    let time = Span::from_secs(request.seconds.into());
    let bytes = ByteCount::new((rate.as_f64() / 8.0 * time.as_secs_f64()) as u64);
    let basis = match known {
        Some((rate, 1)) => format!("the only run of this kind that is kept moved {rate}"),
        Some((rate, runs)) => format!("the median of the last {runs} runs is {rate}"),
        None => format!("no run of this kind is kept; this is what {rate} would move"),
    };
    let history = link_with_query("/history", &[("host", &request.host)]);
    format!(
        "<section aria-label=\"Forecast\"><p class=\"rate\">{bytes}</p><p>{}: that much in {} s, and a little for the \
         way there and back; {basis} (<a href=\"{}\">history</a>). The path carries this beside what others send \
         on it.</p>\n<p><button type=\"button\" data-run=\"{}\">Send it</button></p>\n\
         <p id=\"refused\" role=\"alert\" hidden></p></section>\n",
        escape_html(&displayable_text(&request.title())),
        request.seconds,
        escape_html(&history),
        escape_html(&serde_json::to_string(request).unwrap_or_default())
    )
}

/// Returns the median rate of the last valid runs in a direction, with their number.
fn recent_rate(history: &HistoryReport, direction: Direction) -> Option<(BitRate, usize)> {
    let series = history
        .series
        .iter()
        .find(|series| series.direction == direction)?;
    let valid = series.points.iter().rev().filter(|point| point.valid);
    let rates: Vec<BitRate> = valid.take(RECENT_RUNS).map(|point| point.rate).collect();
    let count = rates.len();
    Some((median(rates)?, count))
}
