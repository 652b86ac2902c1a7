use fullpipe_record::Change;

use crate::key::{Key, buffer_size, keys};

/// The keys of `[sender]`, `[receiver]` and `[relay]`, and of `--sender` and `--receiver`: sysctls
/// by their names.
pub(crate) const HOST_KEYS: &[Key<Vec<Change>>] = keys! { |changes, text|
    "tcp_rmem" => changes.push(Change::TcpRmemMax(buffer_size(text)?)),
    "tcp_wmem" => changes.push(Change::TcpWmemMax(buffer_size(text)?)),
    "tcp_window_scaling" => changes.push(Change::WindowScaling(read_switch(text)?)),
    "tcp_moderate_rcvbuf" => changes.push(Change::ModerateRcvbuf(read_switch(text)?)),
};

/// A switch, as sysctl, TOML or a person writes it.
pub(crate) fn read_switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "on" => Ok(true),
        "0" | "false" | "off" => Ok(false),
        _ => Err(format!("\"{text}\" is not a switch: write on or off")),
    }
}
