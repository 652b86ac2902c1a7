use std::fmt;

/// The identifier that all connections of one test share: the client sends it first on the control
/// connection and on every data connection. 36 characters and a zero byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TestCookie([u8; TestCookie::LENGTH]);

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

impl TestCookie {
    /// Bytes on the wire.
    pub const LENGTH: usize = 37;

    /// A cookie from the low five bits of each of 36 random bytes.
    pub fn from_random(random: [u8; 36]) -> Self {
        let mut bytes = [0; Self::LENGTH];
        for (byte, random) in bytes.iter_mut().zip(random) {
            *byte = ALPHABET[usize::from(random % 32)];
        }
        Self(bytes)
    }

    /// A peer's cookie. Up to iperf3 3.1 it holds a host name and a time, so nothing is asked of
    /// its bytes.
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// The bytes on the wire.
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl fmt::Display for TestCookie {
    /// Writes the characters of the cookie; whatever does not print is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0[..36].escape_ascii())
    }
}

impl fmt::Debug for TestCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cookie_is_36_characters_of_the_alphabet_and_a_zero(low in any::<[u8; 32]>(), high in any::<[u8; 4]>()) {
            let mut random = [0; 36];
            random[..32].copy_from_slice(&low);
            random[32..].copy_from_slice(&high);
            let cookie = TestCookie::from_random(random);
            let (text, end) = cookie.as_bytes().split_at(36);
            prop_assert!(text.iter().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7')));
            prop_assert_eq!(end, [0]);
            prop_assert_eq!(cookie.to_string().into_bytes(), text);
        }
    }

    #[test]
    fn every_character_of_the_alphabet_can_come_out() {
        let mut random = [0; 36];
        random.iter_mut().zip(0..).for_each(|(byte, n)| *byte = n);
        assert!(
            TestCookie::from_random(random)
                .to_string()
                .starts_with("abcdefghijklmnopqrstuvwxyz234567abcd")
        );
    }
}
