//! Windows that programs keep above TCP, of which TCP shows nothing but a program that sends no
//! more.

use std::net::SocketAddr;

use fullpipe_model::application::{Application, find_application};
use fullpipe_record::{ApplicationWindowVerdict, Cause as CauseName, CpuVerdict, UnknownVerdict};

use crate::limits::application_window::credit::{ProgramCredit, is_reached};
use crate::limits::prelude::*;
use crate::signals::time_ratio;
use crate::text;
use crate::thresholds::{FULLY_TUNED_SHARE, MIN_CHANNEL_FILL};

candidate_sets! {
    /// As much in each round trip, from the receiving end.
    CREDIT_OR_BUFFER: [SendBuffer TcpWmemMax, SenderApplication Idle],
        "what waits in the sender's buffer (ss -tnm), and the same transfer by another protocol";
    /// As much in each round trip, in a capture.
    pub(crate) GRANTED_OR_BUFFER: [SendBuffer SoSndbuf, SenderApplication Idle],
        "which programs these are, and what waits in the sender's buffer (ss -tnm)";
}

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
/// Programs that ask for parts of files by SFTP, over a channel of SSH.
const SFTP: [&str; 3] = ["sshfs", "rclone", "psftp"];
/// Programs whose transfers have the windows of HTTP/2.
const HTTP2: [&str; 12] = [
    "curl", "nghttp", "h2load", "nginx", "envoy", "haproxy", "caddy", "traefik", "httpd",
    "apache2", "node", "dotnet",
];
/// Programs that move files by SMB.
const SMB: [&str; 3] = ["smbd", "smbclient", "ksmbd"];
/// Ports of the servers of each.
const SSH_PORTS: [u16; 1] = [22];
const HTTP2_PORTS: [u16; 4] = [443, 80, 8443, 8080];
const SMB_PORTS: [u16; 2] = [445, 139];

/// Returns `found`, or the window of an SSH channel: where the program is SSH, TCP did not hold it
/// back, and the rate is one window a round trip; or the `credit` of other programs.
pub(crate) fn above_tcp(
    view: &TransferView,
    found: Finding,
    credit: Option<ProgramCredit>,
) -> Finding {
    let (evidence, rate) = (view.evidence, view.rate());
    if let Some(held) = held_by_http2(view, &found) {
        return held;
    }
    if let Some(channel) = full_channel(evidence, rate, view.rtt(), &found) {
        return channel;
    }
    if found.limit_kind() == Limit::ApplicationWindow {
        let size = view.rtt().map(|rtt| rate.bytes_in(rtt)).unwrap_or_default();
        return of_captured_window(evidence, size, found);
    }
    let of_credit = credit.filter(|_| may_be_credit(evidence, &found));
    of_credit
        .and_then(|credit| window_of_credit(evidence, rate, credit))
        .unwrap_or(found)
}

/// Least share of the window that is carried in each round trip, where the window is the limit.
/// Receivers grant half of it at a time, so that it may be half, or less where their own programs
/// take their time; a slow reader with a large window has less than 0.01 (measured).
const MIN_HTTP2_FILL: f64 = 0.1;

/// Returns the window of HTTP/2 for which the sending program counted that it waited, or the
/// receiving program that takes data more slowly than that window makes it.
fn held_by_http2(view: &TransferView, found: &Finding) -> Option<Finding> {
    let wait = view.evidence.http2_wait?;
    let share = time_ratio(wait.time, view.evidence.last_sample_at());
    let is_idle = matches!(
        found.limit_kind(),
        Limit::SenderApplication | Limit::SendBuffer | Limit::Cpu | Limit::Unknown
    );
    if !is_idle || share.get() < MIN_LIMIT_SHARE {
        return None;
    }
    let allowed = BitRate::from_bytes_in(wait.window, view.rtt()?);
    Some(if view.rate() >= allowed.scale_by(MIN_HTTP2_FILL) {
        Finding::new(ApplicationWindowVerdict::Http2, share)
    } else {
        Finding::new(ReceiverApplicationVerdict::SlowReader, share)
    })
}

