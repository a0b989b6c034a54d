//! F2. Processes of Linux: starting, knowing, watching and ending them, and the files about them.
//! Called by `hall`. The only floor with `unsafe`.

mod cgroup;
mod command;
mod dial;
pub mod fault;
mod identity;
mod leader;
mod listener;
mod log_cap;
mod log_file;
mod log_text;
mod memory_file;
mod passed;
mod pid_file;
mod spawn;
mod successor;
mod sweep;
mod tree;
mod usage;
mod ward;

pub use cgroup::Cgroups;
pub use command::{
    Command, CommandError, Environment, argv, clean_environment, find_command, hall_environment,
};
pub use dial::{Dialer, OwnPorts, Stranger, can_be_bound};
pub use identity::{Identity, boot_id};
pub use leader::Leader;

pub use listener::listeners;
pub use log_cap::cap_logs;
pub use log_file::LogFile;
pub use log_text::{LogText, Piece, gap};
pub use passed::{PassedListener, passed_listeners};
pub use pid_file::{Draft, PidFile, PidFiles};
pub use spawn::{Spawned, raise_file_limit};
pub use successor::{
    hear_signals, inheritance, inherited, on_trial, own_program, pass_trial, succeed, try_out,
};
pub use sweep::{reap_orphans, registry, sweep};
pub use tree::Tree;
pub use usage::{Usage, own_usage};
pub use ward::{Pipes, Stderr, Ward, adopt_orphans, die_as};

/// Stands in the environment of every process that a hall starts, with the id of the launch.
pub const INSTANCE_VARIABLE: &str = "GUILD_HALL_INSTANCE";
