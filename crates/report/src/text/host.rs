//! The settings of a host: as they are, as they should be, and what was changed.

use fullpipe_record::{
    AdvisedChange, Allowance, Folklore, HostAdvice, HostApplied, HostChange, HostDevice,
    HostReport, HostUndone,
};

use super::diagnosis::defect;
use super::prediction::ceiling_chart;
use super::prelude::*;

/// The sysctls by what they are for, each with what it says.
const GROUPS: [(&str, &str); 4] = [
    (
        "Buffers, in bytes",
        "
net.ipv4.tcp_rmem: receive: least, first, largest
net.ipv4.tcp_wmem: send: least, first, largest
net.ipv4.tcp_moderate_rcvbuf: 1: receive buffers grow with the path
net.ipv4.tcp_adv_win_scale: share that is window, before Linux 6.6
net.core.rmem_max: most that SO_RCVBUF gets
net.core.wmem_max: most that SO_SNDBUF gets
net.core.rmem_default: first of UDP and others
net.core.wmem_default: first of UDP and others
net.core.optmem_max: control data and zero-copy of a socket
net.ipv4.udp_rmem_min: least of UDP under pressure
net.ipv4.tcp_mem: all TCP, in pages: free, pressed, most
net.ipv4.udp_mem: all UDP, in pages: free, pressed, most
",
    ),
    (
        "Windows and losses",
        "
net.ipv4.tcp_window_scaling: 1: windows beyond 64 KiB
net.ipv4.tcp_shrink_window: 1: a window may be taken back
net.ipv4.tcp_sack: 1: each loss is reported
net.ipv4.tcp_timestamps: 1: round trips measured by each packet
net.ipv4.tcp_ecn: 1: asks for marks, 2: takes them
net.ipv4.tcp_congestion_control: of sockets that do not ask
net.ipv4.tcp_allowed_congestion_control: for anybody to ask for
net.ipv4.tcp_available_congestion_control: loaded
net.ipv4.tcp_slow_start_after_idle: 1: the window shrinks in a pause
net.ipv4.tcp_no_metrics_save: 1: nothing is remembered of a host
net.ipv4.tcp_no_ssthresh_metrics_save: 1: not where slow start ended
net.ipv4.tcp_mtu_probing: 1: probes below black holes
net.ipv4.tcp_base_mss: with which probing begins
net.ipv4.ip_no_pmtu_disc: 0: finds the path's MTU
",
    ),
    (
        "Sending",
        "
net.ipv4.tcp_limit_output_bytes: of a connection in this host's queues
net.ipv4.tcp_notsent_lowat: unsent bytes that wake the writer
net.ipv4.tcp_pacing_ss_ratio: pace in slow start, percent
net.ipv4.tcp_pacing_ca_ratio: pace after it, percent
",
    ),
    (
        "Queues of the host",
        "
net.core.default_qdisc: of devices that are made from now on
net.core.netdev_max_backlog: packets that wait for a processor
net.core.netdev_budget: packets in one round of receiving
net.core.netdev_budget_usecs: time of one round
net.core.dev_weight: packets of one device in it
net.core.busy_poll: µs that a reader polls the device
net.core.rps_sock_flow_entries: 0: receiving does not follow readers
",
    ),
];

/// Returns a host's settings with their meaning, and what its buffers allow on the `path`, if one
/// is given.
pub fn host_settings(host: &HostReport, path: Option<(Span, BitRate)>) -> String {
    let memory = host
        .memory
        .map_text(|memory| format!(", {memory} of memory"));
    let mut text = bold_text(&format!("Linux {}{memory}", host.kernel)) + "\n";
    text += &host.defects.iter().map(defect).collect::<String>();
    if let Some((rtt, bandwidth)) = path {
        text += &allowance_table(
            &host.allows,
            &format!("What they allow over {rtt} of {bandwidth}"),
        );
    }
    for (title, settings) in GROUPS {
        text += &setting_group(host, title, settings);
    }
    text += &heading_line("Devices");
    text += &host.devices.iter().map(device_text).collect::<String>();
    if !host.governors.is_empty() {
        text += &paragraph(
            &format!("The processors' clocks: {}.", host.governors.join(", ")),
            2,
        );
    }
    text + &route_lines(host) + &remembered_hosts(host) + &manager_lines(host)
}