/// Returns the window whose `credit` held the transfer back; `None` where neither the programs nor
/// the messages show one.
fn window_of_credit(evidence: &Evidence, rate: BitRate, credit: ProgramCredit) -> Option<Finding> {
    let by_size = is_initial_http2(credit.most).then_some(ApplicationWindowVerdict::Http2);
    let by_messages = credit
        .is_shown_by_messages
        .then_some(ApplicationWindowVerdict::Other);
    let known = known_protocol(evidence, credit.size);
    let verdict = known.or(by_size).or(by_messages)?;
    let share = Ratio::new(rate.relative_to(credit.allowed).min(1.0));
    let found = Finding::new(verdict, share);
    Some(if evidence.sender_samples.is_empty() {
        found.one_of(&CREDIT_OR_BUFFER)
    } else {
        found
    })
}

/// Returns the window that a capture shows, of which `size` is used, by its ports and by what is in
/// flight. Without its ports, it shows no more than that.
fn of_captured_window(evidence: &Evidence, size: ByteCount, found: Finding) -> Finding {
    if ports_of_ends(evidence).is_none() {
        return found;
    }
    let samples = evidence.sender_samples.iter();
    let most = samples.filter_map(Sample::outstanding_bytes).max();
    let verdict = known_protocol(evidence, size)
        .or_else(|| is_initial_http2(most).then_some(ApplicationWindowVerdict::Http2))
        .unwrap_or(ApplicationWindowVerdict::Other);
    Finding {
        verdict: verdict.into(),
        ..found
    }
}

/// Returns the window of an SSH channel, where it is what held the transfer back.
fn full_channel(
    evidence: &Evidence,
    rate: BitRate,
    rtt: Option<Span>,
    found: &Finding,
) -> Option<Finding> {
    // The receiving end cannot distinguish a window of the sending program from a full send buffer.
    let free = matches!(
        found.limit_kind(),
        Limit::SenderApplication | Limit::ReceiverApplication | Limit::Unknown
    ) || (found.limit_kind() == Limit::SendBuffer && found.candidates.is_some());
    let held = is_reached(rate, window_ceiling(evidence, rtt)?);
    // The receiving end grants the window. Of nothing found there is no share, but the program did
    // not do this by half.
    let share = if found.limit_kind() == Limit::Unknown {
        Ratio::ONE
    } else {
        found.share
    };
    (free && held).then(|| Finding::new(ApplicationWindowVerdict::SshChannelOfReceiver, share))
}

/// Returns true if credit of the programs may be what lies behind `found`: a sender that has
/// nothing to send, or spends its time on asking whether it may; or a buffer that is as large as
/// the kernel needed it to be, and no larger.
fn may_be_credit(evidence: &Evidence, found: &Finding) -> bool {
    let is_stated = evidence.request.stated_load().app_window.is_some();
    if !evidence.is_of_another_program() && !is_stated {
        return false;
    }
    if evidence.sender_samples.is_empty() {
        return matches!(found.limit_kind(), Limit::SendBuffer | Limit::Unknown)
            || found.is(SenderApplicationVerdict::Idle);
    }
    match found.verdict {
        LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle)
        | LegalVerdict::Cpu(CpuVerdict::UserOfSender | CpuVerdict::SystemOfSender)
        | LegalVerdict::Unknown(UnknownVerdict::EvidenceMissing) => true,
        LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax) => has_tunable_buffer(evidence),
        _ => false,
    }
}

/// Returns true if the kernel could have made the send buffer larger, as it does for a program that
/// waits for room while the congestion window has some (`tcp_should_expand_sndbuf`).
fn has_tunable_buffer(evidence: &Evidence) -> bool {
    let sizes = evidence.sender_samples.iter();
    let largest = sizes.filter_map(|sample| Some(sample.memory?.sndbuf)).max();
    let most = evidence.sender.as_ref().map(|host| host.tcp_wmem.max);
    largest
        .zip(most)
        .is_some_and(|(largest, most)| largest < most.scale_by(FULLY_TUNED_SHARE))
}

