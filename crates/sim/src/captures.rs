//! Captures of both ends as `pcap-savefile(5)` has them: each segment as a host's own capture holds
//! it, trains whole.

use fullpipe_link::Train;
use fullpipe_model::framing;
use fullpipe_record::{Direction, Edit, Path, PathDirection};
use fullpipe_units::{ByteCount, Span, Time};
use fullpipe_wire::{LinkType, flags, pcap_header, pcap_record};

use crate::SimulationPlan;
use crate::connection::ConnectionSetup;
use crate::packet::{PacketContent, SimulatedPacket};
use crate::tcp::{AckSegment, SegmentBurst, TimestampValue};

/// The time since 1970 that [`Time::ZERO`] stands for: November of 2023.
const BEGIN: Span = Span::from_secs(1_700_000_000);

/// Bytes of each packet that are kept, as of a capture that `measure` takes.
const SNAP_LENGTH: u32 = 128;

/// Addresses of the sender and of the receiver, as in the lab.
const ADDRESSES: [[u8; 4]; 2] = [[198, 18, 0, 1], [198, 18, 0, 2]];

/// Port of the end that did not open the connection, and of the first connection at the other end.
const SERVER: u16 = 5201;
const FIRST_CLIENT: u16 = 40_000;

/// Shift of the sender's own windows, which nothing fills.
const SENDER_SCALE: u8 = 7;

/// The field of its windows.
const SENDER_WINDOW: u16 = 502;

/// Time between the end of a handshake and the first data.
const BEFORE_DATA: Span = Span::from_micros(100);

/// One end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathEnd {
    Sender,
    Receiver,
}

/// The options of a SYN.
#[derive(Debug, Clone, Copy)]
struct SynOffer {
    mss: u16,
    scale: Option<u8>,
    /// True if a device took the scale out and left padding there, as an emulated path does.
    scale_overwritten: bool,
    timestamps: bool,
    window: u16,
}

/// The captures so far.
#[derive(Debug)]
pub(crate) struct PathCaptures {
    files: [Vec<u8>; 2],
    /// The connections whose handshakes they hold.
    opened: Vec<u32>,
    /// The SYN of each end, as it sends it and as it arrives.
    offers: [[SynOffer; 2]; 2],
    sender_opens: bool,
    handshake: Span,
    /// Time to the receiver and to the sender.
    delays: [Span; 2],
    mss: ByteCount,
}

/// A header of TCP to be written, with so many bytes of payload behind it.
struct WrittenSegment {
    from: PathEnd,
    flow: u32,
    sequence: u64,
    /// None without the flag.
    acknowledgement: Option<u64>,
    flags: u16,
    window: u16,
    options: Vec<u8>,
    payload: u64,
}

impl PathEnd {
    fn other_end(self) -> Self {
        if self == Self::Sender {
            Self::Receiver
        } else {
            Self::Sender
        }
    }
}

impl PathCaptures {
    /// Returns empty ones of the transfer of `plan` over `connection`.
    pub(crate) fn new(plan: &SimulationPlan, connection: &ConnectionSetup) -> Self {
        let Path {
            forward, reverse, ..
        } = &plan.path;
        let header = pcap_header(LinkType::RAW, SNAP_LENGTH).to_vec();
        Self {
            files: [header.clone(), header],
            opened: Vec::new(),
            offers: syn_offers(plan, connection),
            sender_opens: plan.request.direction != Direction::Download,
            handshake: connection.handshake,
            delays: [forward.delay, reverse.delay],
            mss: connection.mss,
        }
    }

    /// Returns the files of the sender and of the receiver.
    pub(crate) fn into_files(self) -> [Vec<u8>; 2] {
        self.files
    }

    /// Adds a packet that passed `end` at `at`, if it is one of TCP.
    pub(crate) fn add_packet(&mut self, end: PathEnd, at: Time, packet: &SimulatedPacket) {
        let at = at + BEGIN;
        let segment = match &packet.content {
            PacketContent::Data(data) => {
                let burst = data.segment_burst(packet.segment_count());
                self.open_connection(packet.flow, at, &burst);
                self.data_segment(packet.flow, &burst)
            }
            content => match content.clone().into_ack(0) {
                Some(ack) => self.acknowledgement_segment(packet.flow, &ack),
                None => return,
            },
        };
        self.write_segment(end, at, &segment);
    }

    fn data_segment(&self, flow: u32, burst: &SegmentBurst) -> WrittenSegment {
        let payload = if burst.is_probe {
            0
        } else {
            burst.segments.of_size(self.mss).get()
        };
        WrittenSegment {
            from: PathEnd::Sender,
            flow,
            // A probe has a number that was acknowledged (`tcp_xmit_probe_skb`).
            sequence: self.sequence_number(burst.first) - u64::from(burst.is_probe),
            acknowledgement: Some(1),
            flags: if burst.pushes { flags::PSH } else { 0 },
            window: SENDER_WINDOW,
            options: self.timestamp_option(burst.stamp.as_millis(), burst.echo.as_millis()),
            payload,
        }
    }

