//! The places that hear of a server's events: its log, its picture, and the file with its process number.

use super::web::archived_transfer;
use super::{LogArguments, ServeArguments};
use crate::commands::live::LivePicture;
use crate::commands::log_thread::LogThread;
use crate::commands::pidfile::PidFile;
use crate::commands::prelude::*;
use crate::live::ServerUpdate;
use crate::terminal::{current_time_text, event_line};
use fullpipe_control::RefusedConnections;
use fullpipe_copy::ShareEvent;
use fullpipe_probe::ServerEvent;
use fullpipe_record::event::{
    Client, ClientFailure, ClientTest, ClientTotals, Listening, NotListening, Rejected,
    UnreportedFlows,
};
use fullpipe_store::{ArchiveLocation, NewDocument, Store};
use jiff::Timestamp;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;

/// The places that hear of a server's events: its log, its picture, and the file with its process
/// number.
pub(super) struct ServerObserver<'s> {
    pub(super) arguments: &'s ServeArguments,
    pub(super) log: &'s LogThread<LogEntry>,
    /// Port for copies alone.
    pub(super) share_address: Option<SocketAddr>,
    /// True until it is logged that a folder is shared.
    pub(super) is_share_unlogged: bool,
    pub(super) picture: Option<LivePicture<ServerUpdate>>,
    pub(super) pid_file: Option<Result<PidFile>>,
}

impl ServerObserver<'_> {
    /// Notes an event. Sets `flag`, which ends the server, if its process number cannot be written.
    pub(super) fn observe_event(&mut self, event: ServerEvent, flag: &AtomicBool) {
        let listening = match event {
            ServerEvent::Listening(address) => Some(address),
            _ => None,
        };
        if listening.is_some() && !self.writes_pid_file() {
            flag.store(true, Ordering::Relaxed);
            return;
        }
        if let Some(picture) = &self.picture {
            picture.send(ServerUpdate {
                line: describe_event(&event),
                event: event.clone(),
            });
        }
        self.log.log_event(LogEntry::Server(Box::new(event)));
        if let Some(address) = listening
            && std::mem::take(&mut self.is_share_unlogged)
        {
            let own = self.share_address;
            self.log.log_event(LogEntry::Sharing(
                own.unwrap_or(address),
                self.arguments.shared_line(address, own),
            ));
        }
    }

    /// Writes the process number once, if that is asked for: only a server that can be reached
    /// writes that it runs. Returns false if it cannot be written.
    fn writes_pid_file(&mut self) -> bool {
        let (Some(path), None) = (&self.arguments.log.pidfile, &self.pid_file) else {
            return true;
        };
        let written = PidFile::write(path, &format!("{}\n", std::process::id()));
        let written = written.map_err(|error| {
            let name = path.display();
            run_failure(format!(
                "cannot write the process number into {name}: {error}"
            ))
        });
        self.pid_file.insert(written).is_ok()
    }
}

/// An entry of the log.
pub(super) enum LogEntry {
    Server(Box<ServerEvent>),
    /// A folder is shared on this address, with the line that says so.
    Sharing(SocketAddr, String),
    Share(ShareEvent),
}

impl LogEntry {
    /// Returns one line; none of what goes on within a test.
    fn text_line(&self) -> Option<String> {
        match self {
            Self::Server(event) => describe_event(event),
            Self::Sharing(_, line) => Some(line.clone()),
            Self::Share(event) => Some(describe_copy(event)),
        }
    }

    /// Returns the record; `None` of events within a test.
    fn to_event(&self) -> Option<Event> {
        match self {
            Self::Server(event) => as_event(event),
            Self::Sharing(address, _) => Some(Event::Listening(Listening { address: *address })),
            Self::Share(event) => Some(copy_as_event(event.clone())),
        }
    }
}

/// Log of events.
pub(super) struct ServerLog {
    file: Option<File>,
    json: bool,
    /// True for a daemon: the process that starts it waits for the line that it can be reached, and
    /// ends after that.
    silent_after_listening: bool,
    silent: bool,
    /// The archive for transfers of the web.
    archive: Option<ArchiveLocation>,
}

impl ServerLog {
    pub(super) fn open(arguments: &LogArguments, archive: Option<ArchiveLocation>) -> Result<Self> {
        let file = arguments.logfile.as_ref().map(|path| {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.map_err(cannot(&format!("write the log {}", path.display())))
        });
        Ok(Self {
            file: file.transpose()?,
            json: arguments.json_lines,
            silent_after_listening: arguments.daemon,
            silent: false,
            archive,
        })
    }

    /// Keeps a transfer of the web that has been judged, if there is an archive for it. Of one that
    /// ended early, the document says so.
    fn keep_transfer(&self, noted: &LogEntry) -> Result {
        let (Some(place), LogEntry::Server(event)) = (&self.archive, noted) else {
            return Ok(());
        };
        if let ServerEvent::Ended {
            client,
            measurement: Some(measurement),
            ..
        }
        | ServerEvent::Failed {
            client,
            measurement: Some(measurement),
            ..
        } = &**event
            && measurement.limit.is_some()
        {
            let document = archived_transfer(client.ip(), measurement);
            let mut store = Store::create(place)?;
            for new in NewDocument::from_document(&document, Timestamp::now()) {
                store.put_document(&new)?;
            }
        }
        Ok(())
    }

