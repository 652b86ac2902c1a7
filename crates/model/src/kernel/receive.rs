use crate::prelude::*;

use super::{WindowShare, rmem_max, stored_rcvbuf};

/// The window of a first packet fills its 16 bits, and the buffer behind it is twice that
/// (a337531b942b).
const FIRST_WINDOW_OF_64_KIB: KernelVersion = KernelVersion::new(4, 20);
/// The window behind a handshake may be larger than what its packets can say (378979e94e95; also in
/// stable releases of June 2024).
const WINDOW_BEHIND_HANDSHAKE: KernelVersion = KernelVersion::new(6, 10);
/// Largest shift of RFC 7323 §2.3.
const MAX_SCALE: u8 = 14;

/// The receive buffer of a socket when it has grown, and the window that it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveBuffer {
    space: ByteCount,
    share: WindowShare,
    scale: Option<u8>,
}

impl ReceiveBuffer {
    /// The buffer of a socket that asked for nothing: `tcp_rmem[2]` once the kernel has tuned it,
    /// or `tcp_rmem[1]` where `tcp_moderate_rcvbuf` is off, or that is the larger: a socket begins
    /// with it, and never has less.
    pub fn autotuned_buffer(settings: &HostSettings) -> Self {
        let (space, share) = if settings.moderate_rcvbuf {
            (
                settings.tcp_rmem.max.max(settings.tcp_rmem.default),
                WindowShare::settled_share(settings),
            )
        } else {
            (
                settings.tcp_rmem.default,
                WindowShare::settled_fixed(settings),
            )
        };
        Self {
            space,
            share,
            scale: window_scale(settings, None),
        }
    }

    /// The buffer of a socket that asked for `SO_RCVBUF` before it connected or listened.
    pub fn fixed_buffer(settings: &HostSettings, request: ByteCount) -> Self {
        let space = stored_rcvbuf(settings, request);
        let clamp = WindowShare::at_first(settings).window_from_space(space);
        Self {
            space,
            share: WindowShare::settled_fixed(settings),
            scale: window_scale(settings, Some(clamp)),
        }
    }

    /// The buffer for packets that carry `mss`, where the socket learns its share from them.
    #[must_use]
    pub fn with_packets(self, settings: &HostSettings, mss: ByteCount) -> Self {
        Self {
            share: self.share.of_packets(settings, mss),
            ..self
        }
    }

    /// The buffer without the window-scale option, as where the other end does not offer it.
    #[must_use]
    pub fn without_scaling(self) -> Self {
        Self {
            scale: None,
            ..self
        }
    }

    /// Bytes of the buffer.
    pub fn buffer_bytes(self) -> ByteCount {
        self.space
    }

    /// Share of it that is window.
    pub fn window_share(self) -> WindowShare {
        self.share
    }

    /// The shift in the receiver's window-scale option; `None` without the option.
    pub fn window_shift(self) -> Option<u8> {
        self.scale
    }

    /// The largest window: the share of the buffer, or what the scale can say if that is less.
    pub fn max_window(self) -> ByteCount {
        self.share
            .window_from_space(self.space)
            .min(largest_window(self.scale))
    }

    /// The window as it works: what a sender that always has data may keep in flight, in segments
    /// of `mss`.
    ///
    /// One segment is still in the buffer when its acknowledgement is sent. The rest of the window
    /// is rounded up to a multiple of 2^scale; without a scale it is rounded down to whole segments
    /// (`__tcp_select_window`). [`super::filled_window`] says whether its last part is used. Exact
    /// for fixed buffers from 16 620 to 1 676 608 bytes on Linux 6.18; for tuned ones within the
    /// trains that the interface joins. Other systems advertise all that is free. A window of less than two segments is sent in halves
    /// (`tcp_bound_to_half_wnd`).
    pub fn in_flight(self, mss: ByteCount) -> ByteCount {
        if mss == ByteCount::ZERO {
            return ByteCount::ZERO;
        }
        if self.share.is_whole() {
            return self.max_window();
        }
        let segment = segment_in_window(mss, self.max_window()).max(ByteCount::new(1));
        let free = self
            .share
            .window_from_space(self.space)
            .saturating_sub(segment);
        match self.scale {
            None | Some(0) => whole_segments(free.min(largest_window(self.scale)), segment),
            Some(scale) => rounded_up(free, scale).min(self.max_window()),
        }
    }
}

/// Returns the payload of a segment of at most `mss` to a receiver whose largest window so far is
/// `window`: half of that, or all of a very small one (`tcp_bound_to_half_wnd`).
pub fn segment_in_window(mss: ByteCount, window: ByteCount) -> ByteCount {
    /// `TCP_MSS_DEFAULT`.
    const DEFAULT: ByteCount = ByteCount::new(536);
    /// A packet of 68 bytes, less a header of TCP with timestamps.
    const MIN: ByteCount = ByteCount::new(36);
    let cutoff = if window > DEFAULT {
        ByteCount::new(window.get() / 2)
    } else {
        window
    };
    if cutoff == ByteCount::ZERO {
        mss
    } else {
        mss.min(cutoff.max(MIN))
    }
}

/// The largest window that a header of 16 bits can say under this scale (RFC 7323 §2.2): 65 535 ·
/// 2^scale.
///
/// `None` is a connection without the option. Scales above 14 count as 14.
pub fn largest_window(scale: Option<u8>) -> ByteCount {
    ByteCount::new(65_535 << scale.unwrap_or(0).min(MAX_SCALE))
}

