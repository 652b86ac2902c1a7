//! Windows that programs keep above TCP, of which TCP shows nothing but a program that sends no
//! more.

use fullpipe_model::application::{Application, find_application};
use fullpipe_record::{ApplicationWindowVerdict, At, Evidence, Limit, Remedy, Scope};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::advice::RemedyAdvice;
use crate::figures::SenderSampleFigures;
use crate::finding::LimitFinding;
use crate::limits::LimitFacts;
use crate::manual_remedy::ManualRemedy;
use crate::text::{self, Row};
use crate::thresholds::{MAX_CHANNEL_FILL, MIN_CHANNEL_FILL};

/// Programs that have OpenSSH's window; by version, a server's part has a name of its own.
const SSH: [&str; 7] = [
    "ssh",
    "sshd",
    "sshd-session",
    "sshd-auth",
    "scp",
    "sftp",
    "sftp-server",
];

/// Returns `found`, or the window of an SSH channel: where the program is SSH, TCP did not hold it
/// back, and the rate is one window a round trip.
pub(crate) fn above_tcp(
    evidence: &Evidence,
    rate: BitRate,
    rtt: Option<Span>,
    found: LimitFinding,
) -> LimitFinding {
    // The receiving end cannot distinguish a window of the sending program from a full send buffer.
    let free = matches!(
        found.limit_kind(),
        Limit::SenderApplication | Limit::ReceiverApplication | Limit::Unknown
    ) || (found.limit_kind() == Limit::SendBuffer && found.is_one_of_several);
    let ceiling = window_ceiling(evidence, rtt).filter(|ceiling| *ceiling > BitRate::ZERO);
    let held = ceiling.is_some_and(|ceiling| {
        (MIN_CHANNEL_FILL..=MAX_CHANNEL_FILL).contains(&rate.relative_to(ceiling))
    });
    if !(free && held) {
        return found;
    }
    // The receiving end grants the window. Of nothing found there is no share, but the program did
    // not do this by half.
    let share = if found.limit_kind() == Limit::Unknown {
        Ratio::ONE
    } else {
        found.share
    };
    LimitFinding::new(ApplicationWindowVerdict::SshChannelOfReceiver, share)
}

/// Returns the rate that the windows of all channels allow together; `None` where the program is
/// not known to have one.
pub(crate) fn window_ceiling(evidence: &Evidence, rtt: Option<Span>) -> Option<BitRate> {
    let of_one = known_program(evidence)?.window_ceiling(rtt.filter(|rtt| *rtt > Span::ZERO)?)?;
    Some(of_one.scale_by(f64::from(evidence.request.streams.max(1))))
}

fn known_program(evidence: &Evidence) -> Option<&'static Application> {
    let program = evidence.program.as_deref()?;
    if SSH.contains(&program) {
        find_application("ssh")
    } else {
        None
    }
}

/// The figures of a window above TCP.
pub(crate) struct ApplicationWindowFacts {
    verdict: ApplicationWindowVerdict,
    window: ByteCount,
    rate: BitRate,
    rtt: Option<Span>,
    /// Rate that the window allows.
    allowed: Option<BitRate>,
    shown: Vec<Row>,
}

impl ApplicationWindowFacts {
    pub(crate) fn from_figures(
        verdict: ApplicationWindowVerdict,
        figures: &SenderSampleFigures,
    ) -> Self {
        let seen = Self::from_evidence(verdict, figures.evidence, figures.rate, figures.rtt);
        Self {
            shown: text::trend_rows(figures),
            ..seen
        }
    }

    /// Returns the figures as either end sees them.
    pub(crate) fn from_evidence(
        verdict: ApplicationWindowVerdict,
        evidence: &Evidence,
        rate: BitRate,
        rtt: Option<Span>,
    ) -> Self {
        let window = known_program(evidence)
            .and_then(|application| application.window)
            .unwrap_or_default();
        Self {
            verdict,
            window,
            rate,
            rtt,
            allowed: window_ceiling(evidence, rtt),
            shown: Vec::new(),
        }
    }
}

impl LimitFacts for ApplicationWindowFacts {
    fn sentence(&self) -> String {
        let Self { window, rate, .. } = self;
        match self.verdict {
            ApplicationWindowVerdict::SshChannelOfSender
            | ApplicationWindowVerdict::SshChannelOfReceiver => format!(
                "SSH allows only {window} of a channel in flight, whatever TCP would allow; over {} that is {}, and \
                 {rate} was reached. No setting of the hosts changes it.",
                self.rtt.unwrap_or_default(),
                self.allowed.unwrap_or(*rate),
            ),
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    /// Returns a program without such a window, with what TCP would let it carry over this path.
    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        let why = "`fullpipe copy` logs in by the same ssh and moves the data over connections of its own, encrypted. \
                   An rsync daemon, curl (HTTPS or FTP) or iperf3 leaves the flow of data to TCP, and so does HPN-SSH \
                   at both ends. The window is the program's: no setting of TCP helps.";
        let id = "program-without-a-window";
        vec![advice.build_remedy(
            id,
            Scope::Application,
            At::Receiver,
            Vec::new(),
            why.to_owned(),
        )]
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            ApplicationWindowVerdict::SshChannelOfSender
            | ApplicationWindowVerdict::SshChannelOfReceiver => &[ManualRemedy {
                id: "sessions-side-by-side",
                scope: Scope::Application,
                at: Some(At::Sender),
                why: "Several sessions at once, each with a part of the files: each connection has a window of its \
                          own.",
            }],
        }
    }
}