    pub(super) fn write_entry(&mut self, noted: &LogEntry) {
        if let Err(failure) = self.keep_transfer(noted) {
            Terminal::print_error(&format!("a transfer is not kept: {}", failure.message));
        }
        let now = current_time_text(jiff::Unit::Second);
        let line = if self.json {
            noted.to_event().map(|event| event_line(&event, &now))
        } else {
            noted.text_line()
        };
        let Some(line) = line else { return };
        if let Some(file) = &mut self.file {
            let stamped = if self.json {
                format!("{line}\n")
            } else {
                format!("{now} {line}\n")
            };
            // A full disk is no reason to stop serving.
            let _ = file.write_all(stamped.as_bytes());
        }
        if !self.silent && (self.file.is_none() || self.silent_after_listening) {
            Terminal::print_line(&line);
        }
        self.silent |= self.silent_after_listening;
    }
}

/// One line; none of what goes on within a test.
fn describe_event(event: &ServerEvent) -> Option<String> {
    Some(match event {
        ServerEvent::Connected { .. } | ServerEvent::Interval { .. } => return None,
        ServerEvent::Listening(address) => format!("listening on {address}"),
        ServerEvent::ListeningForWeb(address) => format!("serving the web on https://{address}/"),
        ServerEvent::NotListening { why } => {
            format!("{why}; going on without: iperf2 clients may call the other port")
        }
        ServerEvent::Began {
            client,
            request,
            ticket,
        } => {
            let slot = ticket
                .as_ref()
                .map_text(|ticket| format!(", slot {} of {}", ticket.slot, ticket.client));
            format!("{client}: {}{slot}", describe_test(request))
        }
        ServerEvent::BeganIperf2 { client } => format!("{client}: receiving, 1 stream of iperf2"),
        ServerEvent::Ended {
            client,
            bytes,
            rate,
            measurement,
        } => {
            let verdict = verdict_text(measurement.as_deref());
            format!("{client}: done at {rate}, {bytes}{verdict}")
        }
        ServerEvent::Failed {
            client,
            why,
            measurement,
            ..
        } => format!("{client}: {why}{}", verdict_text(measurement.as_deref())),
        ServerEvent::Rejected(refused) => rejected_line(refused),
        ServerEvent::UnreportedFlows { flows } => {
            format!(
                "{} of iperf2 datagrams began",
                count_noun(flows, "more flow")
            )
        }
        ServerEvent::Idle => "nobody came: ending".to_owned(),
    })
}

/// Returns the sentence on the limit of a test that was judged, as the end of a line.
fn verdict_text(measurement: Option<&Measurement>) -> String {
    let verdict = measurement.and_then(|test| test.limit.as_ref());
    verdict.map_text(|verdict| format!(": {}", verdict.sentence))
}

fn describe_test(request: &Request) -> String {
    let direction = match request.direction {
        Direction::Upload => "receiving",
        Direction::Download => "sending",
        Direction::Both => "sending and receiving",
    };
    format!("{direction}, {}", count_noun(request.streams, "stream"))
}

/// Returns the record of an event; `None` for those within a test.
fn as_event(event: &ServerEvent) -> Option<Event> {
    Some(match event.clone() {
        ServerEvent::Connected { .. } | ServerEvent::Interval { .. } => return None,
        ServerEvent::Listening(address) | ServerEvent::ListeningForWeb(address) => {
            Event::Listening(Listening { address })
        }
        ServerEvent::NotListening { why } => Event::NotListening(NotListening { why }),
        ServerEvent::Began {
            client, request, ..
        } => Event::Began(Box::new(ClientTest { client, request })),
        ServerEvent::BeganIperf2 { client } => Event::BeganIperf2(Client { client }),
        ServerEvent::Ended {
            measurement: Some(measurement),
            ..
        }
        | ServerEvent::Failed {
            measurement: Some(measurement),
            ..
        } if measurement.limit.is_some() => Event::Measurement(measurement),
        ServerEvent::Ended {
            client,
            bytes,
            rate,
            ..
        } => Event::Ended(ClientTotals {
            client,
            bytes,
            rate,
        }),
        ServerEvent::Failed { client, why, .. } => Event::Failed(ClientFailure { client, why }),
        ServerEvent::Rejected(refused) => rejected_event(refused),
        ServerEvent::UnreportedFlows { flows } => Event::UnreportedFlows(UnreportedFlows { flows }),
        ServerEvent::Idle => Event::Idle,
    })
}

fn describe_copy(event: &ShareEvent) -> String {
    match event {
        ShareEvent::Copied {
            client,
            bytes,
            rate,
        } => format!("{client}: copied {bytes} at {rate}"),
        ShareEvent::Failed { client, why } => format!("{client}: {why}"),
        ShareEvent::Rejected(refused) => rejected_line(refused),
    }
}

fn copy_as_event(event: ShareEvent) -> Event {
    match event {
        ShareEvent::Copied {
            client,
            bytes,
            rate,
        } => Event::Ended(ClientTotals {
            client,
            bytes,
            rate,
        }),
        ShareEvent::Failed { client, why } => Event::Failed(ClientFailure { client, why }),
        ShareEvent::Rejected(refused) => rejected_event(refused),
    }
}

/// Returns one line for connections that a server has refused.
pub(crate) fn rejected_line(refused: &RefusedConnections) -> String {
    let RefusedConnections {
        client,
        why,
        connections,
    } = refused;
    match connections {
        1 => format!("{client}: rejected: {why}"),
        _ => format!("{connections} more connections rejected, the last of {client}: {why}"),
    }
}

/// Returns the record of connections that a server has refused.
pub(crate) fn rejected_event(refused: RefusedConnections) -> Event {
    let RefusedConnections {
        client,
        why,
        connections,
    } = refused;
    Event::Rejected(Rejected {
        client,
        why,
        connections,
    })
}
