//! The fleet: what is wrong, who is there, and how each pair is.

use fullpipe_fleet::{
    ChangedPair, FleetIncident, FleetStatus, HostStatus, PairStatus, PairStatusKind,
};
use fullpipe_report::chart::{displayable_text, escape_html};
use fullpipe_units::BitRate;
use jiff::Timestamp;

use super::shell::{NavigationPage, whole_page};
use crate::answer::Refusal;
use crate::route::{Query, link_with_query};

/// Pairs that the matrix lists at once.
const PAIRS: usize = 200;

/// Returns the page of a fleet: incidents, then hosts, then pairs, those that are otherwise first.
///
/// # Errors
/// Fails if there is no fleet.
pub(crate) fn fleet_page(query: &Query, status: &FleetStatus) -> Result<String, Refusal> {
    if status.hosts.is_empty() {
        return Err(Refusal::not_found("the archive has no fleet"));
    }
    let content = format!(
        "<h1>Fleet</h1>\n{}{}{}",
        incidents_part(status),
        hosts_part(status),
        pairs_part(query, status)
    );
    Ok(whole_page("Fleet", Some(NavigationPage::Fleet), &content))
}

fn text(text: &str) -> String {
    escape_html(&displayable_text(text))
}

/// Returns a time in seconds since 1970 as a day and a minute.
fn minute(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
    let time: String = time.to_string().chars().take(16).collect();
    time.replace('T', " ")
}

fn incidents_part(status: &FleetStatus) -> String {
    let (open, over): (Vec<_>, Vec<_>) = status
        .incidents
        .iter()
        .filter(|incident| incident.joined.is_none())
        .partition(|incident| incident.ended.is_none());
    let unknown = count_of(status, PairStatusKind::Unknown);
    let mut part =
        "<section aria-labelledby=\"incidents\"><h2 id=\"incidents\">Incidents</h2>\n".to_owned();
    if open.is_empty() {
        part += &format!(
            "<p>No pair is known to be otherwise than usual; of {unknown} of {} nothing is known now.</p>\n",
            status.pairs.len()
        );
    } else {
        part += &incident_list(&open);
    }
    if !over.is_empty() {
        let list = incident_list(&over);
        part += &format!(
            "<details><summary>{} of the last week are over</summary>\n{list}</details>\n",
            over.len()
        );
    }
    part + "</section>\n"
}

fn incident_list(incidents: &[&FleetIncident]) -> String {
    let item = |incident: &&FleetIncident| {
        let ended = incident.ended.map_or_else(String::new, |ended| {
            format!(", over since {} UTC", minute(ended))
        });
        format!(
            "<li><a href=\"/fleet/incidents/{}\">{}</a>{ended}</li>",
            escape_html(&incident.id),
            long_text(&incident.sentence)
        )
    };
    let items: String = incidents.iter().map(item).collect();
    format!("<ul class=\"newest\">{items}</ul>\n")
}

/// Returns a sentence with names of others, whole.
fn long_text(sentence: &str) -> String {
    escape_html(&fullpipe_units::printable_line(sentence))
}

fn count_of(status: &FleetStatus, kind: PairStatusKind) -> usize {
    status.pairs.iter().filter(|pair| pair.kind == kind).count()
}

fn hosts_part(status: &FleetStatus) -> String {
    let mut hosts: Vec<&HostStatus> = status.hosts.iter().collect();
    hosts.sort_by_key(|host| (!host.is_silent, &host.name));
    let silent = hosts.iter().filter(|host| host.is_silent).count();
    let rows: String = hosts.iter().map(|host| host_row(host)).collect();
    let table = table(
        "hosts",
        &["Host", "Site", "Last seen (UTC)", "Clock", "Slots of a day"],
        &rows,
    );
    let slots: Vec<String> = status
        .slots
        .iter()
        .map(|(outcome, count)| format!("{count} {}", text(outcome)))
        .collect();
    let slots = if slots.is_empty() {
        "none".to_owned()
    } else {
        slots.join(", ")
    };
    format!(
        "<section aria-labelledby=\"hosts\"><h2 id=\"hosts\">Hosts</h2>\n\
         <p>{} hosts, {silent} silent. Slots of a day: {slots}.</p>\n\
         <details{}><summary>Each host</summary>\n{table}</details></section>\n",
        hosts.len(),
        if hosts.len() <= 30 || silent > 0 {
            " open"
        } else {
            ""
        }
    )
}

