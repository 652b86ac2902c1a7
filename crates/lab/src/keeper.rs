//! The keeper: this program run again inside the lab's namespaces.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, ExitCode, Stdio};

use fullpipe_host::{AppliedChanges, SysctlTree, apply_changes, device_counts, inspect_host};
use fullpipe_record::Segmentation;
use fullpipe_sys::{
    CpuTime, ForkSide, Ipv4Link, NetNamespace, TunOffload, children_cpu_time, configure_ipv4,
    create_veth, enter_before_exec, ethernet_up, fork_single_threaded, ignore_terminal_signals,
    lead_to_network_of_peer, lead_to_peer_alone, loopback_up, open_packet_socket, open_tun,
    packet_drops, set_ethernet_address, single_segments, without_arp,
};
use fullpipe_units::{ByteCount, SegCount, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, wait, waitpid,
};

use crate::backend::Backend;
use crate::join_socket::missing_host;
use crate::kernel::{Counts, TO_HOST};
use crate::lack::Lack;
use crate::path_witness;
use crate::protocol::{
    Blueprint, ETHERNET_ADDRESS, Host, Layout, Reply, Request, Stretch, receive_message,
    send_message,
};
use crate::refusal::KeeperRefusal;
use crate::router::{HostRouter, without_ipv6};

/// The argument that makes the program a keeper.
pub const ARGUMENT: &str = "lab-keeper";

/// The device of a relay that leads to the receiver. The one that leads to the sender is called as
/// that of an end.
const ONWARD: &str = "path1";

/// The device behind TUN.
const TUN: &str = "/dev/net/tun";

/// Interval at which orphans are reaped when nothing else happens.
const REAP_EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Runs the keeper with the control socket as standard input, until the parent is gone. Never
/// called by people.
pub fn main() -> ExitCode {
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    match fork_single_threaded() {
        Ok(ForkSide::Parent(pid)) => wait_for_keeper(pid),
        Ok(ForkSide::Child) => run_keeper(&control),
        Err(error) => {
            let _ = send_message(
                &control,
                &KeeperRefusal::step_failed("forking")(error).into_reply(),
                &[],
            );
            ExitCode::FAILURE
        }
    }
}

/// The process outside of the PID namespace has nothing to do but to end after its child.
fn wait_for_keeper(pid: i32) -> ExitCode {
    ignore_terminal_signals();
    while let Err(rustix::io::Errno::INTR) = waitpid(Pid::from_raw(pid), WaitOptions::empty()) {}
    ExitCode::SUCCESS
}

fn run_keeper(control: &OwnedFd) -> ExitCode {
    let Ok(Some((blueprint, _))) = receive_message::<Blueprint>(control) else {
        return ExitCode::FAILURE;
    };
    let layout = link_layout(blueprint.backend);
    match build_hosts(&blueprint, layout) {
        Ok((hosts, devices)) => {
            if introduce_hosts(control, layout, &hosts, &devices).is_err() {
                return ExitCode::FAILURE;
            }
            drop(devices);
            HostKeeper {
                control,
                hosts,
                programs: HashSet::new(),
            }
            .serve_requests();
            ExitCode::SUCCESS
        }
        Err(refusal) => {
            // If the parent is gone too, no process is left to read it.
            let _ = send_message(control, &refusal.into_reply(), &[]);
            ExitCode::FAILURE
        }
    }
}

/// Hands over what leads into the hosts, and to them.
fn introduce_hosts(
    control: &OwnedFd,
    layout: Option<Layout>,
    hosts: &[HostState],
    devices: &[OwnedFd],
) -> io::Result<()> {
    let keeper = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut descriptors = vec![keeper.as_fd()];
    descriptors.extend(hosts.iter().map(|host| host.network.as_fd()));
    descriptors.extend(devices.iter().map(AsFd::as_fd));
    send_message(control, &Reply::Ready { layout }, &descriptors)
}

