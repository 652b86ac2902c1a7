//! Options at the end of a block.

use crate::order::ByteOrder;

/// Returns code and value of each option, up to the first that cannot be read.
pub(super) fn iter_options(
    mut bytes: &[u8],
    order: ByteOrder,
) -> impl Iterator<Item = (u16, &[u8])> {
    const END: u16 = 0;
    std::iter::from_fn(move || {
        let (code, length) = (
            order.read_u16(bytes, 0)?,
            usize::from(order.read_u16(bytes, 2)?),
        );
        let value = bytes.get(4..4 + length).filter(|_| code != END)?;
        // The padding of the last may be missing.
        bytes = bytes
            .get(4 + length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some((code, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_up_to_the_first_that_is_wrong() {
        let read = |bytes: &[u8]| {
            iter_options(bytes, ByteOrder::Big)
                .map(|(code, value)| (code, value.to_vec()))
                .collect::<Vec<_>>()
        };
        let two = [
            0, 9, 0, 1, 6, 0, 0, 0, 0, 2, 0, 2, b'l', b'o', 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 7, 0, 0,
            0,
        ];
        assert_eq!(read(&two), [(9, vec![6]), (2, b"lo".to_vec())]);
        assert_eq!(read(&two[..14]), [(9, vec![6]), (2, b"lo".to_vec())]);
        assert_eq!(read(&two[..13]), [(9, vec![6])]);
        assert_eq!(read(&[0, 9, 0xFF, 0xFF, 1, 2]), []);
    }
}
