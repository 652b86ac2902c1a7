use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use fullpipe_record::{Change, DeviceCounts, HostSettings, Path, PathChange, Validity};
use fullpipe_units::{BitRate, ByteCount};
use tracing::{debug, info};

use crate::backend::Backend;
use crate::capture::{self, CaptureSummary, PathCapture};
use crate::count_readers::{PathCounts, UnreadCounts};
use crate::driver::LinkDriver;
use crate::error::LabError;
use crate::join_socket::JoinSocket;
use crate::kernel::{KernelPath, made_exact, path_disciplines};
use crate::program::{LabProgram, ProgramStdio};
use crate::protocol::{Blueprint, Host, Reply, Request, Stretch};
use crate::remote::RemoteKeeper;
use crate::validity::{CpuTicks, judge_validity};

/// Packets that a device holds for the link before it drops: at least, and as many as the kernel
/// allocates a ring for.
const TRANSMIT_QUEUE: std::ops::RangeInclusive<u64> = 20_000..=60_000;

/// The path, the hosts and the backend to build.
#[derive(Debug, Clone, PartialEq)]
pub struct LabPlan {
    /// The path between the hosts.
    pub path: Path,
    /// From which losses are drawn.
    pub seed: u64,
    /// Settings of the sender where they differ from this machine's.
    pub sender: Vec<Change>,
    /// Settings of the receiver where they differ from this machine's.
    pub receiver: Vec<Change>,
    /// The devices between the hosts and the link, or the disciplines in the place of the link.
    pub backend: Backend,
    /// True if programs read from this program's terminal, as a shell does.
    pub interactive: bool,
}

/// Two hosts and the path between them, and relays in between if it has stretches. Everything
/// disappears with it.
pub struct Lab {
    // Dropped first: the link ends before the hosts whose devices it reads.
    carrier: PathCarrier,
    remote: RemoteKeeper,
    path: Path,
    /// One that is the path, or three.
    stretches: Vec<Path>,
    unread_counts: UnreadCounts,
}

/// The carrier of the packets between the hosts.
enum PathCarrier {
    /// The emulated link of each stretch.
    Link(Vec<LinkDriver>),
    /// The kernel's own disciplines.
    Kernel(KernelPath),
}

impl Lab {
    /// Builds the hosts and the path between them.
    ///
    /// # Errors
    /// [`LabError::Unsupported`] where the path cannot be made in the way that was asked for,
    /// before anything is made; [`LabError::Lacking`] where this machine does not permit it, with
    /// what would; otherwise what failed.
    pub fn start(plan: &LabPlan) -> Result<Self, LabError> {
        plan.backend.check_path_support(&plan.path)?;
        let path = if plan.backend == Backend::Kernel {
            made_exact(&plan.path)
        } else {
            plan.path.clone()
        };
        Self::start_stretches(vec![path.clone()], path, plan, &[])
    }

    /// Builds four hosts in a row: sender, near relay, far relay and receiver, joined by
    /// `stretches`, of which the path of `plan` is the whole. The relays forward packets, and have
    /// this machine's settings but for `relay`.
    ///
    /// # Errors
    /// As [`Lab::start`]; [`LabError::Unsupported`] where the kernel is the path.
    pub fn start_with_relays(
        plan: &LabPlan,
        stretches: &[Path; 3],
        relay: &[Change],
    ) -> Result<Self, LabError> {
        if plan.backend == Backend::Kernel {
            return Err(LabError::Unsupported { what: "stretches" });
        }
        Self::start_stretches(stretches.to_vec(), plan.path.clone(), plan, relay)
    }

