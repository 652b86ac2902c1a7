//! Split TCP: a relay takes a connection over, opens its own to the target, and passes everything
//! on.
//!
//! * In: [`RelayOptions`]: an address to listen on and a [`RelayRole`]: alone, the near relay of a
//!   pair, or the far one. Out: [`RelayEvent`]s, until it is interrupted.
//! * Connections are accepted, authenticated and joined on one thread (tokio); data moves on
//!   others, one a processor, each with its own epoll. From socket to socket it moves by
//!   `splice(2)`.
//! * TLS between two relays is opened and sealed in buffers that all connections of a thread share.
//! * Between two relays that compress, it moves in blocks ([`BlockReader`]), which are compressed
//!   where that wins.
//! * The end of one side is passed on exactly: every byte before a FIN is delivered, a reset never
//!   becomes a FIN, and a reset after a FIN discards nothing.
//!
//! A relay acknowledges data before the other end has it.
//! [`fullpipe_record::RelayedConnection::undelivered`] says how much was lost in that way.

mod blocks;
mod direction;
mod ending;
mod far;
mod followed;
mod leg;
mod message;
mod near;
mod options;
mod packer;
mod pipes;
mod quotas;
mod relay;
mod rules;
mod sockets;
mod waiting;
mod window;
mod worker;

pub use blocks::{BLOCK_BYTES, BlockCodec, BlockError, BlockReader};
pub use message::{StatusError, TargetError, TargetRequest, TargetStatus};
pub use options::{RelayError, RelayEvent, RelayOptions, RelayRole};
pub use relay::relay_connections;
pub use rules::{AllowedTargets, RuleError, TargetAddress};
