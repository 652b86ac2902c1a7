//! Frames of made captures.

/// Bytes of data of a full segment with timestamps.
pub(super) const MSS: u32 = 1448;

/// Shift of all windows.
pub(super) const SCALE: u8 = 9;

/// Flags of TCP.
pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

/// Ethernet, IPv4, and TCP with the options of a SYN.
const MAX_HEADERS: usize = 14 + 20 + 40;

/// One end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender {
    /// Address and port.
    own: ([u8; 4], u16),
    other: ([u8; 4], u16),
}

/// A packet with its data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) from: Sender,
    pub(super) flags: u8,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) window: u16,
    /// Value and echo.
    pub(super) timestamps: [u32; 2],
    /// Bytes of data.
    pub(super) payload: u32,
}

impl Sender {
    /// Returns the client and the server of connection `number`.
    pub(super) fn both(number: u32) -> [Self; 2] {
        const PORTS: u32 = 16;
        let [_, _, high, low] = (number / PORTS).to_be_bytes();
        let client = ([198, 18, high, low], 40_000 + (number % PORTS) as u16);
        let server = ([198, 19, 0, 1], 5201);
        [
            Self {
                own: client,
                other: server,
            },
            Self {
                own: server,
                other: client,
            },
        ]
    }

    /// Returns a packet without data, at the begin of both sequences.
    pub(super) fn packet(self, flags: u8, timestamps: [u32; 2]) -> Frame {
        Frame {
            from: self,
            flags,
            sequence: 1,
            acknowledgement: 1,
            window: 502,
            timestamps,
            payload: 0,
        }
    }

    /// Returns segment `number` of data, counted from zero.
    pub(super) fn data(self, number: u64, timestamps: [u32; 2]) -> Frame {
        /// Segments that the program writes at once.
        const WRITE: u64 = 16;
        let flags = if number % WRITE == WRITE - 1 {
            ACK | PSH
        } else {
            ACK
        };
        Frame {
            sequence: begin(number),
            payload: MSS,
            ..self.packet(flags, timestamps)
        }
    }
}

/// Returns the sequence number of the first byte of a segment. It wraps.
pub(super) fn begin(segment: u64) -> u32 {
    (1 + segment * u64::from(MSS)) as u32
}

impl Frame {
    /// Returns all headers, and their length.
    pub(super) fn headers(&self) -> ([u8; MAX_HEADERS], usize) {
        const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        let mut bytes = [0; MAX_HEADERS];
        let mut length = 0;
        let mut put = |part: &[u8]| {
            bytes[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        };
        let Sender { own, other } = self.from;
        let options: &[u8] = if self.flags & SYN == 0 {
            &[1, 1]
        } else {
            &[2, 4, 5, 0xB4, 4, 2, 3, 3, SCALE, 1]
        };
        let tcp = 20 + options.len() + 10;
        let ip = self.ip([own.0, other.0], tcp);
        put(&ETHERNET);
        put(&ip[..10]);
        put(&checksum(&ip).to_be_bytes());
        put(&ip[12..]);
        put(&own.1.to_be_bytes());
        put(&other.1.to_be_bytes());
        put(&self.sequence.to_be_bytes());
        put(&self.acknowledgement.to_be_bytes());
        put(&[(tcp / 4 * 16) as u8, self.flags]);
        put(&self.window.to_be_bytes());
        // No program checks it unless it is asked to; but it differs from packet to packet.
        put(&self
            .sequence
            .wrapping_mul(0x9E37_79B1)
            .rotate_left(7)
            .to_be_bytes()[..2]);
        put(&[0, 0]);
        put(options);
        put(&[8, 10]);
        self.timestamps
            .iter()
            .for_each(|number| put(&number.to_be_bytes()));
        (bytes, length)
    }

    /// Returns the header of IPv4 without its checksum, in front of a header of TCP of so many
    /// bytes.
    fn ip(&self, [source, destination]: [[u8; 4]; 2], tcp: usize) -> [u8; 20] {
        let [.., high, low] = (20 + tcp as u32 + self.payload).to_be_bytes();
        let mut bytes = [
            0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        // It counts the segments of either end.
        let identification = ((self.sequence ^ self.acknowledgement) / MSS) as u16;
        bytes[4..6].copy_from_slice(&identification.to_be_bytes());
        bytes[12..16].copy_from_slice(&source);
        bytes[16..].copy_from_slice(&destination);
        bytes
    }
}

/// Returns the checksum of a header (RFC 1071).
fn checksum(header: &[u8; 20]) -> u16 {
    let sum: u32 = header
        .as_chunks::<2>()
        .0
        .iter()
        .map(|word| u32::from(u16::from_be_bytes(*word)))
        .sum();
    !((sum & 0xFFFF) + (sum >> 16)) as u16
}
