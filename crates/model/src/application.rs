//! Windows that programs keep above TCP: where one binds, no setting of a host makes the transfer
//! faster.
//!
//! A program whose protocol carries several streams over one connection grants the other end a
//! window for each. The receiving end grants it, so for an upload the server's counts.

use crate::prelude::*;
use crate::window;

/// A program or a library, and the window that its receiving end grants a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Application {
    /// Name of the program.
    pub name: &'static str,
    /// Other names of what has the same window.
    pub aliases: &'static [&'static str],
    /// The window at its largest; `None` where the program leaves the flow of data to TCP, or keeps
    /// up with it.
    pub window: Option<ByteCount>,
    /// One sentence on how it comes about.
    pub why: &'static str,
    /// Source of the figure.
    pub source: &'static str,
    /// Bytes that the receiving end takes before it grants them again; zero where it grants each at
    /// once.
    pub grants_after: ByteCount,
    /// The most that it writes each time that it has asked whether its socket takes more (`poll`,
    /// `select`), before it asks again: see [`crate::kernel::asked_in_flight`]. `None` where it
    /// writes until the kernel takes no more.
    pub asks_after: Option<ByteCount>,
}

/// An application of which only a window is known.
const PLAIN: Application = Application {
    name: "",
    aliases: &[],
    window: None,
    why: "",
    source: "",
    grants_after: ByteCount::ZERO,
    asks_after: None,
};

impl Application {
    /// Returns the rate that the window allows at this round-trip time, as a rate of the program's
    /// data; `None` where it sets no limit. Published transfers stay a little below: of 171 Mbit/s
    /// at an RTT of 98 ms, rsync over ssh had 161, and scp 150 at best and 119 on average.
    pub fn window_ceiling(&self, rtt: Span) -> Option<BitRate> {
        Some(window::rate_of_window(self.window?, rtt))
    }

    /// Returns the rate to be expected of a long transfer over a path with this RTT and this rate
    /// of its link; `None` where the window sets no limit.
    ///
    /// A window that is granted again in parts lacks something in two ways. Data comes in bursts,
    /// and after each the receiving end keeps what did not fill a part until the next: half of one,
    /// on average. And a part is granted when its last byte is there, the time of a part on the
    /// link after the first. Measured with OpenSSH 9.2 over 1 Gbit/s × 98 ms, by what both ends
    /// wrote of their grants: 49 113 bytes were kept on average, where this has 49 152; the rate
    /// was 161.3 Mbit/s, and is 165.9 here.
    pub fn expected_rate(&self, rtt: Span, link: Option<BitRate>) -> Option<BitRate> {
        let kept = ByteCount::new(self.grants_after.get() / 2);
        let part = link
            .filter(|link| *link > BitRate::ZERO)
            .map_or(Span::ZERO, |link| link.time_for(self.grants_after));
        Some(window::rate_of_window(
            self.window?.saturating_sub(kept),
            rtt + part,
        ))
    }

    fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
            || self
                .aliases
                .iter()
                .any(|alias| alias.eq_ignore_ascii_case(name))
    }
}

/// The application of this name or alias; case does not matter.
pub fn find_application(name: &str) -> Option<&'static Application> {
    APPLICATIONS
        .iter()
        .find(|application| application.is_called(name))
}

