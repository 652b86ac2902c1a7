//! The queueing discipline at the root of a device.

use std::collections::BTreeSet;
use std::io;

use rustix::net::netdevice::name_to_index;

use crate::device::queue_states;
use crate::dump::netlink_message;
use crate::route::{nul_terminated, push_attribute, send_request};
use crate::socket::control_socket;

/// The queueing discipline of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootQdisc {
    /// `fq`, `pfifo_fast`, `mq`, `noqueue`…
    pub kind: String,
    /// True if the kernel put it there by itself, as it does where no other was asked for.
    pub is_default: bool,
    /// Number of the discipline, by which others refer to it.
    pub handle: u32,
    /// Parameters of the discipline, as the kernel reports them.
    pub options: Vec<u8>,
    /// The kinds of those that serve classes of it, which go where it goes; each once.
    pub inner: BTreeSet<String>,
}

/// Returns the queueing disciplines of device `name`; none where the kernel reports none.
///
/// # Errors
/// Fails with the kernel's error: `ENODEV` where there is no such device.
pub fn root_qdisc(name: &str) -> io::Result<Option<RootQdisc>> {
    let all = queue_states(device_index(name)?)?;
    let (mut roots, inner): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|queue| queue.parent == ROOT);
    Ok(roots.pop().map(|queue| RootQdisc {
        is_default: queue.handle == 0,
        kind: queue.kind,
        handle: queue.handle,
        options: queue.options,
        inner: inner.into_iter().map(|queue| queue.kind).collect(),
    }))
}

/// Puts a discipline of this kind, with its own defaults, at the root of device `name`.
///
/// # Errors
/// Fails with the kernel's error: `ENOENT` where it does not know the kind.
pub fn set_root_qdisc(name: &str, kind: &str) -> io::Result<()> {
    replace_qdisc(&traffic_control(device_index(name)?, 0), kind, &[])
}

/// Puts the discipline at the root of device `name` that [`root_qdisc()`] returned, with its number
/// and its parameters. What it counted begins anew, and what served classes of it is not there.
///
/// # Errors
/// Fails with the kernel's error: `EINVAL` of a kind that does not take its parameters as it
/// reports them.
pub fn restore_root_qdisc(name: &str, kind: &str, handle: u32, options: &[u8]) -> io::Result<()> {
    replace_qdisc(&traffic_control(device_index(name)?, handle), kind, options)
}

fn replace_qdisc(place: &[u8], kind: &str, options: &[u8]) -> io::Result<()> {
    let mut payload = place.to_vec();
    push_attribute(&mut payload, libc::TCA_KIND, &nul_terminated(kind));
    if !options.is_empty() {
        push_attribute(&mut payload, libc::TCA_OPTIONS, options);
    }
    let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    send_request(&netlink_message(libc::RTM_NEWQDISC, flags, &payload))
}

/// Takes the discipline at the root of device `name` away; the kernel puts its default there.
///
/// # Errors
/// Fails with the kernel's error: `ENOENT` where the default is there already.
pub fn delete_root_qdisc(name: &str) -> io::Result<()> {
    send_request(&netlink_message(
        libc::RTM_DELQDISC,
        libc::NLM_F_ACK,
        &traffic_control(device_index(name)?, 0),
    ))
}

/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;

/// `struct tcmsg` for the root of a device; the kernel chooses a handle where that is zero.
fn traffic_control(index: u32, handle: u32) -> Vec<u8> {
    [0, index, handle, ROOT, 0].map(u32::to_ne_bytes).concat()
}

fn device_index(name: &str) -> io::Result<u32> {
    Ok(name_to_index(control_socket()?, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_one_that_can_be_reported() {
        assert!(root_qdisc("lo").is_ok());
        assert!(root_qdisc("no-such-device").is_err());
    }
}
