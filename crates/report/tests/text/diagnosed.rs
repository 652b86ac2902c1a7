//! Diagnoses, made from the experiment whose sender keeps 4 MiB.

use fullpipe_record::{
    At, Basis, Cause, CommandEnd, Commands, Diagnosis, Direction, Limit, OtherLimit, Remedy,
    RunnerUp, Transfer, Trial, Verdict,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::fixture;

/// A foreign program's two connections, which closed, under a name that could steer a terminal.
pub(crate) fn watched() -> Diagnosis {
    let experiment = fixture::experiment();
    let ceilings = [
        (Limit::SendBuffer, 332),
        (Limit::ReceiveWindow, 1698),
        (Limit::Capacity, 941),
    ];
    let verdict = Verdict {
        ceilings: ceilings
            .into_iter()
            .map(|(kind, mbps)| (kind, BitRate::from_mbps(mbps)))
            .collect(),
        others: vec![OtherLimit {
            kind: Limit::CongestionWindow,
            cause: Cause::Recovering,
            at: At::Path,
            share: Ratio::new(0.21),
        }],
        runner_up: Some(RunnerUp {
            kind: Limit::ReceiveWindow,
            bits_per_second: Some(BitRate::from_mbps(350)),
            share: None,
        }),
        where_time_went: Vec::new(),
        basis: Basis::Sender,
        candidates: Vec::new(),
        would_distinguish: None,
        other_end_would_show: Some("how fast its program reads".to_owned()),
        ..experiment.verdict
    };
    let transfer = Transfer {
        program: Some("rsync\u{1b}[2J".to_owned()),
        pid: Some(4711),
        local: "[2001:db8:0:1::aaaa]:40000".to_owned(),
        remote: "[2001:db8:0:2::bbbb]:873".to_owned(),
        streams: 2,
        direction: Direction::Upload,
        bytes: ByteCount::from_mib(200),
        watched: Span::from_millis(5_240),
        rate: BitRate::from_mbps(320),
        closed: true,
    };
    let undo = vec!["sysctl -w net.ipv4.tcp_wmem=\"4096 16384 4194304\"  # sender".to_owned()];
    let with_undo = |remedy: Remedy| Remedy {
        commands: Commands {
            undo: undo.clone(),
            ..remedy.commands.clone()
        },
        ..remedy
    };
    let remedies = experiment.remedies.into_iter().map(with_undo).collect();
    Diagnosis {
        transfer: Some(transfer),
        verdict,
        remedies,
        defects: Vec::new(),
        next: Vec::new(),
        evidence: None,
    }
}

pub(crate) fn unknown() -> Diagnosis {
    let verdict = Verdict {
        kind: Limit::Unknown,
        cause: Cause::EvidenceMissing,
        at: At::None,
        sentence: "What limits this transfer cannot be said.".to_owned(),
        runner_up: None,
        where_time_went: Vec::new(),
        basis: Basis::Receiver,
        ..watched().verdict
    };
    Diagnosis {
        transfer: None,
        verdict,
        remedies: Vec::new(),
        defects: Vec::new(),
        next: Vec::new(),
        evidence: None,
    }
}

pub(crate) fn command_end() -> CommandEnd {
    CommandEnd {
        words: vec!["rsync".to_owned()],
        code: Some(23),
        signal: None,
        ran: Span::from_millis(5_310),
        cpu: None,
    }
}

/// The remedy that was proven, on a real host that did not let go of it.
pub(crate) fn trial() -> Trial {
    let experiment = fixture::experiment();
    let proof = experiment.proof.unwrap();
    Trial {
        remedy: proof.remedy.id.clone(),
        predicted: proof.remedy.predicted,
        predicted_rtt: proof.remedy.rtt,
        before: BitRate::from_mbps(330),
        measured: BitRate::from_mbps(937),
        measurement: proof.measurement,
        kept: false,
        not_undone: Some("net.ipv4.tcp_wmem was left alone: somebody else changed it".to_owned()),
    }
}

pub(crate) fn for_both_ends() -> Remedy {
    let apply = ["# sender", "# receiver"]
        .map(|end| format!("sysctl -w net.ipv4.tcp_window_scaling=1  {end}"));
    let remedy = fixture::experiment().proof.unwrap().remedy;
    Remedy {
        commands: Commands {
            apply: apply.to_vec(),
            undo: Vec::new(),
            elsewhere: Vec::new(),
        },
        ..remedy
    }
}
