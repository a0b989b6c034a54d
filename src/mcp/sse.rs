//! Server-sent events, as much as MCP needs: the data of each event. WHATWG HTML §9.2.6.

/// Takes a stream in any pieces and gives out the data of the events that are complete.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
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
    pub(super) fn held(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// The stream has ended: an event that lacks its blank line counts all the same.
    pub fn finish(mut self, mut take: impl FnMut(&[u8]) -> bool) {
        if self.end_of_line(&mut take) {
            self.end_of_line(&mut take);
        }
    }

    fn end_of_line(&mut self, take: &mut impl FnMut(&[u8]) -> bool) -> bool {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return data.is_empty() || take(&data);
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        true
    }
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
}
