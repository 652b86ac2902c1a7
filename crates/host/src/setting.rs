use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fullpipe_record::{Change, HostSettings, RESTORABLE_QDISCS};
use fullpipe_sys as sys;
use fullpipe_units::{ByteCount, SegCount, is_one_line, to_hexadecimal};
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};

use crate::render::{on_or_off, sysctl_of_change};
use crate::sysctl::{SysctlError, SysctlResult, SysctlTree, is_network_sysctl, moves_others};

/// The places of a host's settings: its sysctls, the folder of those that outlive a reboot, and its
/// network devices and routes, which are those of the calling thread's namespace.
#[derive(Debug, Clone)]
pub struct HostSystem {
    pub(crate) sysctls: SysctlTree,
    sysctl_d: PathBuf,
}

impl HostSystem {
    /// The running kernel's, and `/etc/sysctl.d`.
    pub fn of_this_host() -> Self {
        Self::new(SysctlTree::of_this_host(), "/etc/sysctl.d")
    }

    /// Others.
    pub fn new(sysctls: SysctlTree, sysctl_d: impl Into<PathBuf>) -> Self {
        Self {
            sysctls,
            sysctl_d: sysctl_d.into(),
        }
    }

    /// The one file that outlives a reboot.
    pub fn persisted_file(&self) -> PathBuf {
        self.sysctl_d.join(OUR_FILE)
    }
}

/// One setting that can be read, written and put back, each as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Setting {
    /// By dotted name.
    Sysctl(String),
    /// A number of a route; absent where it has none.
    RouteMetric { destination: String, metric: String },
    /// The queueing discipline at the root of a device: a kind, after the word "default" if the
    /// kernel put it there by itself, and then before those that serve its classes, or that word
    /// alone if the kernel does not report the kind. After a kind stand its number and its
    /// parameters, and before these the word "inexact" if it could not be put back as it is.
    Qdisc(String),
    /// "on" or "off", and where somebody asked for the other, that, as ethtool has it: "off
    /// [requested on]".
    Offload { device: String, feature: String },
    /// Of a device, in bytes.
    Mtu(String),
    /// Of a device, in packets.
    QueueLength(String),
    /// The whole content of our file in `sysctl.d`; absent where there is none.
    Persisted,
}

/// The one file in `sysctl.d` that is ours.
pub(crate) const OUR_FILE: &str = "90-fullpipe.conf";

/// The word that stands for the kernel's own queueing discipline.
const DEFAULT: &str = Change::DEFAULT_QDISC;

/// The word that stands after the kind of a queueing discipline that could not be put back as it
/// is.
const INEXACT: &str = "inexact";

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(name) => f.write_str(name),
            Self::RouteMetric {
                destination,
                metric,
            } => write!(f, "{metric} of the route to {destination}"),
            Self::Qdisc(device) => write!(f, "the queueing discipline of {device}"),
            Self::Offload { device, feature } => write!(f, "{feature} of {device}"),
            Self::Mtu(device) => write!(f, "the MTU of {device}"),
            Self::QueueLength(device) => write!(f, "the queue length of {device}"),
            Self::Persisted => f.write_str("the settings for the next boot"),
        }
    }
}

impl Setting {
    /// Returns true if the setting names nothing outside the network's settings, as a journal that
    /// somebody edited might.
    pub(crate) fn is_sane(&self) -> bool {
        match self {
            Self::Sysctl(name) => is_network_sysctl(name),
            _ => true,
        }
    }

    /// Returns true if a journal may say that it had this text, or was to have it: what is in our
    /// file of `sysctl.d` is carried out at the next boot.
    pub(crate) fn may_have(&self, text: Option<&str>) -> bool {
        *self != Self::Persisted || text.is_none_or(|text| text.lines().all(is_setting_or_comment))
    }

