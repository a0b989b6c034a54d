//! A process for each call: one line of JSON in, one out. HomeClaw, "Plugin Standard" §5.3. Called by `toolbox`.
//!
//! The answer is what the process has written to stdout when it has exited with 0: a JSON value; or else the
//! last of its lines that is a PluginResult, where a plugin says other things too; or else all of it, as text.
//! Any other end is a failure, whatever was written.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::diary;
use super::reply::{Reply, is_result};
use super::request::Asked;
use crate::mcp::excerpt;
use crate::model::porter::Program;
use crate::model::{Exit, Instance};
use crate::process::{Pipes, Stderr, Ward, reap_orphans};

/// Calls at a time; further ones wait for their turn.
const PLACES: u32 = 16;
/// An answer may be this large; bytes.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;
/// Of stderr, this much is told when a call fails; bytes.
const TOLD: usize = 2048;
/// What a dead process has written is in the pipe already. Who still holds its other end is not waited for.
const DRAIN: Duration = Duration::from_millis(100);
/// A killed process is dead after a moment, or stays in the kernel.
const BURIAL: Duration = Duration::from_secs(2);
/// What a process has left behind is looked for so often...
const ROUNDS: u32 = 10;
/// ...and each time it is given so long to be dead.
const ROUND: Duration = Duration::from_millis(2);

/// See the module's page.
#[derive(Debug)]
pub(super) struct Subprocess {
    program: Program,
    dir: PathBuf,
    places: Semaphore,
}

/// What a process has said.
#[derive(Default)]
struct Said {
    stdout: Vec<u8>,
    /// The last of it.
    stderr: Vec<u8>,
}

/// How a process came to its end.
enum End {
    Exited(Option<Exit>),
    TooMuch,
    TooLong,
}

impl Subprocess {
    pub(super) fn new(program: Program, dir: PathBuf) -> Self {
        Self { program, dir, places: Semaphore::new(PLACES as usize) }
    }

    /// Dropping it kills the process and whatever that has started.
    pub(super) async fn call(&self, asked: &Asked, patience: Duration) -> Reply {
        let deadline = Instant::now() + patience;
        let Ok(Ok(place)) = timeout_at(deadline, self.places.acquire()).await else {
            return Reply::failed(format!(
                "{} was not started: {PLACES} calls of it are under way, and none of them ended within {patience:?}",
                self.command()
            ));
        };
        let reply = self.run(asked, deadline, patience).await;
        // What has left its process group and cleared its environment is known by nothing, and is certainly
        // an orphan only while nothing else runs.
        if self.places.available_permits() + 1 == PLACES as usize {
            for _ in 0..ROUNDS {
                if reap_orphans(true).unwrap_or(0) == 0 {
                    break;
                }
                sleep(ROUND).await;
            }
        }
        drop(place);
        reply
    }

    async fn run(&self, asked: &Asked, deadline: Instant, patience: Duration) -> Reply {
        let (mut ward, listening) = match self.start() {
            Ok(started) => started,
            Err(error) => return Reply::failed(format!("cannot start {}: {error}", self.command())),
        };
        let mut line = asked.request.to_string();
        line.push('\n');
        let mut said = Said::default();
        let end = {
            let hearing = listening.hear(line, &mut said);
            tokio::pin!(hearing);
            let mut is_heard = false;
            let end = loop {
                tokio::select! {
                    biased;
                    heard = &mut hearing, if !is_heard => match heard {
                        Ok(()) => is_heard = true,
                        Err(TooMuch) => break End::TooMuch,
                    },
                    exit = ward.wait() => break End::Exited(exit),
                    () = tokio::time::sleep_until(deadline) => break End::TooLong,
                }
            };
            if !matches!(end, End::Exited(_)) {
                ward.kill();
                let _ = timeout(BURIAL, ward.wait()).await;
            }
            match (is_heard, end) {
                (false, end @ (End::Exited(_) | End::TooLong)) => match timeout(DRAIN, hearing).await {
                    Ok(Err(TooMuch)) => End::TooMuch,
                    _ => end,
                },
                (_, end) => end,
            }
        };
        let what = match end {
            End::Exited(Some(Exit::Code(0))) => return answer(&said.stdout),
            End::Exited(exit) => {
                let exit = exit.unwrap_or(Exit::Unknown);
                if let Some(reason) = failure(&said.stdout) {
                    return Reply::failed(format!("{reason} ({} {exit})", self.command()));
                }
                exit.to_string()
            }
            End::TooMuch => {
                format!("wrote more than {} MiB to stdout, and was killed", LARGEST_ANSWER >> 20)
            }
            End::TooLong => {
                format!("did not end within {patience:?}, and was killed with all that it had started")
            }
        };
        Reply::failed(format!("{} {what}{}", self.command(), said.last_words()))
    }

    fn start(&self) -> Result<(Ward, Listening), Box<dyn std::error::Error + Send + Sync>> {
        let mut bits = [0; 8];
        getrandom::fill(&mut bits)?;
        let instance = Instance::from_bits(u64::from_ne_bytes(bits));
        let (ward, pipes) = Ward::spawn(&self.program, &self.dir, instance, Stderr::Pipe)?;
        Ok((ward, Listening::to(pipes)?))
    }

    /// As a person would type it, but not the whole of a script that stands in an argument.
    fn command(&self) -> String {
        let words: Vec<&str> =
            std::iter::once(&self.program.command).chain(&self.program.args).map(String::as_str).collect();
        format!("`{}`", excerpt(words.join(" ").as_bytes()))
    }
}

/// The pipes of a process that is to be heard.
struct Listening {
    stdin: Sender,
    stdout: Receiver,
    stderr: Option<Receiver>,
}

/// It has written more than an answer may have.
struct TooMuch;