    fn acknowledgement_segment(&self, flow: u32, ack: &AckSegment) -> WrittenSegment {
        let mut options = self.timestamp_option(ack.stamp.as_millis(), ack.echo.as_millis());
        if !ack.blocks.is_empty() {
            options.extend([1, 1, 5, 2 + 8 * ack.blocks.len() as u8]);
            for (start, end) in ack.blocks.block_ranges(ack.next) {
                options.extend(
                    [start, end]
                        .iter()
                        .flat_map(|edge| (self.sequence_number(*edge) as u32).to_be_bytes()),
                );
            }
        }
        WrittenSegment {
            from: PathEnd::Receiver,
            flow,
            sequence: 1,
            acknowledgement: Some(self.sequence_number(ack.next)),
            flags: 0,
            window: u16::try_from(ack.window.get()).unwrap_or(u16::MAX),
            options,
            payload: 0,
        }
    }

    /// Returns the sequence number of a segment: the SYN has zero.
    fn sequence_number(&self, segment: u64) -> u64 {
        segment.wrapping_mul(self.mss.get()).wrapping_add(1)
    }

    fn timestamp_option(&self, value: u32, echo: u32) -> Vec<u8> {
        if self.offers[0][0].timestamps {
            [&[1, 1][..], &timestamp_bytes(value, echo)].concat()
        } else {
            Vec::new()
        }
    }

    /// Adds the handshake of a connection before its first data, which the sender sends at `at`,
    /// counted from 1970.
    fn open_connection(&mut self, flow: u32, at: Time, first: &SegmentBurst) {
        if self.opened.contains(&flow) {
            return;
        }
        self.opened.push(flow);
        // As the sender has it: its SYN or the answer left a handshake before the last segment
        // passed it.
        let done = time_before(at, BEFORE_DATA);
        let began = time_before(done, self.handshake);
        // The answer of the end that did not open it left when its later stamp says, or else a
        // handshake before.
        let [sender, receiver] = [first.stamp, first.echo].map(TimestampValue::as_millis);
        let millis = (self.handshake.as_micros() / 1_000) as u32;
        let [there, back] = self.delays;
        let (opens, times, [syn, answer, last]) = if self.sender_opens {
            (
                PathEnd::Sender,
                [began, began + there, done],
                [sender.wrapping_sub(millis), receiver, sender],
            )
        } else {
            (
                PathEnd::Receiver,
                [time_before(began, back), began, time_before(done, back)],
                [
                    receiver.wrapping_sub(millis),
                    sender.wrapping_sub(millis),
                    receiver,
                ],
            )
        };
        let steps = [
            (opens, times[0], None, flags::SYN, [syn, 0]),
            (
                opens.other_end(),
                times[1],
                Some(1),
                flags::SYN,
                [answer, syn],
            ),
            (opens, times[2], Some(1), 0, [last, answer]),
        ];
        for (from, at, acknowledgement, flag, stamp) in steps {
            for (place, end) in [from, from.other_end()].into_iter().enumerate() {
                let passed = if place == 0 {
                    at
                } else {
                    at + self.delays[from as usize]
                };
                let segment = self.of_handshake(from, flow, place, (acknowledgement, flag, stamp));
                self.write_segment(end, passed, &segment);
            }
        }
    }

    /// Returns a segment of a handshake as it is sent (`place` 0) or as it arrives.
    fn of_handshake(
        &self,
        from: PathEnd,
        flow: u32,
        place: usize,
        (acknowledgement, flag, [value, echo]): (Option<u64>, u16, [u32; 2]),
    ) -> WrittenSegment {
        let offer = &self.offers[from as usize][place];
        let is_syn = flag == flags::SYN;
        let (shift, options) = if is_syn {
            (0, offer.syn_options(value, echo))
        } else {
            let scale = offer.scale.unwrap_or(0);
            (scale, self.timestamp_option(value, echo))
        };
        WrittenSegment {
            from,
            flow,
            sequence: u64::from(!is_syn),
            acknowledgement,
            flags: flag,
            window: offer.window >> shift,
            options,
            payload: 0,
        }
    }

    fn write_segment(&mut self, end: PathEnd, at: Time, segment: &WrittenSegment) {
        let header = segment.tcp_header(self.sender_opens);
        let length = (header.len() as u64 + segment.payload) as u32;
        let kept = length.min(SNAP_LENGTH);
        let file = &mut self.files[end as usize];
        file.extend(pcap_record(at, kept, length));
        file.extend(header);
        file.resize(
            file.len() + kept.saturating_sub(length - segment.payload as u32) as usize,
            0,
        );
    }
}

