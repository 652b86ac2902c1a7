//! Names and addresses as other programs write them.

use std::net::{IpAddr, SocketAddr};

use fullpipe_units::printable_line;

/// Characters of a name that are kept.
const MAX_NAME: usize = 200;

/// Returns the beginning of a text of somebody else in one line that commands no terminal.
pub(crate) fn clean_line(text: &str) -> String {
    printable_line(text).chars().take(MAX_NAME).collect()
}

/// Returns a host without its port: `example.org:5201` and `[2001:db8::1]:5201` have one,
/// `2001:db8::1` has none.
pub(crate) fn host_of(text: &str) -> String {
    let text = text.trim();
    if let Ok(address) = text.parse::<SocketAddr>() {
        return address.ip().to_string();
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') && port.parse::<u16>().is_ok() => host.to_owned(),
        _ => text.trim_matches(['[', ']']).to_owned(),
    }
}

/// Returns the IP address of a text with one, with or without a port; empty if there is none.
pub(crate) fn ip_of(text: &str) -> String {
    host_of(text)
        .parse::<IpAddr>()
        .map_or_else(|_| String::new(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_no_part_of_a_host() {
        for (text, host) in [
            ("example.org:5201", "example.org"),
            ("example.org", "example.org"),
            ("192.0.2.1:5201", "192.0.2.1"),
            ("[2001:db8::1]:5201", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::", "::"),
            ("", ""),
        ] {
            assert_eq!(host_of(text), host);
        }
    }

    #[test]
    fn a_name_has_no_address() {
        assert_eq!(ip_of("example.org:5201"), "");
        assert_eq!(ip_of("[::1]:5201"), "::1");
        assert_eq!(ip_of("192.0.2.1"), "192.0.2.1");
    }
}
