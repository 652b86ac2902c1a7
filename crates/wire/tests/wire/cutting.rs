use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    IpHeaders, IpNumber, Ipv4Header, Ipv6Header, NetHeaders, PacketHeaders, TcpHeader,
    TransportHeader, UdpHeader,
};
use fullpipe_units::{ByteCount, SegCount};
use fullpipe_wire::{IpPacketTrain, VIRTIO_HEADER};
use proptest::prelude::*;

/// A train as the kernel gives it: the transport's checksum holds the sum over the pseudo header.
#[derive(Debug, Clone)]
pub(crate) struct Train {
    pub v6: bool,
    pub udp: bool,
    pub options: Vec<u8>,
    pub flags: Flags,
    pub sequence: u32,
    pub identification: u16,
    pub size: usize,
    pub payload: Vec<u8>,
    pub link: usize,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flags {
    pub syn: bool,
    pub fin: bool,
    pub cwr: bool,
}

const TCP_ACK: u8 = 0x10;

impl Train {
    /// An IPv4 packet of TCP without data.
    pub(crate) fn plain(options: Vec<u8>) -> Self {
        Self {
            v6: false,
            udp: false,
            options,
            flags: Flags::default(),
            sequence: 7,
            identification: 9,
            size: 1448,
            payload: Vec::new(),
            link: 0,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let transport = if self.udp {
            self.udp_header()
        } else {
            self.tcp_header()
        };
        let length = transport.len() + self.payload.len();
        let ip = self.ip_header(length);
        let gso = match (self.payload.len() > self.size, self.udp, self.v6) {
            (false, ..) => 0,
            (true, true, _) => 5,
            (true, false, false) => 1,
            (true, false, true) => 4,
        };
        let ecn = if gso != 0 && !self.udp && self.flags.cwr {
            0x80
        } else {
            0
        };
        let mut bytes = vec![1, gso | ecn];
        let headers = self.link + ip.len() + transport.len();
        let offset = if self.udp { 6 } else { 16 };
        for word in [
            headers,
            if gso == 0 { 0 } else { self.size },
            self.link + ip.len(),
            offset,
        ] {
            bytes.extend((word as u16).to_ne_bytes());
        }
        bytes.extend(vec![0xEE; self.link]);
        bytes.extend(ip);
        bytes.extend(transport);
        bytes.extend(&self.payload);
        bytes
    }

    fn ip_header(&self, length: usize) -> Vec<u8> {
        let protocol = if self.udp {
            IpNumber::UDP
        } else {
            IpNumber::TCP
        };
        if self.v6 {
            let header = Ipv6Header {
                payload_length: length as u16,
                next_header: protocol,
                hop_limit: 64,
                source: [0xFD; 16],
                destination: [0xFE; 16],
                ..Ipv6Header::default()
            };
            return header.to_bytes().to_vec();
        }
        let mut header =
            Ipv4Header::new(0, 64, protocol, [198, 18, 0, 1], [198, 18, 0, 2]).unwrap();
        header.total_len = (20 + length) as u16;
        header.identification = self.identification;
        header.dont_fragment = true;
        header.header_checksum = header.calc_header_checksum();
        header.to_bytes().to_vec()
    }

    fn tcp_header(&self) -> Vec<u8> {
        let mut header = TcpHeader::new(5201, 40_000, self.sequence, 5000);
        header.ack = true;
        header.psh = true;
        header.syn = self.flags.syn;
        header.fin = self.flags.fin;
        header.cwr = self.flags.cwr;
        header.set_options_raw(&self.options).unwrap();
        header.checksum = self.pseudo(6, header.header_len() + self.payload.len());
        header.to_bytes().to_vec()
    }

    fn udp_header(&self) -> Vec<u8> {
        let length = 8 + self.payload.len();
        let checksum = self.pseudo(17, length);
        UdpHeader {
            source_port: 1,
            destination_port: 2,
            length: length as u16,
            checksum,
        }
        .to_bytes()
        .to_vec()
    }

    fn pseudo(&self, protocol: u16, length: usize) -> u16 {
        let (source, destination): (IpAddr, IpAddr) = if self.v6 {
            (
                Ipv6Addr::from([0xFD; 16]).into(),
                Ipv6Addr::from([0xFE; 16]).into(),
            )
        } else {
            (
                Ipv4Addr::new(198, 18, 0, 1).into(),
                Ipv4Addr::new(198, 18, 0, 2).into(),
            )
        };
        let words = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let mut sum = u32::from(protocol) + length as u32;
        for address in [source, destination] {
            sum += words(address)
                .chunks(2)
                .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
                .sum::<u32>();
        }
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        sum as u16
    }

    pub(crate) fn packet(&self) -> IpPacketTrain {
        IpPacketTrain::parse(&self.bytes(), self.link).unwrap()
    }

    pub(crate) fn head(&self) -> usize {
        (if self.v6 { 40 } else { 20 }) + if self.udp { 8 } else { 20 + self.options.len() }
    }
}

pub(crate) fn trains() -> impl Strategy<Value = Train> {
    let kind = (
        any::<bool>(),
        any::<bool>(),
        0_usize..=10,
        any::<bool>(),
        any::<bool>(),
    );
    let numbers = (
        any::<u32>(),
        any::<u16>(),
        1_usize..=2000,
        1_usize..=6000,
        prop_oneof![Just(0_usize), Just(14)],
    );
    (kind, numbers, any::<u8>()).prop_map(
        |((v6, udp, options, fin, cwr), (sequence, identification, size, length, link), first)| {
            Train {
                v6,
                udp,
                options: vec![1; options * 4],
                flags: Flags {
                    syn: false,
                    fin,
                    cwr,
                },
                sequence,
                identification,
                size,
                payload: (0..length)
                    .map(|n| (n as u8).wrapping_mul(31).wrapping_add(first))
                    .collect(),
                link,
            }
        },
    )
}

/// The packet as it would be on a wire, without virtio's header.
pub(crate) fn on_the_wire(mut packet: IpPacketTrain) -> Vec<u8> {
    packet.complete_checksum();
    let mut front = Vec::new();
    let payload = packet.emit(&[], &mut front).to_vec();
    front.drain(..VIRTIO_HEADER);
    front.extend(payload);
    front
}

/// Every segment on its own, cut off one after the other or by halves.
fn segments(packet: IpPacketTrain, halve: bool) -> Vec<IpPacketTrain> {
    let (mut whole, mut uncut) = (Vec::new(), vec![packet]);
    while let Some(mut first) = uncut.pop() {
        match first.segment_count().get() {
            1 => whole.push(first),
            count => {
                let rest = first.split_off(SegCount::new(if halve { count / 2 } else { 1 }));
                uncut.extend([rest, first]);
            }
        }
    }
    whole
}

pub(crate) fn checksums_hold(packet: &[u8]) {
    let (ip, _) = IpHeaders::from_slice(packet).unwrap();
    let headers = PacketHeaders::from_ip_slice(packet).unwrap();
    if let IpHeaders::Ipv4(header, _) = &ip {
        assert_eq!(header.header_checksum, header.calc_header_checksum());
    }
    let (transport, net) = (headers.transport.unwrap(), headers.net.unwrap());
    let data = headers.payload.slice();
    match (transport, net) {
        (TransportHeader::Tcp(tcp), NetHeaders::Ipv4(ip, _)) => {
            assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4(&ip, data).unwrap());
        }
        (TransportHeader::Tcp(tcp), NetHeaders::Ipv6(ip, _)) => {
            assert_eq!(tcp.checksum, tcp.calc_checksum_ipv6(&ip, data).unwrap());
        }
        (TransportHeader::Udp(udp), NetHeaders::Ipv4(ip, _)) => {
            assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&ip, data).unwrap());
        }
        (TransportHeader::Udp(udp), NetHeaders::Ipv6(ip, _)) => {
            assert_eq!(udp.checksum, udp.calc_checksum_ipv6(&ip, data).unwrap());
        }
        other => panic!("neither TCP nor UDP: {other:?}"),
    }
}

