use fullpipe_model::improvement::WindowConstraint;
use fullpipe_model::loss::CongestionControl;
use fullpipe_model::predict;
use fullpipe_record::{
    AdvisedChange, Change, HostAdvice, HostManager, HostReport, HostSettings, Path, Request,
};
use fullpipe_units::ByteCount;

use crate::allow::steady_request;
use crate::folklore::followed_folklore;
use crate::render::{known_sysctl, sysctl_of_change};
use crate::show::sysctl_value;

/// The share of memory that the kernel itself gives to one buffer, at most, when it chooses
/// defaults (`tcp_init`).
const SHARE_OF_MEMORY: u64 = 128;

/// Returns the changes that this host should make: those of `improvement`, which would fill `path`,
/// that fit into its memory; the other settings that harm such transfers; and the predictions for
/// two hosts like it before and after.
pub fn advise_changes(
    report: &HostReport,
    settings: &HostSettings,
    path: &Path,
    streams: u16,
    improvement: &[Change],
) -> HostAdvice {
    let request = Request {
        streams,
        ..steady_request()
    };
    let before = predict(path, settings, settings, &request);
    let mut notes = Vec::new();
    let mut changes = Vec::new();
    let mut after = settings.clone();
    let control = CongestionControl::from_name(&settings.congestion_control)
        .unwrap_or(CongestionControl::Reno);
    for change in improvement.iter().chain(&repair_changes(report)) {
        let Some(change) = within_memory(change, settings, report.memory, &mut notes) else {
            continue;
        };
        changes.extend(advise_change(&change, &after, streams, |constraint| {
            constraint.reason_for_maximum(before.bdp_of_each(streams)?, control, settings)
        }));
        after = change.applied_to(&after);
    }
    notes.extend(misattributed_limits(report));
    let names: Vec<&str> = changes
        .iter()
        .map(|advised| advised.setting.as_str())
        .collect();
    notes.extend(who_else(&report.managers, &names));
    HostAdvice {
        changes,
        folklore: followed_folklore(report, path.rtt()),
        before,
        after: predict(path, &after, &after, &request),
        notes,
    }
}

/// Returns changes of settings that harm every transfer, though no prediction counts them.
fn repair_changes(report: &HostReport) -> Vec<Change> {
    let switches = ["net.ipv4.tcp_sack", "net.ipv4.tcp_timestamps"];
    let off = switches
        .into_iter()
        .filter(|name| sysctl_value(&report.sysctls, name) == Some("0"));
    off.map(|name| Change::Sysctl {
        name: name.to_owned(),
        value: "1".to_owned(),
    })
    .collect()
}

/// The change, with a buffer no larger than the machine can bear; none where that is no more than
/// there is.
fn within_memory(
    change: &Change,
    settings: &HostSettings,
    memory: Option<ByteCount>,
    notes: &mut Vec<String>,
) -> Option<Change> {
    let (wanted, now, make): (_, _, fn(ByteCount) -> Change) = match change {
        Change::TcpRmemMax(wanted) => (*wanted, settings.tcp_rmem.max, Change::TcpRmemMax),
        Change::TcpWmemMax(wanted) => (*wanted, settings.tcp_wmem.max, Change::TcpWmemMax),
        other => return Some(other.clone()),
    };
    let most = memory.map_or(wanted, |memory| {
        ByteCount::new(memory.get() / SHARE_OF_MEMORY)
    });
    if wanted <= most {
        return Some(make(wanted));
    }
    let name = if matches!(change, Change::TcpRmemMax(_)) {
        "tcp_rmem"
    } else {
        "tcp_wmem"
    };
    notes.push(format!(
        "The path would take a {name} of {wanted}. This machine's memory bounds it at {most}, a {SHARE_OF_MEMORY}th, \
         which is the kernel's own rule for one buffer; more streams share the path instead."
    ));
    (most > now).then(|| make(most))
}

/// Returns `change` with its risk and its reason, which is that of a `maximum` for a buffer.
fn advise_change(
    change: &Change,
    settings: &HostSettings,
    streams: u16,
    maximum: impl Fn(WindowConstraint) -> Option<String>,
) -> Option<AdvisedChange> {
    let (setting, to) = sysctl_of_change(change, settings)?;
    let from = known_sysctl(change, settings).map_or_else(|| "0".to_owned(), |(_, text)| text);
    let (why, risk) = match change {
        Change::TcpRmemMax(size) => (
            format!(
                "as receiver: {}",
                maximum(WindowConstraint::ReceiveMaximum)?
            ),
            risk_of_size(*size, streams),
        ),
        Change::TcpWmemMax(size) => (
            format!("as sender: {}", maximum(WindowConstraint::SendMaximum)?),
            risk_of_size(*size, streams),
        ),
        Change::WindowScaling(_) => (
            "both ends need it for windows beyond 64 KiB".to_owned(),
            "none but behind a middlebox that breaks the option".to_owned(),
        ),
        Change::ModerateRcvbuf(_) => (
            "lets receive buffers grow with the path".to_owned(),
            "none".to_owned(),
        ),
        _ => (
            "it is off, to the harm of every long transfer (below)".to_owned(),
            "none".to_owned(),
        ),
    };
    Some(AdvisedChange {
        change: change.clone(),
        setting,
        from,
        to,
        why,
        risk,
    })
}

