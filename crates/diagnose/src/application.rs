//! Windows that programs keep above TCP, of which TCP shows nothing but a program that sends no more.

use fullpipe_model::application::{Application, named};
use fullpipe_record::{At, Cause, Evidence, Limit};
use fullpipe_units::{BitRate, Ratio, Span};

use crate::finding::Finding;
use crate::thresholds::{HELD_FROM, HELD_TO};

/// What is called so keeps OpenSSH's window; by version, a server's part has a name of its own.
const SSH: [&str; 7] = ["ssh", "sshd", "sshd-session", "sshd-auth", "scp", "sftp", "sftp-server"];

/// `found`, or the window of an SSH channel: where the program is SSH, TCP had nothing to hold it back, and the rate is what
/// one window a round trip gives.
pub(crate) fn above_tcp(evidence: &Evidence, rate: BitRate, rtt: Option<Span>, found: Finding) -> Finding {
    let free = matches!(found.kind, Limit::SenderApplication | Limit::ReceiverApplication | Limit::Unknown);
    let ceiling = ceiling(evidence, rtt).filter(|ceiling| *ceiling > BitRate::ZERO);
    let held = ceiling.is_some_and(|ceiling| (HELD_FROM..=HELD_TO).contains(&rate.relative_to(ceiling)));
    if !(free && held) {
        return found;
    }
    // The receiving end grants the window. Of nothing found there is no share, but the program did not do this by half.
    let share = if found.kind == Limit::Unknown { Ratio::ONE } else { found.share };
    Finding::new(Limit::ApplicationWindow, Cause::SshChannel, At::Receiver, share)
}

/// What the window of each channel lets through, all connections together; `None` where the program is not known to have one.
pub(crate) fn ceiling(evidence: &Evidence, rtt: Option<Span>) -> Option<BitRate> {
    let of_one = of(evidence)?.ceiling(rtt.filter(|rtt| *rtt > Span::ZERO)?)?;
    Some(of_one.scaled(f64::from(evidence.request.streams.max(1))))
}

fn of(evidence: &Evidence) -> Option<&'static Application> {
    let program = evidence.program.as_deref()?;
    if SSH.contains(&program) { named("ssh") } else { None }
}

/// One plain sentence on that limit.
pub(crate) fn sentence(evidence: &Evidence, rate: BitRate, rtt: Option<Span>) -> String {
    let window = of(evidence).and_then(|application| application.window).unwrap_or_default();
    let allowed = ceiling(evidence, rtt).unwrap_or(rate);
    format!(
        "SSH lets only {window} of a channel on the way, whatever TCP would allow; over {} that is {allowed}, and {rate} was \
         reached. No setting of the hosts changes it.",
        rtt.unwrap_or_default(),
    )
}
