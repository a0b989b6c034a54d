//! `run`: the hall, in the foreground.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use futures_util::future::OptionFuture;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use super::doors::{Auth, Doors, Listen};
use super::handover::{self, Estate};
use super::llm;
use super::notify::Notifier;
use super::output::Output;
use super::run_view::View;
use super::{Failed, run_dir};
use crate::control::Door;
use crate::hall::{Hall, HallSettings, RunDir};
use crate::model::PortRange;
use crate::process::{
    PassedListener, hear_signals, passed_listeners, raise_file_limit, reap_orphans, registry,
};

/// Bring up the hall, in the foreground
///
/// Starts every member of the members directory and keeps it alive. SIGTERM or Ctrl-C stops all
/// members and exits; a second one kills them. SIGHUP rescans the members directory. SIGUSR2 has the
/// program at the same path take over in this same process, after an upgrade: members are not touched.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  guild-hall run\n  guild-hall run --members ~/plugins --run-dir /tmp/hall\n  guild-hall run --watch\n  GUILD_HALL_PORTS=51100-51200 guild-hall run --log-format json\n\nEvery flag is also GUILD_HALL_<FLAG> in the environment and a key of guild-hall.yaml; flag beats environment beats file."
)]
pub(super) struct Run {
    /// Where the members are
    #[arg(long, value_name = "DIR", default_value = "guild-members", env = "GUILD_HALL_MEMBERS")]
    members: PathBuf,
    /// Where the hall keeps its socket, PID files and logs [default: $RUNTIME_DIRECTORY, else run]
    #[arg(long, value_name = "DIR", env = "GUILD_HALL_RUN_DIR")]
    run_dir: Option<PathBuf>,
    /// Where the gateway listens besides the socket; none for the socket alone
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4180", env = "GUILD_HALL_LISTEN")]
    listen: Listen,
    /// Let everyone who reaches that port use every tool, without the token
    #[arg(long, env = "GUILD_HALL_NO_AUTH", value_parser = BoolishValueParser::new())]
    no_auth: bool,
    /// The ports that members get
    #[arg(long, value_name = "FIRST-LAST", default_value = "50000-51000", env = "GUILD_HALL_PORTS")]
    ports: PortRange,
    /// Take changes up as they happen: rescan when a manifest changed, restart a member when its files did
    #[arg(long, env = "GUILD_HALL_WATCH", value_parser = BoolishValueParser::new())]
    watch: bool,
    /// Give members a clean environment: PATH, HOME, USER, LANG, LC_*, TZ, TMPDIR, XDG_* and their inheritEnv
    #[arg(long, env = "GUILD_HALL_CLEAN_ENV", value_parser = BoolishValueParser::new())]
    clean_env: bool,
    #[command(flatten)]
    llm: llm::Flags,
    /// Flags from a YAML file [default: guild-hall.yaml, if there is one]
    #[arg(long, value_name = "FILE", env = "GUILD_HALL_CONFIG")]
    config: Option<PathBuf>,
    /// What to print: a view for people, or one line an event; auto is the view on a terminal
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, env = "GUILD_HALL_LOG_FORMAT")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Auto,
    Text,
    Json,
}

/// Threads that may wait for the disk or for `exec`. Few are ever there at a time, since launches are
/// gated and burials take turns; so many, because a launch from a disk that hangs must not stop others.
const BLOCKING_THREADS: usize = 512;
/// Orphans are looked for this often, at the most.
const BETWEEN_BURIALS: Duration = Duration::from_millis(300);

impl Run {
    pub(super) fn execute(self) -> Result<(), Failed> {
        if let Some(verdict) = handover::trial() {
            return verdict.map_err(Failed::new);
        }
        // Before anything else: it needs the process to have one thread.
        let passed = passed_listeners().map_err(Failed::new)?;
        let on_terminal = self.log_format == LogFormat::Auto && std::io::stdout().is_terminal();
        // People read stdout, log collectors stderr: each is printed to without ever waiting for it.
        let (output, printing) =
            if on_terminal { Output::start(anstream::stdout()) } else { Output::start(std::io::stderr()) };
        let outcome = self.bring_up(&output, on_terminal, passed);
        output.finish(&printing);
        outcome
    }

