//! The language model that the results of some capabilities go through; HomeClaw, "Plugin Registration" §3.2,
//! `post_process`. Called by `toolbox`.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Uri};
use serde::Deserialize;
use serde_json::json;

use super::rest::refusal;
use super::web;
use crate::mcp::excerpt;
use crate::model::porter::Llm;

/// All that the model may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than any model reads, or writes; bytes.
const LARGEST_TEXT: usize = 1024 * 1024;
const LARGEST_ANSWER: usize = 4 * 1024 * 1024;
const USUAL_PROMPT: &str = "You are given what a plugin has answered to a user's request. Rewrite it for the user: clear, \
short, in the language that it is in, with every fact of it and none that is not in it. Answer with that text alone.";

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Option<String>,
}

impl Llm {
    /// As the hall has told it; what cannot be read is as good as none, and is told.
    pub(super) fn from_environment() -> Result<Option<Self>, String> {
        let Ok(text) = std::env::var(Self::VARIABLE) else { return Ok(None) };
        let read = serde_json::from_str(&text).map(Some);
        // Not the text, which holds the key.
        read.map_err(|error| format!("{} is not as the hall writes it: {error}", Self::VARIABLE))
    }

    /// A text as the model retells it; the error says why it does not.
    pub(super) async fn process(&self, prompt: Option<&str>, text: &str) -> Result<String, String> {
        if text.len() > LARGEST_TEXT {
            return Err(format!(
                "the result has {} bytes, and at most {LARGEST_TEXT} are processed",
                text.len()
            ));
        }
        let url = format!("{}/chat/completions", self.base_url.trim_end_matches('/'));
        let uri: Uri = url.parse().map_err(|error| format!("llm.base_url is no URL: {error}"))?;
        let place = web::place(&uri);
        let prompt = prompt.filter(|prompt| !prompt.trim().is_empty()).unwrap_or(USUAL_PROMPT);
        let messages = json!([{"role": "system", "content": prompt}, {"role": "user", "content": text}]);
        let body = json!({"model": self.model, "messages": messages, "stream": false}).to_string();
        let mut request = Request::post(uri).body(Bytes::from(body)).map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(key) = &self.api_key {
            let bearer = HeaderValue::from_str(&format!("Bearer {key}"));
            let mut bearer =
                bearer.map_err(|_| "the key of the model cannot stand in a header".to_owned())?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let answer = web::send(request, LARGEST_ANSWER, PATIENCE).await;
        let answer = answer.map_err(|fault| format!("{place} {fault}"))?;
        if !answer.status.is_success() {
            return Err(refusal(&place, &answer));
        }
        let completion: Completion = serde_json::from_slice(&answer.body).map_err(|error| {
            format!("{place} answered what is no completion ({error}): {}", excerpt(&answer.body))
        })?;
        let said = completion.choices.into_iter().next().and_then(|choice| choice.message.content);
        let said = said.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        said.ok_or_else(|| format!("{place} answered with an empty message"))
    }
}
