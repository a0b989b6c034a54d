//! `registry.yaml` in the members directory: plugins by path or URL; "Plugin Standard" §4. Each entry is
//! read by itself, so that a fault of one is none of another.

use std::collections::HashSet;
use std::path::Path;

use crate::dialect::fields::{Field, Fields, Findings};
use crate::dialect::tree::{Document, Node, Value};
use crate::dialect::{digest, too_large, urls, yaml};
use crate::model::porter::{Behind, Plugin};
use crate::model::{Diagnosis, Manifest, MemberKey, Place, Rejection, RestartPolicy};

use super::behind::{self, Config, TIMEOUT, Type};
use super::{Sheet, plugin};

/// Its name.
pub const FILE: &str = "registry.yaml";

/// What a registry lists.
#[derive(Debug, Default)]
pub struct Registry {
    pub listed: Vec<Listed>,
    /// Of entries that cannot be told apart from nothing.
    pub faults: Vec<Diagnosis>,
}

#[derive(Debug)]
pub enum Listed {
    /// A directory with a manifest, or a manifest, relative to the members directory.
    Path { path: String, place: Place, field: String },
    /// A plugin elsewhere. Its id is the member's name.
    Remote { id: MemberKey, place: Place, field: String, read: Box<Result<Manifest, Rejection>> },
}

/// Reads it. `shown` is the file as messages name it, `dir` the members directory, absolute: plugins that
/// are elsewhere have none of their own.
pub fn registry(shown: &Path, dir: &Path, bytes: &[u8]) -> Result<Registry, Rejection> {
    too_large(shown, bytes)?;
    if yaml::is_blank(bytes) {
        return Ok(Registry::default());
    }
    let mut findings = Findings::new(shown);
    let document = match Document::yaml(bytes) {
        Ok(document) => document,
        Err(fault) => return Err(fault.at(shown).into()),
    };
    let entries = entries(document.top(), &mut findings);
    let mut registry = Registry::default();
    let mut ids = HashSet::new();
    for entry in entries.unwrap_or_default() {
        match listed(&entry, shown, dir, &mut findings) {
            Some(Listed::Remote { id, .. }) if !ids.insert(id.clone()) => {
                let message = format!("is a second plugin with the id \"{id}\"; remove one of the two");
                findings.fault(Some(entry.node.place()), &entry.name, message);
            }
            Some(listed) => registry.listed.push(listed),
            None => {}
        }
    }
    registry.faults = findings.faults;
    Ok(registry)
}

/// The list under `plugins`, or the document where it is a list itself.
fn entries<'a>(top: Node<'a>, findings: &mut Findings) -> Option<Vec<Field<'a>>> {
    if let Value::List(_) = top.value() {
        return Field { node: top, name: String::new() }.items(findings);
    }
    let mut fields = Fields::of(top, "", findings)?;
    let field = fields.need("plugins", "[weather, {path: vendor/mail}]", findings)?;
    if field.node.is_null() { Some(Vec::new()) } else { field.items(findings) }
}

fn listed(entry: &Field, shown: &Path, dir: &Path, findings: &mut Findings) -> Option<Listed> {
    let (place, field) = (entry.node.place(), entry.name.clone());
    match entry.node.value() {
        Value::Text(url) if urls::is_url(&url) => {
            let url = urls::url(entry, findings)?;
            let sheet = mcp_server(url);
            let Ok(id) = MemberKey::parse(&sheet.plugin.id) else {
                entry.wrong(
                    "a URL with a host that can be a name, or an object with `url` and `id`",
                    findings,
                );
                return None;
            };
            let manifest = sheet.manifest(dir, digest_of(entry.node));
            Some(Listed::Remote { id, place, field, read: Box::new(Ok(manifest)) })
        }
        Value::Text(path) => Some(Listed::Path { path, place, field }),
        Value::Object(_) => {
            let mut fields = Fields::of(entry.node, &entry.name, findings)?;
            if fields.has("url") {
                return remote(entry, shown, dir, findings);
            }
            let path = fields.need_text("path", "\"vendor/mail\" (or `url`)", findings)?.0;
            let mut own = Findings::new(shown);
            fields.warn_of_the_rest(&mut own);
            for useless in own.warnings {
                findings.fault(
                    useless.place,
                    useless.field.as_deref().unwrap_or_default(),
                    "has no meaning beside `path`: the plugin's own manifest is read",
                );
            }
            Some(Listed::Path { path, place, field })
        }
        _ => {
            entry.wrong("a path, a URL, or an object with `path` or `url`", findings);
            None
        }
    }
}

