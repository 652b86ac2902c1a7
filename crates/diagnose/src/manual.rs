use fullpipe_record::{At, Cause, Limit, Scope};

/// What only a person can do: no setting of the two hosts would.
pub(crate) struct ManualRemedy {
    pub(crate) id: &'static str,
    pub(crate) scope: Scope,
    /// Where, if not where the limit is.
    pub(crate) at: Option<At>,
    pub(crate) why: &'static str,
}

/// What a person can do about a limit, the best first; nothing where settings are all that helps.
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(crate) fn manual(kind: Limit, cause: Cause) -> &'static [ManualRemedy] {
    match (kind, cause) {
        (Limit::ReceiveWindow, Cause::WindowScaleStripped | Cause::WindowScaleRewritten) => &[ManualRemedy {
            id: "let-window-scale-pass",
            scope: Scope::Path,
            at: None,
            why: "A firewall or router between the ends edits the window scale option of the handshake: its setting for TCP \
                  options must let it pass unchanged.",
        }],
        (Limit::ReceiveWindow, Cause::WindowClamped) => &[ManualRemedy {
            id: "let-windows-pass",
            scope: Scope::Path,
            at: None,
            why: "A traffic shaper or proxy between the ends lowers the window of each packet: exempt this traffic from it.",
        }],
        (Limit::ReceiverApplication | Limit::SenderApplication, Cause::Storage) => &[ManualRemedy {
            id: "faster-storage",
            scope: Scope::Application,
            at: None,
            why: "The file is slower than the network: a faster disk, larger or parallel reads and writes, or none at all \
                  (test without the file) would show what the network gives.",
        }],
        (Limit::ReceiverApplication, _) => &[ManualRemedy {
            id: "faster-reader",
            scope: Scope::Application,
            at: None,
            why: "The receiving program must take the data faster; no setting of TCP helps.",
        }],
        (Limit::SenderApplication, Cause::RateLimited) => &[ManualRemedy {
            id: "higher-rate",
            scope: Scope::Application,
            at: None,
            why: "The sender keeps to the rate that it was asked for: ask for a higher one, or for none.",
        }],
        (Limit::SenderApplication, _) => &[ManualRemedy {
            id: "faster-writer",
            scope: Scope::Application,
            at: None,
            why: "The sending program must supply the data faster; no setting of TCP helps.",
        }],
        (Limit::ApplicationWindow, _) => &[
            ManualRemedy {
                id: "program-without-a-window",
                scope: Scope::Application,
                at: Some(At::Receiver),
                why: "HPN-SSH at both ends, or a program that leaves the flow of data to TCP (an rsync daemon, HTTPS): the \
                      window is of the program, and no setting of TCP helps.",
            },
            ManualRemedy {
                id: "sessions-side-by-side",
                scope: Scope::Application,
                at: Some(At::Sender),
                why: "Several sessions at once, each with a part of the files: each connection has a window of its own.",
            },
        ],
        (Limit::CongestionWindow, Cause::Reordering) => &[ManualRemedy {
            id: "keep-the-order",
            scope: Scope::Path,
            at: None,
            why: "Packets of one connection should take one way: snapshot for links that are balanced packet by packet.",
        }],
        (Limit::Capacity, Cause::HostQueue) => &[ManualRemedy {
            id: "longer-queue",
            scope: Scope::Host,
            at: None,
            why: "A longer queue at the device (txqueuelen, the limit of its discipline, larger rings), or fq, which lets \
                  each connection wait instead of dropping.",
        }],
        (Limit::Capacity, Cause::Shared) => &[ManualRemedy {
            id: "share",
            scope: Scope::Path,
            at: None,
            why: "Others load the path: more bandwidth, another hour, or an agreed share of it; more connections only take \
                  from the others.",
        }],
        (Limit::Capacity, _) => &[ManualRemedy {
            id: "none",
            scope: Scope::Path,
            at: None,
            why: "The pipe is full: no setting of the hosts makes it wider.",
        }],
        (Limit::Loss, Cause::Policer) => &[ManualRemedy {
            id: "pace-below-the-policer",
            scope: Scope::Socket,
            at: Some(At::Sender),
            why: "What exceeds the policer's rate is thrown away: a greatest pace a little below it loses nothing.",
        }],
        (Limit::Loss, Cause::ShallowQueue) => &[ManualRemedy {
            id: "longer-queue-on-the-path",
            scope: Scope::Path,
            at: None,
            why: "The queue of the bottleneck is shorter than the bursts: a longer one there, or a sender that paces (fq, or \
                  a greatest pace), loses less.",
        }],
        (Limit::Loss, _) => &[ManualRemedy {
            id: "mend-the-path",
            scope: Scope::Path,
            at: None,
            why: "Loss that comes by itself has a cause: dirty optics, a bad cable, a duplex mismatch, radio.",
        }],
        (Limit::Pacing, Cause::MaxPacingRate) => &[ManualRemedy {
            id: "higher-pace",
            scope: Scope::Application,
            at: None,
            why: "The program set a greatest pace on its sockets: set a higher one, or none.",
        }],
        (Limit::Pacing, Cause::Qdisc) => &[ManualRemedy {
            id: "higher-rate-of-the-discipline",
            scope: Scope::Host,
            at: None,
            why: "The queueing discipline of the device has a rate (see tc qdisc): raise it, or replace the discipline.",
        }],
        (Limit::Pacing, _) => &[ManualRemedy {
            id: "default-pacing-ratios",
            scope: Scope::Namespace,
            at: None,
            why: "The kernel paces at tcp_pacing_ca_ratio percent of window ÷ round trip: below 100 the window is never used \
                  up. Its default is 120.",
        }],
        (Limit::Cpu, Cause::Stolen) => &[ManualRemedy {
            id: "more-processor-time",
            scope: Scope::Host,
            at: None,
            why: "A quota of the control group (cpu.max) or the hypervisor withholds processor time: raise the one, or move \
                  the machine.",
        }],
        (Limit::Cpu, _) => &[ManualRemedy {
            id: "less-work-for-the-processor",
            scope: Scope::Host,
            at: None,
            why: "One processor does all of this connection's work: larger packets, offloads, larger writes, zero-copy, or \
                  several connections on several processors.",
        }],
        (Limit::Mtu, Cause::BlackHole) => &[
            ManualRemedy {
                id: "let-too-big-pass",
                scope: Scope::Path,
                at: None,
                why: "A narrow link swallows full packets and its answer is filtered: let ICMP \"too big\" pass, and the sender \
                      learns the size at once.",
            },
            ManualRemedy {
                id: "lower-the-mtu",
                scope: Scope::Host,
                at: Some(At::Sender),
                why: "An MTU of the device, or of the route, that the narrow link lets pass: with it no packet is too large.",
            },
        ],
        (Limit::Mtu, _) => &[ManualRemedy {
            id: "larger-segments",
            scope: Scope::Path,
            at: None,
            why: "A device between the ends lowers the largest segment in the handshake: its clamp should be the MTU of its \
                  tunnel less the headers, no lower.",
        }],
        _ => &[],
    }
}