proptest! {
    /// Cut anywhere, and joined by whoever receives it, a train is what it was.
    #[test]
    fn a_train_is_its_segments(train in trains(), halve: bool) {
        let whole = train.packet();
        let count = train.payload.len().div_ceil(train.size);
        prop_assert_eq!(whole.segment_count(), SegCount::new(count as u64));
        prop_assert_eq!(whole.ip_bytes(), ByteCount::new((count * train.head() + train.payload.len()) as u64));
        let parts: Vec<Vec<u8>> = segments(whole, halve).into_iter().map(on_the_wire).collect();
        prop_assert_eq!(parts.len(), count);
        let mut joined = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            checksums_hold(part);
            let headers = PacketHeaders::from_ip_slice(part).unwrap();
            let last = number + 1 == count;
            prop_assert!(headers.payload.slice().len() == train.size || last);
            if let Some(NetHeaders::Ipv4(ip, _)) = &headers.net {
                prop_assert_eq!(ip.identification, train.identification.wrapping_add(number as u16));
            }
            if let Some(TransportHeader::Tcp(tcp)) = &headers.transport {
                prop_assert_eq!(tcp.sequence_number, train.sequence.wrapping_add(joined.len() as u32));
                prop_assert_eq!((tcp.fin, tcp.psh), (train.flags.fin && last, last));
                prop_assert_eq!(tcp.cwr, train.flags.cwr && number == 0);
                prop_assert_eq!((tcp.options.as_slice(), tcp.ack), (train.options.as_slice(), true));
            }
            joined.extend_from_slice(headers.payload.slice());
        }
        prop_assert_eq!(joined, train.payload);
    }

    /// A packet given to a device says the same as the packet read from one.
    #[test]
    fn what_is_not_cut_is_not_changed(train in trains()) {
        let mut front = Vec::new();
        let packet = train.packet();
        let payload = packet.emit(&vec![0xEE; train.link], &mut front).to_vec();
        front.extend(payload);
        prop_assert_eq!(front, train.bytes());
    }

    /// The parts are trains that a device takes: read again, they are the same.
    #[test]
    fn parts_are_trains_again(train in trains(), at in 1_u64..100) {
        let mut first = train.packet();
        let count = first.segment_count().get();
        prop_assume!(count > 1);
        let rest = first.split_off(SegCount::new(1 + at % (count - 1)));
        for part in [first, rest] {
            let mut bytes = Vec::new();
            let payload = part.emit(&[], &mut bytes).to_vec();
            bytes.extend(payload);
            let again = IpPacketTrain::parse(&bytes, 0).unwrap();
            prop_assert_eq!(again.segment_count(), part.segment_count());
            prop_assert_eq!(again.ip_bytes(), part.ip_bytes());
            prop_assert_eq!(segments(again, true).into_iter().map(on_the_wire).collect::<Vec<_>>(),
                segments(part, false).into_iter().map(on_the_wire).collect::<Vec<_>>());
        }
    }
}

/// An acknowledgement without data, as most packets of the way back are.
#[test]
fn a_packet_without_payload_is_one_segment() {
    let train = Train::plain(vec![1; 12]);
    let packet = train.packet();
    assert_eq!(
        (packet.segment_count().get(), packet.ip_bytes().get()),
        (1, 52)
    );
    let bytes = on_the_wire(packet);
    checksums_hold(&bytes);
    assert_eq!(bytes[33] & TCP_ACK, TCP_ACK);
}