fn host_row(host: &HostStatus) -> String {
    let seen = match (host.seen, host.is_silent) {
        (0, _) => "never".to_owned(),
        (seen, true) => format!("{}, silent", minute(seen)),
        (seen, false) => minute(seen),
    };
    let slots: Vec<String> = host
        .slots
        .iter()
        .map(|(outcome, count)| format!("{count} {}", text(outcome)))
        .collect();
    let link = link_with_query("/fleet", &[("host", &host.name)]);
    format!(
        "<tr><th scope=\"row\"><a href=\"{}#pairs\">{}</a></th><td>{}</td><td>{seen}</td>\
         <td class=\"number\">{:+} ms</td><td>{}</td></tr>\n",
        escape_html(&link),
        text(&host.name),
        text(&host.site),
        host.offset_ms,
        slots.join(", ")
    )
}

/// Returns a table that can be moved with the keyboard where it is wider than the page.
fn table(name: &str, columns: &[&str], rows: &str) -> String {
    let cell = |column: &&str| format!("<th scope=\"col\">{column}</th>");
    let head: String = columns.iter().map(cell).collect();
    format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Table of {name}\"><table class=\"list\">\n\
         <thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn pairs_part(query: &Query, status: &FleetStatus) -> String {
    let host = query.value("host").unwrap_or_default();
    let is_asked =
        |pair: &&PairStatus| host.is_empty() || [&*pair.sender, &*pair.receiver].contains(&host);
    let mut pairs: Vec<&PairStatus> = status.pairs.iter().filter(is_asked).collect();
    pairs.sort_by_key(|pair| (pair.kind, &pair.sender, &pair.receiver));
    let counts = [
        PairStatusKind::Changed,
        PairStatusKind::Unknown,
        PairStatusKind::New,
        PairStatusKind::Usual,
    ]
    .map(|kind| {
        let count = pairs.iter().filter(|pair| pair.kind == kind).count();
        format!("{count} {}", kind.name())
    });
    let shown = &pairs[..pairs.len().min(PAIRS)];
    let rows: String = shown.iter().map(|pair| pair_row(pair)).collect();
    let names = status.hosts.iter().map(|host| (&*host.name, &*host.name));
    let offered = [("", "all")].into_iter().chain(names);
    let left = match pairs.len() - shown.len() {
        0 => String::new(),
        left => format!(
            "<p>{left} more: choose a host, or read <a href=\"/api/v1/fleet\">all as JSON</a>.</p>\n"
        ),
    };
    format!(
        "<section aria-labelledby=\"pairs\"><h2 id=\"pairs\">Pairs</h2>\n<form class=\"fields\" action=\"/fleet#pairs\" \
         role=\"search\" aria-label=\"Pairs of a host\"><label>Pairs of <select name=\"host\">{}</select></label>\
         <button>Show</button></form>\n<p>{}.</p>\n{}{left}</section>\n",
        super::measurements::options(offered, host),
        counts.join(", "),
        table(
            "pairs",
            &[
                "From",
                "To",
                "State",
                "Rate",
                "Usual",
                "Limit",
                "Since or measured (UTC)"
            ],
            &rows
        )
    )
}

fn pair_row(pair: &PairStatus) -> String {
    let state = match (pair.kind, pair.why, &pair.cause) {
        (PairStatusKind::Unknown, Some(why), _) => format!("unknown: {why}"),
        (PairStatusKind::Changed, _, Some(cause)) => format!("changed: {}", text(cause)),
        (kind, ..) => kind.name().to_owned(),
    };
    let when = match (pair.kind, pair.since, pair.at) {
        (PairStatusKind::Changed, Some(since), _) => format!("since {}", minute(since)),
        (.., Some(at)) => format!("measured {}", minute(at)),
        _ => String::new(),
    };
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{state}</td>{}<td>{}</td><td>{}</td></tr>\n",
        text(&pair.sender),
        text(&pair.receiver),
        rate_cells(pair.rate, pair.usual_rate),
        text(pair.limit.as_deref().unwrap_or_default()),
        document_link(pair.document.as_deref(), &when)
    )
}