/// `None` where there is no link to lead to.
fn link_layout(backend: Backend) -> Option<Layout> {
    match backend {
        Backend::Tun => Some(Layout::Tun),
        Backend::Automatic if OpenOptions::new().read(true).write(true).open(TUN).is_ok() => {
            Some(Layout::Tun)
        }
        Backend::Packet | Backend::Automatic => Some(Layout::Packet),
        Backend::Kernel => None,
    }
}

/// One host as the keeper holds it.
struct HostState {
    network: NetNamespace,
    /// The router next to it, if there is no link.
    router: Option<HostRouter>,
    /// The link's ends of the devices if they are packet sockets, which alone know what they
    /// dropped.
    sockets: Vec<OwnedFd>,
    /// Packets that they had dropped when they were last asked.
    socket_drops: u64,
    applied: AppliedChanges,
}

/// Builds the hosts, in the order of their numbers, and returns with them the devices, in the order
/// of the path.
fn build_hosts(
    blueprint: &Blueprint,
    layout: Option<Layout>,
) -> Result<(Vec<HostState>, Vec<OwnedFd>), KeeperRefusal> {
    mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::PRIVATE,
    )
    .map_err(|error| KeeperRefusal::step_failed("making the mounts private")(error.into()))?;
    // In a container that hides parts of /proc the kernel refuses a fresh one; programs then see
    // the outer PIDs.
    let _ = mount(
        "proc",
        "/proc",
        "proc",
        MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
        None,
    );
    let (mut hosts, mut devices) = (Vec::new(), Vec::new());
    for &host in blueprint.path_hosts() {
        let (state, own) = build_host(host, blueprint, layout)?;
        hosts.push((host, state));
        devices.extend(own);
    }
    hosts.sort_by_key(|(host, _)| host.index());
    let hosts: Vec<HostState> = hosts.into_iter().map(|(_, state)| state).collect();
    if let [
        HostState {
            router: Some(near), ..
        },
        HostState {
            router: Some(far), ..
        },
    ] = &hosts[..]
    {
        HostRouter::join_routers([near, far], blueprint)?;
    }
    Ok((hosts, devices))
}

/// A device of a host.
struct KeeperDevice<'b> {
    name: &'static str,
    /// The host at the other end of its stretch.
    peer: Host,
    stretch: &'b Stretch,
    /// 0 at the sender's end of the stretch, 1 at the receiver's.
    end: usize,
    /// True if more than the peer is behind it.
    leads_on: bool,
}

/// Returns the devices of `host`, the one towards the sender first.
fn devices_of(host: Host, blueprint: &Blueprint) -> Vec<KeeperDevice<'_>> {
    let hosts = blueprint.path_hosts();
    let Some(at) = hosts.iter().position(|other| *other == host) else {
        return Vec::new();
    };
    let is_relayed = hosts.len() > 2;
    let back = at.checked_sub(1).map(|before| KeeperDevice {
        name: TO_HOST,
        peer: hosts[before],
        stretch: &blueprint.stretches[before],
        end: 1,
        leads_on: is_relayed && !hosts[before].is_end(),
    });
    let onward = hosts.get(at + 1).map(|next| KeeperDevice {
        name: if at == 0 { TO_HOST } else { ONWARD },
        peer: *next,
        stretch: &blueprint.stretches[at],
        end: 0,
        leads_on: is_relayed && !next.is_end(),
    });
    back.into_iter().chain(onward).collect()
}

