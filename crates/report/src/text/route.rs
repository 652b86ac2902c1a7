use fullpipe_record::{Hop, Refusal, RouteMethod, RouteMtu, RouteReport, RttStats};
use fullpipe_units::counted;

use super::measurement::round_trip;
use super::style::{Style, heading, wrapped};
use super::table::{Align, Table, or_dash};

/// The way to a target: a line a hop, and what passes.
pub fn route(report: &RouteReport, style: Style) -> String {
    let mut text = heading(style, &format!("Route to {}", report.target));
    if !report.hops.is_empty() {
        text += &table(report, style);
    }
    text += &wrapped(&end(report), 2, str::to_owned);
    if let Some(mtu) = &report.mtu {
        text += &wrapped(&passes(mtu, report), 2, str::to_owned);
    }
    for note in notes(report) {
        text += &wrapped(note, 2, |line| style.dim(line));
    }
    text
}

fn table(report: &RouteReport, style: Style) -> String {
    let right = Align::Right;
    let heads = [("hop", right), ("lost", right), ("RTT least", right), ("median", right), ("", Align::Left)];
    let mut table = Table::new(&heads);
    for hop in &report.hops {
        let rtt = RttStats::of(hop.rtts.clone());
        table.row([
            hop.number.to_string(),
            format!("{} of {}", hop.lost(), hop.sent),
            or_dash(rtt.map(|rtt| round_trip(rtt.min))),
            or_dash(rtt.map(|rtt| round_trip(rtt.median))),
            if hop.addresses.is_empty() { "no answer".to_owned() } else { hop.addresses.join(" ") },
        ]);
    }
    table.render(2, |head| style.dim(head))
}

/// Returns the sentence about the route's end.
fn end(report: &RouteReport) -> String {
    let (target, hops) = (&report.target, report.hops.len());
    let refusal = report.hops.last().and_then(|hop| Some((hop.addresses.first()?, hop.refusal?)));
    match refusal {
        Some((by, refusal)) => format!("{by} lets nothing through to {target}: {}.", reason(refusal)),
        None if report.reached => format!("{target} is {} away.", counted(hops, "hop")),
        None if hops == 0 => format!("Neither {target} nor any router on the way to it answers."),
        None => format!("{target} itself does not answer, nor does any router behind hop {hops}."),
    }
}

fn reason(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NoRoute => "it has no route there",
        Refusal::NoHost => "the host does not answer it",
        Refusal::Prohibited => "its rules forbid it",
    }
}

fn passes(mtu: &RouteMtu, report: &RouteReport) -> String {
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

fn notes(report: &RouteReport) -> Vec<&'static str> {
    let mut notes = Vec::new();
    let share = |hop: &Hop| f64::from(hop.lost()) / f64::from(hop.sent.max(1));
    let last = report.hops.last().filter(|_| report.reached).map(share);
    if report.hops.iter().any(|hop| last.is_some_and(|last| share(hop) > last)) {
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
