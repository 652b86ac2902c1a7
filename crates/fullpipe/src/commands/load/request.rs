//! The request that the flags of a load make.

use super::{MeasureLoadArguments, data_direction};
use crate::commands::prelude::*;
use fullpipe_record::{Buffer, Writer};

/// Default rate of a UDP sender, as iperf3 has it.
const DEFAULT_UDP_RATE: BitRate = BitRate::from_mbps(1);

impl MeasureLoadArguments {
    /// Returns the duration, if one is given.
    pub(crate) fn requested_time(&self) -> Option<Span> {
        self.amount.time
    }

    /// Returns the number of bytes, if one is given.
    pub(crate) fn bytes(&self) -> Option<ByteCount> {
        self.amount.bytes
    }

    /// Returns the request; its duration is `usual` if no other is given.
    ///
    /// # Errors
    /// Where the flags together make no test.
    pub(crate) fn to_request(&self, usual: Span) -> Result<Request> {
        if let Some(request) = &self.request {
            return Ok(Request::clone(request));
        }
        let buffer = match (self.tcp.buffer, self.tcp.window) {
            (Some(size), _) => Buffer::Request(size),
            (None, Some(size)) => Buffer::Window(size),
            (None, None) => Buffer::Automatic,
        };
        let gentle = self.amount.udp.then_some(DEFAULT_UDP_RATE);
        let rate = self
            .amount
            .bitrate
            .map_or(gentle, |offer| Some(offer.rate))
            .filter(|&rate| rate > BitRate::ZERO);
        // Whoever counts blocks means iperf3's.
        let counted = self
            .amount
            .blocks
            .filter(|_| !self.amount.udp)
            .map(|_| Request::default().block);
        let block = self.amount.length.or(counted).unwrap_or(ByteCount::ZERO);
        Ok(Request {
            transport: if self.amount.udp {
                Transport::Udp
            } else {
                Transport::Tcp
            },
            direction: data_direction(self.amount.reverse, self.amount.bidir),
            streams: self.amount.streams,
            duration: self.amount.time.unwrap_or(usual),
            omit: self.amount.omit,
            bytes: self.bytes_of(block)?,
            block,
            rate,
            burst: self.amount.bitrate.and_then(|offer| offer.burst),
            pacing: self.packet.fq_rate,
            buffer,
            congestion: self.tcp.congestion.clone(),
            mss: self.tcp.mss,
            no_delay: self.tcp.no_delay,
            tos: self.packet.tos.or(self.packet.dscp).unwrap_or(0),
            multipath: self.tcp.mptcp,
            sendfile: self.tcp.zerocopy,
            zero_copy: self.tcp.msg_zerocopy,
            discard: !self.amount.udp && !self.tcp.rx_copy,
            rx_copy: self.tcp.rx_copy,
            offload: self.amount.udp && !self.udp.no_gso,
            no_gso: self.udp.no_gso,
            wide_counters: self.udp.udp_counters_64bit,
            dont_fragment: self.udp.dont_fragment,
            processor: self.packet.affinity.and_then(|affinity| affinity.here),
            far_processor: self.packet.affinity.and_then(|affinity| affinity.there),
            near_device: self
                .packet
                .affinity
                .is_some_and(|affinity| affinity.here.is_none()),
            writer: if self.tcp.blocking {
                Writer::Blocking
            } else {
                Writer::Retrying
            },
            interval: self.note.interval,
            title: self.note.title.clone(),
            extra_data: self.note.extra_data.clone(),
            ..Request::default()
        })
    }

    fn bytes_of(&self, block: ByteCount) -> Result<Option<ByteCount>> {
        let Some(blocks) = self.amount.blocks else {
            return Ok(self.amount.bytes);
        };
        if block == ByteCount::ZERO {
            return Err(usage_failure(
                "--blocks of datagrams needs --length: how long is one?",
            ));
        }
        Ok(Some(ByteCount::new(block.get().saturating_mul(blocks))))
    }
}
