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
mod pid_file;
mod spawn;
mod sweep;
mod tree;

pub use cgroup::Cgroups;
pub use command::{
    Command, CommandError, Environment, argv, clean_environment, find_command, hall_environment,
};
pub use dial::{Dialer, OwnPorts, Stranger, can_be_bound};
pub use identity::{Identity, boot_id};
pub use leader::Leader;

pub use listener::listeners;
pub use log_cap::cap_logs;
pub use log_file::{LogFile, last_lines};
pub use pid_file::{Draft, PidFile, PidFiles};
pub use spawn::{Spawned, raise_file_limit};
pub use sweep::{reap_orphans, registry, sweep};
pub use tree::Tree;

/// Stands in the environment of every process that a hall starts, with the id of the launch.
pub const INSTANCE_VARIABLE: &str = "GUILD_HALL_INSTANCE";
