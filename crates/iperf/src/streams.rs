use fullpipe_record::{Direction, Request};

/// Returns the number of data connections of a test: one per stream and direction.
pub fn data_connections(request: &Request) -> u16 {
    if request.direction == Direction::Both {
        request.streams.saturating_mul(2)
    } else {
        request.streams
    }
}

/// Returns the direction, seen from the client, of data connection `stream`, numbered from 0 in the
/// order in which they were opened: in a test of both directions, those on which the client sends
/// come first. The order is all that joins the two ends of a stream, so connections are opened and
/// accepted one after the other.
pub fn direction_of(request: &Request, stream: u16) -> Direction {
    match request.direction {
        Direction::Both if stream < request.streams => Direction::Upload,
        Direction::Both => Direction::Download,
        one => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_sending_connections_come_first() {
        let ways = |direction, streams| {
            let request = Request {
                direction,
                streams,
                ..Request::default()
            };
            (0..data_connections(&request))
                .map(|stream| direction_of(&request, stream))
                .collect::<Vec<_>>()
        };
        let (up, down) = (Direction::Upload, Direction::Download);
        assert_eq!(ways(up, 2), [up, up]);
        assert_eq!(ways(down, 2), [down, down]);
        assert_eq!(ways(Direction::Both, 2), [up, up, down, down]);
    }
}
