//! The metrics that the kernel keeps of paths to other hosts.

use std::io;

use fullpipe_record::HostMemory;
use fullpipe_units::{SegCount, Span};
use rustix::net::netlink;

use crate::dump::{address_of, attribute, attribute_u32, dump_list};
use crate::route::push_attribute;

/// Reads the metrics that are kept in the calling thread's network namespace.
///
/// # Errors
/// Fails with the kernel's error: `NotFound` where it has no such memory.
pub fn tcp_metrics() -> io::Result<Vec<HostMemory>> {
    let family = family_number()?;
    let mut found = Vec::new();
    dump_list(
        Some(netlink::GENERIC),
        family,
        &[GET, VERSION, 0, 0],
        &mut |kind, message| {
            if kind == family {
                found.extend(message.get(HEADER..).and_then(parse_tcp_metrics));
            }
        },
    )?;
    Ok(found)
}

/// `struct genlmsghdr`.
const HEADER: usize = 4;
/// `TCP_METRICS_CMD_GET`, and its version (`linux/tcp_metrics.h`).
const GET: u8 = 1;
const VERSION: u8 = 1;

/// The number of the family "`tcp_metrics`".
fn family_number() -> io::Result<u16> {
    const CONTROL_GET_FAMILY: [u8; HEADER] = [libc::CTRL_CMD_GETFAMILY as u8, 1, 0, 0];
    let mut payload = CONTROL_GET_FAMILY.to_vec();
    push_attribute(&mut payload, libc::CTRL_ATTR_FAMILY_NAME as u16, NAME);
    let mut number = None;
    dump_list(
        Some(netlink::GENERIC),
        libc::GENL_ID_CTRL as u16,
        &payload,
        &mut |_, message| {
            let attributes = message.get(HEADER..).unwrap_or_default();
            if attribute(attributes, libc::CTRL_ATTR_FAMILY_NAME as u16) == Some(NAME) {
                number = attribute(attributes, libc::CTRL_ATTR_FAMILY_ID as u16)
                    .and_then(<[u8]>::first_chunk)
                    .copied()
                    .map(u16::from_ne_bytes);
            }
        },
    )?;
    let why = "this kernel remembers nothing of other hosts";
    number.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, why))
}

const NAME: &[u8] = b"tcp_metrics\0";

fn parse_tcp_metrics(rest: &[u8]) -> Option<HostMemory> {
    let address = [(1, libc::AF_INET), (2, libc::AF_INET6)]
        .into_iter()
        .find_map(|(kind, family)| address_of(family, attribute(rest, kind)?))?;
    let values = attribute(rest, 6).unwrap_or_default();
    let [ssthresh, cwnd] =
        [3, 4].map(|kind| attribute_u32(values, kind).map(|count| SegCount::new(count.into())));
    Some(HostMemory {
        address: address.to_string(),
        rtt: attribute_u32(values, 6).map(|micros| Span::from_micros(micros.into())),
        ssthresh,
        cwnd,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_this_host_remembers_is_read() {
        let read = tcp_metrics();
        assert!(read.is_ok() || read.is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
    }

    proptest! {
        #[test]
        fn any_memory_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
            let _ = parse_tcp_metrics(&bytes);
        }
    }
}
