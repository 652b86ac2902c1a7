use fullpipe_record::{Buffer, Change, Commands, HostSettings};

/// The sysctl behind a change and the text that it gets on a host with `settings`; `None` where the change is a
/// program's to make and not the host's.
pub(crate) fn sysctl(change: &Change, settings: &HostSettings) -> Option<(&'static str, String)> {
    let triple = |t: fullpipe_record::BufferTriple, max: fullpipe_units::ByteCount| {
        format!("{} {} {}", t.min.get(), t.default.get().min(max.get()), max.get())
    };
    let switch = |on: bool| u8::from(on).to_string();
    Some(match change {
        Change::TcpRmemMax(max) => ("net.ipv4.tcp_rmem", triple(settings.tcp_rmem, *max)),
        Change::TcpWmemMax(max) => ("net.ipv4.tcp_wmem", triple(settings.tcp_wmem, *max)),
        Change::WindowScaling(on) => ("net.ipv4.tcp_window_scaling", switch(*on)),
        Change::ModerateRcvbuf(on) => ("net.ipv4.tcp_moderate_rcvbuf", switch(*on)),
        Change::SocketBuffer(_) | Change::CongestionControl(_) | Change::Streams(_) => return None,
    })
}

/// The commands that make `changes` by hand on a Linux host with `settings`, and those that undo them.
pub fn commands(changes: &[Change], settings: &HostSettings) -> Commands {
    let mut commands = Commands::default();
    for change in changes {
        if let Some((name, new)) = sysctl(change, settings) {
            commands.apply.push(format!("sysctl -w {name}={}", quoted(&new)));
            commands.undo.insert(0, format!("sysctl -w {name}={}", quoted(&present(change, settings))));
        } else if let Some(flag) = flag(change) {
            commands.apply.push(flag);
        }
    }
    commands
}

/// The text that the sysctl behind `change` has now.
fn present(change: &Change, settings: &HostSettings) -> String {
    let unchanged = match change {
        Change::TcpRmemMax(_) => Change::TcpRmemMax(settings.tcp_rmem.max),
        Change::TcpWmemMax(_) => Change::TcpWmemMax(settings.tcp_wmem.max),
        Change::WindowScaling(_) => Change::WindowScaling(settings.window_scaling),
        Change::ModerateRcvbuf(_) => Change::ModerateRcvbuf(settings.moderate_rcvbuf),
        Change::SocketBuffer(_) | Change::CongestionControl(_) | Change::Streams(_) => return String::new(),
    };
    sysctl(&unchanged, settings).map_or_else(String::new, |(_, text)| text)
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
