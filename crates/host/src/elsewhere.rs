//! Changes as text for hosts that run another system: nothing here is carried out.

use fullpipe_record::{Buffer, Change, Elsewhere, System};
use fullpipe_units::ByteCount;

/// Returns the commands that make `changes` at an end that runs Windows, macOS or FreeBSD; a system
/// is left out if none of the changes has a setting there. The values before are not known from
/// here: each way back begins with reading them.
pub fn other_system_commands(changes: &[Change]) -> Vec<Elsewhere> {
    [System::Windows, System::MacOs, System::FreeBsd]
        .into_iter()
        .map(|system| {
            let lines: Vec<CommandPair> = changes
                .iter()
                .flat_map(|change| system_commands(change, system))
                .collect();
            let apply = lines.iter().map(|line| line.apply.clone()).collect();
            let undo = lines.into_iter().rev().map(|line| line.undo).collect();
            Elsewhere {
                system,
                apply,
                undo,
            }
        })
        .filter(|commands| !commands.apply.is_empty())
        .collect()
}

/// One command, and its way back.
struct CommandPair {
    apply: String,
    undo: String,
}

fn system_commands(change: &Change, system: System) -> Vec<CommandPair> {
    match system {
        System::Windows => windows_command(change).into_iter().collect(),
        System::MacOs => bsd_commands(change, &MAC_OS),
        System::FreeBsd => bsd_commands(change, &FREE_BSD),
    }
}

/// Windows sizes receive windows by a level: `normal` ends at 16 MiB, `experimental` at 1 GiB. Its
/// send buffers grow by themselves (Microsoft, "netsh interface tcp" and "TCP/IP performance known
/// issues").
fn windows_command(change: &Change) -> Option<CommandPair> {
    const NORMAL_ENDS_AT: ByteCount = ByteCount::from_mib(16);
    match change {
        Change::TcpRmemMax(size) if *size > NORMAL_ENDS_AT => {
            Some(tuning_level_command("experimental"))
        }
        Change::TcpRmemMax(_) | Change::ModerateRcvbuf(true) | Change::WindowScaling(true) => {
            let CommandPair { apply, undo } = tuning_level_command("normal");
            Some(CommandPair {
                apply: format!("{apply}    (unless it is experimental now)"),
                undo,
            })
        }
        Change::CongestionControl(name) => Some(netsh_command(
            &format!(
                "supplemental template=internet congestionprovider={}",
                if name == "bbr" { "bbr2" } else { name }
            ),
            "supplemental template=internet congestionprovider=cubic",
        )),
        _ => None,
    }
}

fn tuning_level_command(level: &str) -> CommandPair {
    netsh_command(
        &format!("global autotuninglevel={level}"),
        "global autotuninglevel=normal",
    )
}

fn netsh_command(set: &str, back: &str) -> CommandPair {
    CommandPair {
        apply: format!("netsh int tcp set {set}"),
        undo: format!("netsh int tcp set {back}"),
    }
}

/// Names of the same settings in two systems of one descent.
struct SysctlNames {
    receive: &'static str,
    send: &'static str,
    /// True if the congestion control is a sysctl.
    chooses_control: bool,
    /// The setting that searches for a size that passes, if the system does not do so by itself.
    black_holes: Option<&'static str>,
}

const MAC_OS: SysctlNames = SysctlNames {
    receive: "net.inet.tcp.autorcvbufmax",
    send: "net.inet.tcp.autosndbufmax",
    chooses_control: false,
    black_holes: None,
};
const FREE_BSD: SysctlNames = SysctlNames {
    receive: "net.inet.tcp.recvbuf_max",
    send: "net.inet.tcp.sendbuf_max",
    chooses_control: true,
    black_holes: Some("net.inet.tcp.pmtud_blackhole_detection"),
};

