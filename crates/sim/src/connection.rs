//! The values that two hosts agree on in their handshake, as their settings and the path have it.

use fullpipe_model::{framing, kernel};
use fullpipe_record::{Direction, Edit, Path, PathDirection, Segmentation, Transport};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::tcp::{AutotuningRules, CongestionControl, HostClock, ReceiverSetup, SenderSetup};
use crate::{NotModelled, SimulationPlan};

/// The packets of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketSizes {
    /// IP bytes of a full segment, of one without payload, and of an acknowledgement without
    /// blocks; a tunnel's headers included.
    pub(crate) segment: ByteCount,
    /// IP bytes of a full segment once the sender knows of a narrow link, where a router answers to
    /// packets that are too big for it.
    pub(crate) narrow_segment: Option<ByteCount>,
    pub(crate) empty: ByteCount,
    pub(crate) acknowledgement: ByteCount,
    /// The shift of the receiver's windows: as the receiver applies it, and as the sender does.
    pub(crate) scales: [u8; 2],
}

/// A connection before its first data.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionSetup {
    /// Payload of a segment. Before a narrow link that answers, the first flight counts with this
    /// payload, too, though its packets are larger.
    pub(crate) mss: ByteCount,
    /// Payload of a segment that packets of the path have room for, however small the receiver's
    /// window is.
    pub(crate) advmss: ByteCount,
    /// Payload of a segment before the sender knows of a narrow link.
    first_mss: ByteCount,
    headers: ByteCount,
    pub(crate) acknowledgement: ByteCount,
    pub(crate) control: CongestionControl,
    pub(crate) timestamps: bool,
    pub(crate) handshake: Span,
    /// The shift of the receiver's windows: as the receiver applies it, and as the sender does.
    pub(crate) scales: [Option<u8>; 2],
    /// The shift that the receiver offers.
    pub(crate) offered_scale: Option<u8>,
    /// The window of the receiver's handshake segment, and the one that its next packet says.
    pub(crate) first_window: ByteCount,
    next_window: ByteCount,
    /// The `SO_SNDBUF` request of the sender, and the `SO_RCVBUF` request of the receiver.
    pub(crate) requests: [Option<ByteCount>; 2],
    send_buffer: (ByteCount, ByteCount),
    receive_buffer: (ByteCount, ByteCount),
    share: [u16; 2],
    autotuning: AutotuningRules,
}

impl ConnectionSetup {
    /// Fails if the plan asks for something that is not modelled.
    pub(crate) fn new(plan: &SimulationPlan) -> Result<Self, NotModelled> {
        refuse_unmodelled(plan)?;
        let SimulationPlan {
            path,
            sender,
            receiver,
            ..
        } = plan;
        let control = requested_control(plan)?;
        let is_stripped = path.edits().any(|edit| *edit == Edit::StripTimestamps);
        let timestamps = sender.timestamps && receiver.timestamps && !is_stripped;
        let [first_mss, mss] = [path.forward.inner_mtu(), path.forward.known_mtu()]
            .map(|mtu| segment_size(plan, mtu, timestamps));
        if mss == ByteCount::ZERO {
            return Err(NotModelled::NoPayload);
        }
        let requests = [plan.request.send_buffer(), plan.request.receive_buffer()]
            .map(|buffer| kernel::socket_request(receiver, buffer, mss));
        let [sndbuf, rcvbuf] = requests;
        let headers = framing::tcp_headers(path.forward.ip, timestamps);
        let buffer = match rcvbuf {
            Some(request) => kernel::ReceiveBuffer::fixed_buffer(receiver, request),
            None => kernel::ReceiveBuffer::autotuned_buffer(receiver),
        }
        .with_packets(receiver, mss);
        let is_tuned = rcvbuf.is_none() && receiver.moderate_rcvbuf;
        let at_first = match rcvbuf {
            Some(_) => buffer.buffer_bytes(),
            None => receiver.tcp_rmem.default,
        };
        let first_share = kernel::WindowShare::at_first(receiver);
        let space = first_share.window_from_space(at_first);
        let first_window = match rcvbuf {
            Some(_) => kernel::offered_at_first(space, mss),
            None => kernel::first_window(receiver, mss),
        };
        let scales = window_scales(plan, buffer.window_shift());
        let next_window =
            kernel::window_behind_handshake(receiver, [space, first_window], mss, scales[0]);
        // A window that grows later lets the kernel send longer segments, too. Here they keep their
        // first size.
        let offered = if is_tuned {
            first_window
        } else {
            buffer.max_window()
        };
        let window = lowered_field(path, first_window).max(arriving_window(path, offered, scales));
        let advmss = mss;
        let [first_mss, mss] = [first_mss, mss].map(|mss| kernel::segment_in_window(mss, window));
        let buffer = buffer.with_packets(receiver, mss);
        // Systems other than Linux advertise what the segment takes that is acknowledged, too.
        let unread = mss * u64::from(receiver.system.is_some());
        Ok(Self {
            mss,
            advmss,
            first_mss,
            headers: headers + tunnel_overhead(&path.forward),
            acknowledgement: headers + tunnel_overhead(&path.reverse),
            control,
            timestamps,
            handshake: handshake_time(path),
            scales,
            offered_scale: buffer.window_shift(),
            first_window,
            next_window,
            requests,
            send_buffer: sndbuf.map_or((sender.tcp_wmem.default, sender.tcp_wmem.max), |request| {
                let stored = kernel::stored_sndbuf(sender, request);
                (stored, stored)
            }),
            receive_buffer: (
                at_first + unread,
                unread
                    + if is_tuned {
                        receiver.tcp_rmem.max
                    } else {
                        at_first
                    },
            ),
            share: [first_share, buffer.window_share()].map(in_256ths),
            autotuning: if is_tuned {
                AutotuningRules::for_kernel(receiver.kernel)
            } else {
                AutotuningRules::Off
            },
        })
    }

