use fullpipe_record::Change;

use crate::key::{Key, buffer_size};

/// The keys of `[sender]`, `[receiver]` and `[relay]`, and of `--sender` and `--receiver`: sysctls
/// by their names.
pub(crate) const HOST_KEYS: &[Key<Vec<Change>>] = &[
    Key::new("tcp_rmem", |changes, text| {
        push_change(changes, buffer_size(text).map(Change::TcpRmemMax))
    }),
    Key::new("tcp_wmem", |changes, text| {
        push_change(changes, buffer_size(text).map(Change::TcpWmemMax))
    }),
    Key::new("tcp_window_scaling", |changes, text| {
        push_change(changes, read_switch(text).map(Change::WindowScaling))
    }),
    Key::new("tcp_moderate_rcvbuf", |changes, text| {
        push_change(changes, read_switch(text).map(Change::ModerateRcvbuf))
    }),
];

fn push_change(changes: &mut Vec<Change>, change: Result<Change, String>) -> Result<(), String> {
    changes.push(change?);
    Ok(())
}

/// A switch, as sysctl, TOML or a person writes it.
pub(crate) fn read_switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "on" => Ok(true),
        "0" | "false" | "off" => Ok(false),
        _ => Err(format!("\"{text}\" is not a switch: write on or off")),
    }
}