fn build_host(
    host: Host,
    blueprint: &Blueprint,
    layout: Option<Layout>,
) -> Result<(HostState, Vec<OwnedFd>), KeeperRefusal> {
    let making = "making a network namespace";
    let network =
        NetNamespace::create().map_err(KeeperRefusal::step_lacking(Lack::Namespaces, making))?;
    let tree = SysctlTree::of_this_host();
    // A remembered slow-start threshold would leak from one measurement into the next.
    tree.write("net.ipv4.tcp_no_metrics_save", "1")
        .map_err(|error| KeeperRefusal::setting_refused(error.into()))?;
    let changes = blueprint
        .changes
        .get(host.index())
        .unwrap_or(&blueprint.relay_changes);
    apply_changes(&tree, changes).map_err(KeeperRefusal::setting_refused)?;
    let router = if host.is_end() {
        layout
            .is_none()
            .then(|| HostRouter::build_router(host, &network, blueprint))
            .transpose()?
    } else {
        tree.write("net.ipv4.ip_forward", "1")
            .map_err(|error| KeeperRefusal::setting_refused(error.into()))?;
        None
    };
    loopback_up().map_err(KeeperRefusal::step_failed(
        "bringing up the loopback device",
    ))?;
    let mut ends = Vec::new();
    for device in devices_of(host, blueprint) {
        if let Some(layout) = layout {
            ends.push(open_device(&device, layout, &network, blueprint)?);
        }
        set_up(&device, host, blueprint.segmentation, layout)?;
    }
    let sockets = ends
        .iter()
        .filter(|_| layout == Some(Layout::Packet))
        .map(OwnedFd::try_clone);
    let sockets = sockets
        .collect::<io::Result<_>>()
        .map_err(KeeperRefusal::step_failed(
            "keeping hold of the packet socket",
        ))?;
    Ok((
        HostState {
            network,
            router,
            sockets,
            socket_drops: 0,
            applied: AppliedChanges::default(),
        },
        ends,
    ))
}

/// Configures a device of `host`, whose network the calling thread is in.
fn set_up(
    device: &KeeperDevice<'_>,
    host: Host,
    form: Segmentation,
    layout: Option<Layout>,
) -> Result<(), KeeperRefusal> {
    without_ipv6(device.name);
    if form == Segmentation::Exact {
        single_segments(device.name)
            .map_err(KeeperRefusal::step_failed("switching segmentation off"))?;
    }
    let link = Ipv4Link {
        local: host.address(),
        peer: device.peer.address(),
        mtu: device.stretch.mtu[device.end],
        transmit_queue: SegCount::new(device.stretch.transmit_queue),
    };
    let configuring = "configuring the device";
    configure_ipv4(device.name, link).map_err(KeeperRefusal::step_failed(configuring))?;
    if device.leads_on {
        lead_to_network_of_peer(device.name).map_err(KeeperRefusal::step_failed(configuring))?;
    } else if !host.is_end() {
        lead_to_peer_alone(device.name).map_err(KeeperRefusal::step_failed(configuring))?;
    }
    if layout != Some(Layout::Tun) {
        without_arp(device.name).map_err(KeeperRefusal::step_failed(configuring))?;
    }
    Ok(())
}

/// Makes a device of host `network`, which the calling thread is in; what the link reads and writes
/// of it.
fn open_device(
    device: &KeeperDevice<'_>,
    layout: Layout,
    network: &NetNamespace,
    blueprint: &Blueprint,
) -> Result<OwnedFd, KeeperRefusal> {
    let exact = blueprint.segmentation == Segmentation::Exact;
    match layout {
        Layout::Tun => {
            let offload = if exact {
                TunOffload::Checksums
            } else {
                TunOffload::Trains
            };
            open_tun(device.name, offload)
                .map(OwnedFd::from)
                .map_err(KeeperRefusal::step_lacking(Lack::Tun, "open(/dev/net/tun)"))
        }
        Layout::Packet => open_packet_device(device, network).map_err(KeeperRefusal::step_lacking(
            Lack::PacketSockets,
            "making a pair of devices and a packet socket",
        )),
    }
}

/// Makes the device of host `network`, which the calling thread is in, and a packet socket at its
/// other end. That is in a network namespace of its own, which the socket alone keeps alive.
fn open_packet_device(device: &KeeperDevice<'_>, network: &NetNamespace) -> io::Result<OwnedFd> {
    const MAX_MTU: ByteCount = ByteCount::new(65_535);
    // An Ethernet device takes in no packet that is longer than what it may send
    // (`is_skb_forwardable`).
    if device.stretch.mtu[0] != device.stretch.mtu[1] {
        return Err(io::Error::other("they need one MTU for both directions"));
    }
    let outside = NetNamespace::create()?;
    create_veth(device.name, [network, &outside])?;
    without_ipv6(device.name);
    ethernet_up(device.name, MAX_MTU)?;
    let socket = open_packet_socket(device.name)?;
    network.enter()?;
    set_ethernet_address(device.name, ETHERNET_ADDRESS)?;
    Ok(socket)
}