    pub(crate) fn packet_sizes(&self) -> PacketSizes {
        PacketSizes {
            segment: self.first_mss + self.headers,
            narrow_segment: Some(self.mss + self.headers).filter(|_| self.mss < self.first_mss),
            empty: self.headers,
            acknowledgement: self.acknowledgement,
            scales: self.scales.map(Option::unwrap_or_default),
        }
    }

    pub(crate) fn sender_setup(
        &self,
        plan: &SimulationPlan,
        [clock, other]: [HostClock; 2],
        seed: u64,
    ) -> SenderSetup {
        SenderSetup {
            clock,
            echo: other.stamp_before(plan.path.reverse.delay),
            mss: self.mss,
            longest_train: match plan.path.segmentation {
                Segmentation::Trains => SegCount::new(u64::from(u16::MAX)),
                Segmentation::Exact => SegCount::new(1),
            },
            control: self.control,
            max_pacing_rate: plan.request.pacing.filter(|rate| *rate > BitRate::ZERO),
            buffer: self.send_buffer,
            handshake: self.handshake,
            first_window: self.window_before_data(&plan.path),
            window_scale: self.scales[1],
            timestamps: self.timestamps,
            seed,
        }
    }

    /// Returns the window of the receiver's handshake segment as it arrives: devices on the way
    /// lower it.
    pub(crate) fn first_window_that_arrives(&self, path: &Path) -> ByteCount {
        lowered_field(path, self.first_window)
    }

    /// Returns the window that the sender knows when its data begins: the answer to its first
    /// message may say more than the handshake could.
    fn window_before_data(&self, path: &Path) -> ByteCount {
        self.first_window_that_arrives(path).max(arriving_window(
            path,
            self.next_window,
            self.scales,
        ))
    }

    /// The receiving end of a connection that begins with `first` segments in one train.
    pub(crate) fn receiver_setup(
        &self,
        [sender, clock]: [HostClock; 2],
        first: SegCount,
    ) -> ReceiverSetup {
        let [at_first, of_single] = self.share;
        let learns = at_first != of_single && first > SegCount::new(1);
        let learnt = if learns {
            share_of_train(first.of_size(self.mss))
        } else {
            of_single
        };
        ReceiverSetup {
            clock,
            mss: self.mss,
            buffer: self.receive_buffer.0,
            max_buffer: self.receive_buffer.1,
            autotuning: self.autotuning,
            share: [at_first, learnt],
            window_scale: self.scales[0],
            first_window: self.next_window,
            max_blocks: if self.timestamps { 3 } else { 4 },
            timestamps: self.timestamps,
            echo: sender.stamp_before(Span::ZERO),
        }
    }
}

/// The congestion control of a load; any where it is of datagrams.
fn requested_control(plan: &SimulationPlan) -> Result<CongestionControl, NotModelled> {
    if plan.request.transport == Transport::Udp {
        return Ok(CongestionControl::Cubic);
    }
    let name = plan.request.congestion_at(&plan.sender);
    name.parse().map_err(NotModelled::Congestion)
}

/// The share of a train's memory that is payload, in 256ths, if a device hands it over as a whole:
/// it lies in pages, in blocks of a power of two of them (`tun_alloc_skb`, `alloc_skb_with_frags`),
/// next to a packet's structures.
fn share_of_train(payload: ByteCount) -> u16 {
    const PAGE: u64 = 4_096;
    const MAX_BLOCK: u64 = 8 * PAGE;
    const STRUCTURES: u64 = 832;
    let (mut left, mut memory) = (payload.get(), STRUCTURES);
    while left > 0 {
        let pages = left.next_multiple_of(PAGE);
        let block = (1 << pages.ilog2()).min(MAX_BLOCK);
        memory += block;
        left = left.saturating_sub(block);
    }
    (payload.get() * 256 / memory) as u16
}