/// A plugin elsewhere, in the words of a manifest. Without an id there is nobody to blame but the registry.
fn remote(entry: &Field, shown: &Path, dir: &Path, findings: &mut Findings) -> Option<Listed> {
    let (place, field) = (entry.node.place(), entry.name.clone());
    let mut fields = Fields::of(entry.node, &entry.name, findings)?;
    let (id, id_node) = plugin::id(&mut fields, findings)?;
    let why = match MemberKey::parse(&id) {
        Ok(_) if id.contains('/') => "it holds a \"/\"".to_owned(),
        Ok(key) => {
            let mut own = Findings::new(shown);
            let sheet = remote_sheet(id, fields, &mut own);
            let manifest = sheet.map(|sheet| sheet.manifest(dir, digest_of(entry.node)));
            return Some(Listed::Remote { id: key, place, field, read: Box::new(own.conclude(manifest)) });
        }
        Err(why) => why.to_string(),
    };
    findings.fault(Some(id_node.place()), &field, format!("the id {id:?} cannot be a member's name: {why}"));
    None
}

fn remote_sheet(id: String, mut fields: Fields, findings: &mut Findings) -> Option<Sheet> {
    let url = fields.take("url").and_then(|field| urls::url(&field, findings));
    let name = plugin::name(&mut fields, Some(&id), findings);
    let plugin = plugin::plugin(&mut fields, findings);
    let kind = fields.need("type", "\"mcp\" (or \"http\")", findings);
    let kind = kind.and_then(|field| behind::remote_kind(&field, findings));
    let config = Config::take(&mut fields, Type::Inline, findings);
    fields.warn_of_the_rest(findings);
    let (behind, timeout) = config?.remote(kind?, url?, findings)?;
    Some(Sheet {
        plugin: Plugin { id, name: name?, ..plugin? },
        behind,
        timeout,
        restart: RestartPolicy::default(),
        watch: Some(Vec::new()),
    })
}

/// A URL that says nothing more is that of an MCP server: those introduce themselves.
fn mcp_server(url: String) -> Sheet {
    let behind =
        Behind::Remote { headers: Vec::new(), wire: behind::wire_of(&url), tool: None, url: url.clone() };
    let id = id_of(&url);
    let plugin =
        Plugin { name: id.clone(), id, description: format!("The MCP server at {url}"), ..Plugin::default() };
    Sheet { plugin, behind, timeout: TIMEOUT, restart: RestartPolicy::default(), watch: Some(Vec::new()) }
}

/// `http://127.0.0.1:3100/weather/mcp` is called `127.0.0.1-3100-weather`.
fn id_of(url: &str) -> String {
    let plain = url.split('?').next().unwrap_or_default();
    let plain = plain.split_once("://").map_or(plain, |(_, rest)| rest).trim_end_matches('/');
    let plain = plain.strip_suffix("/mcp").or(plain.strip_suffix("/sse")).unwrap_or(plain);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    plain.chars().take(100).map(|c| if is_plain(c) { c } else { '-' }).collect()
}

