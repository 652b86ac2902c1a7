//! Captures of a network device.

use fullpipe_trace::{PacketFile, capture_live};

use crate::commands::prelude::*;

/// Captures on a device until the flag is set or the time is over.
pub(super) fn open_device(
    device: &str,
    time: Option<Span>,
    flag: Arc<AtomicBool>,
    terminal: &Terminal,
) -> Result<PacketFile> {
    let (begin, most) = (Instant::now(), time.unwrap_or(Span::MAX));
    let packets = capture_live(device, move || {
        flag.load(Ordering::Relaxed) || Span::from(begin.elapsed()) >= most
    })?;
    let until = time.map_or_else(|| "until Ctrl-C".to_owned(), |time| format!("for {time}"));
    terminal.print_notice(&format!("capturing TCP on {device} {until}"));
    Ok(packets)
}
