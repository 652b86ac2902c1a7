//! Ends that are not Linux: what each operating system and each TCP of a program starts with.
//!
//! If one end does not scale windows (RFC 7323), no window exceeds 65 535 bytes, whatever the
//! buffers: 5.2 Mbit/s over 100 ms. Appliances are often built on an older system than their age
//! suggests.

use fullpipe_record::{BufferTriple, HostSettings, KernelVersion};
use fullpipe_units::ByteCount;

use crate::kernel;

/// An operating system, or a TCP that a program brings along, and its buffers by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// Names that ask for it. Of a family, `macos`, any version is taken too: `macos-14`.
    pub ids: &'static [&'static str],
    /// Name, with the range of versions.
    pub name: &'static str,
    /// True if connections that it opens have scaled windows.
    pub scales_windows: bool,
    /// True if its segments carry timestamps.
    pub timestamps: bool,
    /// Receive window at first, and at most where it grows.
    pub receive: [u64; 2],
    /// Send buffer at first, and at most where it grows.
    pub send: [u64; 2],
    /// Congestion control.
    pub congestion: &'static str,
    /// One sentence on what is particular.
    pub note: &'static str,
    /// Source of the figures.
    pub source: &'static str,
}

impl System {
    /// Returns the settings of an untouched host of this system. Its buffers count payload: all of
    /// a receive buffer is window.
    pub fn to_settings(&self) -> HostSettings {
        let [tcp_rmem, tcp_wmem] = [self.receive, self.send].map(|[default, max]| BufferTriple {
            min: ByteCount::new(default),
            default: ByteCount::new(default),
            max: ByteCount::new(max),
        });
        HostSettings {
            system: Some(self.name.to_owned()),
            tcp_rmem,
            tcp_wmem,
            rmem_max: Some(LARGEST),
            wmem_max: Some(LARGEST),
            window_scaling: self.scales_windows,
            timestamps: self.timestamps,
            moderate_rcvbuf: self.receive[0] < self.receive[1],
            congestion_control: self.congestion.to_owned(),
            available_congestion_controls: vec![self.congestion.to_owned()],
            ..HostSettings::of_linux_6_18()
        }
    }
}

/// Returns the system of this name; case does not matter.
pub fn find_system(name: &str) -> Option<&'static System> {
    let name = name.to_ascii_lowercase();
    let family = name.split_once('-').map_or("", |(family, _)| family);
    [name.as_str(), family]
        .into_iter()
        .find_map(|id| SYSTEMS.iter().find(|system| system.ids.contains(&id)))
}

/// Returns the settings of an untouched host of the system with this name: `linux-5.15`, or one of
/// [`SYSTEMS`].
///
/// # Errors
/// Fails with a sentence that lists the names if none is `name`.
pub fn system_settings(name: &str) -> Result<HostSettings, String> {
    if let Some(version) = name.strip_prefix("linux-") {
        let kernel: KernelVersion = version.parse()?;
        return Ok(kernel::default_settings(kernel));
    }
    find_system(name).map(System::to_settings).ok_or_else(|| {
        let names: Vec<&str> = SYSTEMS
            .iter()
            .flat_map(|system| system.ids)
            .copied()
            .collect();
        format!(
            "\"{name}\" is not a system that is known: write linux-5.15 or one of {}",
            names.join(", ")
        )
    })
}

