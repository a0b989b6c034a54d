//! Server-sent events, as much as MCP needs: the data of each event, and how to take up a stream that ended.
//! WHATWG HTML §9.2.6.

use std::time::Duration;

/// Takes a stream in any pieces and gives out the data of the events that are complete.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    /// Of the event that is not complete.
    id: Option<Vec<u8>>,
    last_id: Option<Vec<u8>>,
    retry: Option<Duration>,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_cr: bool,
}

impl Events {
    /// Feeds a piece; `take` gets the data of each event that it completes, and says whether to go on.
    pub fn feed(&mut self, piece: &[u8], mut take: impl FnMut(&[u8]) -> bool) -> bool {
        for &byte in piece {
            let belongs_to_cr = std::mem::replace(&mut self.after_cr, byte == b'\r') && byte == b'\n';
            match byte {
                _ if belongs_to_cr => {}
                b'\r' | b'\n' => {
                    if !self.end_of_line(&mut take) {
                        return false;
                    }
                }
                _ => self.line.push(byte),
            }
        }
        true
    }

    /// What is held of an event that is not complete; bytes.
    pub fn held(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// The data of an event that has come in part, if that is one line. What is left of the line is not for this
    /// any more, unless it is put back.
    pub(super) fn take_unfinished(&mut self) -> Option<Vec<u8>> {
        let data = field(&self.line, b"data").filter(|_| self.data.is_empty())?;
        let begin = self.line.len() - data.len();
        let mut line = std::mem::take(&mut self.line);
        line.drain(..begin);
        Some(line)
    }

    pub(super) fn put_back(&mut self, data: Vec<u8>) {
        self.line = data;
        self.line.splice(..0, *b"data:");
    }

    /// Of the last event that has one: what came up to it need not be told again.
    pub(super) fn last_id(&self) -> Option<&[u8]> {
        self.last_id.as_deref()
    }

    /// Who asks for the stream again must wait so long.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The stream has ended: an event that lacks its blank line counts all the same.
    pub fn finish(&mut self, mut take: impl FnMut(&[u8]) -> bool) {
        self.after_cr = false;
        if self.end_of_line(&mut take) {
            self.end_of_line(&mut take);
        }
    }

    fn end_of_line(&mut self, take: &mut impl FnMut(&[u8]) -> bool) -> bool {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            if let Some(id) = self.id.take() {
                self.last_id = Some(id).filter(|id| !id.is_empty());
            }
            let data = std::mem::take(&mut self.data);
            return data.is_empty() || take(&data);
        }
        if let Some(data) = field(&line, b"data") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data);
        } else if let Some(id) = field(&line, b"id") {
            self.id = Some(id.to_vec());
        } else if let Some(retry) = field(&line, b"retry") {
            let millis = std::str::from_utf8(retry).ok().and_then(|millis| millis.parse().ok());
            self.retry = millis.map(Duration::from_millis).or(self.retry);
        }
        true
    }
}

/// What a line says of a field, if it is of that.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(name)?.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(stream: &str, piece: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut events = Events::default();
        let mut take = |data: &[u8]| {
            found.push(String::from_utf8(data.to_vec()).unwrap());
            true
        };
        for piece in stream.as_bytes().chunks(piece) {
            events.feed(piece, &mut take);
        }
        events.finish(take);
        found
    }

    #[test]
    fn events_are_found_however_the_stream_is_cut_and_its_lines_end() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = [
                ": hello",
                "",
                "event: message",
                "id: 1",
                "data: {\"a\":",
                "data:1}",
                "",
                "data: x",
                "",
                "",
                "data: last",
            ]
            .join(end);
            for piece in 1..9 {
                assert_eq!(events(&stream, piece), ["{\"a\":\n1}", "x", "last"], "{end:?} {piece}");
            }
        }
        assert!(events("", 1).is_empty());
    }

    #[test]
    fn a_stream_is_taken_up_after_the_last_event_that_was_complete() {
        let mut events = Events::default();
        events.feed(b"id: 1\nretry: 500\ndata:\n\ndata: x\n\nid: 2\nretry: soon\ndata: y", |_| true);
        assert_eq!(events.last_id(), Some(&b"1"[..]));
        assert_eq!(events.retry(), Some(Duration::from_millis(500)));
        events.feed(b"\n\n", |_| true);
        assert_eq!(events.last_id(), Some(&b"2"[..]));
        events.feed(b"id\n\nid:\n\n", |_| true);
        assert_eq!(events.last_id(), None);
    }
}
