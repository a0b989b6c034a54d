//! A result that is too large to be held is passed on while it comes. Only its envelope is understood: where it
//! begins, and where it ends.

use hyper::body::Bytes;

use super::connections::Answering;
use super::link::{LARGEST_ANSWER, LinkError};

/// A message that is larger than this is not held, if it is a result.
pub(super) const LARGE: usize = 256 * 1024;

/// What comes of a result after its beginning.
#[derive(Debug)]
pub(super) struct Rest {
    body: Answering,
    nesting: Nesting,
    read: usize,
    /// The message is an event of a stream, so that a line break ends it.
    is_event: bool,
    has_ended: bool,
}

impl Rest {
    /// `text` is what has come of a message. If it is a result, that is cut to the result's beginning and returned
    /// with the rest; otherwise `body` is given back.
    pub(super) fn of(
        mut text: Vec<u8>, id: Option<u64>, body: Answering, is_event: bool,
    ) -> Result<(Bytes, Self), (Vec<u8>, Answering)> {
        let Some(begin) = id.and_then(|id| begin_of_result(&text, id)) else { return Err((text, body)) };
        let read = text.len();
        text.drain(..begin);
        let mut rest = Self { body, nesting: Nesting::default(), read, is_event, has_ended: false };
        let beginning = rest.cut(text.into());
        Ok((beginning, rest))
    }

    /// The next piece; `None` if there is no more.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, LinkError> {
        while let Some(piece) = self.body.piece().await {
            let piece = piece?;
            self.read += piece.len();
            if self.read > LARGEST_ANSWER {
                return Err(LinkError::TooLarge);
            }
            if self.has_ended {
                // What is left of the envelope is read so that the connection can be kept.
                continue;
            }
            let piece = self.cut(piece);
            if self.is_event && piece.contains(&b'\n') {
                return Err(LinkError::NotMcp("its answer ends in the middle of its result".into()));
            }
            return Ok(Some(piece));
        }
        if self.has_ended {
            return Ok(None);
        }
        Err(LinkError::Broken("its answer ended in the middle of its result".into()))
    }

    /// So much of a piece as belongs to the result.
    fn cut(&mut self, piece: Bytes) -> Bytes {
        match self.nesting.end(&piece) {
            Some(end) => {
                self.has_ended = true;
                piece.slice(..end)
            }
            None => piece,
        }
    }
}

/// Finds the end of an object that comes in pieces.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_text: bool,
    after_backslash: bool,
}

impl Nesting {
    /// After how many bytes of the next piece it ends, if it does there.
    fn end(&mut self, piece: &[u8]) -> Option<usize> {
        for (at, &byte) in piece.iter().enumerate() {
            match byte {
                _ if std::mem::take(&mut self.after_backslash) => {}
                b'"' => self.in_text = !self.in_text,
                b'\\' => self.after_backslash = self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// Where the result begins in a message that answers a request, if it is an object and nothing before it speaks
/// against it.
fn begin_of_result(text: &[u8], id: u64) -> Option<usize> {
    let mut reader = Reader { text, at: 0 };
    reader.expect(b'{')?;
    loop {
        let key = reader.text()?;
        reader.expect(b':')?;
        match key {
            b"result" => return (reader.peek()? == b'{').then_some(reader.at),
            b"id" if reader.scalar()?.trim_ascii() == id.to_string().as_bytes() => {}
            b"jsonrpc" => drop(reader.scalar()?),
            _ => return None,
        }
        reader.expect(b',')?;
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&mut self) -> Option<u8> {
        self.at += self.text.get(self.at..)?.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// One without escapes.
    fn text(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| *byte == b'"')?;
        self.at += length + 1;
        Some(&rest[..length])
    }

    /// A text, without its quotes, or a number.
    fn scalar(&mut self) -> Option<&'a [u8]> {
        if self.peek()? == b'"' {
            return self.text();
        }
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b'{' | b'['))?;
        self.at += length;
        Some(&rest[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_found_wherever_it_stands() {
        for (text, begin) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a""#, Some(33)),
            ("{ \"result\" :\n{\"a\"", Some(13)),
            (r#"{"id":"7","result":{"#, Some(19)),
            (r#"{"id":8,"result":{"#, None),
            (r#"{"id":7,"error":{"#, None),
            (r#"{"jsonrpc":"2.0","id":7,"method":"x"#, None),
            (r#"{"result":[1"#, None),
            (r#"{"resu"#, None),
            ("<html>", None),
            ("", None),
        ] {
            assert_eq!(begin_of_result(text.as_bytes(), 7), begin, "{text}");
        }
    }

    #[test]
    fn a_result_ends_where_it_ends_however_it_is_cut() {
        let text = br#"{"a":"}\"]\\","b":[{},{"c":"\\\""}]},"id":7}"#;
        let end = text.len() - br#","id":7}"#.len();
        for size in 1..text.len() {
            let mut nesting = Nesting::default();
            let ends: Vec<usize> = text
                .chunks(size)
                .enumerate()
                .find_map(|(n, piece)| nesting.end(piece).map(|end| n * size + end))
                .into_iter()
                .collect();
            assert_eq!(ends, [end], "{size}");
        }
    }
}