/// All that are known, by family and age.
pub const SYSTEMS: &[System] = &[
    System {
        ids: &["windows-2000", "windows-xp", "windows-2003"],
        name: "Windows 2000, XP and Server 2003",
        scales_windows: false,
        timestamps: false,
        receive: [17_520; 2],
        send: [8 << 10; 2],
        congestion: "reno",
        note: "Its window is 17 520 B on Ethernet, and up to 65 535 B with cards faster than 100 Mbit/s; \
               TcpWindowSize and Tcp1323Opts in the registry change that, DefaultSendWindow the send buffer",
        source: "Microsoft, Windows Server 2003: TcpWindowSize (cc757802), AFD registry parameters; knowledge base \
                 224829",
    },
    System {
        ids: &["windows-vista", "windows-2008", "windows-7"],
        name: "Windows Vista, 7 and Server 2008",
        scales_windows: true,
        timestamps: false,
        receive: [64 << 10, 16 << 20],
        send: [8 << 10, 16 << 20],
        congestion: "reno",
        note: SEND_8_KIB,
        source: WINSOCK,
    },
    System {
        ids: &[
            "windows-8",
            "windows-10",
            "windows-11",
            "windows-2012",
            "windows-2016",
            "windows-2019",
            "windows-2022",
        ],
        name: "Windows 8, 10, 11 and Server 2012 to 2022",
        scales_windows: true,
        timestamps: false,
        receive: [64 << 10, 16 << 20],
        send: [64 << 10, 16 << 20],
        congestion: "cubic",
        note: SEND_64_KIB,
        source: WINSOCK,
    },
    System {
        ids: &["macos"],
        name: "macOS",
        scales_windows: true,
        timestamps: true,
        receive: [128 << 10, 4 << 20],
        send: [128 << 10, 4 << 20],
        congestion: "cubic",
        note: "net.inet.tcp.autorcvbufmax and autosndbufmax are 4 MiB, and 1 MiB to macOS 10.15",
        source: "ESnet, fasterdata.es.net/host-tuning/osx (2025); XNU, bsd/netinet/tcp_subr.c",
    },
    System {
        ids: &["freebsd-13", "freebsd-12", "freebsd-11"],
        name: "FreeBSD to 13",
        scales_windows: true,
        timestamps: true,
        receive: [64 << 10, 2 << 20],
        send: [32 << 10, 2 << 20],
        congestion: "reno",
        note: FREEBSD_SYSCTL,
        source: FREEBSD,
    },
    System {
        ids: &["freebsd"],
        name: "FreeBSD 14 and later",
        scales_windows: true,
        timestamps: true,
        receive: [64 << 10, 2 << 20],
        send: [32 << 10, 2 << 20],
        congestion: "cubic",
        note: FREEBSD_SYSCTL,
        source: FREEBSD,
    },
    System {
        ids: &["slirp"],
        name: "slirp, the NAT of emulators",
        scales_windows: false,
        timestamps: false,
        receive: [8 << 10; 2],
        send: [8 << 10; 2],
        congestion: "reno",
        note: "TCP_RCVSPACE and TCP_SNDSPACE are set when it is built: 8 KiB as of 1995, more in later copies",
        source: "slirp, tcp.h: TCP_RCVSPACE, TCP_SNDSPACE; andrewtimmins/rpcemu-extended, pull request 105",
    },
    System {
        ids: &["lwip"],
        name: "lwIP",
        scales_windows: false,
        timestamps: false,
        receive: [4 * 536; 2],
        send: [2 * 536; 2],
        congestion: "reno",
        note: "TCP_WND and TCP_SND_BUF are set when it is built: 4 and 2 segments of 536 B if nothing is said",
        source: "lwIP 2.1, opt.h: TCP_WND, TCP_SND_BUF, TCP_MSS",
    },
    System {
        ids: &["gvisor"],
        name: "gVisor's netstack",
        scales_windows: true,
        timestamps: true,
        receive: [1 << 20, 4 << 20],
        send: [1 << 20, 4 << 20],
        congestion: "reno",
        note: "The program that embeds it may set other sizes: Tailscale has 8 MiB to receive and 6 MiB to send",
        source: "gVisor, pkg/tcpip/transport/tcp/protocol.go: DefaultSendBufferSize, MaxBufferSize; Tailscale, \
                 netstack_tcpbuf_default.go",
    },
    System {
        ids: &["quic"],
        name: "QUIC",
        scales_windows: true,
        timestamps: false,
        receive: [1 << 40; 2],
        send: [1 << 40; 2],
        congestion: "cubic",
        note: "It has no buffers of TCP; its windows for a stream and for a connection are what --app-window says",
        source: "RFC 9000 §4.1",
    },
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
        assert_eq!(find_system("os-2"), None);
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
        let mut ids: Vec<&str> = SYSTEMS
            .iter()
            .flat_map(|system| system.ids)
            .copied()
            .collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }
}
