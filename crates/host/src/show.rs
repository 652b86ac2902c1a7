use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use fullpipe_record::{HostDevice, HostReport, HostRoute};
use fullpipe_sys as sys;
use fullpipe_units::ByteCount;

use crate::defects::known_defects;
use crate::inspect::inspect_host;
use crate::managers::setting_managers;
use crate::setting::HostSystem;
use crate::sysctl::SysctlResult;

/// The sysctls that bear on bulk transfers, in the order in which they are shown.
pub const SYSCTLS: [&str; 37] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.rmem_default",
    "net.core.wmem_default",
    "net.core.optmem_max",
    "net.ipv4.tcp_mem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_shrink_window",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_no_ssthresh_metrics_save",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_base_mss",
    "net.ipv4.ip_no_pmtu_disc",
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.dev_weight",
    "net.core.busy_poll",
    "net.core.rps_sock_flow_entries",
];

/// Everything of this host that bears on bulk transfers; what cannot be read is left out.
///
/// # Errors
/// If a setting that every kernel has cannot be read.
pub fn host_report(system: &HostSystem) -> SysctlResult<HostReport> {
    let settings = inspect_host(&system.sysctls)?;
    let sysctls = SYSCTLS
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), one_line(&system.sysctls.read(name).ok()?))));
    Ok(HostReport {
        defects: known_defects(settings.kernel),
        kernel: settings.kernel,
        memory: total_memory(),
        sysctls: sysctls.collect(),
        governors: clock_governors(Path::new("/sys/devices/system/cpu/cpufreq")),
        devices: sys::list_devices()
            .unwrap_or_default()
            .into_iter()
            .map(host_device)
            .collect(),
        routes: host_routes(),
        remembered: sys::tcp_metrics().unwrap_or_default(),
        managers: setting_managers(Path::new("/")),
        allows: Vec::new(),
    })
}

/// The kernel prints tabs where people write spaces.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn total_memory() -> Option<ByteCount> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(ByteCount::from_kib(
        line.split_whitespace().next()?.parse().ok()?,
    ))
}

/// Each governor of a clock once.
fn clock_governors(policies: &Path) -> Vec<String> {
    let entries = fs::read_dir(policies).into_iter().flatten().flatten();
    let texts =
        entries.filter_map(|entry| fs::read_to_string(entry.path().join("scaling_governor")).ok());
    texts
        .map(|text| text.trim().to_owned())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

fn host_device(found: sys::NetworkDevice) -> HostDevice {
    let features = sys::device_features(&found.name).unwrap_or_default();
    let offloads = features
        .into_iter()
        .filter(|feature| OFFLOADS.contains(&feature.name.as_str()));
    let rings = sys::device_rings(&found.name).ok();
    HostDevice {
        interrupts: if found.kind.is_none() {
            interrupt_processors(&found.name)
        } else {
            Vec::new()
        },
        offloads: offloads
            .map(|feature| (feature.name, feature.is_on))
            .collect(),
        rings: rings.map(|rings| {
            [
                rings.transmit,
                rings.receive,
                rings.most_transmit,
                rings.most_receive,
            ]
        }),
        speed: sys::device_link(&found.name)
            .ok()
            .and_then(|link| link.speed),
        queues: [found.transmit_queues, found.receive_queues],
        kind: found.kind,
        is_up: found.is_up,
        mtu: found.mtu,
        qdisc: found.qdisc,
        transmit_queue: found.transmit_queue,
        name: found.name,
    }
}

/// Offloads of a device that matter for bulk transfers.
const OFFLOADS: [&str; 10] = [
    "tx-scatter-gather",
    "tx-checksum-ipv4",
    "tx-checksum-ip-generic",
    "rx-checksum",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-generic-segmentation",
    "tx-udp-segmentation",
    "rx-gro",
    "rx-lro",
];

/// The processors that each interrupt of a card goes to.
fn interrupt_processors(name: &str) -> Vec<String> {
    let device = Path::new("/sys/class/net").join(name).join("device");
    // A virtual card's interrupts are those of the bus device that carries it.
    let folder = [device.join("msi_irqs"), device.join("../msi_irqs")]
        .into_iter()
        .find(|folder| folder.exists());
    let entries = folder
        .and_then(|folder| fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let lists = numbers
        .into_iter()
        .map(|number| fs::read_to_string(format!("/proc/irq/{number}/smp_affinity_list")));
    lists.flatten().map(|list| list.trim().to_owned()).collect()
}

fn host_routes() -> Vec<HostRoute> {
    let routes = sys::list_routes()
        .unwrap_or_default()
        .into_iter()
        .filter(|route| !route.metrics.is_empty());
    routes
        .map(|route| HostRoute {
            destination: route.destination,
            device: route.device,
            metrics: route.metrics,
        })
        .collect()
}

/// Returns the value of a sysctl in a report, by its name.
pub(crate) fn sysctl_value<'a>(
    sysctls: &'a BTreeMap<String, String>,
    name: &str,
) -> Option<&'a str> {
    sysctls.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_shown() {
        let report = host_report(&HostSystem::of_this_host()).unwrap();
        assert!(
            report
                .memory
                .is_some_and(|memory| memory > ByteCount::from_mib(64)),
            "{:?}",
            report.memory
        );
        assert!(
            report
                .devices
                .iter()
                .any(|device| device.name == "lo" && device.offloads["rx-gro"]),
            "{:?}",
            report.devices
        );
        assert_eq!(report.sysctls["net.ipv4.tcp_rmem"].split(' ').count(), 3);
    }

    #[test]
    fn each_governor_is_named_once() {
        let folder = tempfile::tempdir().unwrap();
        for (policy, governor) in [
            ("policy0", "powersave\n"),
            ("policy1", "powersave\n"),
            ("policy2", "performance\n"),
        ] {
            fs::create_dir(folder.path().join(policy)).unwrap();
            fs::write(
                folder.path().join(policy).join("scaling_governor"),
                governor,
            )
            .unwrap();
        }
        assert_eq!(clock_governors(folder.path()), ["performance", "powersave"]);
        assert_eq!(
            clock_governors(&folder.path().join("nothing")),
            [] as [&str; 0]
        );
    }
}
