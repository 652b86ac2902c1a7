//! Copies of files.

use fullpipe_record::{CopyLimit, CopyProgress, CopyReport, CopyTransport};

use super::completion::time_left;
use super::prelude::*;

/// Returns the summary of a copy, a line for each fact.
pub fn copy_summary(done: &CopyReport) -> String {
    let mut text = String::new();
    for failure in &done.failures {
        text += &format!("not copied: {failure}\n");
    }
    let unlisted = done.failed.saturating_sub(done.failures.len() as u64);
    if unlisted > 0 {
        text += &format!("not copied: {unlisted} more\n");
    }
    text + &copy_counts(done) + &copy_path(done)
}

fn copy_counts(done: &CopyReport) -> String {
    let CopyReport {
        bytes,
        transferred,
        duration,
        ..
    } = done;
    let files = count_noun(done.files, "file");
    let present = nonzero_count(done.present, "there already");
    let left_out = nonzero_count(done.left_out, "left out");
    if done.dry_run {
        let deleted = nonzero_count(done.deleted, "would be deleted");
        return paragraph(
            &format!("{files} with {bytes} would be copied{present}{left_out}{deleted}"),
            0,
        );
    }
    let resumed = nonzero_count(bytes.saturating_sub(*transferred), "of it before");
    let deleted = nonzero_count(done.deleted, "deleted");
    let digest = done
        .digest
        .as_ref()
        .map_text(|digest| format!("blake3 {digest}\n"));
    let verified = text_if(done.files > 0, "; every byte is verified and durable");
    let line = format!(
        "{files} with {bytes}{resumed} in {duration}{verified}{present}{left_out}{deleted}"
    );
    paragraph(&line, 0) + &digest
}

fn copy_path(done: &CopyReport) -> String {
    let Some(transport) = done.transport else {
        return String::new();
    };
    let transport = match transport {
        CopyTransport::Ssh => "inside ssh".to_owned(),
        CopyTransport::Call => "on the connection of the call".to_owned(),
        CopyTransport::Tcp | CopyTransport::TcpFromFarEnd => {
            format!("on {}", count_noun(done.streams, "TCP connection"))
        }
        CopyTransport::Quic | CopyTransport::QuicFromFarEnd => "on a QUIC connection".to_owned(),
    };
    let control = done
        .congestion_control
        .as_ref()
        .map_text(|name| format!(", {name}"));
    let lost = nonzero_count(done.retransmitted, "retransmitted");
    let saved = nonzero_count(done.saved, "saved by compression");
    let rtt = done.rtt.map_text(|rtt| format!(", RTT {rtt}"));
    let CopyReport { rate, set_up, .. } = done;
    let gave_way = done.gave_way.map_text(|part| {
        format!(
            "scavenging: gave way to other traffic {:.0} % of the time\n",
            part.as_percent()
        )
    });
    let limit = done
        .limit
        .map_text(|of| format!("limit: {}\n", copy_limit(of)));
    paragraph(
        &format!("{rate} {transport}{control}{rtt}{lost}{saved}; {set_up} to connect"),
        0,
    ) + &gave_way
        + &limit
}

/// Returns the line of progress.
pub fn copy_progress(progress: &CopyProgress) -> String {
    let CopyProgress {
        verified,
        wanted,
        rate,
        completion,
    } = progress;
    let left = completion
        .as_ref()
        .map_text(|completion| format!(", {}", time_left(completion)));
    format!("{verified} of {wanted} verified, {rate}{left}")
}

const fn copy_limit(limit: CopyLimit) -> &'static str {
    match limit {
        CopyLimit::Source => {
            "the sender's files or processor: most of the time nothing was on its way"
        }
        CopyLimit::Storage => "the receiver, which verifies and writes: its storage or processor",
        CopyLimit::ReceiveWindow => {
            "the receiver's windows (tcp_rmem); --streams opens more connections"
        }
        CopyLimit::SendBuffer => {
            "the sender's buffers (tcp_wmem); --streams opens more connections"
        }
        CopyLimit::CongestionWindow => {
            "the congestion windows, which loss or a full queue keeps small; less loss or more streams"
        }
        CopyLimit::OtherTraffic => "other traffic, to which --scavenge gives way",
        CopyLimit::RateLimit => "the rate that --bwlimit permits",
        CopyLimit::Ssh => "ssh, whose channel has a window of 2 MiB",
    }
}