impl Listening {
    fn to(pipes: Pipes) -> io::Result<Self> {
        Ok(Self {
            stdin: Sender::from_owned_fd(pipes.stdin)?,
            stdout: Receiver::from_owned_fd(pipes.stdout)?,
            stderr: pipes.stderr.map(Receiver::from_owned_fd).transpose()?,
        })
    }

    /// Returns when both of its outputs are closed.
    async fn hear(self, line: String, said: &mut Said) -> Result<(), TooMuch> {
        let Self { mut stdin, stdout, stderr } = self;
        let Said { stdout: answer, stderr: words } = said;
        let asking = async move {
            // A program need not read what it is asked, and may close its stdin.
            let _ = stdin.write_all(line.as_bytes()).await;
            Ok(())
        };
        let outcome = tokio::try_join!(asking, take_answer(stdout, answer), take_words(stderr, words));
        outcome.map(|_| ())
    }
}

async fn take_answer(mut pipe: Receiver, answer: &mut Vec<u8>) -> Result<(), TooMuch> {
    loop {
        // A broken pipe is a closed one.
        match pipe.read_buf(answer).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) if answer.len() > LARGEST_ANSWER => return Err(TooMuch),
            Ok(_) => {}
        }
    }
}

/// To the member's log as they come, and the last of them for who has called.
async fn take_words(pipe: Option<Receiver>, words: &mut Vec<u8>) -> Result<(), TooMuch> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut piece = vec![0; 16 * 1024];
    loop {
        let length = match pipe.read(&mut piece).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(length) => length,
        };
        let piece = piece.get(..length).unwrap_or_default();
        diary::copy(piece);
        words.extend_from_slice(piece);
        // What was cut is told by there being more than is told.
        words.drain(..words.len().saturating_sub(TOLD + 1));
    }
}

impl Said {
    fn last_words(&self) -> String {
        let is_cut = self.stderr.len() > TOLD;
        let mut words = self.stderr.as_slice();
        if is_cut {
            let begin = words.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            words = words.get(begin..).filter(|rest| !rest.is_empty()).unwrap_or(words);
        }
        let words = String::from_utf8_lossy(words);
        let printable = |c: char| if c.is_control() && c != '\n' && c != '\t' { ' ' } else { c };
        match words.trim_matches(['\n', '\r']) {
            "" => "; it wrote nothing to stderr".into(),
            words => {
                let end = if is_cut { "the end of its stderr" } else { "its stderr" };
                format!("; {end}:\n{}", words.chars().map(printable).collect::<String>())
            }
        }
    }
}

/// What a process that succeeded has answered.
fn answer(stdout: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(stdout);
    // A value of JSON that is no object is a text that happens to be one.
    if let Ok(object @ Value::Object(_)) = serde_json::from_str(&text) {
        return Reply::of_json(object);
    }
    match result_among(&text) {
        Some((result, others)) => {
            diary::copy(others.as_bytes());
            Reply::of_json(result)
        }
        None => Reply::of_text(text.trim_end_matches(['\n', '\r']).into()),
    }
}

/// Why a process says that it failed, if it says so.
fn failure(stdout: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(stdout);
    let Value::Object(result) = result_among(&text)?.0 else { return None };
    super::reply::reason(result.get("error")?)
}

/// The last line that is a PluginResult, and the other lines.
fn result_among(text: &str) -> Option<(Value, String)> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let read = |line: &str| {
        let line = line.trim();
        let is_object = line.starts_with('{') && line.ends_with('}');
        let value: Value = is_object.then(|| serde_json::from_str(line).ok())??;
        value.as_object().is_some_and(is_result).then_some(value)
    };
    let (at, result) = lines.iter().enumerate().rev().find_map(|(at, line)| Some((at, read(line)?)))?;
    let others = lines.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, line)| *line);
    Some((result, others.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(stdout: &str) -> String {
        answer(stdout.as_bytes()).text
    }

    #[test]
    fn an_answer_is_the_result_or_else_all_that_was_written() {
        assert_eq!(text_of("{\"success\": true,\n \"text\": \"fine\"}\n"), "fine");
        assert_eq!(text_of("loading\n{\"text\": \"first\"}\n{\"text\": \"fine\"}\nbye\n"), "fine");
        assert_eq!(text_of("loading {}\n{\"level\": \"info\"}\n"), "loading {}\n{\"level\": \"info\"}");
        assert_eq!(text_of("42\n"), "42");
        assert_eq!(text_of("[1,\n2]\n"), "[1,\n2]");
        assert_eq!(text_of(""), "");
        assert_eq!(text_of(&"[".repeat(100_000)), "[".repeat(100_000));
        let garbage = answer(b"\xff\x00\x1b[31mred");
        assert_eq!((garbage.success, &*garbage.text), (true, "\u{fffd}\0\u{1b}[31mred"));
        let failed = answer(b"loading\n{\"success\": false, \"error\": \"no\"}\n");
        assert_eq!((failed.success, failed.error.as_deref()), (false, Some("no")));
        assert!(answer(b"{\"temperature\": 20}\n").structured.is_some());
    }

    #[test]
    fn the_last_words_are_told_in_whole_lines() {
        let words = |stderr: &[u8]| Said { stderr: stderr.into(), ..Said::default() }.last_words();
        assert_eq!(words(b""), "; it wrote nothing to stderr");
        assert_eq!(words(b"oops\x1b[0m\n"), "; its stderr:\noops [0m");
        let mut long = vec![b'x'; TOLD - 3];
        long.extend(b"\nlast");
        assert_eq!(words(&long), "; the end of its stderr:\nlast");
        assert!(words(&[b'x'; TOLD + 1]).ends_with(&"x".repeat(TOLD)));
    }
}
