//! The ways that data may take: TCP connections in either direction, QUIC, or that of the messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fullpipe_model::improvement::can_tolerate_loss;
use fullpipe_record::{CopyTransport, HostSettings};
use fullpipe_units::{Span, printable_line};

use super::reached::{ConnectedData, ReachedFarEnd};
use super::{NearCopy, POLL_INTERVAL};
use crate::address::at_port;
use crate::connect::{CONNECT_DEADLINE, DataListener, dial_at_once, dial_hosts};
use crate::data_stream::{DataConnections, DataStream};
use crate::options::{DataTransport, FarHost};
use crate::protocol::CopyMessage;
use crate::quic::{HANDSHAKE_DEADLINE, QuicConnection, QuicListener, USUAL_STREAMS};
use crate::tuning::{ConnectionChoice, MAX_CHOSEN, choose_connections, quic_reason};

/// Time for the handshake of a QUIC connection that nothing waits for but the data, if round trips
/// are short.
const SHORT_HANDSHAKE: Span = Span::from_millis(300);

/// Time for a message to reach the far end.
const MESSAGE_TIME: Duration = Duration::from_secs(1);

/// The round-trip time from which windows of 64 KiB are short.
const LONG_FOR_A_WINDOW: Span = Span::from_millis(2);

impl NearCopy {
    /// Returns the number of connections to make before the server has answered. Its settings are
    /// not known yet; mostly they are like those of this host.
    pub(super) fn early_connections(&self, rtt: Span, own: &HostSettings) -> u16 {
        let options = &self.options;
        // Unencrypted data takes the port that the server answers with.
        if options.dry_run
            || options.transport == DataTransport::Quic
            || !options.unencrypted.is_empty()
        {
            return 0;
        }
        self.connection_choice(rtt, [own, own])
            .count
            .min(MAX_CHOSEN)
    }

    /// Makes connections for data: to the far end, from it, or none, so that ssh carries the data.
    pub(super) fn connect_data(&self, far: &ReachedFarEnd<'_>) -> ConnectedData {
        if self.options.dry_run {
            return far.without_connections("nothing is copied: this is a dry run".to_owned());
        }
        if self.options.transport != DataTransport::Quic {
            return self.connect_by_tcp(far);
        }
        self.connect_by_quic(far).unwrap_or_else(|why| {
            self.connect_by_tcp(far)
                .with_note(&format!("; not QUIC, because {why}"))
        })
    }

    fn connect_by_tcp(&self, far: &ReachedFarEnd<'_>) -> ConnectedData {
        let mut chosen = None;
        let dialled = self.dial_far_end(far, &mut |rtt| {
            chosen
                .insert(self.connection_choice(rtt, far.settings))
                .count
        });
        let why = match dialled {
            Ok(streams) => {
                let rtt = streams
                    .first()
                    .and_then(DataStream::min_rtt)
                    .unwrap_or_default();
                let choice = chosen.unwrap_or_else(|| self.connection_choice(rtt, far.settings));
                return self.connected_by_tcp(far, streams, rtt, choice);
            }
            Err(why) => why,
        };
        match self.find_another_way(far) {
            Some(AnotherWay::FromFarEnd(listener, first)) => self
                .connected_from_far_end(far, &listener, *first)
                .with_note(&format!("; they come from the far end, because {why}")),
            Some(AnotherWay::Quic(connection)) => self
                .connected_by_quic(far, connection, CopyTransport::Quic)
                .with_note(&format!(
                    "; not TCP, because {why}, and it cannot reach this host"
                )),
            None => {
                let what = self.carried_by_messages();
                far.without_connections(format!("{what}: {why}, and it cannot reach this host"))
            }
        }
    }

    /// Takes TCP connections that the far end makes.
    fn connected_from_far_end(
        &self,
        far: &ReachedFarEnd<'_>,
        listener: &DataListener,
        first: DataStream,
    ) -> ConnectedData {
        let rtt = first.min_rtt().unwrap_or_default();
        let choice = self.connection_choice(rtt, far.settings);
        far.announce_streams(choice.count, choice.active, 0);
        let mut streams = vec![first];
        streams.extend(listener.take_streams(usize::from(choice.count) - 1, CONNECT_DEADLINE));
        ConnectedData {
            reason: choice.reason + self.encryption_note(&streams),
            connections: DataConnections {
                streams,
                active: choice.active,
                quic: None,
                rtt,
            },
            transport: CopyTransport::TcpFromFarEnd,
        }
    }

