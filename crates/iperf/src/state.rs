/// A state byte of the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StateByte {
    /// 1, from the server: all data connections are up.
    TestStart = 1,
    /// 2, from the server: data may flow.
    TestRunning = 2,
    /// 4, always from the client, whoever sends the data: the test is over.
    TestEnd = 4,
    /// 9, from the server: send the parameters.
    ParameterExchange = 9,
    /// 10, from the server: open the data connections.
    CreateStreams = 10,
    /// 11, from the server: it was interrupted.
    ServerTerminate = 11,
    /// 12, from the client: it was interrupted.
    ClientTerminate = 12,
    /// 13, from the server: send your results.
    ExchangeResults = 13,
    /// 14, from the server: both ends have both results.
    DisplayResults = 14,
    /// 16, from the client: it has finished and closes.
    Done = 16,
    /// 0x63 (`c`), from a fullpipe server to a fullpipe client in place of 10: open the data
    /// connections, several at a time also with UDP. iperf3 has no such state.
    CreateStreamsTogether = b'c',
    /// 0x66 (`f`), from a fullpipe server to a fullpipe client while data flows: a report of what
    /// it has seen so far follows. iperf3 has no such state.
    Report = b'f',
    /// 0x6B (`k`), between two ends that are fullpipe. From the server: prove that you have the
    /// key; a nonce follows. From the client: the proof follows. iperf3 has no such state.
    Key = b'k',
    /// 0xFF (−1), from the server: it is busy, or a data connection brought a cookie that it does
    /// not know.
    AccessDenied = 0xFF,
    /// 0xFE (−2), from the server: an error; one or two 32-bit numbers follow.
    ServerError = 0xFE,
}

impl StateByte {
    /// The byte on the wire.
    pub const fn to_byte(self) -> u8 {
        self as u8
    }

    /// The state that `byte` stands for; `None` for a byte that neither iperf3 nor fullpipe sends.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::TestStart,
            2 => Self::TestRunning,
            4 => Self::TestEnd,
            9 => Self::ParameterExchange,
            10 => Self::CreateStreams,
            11 => Self::ServerTerminate,
            12 => Self::ClientTerminate,
            13 => Self::ExchangeResults,
            14 => Self::DisplayResults,
            16 => Self::Done,
            b'c' => Self::CreateStreamsTogether,
            b'f' => Self::Report,
            b'k' => Self::Key,
            0xFF => Self::AccessDenied,
            0xFE => Self::ServerError,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_byte_and_no_other_byte_is_a_state() {
        for byte in 0..=255 {
            let known = [
                1, 2, 4, 9, 10, 11, 12, 13, 14, 16, 0x63, 0x66, 0x6B, 0xFE, 0xFF,
            ]
            .contains(&byte);
            assert_eq!(
                StateByte::from_byte(byte).map(StateByte::to_byte),
                known.then_some(byte)
            );
        }
    }
}
