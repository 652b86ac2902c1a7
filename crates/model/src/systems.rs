//! Ends that are not Linux: what each operating system and each TCP of a program starts with.
//!
//! If one end does not scale windows (RFC 7323), no window exceeds 65 535 bytes, whatever the
//! buffers: 5.2 Mbit/s over 100 ms. Appliances are often built on an older system than their age
//! suggests.

use fullpipe_record::BufferTriple;

use crate::kernel;
use crate::prelude::*;

/// An operating system, or a TCP that a program brings along, as a row of [`SYSTEMS`].
struct System(
    /// Names that ask for it. Of a family, `macos`, any version is taken too: `macos-14`.
    &'static [&'static str],
    /// Name, with the range of versions.
    &'static str,
    /// True if connections that it opens have scaled windows, and if its segments carry timestamps.
    [bool; 2],
    /// Receive window at first, and at most where it grows; and the send buffer likewise.
    [[u64; 2]; 2],
    /// Congestion control.
    &'static str,
    /// One sentence on what is particular, and the source of the figures.
    [&'static str; 2],
);

impl System {
    /// Returns the settings of an untouched host of this system. Its buffers count payload: all of
    /// a receive buffer is window.
    fn to_settings(&self) -> HostSettings {
        let Self(_, name, [window_scaling, timestamps], buffers, congestion, _) = *self;
        let [tcp_rmem, tcp_wmem] = buffers.map(|[default, max]| BufferTriple {
            min: ByteCount::new(default),
            default: ByteCount::new(default),
            max: ByteCount::new(max),
        });
        HostSettings {
            system: Some(name.to_owned()),
            tcp_rmem,
            tcp_wmem,
            rmem_max: Some(LARGEST),
            wmem_max: Some(LARGEST),
            window_scaling,
            timestamps,
            moderate_rcvbuf: tcp_rmem.default < tcp_rmem.max,
            congestion_control: congestion.to_owned(),
            available_congestion_controls: vec![congestion.to_owned()],
            ..HostSettings::of_linux_6_18()
        }
    }
}

/// Returns the system of this name; case does not matter.
fn find_system(name: &str) -> Option<&'static System> {
    let name = name.to_ascii_lowercase();
    let family = name.split_once('-').map_or("", |(family, _)| family);
    [name.as_str(), family]
        .into_iter()
        .find_map(|id| SYSTEMS.iter().find(|system| system.0.contains(&id)))
}

fn system_ids() -> Vec<&'static str> {
    SYSTEMS
        .iter()
        .flat_map(|System(ids, ..)| *ids)
        .copied()
        .collect()
}

/// Returns the settings of an untouched host of the system with this name: `linux-5.15`,
/// `windows-10`, `quic`.
///
/// # Errors
/// Fails with a sentence that lists the names if none is `name`.
pub fn system_settings(name: &str) -> Result<HostSettings, String> {
    if let Some(version) = name.strip_prefix("linux-") {
        let kernel: KernelVersion = version.parse()?;
        return Ok(kernel::default_settings(kernel));
    }
    find_system(name).map(System::to_settings).ok_or_else(|| {
        format!(
            "\"{name}\" is not a system that is known: write linux-5.15 or one of {}",
            system_ids().join(", ")
        )
    })
}

/// Returns what is particular of the system of which [`HostSettings::system`] is this name, with
/// its source.
pub(crate) fn system_note(name: &str) -> Option<String> {
    let System(.., [note, source]) = SYSTEMS.iter().find(|system| system.1 == name)?;
    Some(format!("{note} ({source})"))
}

