//! The settings of a host: as they are, as they should be, and what was changed.

use fullpipe_record::{
    AdvisedChange, Allowance, HostAdvice, HostApplied, HostChange, HostDevice, HostReport, HostUndone,
};
use fullpipe_units::{BitRate, Span};

use super::diagnosis::defect;
use super::prediction::chart;
use super::style::{Style, heading, wrapped};
use super::table::{Align, Table, or_dash};

/// The sysctls by what they are for, each with what it says.
const GROUPS: [(&str, &[(&str, &str)]); 4] = [
    (
        "Buffers, in bytes",
        &[
            ("net.ipv4.tcp_rmem", "receive: least, first, largest"),
            ("net.ipv4.tcp_wmem", "send: least, first, largest"),
            ("net.ipv4.tcp_moderate_rcvbuf", "1: receive buffers grow with the path"),
            ("net.ipv4.tcp_adv_win_scale", "share that is window, before Linux 6.6"),
            ("net.core.rmem_max", "most that SO_RCVBUF gets"),
            ("net.core.wmem_max", "most that SO_SNDBUF gets"),
            ("net.core.rmem_default", "first of UDP and others"),
            ("net.core.wmem_default", "first of UDP and others"),
            ("net.core.optmem_max", "control data and zero-copy of a socket"),
            ("net.ipv4.udp_rmem_min", "least of UDP under pressure"),
            ("net.ipv4.tcp_mem", "all TCP, in pages: free, pressed, most"),
            ("net.ipv4.udp_mem", "all UDP, in pages: free, pressed, most"),
        ],
    ),
    (
        "Windows and losses",
        &[
            ("net.ipv4.tcp_window_scaling", "1: windows beyond 64 KiB"),
            ("net.ipv4.tcp_shrink_window", "1: a window may be taken back"),
            ("net.ipv4.tcp_sack", "1: each loss is reported"),
            ("net.ipv4.tcp_timestamps", "1: round trips measured by each packet"),
            ("net.ipv4.tcp_ecn", "1: asks for marks, 2: takes them"),
            ("net.ipv4.tcp_congestion_control", "of sockets that do not ask"),
            ("net.ipv4.tcp_allowed_congestion_control", "for anybody to ask for"),
            ("net.ipv4.tcp_available_congestion_control", "loaded"),
            ("net.ipv4.tcp_slow_start_after_idle", "1: the window shrinks in a pause"),
            ("net.ipv4.tcp_no_metrics_save", "1: nothing is remembered of a host"),
            ("net.ipv4.tcp_no_ssthresh_metrics_save", "1: not where slow start ended"),
            ("net.ipv4.tcp_mtu_probing", "1: probes below black holes"),
            ("net.ipv4.tcp_base_mss", "with which probing begins"),
            ("net.ipv4.ip_no_pmtu_disc", "0: finds the path's MTU"),
        ],
    ),
    (
        "Sending",
        &[
            ("net.ipv4.tcp_limit_output_bytes", "of a connection in this host's queues"),
            ("net.ipv4.tcp_notsent_lowat", "unsent bytes that wake the writer"),
            ("net.ipv4.tcp_pacing_ss_ratio", "pace in slow start, percent"),
            ("net.ipv4.tcp_pacing_ca_ratio", "pace after it, percent"),
        ],
    ),
    (
        "Queues of the host",
        &[
            ("net.core.default_qdisc", "of devices that are made from now on"),
            ("net.core.netdev_max_backlog", "packets that wait for a processor"),
            ("net.core.netdev_budget", "packets in one round of receiving"),
            ("net.core.netdev_budget_usecs", "time of one round"),
            ("net.core.dev_weight", "packets of one device in it"),
            ("net.core.busy_poll", "µs that a reader polls the device"),
            ("net.core.rps_sock_flow_entries", "0: receiving does not follow readers"),
        ],
    ),
];

/// Returns a host's settings with their meaning, and what its buffers allow on the `path`, if one is given.
pub fn host_settings(host: &HostReport, path: Option<(Span, BitRate)>, style: Style) -> String {
    let memory = host.memory.map_or(String::new(), |memory| format!(", {memory} of memory"));
    let mut text = style.bold(&format!("Linux {}{memory}", host.kernel)) + "\n";
    text += &host.defects.iter().map(defect).collect::<String>();
    if let Some((rtt, bandwidth)) = path {
        text += &allowances(&host.allows, &format!("What they allow over {rtt} of {bandwidth}"), style);
    }
    for (title, names) in GROUPS {
        text += &group(host, title, names, style);
    }
    text += &heading(style, "Devices");
    text += &host.devices.iter().map(|each| device(each, style)).collect::<String>();
    if !host.governors.is_empty() {
        text += &wrapped(&format!("The processors' clocks: {}.", host.governors.join(", ")), 2, str::to_owned);
    }
    text + &routes(host, style) + &remembered(host, style) + &managers(host, style)
}

