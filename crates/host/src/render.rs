use fullpipe_record::{Buffer, BufferTriple, Change, Commands, HostSettings};
use fullpipe_units::ByteCount;

use crate::setting::Setting;

/// What `change` writes on a host with `settings`, and where; `None` where it is a program's to make and not the
/// host's.
pub(crate) fn writes(change: &Change, settings: &HostSettings) -> Option<(Setting, Option<String>)> {
    if let Some((name, text)) = sysctl(change, settings) {
        return Some((Setting::Sysctl(name), Some(text)));
    }
    Some(match change {
        Change::RouteMetric { destination, metric, value } => {
            let setting = Setting::RouteMetric { destination: destination.clone(), metric: metric.clone() };
            (setting, value.map(|value| value.to_string()))
        }
        Change::Qdisc { device, kind } => (Setting::Qdisc(device.clone()), Some(kind.clone())),
        Change::Offload { device, feature, on } => {
            let setting = Setting::Offload { device: device.clone(), feature: feature.clone() };
            (setting, Some(if *on { "on" } else { "off" }.to_owned()))
        }
        Change::Mtu { device, mtu } => (Setting::Mtu(device.clone()), Some(mtu.get().to_string())),
        _ => return None,
    })
}

/// The sysctl behind a change and the text that it gets on a host with `settings`.
pub(crate) fn sysctl(change: &Change, settings: &HostSettings) -> Option<(String, String)> {
    let triple =
        |t: BufferTriple, max: ByteCount| format!("{} {} {}", t.min.get(), t.default.get().min(max.get()), max.get());
    let switch = |on: bool| u8::from(on).to_string();
    let (name, text) = match change {
        Change::TcpRmemMax(max) => ("net.ipv4.tcp_rmem", triple(settings.tcp_rmem, *max)),
        Change::TcpWmemMax(max) => ("net.ipv4.tcp_wmem", triple(settings.tcp_wmem, *max)),
        Change::WindowScaling(on) => ("net.ipv4.tcp_window_scaling", switch(*on)),
        Change::ModerateRcvbuf(on) => ("net.ipv4.tcp_moderate_rcvbuf", switch(*on)),
        Change::Sysctl { name, value } => (name.as_str(), value.clone()),
        _ => return None,
    };
    Some((name.to_owned(), text))
}

/// The commands that make `changes` by hand on a Linux host with `settings`, and those that undo them. What only this
/// program can put back exactly is left to it.
pub fn commands(changes: &[Change], settings: &HostSettings) -> Commands {
    let mut commands = Commands::default();
    for change in changes {
        if let Some((name, present)) = present(change, settings) {
            let (_, new) = sysctl(change, settings).unwrap_or_default();
            commands.apply.push(format!("sysctl -w {name}={}", quoted(&new)));
            commands.undo.insert(0, format!("sysctl -w {name}={}", quoted(&present)));
        } else if let Some(word) = word(change) {
            commands.apply.push(format!("fullpipe host apply {}", quoted(&word)));
            if !commands.undo.iter().any(|command| command == UNDO) {
                commands.undo.insert(0, UNDO.to_owned());
            }
        } else if let Some(flag) = flag(change) {
            commands.apply.push(flag);
        }
    }
    commands
}

const UNDO: &str = "fullpipe host undo";

/// The sysctl behind `change`, where the settings tell the text that it has now, and that text.
fn present(change: &Change, settings: &HostSettings) -> Option<(String, String)> {
    let unchanged = match change {
        Change::TcpRmemMax(_) => Change::TcpRmemMax(settings.tcp_rmem.max),
        Change::TcpWmemMax(_) => Change::TcpWmemMax(settings.tcp_wmem.max),
        Change::WindowScaling(_) => Change::WindowScaling(settings.window_scaling),
        Change::ModerateRcvbuf(_) => Change::ModerateRcvbuf(settings.moderate_rcvbuf),
        _ => return None,
    };
    sysctl(&unchanged, settings)
}

/// The word of `fullpipe host apply` for a change that is not one of [`HostSettings`] alone.
fn word(change: &Change) -> Option<String> {
    Some(match change {
        Change::Sysctl { name, value } => format!("{name}={value}"),
        Change::RouteMetric { destination, metric, value } => {
            let value = value.map_or("none".to_owned(), |value| value.to_string());
            format!("route:{destination}:{metric}={value}")
        }
        Change::Qdisc { device, kind } => format!("qdisc:{device}={kind}"),
        Change::Offload { device, feature, on } => {
            format!("offload:{device}:{feature}={}", if *on { "on" } else { "off" })
        }
        Change::Mtu { device, mtu } => format!("mtu:{device}={}", mtu.get()),
        _ => return None,
    })
}

/// The flag of `fullpipe measure` that makes a program's own change.
fn flag(change: &Change) -> Option<String> {
    Some(match change {
        Change::SocketBuffer(Buffer::Automatic) => "fullpipe measure HOST    (without -w)".to_owned(),
        Change::SocketBuffer(Buffer::Request(size)) => format!("fullpipe measure HOST -w {}", size.get()),
        Change::SocketBuffer(Buffer::Window(size)) => format!("fullpipe measure HOST --window {}", size.get()),
        Change::CongestionControl(name) => format!("fullpipe measure HOST -C {name}"),
        Change::Streams(streams) => format!("fullpipe measure HOST -P {streams}"),
        _ => return None,
    })
}

fn quoted(text: &str) -> String {
    if text.contains(' ') { format!("\"{text}\"") } else { text.to_owned() }
}