    fn bring_up(
        self, output: &Output, on_terminal: bool, mut passed: Vec<PassedListener>,
    ) -> Result<(), Failed> {
        log_to(output.clone(), self.log_format, on_terminal);
        raise_file_limit();
        registry();
        // What members leave behind becomes our child, and is buried by us.
        if let Err(error) = rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)) {
            tracing::warn!("cannot become a subreaper: {error}");
        }
        let llm = self.llm.resolve()?;
        let settings = HallSettings {
            members: self.members,
            ports: self.ports,
            clean_env: self.clean_env,
            watch: self.watch,
            gateway: None,
            llm,
        };
        let entrance =
            Entrance { listen: self.listen, auth: if self.no_auth { Auth::None } else { Auth::Token } };
        let start = match Estate::inherit() {
            Some(estate) => {
                let estate = estate.map_err(Failed::new)?;
                passed = estate.take_listeners().map_err(Failed::new)?;
                Start::Inherited(estate)
            }
            None => Start::New(RunDir::open(&run_dir(self.run_dir)).map_err(Failed::new)?),
        };
        for PassedListener { name, listener } in &passed {
            let address = listener.local_addr().map_or_else(|error| error.to_string(), |at| at.to_string());
            tracing::info!(name, address, "the service manager has passed a listening socket");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(std::thread::available_parallelism().map_or(2, usize::from).min(4))
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_keep_alive(Duration::from_secs(2))
            .enable_all()
            .build()
            .map_err(|error| Failed::new(format!("cannot start: {error}")))?;
        let outcome = runtime.block_on(run(settings, entrance, start, &passed, output, on_terminal));
        // Nothing that still runs is waited for: it could only be a read of a followed log.
        runtime.shutdown_background();
        outcome
    }
}

/// How the gateway is reached over TCP.
struct Entrance {
    listen: Listen,
    auth: Auth,
}

impl Entrance {
    /// The port that the service manager has opened, or the one that is wanted.
    async fn open(&self, passed: &[PassedListener]) -> Result<Option<Door>, Failed> {
        if let Some(PassedListener { listener, .. }) = passed.first() {
            let door = listener.try_clone().and_then(Door::passed);
            return door
                .map(Some)
                .map_err(|error| Failed::new(format!("cannot use the passed socket: {error}")));
        }
        match self.listen {
            Listen::Nowhere => Ok(None),
            Listen::At(address) => Door::open_tcp(address).await.map(Some).map_err(Failed::new),
        }
    }
}

/// Whether this is a new hall, or the next image of a running one.
enum Start {
    New(RunDir),
    Inherited(Estate),
}

async fn run(
    mut settings: HallSettings, entrance: Entrance, start: Start, passed: &[PassedListener], output: &Output,
    on_terminal: bool,
) -> Result<(), Failed> {
    let no_signals = |error: std::io::Error| Failed::new(format!("cannot listen for signals: {error}"));
    let mut signals = Signals::new().map_err(no_signals)?;
    hear_signals();
    let deaths = signal(SignalKind::child()).map_err(no_signals)?;
    let terminal = on_terminal.then_some(output);
    let told = |address: Option<SocketAddr>| address.map(|at| at.to_string());
    let (hall, running, doors) = match start {
        Start::New(run_dir) => {
            let door = Door::open(&run_dir.socket()).map_err(Failed::new)?;
            let tcp = entrance.open(passed).await?;
            settings.gateway = told(tcp.as_ref().and_then(Door::address));
            // A members directory on a disk that hangs must not swallow a Ctrl-C.
            let started = tokio::select! {
                started = Hall::start(settings, run_dir) => started,
                () = signals.stop() => return Err(Failed::new("asked to stop before the members directory was read")),
            };
            let (hall, running) = started.map_err(Failed::new)?;
            let doors = Doors::start(door, tcp, entrance.auth, &hall).map_err(Failed::new)?;
            // On a task of its own: it must take messages while this one waits to send one.
            (hall, tokio::spawn(running), doors)
        }
        Start::Inherited(Estate { hall, doors, .. }) => {
            settings.gateway = told(doors.address());
            let (hall, running) = Hall::resume(settings, hall.get()).map_err(Failed::new)?;
            let doors = Doors::resume(doors, entrance.auth, &hall).map_err(Failed::new)?;
            (hall, tokio::spawn(running), doors)
        }
    };
    // Only now: children of the image before are no orphans.
    let burying = tokio::spawn(bury_orphans(deaths));
    if terminal.is_some() {
        tokio::spawn(View::new(hall.clone(), output.clone()).show());
    } else {
        let (socket, members) = (hall.run_dir().socket(), hall.members_dir());
        tracing::info!(socket = %socket.display(), gateway = hall.roster().hall.gateway.as_deref().unwrap_or("none"), members = %members.display(), pid = std::process::id(), "the hall is up");
    }
    let hand_over = || handover::hand_over(&hall, &doors, passed, output.clone());
    let outcome = follow(&hall, running, &mut signals, terminal, hand_over).await;
    burying.abort();
    doors.finish().await;
    outcome.map_err(Failed::new)?;
    announce(terminal, "all members are stopped");
    Ok(())
}