/// Returns the advised changes of a host, with reasons and risks, and the predicted effect.
pub fn host_advice(advice: &HostAdvice, style: Style) -> String {
    let mut text = style.bold("As two hosts like this one are") + "\n" + &chart(&advice.before, style);
    text += &heading(style, "Advice");
    if advice.changes.is_empty() {
        let nothing = if advice.folklore.is_empty() {
            "Nothing here need be changed."
        } else {
            "Nothing to change in order to fill this path."
        };
        text += &wrapped(nothing, 2, str::to_owned);
    }
    text += &advice.changes.iter().map(|change| advised(change, style)).collect::<String>();
    if !advice.changes.is_empty() {
        text += &heading(style, "With that at both ends, each as far as it sends or receives");
        text += &chart(&advice.after, style);
    }
    if !advice.folklore.is_empty() {
        text += &heading(style, "Advice that harms, found followed");
    }
    for stated in &advice.folklore {
        let place = stated.file.as_ref().map_or(String::new(), |file| format!(" (in {file})"));
        text += &wrapped(&format!("{} = {}{place}", stated.setting, stated.value), 2, |line| style.bad(line));
        text += &wrapped(&format!("{}.", stated.why), 4, str::to_owned);
    }
    text + &notes(&advice.notes, style)
}

/// Returns the changes as a diff.
pub fn host_applied(applied: &HostApplied, style: Style) -> String {
    if applied.changes.is_empty() {
        return "Everything is so already; nothing was changed.\n".to_owned();
    }
    let mut text: String = applied.changes.iter().map(|change| diff(change, style)).collect();
    text += &match (applied.dry_run, applied.temporary) {
        (true, _) => "Nothing was changed: this is what would be.\n".to_owned(),
        (false, Some(time)) => wrapped(
            &format!("For {time}: `fullpipe host confirm` keeps it, and otherwise it is taken back by itself."),
            0,
            str::to_owned,
        ),
        (false, None) => "`fullpipe host undo` puts back what was.\n".to_owned(),
    };
    text + &notes(&applied.notes, style)
}

/// Returns the settings that were restored, and those that were not.
pub fn host_undone(undone: &HostUndone, style: Style) -> String {
    let mut text: String = undone.restored.iter().map(|change| diff(change, style)).collect();
    for left in &undone.left {
        text += &wrapped(&format!("{}.", left.why), 0, |line| style.bad(line));
    }
    for journal in &undone.unreadable {
        text += &wrapped(&format!("{journal}."), 0, |line| style.bad(line));
    }
    text += match (undone.restored.is_empty(), undone.left.is_empty(), undone.unreadable.is_empty()) {
        (true, true, true) => "There was nothing to put back.\n",
        (true, true, false) => "There was nothing else to put back.\n",
        (false, true, true) => "Everything is as it was.\n",
        (false, true, false) => "Everything else is as it was.\n",
        (_, false, _) if undone.kept > 0 => {
            "What could still be put back stays in the journal; `--forget` gives it up.\n"
        }
        (_, false, _) => "What was not put back is no longer in the journal.\n",
    };
    match undone.elsewhere {
        0 => text,
        1 => text + "One journal of another namespace was left alone.\n",
        more => text + &format!("{more} journals of other namespaces were left alone.\n"),
    }
}

fn allowances(allows: &[Allowance], title: &str, style: Style) -> String {
    let columns = [Align::Left, Align::Right, Align::Left].map(|align| ("", align));
    let mut table = Table::new(&columns);
    for each in allows {
        table.row([each.setting.clone(), each.rate.to_string(), format!("{}; {}", each.of, each.formula)]);
    }
    heading(style, title) + &table.render(2, str::to_owned)
}

fn group(host: &HostReport, title: &str, names: &[(&str, &str)], style: Style) -> String {
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left), ("", Align::Left)]);
    let mut rows = 0;
    for (name, meaning) in names {
        if let Some(value) = host.sysctls.get(*name) {
            let short = name.trim_start_matches("net.").trim_start_matches("ipv4.");
            table.row([short.to_owned(), value.clone(), (*meaning).to_owned()]);
            rows += 1;
        }
    }
    if rows == 0 { String::new() } else { heading(style, title) + &table.render(2, str::to_owned) }
}