    fn start_stretches(
        stretches: Vec<Path>,
        path: Path,
        plan: &LabPlan,
        relay: &[Change],
    ) -> Result<Self, LabError> {
        let blueprint = Blueprint {
            backend: plan.backend,
            stretches: stretches.iter().map(devices_of).collect(),
            segmentation: path.segmentation,
            changes: [plan.sender.clone(), plan.receiver.clone()],
            relay_changes: relay.to_vec(),
            disciplines: if plan.backend == Backend::Kernel {
                path_disciplines(&path)
            } else {
                [vec![], vec![]]
            },
        };
        info!(backend = ?plan.backend, hosts = blueprint.path_hosts().len(), "starting hosts in namespaces");
        let (remote, devices) = RemoteKeeper::start(&blueprint, plan.interactive)?;
        debug!(?stretches, "joining the hosts by the path");
        let starting = LabError::from_io("start the emulated link");
        let carrier = match devices {
            Some(devices) => {
                let links = stretches.iter().zip(plan.seed..).zip(devices);
                let started = links
                    .map(|((stretch, seed), devices)| LinkDriver::start(stretch, seed, devices));
                PathCarrier::Link(started.collect::<Result<_, _>>().map_err(starting)?)
            }
            None => PathCarrier::Kernel(KernelPath::new()),
        };
        Ok(Self {
            carrier,
            remote,
            path,
            stretches,
            unread_counts: UnreadCounts::default(),
        })
    }

    /// The whole path between sender and receiver.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path that [`Lab::change_path`] changes: the whole, or the long one of its stretches.
    pub fn changeable_path(&self) -> &Path {
        &self.stretches[self.stretches.len() / 2]
    }

    /// The address at which the other hosts reach `host`.
    pub fn host_address(&self, host: Host) -> Ipv4Addr {
        host.address()
    }

