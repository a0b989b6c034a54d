//! F5. The command line: one file a verb. Errors go to stderr, with the next step; data to stdout.

mod call;
mod check;
mod config;
mod connect;
mod doctor;
mod doors;
mod end_leftovers;
mod handover;
mod llm;
mod logs;
mod mcp;
mod new;
mod notify;
mod output;
mod patience;
mod porter;
mod print;
mod register;
mod reload;
mod roster;
mod run;
mod run_view;
mod shell;
mod snippet;
mod table;
mod tools;
mod wish;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::control::{Client, ClientError};
use crate::lifecycle::Wish;

/// The supervisor that AI-agent plugins live under.
///
/// Finds plugins in a folder, gives each a port, starts it, shakes hands, keeps it alive, and tells
/// who is connected and why another is not.
#[derive(Debug, Parser)]
#[command(name = "guild-hall", version, args_override_self = true, max_term_width = 100)]
#[command(
    after_help = "First steps:\n  guild-hall run                     bring up the members in ./guild-members\n  guild-hall roster                  who is connected, and why another is not\n  guild-hall call example echo '{\"text\":\"hello\"}'\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 no hall is running, 4 no such member or tool, 5 the tool reported an error."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Run),
    Roster(roster::Roster),
    Tools(tools::Tools),
    Call(call::Call),
    /// Start members and wait until they have settled
    #[command(after_help = "Example:\n  guild-hall start weather toolbox/clock")]
    Start(wish::Names),
    /// Stop members and wait until they have ended
    #[command(after_help = "Example:\n  guild-hall stop weather")]
    Stop(wish::Names),
    /// Stop and start members, and wait until they have settled
    #[command(after_help = "Example:\n  guild-hall restart weather --no-wait")]
    Restart(wish::Names),
    Reload(reload::Reload),
    Register(register::Register),
    Unregister(register::Unregister),
    Logs(logs::Logs),
    Mcp(mcp::Mcp),
    Check(check::Check),
    New(new::New),
    Connect(connect::Connect),
    Doctor(doctor::Doctor),
    #[command(hide = true)]
    EndLeftovers(end_leftovers::EndLeftovers),
    #[command(hide = true)]
    Porter(porter::Porter),
    /// The member in guild-members/example: an MCP server for the first command
    #[command(hide = true)]
    ExampleMember {
        #[arg(long)]
        port: u16,
    },
}

/// Where the running hall is found.
#[derive(Debug, clap::Args)]
struct Target {
    /// The hall's socket [default: guild-hall.sock in the run directory]
    #[arg(long, value_name = "PATH", env = "GUILD_HALL_SOCKET")]
    socket: Option<PathBuf>,
    /// The run directory of the hall [default: $RUNTIME_DIRECTORY, else run]
    #[arg(long, value_name = "DIR", env = "GUILD_HALL_RUN_DIR")]
    run_dir: Option<PathBuf>,
}

impl Target {
    fn client(&self) -> Client {
        Client::new(&self.socket())
    }

    fn socket(&self) -> PathBuf {
        let in_run_dir = || run_dir(self.run_dir.clone()).join("guild-hall.sock");
        self.socket.clone().unwrap_or_else(in_run_dir)
    }
}

fn run_dir(given: Option<PathBuf>) -> PathBuf {
    let of_systemd =
        || std::env::var_os("RUNTIME_DIRECTORY").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    given.or_else(of_systemd).unwrap_or_else(|| "run".into())
}

/// A verb that did not do what it was asked: what to print and how to exit.
#[derive(Debug)]
struct Failed {
    code: u8,
    /// One cause a line.
    message: String,
}

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NO_HALL: u8 = 3;
const NOT_FOUND: u8 = 4;
const TOOL_ERROR: u8 = 5;

impl Failed {
    fn new(message: impl ToString) -> Self {
        Self { code: FAILED, message: message.to_string() }
    }

    fn usage(message: impl ToString) -> Self {
        Self { code: USAGE, message: message.to_string() }
    }

    fn code_of(error: &ClientError) -> u8 {
        match error {
            ClientError::NoHall { .. } => NO_HALL,
            ClientError::Problem(problem) if problem.status == 404 => NOT_FOUND,
            ClientError::Problem(problem) if problem.status == 400 => USAGE,
            _ => FAILED,
        }
    }
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        Self { code: Self::code_of(&error), message: error.to_string() }
    }
}

/// Parses the command line, does what it says, and exits as documented.
pub fn main() -> ExitCode {
    let args: Vec<OsString> = match config::with_file(std::env::args_os().collect()) {
        Ok(args) => args,
        Err(failed) => return exit(Err(failed)),
    };
    let cli = Cli::try_parse_from(args).unwrap_or_else(|error| error.exit());
    exit(match cli.verb {
        Verb::Run(run) => run.execute(),
        Verb::Check(check) => check.execute(),
        Verb::New(new) => new.execute(),
        Verb::Doctor(doctor) => doctor.execute(),
        Verb::EndLeftovers(end) => end.execute(),
        Verb::Porter(porter) => return porter.execute(),
        Verb::ExampleMember { port } => return example_member(port),
        Verb::Roster(roster) => client_runtime(roster.execute()),
        Verb::Tools(tools) => client_runtime(tools.execute()),
        Verb::Call(call) => client_runtime(call.execute()),
        Verb::Start(names) => client_runtime(names.execute(Wish::Start)),
        Verb::Stop(names) => client_runtime(names.execute(Wish::Stop)),
        Verb::Restart(names) => client_runtime(names.execute(Wish::Restart)),
        Verb::Reload(reload) => client_runtime(reload.execute()),
        Verb::Register(register) => client_runtime(register.execute()),
        Verb::Unregister(unregister) => client_runtime(unregister.execute()),
        Verb::Logs(logs) => client_runtime(logs.execute()),
        Verb::Mcp(mcp) => client_runtime(mcp.execute()),
        Verb::Connect(connect) => client_runtime(connect.execute()),
    })
}

fn exit(outcome: Result<(), Failed>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed { code, message }) => {
            for line in message.lines() {
                print::error(line);
            }
            ExitCode::from(code)
        }
    }
}

/// A verb that talks to the hall needs one thread.
fn client_runtime(work: impl Future<Output = Result<(), Failed>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failed::new(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(work);
    // A read of stdin that nobody waits for any more is not waited for.
    runtime.shutdown_background();
    outcome
}

fn example_member(port: u16) -> ExitCode {
    let served = client_runtime(async {
        match crate::mcp::serve_example(port).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                Err(Failed { code: 2, message: format!("port {port} is taken: {error}") })
            }
            Err(error) => Err(Failed::new(error)),
        }
    });
    exit(served)
}