/// Returns the window that the program or the port tells, where `size` is on the way over each
/// connection.
fn known_protocol(evidence: &Evidence, size: ByteCount) -> Option<ApplicationWindowVerdict> {
    let program = evidence.program.as_deref();
    let [runs_ssh, is_sftp, runs_smb, runs_http2] = [&SSH[..], &SFTP, &SMB, &HTTP2]
        .map(|programs| program.is_some_and(|program| programs.contains(&program)));
    let ends = ports_of_ends(evidence);
    let [on_ssh, on_smb, on_http2] = [&SSH_PORTS[..], &SMB_PORTS, &HTTP2_PORTS]
        .map(|ports| ends.is_some_and(|ends| ends.iter().any(|port| ports.contains(port))));
    let is_ssh = runs_ssh || (on_ssh && !is_sftp);
    let channel = find_application("ssh").and_then(|ssh| ssh.window)?;
    let asks = client_end(evidence) == At::Sender;
    match () {
        () if is_ssh && size >= channel.scale_by(MIN_CHANNEL_FILL) => {
            Some(ApplicationWindowVerdict::SshChannelOfReceiver)
        }
        () if (is_ssh || is_sftp) && asks => Some(ApplicationWindowVerdict::SftpOfSender),
        () if is_ssh || is_sftp => Some(ApplicationWindowVerdict::SftpOfReceiver),
        () if runs_smb || on_smb => Some(if asks {
            ApplicationWindowVerdict::SmbOfSender
        } else {
            ApplicationWindowVerdict::SmbOfReceiver
        }),
        () if runs_http2 || on_http2 => Some(ApplicationWindowVerdict::Http2),
        () => None,
    }
}

/// Returns the ports of the sender and the receiver.
fn ports_of_ends(evidence: &Evidence) -> Option<[u16; 2]> {
    if let Some(capture) = &evidence.capture {
        return capture.ports;
    }
    let of_sender = evidence.sender_sockets.first();
    let socket = of_sender.or(evidence.receiver_sockets.first())?;
    let [local, remote] = [&socket.local, &socket.remote].map(|end| end.parse::<SocketAddr>().ok());
    let [local, remote] = [local?.port(), remote?.port()];
    Some(if of_sender.is_some() {
        [local, remote]
    } else {
        [remote, local]
    })
}

/// Returns the end that asks: the one whose port is not that of a service, the higher one where
/// both are unknown.
fn client_end(evidence: &Evidence) -> At {
    match ports_of_ends(evidence) {
        Some([sender, receiver]) if sender < receiver => At::Receiver,
        Some(_) => At::Sender,
        None => At::None,
    }
}

/// Most that is on the way ÷ a window whose size is known: the frames of HTTP/2 and the records of
/// TLS add less than 3 % to 16 KiB.
const MAX_FRAMED_WINDOW: f64 = 1.03;

/// Returns true if the `most` that ever was on the way is what a connection of HTTP/2 begins with,
/// and the frames and records around it.
fn is_initial_http2(most: Option<ByteCount>) -> bool {
    let initial = find_application("HTTP/2").and_then(|http2| http2.window);
    // A byte of the sequence space is the SYN's.
    most.zip(initial).is_some_and(|(most, initial)| {
        most + ByteCount::new(1) >= initial && most <= initial.scale_by(MAX_FRAMED_WINDOW)
    })
}

/// Returns the rate that the windows of all channels allow together; `None` where the program is
/// not known to have one.
pub(crate) fn window_ceiling(evidence: &Evidence, rtt: Option<Span>) -> Option<BitRate> {
    let of_one = known_program(evidence)?.window_ceiling(rtt.filter(|rtt| *rtt > Span::ZERO)?)?;
    Some(of_one.scale_by(f64::from(evidence.request.streams.max(1))))
}

/// Returns the rate that the window of `found` allows, or else that of the program.
pub(crate) fn ceiling_of(
    found: &Finding,
    evidence: &Evidence,
    rtt: Option<Span>,
    credit: Option<ProgramCredit>,
) -> Option<BitRate> {
    let is_of_credit = found.limit_kind() == Limit::ApplicationWindow
        && found.verdict.limit_cause() != CauseName::SshChannel;
    let counted = evidence.http2_wait.filter(|_| is_of_credit);
    counted
        .and_then(|wait| Some(BitRate::from_bytes_in(wait.window, rtt?)))
        .or_else(|| Some(credit.filter(|_| is_of_credit)?.allowed))
        .or_else(|| window_ceiling(evidence, rtt))
}

fn known_program(evidence: &Evidence) -> Option<&'static Application> {
    let program = evidence.program.as_deref()?;
    if SSH.contains(&program) {
        find_application("ssh")
    } else {
        None
    }
}