/// All that are known, by family and age.
const SYSTEMS: &[System] = &[
    System(
        &["windows-2000", "windows-xp", "windows-2003"],
        "Windows 2000, XP and Server 2003",
        [false, false],
        [[17_520; 2], [8 << 10; 2]],
        "reno",
        [
            "Its window is 17 520 B on Ethernet, and up to 65 535 B with cards faster than 100 Mbit/s; \
               TcpWindowSize and Tcp1323Opts in the registry change that, DefaultSendWindow the send buffer",
            "Microsoft, Windows Server 2003: TcpWindowSize (cc757802), AFD registry parameters; knowledge base \
                 224829",
        ],
    ),
    System(
        &["windows-vista", "windows-2008", "windows-7"],
        "Windows Vista, 7 and Server 2008",
        [true, false],
        [[64 << 10, 16 << 20], [8 << 10, 16 << 20]],
        "reno",
        [SEND_8_KIB, WINSOCK],
    ),
    System(
        &[
            "windows-8",
            "windows-10",
            "windows-11",
            "windows-2012",
            "windows-2016",
            "windows-2019",
            "windows-2022",
        ],
        "Windows 8, 10, 11 and Server 2012 to 2022",
        [true, false],
        [[64 << 10, 16 << 20], [64 << 10, 16 << 20]],
        "cubic",
        [SEND_64_KIB, WINSOCK],
    ),
    System(
        &["macos"],
        "macOS",
        [true, true],
        [[128 << 10, 4 << 20], [128 << 10, 4 << 20]],
        "cubic",
        [
            "net.inet.tcp.autorcvbufmax and autosndbufmax are 4 MiB, and 1 MiB to macOS 10.15",
            "ESnet, fasterdata.es.net/host-tuning/osx (2025); XNU, bsd/netinet/tcp_subr.c",
        ],
    ),
    System(
        &["freebsd-13", "freebsd-12", "freebsd-11"],
        "FreeBSD to 13",
        [true, true],
        [[64 << 10, 2 << 20], [32 << 10, 2 << 20]],
        "reno",
        [FREEBSD_SYSCTL, FREEBSD],
    ),
    System(
        &["freebsd"],
        "FreeBSD 14 and later",
        [true, true],
        [[64 << 10, 2 << 20], [32 << 10, 2 << 20]],
        "cubic",
        [FREEBSD_SYSCTL, FREEBSD],
    ),
    System(
        &["slirp"],
        "slirp, the NAT of emulators",
        [false, false],
        [[8 << 10; 2], [8 << 10; 2]],
        "reno",
        [
            "TCP_RCVSPACE and TCP_SNDSPACE are set when it is built: 8 KiB as of 1995, more in later copies",
            "slirp, tcp.h: TCP_RCVSPACE, TCP_SNDSPACE; andrewtimmins/rpcemu-extended, pull request 105",
        ],
    ),
    System(
        &["lwip"],
        "lwIP",
        [false, false],
        [[4 * 536; 2], [2 * 536; 2]],
        "reno",
        [
            "TCP_WND and TCP_SND_BUF are set when it is built: 4 and 2 segments of 536 B if nothing is said",
            "lwIP 2.1, opt.h: TCP_WND, TCP_SND_BUF, TCP_MSS",
        ],
    ),
    System(
        &["gvisor"],
        "gVisor's netstack",
        [true, true],
        [[1 << 20, 4 << 20], [1 << 20, 4 << 20]],
        "reno",
        [
            "The program that embeds it may set other sizes: Tailscale has 8 MiB to receive and 6 MiB to send",
            "gVisor, pkg/tcpip/transport/tcp/protocol.go: DefaultSendBufferSize, MaxBufferSize; Tailscale, \
                 netstack_tcpbuf_default.go",
        ],
    ),
    System(
        &["quic"],
        "QUIC",
        [true, false],
        [[1 << 40; 2], [1 << 40; 2]],
        "cubic",
        [
            "It has no buffers of TCP; its windows for a stream and for a connection are what --app-window says",
            "RFC 9000 §4.1",
        ],
    ),
];

/// The largest request for a buffer: 1 GiB, as no system of these is known to cut one.
const LARGEST: ByteCount = ByteCount::from_mib(1 << 10);

const SEND_8_KIB: &str = "Its send buffer is 8 KiB and grows by itself only where the program's sends block; with \
                          overlapped sends, as Go and .NET make them, or an SO_SNDBUF it stays: add --sndbuf 8KiB";
const SEND_64_KIB: &str = "Its send buffer is 64 KiB and grows by itself only where the program's sends block; with \
                           overlapped or non-blocking sends, or an SO_SNDBUF, it stays: add --sndbuf 64KiB";
const WINSOCK: &str = "Microsoft, SIO_IDEAL_SEND_BACKLOG_QUERY and AFD registry parameters; receive window \
                       autotuning, level normal";
const FREEBSD_SYSCTL: &str =
    "net.inet.tcp.recvbuf_max and sendbuf_max are 2 MiB, as kern.ipc.maxsockbuf is";
const FREEBSD: &str =
    "FreeBSD, tcp(4); sys/netinet: tcp_autorcvbuf_max, tcp_autosndbuf_max, tcp_sendspace";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{ReceiveBuffer, send_buffer};

    #[test]
    fn names_find_one_system_each() {
        for (name, scales, window, send) in [
            ("windows-2003", false, 17_520, 8_192),
            ("Windows-XP", false, 17_520, 8_192),
            ("windows-7", true, 16 << 20, 16 << 20),
            ("windows-10", true, 16 << 20, 16 << 20),
            ("macos-14", true, 4 << 20, 4 << 20),
            ("freebsd-14", true, 2 << 20, 2 << 20),
            ("slirp", false, 8_192, 8_192),
        ] {
            let settings = find_system(name).unwrap().to_settings();
            let buffer = ReceiveBuffer::autotuned_buffer(&settings);
            assert_eq!(settings.window_scaling, scales, "{name}");
            assert_eq!(buffer.max_window().get(), window, "{name}");
            assert_eq!(
                buffer.in_flight(ByteCount::new(1460)).get(),
                window,
                "{name}"
            );
            assert_eq!(send_buffer(&settings, None).get(), send, "{name}");
        }
        assert!(find_system("os-2").is_none());
        assert!(
            system_settings("os-2")
                .unwrap_err()
                .contains("windows-2003")
        );
        assert_eq!(system_settings("linux-5.15").unwrap().system, None);
    }

    #[test]
    fn a_request_is_taken_as_it_is_and_all_of_it_is_window() {
        let settings = find_system("windows-10").unwrap().to_settings();
        let request = ByteCount::from_kib(64);
        assert_eq!(send_buffer(&settings, Some(request)), request);
        assert_eq!(
            ReceiveBuffer::fixed_buffer(&settings, request).buffer_bytes(),
            request
        );
    }

    #[test]
    fn ids_and_names_are_unique() {
        let mut ids = system_ids();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }
}
