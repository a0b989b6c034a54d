//! The language model that porters may ask, for plugins whose output a model is to see before the user does.

use std::ffi::{OsStr, OsString};
use std::fmt;

use crate::model::porter;
use crate::process::Environment;

/// An endpoint with the interface of OpenAI.
#[derive(Clone, PartialEq, Eq)]
pub struct Llm {
    /// `https://host/v1`.
    pub base_url: String,
    pub model: String,
    /// Name and value of the variable of the hall's environment that the key stands in.
    pub api_key: Option<(String, String)>,
}

impl Llm {
    /// What a porter finds in its environment.
    pub(super) fn for_porters(&self) -> OsString {
        let Self { base_url, model, api_key } = self.clone();
        let told = porter::Llm { base_url, model, api_key: api_key.map(|(_, key)| key) };
        serde_json::to_string(&told).unwrap_or_default().into()
    }
}

/// The key never shows in a log.
impl fmt::Debug for Llm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base_url, model, .. } = self;
        f.debug_struct("Llm").field("base_url", base_url).field("model", model).finish_non_exhaustive()
    }
}

/// What members inherit, without the variable that the key stands in: it is for porters alone.
pub(super) fn without_key(mut environment: Environment, llm: Option<&Llm>) -> Environment {
    if let Some((name, _)) = llm.and_then(|llm| llm.api_key.as_ref()) {
        environment.remove(OsStr::new(name));
    }
    environment
}
