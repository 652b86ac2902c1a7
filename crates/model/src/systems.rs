//! Window scaling (RFC 1323, now RFC 7323) of operating systems as they come.
//!
//! If one end does not scale, no window exceeds 65 535 bytes, whatever the buffers: 5.2 Mbit/s over
//! 100 ms. Appliances are often built on an older system than their age suggests.

/// An operating system, and what it does by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// Name, with the range of versions.
    pub name: &'static str,
    /// True if connections that it opens have scaled windows under default settings.
    pub scales_windows: bool,
    /// One sentence on what is particular.
    pub note: &'static str,
    /// Source of the figure.
    pub source: &'static str,
}

/// The system of this name, as in [`SYSTEMS`]; case does not matter.
pub fn find_system(name: &str) -> Option<&'static System> {
    SYSTEMS
        .iter()
        .find(|system| system.name.eq_ignore_ascii_case(name))
}

/// All that are known, by family and age.
pub const SYSTEMS: &[System] = &[
    System {
        name: "Windows 2000",
        scales_windows: false,
        note: TCP_1323_OPTS,
        source: KB_224829,
    },
    System {
        name: "Windows XP",
        scales_windows: false,
        note: TCP_1323_OPTS,
        source: KB_224829,
    },
    System {
        name: "Windows Server 2003",
        scales_windows: false,
        note: TCP_1323_OPTS,
        source: KB_224829,
    },
    System {
        name: "Windows Vista and later",
        scales_windows: true,
        note: AUTOTUNING,
        source: GUIDE,
    },
    System {
        name: "Windows Server 2008 and later",
        scales_windows: true,
        note: AUTOTUNING,
        source: GUIDE,
    },
    System {
        name: "Linux before 2.6.8",
        scales_windows: false,
        note: "It sends the option with a scale of 0 unless a program asks for a larger buffer.",
        source: "LWN on 2.6.8 (2004): TCP window scaling and broken routers",
    },
    System {
        name: "Linux 2.6.8 and later",
        scales_windows: true,
        note: "The scale follows tcp_rmem; to 2.6.16 that was small, and the scale about 2; since 2.6.17 it is 7 or \
               more.",
        source: "LWN on 2.6.8 (2004); Linux 2.6.17, tcp_select_initial_window",
    },
    System {
        name: "FreeBSD",
        scales_windows: true,
        note: RFC1323_SYSCTL,
        source: GUIDE,
    },
    System {
        name: "OpenBSD",
        scales_windows: true,
        note: RFC1323_SYSCTL,
        source: GUIDE,
    },
    System {
        name: "NetBSD",
        scales_windows: true,
        note: RFC1323_SYSCTL,
        source: GUIDE,
    },
    System {
        name: "macOS",
        scales_windows: true,
        note: RFC1323_SYSCTL,
        source: GUIDE,
    },
    System {
        name: "Solaris 9 and earlier",
        scales_windows: false,
        note: "The default buffer of 48 KiB needs no scale; tcp_wscale_always, or a program that asks for more than 64 \
               KiB, switches the option on.",
        source: "Solaris Tunable Parameters Reference Manual, TCP; tcp(7P)",
    },
];

const TCP_1323_OPTS: &str = "It does not offer the option and answers one that is offered; Tcp1323Opts in the registry \
                             switches it on.";
const AUTOTUNING: &str = "The receive window is tuned up to 16 MB, unless the autotuning level is restricted or disabled.";
const RFC1323_SYSCTL: &str =
    "The variable net.inet.tcp.rfc1323, where there is one, switches it off.";
const KB_224829: &str = "Microsoft knowledge base 224829";
const GUIDE: &str = "Wikipedia: TCP window scale option; published tables by system";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_published_tables_say() {
        for (name, scales) in [
            ("Windows 2000", false),
            ("windows xp", false),
            ("Windows Server 2003", false),
            ("Linux before 2.6.8", false),
            ("Windows Vista and later", true),
            ("Windows Server 2008 and later", true),
            ("Linux 2.6.8 and later", true),
        ] {
            assert_eq!(
                find_system(name).map(|system| system.scales_windows),
                Some(scales),
                "{name}"
            );
        }
        assert_eq!(find_system("OS/2"), None);
    }

    #[test]
    fn names_are_unique() {
        for system in SYSTEMS {
            assert_eq!(find_system(system.name), Some(system));
        }
    }
}
