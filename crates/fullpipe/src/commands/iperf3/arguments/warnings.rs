//! Flags of iperf3 that are refused or ignored, and addresses.

use super::{IgnoredFlags, RefusedFlags};
use crate::commands::prelude::*;
use std::net::IpAddr;

impl RefusedFlags {
    /// Names the first of them that is given.
    pub(super) fn by_name(&self) -> Result<(), String> {
        const SCTP: &str = "SCTP is not supported";
        let given = [
            (self.sctp, "--sctp", "no SCTP support available"),
            (self.xbind.is_some(), "-X, --xbind", SCTP),
            (self.nstreams.is_some(), "--nstreams", SCTP),
        ];
        let first = given.into_iter().find(|(is_given, ..)| *is_given);
        first.map_or(Ok(()), |(_, name, why)| {
            Err(format!("{name} is not supported by fullpipe: {why}"))
        })
    }
}

impl IgnoredFlags {
    /// Returns a warning for each of them that is given.
    pub(super) fn warnings(&self) -> Vec<String> {
        let given = [
            (
                self.flowlabel.is_some(),
                "-L, --flowlabel: the kernel chooses IPv6 flow labels",
            ),
            (
                self.snd_timeout.is_some(),
                "--snd-timeout: the kernel's own time applies",
            ),
            (
                self.repeating_payload,
                "--repeating-payload: each block has the same random bytes",
            ),
            (
                self.cntl_ka.is_some(),
                "--cntl-ka: each answer on the control connection has a deadline",
            ),
        ];
        given
            .iter()
            .filter(|(is_given, _)| *is_given)
            .map(|(_, why)| format!("{why}; ignored by fullpipe"))
            .collect()
    }
}

pub(super) fn parse_port(number: i64) -> Result<u16, String> {
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    port.ok_or_else(|| "port number must be between 1 and 65535 inclusive".to_owned())
}

pub(super) fn parse_processor(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| format!("-A, --affinity: \"{text}\" is not a processor's number"))
}

/// The `host%device` of a server; the device of an IPv6 link-local address stays with it as its
/// scope.
pub(super) fn split_device(text: &str) -> (&str, Option<&str>) {
    match text.split_once('%') {
        Some((host, device)) if !host.to_ascii_lowercase().starts_with("fe80:") => {
            (host, Some(device))
        }
        _ => (text, None),
    }
}

pub(super) fn resolve_address(host: &str) -> Result<IpAddr, String> {
    use std::net::ToSocketAddrs;
    let found = (host, 0)
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next());
    found
        .map(|found| found.ip())
        .ok_or_else(|| format!("-B, --bind: {host} is not an address of this host"))
}
