//! A connection that is followed, with the packets that wait to be added to it.

use std::net::{IpAddr, SocketAddr};

use fullpipe_record::FlowReport;
use fullpipe_units::{ByteCount, Time};
use fullpipe_wire::flags;

use crate::closing::ConnectionClosing;
use crate::flow::{FirstPacket, FlowState};
use crate::key::FlowKey;
use crate::packet::FlowPacket;
use crate::passages::PacketTimes;
use crate::waiting::{BLOCK, PacketBlocks, WaitingPackets};

/// A connection so far. Of many connections no cache holds the state, so it is read and written
/// once for a block of packets. A connection that has no more than [`WaitingPackets::MAX`] takes no
/// room for a state before it ends.
#[derive(Debug)]
pub(crate) struct FollowedFlow {
    waiting: WaitingPackets,
    last: Time,
    /// Bytes that its state takes beyond its own size, with the packets that wait for it.
    room: usize,
    /// The state before the packets that wait.
    flow: Option<Box<FlowState>>,
    begin: FirstPacket,
    /// Another network that one of its directions passes in.
    other_network: Option<u32>,
    closing: ConnectionClosing,
    /// Number of the segment with which it was opened.
    order: u64,
    /// Data of each end, once its figures were returned.
    sent: [u64; 2],
    /// True if the times of its packets are kept.
    keeps_times: bool,
    /// True once details were left out.
    is_thinned: bool,
    /// True once a SYN came that may open another connection between the same ports.
    pub(crate) expects_another: bool,
    /// Packets that were added at once since the room was counted last.
    uncounted: u8,
}

impl FollowedFlow {
    /// Returns a connection without a packet, which is opened with segment number `order`. With
    /// `keeps_times`, the times of its packets are kept.
    pub(crate) fn new(begin: FirstPacket, order: u64, keeps_times: bool) -> Self {
        Self {
            waiting: WaitingPackets::default(),
            last: begin.at,
            room: 0,
            flow: None,
            begin,
            other_network: None,
            closing: ConnectionClosing::default(),
            order,
            sent: [0; 2],
            keeps_times,
            is_thinned: false,
            expects_another: false,
            uncounted: 0,
        }
    }

    /// Adds a packet behind another one of this connection, whose state is in the caches. Returns
    /// by how many bytes that has grown beyond its own size since that was counted last.
    #[inline]
    pub(crate) fn add_next(&mut self, packet: &FlowPacket, blocks: &mut PacketBlocks) -> isize {
        let flow = self.flow.as_mut().filter(|_| self.waiting.len() == 0);
        let Some(flow) = flow else {
            return self.add_packet(packet, blocks);
        };
        flow.add_packet(packet);
        self.record_packet(packet, blocks);
        self.uncounted += 1;
        if usize::from(self.uncounted) < BLOCK {
            0
        } else {
            self.memory_growth()
        }
    }

    /// Adds a packet. Returns by how many bytes its state has grown beyond its own size since that
    /// was counted last.
    #[inline]
    pub(crate) fn add_packet(&mut self, packet: &FlowPacket, blocks: &mut PacketBlocks) -> isize {
        self.record_packet(packet, blocks);
        self.waiting.push(*packet, blocks);
        if self.waiting.len()
            < if self.flow.is_some() {
                BLOCK
            } else {
                WaitingPackets::MAX
            }
        {
            return 0;
        }
        self.caught_up(blocks);
        self.waiting.clear_packets(blocks);
        self.memory_growth()
    }

    /// Takes note of the time of a packet, and of what opens or ends a connection.
    #[inline]
    fn record_packet(&mut self, packet: &FlowPacket, blocks: &PacketBlocks) {
        self.last = self.last.max(packet.at);
        if packet.flags & (flags::SYN | flags::FIN | flags::RST) != 0 {
            self.closing
                .record_packet(packet, self.begin.is_from_first(packet));
            if packet.has_flags(flags::RST) {
                self.closing.record_reset(self.next_sequences(blocks));
            }
        } else {
            self.closing.go_on(packet, self.begin.is_from_first(packet));
        }
    }

    /// Returns about the number behind the last one that each end sent.
    fn next_sequences(&self, blocks: &PacketBlocks) -> [Option<u32>; 2] {
        self.last_numbers(blocks, FlowState::next_sequences, |packet| {
            (!packet.has_flags(flags::RST)).then(|| packet.next_sequence())
        })
    }

