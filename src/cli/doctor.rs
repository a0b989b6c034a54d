//! `doctor`: what on this machine would keep the hall from working, and how to mend it.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::print::{self, DIM, GREEN, RED, YELLOW, styled};
use super::{FAILED, Failed, run_dir};
use crate::discovery::discover;
use crate::model::porter::Behind;
use crate::model::{Manifest, Port, PortRange};
use crate::process::{Cgroups, can_be_bound, find_command, listeners};

/// Look for what on this machine would keep the hall from working, and how to mend it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  guild-hall doctor --members guild-members")]
pub(super) struct Doctor {
    /// Where the members are: are their commands installed?
    #[arg(long, value_name = "DIR", default_value = "guild-members", env = "GUILD_HALL_MEMBERS")]
    members: PathBuf,
    /// The run directory: can it be written?
    #[arg(long, value_name = "DIR", env = "GUILD_HALL_RUN_DIR")]
    run_dir: Option<PathBuf>,
    /// The ports that members get
    #[arg(long, value_name = "FIRST-LAST", default_value = "50000-51000", env = "GUILD_HALL_PORTS")]
    ports: PortRange,
    /// The findings as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Error,
}

#[derive(Serialize)]
struct Finding {
    level: Level,
    about: &'static str,
    found: String,
    /// What to do about it.
    remedy: Option<String>,
}

impl Doctor {
    pub(super) fn execute(self) -> Result<(), Failed> {
        let mut findings = vec![
            kernel(),
            cgroups(),
            socket_owners(),
            descriptors(),
            self.run_directory(),
            self.pool(),
            self.reserved(),
        ];
        findings.extend(self.commands());
        if self.json {
            print::json(&findings)?;
        } else {
            for finding in &findings {
                print::out(&line(finding))?;
            }
        }
        let failed = findings.iter().any(|finding| finding.level == Level::Error);
        if failed { Err(Failed { code: FAILED, message: String::new() }) } else { Ok(()) }
    }

    fn run_directory(&self) -> Finding {
        let dir = run_dir(self.run_dir.clone());
        let about = "run directory";
        if !dir.exists() {
            return fine(about, format!("{} will be made", dir.display()));
        }
        let writable = rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok();
        if writable {
            fine(about, format!("{} can be written", dir.display()))
        } else {
            let found = format!("{} cannot be written", dir.display());
            bad(Level::Error, about, found, "make it yours, or choose another with --run-dir")
        }
    }

    fn pool(&self) -> Finding {
        let busy: Vec<String> = self
            .ports
            .ports()
            .filter(|&port| !matches!(can_be_bound(port), Ok(true)))
            .map(|port| port.to_string())
            .collect();
        let found = format!(
            "{} of {} ports in {} can be bound",
            self.ports.len() - busy.len(),
            self.ports.len(),
            self.ports
        );
        match busy.len() {
            0 => fine("ports", found),
            all if all == self.ports.len() => {
                bad(Level::Error, "ports", found, "choose another range with --ports")
            }
            _ => fine(
                "ports",
                format!("{found}; in use: {}", busy.iter().take(10).cloned().collect::<Vec<_>>().join(", ")),
            ),
        }
    }

    /// Outgoing connections borrow ports of the ephemeral range.
    fn reserved(&self) -> Finding {
        let about = "port reservation";
        let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        let ephemeral = read("ip_local_port_range");
        let mut bounds = ephemeral.split_whitespace().filter_map(|bound| bound.parse::<u16>().ok());
        let (Some(low), Some(high)) = (bounds.next(), bounds.next()) else {
            return fine(about, "the ephemeral range is unknown".into());
        };
        let (first, last) = (*self.ports.numbers().start(), *self.ports.numbers().end());
        if last < low || high < first {
            return fine(about, format!("{} lies outside the ephemeral range {low}-{high}", self.ports));
        }
        let reserved = read("ip_local_reserved_ports");
        let covered = reserved.trim().split(',').any(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            from.parse().is_ok_and(|from: u16| from <= first) && to.parse().is_ok_and(|to: u16| last <= to)
        });
        if covered {
            return fine(about, format!("{} is reserved", self.ports));
        }
        let remedy = format!(
            "sysctl -w net.ipv4.ip_local_reserved_ports={} (members get another port meanwhile)",
            self.ports
        );
        bad(
            Level::Warning,
            about,
            format!(
                "{} lies inside the ephemeral range {low}-{high}: outgoing connections borrow its ports",
                self.ports
            ),
            remedy,
        )
    }

    fn commands(&self) -> Vec<Finding> {
        let about = "members";
        let found = match discover(&self.members) {
            Ok(found) => found,
            Err(error) => {
                return vec![bad(Level::Error, about, error.to_string(), "guild-hall check says more")];
            }
        };
        let invalid = found.papers.values().filter(|paper| paper.is_err()).count();
        let mut findings = vec![match invalid {
            0 => fine(about, format!("{} in {}", found.papers.len(), self.members.display())),
            _ => bad(
                Level::Error,
                about,
                format!("{invalid} of {} manifests are invalid", found.papers.len()),
                "guild-hall check names each fault",
            ),
        }];
        let missing = found.papers.iter().filter_map(|(key, paper)| {
            let error = find_command(&started(paper.as_ref().ok()?)).err()?;
            Some(bad(Level::Error, "command", format!("{key}: {error}"), "install it"))
        });
        findings.extend(missing);
        findings
    }
}