    /// Returns a clause on the connection of the messages, which carries the data.
    fn carried_by_messages(&self) -> String {
        let what = match self.plan.host {
            FarHost::Ssh { .. } => "ssh carries the data, within its own windows",
            FarHost::Server { .. } => "the connection of the messages carries the data",
        };
        if self.options.scavenge {
            format!("{what}, and does not give way")
        } else {
            what.to_owned()
        }
    }

    /// Chooses the number of TCP connections. `settings` are those of this host and the other one.
    fn connection_choice(&self, rtt: Span, settings: [&HostSettings; 2]) -> ConnectionChoice {
        let ends = self.sender_first(settings);
        let may_use_bbr = !self.options.no_bbr && can_tolerate_loss(ends[0]);
        choose_connections(self.options.streams, may_use_bbr, rtt, ends)
    }

    /// Asks the far end for a TCP connection, and meanwhile calls it by QUIC, where this end cannot
    /// reach it by TCP.
    fn find_another_way(&self, far: &ReachedFarEnd<'_>) -> Option<AnotherWay> {
        let listener = DataListener::start_listening(
            None,
            self.options.ports.unwrap_or_default(),
            far.credentials,
        )
        .ok();
        let may_be_quic = self.options.transport == DataTransport::Auto;
        let called = may_be_quic.then(|| far.begin_to_dial_quic()).flatten();
        let mut until = Instant::now() + CONNECT_DEADLINE;
        let Some(listener) = listener else {
            let made = called?.recv_timeout(CONNECT_DEADLINE).ok()?;
            return made.ok().map(AnotherWay::Quic);
        };
        let port = listener.port;
        far.out.send_message(&CopyMessage::Dial { port });
        let mut quic = None;
        while Instant::now() < until && !far.is_over.is_raised() {
            if let Some(first) = listener.take_streams(1, POLL_INTERVAL).pop() {
                return Some(AnotherWay::FromFarEnd(listener, Box::new(first)));
            }
            if let Some(Ok(connection)) = called.as_ref().and_then(|called| called.try_recv().ok())
            {
                // A TCP connection takes three more round trips, if it comes.
                let wait = (connection.handshake_rtt() * 4).max(SHORT_HANDSHAKE);
                until = until.min(Instant::now() + Duration::from(wait));
                quic = Some(connection);
            }
        }
        quic.map(AnotherWay::Quic)
    }

    /// Chooses among TCP connections that were made, and QUIC in their place or next to them.
    fn connected_by_tcp(
        &self,
        far: &ReachedFarEnd<'_>,
        streams: Vec<DataStream>,
        rtt: Span,
        choice: ConnectionChoice,
    ) -> ConnectedData {
        let why = self.reason_for_quic(far, &streams, rtt);
        let dialled = why.map(|why| (why, far.dial_quic((rtt * 4).max(SHORT_HANDSHAKE).into())));
        let (quic, note) = match dialled {
            Some((ReasonForQuic::Scaling, Ok(connection))) => {
                return self
                    .connected_by_quic(far, connection, CopyTransport::Quic)
                    .with_note(": a device on the way takes window scaling away from TCP");
            }
            Some((ReasonForQuic::NoBbr, Ok(connection))) => {
                let note =
                    "; QUIC stands by, because the sender may not use BBR with TCP".to_owned();
                (Some((Arc::new(connection), self.quic_streams())), note)
            }
            Some((_, Err(error))) => (
                None,
                format!("; QUIC does not stand by, because UDP does not pass ({error})"),
            ),
            None => (None, String::new()),
        };
        let ConnectionChoice { active, reason, .. } = choice;
        far.announce_streams(
            streams.len() as u16,
            active,
            quic.as_ref().map_or(0, |(_, streams)| *streams),
        );
        let reason = reason + self.encryption_note(&streams) + &note;
        ConnectedData {
            connections: DataConnections {
                streams,
                active,
                quic,
                rtt,
            },
            transport: CopyTransport::Tcp,
            reason,
        }
    }

    /// Returns the reason for which QUIC would help where TCP connections stand already, if there
    /// is one.
    fn reason_for_quic(
        &self,
        far: &ReachedFarEnd<'_>,
        streams: &[DataStream],
        rtt: Span,
    ) -> Option<ReasonForQuic> {
        if !self.may_use_quic() || far.ready.quic_port == 0 {
            return None;
        }
        let has_scaling = far.settings.iter().all(|settings| settings.window_scaling);
        if has_scaling
            && rtt >= LONG_FOR_A_WINDOW
            && streams.first().is_some_and(DataStream::lost_scaling)
        {
            return Some(ReasonForQuic::Scaling);
        }
        let [sender, _] = self.sender_first(far.settings);
        (!self.options.no_bbr && !can_tolerate_loss(sender)).then_some(ReasonForQuic::NoBbr)
    }