    /// Starts a program in a host.
    ///
    /// # Errors
    /// If there is no such program, or the lab is gone.
    pub fn start_program(
        &self,
        host: Host,
        program: &str,
        arguments: &[String],
        stdio: ProgramStdio,
    ) -> Result<LabProgram<'_>, LabError> {
        info!(host = host.name(), program, "starting a program in a host");
        LabProgram::start(&self.remote, host, program, arguments, stdio)
    }

    /// Starts this program itself in a host; what it writes is collected.
    ///
    /// # Errors
    /// As [`Lab::start_program`].
    pub fn start_self(&self, host: Host, arguments: &[String]) -> Result<LabProgram<'_>, LabError> {
        let program = std::env::current_exe().map_err(LabError::from_io("find this program"))?;
        self.start_program(
            host,
            &program.to_string_lossy(),
            arguments,
            ProgramStdio::Collected,
        )
    }

    /// Ends every program in the hosts at once, as `kill -9` does; none can be started any more. It
    /// does not wait.
    pub fn end_programs(&self) {
        self.remote.end_keeper();
    }

    /// The settings of a host.
    ///
    /// # Errors
    /// If one cannot be read, or the lab is gone.
    pub fn host_settings(&self, host: Host) -> Result<HostSettings, LabError> {
        let action = format!("read the settings of the {}", host.name());
        match self
            .remote
            .ask_keeper(&action, &Request::Inspect { host }, &[])?
        {
            Reply::Settings(settings) => Ok(settings),
            _ => Err(LabError::Gone { action }),
        }
    }

    /// Returns the counts of a host's device, with the rate of the path that leads away from it as
    /// its speed.
    ///
    /// # Errors
    /// If they cannot be read, or the lab is gone.
    pub fn device_counts(&self, host: Host) -> Result<DeviceCounts, LabError> {
        let action = format!("count what the device of the {} carried", host.name());
        let away = if host == Host::Receiver {
            &self.path.reverse
        } else {
            &self.path.forward
        };
        match self
            .remote
            .ask_keeper(&action, &Request::Device { host }, &[])?
        {
            Reply::Device(counts) => Ok(DeviceCounts {
                speed: away.rate,
                ..counts
            }),
            _ => Err(LabError::Gone { action }),
        }
    }

    /// Changes the settings of a host, reading each back.
    ///
    /// # Errors
    /// If one is refused or not kept; then none is changed.
    pub fn apply_changes(&self, host: Host, changes: &[Change]) -> Result<(), LabError> {
        let action = format!("change the settings of the {}", host.name());
        self.remote
            .ask_keeper(
                &action,
                &Request::Apply {
                    host,
                    changes: changes.to_vec(),
                },
                &[],
            )
            .map(drop)
    }

    /// Undoes all changes to a host, last first.
    ///
    /// # Errors
    /// If a setting cannot be written, or is not what was written before.
    pub fn undo_changes(&self, host: Host) -> Result<(), LabError> {
        let action = format!("undo the changes to the {}", host.name());
        self.remote
            .ask_keeper(&action, &Request::Undo { host }, &[])
            .map(drop)
    }

    /// Makes the path that leads away from `host`, one of the ends, another from now on; of
    /// stretches, the long one.
    ///
    /// # Errors
    /// [`LabError::Unsupported`] where the kernel is the path.
    pub fn change_path(&self, host: Host, change: PathChange) -> Result<(), LabError> {
        match &self.carrier {
            PathCarrier::Link(links) => links[links.len() / 2].change_path(host, change),
            PathCarrier::Kernel(_) => {
                return Err(LabError::Unsupported {
                    what: "changes while it stands",
                });
            }
        }
        Ok(())
    }

    /// Writes what passes both ends of the path, by the link's own time, to `NAME-sender.pcap` and
    /// `NAME-receiver.pcap` in `folder`, until [`Lab::finish_capture`]: the first 128 B of each
    /// packet, at most `most` bytes a file. A train that the path carries whole is one packet. What
    /// the path did to them is written to `NAME-truth.json`, a document of the kind `path-truth`.
    /// Of stretches, each has files of its own, with `near-` or `far-` behind the name for the
    /// short ones. Files of these names are replaced.
    ///
    /// # Errors
    /// If the files cannot be made; [`LabError::Unsupported`] where the kernel is the path.
    pub fn start_capture(
        &self,
        folder: &std::path::Path,
        name: &str,
        most: ByteCount,
    ) -> Result<PathCapture, LabError> {
        match &self.carrier {
            PathCarrier::Link(links) => {
                let stretches = links
                    .iter()
                    .zip(&self.stretches)
                    .zip(self.capture_names(name));
                let begun = stretches
                    .map(|((link, stretch), name)| link.capture_path(folder, &name, most, stretch));
                Ok(PathCapture(begun.collect::<Result<_, _>>()?))
            }
            PathCarrier::Kernel(_) => Err(LabError::Unsupported { what: "captures" }),
        }
    }

    /// Returns true if `folder` has a file of this name that [`Lab::start_capture`] would replace.
    pub fn would_replace(&self, folder: &std::path::Path, name: &str) -> bool {
        self.capture_names(name).any(|name| {
            capture::capture_files(folder, &name)
                .iter()
                .any(|file| file.exists())
        })
    }

    /// Returns the names of the captures of each stretch.
    fn capture_names(&self, name: &str) -> impl Iterator<Item = String> {
        let of_all: &[&str] = if self.stretches.len() == 1 {
            &[""]
        } else {
            &STRETCH_NAMES
        };
        of_all.iter().map(move |stretch| format!("{name}{stretch}"))
    }

    /// Ends a capture.
    ///
    /// # Errors
    /// If a file could not be written.
    pub fn finish_capture(&self, capture: PathCapture) -> Result<CaptureSummary, LabError> {
        if let PathCarrier::Link(links) = &self.carrier {
            links.iter().for_each(LinkDriver::end_capture);
        }
        capture.finish_capture()
    }

    /// Begins to watch the lab itself.
    ///
    /// # Errors
    /// If the lab is gone.
    pub fn start_watch(&self) -> Result<ValidityWatch<'_>, LabError> {
        Ok(ValidityWatch {
            counts: CountReader::start(self)?,
            lab: self,
            drops: self.device_drops()?,
            ticks: CpuTicks::read_now(),
        })
    }

    /// Lets this user's other programs into the lab, under `name`, and shows them its
    /// `description`, a line.
    ///
    /// # Errors
    /// If this user has a lab of that name already, or it cannot be one.
    pub fn open_entrance(&self, name: &str, description: &str) -> Result<JoinSocket, LabError> {
        JoinSocket::open(name, description, self.remote.lab_entry())
    }

    /// Returns a listening socket in the network of a host; see [`crate::path_witness`].
    pub(crate) fn listen_in(&self, host: Host) -> Result<OwnedFd, LabError> {
        let action = format!("listen in the {}", host.name());
        let (_, descriptors) =
            self.remote
                .exchange_messages(&action, &Request::Listen { host }, &[])?;
        descriptors
            .into_iter()
            .next()
            .ok_or(LabError::Gone { action })
    }

    /// Returns the hosts that there are.
    pub(crate) fn lab_hosts(&self) -> &'static [Host] {
        if self.stretches.len() == 1 {
            &Host::ALL
        } else {
            &Host::CHAIN
        }
    }

    /// Returns the counts of each direction of each stretch, forward first, since the last call.
    /// For [`UnreadCounts`] alone: what one call returns, no other does.
    fn take_carried(&self) -> Result<PathCounts, LabError> {
        let kernel = match &self.carrier {
            PathCarrier::Link(links) => {
                return Ok(links.iter().map(LinkDriver::take_counts).collect());
            }
            PathCarrier::Kernel(kernel) => kernel,
        };
        let action = "count what the path carried";
        match self.remote.ask_keeper(action, &Request::Counts, &[])? {
            Reply::Counts(counts) => Ok(vec![kernel.take_counts(&self.path, counts)]),
            _ => Err(LabError::Gone {
                action: action.to_owned(),
            }),
        }
    }

    pub(crate) fn device_drops(&self) -> Result<u64, LabError> {
        let mut drops = 0;
        for &host in self.lab_hosts() {
            let action = format!("count what the device of the {} dropped", host.name());
            match self
                .remote
                .ask_keeper(&action, &Request::DeviceDrops { host }, &[])?
            {
                Reply::Count(count) => drops += count,
                _ => return Err(LabError::Gone { action }),
            }
        }
        Ok(drops)
    }
}