/// No buffer grows beyond `kern.ipc.maxsockbuf`, which counts more than payload (tuning(7), tcp(4);
/// Apple's `sysctl -a`).
fn bsd_commands(change: &Change, names: &SysctlNames) -> Vec<CommandPair> {
    match change {
        Change::TcpRmemMax(size) => raise_buffer_commands(names.receive, *size),
        Change::TcpWmemMax(size) => raise_buffer_commands(names.send, *size),
        Change::WindowScaling(on) => vec![sysctl_command(
            "net.inet.tcp.rfc1323",
            &u8::from(*on).to_string(),
        )],
        Change::SocketBuffer(Buffer::Request(size)) => {
            vec![raise_command("kern.ipc.maxsockbuf", *size * 2)]
        }
        Change::CongestionControl(name) if names.chooses_control => {
            vec![sysctl_command("net.inet.tcp.cc.algorithm", name)]
        }
        Change::Sysctl { name, value } if name == "net.ipv4.tcp_mtu_probing" => names
            .black_holes
            .map(|name| sysctl_command(name, value))
            .into_iter()
            .collect(),
        _ => Vec::new(),
    }
}

fn raise_buffer_commands(name: &str, size: ByteCount) -> Vec<CommandPair> {
    vec![
        raise_command("kern.ipc.maxsockbuf", size * 2),
        raise_command(name, size),
    ]
}

/// The setting of a size, for a host that may have a larger one already.
fn raise_command(name: &str, size: ByteCount) -> CommandPair {
    let CommandPair { apply, undo } = sysctl_command(name, &size.get().to_string());
    CommandPair {
        apply: format!("{apply}    (only if it is less now)"),
        undo,
    }
}

fn sysctl_command(name: &str, value: &str) -> CommandPair {
    CommandPair {
        apply: format!("sysctl {name}={value}"),
        undo: format!("sysctl {name}=BEFORE    (read it first: sysctl {name})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(system: System, change: Change) -> Vec<String> {
        let all = other_system_commands(&[change]);
        all.into_iter()
            .find(|commands| commands.system == system)
            .map(|commands| commands.apply)
            .unwrap_or_default()
    }

    #[test]
    fn a_receive_window_has_a_setting_everywhere() {
        let change = || Change::TcpRmemMax(ByteCount::from_mib(32));
        assert_eq!(
            of(System::Windows, change()),
            ["netsh int tcp set global autotuninglevel=experimental"]
        );
        let larger = |setting| format!("sysctl {setting}    (only if it is less now)");
        let bsd = |name| {
            [
                larger("kern.ipc.maxsockbuf=67108864".to_owned()),
                larger(format!("{name}=33554432")),
            ]
        };
        assert_eq!(
            of(System::MacOs, change()),
            bsd("net.inet.tcp.autorcvbufmax")
        );
        assert_eq!(
            of(System::FreeBsd, change()),
            bsd("net.inet.tcp.recvbuf_max")
        );
        let small = Change::TcpRmemMax(ByteCount::from_mib(16));
        let level =
            "netsh int tcp set global autotuninglevel=normal    (unless it is experimental now)";
        assert_eq!(of(System::Windows, small), [level]);
    }

    #[test]
    fn what_a_system_does_by_itself_has_no_command_there() {
        assert!(of(System::Windows, Change::TcpWmemMax(ByteCount::from_mib(32))).is_empty());
        assert!(of(System::MacOs, Change::CongestionControl("bbr".to_owned())).is_empty());
        assert!(
            other_system_commands(&[
                Change::Streams(8),
                Change::Rate(None),
                Change::MaxPacingRate(None)
            ])
            .is_empty()
        );
    }

    #[test]
    fn black_holes_are_searched_if_the_system_does_not_do_so_anyway() {
        let probing = || Change::Sysctl {
            name: "net.ipv4.tcp_mtu_probing".to_owned(),
            value: "1".to_owned(),
        };
        assert_eq!(
            of(System::FreeBsd, probing()),
            ["sysctl net.inet.tcp.pmtud_blackhole_detection=1"]
        );
        assert!(
            of(System::MacOs, probing()).is_empty() && of(System::Windows, probing()).is_empty()
        );
    }

    #[test]
    fn the_way_back_is_in_reverse_order_and_as_long() {
        let changes = [
            Change::TcpRmemMax(ByteCount::from_mib(8)),
            Change::WindowScaling(true),
        ];
        for commands in other_system_commands(&changes) {
            assert_eq!(commands.apply.len(), commands.undo.len());
        }
        let bsd = other_system_commands(&changes).pop().unwrap();
        assert!(
            bsd.undo[0].contains("rfc1323") && bsd.undo[2].contains("maxsockbuf"),
            "{bsd:?}"
        );
    }
}