    /// Returns the settings of this host and the other one in the order of sender and receiver.
    fn sender_first<'s>(&self, [own, other]: [&'s HostSettings; 2]) -> [&'s HostSettings; 2] {
        if self.plan.far_sends {
            [other, own]
        } else {
            [own, other]
        }
    }

    /// Returns true if the far end shall listen for QUIC.
    pub(super) fn may_use_quic(&self) -> bool {
        let is_plain =
            self.options.unencrypted.is_empty() && !self.options.scavenge && !self.options.dry_run;
        is_plain && self.options.transport != DataTransport::Tcp
    }

    fn quic_streams(&self) -> u16 {
        self.options.streams.unwrap_or(USUAL_STREAMS)
    }

    fn connect_by_quic(&self, far: &ReachedFarEnd<'_>) -> Result<ConnectedData, String> {
        let why = match far.dial_quic(HANDSHAKE_DEADLINE) {
            Ok(connection) => {
                return Ok(self.connected_by_quic(far, connection, CopyTransport::Quic));
            }
            Err(error) => {
                let host = printable_line(self.plan.host.host_name());
                let port = far.ready.quic_port;
                format!("{host} cannot be reached at UDP port {port} ({error})")
            }
        };
        let ports = self.options.ports.unwrap_or_default();
        let listener = QuicListener::start_listening(None, ports, far.secret).ok();
        let from_far_end = listener.and_then(|listener| {
            far.out.send_message(&CopyMessage::DialQuic {
                port: listener.port,
            });
            listener.take_connection(HANDSHAKE_DEADLINE + MESSAGE_TIME)
        });
        let connection =
            from_far_end.ok_or_else(|| format!("{why}, and it cannot reach this host"))?;
        Ok(self
            .connected_by_quic(far, connection, CopyTransport::QuicFromFarEnd)
            .with_note(&format!("; it comes from the far end, because {why}")))
    }

    fn connected_by_quic(
        &self,
        far: &ReachedFarEnd<'_>,
        connection: QuicConnection,
        transport: CopyTransport,
    ) -> ConnectedData {
        let (count, rtt) = (self.quic_streams(), connection.handshake_rtt());
        far.announce_streams(0, 0, count);
        let reason = quic_reason(self.options.streams, count, rtt);
        let connections = DataConnections {
            quic: Some((Arc::new(connection), count)),
            rtt,
            ..DataConnections::without_streams()
        };
        ConnectedData {
            connections,
            transport,
            reason,
        }
    }

    /// Returns a clause on the encryption of the data, if the user asked for none.
    fn encryption_note(&self, streams: &[DataStream]) -> &'static str {
        match () {
            () if self.options.unencrypted.is_empty() => "",
            () if streams.iter().any(DataStream::is_encrypted) => {
                "; encrypted, because --insecure-data does not name both addresses"
            }
            () => "; not encrypted, as asked for",
        }
    }

    fn dial_far_end(
        &self,
        far: &ReachedFarEnd<'_>,
        count: &mut dyn FnMut(Span) -> u16,
    ) -> Result<Vec<DataStream>, String> {
        let joined = far.join_early(count);
        if !joined.is_empty() {
            return Ok(joined);
        }
        let port = far.ready.port;
        if port == 0 {
            return Err("the far end has no free port of the range".to_owned());
        }
        let made = match far.server {
            Some((address, rtt)) => {
                let at_once = dial_at_once(at_port(address, port), far.credentials, count(rtt));
                at_once.or_else(|error| match far.hosts.get(1..) {
                    Some(others @ [_, ..]) => {
                        Ok(dial_hosts(others, port, far.credentials, count)?.1)
                    }
                    _ => Err(error),
                })
            }
            None => dial_hosts(&far.hosts, port, far.credentials, count).map(|(_, made)| made),
        };
        made.map_err(|error| {
            let host = printable_line(self.plan.host.host_name());
            format!("{host} cannot be reached at port {port} ({error})")
        })
    }
}

/// A way for data where this end cannot reach the far one by TCP.
enum AnotherWay {
    /// The first of TCP connections that the far end makes.
    FromFarEnd(DataListener, Box<DataStream>),
    Quic(QuicConnection),
}

/// The reason for which QUIC would help.
#[derive(Clone, Copy)]
enum ReasonForQuic {
    /// A device on the way takes window scaling away.
    Scaling,
    /// The sender may not use BBR, if packets are lost.
    NoBbr,
}
