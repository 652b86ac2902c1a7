use fullpipe_record::{Hop, Refusal, RouteMethod, RouteMtu, RouteReport, RttStats};

use super::prelude::*;

/// The way to a target: a line a hop, and what passes.
pub fn route_text(report: &RouteReport) -> String {
    let mut text = heading_line(&format!("Route to {}", report.target));
    if !report.hops.is_empty() {
        text += &hop_table(report);
    }
    text += &paragraph(&route_end(report), 2);
    if let Some(mtu) = &report.mtu {
        text += &paragraph(&mtu_sentence(mtu, report), 2);
    }
    for note in route_notes(report) {
        text += &dim_paragraph(note, 2);
    }
    text
}

fn hop_table(report: &RouteReport) -> String {
    let mut table = TextTable::new(">hop|>lost|>RTT least|>median|");
    for hop in &report.hops {
        let rtt = RttStats::from_samples(hop.rtts.clone());
        table.push_row(cells![
            hop.number,
            format!("{} of {}", hop.unanswered_probes(), hop.sent),
            or_dash(rtt.map(|rtt| round_trip(rtt.min))),
            or_dash(rtt.map(|rtt| round_trip(rtt.median))),
            if hop.addresses.is_empty() {
                "no answer".to_owned()
            } else {
                hop.addresses.join(" ")
            },
        ]);
    }
    table.render(2)
}

/// Returns the sentence about the route's end.
fn route_end(report: &RouteReport) -> String {
    let (target, hops) = (&report.target, report.hops.len());
    let refusal = report
        .hops
        .last()
        .and_then(|hop| Some((hop.addresses.first()?, hop.refusal?)));
    match refusal {
        Some((by, refusal)) => format!(
            "{by} lets nothing through to {target}: {}.",
            refusal_reason(refusal)
        ),
        None if report.reached => format!("{target} is {} away.", count_noun(hops, "hop")),
        None if hops == 0 => format!("Neither {target} nor any router on the way to it answers."),
        None => format!("{target} itself does not answer, nor does any router behind hop {hops}."),
    }
}

fn refusal_reason(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NoRoute => "it has no route there",
        Refusal::NoHost => "the host does not answer it",
        Refusal::Prohibited => "its rules forbid it",
    }
}

fn mtu_sentence(mtu: &RouteMtu, report: &RouteReport) -> String {
    // Routers count bytes, and so do those who set them right.
    let size = mtu.size.get();
    let why = match &mtu.reported_by {
        Some(router) => format!("{router} says that no more passes"),
        None => "this host's own device takes no more".to_owned(),
    };
    match (mtu.answered, report.reached) {
        (true, _) => format!("Packets of up to {size} bytes pass: {why}."),
        (false, true) => format!(
            "Packets of {size} bytes get no answer, though small ones do, and nobody says what passes: something on \
             the way may drop large packets ({why})."
        ),
        (false, false) => format!("Packets of {size} bytes may pass: {why}."),
    }
}

fn route_notes(report: &RouteReport) -> Vec<&'static str> {
    let mut notes = Vec::new();
    let last = report.hops.last().filter(|_| report.reached);
    let last = last.map_or(f64::INFINITY, unanswered_share);
    if report.hops.iter().any(|hop| unanswered_share(hop) > last) {
        notes.push("A router that seldom answers need not lose what it forwards: what counts is the last hop.");
    }
    if report.method == RouteMethod::Udp {
        notes.push("Echo requests are not permitted to this user: these are datagrams, of which hosts answer few.");
    }
    if !report.hops.is_empty() {
        notes.push("This is the way there; the way back may be another.");
    }
    notes
}

fn unanswered_share(hop: &Hop) -> f64 {
    f64::from(hop.unanswered_probes()) / f64::from(hop.sent.max(1))
}