impl HostState {
    /// Packets that the link's ends of the devices dropped so far, or the host's router as they
    /// came from the other.
    fn drops_on_the_way(&mut self) -> io::Result<u64> {
        for socket in &self.sockets {
            self.socket_drops += packet_drops(socket)?;
        }
        Ok(self.socket_drops
            + self
                .router
                .as_ref()
                .map_or(Ok(0), HostRouter::dropped_packets)?)
    }
}

struct HostKeeper<'c> {
    control: &'c OwnedFd,
    /// By number.
    hosts: Vec<HostState>,
    programs: HashSet<i32>,
}

impl HostKeeper<'_> {
    /// Answers requests until the parent is gone.
    fn serve_requests(&mut self) {
        let mut watched: Vec<OwnedFd> = Vec::new();
        loop {
            let mut waiting = vec![PollFd::new(self.control, PollFlags::IN)];
            waiting.extend(
                watched
                    .iter()
                    .map(|pidfd| PollFd::new(pidfd, PollFlags::IN)),
            );
            if poll(&mut waiting, Some(&REAP_EVERY)).is_err() {
                continue;
            }
            let asked = !waiting[0].revents().is_empty();
            let ended: Vec<bool> = waiting[1..]
                .iter()
                .map(|program| !program.revents().is_empty())
                .collect();
            let mut ended = ended.into_iter();
            watched.retain(|_| !ended.next().unwrap_or(false));
            if self.reap_children().is_err() {
                return;
            }
            if asked && self.answer_request(&mut watched).is_none() {
                return;
            }
        }
    }

    /// Collects every process that ended: programs, whose end is reported, and the orphans that
    /// they left.
    fn reap_children(&mut self) -> io::Result<()> {
        let mut before = total_children_time();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_pid();
            let now = total_children_time();
            let cpu = now.saturating_sub(std::mem::replace(&mut before, now));
            if self.programs.remove(&pid) {
                let code = status
                    .exit_status()
                    .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
                send_message(
                    self.control,
                    &Reply::Exited {
                        pid,
                        code: code.unwrap_or(1),
                        cpu,
                    },
                    &[],
                )?;
            }
        }
        Ok(())
    }

    /// Answers one request; `None` once the parent is gone.
    fn answer_request(&mut self, watched: &mut Vec<OwnedFd>) -> Option<()> {
        let (request, descriptors) = receive_message::<Request>(self.control).ok()??;
        let known = watched.len();
        let mut listener = None;
        let done = match request {
            Request::Listen { host } => self.listen_on_host(host).map(|socket| {
                listener = Some(socket);
                Reply::Done
            }),
            request => self.carry_out(request, descriptors, watched),
        };
        let reply = done.unwrap_or_else(|error| Reply::Failed {
            message: error.to_string(),
        });
        // Whoever has a program's end need not rely on this process to learn of it.
        let started: Vec<BorrowedFd<'_>> = watched[known..]
            .iter()
            .chain(&listener)
            .map(AsFd::as_fd)
            .collect();
        send_message(self.control, &reply, &started).ok()
    }

    fn carry_out(
        &mut self,
        request: Request,
        stdio: Vec<OwnedFd>,
        watched: &mut Vec<OwnedFd>,
    ) -> io::Result<Reply> {
        match request {
            Request::Start {
                host,
                program,
                arguments,
            } => {
                let mut command = Command::new(&program);
                command.args(arguments);
                self.start_program(host, command, stdio, watched)
                    .map(|pid| Reply::Started { pid })
            }
            Request::Signal { pid, signal } => {
                self.signal_program(pid, signal).map(|()| Reply::Done)
            }
            Request::Inspect { host } => {
                self.enter_host(host)?;
                inspect_host(&SysctlTree::of_this_host())
                    .map(Reply::Settings)
                    .map_err(io::Error::other)
            }
            Request::Apply { host, changes } => {
                self.enter_host(host)?;
                let applied = apply_changes(&SysctlTree::of_this_host(), &changes)
                    .map_err(io::Error::other)?;
                self.host_mut(host)?.applied.append(applied);
                Ok(Reply::Done)
            }
            Request::Undo { host } => self.undo_changes(host).map(|()| Reply::Done),
            Request::DeviceDrops { host } => {
                self.enter_host(host)?;
                Ok(Reply::Count(
                    device_drops()? + self.host_mut(host)?.drops_on_the_way()?,
                ))
            }
            Request::Device { host } => {
                self.enter_host(host)?;
                device_counts(TO_HOST).map(Reply::Device)
            }
            Request::Counts => self.router_counts().map(Reply::Counts),
            Request::Listen { .. } => Ok(Reply::Done),
        }
    }

    fn listen_on_host(&mut self, host: Host) -> io::Result<OwnedFd> {
        self.enter_host(host)?;
        path_witness::listen_here()
    }

    fn start_program(
        &mut self,
        host: Host,
        mut command: Command,
        stdio: Vec<OwnedFd>,
        watched: &mut Vec<OwnedFd>,
    ) -> io::Result<i32> {
        let [input, output, errors] = <[OwnedFd; 3]>::try_from(stdio).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a program needs three descriptors",
            )
        })?;
        command
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(errors));
        enter_before_exec(&mut command, &self.host_mut(host)?.network, host.name())?;
        let pid = command.spawn()?.id().cast_signed();
        self.programs.insert(pid);
        if let Some(known) = Pid::from_raw(pid) {
            watched.push(pidfd_open(known, PidfdFlags::empty())?);
        }
        Ok(pid)
    }

    /// Signals a program that still runs; one that has ended needs none.
    fn signal_program(&self, pid: i32, signal: i32) -> io::Result<()> {
        if !self.programs.contains(&pid) {
            return Ok(());
        }
        match (Pid::from_raw(pid), Signal::from_named_raw(signal)) {
            (Some(pid), Some(signal)) => Ok(kill_process(pid, signal)?),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn undo_changes(&mut self, host: Host) -> io::Result<()> {
        self.enter_host(host)?;
        let applied = std::mem::take(&mut self.host_mut(host)?.applied);
        applied
            .undo_changes(&SysctlTree::of_this_host())
            .map_err(io::Error::other)
    }

    /// Returns the routers' counts of each direction.
    fn router_counts(&self) -> io::Result<[Counts; 2]> {
        match &self.hosts[..] {
            [
                HostState {
                    router: Some(sender),
                    ..
                },
                HostState {
                    router: Some(receiver),
                    ..
                },
            ] => Ok([
                HostRouter::counts_between(sender, receiver)?,
                HostRouter::counts_between(receiver, sender)?,
            ]),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "there are no routers",
            )),
        }
    }

    fn enter_host(&mut self, host: Host) -> io::Result<()> {
        self.host_mut(host)?.network.enter()
    }

    fn host_mut(&mut self, host: Host) -> io::Result<&mut HostState> {
        self.hosts
            .get_mut(host.index())
            .ok_or_else(|| missing_host(host))
    }
}

/// Packets that the path's devices dropped, in either direction, in the network namespace of the
/// calling thread.
fn device_drops() -> io::Result<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let first = parse_device_drops(&table, TO_HOST);
    let first = first.ok_or_else(|| io::Error::other(format!("device {TO_HOST} is gone")))?;
    Ok(first + parse_device_drops(&table, ONWARD).unwrap_or(0))
}

/// Columns of `/proc/net/dev`: eight of reception, then eight of transmission; the fourth of each
/// counts drops.
fn parse_device_drops(table: &str, device: &str) -> Option<u64> {
    let columns = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    let columns: Vec<u64> = columns
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    Some(columns.get(3)? + columns.get(11)?)
}

#[cfg(test)]
mod tests;

/// Returns the processor time of all programs that ended.
fn total_children_time() -> Span {
    children_cpu_time().map_or(Span::ZERO, CpuTime::total_time)
}
