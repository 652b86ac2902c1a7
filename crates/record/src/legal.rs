//! The table of legal verdicts: every limit with its causes and where each sits.

use crate::prelude::*;
use crate::{At, Limit};

/// Why the limit is what it is: the closed list of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The program fixed its receive buffer.
    SoRcvbuf,
    /// Autotuning of the receive buffer ends at `tcp_rmem`.
    TcpRmemMax,
    /// The kernel may tune the receive buffer, and leaves it small.
    AutotuningStalled,
    /// Window scaling is off at an end.
    NoWindowScaling,
    /// A device between the ends removed the option that scales windows.
    WindowScaleStripped,
    /// A device between the ends changed the shift that scales windows.
    WindowScaleRewritten,
    /// A device between the ends lowers the windows that pass.
    WindowClamped,
    /// The receiving host saves the memory of its TCP sockets.
    MemoryPressure,
    /// The reader takes data slowly.
    SlowReader,
    /// A file is written or read slowly.
    Storage,
    /// The program fixed its send buffer.
    SoSndbuf,
    /// Autotuning of the send buffer ends at `tcp_wmem`.
    TcpWmemMax,
    /// The writer has nothing to send.
    Idle,
    /// The writer was asked for a rate, and offers no more.
    RateLimited,
    /// SSH grants each channel a window of its own.
    SshChannel,
    /// HTTP/2 grants each stream and each connection a window of its own.
    Http2,
    /// SFTP has so many requests under way, each of so many bytes.
    Sftp,
    /// SMB has so many requests under way, each of so many bytes.
    Smb,
    /// The programs have a window or requests of another protocol.
    Other,
    /// The transfer ended before the window had grown.
    RampUp,
    /// Slow start was left early.
    EarlyExit,
    /// The window grows back after a loss.
    Recovering,
    /// Packets that overtake others are taken for lost.
    Reordering,
    /// The link.
    Link,
    /// The link, which others load too.
    Shared,
    /// The sending host's own queue or network device.
    HostQueue,
    /// A link that carries data in one direction at a time.
    HalfDuplex,
    /// The path bounds each connection.
    PerFlowLimit,
    /// The path lets so much pass at a higher rate, and then no more.
    Allowance,
    /// Independent loss.
    Random,
    /// A device that discards what exceeds a rate.
    Policer,
    /// Loss because a queue is shorter than the bursts.
    ShallowQueue,
    /// The receiving host drops what has reached it.
    ReceiverHost,
    /// The program set a maximum pace.
    MaxPacingRate,
    /// A queueing discipline of the host holds packets back.
    Qdisc,
    /// The congestion control paces below what its window would allow.
    CongestionControl,
    /// The program's own work.
    User,
    /// The kernel's work on its behalf, interrupts included.
    System,
    /// The hypervisor gives the time to others, or a quota withholds it.
    Stolen,
    /// Packets that are too large vanish, and nothing says so.
    BlackHole,
    /// Segments are smaller than both ends could take.
    MssClamped,
    /// The evidence needed is not there.
    EvidenceMissing,
}

