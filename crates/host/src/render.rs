use fullpipe_record::{Buffer, BufferTriple, Change, Commands, HostSettings};

/// The sysctl behind a change and the text that it gets on a host with `settings`.
pub(crate) fn sysctl_of_change(
    change: &Change,
    settings: &HostSettings,
) -> Option<(String, String)> {
    match change {
        Change::Sysctl { name, value } => Some((name.clone(), value.clone())),
        _ => known_sysctl(change, &change.applied_to(settings)),
    }
}

/// Returns the sysctl of `change` and the text that it has in the settings, if it is one of them.
pub(crate) fn known_sysctl(change: &Change, settings: &HostSettings) -> Option<(String, String)> {
    let (name, text) = match change {
        Change::TcpRmemMax(_) => ("net.ipv4.tcp_rmem", triple_text(settings.tcp_rmem)),
        Change::TcpWmemMax(_) => ("net.ipv4.tcp_wmem", triple_text(settings.tcp_wmem)),
        Change::WindowScaling(_) => (
            "net.ipv4.tcp_window_scaling",
            switch_text(settings.window_scaling),
        ),
        Change::ModerateRcvbuf(_) => (
            "net.ipv4.tcp_moderate_rcvbuf",
            switch_text(settings.moderate_rcvbuf),
        ),
        _ => return None,
    };
    Some((name.to_owned(), text))
}

fn triple_text(sizes: BufferTriple) -> String {
    [sizes.min, sizes.default, sizes.max]
        .map(|size| size.get().to_string())
        .join(" ")
}

fn switch_text(on: bool) -> String {
    u8::from(on).to_string()
}

/// The commands that make `changes` by hand on a Linux host with `settings`, and those that undo
/// them. What only this program can put back exactly is left to it.
pub fn change_commands(changes: &[Change], settings: &HostSettings) -> Commands {
    let mut commands = Commands::default();
    for change in changes {
        if let Some((name, present)) = known_sysctl(change, settings) {
            let (_, new) = sysctl_of_change(change, settings).unwrap_or_default();
            commands
                .apply
                .push(format!("sysctl -w {name}={}", quote_for_shell(&new)));
            commands
                .undo
                .insert(0, format!("sysctl -w {name}={}", quote_for_shell(&present)));
        } else if let Some(word) = apply_argument(change) {
            commands
                .apply
                .push(format!("fullpipe host apply {}", quote_for_shell(&word)));
            if !commands.undo.iter().any(|command| command == UNDO) {
                commands.undo.insert(0, UNDO.to_owned());
            }
        } else if let Some(flag) = measure_flag(change) {
            commands.apply.push(flag);
        }
    }
    commands
}

/// Returns the commands that make `changes` on a Linux host whose settings were not read. They only
/// ever raise the largest size of a buffer: a fixed value would lower that of a host which has more
/// already. No way back is known.
pub fn commands_for_unread_host(changes: &[Change]) -> Commands {
    let apply = changes
        .iter()
        .flat_map(|change| match raise_command(change) {
            Some(command) => vec![command],
            None => {
                change_commands(std::slice::from_ref(change), &HostSettings::of_linux_6_18()).apply
            }
        });
    Commands {
        apply: apply.collect(),
        ..Commands::default()
    }
}

/// Returns the command that raises the largest size of a buffer and keeps one that is larger
/// already.
fn raise_command(change: &Change) -> Option<String> {
    let (Change::TcpRmemMax(max) | Change::TcpWmemMax(max)) = change else {
        return None;
    };
    let (max, (name, _)) = (
        max.get(),
        sysctl_of_change(change, &HostSettings::of_linux_6_18())?,
    );
    let larger = format!("awk '{{ print $1, $2, ($3 > {max} ? $3 : {max}) }}'");
    Some(format!(
        "sysctl -w {name}=\"$(sysctl -n {name} | {larger})\""
    ))
}

const UNDO: &str = "fullpipe host undo";

/// The word of `fullpipe host apply` for a change that is not one of [`HostSettings`] alone.
fn apply_argument(change: &Change) -> Option<String> {
    Some(match change {
        Change::Sysctl { name, value } => format!("{name}={value}"),
        Change::RouteMetric {
            destination,
            metric,
            value,
        } => {
            let value = value.map_or("none".to_owned(), |value| value.to_string());
            format!("route:{destination}:{metric}={value}")
        }
        Change::Qdisc { device, kind } => format!("qdisc:{device}={kind}"),
        Change::Offload {
            device,
            feature,
            on,
        } => {
            format!("offload:{device}:{feature}={}", on_or_off(*on))
        }
        Change::QueueLength { device, packets } => format!("txqueuelen:{device}={}", packets.get()),
        Change::Mtu { device, mtu } => format!("mtu:{device}={}", mtu.get()),
        _ => return None,
    })
}

