//! F1. Deciding without doing: every member's life as pure functions of what happened and when.
//!
//! Nothing here touches a file, a socket, a clock or chance. [`Guild`] is told what happened and the
//! present [`Moment`](crate::model::Moment), changes its members, and has the [`Action`]s ready that
//! somebody (the hall, or a simulation) must now carry out.
//!
//! Read `member.rs` first: it is the table of a member's life.

mod bookkeeping;
mod budget;
mod changes;
mod entry;
mod gate;
mod guild;
mod member;
mod phase;
mod ports;
mod random;
mod reopening;
mod seat;

pub use guild::{Action, Guild, Order, Refusal, Settings, Transition, Wish};
pub use member::{MOST_PORTS_TRIED, Report};
pub use reopening::{Asked, Living, Memory, Survivor};