    /// Reads the text of the setting, to the byte.
    pub(crate) fn read(&self, system: &HostSystem) -> SysctlResult<Option<String>> {
        let read = match self {
            Self::Sysctl(name) => return system.sysctls.read_whole(name).map(Some),
            Self::RouteMetric {
                destination,
                metric,
            } => find_route(destination).map(|route| route.metrics.get(metric).cloned()),
            Self::Qdisc(device) => sys::root_qdisc(device).map(|root| Some(qdisc_text(root))),
            Self::Offload { device, feature } => {
                self::find_feature(device, feature).map(|found| Some(offload_text(&found)))
            }
            Self::Mtu(device) => {
                self::find_device(device).map(|found| Some(found.mtu.get().to_string()))
            }
            Self::QueueLength(device) => {
                self::find_device(device).map(|found| Some(found.transmit_queue.get().to_string()))
            }
            Self::Persisted => file_content(&system.persisted_file()),
        };
        read.map_err(|cause| self.sysctl_error("read", cause))
    }

    /// Makes it `text`.
    pub(crate) fn write(&self, system: &HostSystem, text: Option<&str>) -> SysctlResult {
        let needed = text.ok_or_else(|| invalid_input("it needs a value"));
        let written = match self {
            Self::Sysctl(name) => {
                return needed
                    .map_err(|cause| self.sysctl_error("write", cause))
                    .and_then(|text| system.sysctls.write(name, text));
            }
            Self::RouteMetric {
                destination,
                metric,
            } => text
                .map(parse_number)
                .transpose()
                .and_then(|value| sys::set_route_metric(&find_route(destination)?, metric, value)),
            Self::Qdisc(device) => needed.and_then(|text| set_qdisc(device, text)),
            Self::Offload { device, feature } => needed.and_then(|text| {
                sys::set_feature(device, &self::find_feature(device, feature)?, is_on(text))
            }),
            Self::Mtu(device) => needed
                .and_then(parse_number)
                .and_then(|mtu| sys::set_device_mtu(device, ByteCount::new(mtu.into()))),
            Self::QueueLength(device) => needed.and_then(parse_number).and_then(|packets| {
                sys::set_device_queue_length(device, SegCount::new(packets.into()))
            }),
            Self::Persisted => replace_file(&system.persisted_file(), text),
        };
        written.map_err(|cause| self.sysctl_error("write", cause))
    }

    /// Finds out whether it may be written, without writing.
    pub(crate) fn check_writable(&self, system: &HostSystem) -> SysctlResult {
        let allowed = match self {
            Self::Sysctl(name) => return system.sysctls.check_writable(name),
            Self::Persisted => rustix::fs::access(&system.sysctl_d, rustix::fs::Access::WRITE_OK)
                .map_err(io::Error::from),
            _ => may_administer_the_network(),
        };
        allowed.map_err(|cause| self.sysctl_error("write", cause))
    }

    /// Why it could not be put back exactly if it were changed from `before` to `wanted` now, where
    /// it could not.
    pub(crate) fn why_not_exact(
        &self,
        system: &HostSystem,
        before: Option<&str>,
        wanted: Option<&str>,
    ) -> Option<String> {
        match self {
            Self::Sysctl(name) if moves_others(name) => Some(format!(
                "the kernel changes other settings, addresses or routes with {name}, which could not be put back; \
                 set it by hand, with `sysctl -w`"
            )),
            Self::Qdisc(device) => why_not_exact_discipline(device, before),
            Self::Mtu(device) => why_not_exact_mtu(&system.sysctls, device, before?, wanted?),
            Self::RouteMetric { destination, .. }
                if find_route(destination).is_ok_and(|route| route.is_advertised) =>
            {
                Some(format!(
                    "the route to {destination} is kept by router advertisements, and could not be put back"
                ))
            }
            _ => None,
        }
    }

    /// `text` for a reader, who has no use for a queueing discipline's parameters as the kernel
    /// writes them.
    pub(crate) fn display_value(&self, text: &str) -> String {
        match self {
            Self::Qdisc(_) if !text.starts_with(DEFAULT) => {
                text.split(' ').next().unwrap_or_default().to_owned()
            }
            _ => text.trim_end().to_owned(),
        }
    }