fn rate_cells(rate: Option<BitRate>, usual: Option<BitRate>) -> String {
    let share = rate.zip(usual).filter(|(_, usual)| usual.bps() > 0);
    let share = share.map_or_else(String::new, |(rate, usual)| {
        format!(" ({:.0} %)", rate.as_f64() / usual.as_f64() * 100.0)
    });
    let words = |rate: Option<BitRate>| rate.map_or_else(String::new, |rate| rate.to_string());
    format!(
        "<td class=\"number\">{}{share}</td><td class=\"number\">{}</td>",
        words(rate),
        words(usual)
    )
}

fn document_link(document: Option<&str>, words: &str) -> String {
    match document.filter(|document| !document.is_empty() && !words.is_empty()) {
        Some(id) => format!("<a href=\"/documents/{}\">{words}</a>", escape_html(id)),
        None => words.to_owned(),
    }
}

/// Returns the page of an incident.
pub(crate) fn incident_page(incident: &FleetIncident) -> String {
    let state = match (&incident.joined, incident.ended) {
        (Some(other), _) => format!(
            "It is part of <a href=\"/fleet/incidents/{}\">another one</a>.",
            escape_html(other)
        ),
        (None, Some(ended)) => format!("It is over since {} UTC.", minute(ended)),
        (None, None) => "It goes on.".to_owned(),
    };
    let mut content = format!(
        "<h1>{}</h1>\n<p>{state} It began between {} and {} UTC.</p>\n",
        long_text(&incident.sentence),
        minute(incident.after),
        minute(incident.since)
    );
    if !incident.candidates.is_empty() {
        let item = |candidate: &String| format!("<li>pairs {}</li>", text(candidate));
        let items: String = incident.candidates.iter().map(item).collect();
        content += &format!("<p>What is known fits these as well:</p>\n<ul>{items}</ul>\n");
    }
    let rows: String = incident.changed.iter().map(changed_row).collect();
    let columns = [
        "From",
        "To",
        "Rate",
        "Usual",
        "Round trip",
        "Losses",
        "Limit",
        "Since (UTC)",
    ];
    content += &format!(
        "<h2>Changed</h2>\n{}",
        table("changed pairs", &columns, &rows)
    );
    content += &unchanged_part(incident);
    content += "<p class=\"links\"><a href=\"/fleet\">The fleet</a></p>\n";
    whole_page("Incident", Some(NavigationPage::Fleet), &content)
}

fn changed_row(pair: &ChangedPair) -> String {
    let trips = match (pair.rtt, pair.usual_rtt) {
        (Some(rtt), Some(usual)) => format!("{rtt}, usually {usual}"),
        _ => String::new(),
    };
    let loss = pair
        .loss
        .map_or_else(String::new, |loss| format!("{:.2} %", loss.get() * 100.0));
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td>{}<td>{trips}</td><td class=\"number\">{loss}</td><td>{}</td><td>{}</td></tr>\n",
        text(&pair.sender),
        text(&pair.receiver),
        rate_cells(pair.rate, pair.usual_rate),
        text(pair.limit.as_deref().unwrap_or_default()),
        document_link(pair.document.as_deref(), &minute(pair.since))
    )
}

fn unchanged_part(incident: &FleetIncident) -> String {
    let item = |[sender, receiver]: &[String; 2]| {
        format!("<li>{} to {}</li>", text(sender), text(receiver))
    };
    let items: String = incident.unchanged.iter().map(item).collect();
    let list = if items.is_empty() {
        "<p>No pair of the same place was as usual since then.</p>\n".to_owned()
    } else {
        format!("<ul>{items}</ul>\n")
    };
    let left = match incident.unmeasured {
        0 => String::new(),
        left => format!("<p>{left} pairs of the same place were not measured since then.</p>\n"),
    };
    format!("<h2>As usual</h2>\n{list}{left}")
}
