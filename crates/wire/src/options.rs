//! Options of a TCP header.

/// Kinds of options (IANA, TCP Parameters).
pub(crate) const END: u8 = 0;
pub(crate) const NO_OPERATION: u8 = 1;
pub(crate) const MSS: u8 = 2;
pub(crate) const WINDOW_SCALE: u8 = 3;
pub(crate) const SACK_PERMITTED: u8 = 4;
pub(crate) const SACK: u8 = 5;
pub(crate) const TIMESTAMPS: u8 = 8;
pub(crate) const MULTIPATH: u8 = 30;

/// The flag of segments in which a connection's options are agreed.
pub(crate) const SYN: u8 = 0x02;

/// Padding in a row that no sender writes: it aligns an option to four bytes with three at most.
const BLANKED: usize = 4;

/// Each of `options`, from its kind to its end, up to the first that cannot be read.
pub(crate) fn iter_options(mut options: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (option, rest) = options.split_at(first_length(options)?);
        options = rest;
        Some(option)
    })
}

/// Length of the first of `options`; `None` at their end, and where what follows cannot be read.
pub(crate) fn first_length(options: &[u8]) -> Option<usize> {
    match options {
        [] | [END, ..] => None,
        [NO_OPERATION, ..] => Some(1),
        [_, length, ..] => {
            Some(usize::from(*length)).filter(|length| (2..=options.len()).contains(length))
        }
        [_] => None,
    }
}

/// Returns true if an option was overwritten with padding on the way.
pub(crate) fn are_blanked(options: &[u8]) -> bool {
    let mut now = 0;
    iter_options(options).any(|option| {
        now = if option[0] == NO_OPERATION {
            now + 1
        } else {
            0
        };
        now >= BLANKED
    })
}