/// The window in the first packet of a socket that asked for nothing (`tcp_select_initial_window`):
/// whole segments of what its share of `tcp_rmem[1]` holds, at most what 16 bits can say; before
/// Linux 4.20 at most 20 segments of 1460 bytes, which is assumed of kernels before 3.11 too,
/// although they offer less.
///
/// `mss` is the segment without timestamps in a SYN, which cannot know whether they will be agreed
/// on, and with them in the answer. Measured on Linux 6.18 at MTU 1500 and 9000: 64 240 and 62 720
/// bytes in the SYN, 65 160 and 62 636 in the answer.
pub fn first_window(settings: &HostSettings, mss: ByteCount) -> ByteCount {
    let space = WindowShare::at_first(settings).window_from_space(settings.tcp_rmem.default);
    let window = offered_at_first(space, mss);
    if settings.kernel < FIRST_WINDOW_OF_64_KIB {
        window.min(twenty_segments(mss))
    } else {
        window
    }
}

/// Returns the window of a first packet with `space` for it: whole segments, if there is more than
/// one, and at most what 16 bits can say (`tcp_select_initial_window`).
pub fn offered_at_first(space: ByteCount, mss: ByteCount) -> ByteCount {
    window_of_space(space, mss).min(largest_window(None))
}

/// Returns the window with `space` for it, of which a first packet offered `offered`, once the
/// handshake is over: all of it since Linux 6.10, where the scale can say so.
pub fn window_behind_handshake(
    settings: &HostSettings,
    [space, offered]: [ByteCount; 2],
    mss: ByteCount,
    scale: Option<u8>,
) -> ByteCount {
    if settings.kernel < WINDOW_BEHIND_HANDSHAKE {
        return offered;
    }
    offered.max(window_of_space(space, mss).min(largest_window(scale)))
}

/// Whole segments, if there is more than one.
fn window_of_space(space: ByteCount, mss: ByteCount) -> ByteCount {
    if space > mss {
        whole_segments(space, mss)
    } else {
        space
    }
}

/// The `SO_RCVBUF` request that makes the kernel advertise `window`, and so carry ⌊window ÷ mss⌋
/// segments.
///
/// The scale follows from the share at first and the window from the share once learnt. So since
/// Linux 6.10.4 windows from 65 536 · 2ⁿ to 1.25 times that (to 1.37 times at MTU 9000) cannot be
/// had; the answer is then the least request that carries more. Where it exceeds
/// [`super::rmem_max`] the kernel cuts it.
pub fn request_for_window(settings: &HostSettings, window: ByteCount, mss: ByteCount) -> ByteCount {
    let carrying = WindowShare::settled_fixed(settings)
        .of_packets(settings, mss)
        .space_from_window(window + mss);
    let scaling = match least_scale(whole_segments(window, mss)) {
        0 => ByteCount::ZERO,
        scale => {
            WindowShare::at_first(settings).space_from_window(ByteCount::new(1 << (15 + scale)))
        }
    };
    let doubled = 1 + u64::from(settings.system.is_none());
    ByteCount::new(carrying.max(scaling).get().div_ceil(doubled))
}

/// Returns the request for a socket's buffer; `None` where the kernel tunes it. A window becomes
/// the request of [`request_for_window`].
pub fn socket_request(
    receiver: &HostSettings,
    buffer: Buffer,
    mss: ByteCount,
) -> Option<ByteCount> {
    match buffer {
        Buffer::Automatic => None,
        Buffer::Request(bytes) => Some(bytes),
        Buffer::Window(bytes) => Some(request_for_window(receiver, bytes, mss)),
    }
}

/// The shift that a socket offers (`tcp_select_initial_window`): enough for the largest buffer it
/// may come to have, or, where it is fixed, for its window at first.
fn window_scale(settings: &HostSettings, fixed: Option<ByteCount>) -> Option<u8> {
    if !settings.window_scaling {
        return None;
    }
    let largest = settings
        .tcp_rmem
        .max
        .max(rmem_max(settings))
        .min(largest_window(Some(MAX_SCALE)));
    let space = fixed.map_or(largest, |window| window.min(largest)).get();
    let scale = space.checked_ilog2().unwrap_or(0).saturating_sub(15);
    Some(u8::try_from(scale).unwrap_or(MAX_SCALE).min(MAX_SCALE))
}

/// The least scale that can say `window`, or the largest there is.
fn least_scale(window: ByteCount) -> u8 {
    (0..MAX_SCALE)
        .find(|&scale| largest_window(Some(scale)) >= window)
        .unwrap_or(MAX_SCALE)
}

/// `tcp_default_init_rwnd`: fewer of larger segments, but two.
fn twenty_segments(mss: ByteCount) -> ByteCount {
    const WHOLE: u64 = 20 * 1460;
    let segments = WHOLE.checked_div(mss.get()).unwrap_or(0).clamp(2, 20);
    SegCount::new(segments).of_size(mss)
}

/// The least multiple of 2^`scale` that is no less than `window`.
fn rounded_up(window: ByteCount, scale: u8) -> ByteCount {
    ByteCount::new(window.get().next_multiple_of(1 << scale.min(MAX_SCALE)))
}

fn whole_segments(window: ByteCount, mss: ByteCount) -> ByteCount {
    let rest = window.get().checked_rem(mss.get()).unwrap_or(0);
    window.saturating_sub(ByteCount::new(rest))
}

#[cfg(test)]
mod tests;
