//! The flags of `run` that name a language model.

use clap::Args;

use super::Failed;
use crate::hall::LlmSettings;
use crate::model::porter::Llm;

#[derive(Debug, Args)]
#[command(next_help_heading = "The language model that HomeClaw plugins have their output processed by")]
pub(super) struct Flags {
    /// Where it is: an endpoint with the interface of OpenAI, such as http://127.0.0.1:11434/v1
    #[arg(long = "llm-base-url", value_name = "URL", env = "GUILD_HALL_LLM_BASE_URL", requires = "model")]
    base_url: Option<String>,
    /// Its name there
    #[arg(long = "llm-model", value_name = "NAME", env = "GUILD_HALL_LLM_MODEL", requires = "base_url")]
    model: Option<String>,
    /// The environment variable that holds the key; no member gets to see it
    #[arg(
        long = "llm-api-key-env",
        value_name = "VARIABLE",
        env = "GUILD_HALL_LLM_API_KEY_ENV",
        requires = "base_url"
    )]
    api_key_env: Option<String>,
}

impl Flags {
    /// `None`: there is none. A key that is not there is a warning: some endpoints need none.
    pub(super) fn resolve(self) -> Result<Option<LlmSettings>, Failed> {
        let (Some(base_url), Some(model)) = (self.base_url, self.model) else { return Ok(None) };
        if !["http://", "https://"].iter().any(|scheme| base_url.starts_with(scheme)) {
            return Err(Failed::usage(format!(
                "the base URL of the language model is {base_url:?}; it must begin with http:// or https://"
            )));
        }
        let key = self.api_key_env.and_then(|name| match std::env::var(&name) {
            Ok(key) if !key.is_empty() => Some((name, key)),
            _ => {
                tracing::warn!(
                    "the environment variable {name}, which llm-api-key-env names, is not there: the language model is \
                     asked without a key; set it before the hall is started"
                );
                None
            }
        });
        let (key_variable, api_key) = key.unzip();
        Ok(Some(LlmSettings { llm: Llm { base_url, model, api_key }, key_variable }))
    }
}
