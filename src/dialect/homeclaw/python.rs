//! Which Python file holds a plugin's class. Nothing is executed: a class is told by the line that
//! begins it.

use std::path::{Component, Path};

use crate::dialect::Beside;
use crate::dialect::fields::{Field, Findings};
use crate::model::porter::Behind;

use super::LEGACY_FILE;

/// Where the class is by convention.
const FILE: &str = "plugin.py";

/// The name and the bases of a class are looked for in so many characters.
const LONGEST_HEAD: usize = 500;

/// Whether a Python class that is a plugin stands here: only then `config.yml` is a manifest.
pub fn holds_plugin_class(beside: Beside) -> bool {
    (beside.python)().iter().any(|file| has_class(beside, file))
}

/// `module` and `config_file` are fields of the manifest, where it has them.
pub(super) fn behind(
    module: Option<&Field>, config_file: Option<&Field>, beside: Beside, findings: &mut Findings,
) -> Option<Behind> {
    let config_file = match config_file {
        Some(field) => config(field, beside, findings),
        None => (beside.read)(LEGACY_FILE).map(|_| LEGACY_FILE.to_owned()),
    };
    let (file, class) = match module {
        Some(field) => named(field, beside, findings)?,
        None => (found(beside, findings)?, None),
    };
    Some(Behind::Python { file, class, config_file })
}

/// The plugin's own configuration, where it is there.
fn config(field: &Field, beside: Beside, findings: &mut Findings) -> Option<String> {
    let text = field.text(findings)?;
    if !is_within(&text) {
        field.wrong("a file in the plugin's directory, as in \"config.yml\"", findings);
        return None;
    }
    if (beside.read)(&text).is_some() {
        return Some(text);
    }
    findings.warn(field.node.place(), &field.name, format!("is {text:?}, and there is no such file"));
    None
}

/// `plugin`, `sub.module`, `plugins.weather.plugin` or `plugin.py`; behind a ":" the class.
fn named(field: &Field, beside: Beside, findings: &mut Findings) -> Option<(String, Option<String>)> {
    let text = field.text(findings)?;
    let (module, class) = match text.split_once(':') {
        Some((module, class)) => (module.trim(), Some(class.trim())),
        None => (text.trim(), None),
    };
    let file = if Path::new(module).extension().is_some_and(|extension| extension == "py") {
        module.to_owned()
    } else {
        let parts: Vec<&str> = module.split('.').collect();
        let below = if parts.len() > 2 && parts[0] == "plugins" { &parts[2..] } else { &parts };
        format!("{}.py", below.join("/"))
    };
    let is_name = |class: &str| !class.is_empty() && class.chars().all(|c| c.is_alphanumeric() || c == '_');
    if !is_within(&file) || class.is_some_and(|class| !is_name(class)) {
        field.wrong(
            "a Python module in the plugin's directory, as in \"plugin\" or \"plugin:WeatherPlugin\"",
            findings,
        );
        return None;
    }
    if (beside.read)(&file).is_none() {
        let message = format!("is {text:?}, and there is no {file} in the plugin's directory");
        findings.fault(Some(field.node.place()), &field.name, message);
        return None;
    }
    Some((file, class.map(Into::into)))
}

/// The file that holds the class, by convention or because it is the only one that does.
fn found(beside: Beside, findings: &mut Findings) -> Option<String> {
    let mut files = (beside.python)();
    if files.iter().any(|file| file == FILE) && (files.len() == 1 || has_class(beside, FILE)) {
        return Some(FILE.into());
    }
    let by_convention = files.iter().any(|file| file == FILE);
    files.retain(|file| has_class(beside, file));
    match files.as_slice() {
        [file] => Some(file.clone()),
        [] if by_convention => Some(FILE.into()),
        [] => {
            let message = "the plugin is of type \"inline\", and no Python file here has a class that derives from \
                           BasePlugin; add plugin.py, or set `type` to subprocess, http or mcp";
            findings.fault(None, "", message);
            None
        }
        several => {
            let message = format!(
                "{} each have a class that derives from BasePlugin; say which is the plugin with `plugin_module`",
                several.join(", ")
            );
            findings.fault(None, "", message);
            None
        }
    }
}

/// A line begins a class whose base is `BasePlugin`, or another that is called so.
fn has_class(beside: Beside, file: &str) -> bool {
    let Some(bytes) = (beside.read)(file) else { return false };
    let text = String::from_utf8_lossy(&bytes);
    let is_plugin = |base: &str| base.trim().rsplit('.').next().unwrap_or_default().ends_with("Plugin");
    text.match_indices("class ").filter(|(at, _)| *at == 0 || text[..*at].ends_with('\n')).any(
        |(at, word)| {
            let head: String = text[at + word.len()..].chars().take(LONGEST_HEAD).collect();
            let Some((name, bases)) = head.split_once('(') else { return false };
            let bases = bases.split(')').next().unwrap_or_default();
            !name.contains(['\n', ':']) && bases.split(',').any(is_plugin)
        },
    )
}

/// A relative path that leads nowhere else.
fn is_within(path: &str) -> bool {
    !path.is_empty()
        && !path.contains('\0')
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_class_in(text: &str) -> bool {
        has_class(Beside { python: &|| vec!["a.py".into()], read: &|_| Some(text.into()) }, "a.py")
    }

    #[test]
    fn a_class_is_a_plugin_by_its_base() {
        for yes in [
            "class WeatherPlugin(BasePlugin):\n",
            "import x\n\nclass A(base.BasePlugin.BasePlugin, Other):",
            "class A(\n    Other,\n    SchedulerPlugin,\n):\n    pass\n",
            "class B:\n  pass\nclass A(BasePlugin): pass",
        ] {
            assert!(has_class_in(yes), "{yes}");
        }
        for no in [
            "",
            "class Plugin:\n    pass\n",
            "# a class A(BasePlugin):\n",
            "class A(Base):\n    def f(self, BasePlugin): pass",
            "class A:\n    x = f(BasePlugin)\n",
            "from base import BasePlugin\n",
        ] {
            assert!(!has_class_in(no), "{no}");
        }
    }
}