    /// Returns a number of each end: as its state has it, or the last packet that waits.
    fn last_numbers(
        &self,
        blocks: &PacketBlocks,
        of_state: fn(&FlowState) -> [Option<u32>; 2],
        of_packet: fn(&FlowPacket) -> Option<u32>,
    ) -> [Option<u32>; 2] {
        let mut numbers = self.flow.as_deref().map_or([None; 2], of_state);
        for packet in self.waiting.packets(blocks) {
            let number = &mut numbers[usize::from(!self.begin.is_from_first(packet))];
            *number = of_packet(packet).or(*number);
        }
        numbers
    }

    fn memory_growth(&mut self) -> isize {
        let before = self.room;
        self.count_room();
        self.uncounted = 0;
        self.room.cast_signed() - before.cast_signed()
    }

    /// Returns the state of the connection with all packets that waited.
    fn caught_up(&mut self, blocks: &PacketBlocks) -> &mut FlowState {
        let flow = self
            .flow
            .get_or_insert_with(|| Box::new(FlowState::new(&self.begin, self.keeps_times)));
        self.waiting
            .packets(blocks)
            .for_each(|packet| flow.add_packet(packet));
        flow
    }

    /// Adds all packets to its state.
    pub(crate) fn catch_up(&mut self, blocks: &PacketBlocks) {
        self.caught_up(blocks);
        self.waiting.forget_packets();
    }

    /// Returns the state of the connection as it was after [`FollowedFlow::catch_up`].
    pub(crate) fn flow_state(&self) -> Option<&FlowState> {
        self.flow.as_deref()
    }

    /// Returns the packets of the connection that wait.
    #[inline]
    pub(crate) fn waiting_packets(&self) -> &WaitingPackets {
        &self.waiting
    }

    /// Moves its packets that wait to blocks of a part of the connections.
    pub(crate) fn move_waiting(&mut self, blocks: &PacketBlocks, part: &mut PacketBlocks) {
        self.waiting = self.waiting.copied_to(blocks, part);
    }

    /// Adds `shift` to the numbers of its blocks.
    pub(crate) fn shift_blocks(&mut self, shift: u32) {
        self.waiting.shift_blocks(shift);
    }

    /// Gives its blocks back.
    pub(crate) fn release_blocks(&mut self, blocks: &mut PacketBlocks) {
        self.waiting.release_blocks(blocks);
    }

    fn count_room(&mut self) {
        self.room = self
            .flow
            .as_ref()
            .map_or(0, |flow| flow.heap_bytes() + self.waiting.heap_bytes());
    }

