use super::*;

/// Windows of Linux 6.18 in the lab: 123 of 256 if the first arrival was a train of three
/// segments.
#[test]
fn a_train_of_three_segments_takes_two_pages() {
    assert_eq!(
        [3, 8].map(|segments| share_of_train(ByteCount::new(segments * 1448))),
        [123, 226]
    );
}
