use super::*;
use crate::control::MessageSender;
use crate::pulse::SilenceWatch;
use std::sync::mpsc::channel;

#[test]
fn a_connection_that_breaks_is_named_once_if_the_transfer_goes_on() {
    let out = MessageSender::start_writer(io::sink(), &SilenceWatch::new(Duration::from_secs(9)))
        .unwrap()
        .0;
    let (events, noted) = channel();
    let common = TransferContext::new(out, Arc::default(), Some(events));
    let sender = FileSender::new(common, Vec::new(), ExcludePatterns::default(), false);
    let named = || {
        noted
            .try_iter()
            .filter(|event| matches!(event, CopyEvent::Note(_)))
            .count()
    };
    sender.queue.set_streams(3, 3);
    sender.lose_connection(0, "reset");
    sender
        .handle_message(CopyMessage::Lost { index: 0 })
        .unwrap();
    sender.name_long_broken();
    assert_eq!(named(), 0, "the transfer may be about to end");
    sender.name_broken(Instant::now());
    assert_eq!(named(), 1);
    sender.lose_connection(1, "reset");
    sender.handle_message(CopyMessage::Finished).unwrap();
    assert_eq!(named(), 1);
    sender.lose_connection(2, "reset");
    sender.name_broken(Instant::now());
    assert_eq!(named(), 0);
}
