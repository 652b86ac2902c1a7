//! The routers between the hosts where the kernel is the path, as the keeper holds them.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::process::Command;

use fullpipe_host::SysctlTree;
use fullpipe_sys::{
    Ipv4Link, NetNamespace, configure_ipv4, create_veth, device_state, lead_to_peer_alone,
    queue_states, set_ethernet_address, without_arp,
};
use fullpipe_units::SegCount;

use crate::kernel::{Counts, Discipline, Passed, TO_HOST, TO_ROUTER};
use crate::lack::Lack;
use crate::protocol::{Blueprint, ETHERNET_ADDRESS, Host, Stretch};
use crate::refusal::KeeperRefusal;

/// The router that the packets of a host find first.
pub(crate) struct HostRouter {
    host: Host,
    network: NetNamespace,
}

impl HostRouter {
    /// Makes the router of `host` and the pair of devices between both. The calling thread is in
    /// `network`, the host's, and stays there.
    pub(crate) fn build_router(
        host: Host,
        network: &NetNamespace,
        blueprint: &Blueprint,
    ) -> Result<Self, KeeperRefusal> {
        let making = "making a network namespace";
        let router = Self {
            host,
            network: NetNamespace::create()
                .map_err(KeeperRefusal::step_lacking(Lack::Namespaces, making))?,
        };
        let tree = SysctlTree::of_this_host();
        tree.write("net.ipv4.ip_forward", "1")
            .map_err(|error| KeeperRefusal::setting_refused(error.into()))?;
        let joined = create_veth(TO_HOST, [network, &router.network])
            .and_then(|()| router.lead_to(host, TO_HOST, &blueprint.stretches[0]))
            .and_then(|()| network.enter())
            .and_then(|()| set_ethernet_address(TO_HOST, ETHERNET_ADDRESS));
        joined.map_err(KeeperRefusal::step_failed("joining a host to its router"))?;
        Ok(router)
    }

    /// Joins the routers of both hosts to each other, and makes the path there.
    pub(crate) fn join_routers(
        both: [&Self; 2],
        blueprint: &Blueprint,
    ) -> Result<(), KeeperRefusal> {
        let joining = "joining the routers";
        create_veth(TO_ROUTER, both.map(|router| &router.network))
            .map_err(KeeperRefusal::step_failed(joining))?;
        for router in both {
            let joined = router.network.enter().and_then(|()| {
                router.lead_to(router.host.peer_host(), TO_ROUTER, &blueprint.stretches[0])
            });
            joined.map_err(KeeperRefusal::step_failed(joining))?;
            blueprint.disciplines[router.host.index()]
                .iter()
                .try_for_each(set_discipline)?;
        }
        Ok(())
    }

    /// Lets what goes to `host` leave by `device`, in this router, where the calling thread is.
    fn lead_to(&self, host: Host, device: &str, stretch: &Stretch) -> io::Result<()> {
        without_ipv6(device);
        set_ethernet_address(device, ETHERNET_ADDRESS)?;
        let link = Ipv4Link {
            local: self.router_address(),
            peer: host.address(),
            mtu: stretch.mtu[host.peer_host().index()],
            transmit_queue: SegCount::new(stretch.transmit_queue),
        };
        configure_ipv4(device, link)?;
        lead_to_peer_alone(device)?;
        without_arp(device)
    }

    /// Of the network of the hosts, so that they believe what it says.
    const fn router_address(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.host.address().to_bits() + 10)
    }

    /// Returns the packets from the other router that were dropped before this one read them. The
    /// calling thread is in this router afterwards.
    pub(crate) fn dropped_packets(&self) -> io::Result<u64> {
        self.network.enter()?;
        Ok(device_state(TO_ROUTER)?.dropped_in)
    }

    /// Returns the counts from `near`, the router of the host that sends, to `far`. The calling
    /// thread is in that one afterwards.
    pub(crate) fn counts_between(near: &Self, far: &Self) -> io::Result<Counts> {
        near.network.enter()?;
        let line = device_state(TO_ROUTER)?;
        let queues = queue_states(line.index)?;
        far.network.enter()?;
        let flight = device_state(TO_HOST)?;
        let [shaper, netem] =
            ["tbf", "netem"].map(|kind| queues.iter().find(|queue| queue.kind == kind));
        let overflowed = shaper.map_or(0, |shaper| shaper.dropped);
        Ok(Counts {
            sent: Passed {
                packets: line.sent_packets,
                bytes: line.sent,
            },
            delivered: Passed {
                packets: flight.sent_packets,
                bytes: flight.sent,
            },
            backlog: shaper.map(|shaper| shaper.backlog).unwrap_or_default(),
            overflowed,
            // What the queue below it does not take counts as dropped in both (`netem_dequeue`).
            lost: netem.map_or(0, |netem| netem.dropped.wrapping_sub(overflowed)),
        })
    }
}

/// Switches IPv6 off, so that the path carries nothing that the load did not cause. The setting is
/// absent in kernels without IPv6.
pub(crate) fn without_ipv6(device: &str) {
    let _ = SysctlTree::of_this_host().write(&format!("net.ipv6.conf.{device}.disable_ipv6"), "1");
}

/// Sets a discipline in the router in which the calling thread is.
fn set_discipline(discipline: &Discipline) -> Result<(), KeeperRefusal> {
    let Discipline { kind, arguments } = discipline;
    let mut tc = Command::new("tc");
    let output = tc
        .args(arguments.split_whitespace())
        .env("PATH", search_path())
        .output()
        .map_err(|cause| {
            lacking_discipline(format!("`tc`, of iproute2, cannot be run: {cause}"))
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // The second is what kernels say that explain nothing (before Linux 4.17).
    if said.contains("kind is unknown") || said.contains("No such file or directory") {
        return Err(lacking_discipline(format!(
            "this kernel has no {kind} (`tc` says \"{said}\")"
        )));
    }
    Err(KeeperRefusal::step_failed(MAKING_PATH)(io::Error::other(
        format!("`tc {arguments}` says \"{said}\""),
    )))
}

const MAKING_PATH: &str = "making the path";

fn lacking_discipline(why: String) -> KeeperRefusal {
    KeeperRefusal::step_lacking(Lack::Discipline, MAKING_PATH)(io::Error::other(why))
}

/// Returns the directories of programs, followed by those of root, which the search path of
/// ordinary users may lack.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}
