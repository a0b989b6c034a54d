//! What `run` prints, on a thread of its own: a terminal that is stopped, or a pipe that nobody reads,
//! must hold up neither the loop nor a signal.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Pieces that may wait to be printed; what comes after them is dropped and counted.
const WAITING: usize = 4096;
/// How long the end of `run` waits for its last lines to be printed.
const LAST_LINES: Duration = Duration::from_millis(500);

/// A writer that never blocks.
#[derive(Debug, Clone)]
pub(super) struct Output {
    pieces: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
    /// Pieces that are said and not yet printed.
    unprinted: Arc<AtomicU64>,
}

/// Held by who wants the last lines to be seen.
pub(super) struct Printing(Receiver<()>);

impl Output {
    /// Prints to `target` from now on.
    pub(super) fn start(mut target: impl Write + Send + 'static) -> (Self, Printing) {
        let (pieces, waiting) = sync_channel::<Vec<u8>>(WAITING);
        let (finished, done) = sync_channel(1);
        let unprinted = Arc::<AtomicU64>::default();
        let counter = unprinted.clone();
        thread::spawn(move || {
            for piece in waiting {
                // An empty piece is the last one. A target that is gone is written to no more.
                if piece.is_empty() || target.write_all(&piece).and_then(|()| target.flush()).is_err() {
                    break;
                }
                counter.fetch_sub(1, Ordering::Relaxed);
            }
            let _ = finished.send(());
        });
        (Self { pieces, dropped: Arc::default(), unprinted }, Printing(done))
    }

    pub(super) fn say(&self, text: &str) {
        let missed = self.dropped.swap(0, Ordering::Relaxed);
        if missed > 0 {
            self.send(format!("… {missed} lines could not be printed in time\n").into_bytes());
        }
        self.send(text.as_bytes().to_vec());
    }

    fn send(&self, piece: Vec<u8>) {
        self.unprinted.fetch_add(1, Ordering::Relaxed);
        if self.pieces.try_send(piece).is_err() {
            self.unprinted.fetch_sub(1, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Blocks, but not for long, until all that was said is printed; more can be said afterwards.
    pub(super) fn drain(&self) {
        let end = Instant::now() + LAST_LINES;
        while self.unprinted.load(Ordering::Relaxed) > 0 && Instant::now() < end {
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits, but not for long, until all that was said is printed.
    pub(super) fn finish(&self, printing: &Printing) {
        self.send(Vec::new());
        let _ = printing.0.recv_timeout(LAST_LINES);
    }
}

/// For tracing, which writes one event at a time.
impl Write for Output {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.say(&String::from_utf8_lossy(event));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