    /// Returns the bytes that its state took beyond its own size when that was counted last.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.room
    }

    /// Leaves out the details that take most room. Returns true the first time.
    pub(crate) fn reduce_memory(&mut self) -> bool {
        let Some(flow) = &mut self.flow else {
            return false;
        };
        flow.reduce_memory();
        self.count_room();
        !std::mem::replace(&mut self.is_thinned, true)
    }

    /// Returns the figures of the connection without its number, and as if the capture began with
    /// it; and the times of its packets, if they are kept. The state of a small connection is
    /// forgotten again: its packets take less room.
    pub(crate) fn take_report(
        &mut self,
        blocks: &PacketBlocks,
    ) -> (FlowReport, Option<PacketTimes>) {
        let mut small;
        let begin = self.begin;
        let flow = if self.flow.is_some() {
            self.catch_up(blocks);
            self.caught_up(blocks)
        } else {
            small = FlowState::new(&self.begin, self.keeps_times);
            self.waiting
                .packets(blocks)
                .for_each(|packet| small.add_packet(packet));
            &mut small
        };
        let (report, times, sent) = (flow.to_report(&begin), flow.take_times(), flow.sent_bytes());
        self.sent = sent.map(ByteCount::get);
        (report, times)
    }

    /// Returns true if `packet` is one of another connection between the same ports.
    #[inline]
    pub(crate) fn is_over(&self, packet: &FlowPacket) -> bool {
        let begin = &self.begin;
        if packet.has_flags(flags::SYN) {
            return begin.is_over(packet)
                || self
                    .closing
                    .answers_another(packet, begin.at, begin.has_syn);
        }
        self.closing
            .is_over(packet, begin.is_from_first(packet), self.last)
    }

    /// Takes note of a SYN of the other end, which opens the same connection.
    pub(crate) fn note_crossed(&mut self, packet: &FlowPacket) {
        self.begin.note_crossed(packet);
    }

    /// Takes note of a SYN that may open another connection between the same ports.
    pub(crate) fn expect_another(&mut self) {
        self.expects_another = true;
    }

    /// Returns the time of its first packet, and the number of the segment with which it was
    /// opened.
    pub(crate) fn first_packet(&self) -> (Time, u64) {
        (self.begin.at, self.order)
    }

    /// Returns the time of its last packet.
    pub(crate) fn last_time(&self) -> Time {
        self.last
    }

    /// Returns the data of the end that sent more so far, where that of packets that wait counts as
    /// often as it was sent.
    pub(crate) fn data_so_far(&self, blocks: &PacketBlocks) -> u64 {
        let mut sent = self
            .flow
            .as_ref()
            .map_or([0; 2], |flow| flow.sent_bytes().map(ByteCount::get));
        for packet in self.waiting.packets(blocks) {
            sent[usize::from(!self.begin.is_from_first(packet))] += u64::from(packet.payload);
        }
        sent[0].max(sent[1])
    }

    /// Returns the key of the connection.
    #[inline]
    pub(crate) fn key(&self) -> &FlowKey {
        &self.begin.key
    }

    /// Returns the key of its packets in the other network, if one of its directions passes in
    /// another.
    pub(crate) fn other_key(&self) -> Option<FlowKey> {
        Some(self.begin.key.in_network(self.other_network?))
    }

    /// Returns true if packets with this key are its own.
    #[inline]
    pub(crate) fn has_key(&self, key: &FlowKey) -> bool {
        self.begin.key == *key
            || self.other_network.is_some() && self.other_key().as_ref() == Some(key)
    }

    /// Has packets of the same addresses in another network belong to it.
    pub(crate) fn join_network(&mut self, network: u32) {
        self.other_network = Some(network);
    }

    /// Returns true if `packet` of the same addresses in another network is one of the other
    /// direction: none of that was seen so far, and it goes on with the numbers that were
    /// acknowledged and sent here.
    pub(crate) fn may_be_answered_by(&self, packet: &FlowPacket, blocks: &PacketBlocks) -> bool {
        /// More than most windows.
        const NEAR: u32 = 1 << 24;
        let end = usize::from(!self.begin.is_from_first(packet));
        let (next, acknowledged) = (
            self.next_sequences(blocks),
            self.acknowledged_numbers(blocks),
        );
        let is_one_way =
            self.other_network.is_none() && next[end].is_none() && acknowledged[end].is_none();
        let [Some(sent), Some(expected)] = [next[1 - end], acknowledged[1 - end]] else {
            return false;
        };
        let is_near =
            |number: u32, other: u32| number.wrapping_sub(other).wrapping_add(NEAR) <= 2 * NEAR;
        let is_numbered =
            is_near(packet.acknowledgement, sent) && is_near(packet.sequence, expected);
        is_one_way && packet.has_flags(flags::ACK) && is_numbered
    }

    /// Returns about the number that each end acknowledged last.
    fn acknowledged_numbers(&self, blocks: &PacketBlocks) -> [Option<u32>; 2] {
        self.last_numbers(blocks, FlowState::acknowledged_numbers, |packet| {
            packet
                .has_flags(flags::ACK)
                .then_some(packet.acknowledgement)
        })
    }

    /// Returns the addresses of its ends and the port of the server.
    pub(crate) fn host_addresses(&self) -> (IpAddr, IpAddr, u16) {
        let [first, second] = self.begin.end_addresses();
        (first.ip(), second.ip(), second.port())
    }

    /// Returns the ports of the end that sent more data and of the other.
    pub(crate) fn ports_from_sender(&self) -> [u16; 2] {
        let mut ports = self.begin.end_addresses().map(|end| end.port());
        ports.rotate_left(self.sender_index());
        ports
    }

    /// Returns true if the connection has these ends, in either order.
    pub(crate) fn is_between(&self, ends: [SocketAddr; 2]) -> bool {
        let [one, other] = ends;
        [[one, other], [other, one]].contains(&self.begin.end_addresses())
    }

    /// Returns the index of the end that sent more data, once its figures were returned.
    pub(crate) fn sender_index(&self) -> usize {
        usize::from(self.sent[1] > self.sent[0])
    }

    /// Returns the data of that end.
    pub(crate) fn sender_bytes(&self) -> u64 {
        self.sent[self.sender_index()]
    }

    /// Returns the data of the other end.
    pub(crate) fn data_back(&self) -> u64 {
        self.sent[1 - self.sender_index()]
    }

    /// Returns true if most of the shorter of both lay within the other.
    pub(crate) fn overlaps_mostly(&self, other: &Self) -> bool {
        let common = self
            .last
            .min(other.last)
            .duration_since(self.begin.at.max(other.begin.at));
        let shorter = self
            .last
            .duration_since(self.begin.at)
            .min(other.last.duration_since(other.begin.at));
        common * 2 >= shorter
    }
}
