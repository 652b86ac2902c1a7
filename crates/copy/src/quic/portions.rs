//! The portions of which a stream of a copy consists, each a QUIC stream of its own: their heads
//! say where they belong.

use std::collections::BTreeMap;

use quinn_proto::{Connection, ReadError, StreamId};

use super::pipe::{IncomingBytes, MAX_INCOMING};

/// Bytes of a portion at most, without its head.
pub(super) const PORTION: usize = 1 << 20;

/// Bytes of the head of a portion.
pub(super) const HEAD: usize = 6;

/// Portions that may be on their way at once.
pub(super) const MAX_PORTIONS: u32 = 1024;

/// The begin of a portion: the stream of the copy, and its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortionHead {
    pub(super) stream: u16,
    pub(super) number: u32,
}

impl PortionHead {
    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..2].copy_from_slice(&self.stream.to_le_bytes());
        bytes[2..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Returns the head in the first bytes of a portion, once all of them are there.
    fn parse_head(bytes: &[u8]) -> Option<Self> {
        let (stream, number) = bytes.split_first_chunk()?;
        Some(Self {
            stream: u16::from_le_bytes(*stream),
            number: u32::from_le_bytes(*number.first_chunk()?),
        })
    }
}

/// The other end has broken the rules of portions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BrokenPortions;

/// Portions that are on their way.
#[derive(Debug, Default)]
pub(super) struct PendingPortions {
    /// The first bytes of portions whose heads have not arrived in full, by QUIC stream.
    begun: BTreeMap<StreamId, Vec<u8>>,
    /// By stream.
    order: PortionOrder,
}

/// The order of the portions of each stream.
#[derive(Debug, Default)]
struct PortionOrder(Vec<PortionQueue>);

#[derive(Debug, Default)]
struct PortionQueue {
    next: u32,
    waiting: BTreeMap<u32, StreamId>,
}

impl PortionOrder {
    fn insert_portion(&mut self, head: PortionHead, id: StreamId) -> Result<(), BrokenPortions> {
        let places = self
            .0
            .get_mut(usize::from(head.stream))
            .ok_or(BrokenPortions)?;
        if head.number < places.next || places.waiting.insert(head.number, id).is_some() {
            return Err(BrokenPortions);
        }
        Ok(())
    }

    /// Returns the portion of a stream from which to read.
    fn current_portion(&self, stream: usize) -> Option<StreamId> {
        let places = &self.0[stream];
        places.waiting.get(&places.next).copied()
    }

    /// Goes on to the next portion of a stream.
    fn advance_stream(&mut self, stream: usize) {
        let places = &mut self.0[stream];
        places.waiting.remove(&places.next);
        places.next = places.next.saturating_add(1);
    }
}

impl PendingPortions {
    /// Notes a QUIC stream that the other end has opened.
    pub(super) fn add_stream(&mut self, id: StreamId) {
        self.begun.insert(id, Vec::new());
    }

    /// Reads what has come into `incoming`, which has as many streams as the copy; nothing before
    /// it has any.
    ///
    /// # Errors
    /// Fails if the other end breaks the rules.
    pub(super) fn read_portions(
        &mut self,
        connection: &mut Connection,
        incoming: &mut [IncomingBytes],
    ) -> Result<bool, BrokenPortions> {
        self.order
            .0
            .resize_with(incoming.len(), PortionQueue::default);
        if incoming.is_empty() {
            return Ok(false);
        }
        self.read_heads(connection)?;
        let mut has_come = false;
        for (stream, into) in incoming.iter_mut().enumerate() {
            has_come |= self.read_stream(connection, stream, into)?;
        }
        Ok(has_come)
    }

    fn read_heads(&mut self, connection: &mut Connection) -> Result<(), BrokenPortions> {
        let ids: Vec<StreamId> = self.begun.keys().copied().collect();
        for id in ids {
            let Some(head) = self.begun.get_mut(&id) else {
                continue;
            };
            let mut stream = connection.recv_stream(id);
            let mut chunks = stream.read(true).map_err(|_| BrokenPortions)?;
            while head.len() < HEAD {
                match chunks.next(HEAD - head.len()) {
                    Ok(Some(chunk)) => head.extend_from_slice(&chunk.bytes),
                    Err(ReadError::Blocked) => break,
                    Ok(None) | Err(ReadError::Reset(_)) => return Err(BrokenPortions),
                }
            }
            if let Some(head) = PortionHead::parse_head(head) {
                self.begun.remove(&id);
                self.order.insert_portion(head, id)?;
            }
        }
        Ok(())
    }

    fn read_stream(
        &mut self,
        connection: &mut Connection,
        stream: usize,
        into: &mut IncomingBytes,
    ) -> Result<bool, BrokenPortions> {
        let before = into.bytes;
        while let Some(id) = self.order.current_portion(stream) {
            let mut portion = connection.recv_stream(id);
            let mut chunks = portion.read(true).map_err(|_| BrokenPortions)?;
            loop {
                if into.bytes >= MAX_INCOMING {
                    into.is_full = true;
                    return Ok(into.bytes > before);
                }
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => {
                        into.bytes += chunk.bytes.len();
                        into.parts.push_back(chunk.bytes);
                    }
                    Ok(None) => break,
                    Err(ReadError::Blocked) => return Ok(into.bytes > before),
                    Err(ReadError::Reset(_)) => return Err(BrokenPortions),
                }
            }
            self.order.advance_stream(stream);
        }
        Ok(into.bytes > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::{Dir, Side};

    #[test]
    fn portions_are_read_in_their_order_and_none_twice() {
        let id = |index| StreamId::new(Side::Client, Dir::Uni, index);
        let head = |stream, number| PortionHead { stream, number };
        assert_eq!(
            PortionHead::parse_head(&head(258, 70_000).to_bytes()),
            Some(head(258, 70_000))
        );
        assert_eq!(
            PortionHead::parse_head(&head(258, 70_000).to_bytes()[..HEAD - 1]),
            None
        );
        let mut order = PortionOrder::default();
        order.0.resize_with(2, PortionQueue::default);
        order.insert_portion(head(1, 1), id(0)).unwrap();
        assert_eq!(order.current_portion(1), None);
        order.insert_portion(head(1, 0), id(1)).unwrap();
        assert_eq!(order.current_portion(1), Some(id(1)));
        order.advance_stream(1);
        assert_eq!(
            (order.current_portion(1), order.current_portion(0)),
            (Some(id(0)), None)
        );
        for wrong in [head(1, 0), head(1, 1), head(2, 0)] {
            assert_eq!(
                order.insert_portion(wrong, id(2)),
                Err(BrokenPortions),
                "{wrong:?}"
            );
        }
    }
}