    /// Returns true if two texts that were read mean the same: the kernel prints tabs where people
    /// write spaces.
    pub(crate) fn is_same(&self, left: Option<&str>, right: Option<&str>) -> bool {
        match (self, left, right) {
            (Self::Persisted, ..) => left == right,
            // The device has come up or gone down since.
            (Self::Qdisc(_), Some(bare), Some(other))
            | (Self::Qdisc(_), Some(other), Some(bare))
                if bare == DEFAULT && other.starts_with(DEFAULT) =>
            {
                true
            }
            // Whether it is on hangs on others.
            (Self::Offload { .. }, Some(left), Some(right)) => is_on(left) == is_on(right),
            (_, Some(left), Some(right)) => left.split_whitespace().eq(right.split_whitespace()),
            _ => left.is_none() && right.is_none(),
        }
    }

    /// Returns true if both are queueing disciplines that the kernel put there by itself. Which
    /// that is may change.
    pub(crate) fn are_defaults(&self, texts: [Option<&str>; 2]) -> bool {
        matches!(self, Self::Qdisc(_))
            && texts
                .iter()
                .flatten()
                .filter(|text| text.starts_with(DEFAULT))
                .count()
                == 2
    }

    /// Returns true if what was read is what was asked for: who asks for a discipline asks for no
    /// parameters.
    pub(crate) fn is_as_asked(&self, found: Option<&str>, asked: Option<&str>) -> bool {
        match (self, found, asked) {
            (Self::Offload { .. }, ..) => found == asked,
            (Self::Qdisc(_), Some(found), Some(asked)) if !asked.trim().contains(' ') => {
                found.split_whitespace().next() == Some(asked.trim())
            }
            _ => self.is_same(found, asked),
        }
    }

    fn sysctl_error(&self, verb: &'static str, cause: io::Error) -> SysctlError {
        SysctlError::failed(verb, &self.to_string(), cause)
    }
}

/// Returns the settings that `change` writes on a host with `settings`, and their texts; `None` if
/// a program makes the change and not the host.
pub(crate) fn setting_writes(
    change: &Change,
    settings: &HostSettings,
) -> Option<(Setting, Option<String>)> {
    if let Some((name, text)) = sysctl_of_change(change, settings) {
        return Some((Setting::Sysctl(name), Some(text)));
    }
    Some(match change {
        Change::RouteMetric {
            destination,
            metric,
            value,
        } => {
            let setting = Setting::RouteMetric {
                destination: destination.clone(),
                metric: metric.clone(),
            };
            (setting, value.map(|value| value.to_string()))
        }
        Change::Qdisc { device, kind } => (Setting::Qdisc(device.clone()), Some(kind.clone())),
        Change::Offload {
            device,
            feature,
            on,
        } => {
            let setting = Setting::Offload {
                device: device.clone(),
                feature: feature.clone(),
            };
            (setting, Some(on_or_off(*on).to_owned()))
        }
        Change::QueueLength { device, packets } => (
            Setting::QueueLength(device.clone()),
            Some(packets.get().to_string()),
        ),
        Change::Mtu { device, mtu } => (Setting::Mtu(device.clone()), Some(mtu.get().to_string())),
        _ => return None,
    })
}

/// Returns true if a line of a file of `sysctl.d` sets nothing outside the network's settings.
fn is_setting_or_comment(line: &str) -> bool {
    let line = line.trim();
    let is_setting =
        |(name, _): (&str, &str)| is_network_sysctl(name.trim().trim_start_matches('-'));
    let sets_nothing = line.is_empty() || line.starts_with(['#', ';']);
    is_one_line(line) && (sets_nothing || line.split_once('=').is_some_and(is_setting))
}

fn why_not_exact_discipline(device: &str, before: Option<&str>) -> Option<String> {
    let (kind, place) = before
        .filter(|text| !text.starts_with(DEFAULT))?
        .split_once(' ')?;
    place.starts_with(INEXACT).then(|| {
        format!(
            "{device} has a queueing discipline of somebody's choice, {kind}, whose parameters could not be put back; \
             take it away first, with `tc qdisc del dev {device} root`"
        )
    })
}