fn refuse_unmodelled(plan: &SimulationPlan) -> Result<(), NotModelled> {
    let SimulationPlan {
        path,
        sender,
        receiver,
        request,
        ..
    } = plan;
    if request.direction == Direction::Both {
        return Err(NotModelled::BothDirections);
    }
    if request.multipath {
        return Err(NotModelled::Multipath);
    }
    let has_sack =
        sender.sack && receiver.sack && path.edits().all(|edit| *edit != Edit::StripSack);
    if request.transport == Transport::Tcp && !has_sack {
        return Err(NotModelled::WithoutSack);
    }
    Ok(())
}

fn segment_size(plan: &SimulationPlan, mtu: ByteCount, timestamps: bool) -> ByteCount {
    let clamp = plan.path.clamped_mss();
    let wanted = plan.request.mss.into_iter().chain(clamp).min();
    framing::segment_payload(mtu, plan.path.forward.ip, timestamps, wanted)
}

/// Bytes of each packet that the path counts on top of the hosts' own, less those of its framing,
/// which the link adds.
pub(crate) fn tunnel_overhead(way: &PathDirection) -> ByteCount {
    way.packet_overhead()
        .saturating_sub(way.framing.packet_overhead())
}

/// The longest time that a packet waits for the line in the queue of a way.
pub(crate) fn queue_time(way: &PathDirection) -> Span {
    way.rate
        .zip(way.queue)
        .map_or(Span::ZERO, |(rate, queue)| rate.time_for(queue))
}

/// The way there and back, with a packet's time on each line.
fn handshake_time(path: &Path) -> Span {
    const SYN_OPTIONS: ByteCount = ByteCount::new(20);
    let times = [&path.forward, &path.reverse]
        .into_iter()
        .filter_map(|way| {
            let bytes = framing::tcp_headers(way.ip, false) + SYN_OPTIONS + way.packet_overhead();
            let rate = way.rate.filter(|rate| *rate > BitRate::ZERO)?;
            Some(rate.time_for(bytes))
        });
    path.rtt() + times.sum::<Span>()
}

/// Returns the window field of a segment that left with `field`, as it arrives.
fn lowered_field(path: &Path, field: ByteCount) -> ByteCount {
    let clamp = path.reverse.effects.window_clamp();
    clamp.map_or(field, |most| field.min(most))
}

/// Returns a window of `window` bytes, behind the handshake, as the sender understands it.
fn arriving_window(path: &Path, window: ByteCount, scales: [Option<u8>; 2]) -> ByteCount {
    let [scale, seen] = scales.map(Option::unwrap_or_default);
    let field = ByteCount::new(window.get() >> scale).min(kernel::largest_window(None));
    ByteCount::new(lowered_field(path, field).get() << seen)
}

/// The shift of the receiver's windows as each end applies it. Middleboxes change what the other
/// end was offered: the answer to a connection attempt has the option only if the attempt had it.
fn window_scales(plan: &SimulationPlan, offered: Option<u8>) -> [Option<u8>; 2] {
    let SimulationPlan {
        path,
        sender,
        receiver,
        request,
        ..
    } = plan;
    // The sender of the data opens the connection, unless the other end asked for it.
    let sender_opens = request.direction != Direction::Download;
    let (attempt, answer) = if sender_opens {
        (&path.forward, &path.reverse)
    } else {
        (&path.reverse, &path.forward)
    };
    let [strips_attempt, strips_answer] =
        [attempt, answer].map(|way| way.effects.edits.contains(&Edit::StripWindowScale));
    if !sender.window_scaling || !receiver.window_scaling || strips_attempt {
        return [None, None];
    }
    let rewritten = path
        .reverse
        .effects
        .edits
        .iter()
        .rev()
        .find_map(|edit| match edit {
            Edit::RewriteWindowScale(shift) => Some((*shift).min(14)),
            _ => None,
        });
    let seen = rewritten.or(offered);
    match (strips_answer, sender_opens) {
        (false, _) => [offered, seen],
        // The end that opened the connection scales nothing, in either direction; the other end
        // does not know.
        (true, true) => [offered, None],
        (true, false) => [None, seen],
    }
}

/// Returns true if a device overwrites an option of the receiver's handshake segment with padding.
pub(crate) fn overwrites_options(plan: &SimulationPlan) -> bool {
    let (path, sender, receiver) = (&plan.path, &plan.sender, &plan.receiver);
    let opens = plan.request.direction == Direction::Download;
    [
        (
            Edit::StripWindowScale,
            sender.window_scaling,
            receiver.window_scaling,
        ),
        (
            Edit::StripTimestamps,
            sender.timestamps,
            receiver.timestamps,
        ),
    ]
    .iter()
    .any(|(edit, sender_has, receiver_has)| {
        // An answer has an option only if the attempt arrived with it.
        let arrived = *sender_has && !path.forward.effects.edits.contains(edit);
        path.reverse.effects.edits.contains(edit) && *receiver_has && (opens || arrived)
    })
}

fn in_256ths(share: kernel::WindowShare) -> u16 {
    share.window_from_space(ByteCount::new(256)).get() as u16
}

#[cfg(test)]
mod tests;
