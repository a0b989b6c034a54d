//! The language model that porters may ask, for plugins whose output a model is to see before the user does.

use std::ffi::OsStr;

use crate::model::porter::Llm;
use crate::process::Environment;

/// See the module's page.
#[derive(Debug, Clone)]
pub struct LlmSettings {
    pub llm: Llm,
    /// The variable of the hall's environment that the key stands in: no member inherits it.
    pub key_variable: Option<String>,
}

/// What members inherit, without the variable that the key stands in.
pub(super) fn without_key(mut environment: Environment, settings: Option<&LlmSettings>) -> Environment {
    if let Some(name) = settings.and_then(|settings| settings.key_variable.as_ref()) {
        environment.remove(OsStr::new(name));
    }
    environment
}
