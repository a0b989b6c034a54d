//! `--config FILE`: every flag of `run` as a key of a YAML file.
//!
//! Flag beats environment beats file beats default. The file's values are put in front of the flags
//! that were given (the last one counts), except where the environment has its say.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::Failed;

/// The keys, each with what it takes: a value, or yes and no. Those of a map `llm` may stand in one, and with
/// `_` for `-`.
const KEYS: [(&str, bool); 11] = [
    ("members", true),
    ("run-dir", true),
    ("listen", true),
    ("no-auth", false),
    ("ports", true),
    ("watch", false),
    ("clean-env", false),
    ("log-format", true),
    ("llm-base-url", true),
    ("llm-model", true),
    ("llm-api-key-env", true),
];
const GROUP: &str = "llm";
const DEFAULT: &str = "guild-hall.yaml";
const LARGEST: u64 = 256 * 1024;

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Setting {
    Switch(bool),
    Number(i64),
    Text(String),
    Group(BTreeMap<String, Setting>),
}

/// The arguments of `run`, with those of its file before them; all other verbs' as they are.
pub(super) fn with_file(args: Vec<OsString>) -> Result<Vec<OsString>, Failed> {
    if args.get(1).is_none_or(|verb| verb != "run") {
        return Ok(args);
    }
    let named = named_file(&args);
    let path = named.clone().unwrap_or_else(|| DEFAULT.into());
    if named.is_none() && !path.exists() {
        return Ok(args);
    }
    let settings = read(&path)?;
    let mut whole: Vec<OsString> = args.iter().take(2).cloned().collect();
    for (key, setting) in settings {
        match setting {
            Setting::Group(inner) if key == GROUP => {
                for (key, setting) in inner {
                    whole.extend(argument(&path, &format!("{GROUP}-{}", key.replace('_', "-")), &setting)?);
                }
            }
            setting => whole.extend(argument(&path, &key, &setting)?),
        }
    }
    whole.extend(args.into_iter().skip(2));
    Ok(whole)
}

fn named_file(args: &[OsString]) -> Option<PathBuf> {
    let mut after = args.iter().skip_while(|arg| *arg != "--config").skip(1);
    let joined = || args.iter().find_map(|arg| arg.to_str()?.strip_prefix("--config=").map(PathBuf::from));
    let from_env = || std::env::var_os("GUILD_HALL_CONFIG").map(PathBuf::from);
    after.next().map(PathBuf::from).or_else(joined).or_else(from_env)
}

fn read(path: &Path) -> Result<BTreeMap<String, Setting>, Failed> {
    let failed =
        |error: &dyn std::fmt::Display| Failed::usage(format!("cannot read {}: {error}", path.display()));
    if fs::metadata(path).map_err(|error| failed(&error))?.len() > LARGEST {
        return Err(failed(&format!("it is larger than {LARGEST} bytes")));
    }
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(BTreeMap::new());
    }
    serde_saphyr::from_str(&text).map_err(|error| failed(&error))
}

fn argument(path: &Path, key: &str, setting: &Setting) -> Result<Option<OsString>, Failed> {
    let Some((_, takes_value)) = KEYS.iter().find(|(known, _)| *known == key) else {
        let near = KEYS
            .iter()
            .min_by_key(|(known, _)| strsim::damerau_levenshtein(known, key))
            .map_or("", |(known, _)| known);
        return Err(Failed::usage(format!(
            "{}: unknown key {key:?}; did you mean {near:?}?",
            path.display()
        )));
    };
    if std::env::var_os(format!("GUILD_HALL_{}", key.replace('-', "_").to_uppercase())).is_some() {
        return Ok(None);
    }
    let value = match (setting, takes_value) {
        (Setting::Switch(true), false) => return Ok(Some(format!("--{key}").into())),
        (Setting::Switch(false), false) => return Ok(None),
        (_, false) => return Err(Failed::usage(format!("{}: {key} must be true or false", path.display()))),
        (Setting::Switch(_) | Setting::Group(_), true) => {
            return Err(Failed::usage(format!("{}: {key} must be a text", path.display())));
        }
        (Setting::Number(number), true) => number.to_string(),
        (Setting::Text(text), true) => text.clone(),
    };
    Ok(Some(format!("--{key}={value}").into()))
}