/// All that are known.
pub const APPLICATIONS: &[Application] = &[
    Application {
        name: "OpenSSH",
        aliases: &["ssh", "scp", "rsync over ssh"],
        window: Some(SSH_CHANNEL),
        why: "A channel has a window of 64 packets of 32 KiB that never grows, and half of it with a terminal.",
        source: "OpenSSH, channels.h: CHAN_SES_WINDOW_DEFAULT; channels.c: channel_check_window",
        grants_after: THREE_PACKETS,
        asks_after: Some(PACKET),
    },
    Application {
        name: "OpenSSH sftp",
        aliases: &["sftp"],
        window: Some(SSH_CHANNEL),
        why: "It has 64 requests of 32 KiB under way; where a server takes larger ones, the channel's window still \
              binds.",
        source: "OpenSSH, sftp-client.c: DEFAULT_NUM_REQUESTS, DEFAULT_COPY_BUFLEN",
        grants_after: THREE_PACKETS,
        asks_after: Some(PACKET),
    },
    Application {
        name: "HPN-SSH",
        aliases: &["hpnssh"],
        window: None,
        why: "The channel's window follows the TCP receive buffer where both ends are HPN-SSH; towards an OpenSSH that \
              receives, its 2 MiB bind.",
        source: "HPN-SSH, README.hpn: buffer sizes",
        ..PLAIN
    },
    Application {
        name: "Dropbear",
        aliases: &[],
        window: Some(ByteCount::from_kib(24)),
        why: "A channel has a window of 24 KiB, unless the option -W says more.",
        source: "Dropbear, default_options.h: DEFAULT_RECV_WINDOW",
        ..PLAIN
    },
    Application {
        name: "PuTTY",
        aliases: &["pscp", "psftp"],
        window: None,
        why: "A channel's window grows until the server never finds it empty; before September 2007 it was 16 KiB.",
        source: "PuTTY wish list: SSH-2 flow control",
        ..PLAIN
    },
    Application {
        name: "Go x/crypto/ssh",
        aliases: &[],
        window: Some(SSH_CHANNEL),
        why: "A channel has OpenSSH's window of 64 packets of 32 KiB, which never grows.",
        source: "golang.org/x/crypto/ssh, channel.go: channelWindowSize",
        ..PLAIN
    },
    Application {
        name: "pkg/sftp",
        aliases: &["rclone sftp"],
        window: Some(SSH_CHANNEL),
        why: "It runs over a channel of Go's x/crypto/ssh. Measured before requests ran side by side: 9 MB/s at a \
              delay of 100 ms on a loopback, so an RTT of 200 ms, which is 86 % of it.",
        source: "github.com/pkg/sftp, issue 158",
        ..PLAIN
    },
    Application {
        name: "Paramiko",
        aliases: &[],
        window: Some(SSH_CHANNEL),
        why: "A channel has a window of 64 packets of 32 KiB, unless the program that uses the library asks for more.",
        source: "Paramiko, common.py: DEFAULT_WINDOW_SIZE",
        ..PLAIN
    },
    Application {
        name: "HTTP/2",
        aliases: &["h2"],
        window: Some(ByteCount::new(65_535)),
        why: "A stream and a connection each start with this window; it stays so where the receiver grants no more.",
        source: "RFC 9113 §6.9.2",
        ..PLAIN
    },
    Application {
        name: "Node.js",
        aliases: &["node"],
        window: Some(ByteCount::new(65_535)),
        why: "A stream of HTTP/2 has the window of the protocol, unless initialWindowSize says more.",
        source: "Node.js, http2: initialWindowSize",
        ..PLAIN
    },
    Application {
        name: "nginx",
        aliases: &[],
        window: Some(ByteCount::from_kib(64)),
        why: "An upload over HTTP/2 that is not buffered has a window of http2_body_preread_size or of \
              client_body_buffer_size.",
        source: "nginx, ngx_http_v2_module: http2_body_preread_size",
        ..PLAIN
    },
    Application {
        name: "Kestrel",
        aliases: &["ASP.NET Core"],
        window: Some(ByteCount::from_kib(768)),
        why: "An upload over HTTP/2 has a window of 768 KiB for its stream, and 1 MiB for its connection.",
        source: "ASP.NET Core, Http2Limits.cs: InitialStreamWindowSize",
        ..PLAIN
    },
    Application {
        name: "Go net/http client",
        aliases: &[],
        window: Some(ByteCount::from_mib(4)),
        why: "A response over HTTP/2 has a window of 4 MiB, which never grows.",
        source: "golang.org/x/net/http2, transport.go: transportDefaultStreamFlow",
        ..PLAIN
    },
    Application {
        name: "quic-go",
        aliases: &[],
        window: Some(ByteCount::from_mib(6)),
        why: "A stream's window grows to 6 MiB, that of a connection to 15 MiB, unless the program allows more.",
        source: "quic-go, internal/protocol/params.go: DefaultMaxReceiveStreamFlowControlWindow",
        ..PLAIN
    },
    Application {
        name: "HTTP/1.1",
        aliases: &["curl", "ftp", "iperf3"],
        window: None,
        why: "Data goes to TCP as it is: a connection carries one transfer at a time.",
        source: "RFC 9112",
        ..PLAIN
    },
    Application {
        name: "rsync daemon",
        aliases: &["rsyncd"],
        window: None,
        why: "Data goes to TCP as it is, but is written only when a third of the send buffer is free.",
        source: "rsync, io.c: perform_io, IO_BUFFER_SIZE; Linux, net/ipv4/tcp.c: tcp_poll",
        asks_after: Some(ByteCount::from_kib(32)),
        ..PLAIN
    },
    Application {
        name: "iperf3 before 3.16",
        aliases: &[],
        window: None,
        why: "Data goes to TCP as it is: ten blocks of 128 KiB each time that a third of the send buffer is free.",
        source: "iperf 3.12, iperf_api.c: iperf_send, multisend; iperf.h: DEFAULT_TCP_BLKSIZE",
        asks_after: Some(ByteCount::from_kib(10 * 128)),
        ..PLAIN
    },
];