/// Does what signals ask for, until the hall has ended.
async fn follow<F: Future<Output = String>>(
    hall: &Hall, mut running: JoinHandle<Result<(), String>>, signals: &mut Signals,
    terminal: Option<&Output>, hand_over: impl Fn() -> F,
) -> Result<(), String> {
    let notifier = Notifier::start(hall.clone());
    let mut asked = false;
    let mut handing_over = false;
    let handing = OptionFuture::from(None);
    tokio::pin!(handing);
    loop {
        tokio::select! {
            outcome = &mut running => {
                return outcome.unwrap_or_else(|panic| Err(format!("a fault of the hall itself: {panic}")));
            }
            Some(why) = &mut handing => {
                handing.set(None.into());
                handing_over = false;
                notifier.reloaded();
                announce(terminal, &format!("the hall was not handed over and goes on as it is: {why}"));
            }
            wanted = signals.next() => match wanted {
                Wanted::Stop if asked => hall.kill_all().await,
                Wanted::Stop => {
                    asked = true;
                    notifier.stopping();
                    announce(terminal, "stopping all members; once more kills them");
                    hall.shut_down().await;
                }
                Wanted::Reload => reload(hall.clone(), notifier.clone()),
                // One at a time.
                Wanted::HandOver if handing_over => {}
                Wanted::HandOver => {
                    handing_over = true;
                    announce(terminal, "handing over to the program as it is installed now");
                    let (notifier, handed) = (notifier.clone(), hand_over());
                    let handed = async move {
                        // The next image says that it is ready.
                        notifier.reloading().await;
                        handed.await
                    };
                    handing.set(Some(handed).into());
                }
            },
        }
    }
}

fn announce(terminal: Option<&Output>, what: &str) {
    match terminal {
        Some(output) => output.say(&format!("{what}\n")),
        None => tracing::info!("{what}"),
    }
}

/// On a task of its own: the disk may be slow, and a second SIGTERM must be heard.
fn reload(hall: Hall, notifier: Notifier) {
    tokio::spawn(async move {
        notifier.reloading().await;
        let reloaded = hall.reload().await;
        notifier.reloaded();
        match reloaded {
            Ok(changes) => tracing::info!(
                added = changes.added.len(),
                changed = changes.changed.len(),
                removed = changes.removed.len(),
                unchanged = changes.unchanged,
                "rescanned"
            ),
            Err(error) => tracing::warn!("nothing was reloaded: {error}"),
        }
    });
}

/// What a signal asks for.
enum Wanted {
    Stop,
    Reload,
    HandOver,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user_2: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user_2: signal(SignalKind::user_defined2())?,
        })
    }

    async fn stop(&mut self) {
        while !matches!(self.next().await, Wanted::Stop) {}
    }

    async fn next(&mut self) -> Wanted {
        tokio::select! {
            _ = self.terminate.recv() => Wanted::Stop,
            _ = self.interrupt.recv() => Wanted::Stop,
            _ = self.hangup.recv() => Wanted::Reload,
            _ = self.user_2.recv() => Wanted::HandOver,
        }
    }
}

/// Grandchildren whose parents died are ours to reap; there is no hurry.
async fn bury_orphans(mut deaths: Signal) {
    while deaths.recv().await.is_some() {
        // Not while a birth is under way: then a little later.
        while let Ok(None) = tokio::task::spawn_blocking(|| reap_orphans(false)).await {
            tokio::time::sleep(BETWEEN_BURIALS).await;
        }
        tokio::time::sleep(BETWEEN_BURIALS).await;
    }
}

fn log_to(output: Output, format: LogFormat, on_terminal: bool) {
    let level = if on_terminal { tracing::Level::WARN } else { tracing::Level::INFO };
    let level = match std::env::var("GUILD_HALL_LOG").as_deref() {
        Ok("debug") => tracing::Level::DEBUG,
        Ok("warn") => tracing::Level::WARN,
        _ => level,
    };
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(move || output.clone());
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Auto | LogFormat::Text => {
            let coloured = std::io::stderr().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            builder.with_target(false).with_ansi(coloured).init();
        }
    }
}
