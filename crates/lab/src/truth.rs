//! The record of what the link did to the packets of a capture.

use std::fs;
use std::io;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex};

use fullpipe_link::{PacketIncident, cut_train};
use fullpipe_record::{
    Content, DirectionTruth, Document, Edit, EditTruth, PacketTruth, Path, PathTruth,
};
use fullpipe_sys::lock;
use fullpipe_units::{SegCount, Span, Time};

use crate::packet::LinkPacket;
use crate::protocol::Host;

/// Packets that are listed at the most in each direction: about 15 MB of text.
const MAX_PACKETS: usize = 65_536;

/// The part of the record that one direction of the link writes.
#[derive(Debug, Clone)]
pub(crate) struct TruthLog {
    /// Begin of the capture.
    began: Time,
    direction: Arc<Mutex<DirectionTruth>>,
}

impl TruthLog {
    pub(crate) fn new(began: Time) -> Self {
        Self {
            began,
            direction: Arc::default(),
        }
    }

    /// Adds the packets of `incidents`.
    pub(crate) fn add_incidents(&self, incidents: Vec<PacketIncident<LinkPacket>>) {
        if incidents.is_empty() {
            return;
        }
        let mut direction = lock(&self.direction);
        for PacketIncident {
            at,
            fate,
            queue,
            train,
        } in incidents
        {
            let at = at.duration_since(self.began);
            for packet in cut_train(train, SegCount::new(1)) {
                if direction.packets.len() < MAX_PACKETS {
                    direction.packets.push(PacketTruth {
                        at,
                        fate,
                        queue,
                        segment: packet.segment_truth(),
                    });
                } else {
                    direction.left_out += 1;
                }
            }
        }
    }

    /// Takes note of how many packets each edit changed.
    pub(crate) fn record_edits(&self, edits: &[(Edit, SegCount)]) {
        lock(&self.direction).edits = edits
            .iter()
            .map(|(edit, packets)| EditTruth {
                edit: *edit,
                fields: edit.changed_fields(),
                packets: packets.get(),
            })
            .collect();
    }

    fn take_truth(&self) -> DirectionTruth {
        let mut direction = std::mem::take(&mut *lock(&self.direction));
        // Packets that overtake others are known once they arrive, which is later than they left
        // the link.
        direction.packets.sort_by_key(|packet| packet.at);
        direction
    }
}

/// Writes the record of both directions of `path` to `file`. `began` is the begin of the capture
/// since 1970.
pub(crate) fn write_truth(
    file: &FilePath,
    name: &str,
    began: Span,
    path: &Path,
    logs: &[TruthLog; 2],
) -> io::Result<()> {
    let path_truth = Box::new(PathTruth {
        name: name.to_owned(),
        began,
        path: path.clone(),
        capacity: path.forward.rate,
        rtt: path.rtt(),
        directions: Host::ALL.map(|host| logs[host.index()].take_truth()),
    });
    let mut line = Document::new(Content::PathTruth { path_truth }).to_json();
    line.push(b'\n');
    fs::write(file, line)
}