/// A reader of the counts of a lab's path.
pub(crate) struct CountReader<'l> {
    lab: &'l Lab,
    number: u64,
}

impl<'l> CountReader<'l> {
    /// Begins to count.
    ///
    /// # Errors
    /// Fails if the lab is gone.
    pub(crate) fn start(lab: &'l Lab) -> Result<Self, LabError> {
        Ok(Self {
            lab,
            number: lab.unread_counts.add_reader(|| lab.take_carried())?,
        })
    }

    /// Returns the counts since the last call, or since the start.
    ///
    /// # Errors
    /// Fails if the lab is gone.
    pub(crate) fn read(&self) -> Result<PathCounts, LabError> {
        self.lab
            .unread_counts
            .read(self.number, || self.lab.take_carried())
    }
}

impl Drop for CountReader<'_> {
    fn drop(&mut self) {
        self.lab.unread_counts.remove_reader(self.number);
    }
}

/// A check of the lab itself from one moment to another.
pub struct ValidityWatch<'l> {
    lab: &'l Lab,
    counts: CountReader<'l>,
    drops: u64,
    ticks: Option<CpuTicks>,
}

impl ValidityWatch<'_> {
    /// Judges whether the measurements since the watch began are valid.
    ///
    /// # Errors
    /// If the lab is gone.
    pub fn finish_watch(self) -> Result<Validity, LabError> {
        let carried = self.counts.read()?;
        let drops = self.lab.device_drops()?.saturating_sub(self.drops);
        let stolen = self
            .ticks
            .and_then(|before| Some(CpuTicks::read_now()?.stolen_since(before)));
        Ok(judge_validity(
            self.lab.path.rtt(),
            &self.lab.stretches,
            &carried,
            drops,
            stolen,
        ))
    }
}

/// Names of the captures of stretches, behind that of all.
const STRETCH_NAMES: [&str; 3] = ["-near", "", "-far"];

fn devices_of(stretch: &Path) -> Stretch {
    Stretch {
        mtu: [stretch.forward.mtu, stretch.reverse.mtu],
        transmit_queue: transmit_queue(stretch),
    }
}

/// A tenth of a second of small packets at the path's rate: longer than the link should ever stand
/// still.
fn transmit_queue(path: &Path) -> u64 {
    const SMALL_PACKET_BITS: u64 = 500 * 8;
    let rate = [&path.forward, &path.reverse]
        .into_iter()
        .filter_map(|d| d.rate)
        .max()
        .unwrap_or(BitRate::ZERO);
    (rate.bps() / SMALL_PACKET_BITS / 10).clamp(*TRANSMIT_QUEUE.start(), *TRANSMIT_QUEUE.end())
}