/// The flag of `fullpipe measure` that makes a program's own change.
fn measure_flag(change: &Change) -> Option<String> {
    Some(match change {
        Change::SocketBuffer(Buffer::Automatic) => {
            "fullpipe measure HOST    (without -w)".to_owned()
        }
        Change::SocketBuffer(Buffer::Request(size)) => {
            format!("fullpipe measure HOST -w {}", size.get())
        }
        Change::SocketBuffer(Buffer::Window(size)) => {
            format!("fullpipe measure HOST --window {}", size.get())
        }
        Change::CongestionControl(name) => format!("fullpipe measure HOST -C {name}"),
        Change::Streams(streams) => format!("fullpipe measure HOST -P {streams}"),
        Change::Rate(Some(rate)) => format!("fullpipe measure HOST -b {}", rate.bps()),
        Change::Rate(None) => "fullpipe measure HOST    (without -b)".to_owned(),
        Change::MaxPacingRate(Some(pace)) => {
            format!("fullpipe measure HOST --fq-rate {}", pace.bps())
        }
        Change::MaxPacingRate(None) => "fullpipe measure HOST    (without --fq-rate)".to_owned(),
        _ => return None,
    })
}

pub(crate) fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn quote_for_shell(text: &str) -> String {
    if text.contains(' ') {
        format!("\"{text}\"")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use fullpipe_units::ByteCount;
    use fullpipe_units::{BitRate, SegCount};

    #[test]
    fn what_a_program_does_is_a_flag_and_what_only_we_can_put_back_is_ours_to_undo() {
        let (device, rate) = (|| "eth0".to_owned(), BitRate::from_mbps(40));
        let probing = Change::Sysctl {
            name: "net.ipv4.tcp_mtu_probing".to_owned(),
            value: "1".to_owned(),
        };
        let default = Change::Qdisc {
            device: device(),
            kind: Change::DEFAULT_QDISC.to_owned(),
        };
        let table = [
            (
                Change::Rate(None),
                "fullpipe measure HOST    (without -b)",
                false,
            ),
            (
                Change::Rate(Some(rate)),
                "fullpipe measure HOST -b 40000000",
                false,
            ),
            (
                Change::MaxPacingRate(None),
                "fullpipe measure HOST    (without --fq-rate)",
                false,
            ),
            (
                Change::MaxPacingRate(Some(rate)),
                "fullpipe measure HOST --fq-rate 40000000",
                false,
            ),
            (
                probing,
                "fullpipe host apply net.ipv4.tcp_mtu_probing=1",
                true,
            ),
            (default, "fullpipe host apply qdisc:eth0=default", true),
            (
                Change::QueueLength {
                    device: device(),
                    packets: SegCount::new(1000),
                },
                "fullpipe host apply txqueuelen:eth0=1000",
                true,
            ),
        ];
        for (change, apply, has_way_back) in table {
            let commands = change_commands(
                std::slice::from_ref(&change),
                &HostSettings::of_linux_6_18(),
            );
            assert_eq!(commands.apply, [apply], "{change:?}");
            assert_eq!(!commands.undo.is_empty(), has_way_back, "{change:?}");
        }
    }

    #[test]
    fn a_host_that_was_not_read_keeps_a_larger_buffer() {
        let changes = [
            Change::TcpRmemMax(ByteCount::from_mib(8)),
            Change::WindowScaling(true),
        ];
        let Commands { apply, undo, .. } = commands_for_unread_host(&changes);
        assert_eq!(
            (&*apply[1], undo.len()),
            ("sysctl -w net.ipv4.tcp_window_scaling=1", 0)
        );
        for (present, then) in [
            ("4096\t131072\t6291456", "4096 131072 8388608"),
            ("1 2 33554432", "1 2 33554432"),
        ] {
            // The shell carries it out as printed, with a stand-in for `sysctl`.
            let sysctl = format!(
                "sysctl() {{ case $1 in -n) printf '%s\\n' '{present}';; *) echo \"$2\";; esac; }}; "
            );
            let output = Command::new("sh")
                .args(["-c", &(sysctl + &apply[0])])
                .output()
                .unwrap();
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                format!("net.ipv4.tcp_rmem={then}\n"),
                "{output:?}"
            );
        }
    }
}
