//! Lines to the worker and back: who waits for which answer.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::interpreter::Pipes;
use crate::porter::reply::Reply;

/// One line; the worker keeps its answers a little shorter. Bytes.
const LARGEST_LINE: u64 = 16 * 1024 * 1024 + 1024;
/// So many requests wait for the pipe; whoever has a further one waits, too.
const MOST_UNWRITTEN: usize = 16;
/// What a read takes at the most; bytes.
const BUFFER: usize = 16 * 1024;
/// What a call has given, where the plugin has returned nothing and said nothing.
const NOTHING: &str = "(no output)";

/// What the worker has said. Which fields are there depends on what it was asked.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    /// 0: it is the first one, of its start.
    id: u64,
    /// Why the plugin could not be started.
    pub(super) failed: Option<String>,
    /// Why the plugin cannot be called.
    pub(super) health: Option<String>,
    result: Option<Box<RawValue>>,
    /// How the result differs from what the plugin has returned.
    notes: Vec<String>,
    error: Option<String>,
    /// What the plugin has sent to channels: texts, and the paths of media.
    said: (Vec<String>, Map<String, Value>),
}

#[derive(Debug, Clone)]
pub(super) struct Link {
    waiting: Arc<Waiting>,
    unwritten: mpsc::Sender<(u64, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct Waiting {
    state: Mutex<State>,
    /// There is something in `given_up`.
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last request.
    last: u64,
    answers: HashMap<u64, oneshot::Sender<Answer>>,
    /// Requests whose answer nobody waits for any more. Only what was asked is ever in here, once.
    given_up: BTreeSet<u64>,
    closed: bool,
}

impl Link {
    /// The task reads until the worker has closed its end.
    pub(super) fn open(pipes: Pipes) -> io::Result<(Self, JoinHandle<()>)> {
        let requests = pipe::Sender::from_owned_fd(pipes.requests)?;
        let answers = pipe::Receiver::from_owned_fd(pipes.answers)?;
        let waiting = Arc::<Waiting>::default();
        let (unwritten, to_write) = mpsc::channel(MOST_UNWRITTEN);
        tokio::spawn(write(requests, to_write, waiting.clone()));
        let reading = tokio::spawn(read(answers, waiting.clone()));
        Ok((Self { waiting, unwritten }, reading))
    }

    /// Sends the very first line, and waits for what becomes of it; `None` if the worker is gone.
    pub(super) async fn first(&self, line: &impl serde::Serialize) -> Option<Answer> {
        let (sender, answer) = oneshot::channel();
        self.waiting.state().answers.insert(0, sender);
        self.unwritten.send((0, as_line(line))).await.ok()?;
        answer.await.ok()
    }

    /// Asks for one thing. `None` if the worker is gone. Dropping it tells the worker that nobody waits.
    pub(super) async fn ask(&self, verb: &str, mut body: Value) -> Option<Answer> {
        // Numbers are given in the order in which requests are written.
        let place = self.unwritten.reserve().await.ok()?;
        let (sender, answer) = oneshot::channel();
        let number = {
            let mut state = self.waiting.state();
            if state.closed {
                return None;
            }
            state.last += 1;
            let number = state.last;
            state.answers.insert(number, sender);
            number
        };
        if !body.is_object() {
            body = Value::Object(Map::new());
        }
        body[verb] = number.into();
        place.send((number, as_line(&body)));
        let _asked = Asked { number, waiting: &self.waiting };
        answer.await.ok()
    }

    /// Nobody is there any more who could answer.
    pub(super) fn close(&self) {
        let mut state = self.waiting.state();
        state.closed = true;
        state.answers.clear();
    }
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is under way.
struct Asked<'a> {
    number: u64,
    waiting: &'a Waiting,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut state = self.waiting.state();
        if state.answers.remove(&self.number).is_some() {
            state.given_up.insert(self.number);
            self.waiting.news.notify_one();
        }
    }
}

impl Answer {
    /// What the plugin has said comes before what it has returned, unless that is the same.
    pub(super) fn into_reply(self) -> Reply {
        let (mut texts, media) = self.said;
        let mut reply = match (self.error, self.result) {
            (Some(error), _) => Reply::failed(error),
            (None, None) if texts.is_empty() => Reply::of_text(NOTHING.into()),
            (None, None) => Reply::of_text(String::new()),
            (None, Some(result)) => match serde_json::from_str(result.get()) {
                Ok(value) => Reply::of_json(value),
                // Deeper than serde_json goes, or a number that it cannot hold.
                Err(_) => Reply::of_text(result.get().into()),
            },
        };
        if !texts.is_empty() {
            if !reply.text.is_empty() && !texts.contains(&reply.text) {
                texts.push(std::mem::take(&mut reply.text));
            }
            reply.text = texts.join("\n");
        }
        if !media.is_empty() || !self.notes.is_empty() {
            let metadata = reply.metadata.get_or_insert_default();
            metadata.extend(media);
            if !self.notes.is_empty() {
                metadata.insert("notes".into(), self.notes.into());
            }
        }
        reply
    }
}

async fn write(mut pipe: pipe::Sender, mut unwritten: mpsc::Receiver<(u64, Vec<u8>)>, waiting: Arc<Waiting>) {
    let mut written = 0;
    loop {
        let lines = tokio::select! {
            biased;
            () = waiting.news.notified() => {
                // What is not written yet is left out when its turn comes.
                let given_up: Vec<u64> = {
                    let mut state = waiting.state();
                    let later = state.given_up.split_off(&(written + 1));
                    std::mem::replace(&mut state.given_up, later).into_iter().collect()
                };
                given_up.into_iter().flat_map(|number| format!("{{\"cancel\":{number}}}\n").into_bytes()).collect()
            }
            next = unwritten.recv() => match next {
                None => return,
                Some((number, line)) => {
                    written = number;
                    if waiting.state().given_up.remove(&number) {
                        continue;
                    }
                    line
                }
            },
        };
        if pipe.write_all(&lines).await.is_err() {
            return;
        }
    }
}

async fn read(pipe: pipe::Receiver, waiting: Arc<Waiting>) {
    let mut pipe = BufReader::with_capacity(BUFFER, pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.shrink_to(BUFFER);
        let read = (&mut pipe).take(LARGEST_LINE).read_until(b'\n', &mut line).await;
        match read {
            Ok(read) if read > 0 && line.ends_with(b"\n") => {}
            // An end in the middle of a line, or a line that no worker writes.
            _ => return,
        }
        match serde_json::from_slice::<Answer>(&line) {
            Ok(answer) => {
                let waits = waiting.state().answers.remove(&answer.id);
                if let Some(waits) = waits {
                    let _ = waits.send(answer);
                }
            }
            Err(error) => {
                eprintln!(
                    "guild-hall porter: the plugin has written to a descriptor that is not its own: {error}"
                );
            }
        }
    }
}

/// Of a value of our own, all of whose keys are texts.
fn as_line(value: &impl serde::Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}