/// The kernel changes more than an MTU: below the least of IP it gives up the addresses, IPv6 has
/// its own MTU and those of its routes follow it, and so do devices that stand on it.
fn why_not_exact_mtu(
    tree: &SysctlTree,
    device: &str,
    before: &str,
    wanted: &str,
) -> Option<String> {
    let [before, wanted]: [u32; 2] = [before.trim().parse().ok()?, wanted.trim().parse().ok()?];
    let of_ipv6: Option<u32> = tree
        .read(&format!("net.ipv6.conf.{}.mtu", device.replace('.', "/")))
        .ok()?
        .parse()
        .ok();
    let least = if of_ipv6.is_some() {
        MIN_MTU_OF_IPV6
    } else {
        MIN_MTU
    };
    if wanted < least {
        return Some(format!(
            "{device} would lose its addresses: their least MTU is {least} bytes"
        ));
    }
    if of_ipv6.is_some_and(|of_ipv6| of_ipv6 != before) {
        return Some(format!(
            "IPv6 has an MTU of its own on {device}, which would not come back"
        ));
    }
    if let Some(route) = route_of_own_mtu(device, before, wanted) {
        return Some(format!(
            "the route to {route} has an MTU of its own, which would not come back"
        ));
    }
    let above = device_lowered_with(device, wanted)?;
    Some(format!(
        "the MTU of {above} would follow and not come back; change that first"
    ))
}

/// Returns the destination of an IPv6 route whose MTU is not that of its device, and would be
/// lowered with it.
fn route_of_own_mtu(device: &str, before: u32, wanted: u32) -> Option<String> {
    let routes = sys::list_routes().unwrap_or_default();
    let route = routes.into_iter().find(|route| {
        let mtu = route.metrics.get("mtu").and_then(|mtu| mtu.parse().ok());
        route.is_ipv6()
            && route.device.as_deref() == Some(device)
            && mtu.is_some_and(|mtu: u32| mtu >= wanted && mtu != before)
    });
    route.map(|route| route.destination)
}

/// Returns the name of a device that stands on `device` and would be lowered with it.
fn device_lowered_with(device: &str, wanted: u32) -> Option<String> {
    let devices = sys::list_devices().unwrap_or_default();
    let index = devices
        .iter()
        .find(|found| found.name == device)
        .map(|found| found.index);
    let above = devices.into_iter().find(|found| {
        let kind = found.kind.as_deref();
        kind.is_some_and(|kind| FOLLOWING_KINDS.contains(&kind))
            && found.lower == index
            && found.mtu.get() > wanted.into()
    });
    above.map(|above| above.name)
}

/// RFC 791 and RFC 8200, in bytes.
const MIN_MTU: u32 = 68;
const MIN_MTU_OF_IPV6: u32 = 1280;

/// Kinds of devices whose MTU the kernel lowers with that of the device that they stand on.
const FOLLOWING_KINDS: [&str; 5] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"];

fn not_found(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, what)
}