/// Returns the advised changes of a host, with reasons and risks, and the predicted effect.
pub fn host_advice(advice: &HostAdvice) -> String {
    let mut text =
        bold_text("As two hosts like this one are") + "\n" + &ceiling_chart(&advice.before);
    text += &heading_line("Advice");
    if advice.changes.is_empty() {
        let nothing = if advice.folklore.is_empty() {
            "Nothing here need be changed."
        } else {
            "Nothing to change in order to fill this path."
        };
        text += &paragraph(nothing, 2);
    } else {
        for change in &advice.changes {
            text += &advised_change(change);
        }
        let title = "With that at both ends, each as far as it sends or receives";
        text += &heading_line(title);
        text += &ceiling_chart(&advice.after);
    }
    if !advice.folklore.is_empty() {
        text += &heading_line("Advice that harms, found followed");
    }
    text.extend(advice.folklore.iter().map(stated_folklore));
    text + &note_lines(&advice.notes)
}

fn stated_folklore(stated: &Folklore) -> String {
    let file = stated.file.as_ref();
    let place = file.map_text(|file| format!(" (in {file})"));
    let setting = format!("{} = {}{place}", stated.setting, stated.value);
    failure_paragraph(&setting, 2) + &paragraph(&format!("{}.", stated.why), 4)
}

/// Returns the changes as a diff.
pub fn host_applied(applied: &HostApplied) -> String {
    if applied.changes.is_empty() {
        return "Everything is so already; nothing was changed.\n".to_owned();
    }
    let mut text: String = applied.changes.iter().map(change_diff).collect();
    text += &match (applied.dry_run, applied.temporary) {
        (true, _) => "Nothing was changed: this is what would be.\n".to_owned(),
        (false, Some(time)) => paragraph(
            &format!(
                "For {time}: `fullpipe host confirm` keeps it, and otherwise it is taken back by itself."
            ),
            0,
        ),
        (false, None) => "`fullpipe host undo` puts back what was.\n".to_owned(),
    };
    text + &note_lines(&applied.notes)
}

/// Returns the settings that were restored, and those that were not.
pub fn host_undone(undone: &HostUndone) -> String {
    let mut text: String = undone.restored.iter().map(change_diff).collect();
    for left in &undone.left {
        text += &failure_paragraph(&format!("{}.", left.why), 0);
    }
    for journal in &undone.unreadable {
        text += &failure_paragraph(&format!("{journal}."), 0);
    }
    text += undone_summary(undone);
    match undone.elsewhere {
        0 => text,
        1 => text + "One journal of another namespace was left alone.\n",
        more => text + &format!("{more} journals of other namespaces were left alone.\n"),
    }
}

fn undone_summary(undone: &HostUndone) -> &'static str {
    let is_all_read = undone.unreadable.is_empty();
    match (undone.restored.is_empty(), undone.left.is_empty()) {
        (true, true) if is_all_read => "There was nothing to put back.\n",
        (true, true) => "There was nothing else to put back.\n",
        (false, true) if is_all_read => "Everything is as it was.\n",
        (false, true) => "Everything else is as it was.\n",
        (_, false) if undone.kept > 0 => {
            "What could still be put back stays in the journal; `--forget` gives it up.\n"
        }
        (_, false) => "What was not put back is no longer in the journal.\n",
    }
}

fn allowance_table(allows: &[Allowance], title: &str) -> String {
    let mut table = TextTable::new("|>|");
    for each in allows {
        table.push_row(cells![
            each.setting,
            each.rate,
            format!("{}; {}", each.of, each.formula),
        ]);
    }
    heading_line(title) + &table.render(2)
}

fn setting_group(host: &HostReport, title: &str, settings: &str) -> String {
    let settings = settings.lines().filter_map(|line| line.split_once(": "));
    let rows: Vec<_> = settings
        .filter_map(|(name, meaning)| {
            let short = name.trim_start_matches("net.").trim_start_matches("ipv4.");
            let value = host.sysctls.get(name)?;
            Some(cells![short, value, meaning])
        })
        .collect();
    format_if(!rows.is_empty(), || {
        heading_line(title) + &TextTable::from_rows("||", rows).render(2)
    })
}