fn device(device: &HostDevice, style: Style) -> String {
    let kind = device.kind.as_ref().map_or(String::new(), |kind| format!(" ({kind})"));
    let state = if device.is_up { "" } else { ", down" };
    let speed = device.speed.map_or(String::new(), |speed| format!(", {speed}"));
    let rings = device.rings.map_or(String::new(), |[out, into, most_out, most_in]| {
        format!(", rings {} of {} out and {} of {} in", out.get(), most_out.get(), into.get(), most_in.get())
    });
    let [out, into] = device.queues;
    let line = format!(
        "{}{kind}{state}: MTU {}{speed}, {}, txqueuelen {}, queues {out} out and {into} in{rings}",
        device.name,
        device.mtu.get(),
        device.qdisc,
        device.transmit_queue.get()
    );
    let named = |on: bool| {
        let names = device.offloads.iter().filter(|(_, is_on)| **is_on == on).map(|(name, _)| name.as_str());
        names.collect::<Vec<_>>().join(" ")
    };
    let mut text = wrapped(&line, 2, str::to_owned);
    for (word, names) in [("does", named(true)), ("does not", named(false))] {
        if !names.is_empty() {
            text += &wrapped(&format!("{word}: {names}"), 4, |line| style.dim(line));
        }
    }
    if !device.interrupts.is_empty() {
        text +=
            &wrapped(&format!("interrupts to processors {}", device.interrupts.join(" ")), 4, |line| style.dim(line));
    }
    text
}

fn routes(host: &HostReport, style: Style) -> String {
    if host.routes.is_empty() {
        return String::new();
    }
    let lines = host.routes.iter().map(|route| {
        let metrics: Vec<String> = route.metrics.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let device = route.device.as_ref().map_or(String::new(), |device| format!(" by {device}"));
        wrapped(&format!("{}{device}: {}", route.destination, metrics.join(", ")), 2, str::to_owned)
    });
    heading(style, "Routes with metrics") + &lines.collect::<String>()
}

/// Returns the hosts that the kernel remembers; of many hosts, only their number.
fn remembered(host: &HostReport, style: Style) -> String {
    const FEW: usize = 8;
    if host.remembered.is_empty() {
        return String::new();
    }
    let heading = heading(style, "Remembered of other hosts, for the next connection");
    if host.remembered.len() > FEW {
        return heading + &format!("  {} hosts; --json lists them\n", host.remembered.len());
    }
    let columns = [("", Align::Left), ("RTT", Align::Right), ("ssthresh", Align::Right), ("cwnd", Align::Right)];
    let mut table = Table::new(&columns);
    for of in &host.remembered {
        let segments = |count: Option<fullpipe_units::SegCount>| or_dash(count.map(|count| count.get().to_string()));
        table.row([
            of.address.clone(),
            or_dash(of.rtt.map(|rtt| rtt.to_string())),
            segments(of.ssthresh),
            segments(of.cwnd),
        ]);
    }
    heading + &table.render(2, |head| style.dim(head))
}

fn managers(host: &HostReport, style: Style) -> String {
    if host.managers.is_empty() {
        return String::new();
    }
    let mut text = heading(style, "Who else sets them");
    for manager in &host.managers {
        text += &wrapped(&format!("{}: {}", manager.name, manager.note), 2, str::to_owned);
        for (name, value) in &manager.sets {
            text += &wrapped(&format!("{name} = {value}"), 4, |line| style.dim(line));
        }
    }
    text
}

fn advised(change: &AdvisedChange, style: Style) -> String {
    let mut text = wrapped(&change.setting, 2, |line| style.bold(line));
    text += &wrapped(&format!("{} → {}", change.from, change.to), 4, str::to_owned);
    text += &wrapped(&format!("Why: {}.", change.why), 4, str::to_owned);
    text + &wrapped(&format!("Risk: {}.", change.risk), 4, |line| style.dim(line))
}

fn diff(change: &HostChange, style: Style) -> String {
    let mut text = style.bold(&change.setting) + "\n";
    for line in change.from.iter().flat_map(|text| text.lines()) {
        text += &format!("{}\n", style.bad(&format!("- {}", spaced(line))));
    }
    for line in change.to.iter().flat_map(|text| text.lines()) {
        text += &format!("{}\n", style.good(&format!("+ {}", spaced(line))));
    }
    text
}

/// Replaces the tabs that the kernel prints.
fn spaced(text: &str) -> String {
    text.replace('\t', " ")
}

fn notes(notes: &[String], style: Style) -> String {
    notes.iter().map(|note| wrapped(&format!("Note: {note}"), 0, |line| style.dim(line))).collect()
}