/// 64 packets of 32 KiB.
const SSH_CHANNEL: ByteCount = ByteCount::from_mib(2);

/// `CHAN_SES_PACKET_DEFAULT`.
const PACKET: ByteCount = ByteCount::from_kib(32);

/// Three packets of 32 KiB, after which a channel is granted what the program behind it has read.
const THREE_PACKETS: ByteCount = ByteCount::from_kib(96);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_channel_of_openssh_ends_at_168_megabits_over_a_tenth_of_a_second() {
        let ssh = find_application("scp").unwrap();
        for (rtt_ms, rate) in [
            (10, "1.678 Gbit/s"),
            (50, "335.5 Mbit/s"),
            (98, "171.2 Mbit/s"),
            (100, "167.8 Mbit/s"),
            (150, "111.8 Mbit/s"),
            (200, "83.89 Mbit/s"),
            (300, "55.92 Mbit/s"),
        ] {
            assert_eq!(
                ssh.window_ceiling(Span::from_millis(rtt_ms))
                    .unwrap()
                    .to_string(),
                rate,
                "{rtt_ms} ms"
            );
        }
    }

    #[test]
    fn a_channel_reaches_a_little_less_than_its_window_and_never_more() {
        let ssh = find_application("scp").unwrap();
        let gigabit = Some(BitRate::from_mbps(1000));
        // 161.3 Mbit/s were measured.
        assert_eq!(
            ssh.expected_rate(Span::from_millis(98), gigabit)
                .unwrap()
                .to_string(),
            "165.9 Mbit/s"
        );
        for millis in [4, 20, 98, 300] {
            let rtt = Span::from_millis(millis);
            assert!(
                ssh.expected_rate(rtt, gigabit) < ssh.expected_rate(rtt, None),
                "{millis} ms"
            );
            assert!(
                ssh.expected_rate(rtt, None) < ssh.window_ceiling(rtt),
                "{millis} ms"
            );
        }
        let dropbear = find_application("Dropbear").unwrap();
        assert_eq!(
            dropbear.expected_rate(Span::from_millis(98), gigabit),
            dropbear.window_ceiling(Span::from_millis(98))
        );
        assert_eq!(
            find_application("curl")
                .unwrap()
                .expected_rate(Span::from_millis(98), gigabit),
            None
        );
    }

    /// Returns the rate of a channel over a link, in virtual time, by the rules of OpenSSH: packets
    /// of 4 to 32 KiB as its reads give them, and a receiving program that reads 64 KiB of a pipe
    /// at a time.
    fn in_virtual_time(rtt: f64, link: f64) -> f64 {
        const WINDOW: f64 = 2_097_152.0;
        const END: f64 = 20.0;
        #[derive(Clone, Copy)]
        enum Event {
            Data(f64),
            Read,
            Grant(f64),
        }
        let mut random = 1_u64;
        let mut events: Vec<(f64, Event)> = vec![(0.0, Event::Grant(WINDOW))];
        let (mut granted, mut line_is_free) = (0.0, 0.0_f64);
        // Missing from the window, waiting to be read, read and not granted; arrived since a third
        // of the time.
        let (mut missing, mut waiting, mut read, mut arrived) = (0.0, 0.0_f64, 0.0, 0.0);
        loop {
            let next = (0..events.len())
                .min_by(|one, other| events[*one].0.total_cmp(&events[*other].0))
                .unwrap();
            let (now, event) = events.swap_remove(next);
            if now > END {
                return arrived * 8.0 / (END * 2.0 / 3.0);
            }
            match event {
                Event::Grant(bytes) => {
                    granted += bytes;
                    while granted > 0.0 {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let size = f64::min(
                            granted,
                            4096.0 + 28_672.0 * (random >> 40) as f64 / (1_u64 << 24) as f64,
                        );
                        granted -= size;
                        line_is_free = line_is_free.max(now) + size * 8.0 / link;
                        events.push((line_is_free + rtt / 2.0, Event::Data(size)));
                    }
                }
                Event::Data(bytes) => {
                    arrived += if now > END / 3.0 { bytes } else { 0.0 };
                    if waiting == 0.0 {
                        events.push((now + 0.0003, Event::Read));
                    }
                    missing += bytes;
                    waiting += bytes;
                }
                Event::Read => {
                    let taken = waiting.min(65_536.0);
                    waiting -= taken;
                    read += taken;
                    if missing > THREE_PACKETS.as_f64() {
                        events.push((now + rtt / 2.0, Event::Grant(read)));
                        missing -= read;
                        read = 0.0;
                    }
                    if waiting > 0.0 {
                        events.push((now + 0.0003, Event::Read));
                    }
                }
            }
        }
    }

    #[test]
    fn a_channel_in_virtual_time_has_the_expected_rate_over_every_path() {
        let ssh = find_application("ssh").unwrap();
        for (millis, mbps) in [
            (20, 1000),
            (50, 500),
            (98, 1000),
            (98, 200),
            (200, 1000),
            (300, 100),
            (300, 1000),
        ] {
            let rtt = Span::from_millis(millis);
            let link = BitRate::from_mbps(mbps);
            let expected = ssh.expected_rate(rtt, Some(link)).unwrap().as_f64();
            let ratio = in_virtual_time(rtt.as_secs_f64(), link.as_f64()) / expected;
            assert!(
                (0.97..1.03).contains(&ratio),
                "{millis} ms, {mbps} Mbit/s: {ratio:.3}"
            );
        }
    }

    #[test]
    fn programs_that_leave_it_to_tcp_have_no_ceiling() {
        for name in ["curl", "rsync daemon", "HPN-SSH"] {
            assert_eq!(
                find_application(name)
                    .unwrap()
                    .window_ceiling(Span::from_millis(98)),
                None,
                "{name}"
            );
        }
    }

    #[test]
    fn sftp_has_as_much_under_way_as_its_channel_holds() {
        assert_eq!(
            find_application("sftp").unwrap().window,
            Some(ByteCount::from_kib(64 * 32))
        );
    }

    #[test]
    fn old_sftp_of_go_reached_most_of_its_window() {
        // 72 Mbit/s, measured at an RTT of 200 ms.
        let ceiling = find_application("pkg/sftp")
            .unwrap()
            .window_ceiling(Span::from_millis(200))
            .unwrap();
        assert_eq!(format!("{:.2}", 72.0 / ceiling.as_mbps()), "0.86");
    }

    #[test]
    fn names_are_found_whatever_their_case_and_only_once() {
        assert_eq!(find_application("openssh"), find_application("SSH"));
        assert_eq!(find_application("telnet"), None);
        let names = APPLICATIONS
            .iter()
            .flat_map(|application| application.aliases.iter().chain([&application.name]));
        for name in names {
            let of_that_name = APPLICATIONS
                .iter()
                .filter(|application| application.is_called(name));
            assert_eq!(of_that_name.count(), 1, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_longer_way_is_never_faster(nanos: u64, longer: u64) {
            for application in APPLICATIONS {
                let at = |nanos| application.window_ceiling(Span::from_nanos(nanos));
                prop_assert!(at(nanos.saturating_add(longer)) <= at(nanos));
            }
        }
    }
}
