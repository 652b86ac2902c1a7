//! Options of a TCP header.

/// Kinds of options (IANA, TCP Parameters).
pub(crate) const END: u8 = 0;
pub(crate) const NO_OPERATION: u8 = 1;
pub(crate) const MSS: u8 = 2;
pub(crate) const WINDOW_SCALE: u8 = 3;
pub(crate) const SACK_PERMITTED: u8 = 4;
pub(crate) const SACK: u8 = 5;
pub(crate) const TIMESTAMPS: u8 = 8;

/// The flag of segments in which a connection's options are agreed.
pub(crate) const SYN: u8 = 0x02;

/// Each of `options`, from its kind to its end, up to the first that cannot be read.
pub(crate) fn each(mut options: &[u8]) -> impl Iterator<Item = &[u8]> {
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
        [_, length, ..] => Some(usize::from(*length)).filter(|length| (2..=options.len()).contains(length)),
        [_] => None,
    }
}
