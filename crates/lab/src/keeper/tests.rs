use super::*;

#[test]
fn drops_of_both_directions_are_added() {
    let table = "Inter-|   Receive  |  Transmit\n \
                     face |bytes packets errs drop fifo frame compressed multicast|bytes\n    \
                     lo: 0 0 0 9 0 0 0 0 0 0 0 0 0 0 0 0\n\
                     path0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
    assert_eq!(parse_device_drops(table, "path0"), Some(16));
    assert_eq!(parse_device_drops(table, "path1"), None);
}