fn invalid_input(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn parse_number(text: &str) -> io::Result<u32> {
    text.trim()
        .parse()
        .map_err(|_| invalid_input(&format!("\"{text}\" is no number")))
}

/// The one route to `destination`.
fn find_route(destination: &str) -> io::Result<sys::UnicastRoute> {
    let mut found: Vec<sys::UnicastRoute> = sys::list_routes()?;
    found.retain(|route| route.destination == destination);
    match (found.pop(), found.len()) {
        (Some(route), 0) => Ok(route),
        (None, _) => Err(not_found("there is no such route")),
        (Some(_), more) => Err(io::Error::other(format!("{} routes lead there", more + 1))),
    }
}

fn find_feature(device: &str, name: &str) -> io::Result<sys::DeviceFeature> {
    let found = sys::device_features(device)?
        .into_iter()
        .find(|feature| feature.name == name);
    found.ok_or_else(|| not_found("the kernel knows no such feature"))
}

/// A feature that never changes has no wish that counts.
fn offload_text(found: &sys::DeviceFeature) -> String {
    let [is, wanted] = [found.is_on, found.is_wanted].map(on_or_off);
    if found.can_change && is != wanted {
        format!("{is} [requested {wanted}]")
    } else {
        is.to_owned()
    }
}

/// Returns true if a feature must be requested on to read `text`, which is `on` or `off [requested
/// on]` then.
fn is_on(text: &str) -> bool {
    text.trim().trim_end_matches(']').ends_with("on")
}

fn find_device(name: &str) -> io::Result<sys::NetworkDevice> {
    let found = sys::list_devices()?
        .into_iter()
        .find(|found| found.name == name);
    found.ok_or_else(|| not_found("there is no such device"))
}

/// Kinds whose parameters, as the kernel reports them, have counts among them.
const COUNTING_QDISCS: [&str; 2] = ["htb", "gred"];

/// The kernel reports none for a device that is down and has its own.
fn qdisc_text(root: Option<sys::RootQdisc>) -> String {
    match root {
        Some(root) if root.is_default => root
            .inner
            .iter()
            .fold(format!("{DEFAULT} {}", root.kind), |text, kind| {
                text + " " + kind
            }),
        Some(root) => {
            let is_exact = RESTORABLE_QDISCS.contains(&root.kind.as_str()) && root.inner.is_empty();
            let kind = if is_exact {
                root.kind.clone()
            } else {
                format!("{} {INEXACT}", root.kind)
            };
            let counts = COUNTING_QDISCS.contains(&root.kind.as_str());
            let steady = if counts { &[] } else { root.options.as_slice() };
            format!("{kind} {:x} {}", root.handle, to_hexadecimal(steady))
        }
        None => DEFAULT.to_owned(),
    }
}

/// The kernel's own comes back when another is taken away.
fn set_qdisc(device: &str, text: &str) -> io::Result<()> {
    if !text.starts_with(DEFAULT) {
        let mut words = text.split_whitespace();
        return match [words.next(), words.next(), words.next()] {
            [Some(kind), Some(handle), options] => {
                let handle = u32::from_str_radix(handle, 16).map_err(io::Error::other)?;
                sys::restore_root_qdisc(
                    device,
                    kind,
                    handle,
                    &parse_hex(options.unwrap_or_default())?,
                )
            }
            _ => sys::set_root_qdisc(device, text.trim()),
        };
    }
    match sys::delete_root_qdisc(device) {
        // It is one that the kernel put there when another was its default.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOENT.raw_os_error()) => {
            sys::set_root_qdisc(device, "pfifo").and_then(|()| sys::delete_root_qdisc(device))
        }
        done => done,
    }
}

/// Two digits each.
fn parse_hex(digits: &str) -> io::Result<Vec<u8>> {
    let places = (0..digits.len()).step_by(2);
    places
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect::<Option<_>>()
        .ok_or_else(|| invalid_input("these are no parameters of a queueing discipline"))
}

fn may_administer_the_network() -> io::Result<()> {
    let ours = capabilities(None)?.effective;
    if ours.contains(CapabilitySet::NET_ADMIN) {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn file_content(file: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Makes `file` have this content, or not be there, so that a crash leaves the one or the other.
pub(crate) fn replace_file(file: &Path, text: Option<&str>) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    // `sysctl` takes files that end in `.conf`, and a journal ends in `.jsonl`.
    let draft = file.with_extension("new");
    match text {
        Some(text) => {
            let mut draft_file = fs::File::create(&draft)?;
            draft_file.write_all(text.as_bytes())?;
            draft_file.sync_all()?;
            fs::rename(&draft, file)?;
        }
        None => [draft.as_path(), file]
            .into_iter()
            .try_for_each(remove_if_there)?,
    }
    fs::File::open(folder)?.sync_all()
}

fn remove_if_there(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests;