/// The manifest with what is executed in the end.
fn started(manifest: &Manifest) -> Cow<'_, Manifest> {
    let behind = manifest.porter.as_ref().map(|porter| &porter.behind);
    if !matches!(behind, Some(Behind::Python { .. })) {
        return Cow::Borrowed(manifest);
    }
    let own = ".venv/bin/python";
    let command = if manifest.dir.join(own).exists() { own } else { "python3" };
    Cow::Owned(Manifest { command: command.into(), porter: None, ..manifest.clone() })
}

fn kernel() -> Finding {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).filter_map(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version {
        version if version < (5, 10) => {
            bad(Level::Error, "kernel", format!("Linux {release} is too old"), "5.10 or newer is needed")
        }
        version if version < (6, 9) => bad(
            Level::Warning,
            "kernel",
            format!("Linux {release}"),
            "it works; 6.9 and newer signal whole groups exactly, 6.15 and newer tell how a process ended that was taken over",
        ),
        _ => fine("kernel", format!("Linux {release}")),
    }
}

fn cgroups() -> Finding {
    match Cgroups::new(&format!("doctor-{}", std::process::id())) {
        Some(cgroups) => {
            cgroups.remove();
            fine("cgroups", "every member gets a cgroup of its own: nothing that it starts can escape".into())
        }
        None => bad(
            Level::Warning,
            "cgroups",
            "no cgroup v2 can be made here".into(),
            "members are ended by process group and by the instance id in their environment; run the hall under systemd with Delegate=yes, or as a user service, for more",
        ),
    }
}

/// Without it no member can be proven to be itself, and none is ever connected.
fn socket_owners() -> Finding {
    let about = "socket owners";
    let asked = Port::new(1).map(listeners);
    match asked {
        Some(Err(error)) => bad(
            Level::Error,
            about,
            format!("the kernel does not tell who listens on a port: {error}"),
            "the kernel needs CONFIG_INET_DIAG and CONFIG_INET_TCP_DIAG (modprobe tcp_diag), and a sandbox must allow netlink sockets",
        ),
        _ => fine(about, "the kernel tells who listens on a port".into()),
    }
}

fn descriptors() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = limit.unwrap_or(u64::MAX);
    match limit {
        0..4096 => bad(
            Level::Warning,
            "open files",
            format!("at most {limit}"),
            "ulimit -Hn 65536: each member needs about 8",
        ),
        _ => fine("open files", format!("at most {limit}")),
    }
}

fn fine(about: &'static str, found: String) -> Finding {
    Finding { level: Level::Ok, about, found, remedy: None }
}

fn bad(level: Level, about: &'static str, found: String, remedy: impl Into<String>) -> Finding {
    Finding { level, about, found, remedy: Some(remedy.into()) }
}

fn line(finding: &Finding) -> String {
    let mark = match finding.level {
        Level::Ok => styled(GREEN, "ok     "),
        Level::Warning => styled(YELLOW, "warning"),
        Level::Error => styled(RED, "error  "),
    };
    let remedy = finding
        .remedy
        .as_ref()
        .map(|remedy| format!("\n         {}", styled(DIM, remedy)))
        .unwrap_or_default();
    format!("{mark}  {}: {}{remedy}\n", finding.about, finding.found)
}
