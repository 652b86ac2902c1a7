//! The second half of the labelled bench, which shares nothing with the first but the judge: paths
//! of the kernel's own token bucket and of a delay box that is no part of the lab, hosts with real
//! routers between them, programs of others, and parameters drawn from a seed.
//!
//! [`draw`] draws the cases, [`plant`] plants the limit of each, [`run`] runs one, and [`record`]
//! keeps what was seen, so that it can be judged again.

mod captures;
mod case;
mod command;
mod delay_box;
mod draw;
mod network;
mod other_kernel;
mod others;
mod peer;
mod plant;
mod random;
mod record;
mod run;
mod score;
mod side_by_side;
mod silent_tail;
mod virtual_time;

pub(crate) use command::Drawing;
pub(crate) use peer::Peer;
