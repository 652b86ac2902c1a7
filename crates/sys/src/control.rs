//! Control messages that the kernel passes with a message (`struct cmsghdr`).

/// Room for control messages, aligned as their headers are.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct ControlBuffer<const LENGTH: usize>(pub [u8; LENGTH]);

impl<const LENGTH: usize> ControlBuffer<LENGTH> {
    pub(crate) const EMPTY: Self = Self([0; LENGTH]);
}

/// One control message.
#[derive(Clone, Copy)]
pub(crate) struct ControlMessage<'t> {
    pub level: i32,
    pub kind: i32,
    pub data: &'t [u8],
}

/// The control messages in `stated`, each a `struct cmsghdr` and its data, aligned to the machine's
/// word. Behind the last are zeros, which is no length that a message can have.
pub(crate) fn control_messages(mut stated: &[u8]) -> impl Iterator<Item = ControlMessage<'_>> {
    const WORD: usize = size_of::<usize>();
    const HEADER: usize = WORD + 8;
    std::iter::from_fn(move || {
        let (length, level, kind) = parse_header(stated)?;
        let data = stated.get(HEADER..length)?;
        stated = stated
            .get(length.next_multiple_of(WORD)..)
            .unwrap_or_default();
        Some(ControlMessage { level, kind, data })
    })
}

/// Length, level and kind of the control message at the start of `stated`.
fn parse_header(stated: &[u8]) -> Option<(usize, i32, i32)> {
    let (length, rest) = stated.split_first_chunk()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    Some((
        usize::from_ne_bytes(*length),
        i32::from_ne_bytes(*level),
        i32::from_ne_bytes(*kind),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let length = 16 + data.len();
        let header = [
            &length.to_ne_bytes()[..],
            &level.to_ne_bytes(),
            &kind.to_ne_bytes(),
        ];
        let mut bytes = [&header.concat(), data].concat();
        bytes.resize(length.next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn messages_are_reported_apart() {
        let stated = [message(1, 2, &[7; 5]), message(3, 4, &[8; 16]), vec![0; 32]].concat();
        let found: Vec<_> = control_messages(&stated)
            .map(|found| (found.level, found.kind, found.data.to_vec()))
            .collect();
        assert_eq!(found, [(1, 2, vec![7; 5]), (3, 4, vec![8; 16])]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(stated in proptest::collection::vec(any::<u8>(), 0..100)) {
            assert!(control_messages(&stated).count() <= stated.len());
        }

        #[test]
        fn any_length_in_a_header_is_read(
            length in 0_usize..200,
            rest in proptest::collection::vec(any::<u8>(), 0..90),
        ) {
            let stated = [&length.to_ne_bytes()[..], &rest].concat();
            assert!(control_messages(&stated).count() <= stated.len());
        }
    }
}