pub(crate) const CAUSES: Cause = Cause {
    captured_sentence: |view, _| {
        Some(format!(
            "The sender holds itself back, and the receiving program answers in each round trip: it may grant a window \
             of its own, as SSH does. Always about {} is in flight, though the receiver allows {} and nothing is lost; \
             {}.",
            view.flight_text(),
            view.window_text(),
            view.rate_text()
        ))
    },
    received_sentence: |arrivals, finding| {
        let credit = ProgramCredit::from_receiver(arrivals);
        let (evidence, rate, rtt) = (arrivals.evidence, arrivals.rate, arrivals.rtt);
        window_sentence(finding.verdict, evidence, rate, rtt, credit)
    },
    shown_rows: |figures| {
        let credit = ProgramCredit::from_sender(figures);
        let in_flight = credit.map(|credit| format!("{} of each connection", credit.size));
        let rows = text::trend_rows(figures).into_iter();
        [("usually on the way", in_flight)]
            .into_iter()
            .chain(rows)
            .collect()
    },
    disproof: EvidenceAmount::contradicted_by_ceiling,
    setting_remedies: remedies,
    ..Cause::new(
        &[
            "application-window/ssh-channel",
            "application-window/http2",
            "application-window/sftp",
            "application-window/smb",
            "application-window/other",
        ],
        |figures, finding| {
            let credit = ProgramCredit::from_sender(figures);
            let (evidence, rate, rtt) = (figures.evidence, figures.rate, figures.rtt);
            window_sentence(finding.verdict, evidence, rate, rtt, credit)
        },
    )
};

/// Returns the limit in one sentence, as either end sees it.
fn window_sentence(
    verdict: LegalVerdict,
    evidence: &Evidence,
    rate: BitRate,
    rtt: Option<Span>,
    credit: Option<ProgramCredit>,
) -> String {
    let is_ssh = verdict.limit_cause() == CauseName::SshChannel;
    let of_program = known_program(evidence).filter(|_| is_ssh);
    let window = of_program.and_then(|application| application.window);
    let window = window
        .or(credit.map(|credit| credit.size))
        .unwrap_or_default();
    let allowed = ceiling_of(&Finding::always(verdict), evidence, rtt, credit);
    let reached = format!(
        "over {} that is {}, and {rate} was reached. No setting of the hosts changes it.",
        rtt.unwrap_or_default(),
        allowed.unwrap_or(rate)
    );
    let (who, waits) = match verdict.limit_cause() {
        CauseName::SshChannel => {
            return format!(
                "SSH allows only {window} of a channel in flight, whatever TCP would allow; {reached}"
            );
        }
        CauseName::Http2 if let Some(wait) = evidence.http2_wait => {
            return format!(
                "HTTP/2 has a window of its own, of {} here: data waits for the receiver's WINDOW_UPDATE frames, \
                 whatever TCP would allow; {reached}",
                wait.window
            );
        }
        CauseName::Http2 => (
            if is_initial_http2(credit.and_then(|credit| credit.most)) {
                "HTTP/2 lets a connection begin with 65 535 B, and its receiver grants no more: it has"
            } else {
                "HTTP/2 has a window of its own: it has"
            },
            "data waits for the receiver's WINDOW_UPDATE frames",
        ),
        CauseName::Sftp => (
            "SFTP has so many requests under way and no more: it has",
            "the next request waits for an answer",
        ),
        CauseName::Smb => (
            "SMB has so many requests under way and no more: it has",
            "the next request waits for an answer",
        ),
        _ => (
            "The programs keep a window of their own: they have",
            "data leaves only when a message of the receiver has come",
        ),
    };
    format!(
        "{who} about {window} in flight on each connection in each round trip, whatever TCP would allow, and {waits}; \
         {reached}"
    )
}