fn device_text(device: &HostDevice) -> String {
    let mut text = paragraph(&device_line(device), 2);
    for (word, on) in [("does", true), ("does not", false)] {
        let names = offload_names(device, on);
        if !names.is_empty() {
            text += &dim_paragraph(&format!("{word}: {names}"), 4);
        }
    }
    if !device.interrupts.is_empty() {
        let processors = device.interrupts.join(" ");
        text += &dim_paragraph(&format!("interrupts to processors {processors}"), 4);
    }
    text
}

/// Returns the name, the state and the sizes of a device.
fn device_line(device: &HostDevice) -> String {
    let kind = device.kind.as_ref();
    let kind = kind.map_text(|kind| format!(" ({kind})"));
    let state = text_if(!device.is_up, ", down");
    let speed = device.speed.map_text(|speed| format!(", {speed}"));
    let rings = device.rings.map_text(|[out, into, most_out, most_in]| {
        format!(", rings {out} of {most_out} out and {into} of {most_in} in")
    });
    let [out, into] = device.queues;
    format!(
        "{}{kind}{state}: MTU {}{speed}, {}, txqueuelen {}, queues {out} out and {into} in{rings}",
        device.name,
        device.mtu.get(),
        device.qdisc,
        device.transmit_queue.get()
    )
}

/// Returns the names of the offloads that are on, or off.
fn offload_names(device: &HostDevice, on: bool) -> String {
    let offloads = device.offloads.iter().filter(|(_, is_on)| **is_on == on);
    let names: Vec<&str> = offloads.map(|(name, _)| name.as_str()).collect();
    names.join(" ")
}

fn route_lines(host: &HostReport) -> String {
    if host.routes.is_empty() {
        return String::new();
    }
    let lines = host.routes.iter().map(|route| {
        let metrics: Vec<String> = route
            .metrics
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        let device = route
            .device
            .as_ref()
            .map_text(|device| format!(" by {device}"));
        paragraph(
            &format!("{}{device}: {}", route.destination, metrics.join(", ")),
            2,
        )
    });
    heading_line("Routes with metrics") + &lines.collect::<String>()
}

/// Returns the hosts that the kernel remembers; of many hosts, only their number.
fn remembered_hosts(host: &HostReport) -> String {
    const FEW: usize = 8;
    if host.remembered.is_empty() {
        return String::new();
    }
    let heading = heading_line("Remembered of other hosts, for the next connection");
    if host.remembered.len() > FEW {
        return heading + &format!("  {} hosts; --json lists them\n", host.remembered.len());
    }
    let mut table = TextTable::new("|>RTT|>ssthresh|>cwnd");
    for of in &host.remembered {
        table.push_row(cells![
            of.address,
            or_dash(of.rtt),
            or_dash(of.ssthresh),
            or_dash(of.cwnd),
        ]);
    }
    heading + &table.render(2)
}

fn manager_lines(host: &HostReport) -> String {
    if host.managers.is_empty() {
        return String::new();
    }
    let mut text = heading_line("Who else sets them");
    for manager in &host.managers {
        text += &paragraph(&format!("{}: {}", manager.name, manager.note), 2);
        for (name, value) in &manager.sets {
            text += &dim_paragraph(&format!("{name} = {value}"), 4);
        }
    }
    text
}

fn advised_change(change: &AdvisedChange) -> String {
    let mut text = bold_paragraph(&change.setting, 2);
    text += &paragraph(&format!("{} → {}", change.from, change.to), 4);
    text += &paragraph(&format!("Why: {}.", change.why), 4);
    text + &dim_paragraph(&format!("Risk: {}.", change.risk), 4)
}

fn change_diff(change: &HostChange) -> String {
    let mut text = bold_text(&change.setting) + "\n";
    for line in change.from.iter().flat_map(|text| text.lines()) {
        text += &format!("{}\n", failure_text(&format!("- {}", replace_tabs(line))));
    }
    for line in change.to.iter().flat_map(|text| text.lines()) {
        text += &format!("{}\n", success_text(&format!("+ {}", replace_tabs(line))));
    }
    text
}

/// Replaces the tabs that the kernel prints.
fn replace_tabs(text: &str) -> String {
    text.replace('\t', " ")
}

fn note_lines(notes: &[String]) -> String {
    notes
        .iter()
        .map(|note| dim_paragraph(&format!("Note: {note}"), 0))
        .collect()
}
