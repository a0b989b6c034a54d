//! Headers that repeat what stands in the body of a request, so that it can be routed unread; MCP
//! 2026-07-28, "Streamable HTTP".

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::HeaderValue;

/// Around what cannot stand in a header as it is.
const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// The text as a header has it.
pub fn header_value(text: &str) -> HeaderValue {
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && text.trim() == text
        && !(text.starts_with(PREFIX) && text.ends_with(SUFFIX));
    let written: Cow<str> = if is_plain {
        text.into()
    } else {
        format!("{PREFIX}{}{SUFFIX}", BASE64_STANDARD.encode(text)).into()
    };
    // Of printable ASCII, whatever it was before.
    HeaderValue::from_str(&written).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The text that a header stands for; `None` if it stands for none.
pub fn header_text(value: &HeaderValue) -> Option<Cow<'_, str>> {
    let written = value.to_str().ok()?.trim();
    match written.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) {
        Some(encoded) => {
            let decoded = BASE64_STANDARD.decode(encoded).ok()?;
            Some(String::from_utf8(decoded).ok()?.into())
        }
        None => Some(written.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_survives_a_header() {
        for text in ["plain", "", " spaced ", "füße", "a\r\nb: c", "=?base64?x?=", "=?base64?x"] {
            assert_eq!(header_text(&header_value(text)).unwrap(), text);
        }
        for broken in ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?="] {
            assert!(header_text(&HeaderValue::from_static(broken)).is_none());
        }
    }
}