/// Returns what leaves the flow of data to TCP, with the rate that it would then have over this
/// path, and what helps beside that.
fn remedies(advice: &RemedyAdvice) -> Vec<Option<Remedy>> {
    let (id, why, manual): (_, _, &[ManualRemedy]) = match advice.verdict.limit_cause() {
        CauseName::SshChannel => (
            "program-without-a-window",
            "`fullpipe copy` logs in by the same ssh and moves the data over connections of its own, encrypted. \
             An rsync daemon, curl (HTTPS or FTP) or iperf3 leaves the flow of data to TCP, and so does HPN-SSH \
             at both ends. The window is the program's: no setting of TCP helps.",
            &[SESSIONS_SIDE_BY_SIDE],
        ),
        CauseName::Http2 => (
            "larger-http2-window",
            "A larger window of the stream and of the connection where the data is received: Envoy \
             initial_stream_window_size and initial_connection_window_size; Go MaxReceiveBufferPerStream and \
             MaxReceiveBufferPerConnection; gRPC InitialWindowSize and InitialConnWindowSize; Node.js \
             initialWindowSize and setLocalWindowSize; Kestrel InitialStreamWindowSize and \
             InitialConnectionWindowSize; nginx client_body_buffer_size and http2_body_preread_size.",
            &[HTTP_1_1, REQUESTS_SIDE_BY_SIDE],
        ),
        CauseName::Sftp => (
            "more-requests-in-flight",
            "More requests under way, or larger ones, at the client: `sftp -R requests -B bytes`, `rclone \
             --sftp-concurrency` and `--sftp-chunk-size`, or a client that reads further ahead. From 2 MiB \
             on the window of the SSH channel binds.",
            &[STREAM_IN_PLACE_OF_SFTP, SESSIONS_SIDE_BY_SIDE],
        ),
        CauseName::Smb => (
            "more-requests-in-flight",
            "More requests under way, or larger ones: rsize and wsize of mount.cifs at a Linux client; \
             `smb2 max credits`, `smb2 max read` and `smb2 max write` of a Samba server; MaxCmds of a \
             Windows client and MaxMpxCt of its server with SMB 1.",
            &[COPIES_SIDE_BY_SIDE, STREAM_IN_PLACE_OF_REQUESTS],
        ),
        _ => (
            "larger-application-window",
            "A larger window, or more or larger requests under way, in the settings of the program that sends the \
             small messages: no setting of TCP helps.",
            &[CONNECTIONS_SIDE_BY_SIDE],
        ),
    };
    let (scope, at) = (Scope::Application, advice.verdict.limit_place());
    let manual = manual.iter().map(|manual| advice.by_a_person(manual));
    std::iter::once(advice.build_remedy(id, scope, at, Vec::new(), why.to_owned()))
        .chain(manual)
        .map(Some)
        .collect()
}

const SESSIONS_SIDE_BY_SIDE: ManualRemedy = ManualRemedy::new(
    "sessions-side-by-side",
    Scope::Application,
    "Several sessions at once, each with a part of the files: each connection has a window of \
     its own.",
)
.at_end(At::Sender);
const HTTP_1_1: ManualRemedy = ManualRemedy::new(
    "http-1.1",
    Scope::Application,
    "HTTP/1.1 has no window of its own and leaves the flow of data to TCP: `curl --http1.1`.",
);
const REQUESTS_SIDE_BY_SIDE: ManualRemedy = ManualRemedy::new(
    "requests-side-by-side",
    Scope::Application,
    "Several connections at once, each with a part of the data: each has windows of its own.",
);
const STREAM_IN_PLACE_OF_SFTP: ManualRemedy = ManualRemedy::new(
    "stream-in-place-of-sftp",
    Scope::Application,
    "A stream needs no requests: `ssh HOST 'cat FILE'`, rsync over ssh, `scp -O`, or `fullpipe \
     copy`.",
);
const COPIES_SIDE_BY_SIDE: ManualRemedy = ManualRemedy::new(
    "copies-side-by-side",
    Scope::Application,
    "Several files at once (`robocopy /MT`), or SMB Multichannel: each has requests of its own.",
);
const STREAM_IN_PLACE_OF_REQUESTS: ManualRemedy = ManualRemedy::new(
    "stream-in-place-of-requests",
    Scope::Application,
    "A protocol that streams over long distances: HTTPS, rsync, or `fullpipe copy`.",
);
const CONNECTIONS_SIDE_BY_SIDE: ManualRemedy = ManualRemedy::new(
    "connections-side-by-side",
    Scope::Application,
    "Several connections at once, each with a part of the data: each has a window of its own.",
);

impl CaptureView<'_> {
    /// Returns true if the receiving program sends something in each round trip, as one does that
    /// grants a window of its own.
    pub(crate) fn is_answered_in_each_round_trip(&self) -> bool {
        let a_round_trip = self.figures.rtt.map(|rtt| self.figures.rate.bytes_in(rtt));
        a_round_trip.is_some_and(|size| {
            self.capture.answers as f64 * size.as_f64() >= self.acknowledged_bytes().as_f64()
        })
    }

    /// Returns the data that was acknowledged, all streams together.
    fn acknowledged_bytes(&self) -> ByteCount {
        self.figures
            .flows
            .iter()
            .filter_map(|flow| Some(flow.whole.last()?.bytes))
            .sum()
    }
}