/// Makes an enum of the verdicts of each limit, and [`LegalVerdict`] of them all, from one row a
/// verdict.
///
/// A row has the variant, its cause, the cause's name in JSON and the end. A row without a page in
/// `docs/diagnosis/KIND/CAUSE.md` does not compile; nor does a `match` that leaves a row out.
macro_rules! legal_verdicts {
    ($(
        $(#[$about:meta])*
        $kind:ident $kind_name:literal $verdicts:ident {
            $($row:ident: $cause:ident $cause_name:literal at $at:ident,)+
        }
    )+) => {
        $(
            $(#[$about])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[expect(missing_docs, reason = "the page of each verdict describes it")]
            pub enum $verdicts {
                $($row,)+
            }
        )+

        /// A verdict that may be given: a limit with a cause and an end that belong to it.
        ///
        /// In JSON it is an object of `kind`, `cause` and `at`; others than those of the table are
        /// refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "Triple", into = "Triple")]
        #[expect(missing_docs, reason = "each has the name of its limit")]
        pub enum LegalVerdict {
            $($kind($verdicts),)+
        }

        impl LegalVerdict {
            /// Every legal verdict, in the order of the table.
            pub const ALL: &'static [Self] = &[$($(Self::$kind($verdicts::$row),)+)+];

            const fn table_row(self) -> VerdictRow {
                match self {
                    $($(Self::$kind($verdicts::$row) => VerdictRow {
                        kind: Limit::$kind,
                        cause: Cause::$cause,
                        at: At::$at,
                        name: concat!($kind_name, "/", $cause_name),
                        page: include_str!(concat!("../../../docs/diagnosis/", $kind_name, "/", $cause_name, ".md")),
                    },)+)+
                }
            }
        }

        $(
            impl From<$verdicts> for LegalVerdict {
                fn from(verdict: $verdicts) -> Self {
                    Self::$kind(verdict)
                }
            }
        )+
    };
}

legal_verdicts! {
    /// Verdicts of a receive window.
    ReceiveWindow "receive-window" ReceiveWindowVerdict {
        SoRcvbuf: SoRcvbuf "so-rcvbuf" at Receiver,
        TcpRmemMax: TcpRmemMax "tcp-rmem-max" at Receiver,
        AutotuningStalled: AutotuningStalled "autotuning-stalled" at Receiver,
        NoWindowScaling: NoWindowScaling "no-window-scaling" at Receiver,
        WindowScaleStripped: WindowScaleStripped "window-scale-stripped" at Middlebox,
        WindowScaleRewritten: WindowScaleRewritten "window-scale-rewritten" at Middlebox,
        WindowClamped: WindowClamped "window-clamped" at Middlebox,
        MemoryPressure: MemoryPressure "memory-pressure" at Receiver,
    }
    /// Verdicts of a receiving program.
    ReceiverApplication "receiver-application" ReceiverApplicationVerdict {
        SlowReader: SlowReader "slow-reader" at Receiver,
        Storage: Storage "storage" at Receiver,
    }
    /// Verdicts of a send buffer.
    SendBuffer "send-buffer" SendBufferVerdict {
        SoSndbuf: SoSndbuf "so-sndbuf" at Sender,
        TcpWmemMax: TcpWmemMax "tcp-wmem-max" at Sender,
    }
    /// Verdicts of a sending program.
    SenderApplication "sender-application" SenderApplicationVerdict {
        Idle: Idle "idle" at Sender,
        RateLimited: RateLimited "rate-limited" at Sender,
        Storage: Storage "storage" at Sender,
    }
    /// Verdicts of a window above TCP.
    ApplicationWindow "application-window" ApplicationWindowVerdict {
        SshChannelOfSender: SshChannel "ssh-channel" at Sender,
        SshChannelOfReceiver: SshChannel "ssh-channel" at Receiver,
        Http2: Http2 "http2" at Receiver,
        SftpOfSender: Sftp "sftp" at Sender,
        SftpOfReceiver: Sftp "sftp" at Receiver,
        SmbOfSender: Smb "smb" at Sender,
        SmbOfReceiver: Smb "smb" at Receiver,
        Other: Other "other" at Receiver,
    }
    /// Verdicts of a congestion window.
    CongestionWindow "congestion-window" CongestionWindowVerdict {
        RampUp: RampUp "ramp-up" at Path,
        EarlyExit: EarlyExit "early-exit" at Path,
        Recovering: Recovering "recovering" at Path,
        Reordering: Reordering "reordering" at Path,
    }
    /// Verdicts of a full bottleneck.
    Capacity "capacity" CapacityVerdict {
        Link: Link "link" at Path,
        Shared: Shared "shared" at Path,
        HostQueue: HostQueue "host-queue" at Sender,
        HalfDuplexOfSender: HalfDuplex "half-duplex" at Sender,
        HalfDuplexOfReceiver: HalfDuplex "half-duplex" at Receiver,
        PerFlowLimit: PerFlowLimit "per-flow-limit" at Path,
        Allowance: Allowance "allowance" at Path,
    }
    /// Verdicts of loss.
    Loss "loss" LossVerdict {
        Random: Random "random" at Path,
        Policer: Policer "policer" at Path,
        ShallowQueue: ShallowQueue "shallow-queue" at Path,
        ReceiverHost: ReceiverHost "receiver-host" at Receiver,
    }
    /// Verdicts of a pace.
    Pacing "pacing" PacingVerdict {
        MaxPacingRate: MaxPacingRate "max-pacing-rate" at Sender,
        Qdisc: Qdisc "qdisc" at Sender,
        CongestionControl: CongestionControl "congestion-control" at Sender,
    }
    /// Verdicts of a processor.
    Cpu "cpu" CpuVerdict {
        UserOfSender: User "user" at Sender,
        UserOfReceiver: User "user" at Receiver,
        SystemOfSender: System "system" at Sender,
        SystemOfReceiver: System "system" at Receiver,
        StolenOfSender: Stolen "stolen" at Sender,
        StolenOfReceiver: Stolen "stolen" at Receiver,
    }
    /// Verdicts of packets of the wrong size.
    Mtu "mtu" MtuVerdict {
        BlackHole: BlackHole "black-hole" at Path,
        MssClamped: MssClamped "mss-clamped" at Middlebox,
    }
    /// The verdict where nothing was shown.
    Unknown "unknown" UnknownVerdict {
        EvidenceMissing: EvidenceMissing "evidence-missing" at None,
    }
}

/// One row of the table.
struct VerdictRow {
    kind: Limit,
    cause: Cause,
    at: At,
    name: &'static str,
    page: &'static str,
}

impl LegalVerdict {
    /// Returns the verdict of this kind, cause and end; `None` where they do not belong together.
    pub fn from_parts(kind: Limit, cause: Cause, at: At) -> Option<Self> {
        Self::ALL.iter().copied().find(|verdict| {
            (
                verdict.limit_kind(),
                verdict.limit_cause(),
                verdict.limit_place(),
            ) == (kind, cause, at)
        })
    }

    /// Returns the first verdict of the table with this name, such as `loss/policer`; one cause has
    /// one page, whichever end it is at.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|verdict| verdict.name() == name)
    }

    /// Returns the limit.
    pub const fn limit_kind(self) -> Limit {
        self.table_row().kind
    }

    /// Returns the cause of the limit.
    pub const fn limit_cause(self) -> Cause {
        self.table_row().cause
    }

    /// Returns the end, or the part of the path, that has the limit.
    pub const fn limit_place(self) -> At {
        self.table_row().at
    }

    /// Returns kind and cause as JSON has them: `receive-window/so-rcvbuf`.
    pub const fn name(self) -> &'static str {
        self.table_row().name
    }

    /// Returns the page of the documentation about this kind and cause, in Markdown.
    pub const fn documentation_page(self) -> &'static str {
        self.table_row().page
    }
}