/// Returns the risk of buffers that may grow to `size`.
fn risk_of_size(size: ByteCount, streams: u16) -> String {
    let all = if streams > 1 {
        format!(", {streams} of them {}", size * u64::from(streams))
    } else {
        String::new()
    };
    format!("a connection whose peer stops may hold {size} of kernel memory{all}")
}

/// Limits that are often taken for others.
fn misattributed_limits(report: &HostReport) -> Option<String> {
    let asked = sysctl_number(report, "net.core.rmem_max", 0)?;
    (asked < sysctl_number(report, "net.ipv4.tcp_rmem", 2)?).then(|| {
        format!(
            "net.core.rmem_max ({}) is below tcp_rmem's third value and does not cap it, as is often believed: it is \
             for programs that ask for a buffer of their own, and they are better off not to.",
            ByteCount::new(asked)
        )
    })
}

fn sysctl_number(report: &HostReport, name: &str, at: usize) -> Option<u64> {
    let mut words = sysctl_value(&report.sysctls, name)?.split(' ');
    words.nth(at)?.parse().ok()
}

/// Returns remarks on the managers that also set the settings called `names`, or may set any while
/// they run.
pub fn who_else(managers: &[HostManager], names: &[&str]) -> Vec<String> {
    let others = managers.iter().filter(|manager| {
        // What moves interrupts changes none of these.
        let may_set_any = manager.sets.is_empty() && manager.name != "irqbalance";
        names
            .iter()
            .any(|name| may_set_any || manager.sets.contains_key(*name))
    });
    others
        .map(|manager| {
            format!(
                "{} sets these settings too: it {}.",
                manager.name, manager.note
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allow::usual_path;
    use crate::setting::HostSystem;
    use crate::show::host_report;
    use fullpipe_record::Limit;
    use fullpipe_units::{BitRate, Span};

    fn report(memory: ByteCount) -> HostReport {
        let mut report = host_report(&HostSystem::of_this_host()).unwrap();
        report.memory = Some(memory);
        report.managers.clear();
        report
    }

    const RAISE: Change = Change::TcpWmemMax(ByteCount::from_mib(24));

    #[test]
    fn a_larger_send_buffer_fills_a_gigabit_over_a_tenth_of_a_second() {
        let path = usual_path(Span::from_millis(100), BitRate::from_mbps(1000));
        let settings = HostSettings::of_linux_6_18();
        let advice = advise_changes(
            &report(ByteCount::from_mib(8192)),
            &settings,
            &path,
            1,
            &[RAISE],
        );
        let advised = &advice.changes[0];
        assert_eq!(
            (advised.from.as_str(), advised.to.as_str()),
            ("4096 16384 4194304", "4096 16384 25165824")
        );
        assert_eq!(
            (advice.before.limit, advice.after.limit),
            (Limit::SendBuffer, Limit::Capacity)
        );
    }

    #[test]
    fn no_buffer_is_larger_than_the_machine_bears() {
        let path = usual_path(Span::from_millis(100), BitRate::from_mbps(1000));
        let settings = HostSettings::of_linux_6_18();
        let bounded = advise_changes(
            &report(ByteCount::from_mib(1024)),
            &settings,
            &path,
            1,
            &[RAISE],
        );
        assert_eq!(
            bounded.changes[0].change,
            Change::TcpWmemMax(ByteCount::from_mib(8))
        );
        assert!(
            bounded.notes[0].contains("a tcp_wmem of 24 MiB") && bounded.notes[0].contains("8 MiB"),
            "{:?}",
            bounded.notes
        );
        assert!(
            bounded.after.kernel_model < BitRate::from_mbps(941)
                && bounded.after.kernel_model > bounded.before.kernel_model
        );
        let tiny = advise_changes(
            &report(ByteCount::from_mib(256)),
            &settings,
            &path,
            1,
            &[RAISE],
        );
        assert!(tiny.changes.is_empty(), "{:?}", tiny.changes);
    }

    #[test]
    fn who_manages_the_same_setting_is_named() {
        let path = usual_path(Span::from_millis(100), BitRate::from_mbps(1000));
        let mut report = report(ByteCount::from_mib(8192));
        report
            .sysctls
            .insert("net.ipv4.tcp_sack".to_owned(), "0".to_owned());
        let sets = [(
            "net.ipv4.tcp_wmem".to_owned(),
            "4096 16384 4194304".to_owned(),
        )]
        .into();
        let name = "/etc/sysctl.d/60-net.conf".to_owned();
        report.managers.push(HostManager {
            name,
            sets,
            note: "sets them again at each boot".to_owned(),
        });
        let advice = advise_changes(&report, &HostSettings::of_linux_6_18(), &path, 2, &[RAISE]);
        assert!(
            advice.notes.iter().any(|note| note.contains("60-net.conf")),
            "{:?}",
            advice.notes
        );
        assert_eq!(advice.changes[1].setting, "net.ipv4.tcp_sack");
        assert!(
            advice
                .folklore
                .iter()
                .any(|stated| stated.setting == "net.ipv4.tcp_sack"),
            "{:?}",
            advice.folklore
        );
    }
}