impl SynOffer {
    /// Returns the options of a SYN with these timestamps (RFC 9293, 3.2; RFC 2018, 2; RFC 7323).
    fn syn_options(self, value: u32, echo: u32) -> Vec<u8> {
        let [high, low] = self.mss.to_be_bytes();
        let mut options = vec![2, 4, high, low, 4, 2];
        if self.timestamps {
            options.extend(timestamp_bytes(value, echo));
        } else {
            options.extend([1, 1]);
        }
        options.extend(self.scale.iter().flat_map(|shift| [1, 3, 3, *shift]));
        if self.scale_overwritten {
            options.extend([1; 4]);
        }
        options
    }

    /// Returns the offer as it arrives over `way`.
    fn after_path(self, way: &PathDirection) -> Self {
        way.effects
            .edits
            .iter()
            .fold(self, |offer, edit| match edit {
                Edit::StripWindowScale => Self {
                    scale: None,
                    scale_overwritten: offer.scale.is_some(),
                    ..offer
                },
                Edit::RewriteWindowScale(shift) => Self {
                    scale: offer.scale.map(|_| *shift),
                    ..offer
                },
                Edit::ClampMss(most) => Self {
                    mss: offer.mss.min(most.get() as u16),
                    ..offer
                },
                Edit::ClampWindow(most) => Self {
                    window: offer.window.min(most.get() as u16),
                    ..offer
                },
                Edit::StripSack | Edit::StripTimestamps | Edit::Router(_) => offer,
            })
    }
}

impl WrittenSegment {
    /// Returns the headers of IPv4 and TCP, without checksums: nothing was sent.
    fn tcp_header(&self, sender_opens: bool) -> Vec<u8> {
        let of_client = FIRST_CLIENT.wrapping_add(self.flow as u16);
        let ports = if (self.from == PathEnd::Sender) == sender_opens {
            [of_client, SERVER]
        } else {
            [SERVER, of_client]
        };
        let length = 40 + self.options.len() as u64 + self.payload;
        // Trains that are longer leave their length out, as Linux's own do (BIG TCP).
        let [high, low] = u16::try_from(length).unwrap_or(0).to_be_bytes();
        let acknowledges = self.acknowledgement.map_or(0, |_| flags::ACK);
        let words = ((5 + self.options.len() / 4) as u16) << 12;
        let mut header = vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0];
        header.extend(
            [self.from, self.from.other_end()]
                .iter()
                .flat_map(|end| ADDRESSES[*end as usize]),
        );
        header.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        header.extend((self.sequence as u32).to_be_bytes());
        header.extend((self.acknowledgement.unwrap_or(0) as u32).to_be_bytes());
        header.extend((words | self.flags | acknowledges).to_be_bytes());
        header.extend(self.window.to_be_bytes());
        header.extend([0; 4]);
        header.extend(&self.options);
        header
    }
}

/// Returns the option of timestamps (RFC 7323, 3.2).
fn timestamp_bytes(value: u32, echo: u32) -> [u8; 10] {
    let mut option = [8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
    option[2..6].copy_from_slice(&value.to_be_bytes());
    option[6..].copy_from_slice(&echo.to_be_bytes());
    option
}

/// Returns the time `span` before `at`.
fn time_before(at: Time, span: Span) -> Time {
    Time::from_nanos(at.as_nanos().saturating_sub(span.as_nanos()))
}

/// Returns the SYN of each end, as it sends it and as it arrives. The answer scales windows only if
/// it was asked to (RFC 7323, 1.3).
fn syn_offers(plan: &SimulationPlan, connection: &ConnectionSetup) -> [[SynOffer; 2]; 2] {
    let Path {
        forward, reverse, ..
    } = &plan.path;
    let mss = forward
        .inner_mtu()
        .saturating_sub(framing::tcp_headers(forward.ip, false));
    let sender_scale = plan.sender.window_scaling.then_some(SENDER_SCALE);
    let [sender, receiver] = [
        (sender_scale, ByteCount::from_kib(64)),
        (connection.offered_scale, connection.first_window),
    ]
    .map(|(scale, window)| SynOffer {
        mss: u16::try_from(mss.get()).unwrap_or(u16::MAX),
        scale,
        scale_overwritten: false,
        timestamps: connection.timestamps,
        window: u16::try_from(window.get()).unwrap_or(u16::MAX),
    });
    if plan.request.direction == Direction::Download {
        let [of_receiver, of_sender] = answered_offers([receiver, sender], [reverse, forward]);
        [of_sender, of_receiver]
    } else {
        answered_offers([sender, receiver], [forward, reverse])
    }
}

/// Returns the SYN of the end that opens the connection, and the answer, each as it is sent and as
/// it arrives over its way.
fn answered_offers(
    [first, second]: [SynOffer; 2],
    [there, back]: [&PathDirection; 2],
) -> [[SynOffer; 2]; 2] {
    let arrived = first.after_path(there);
    let answer = SynOffer {
        scale: second.scale.filter(|_| arrived.scale.is_some()),
        ..second
    };
    [[first, arrived], [answer, answer.after_path(back)]]
}