/// A legal verdict as JSON has it.
#[derive(Serialize, Deserialize)]
struct Triple {
    kind: Limit,
    cause: Cause,
    at: At,
}

impl From<LegalVerdict> for Triple {
    fn from(verdict: LegalVerdict) -> Self {
        Self {
            kind: verdict.limit_kind(),
            cause: verdict.limit_cause(),
            at: verdict.limit_place(),
        }
    }
}

impl TryFrom<Triple> for LegalVerdict {
    type Error = String;

    fn try_from(Triple { kind, cause, at }: Triple) -> Result<Self, String> {
        Self::from_parts(kind, cause, at)
            .ok_or_else(|| format!("{}/{cause:?} at {at:?} is no legal verdict", kind.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_names_of_the_table_are_those_of_json() {
        for verdict in LegalVerdict::ALL {
            let json = serde_json::to_value(verdict).unwrap();
            let name = format!(
                "{}/{}",
                json["kind"].as_str().unwrap(),
                json["cause"].as_str().unwrap()
            );
            assert_eq!(name, verdict.name());
            assert_eq!(verdict.limit_kind().name(), json["kind"], "{name}");
        }
    }

    #[test]
    fn each_verdict_stands_in_the_table_once() {
        let triple = |verdict: &LegalVerdict| serde_json::to_string(verdict).unwrap();
        let all: BTreeSet<String> = LegalVerdict::ALL.iter().map(triple).collect();
        assert_eq!(all.len(), LegalVerdict::ALL.len());
    }

    #[test]
    fn a_page_has_the_name_of_its_verdict_and_its_ends() {
        for verdict in LegalVerdict::ALL {
            let (name, page) = (verdict.name(), verdict.documentation_page());
            assert!(
                page.starts_with(&format!("# {name}\n")),
                "{name}: {page:.60}"
            );
            let at = serde_json::to_value(verdict.limit_place()).unwrap();
            let ends = page
                .lines()
                .find_map(|line| line.strip_prefix("At: "))
                .unwrap_or_else(|| panic!("{name}"));
            assert!(
                ends.split(", ").any(|end| at == end),
                "{name} at {at}: {ends}"
            );
        }
    }

    #[test]
    fn what_does_not_belong_together_is_no_verdict() {
        assert_eq!(
            LegalVerdict::from_parts(Limit::Loss, Cause::SoRcvbuf, At::Path),
            None
        );
        let wrong = r#"{"kind": "loss", "cause": "random", "at": "sender"}"#;
        let error = serde_json::from_str::<LegalVerdict>(wrong)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("loss/Random at Sender is no legal verdict"),
            "{error}"
        );
        let right = LegalVerdict::from(LossVerdict::Random);
        assert_eq!(
            LegalVerdict::from_parts(Limit::Loss, Cause::Random, At::Path),
            Some(right)
        );
        assert_eq!(LegalVerdict::from_name("loss/random"), Some(right));
    }
}