fn digest_of(node: Node) -> crate::model::Digest {
    let text = node.to_json().map(|value| value.to_string()).unwrap_or_default();
    digest(&[text.as_bytes()])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::Transport;
    use crate::model::porter::RemoteWire;

    fn read(text: &str) -> Registry {
        registry(Path::new("m/registry.yaml"), Path::new("/x"), text.as_bytes())
            .unwrap_or_else(|rejection| panic!("{rejection}"))
    }

    fn faults(text: &str) -> Vec<String> {
        read(text).faults.iter().map(ToString::to_string).collect()
    }

    fn remote(text: &str) -> (String, Result<Manifest, Rejection>) {
        match read(text).listed.pop() {
            Some(Listed::Remote { id, read, .. }) => (id.to_string(), *read),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_registry_lists_paths_and_urls() {
        let registry = read(
            "plugins:\n  - weather\n  - path: vendor/mail\n  - http://127.0.0.1:3100/a/mcp\n  - {url: 'http://h/sse', id: slack-bot, name: Slack, description: x, type: mcp}\n",
        );
        assert!(registry.faults.is_empty(), "{:?}", registry.faults);
        let names: Vec<&str> = registry
            .listed
            .iter()
            .map(|listed| match listed {
                Listed::Path { path, .. } => path,
                Listed::Remote { id, .. } => id.as_str(),
            })
            .collect();
        assert_eq!(names, ["weather", "vendor/mail", "127.0.0.1-3100-a", "slack-bot"]);
        assert_eq!(read("- a\n- b\n").listed.len(), 2, "a list alone will do");
        assert!(read("# nothing yet\n").listed.is_empty() && read("plugins:\n").listed.is_empty());
    }

    #[test]
    fn a_url_is_a_plugin_with_the_fields_of_a_manifest() {
        let (id, read) = remote(
            "- url: http://127.0.0.1:3100/\n  plugin_id: Slack\n  name: S\n  description: x\n  type: http\n  health_check_url: http://127.0.0.1:3100/health\n  config: {path: go, timeout_sec: 3}\n  capabilities: [{id: post, name: p, description: q, method: GET, path: /p}]\n",
        );
        let manifest = read.unwrap();
        assert_eq!((id.as_str(), manifest.transport), ("Slack", Transport::Rest));
        assert_eq!(manifest.watch, Some(Vec::new()));
        assert!(manifest.warnings.is_empty(), "{:?}", manifest.warnings);
        let porter = manifest.porter.unwrap();
        let wanted =
            Behind::Rest { base_url: "http://127.0.0.1:3100".into(), path: "/go".into(), headers: vec![] };
        assert_eq!((&porter.behind, porter.timeout), (&wanted, Duration::from_secs(3)));
        assert_eq!(porter.plugin.capabilities[0].id, "post");
        let (_, read) = remote("- {url: 'http://h/sse/', id: a, name: b, description: c, type: mcp}");
        let wanted = Behind::Remote {
            url: "http://h/sse/".into(),
            headers: vec![],
            wire: RemoteWire::Sse,
            tool: None,
        };
        assert_eq!(read.unwrap().porter.unwrap().behind, wanted);
    }

    #[test]
    fn a_fault_of_one_entry_is_none_of_another() {
        let text = "plugins:\n  - 3\n  - {name: x}\n  - {url: 'http://h', name: x}\n  - {url: 'http://h', id: a/b, name: x}\n  - {url: 'http://h', id: ok, name: n, description: d, type: http}\n  - {url: 'http://h', id: ok, name: n, description: d, type: http}\n  - {path: p, id: q}\n  - http://u:p@h\n";
        assert_eq!(
            faults(text),
            [
                "m/registry.yaml:2:5: plugins[0]: is the number 3; it must be a path, a URL, or an object with `path` or `url`",
                "m/registry.yaml:3:5: plugins[1].path: is missing in the object that begins here; add path: \"vendor/mail\" (or `url`)",
                "m/registry.yaml:4:5: plugins[2].id: is missing in the object that begins here; add id: \"weather\"",
                "m/registry.yaml:5:27: plugins[3]: the id \"a/b\" cannot be a member's name: it holds a \"/\"",
                "m/registry.yaml:7:5: plugins[5]: is a second plugin with the id \"ok\"; remove one of the two",
                "m/registry.yaml:8:15: plugins[6].id: has no meaning beside `path`: the plugin's own manifest is read",
                "m/registry.yaml:9:5: plugins[7]: is the text \"http://u:p@h\"; it must be a URL, as in \"http://127.0.0.1:3100\": it holds no user and password; `headers` may",
            ]
        );
        assert_eq!(read(text).listed.len(), 2);
        let (id, read) = remote("- {url: 'http://h', id: a, name: x, description: d, type: subprocess}");
        assert_eq!(id, "a");
        assert_eq!(
            read.unwrap_err().to_string(),
            "m/registry.yaml:1:59: [0].type: is the text \"subprocess\"; it must be \"http\" or \"mcp\""
        );
        let broken = registry(Path::new("m/registry.yaml"), Path::new("/x"), b"plugins: [").unwrap_err();
        assert!(broken.to_string().starts_with("m/registry.yaml:1:10: unclosed"), "{broken}");
        assert!(faults("plugin: []")[0].contains("did you mean it by \"plugin\"?"));
    }
}
