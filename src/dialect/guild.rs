//! The Guild Hall standard: `guild-member.json` (docs/manifest.md).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::fields::{Field, Fields, Findings};
use super::globs::globs;
use super::tree::{Document, Node};
use crate::model::porter::{Behind, Plugin, Porter, Program};
use crate::model::{Dialect, Manifest, Rejection, RestartPolicy, Transport};

pub(super) const FILE: &str = "guild-member.json";

const START_TIMEOUT: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// No time in a manifest is longer; milliseconds.
const LONGEST: u64 = 3_600_000;

pub(super) fn read(shown: &Path, dir: &Path, dir_name: &str, bytes: &[u8]) -> Result<Manifest, Rejection> {
    let mut findings = Findings::new(shown);
    let manifest = match Document::json(bytes) {
        Ok(document) => manifest(document.top(), dir, dir_name, bytes, &mut findings),
        Err(fault) => {
            findings.unreadable(fault);
            None
        }
    };
    findings.conclude(manifest)
}

/// `None` where something is missing; the faults say what.
fn manifest(
    top: Node, dir: &Path, dir_name: &str, bytes: &[u8], findings: &mut Findings,
) -> Option<Manifest> {
    let mut fields = Fields::of(top, "", findings)?;
    let name = fields.need_text("name", "\"weather\"", findings);
    let display_name = fields.need_text("displayName", "\"Weather\"", findings);
    let description = fields.need_text("description", "\"What it does\"", findings);
    let version = fields.need_text("version", "\"0.1.0\"", findings);
    let transport =
        fields.need("transport", "\"http\"", findings).and_then(|field| transport(&field, findings));
    let restart = fields.take("restart").map(|field| restart_policy(&field, findings));
    let start_timeout = fields.millis("startTimeoutMs", START_TIMEOUT, 1, LONGEST, findings);
    let call_timeout = fields.millis("callTimeoutMs", CALL_TIMEOUT, 1, LONGEST, findings);
    let stop_timeout = fields.millis("stopTimeoutMs", STOP_TIMEOUT, 0, LONGEST, findings);
    let health_interval = fields.millis("healthIntervalMs", Duration::ZERO, 0, LONGEST, findings);
    let path = fields.take("path").map(|field| url_path(&field, findings));
    let watch = fields.take("watch").map(|field| globs(&field, findings));
    let inherit_env = fields.take("inheritEnv").map(|field| field.texts(findings));
    let mcp = fields.need("mcp", "{\"command\": …, \"args\": […]}", findings);
    fields.warn_of_the_rest(findings);
    let mcp = mcp.and_then(|field| launch(&field, findings));

    let (name, name_node) = name?;
    let (version, version_node) = version?;
    if name != dir_name {
        let message =
            format!("is {name:?}, but the directory is called {dir_name:?}, and that is the member's name");
        findings.warn(name_node.place(), "name", message);
    }
    if !is_semantic(&version) {
        findings.warn(
            version_node.place(),
            "version",
            format!("is {version:?}, which is not a semantic version like 1.2.3"),
        );
    }
    let (program, transport, display_name, description) = (mcp?, transport?, display_name?.0, description?.0);
    let (program, porter) = match transport {
        Transport::Stdio => {
            let plugin = Plugin {
                id: name.clone(),
                name: display_name.clone(),
                description: description.clone(),
                version: Some(version.clone()),
                ..Plugin::default()
            };
            let behind = Behind::Stdio { program, tool: None };
            (super::porter(), Some(Arc::new(Porter { plugin, behind, timeout: call_timeout })))
        }
        _ => (program, None),
    };
    Some(Manifest {
        name,
        display_name,
        description,
        version,
        dialect: Dialect::Guild,
        transport,
        dir: dir.into(),
        command: program.command,
        args: program.args,
        env: program.env,
        inherit_env: inherit_env.unwrap_or_else(|| Some(Vec::new()))?,
        path: path.unwrap_or_else(|| Some("/mcp".into()))?,
        restart: restart.unwrap_or_else(|| Some(RestartPolicy::default()))?,
        start_timeout,
        call_timeout,
        stop_timeout,
        porter,
        listed: false,
        health_interval: (!health_interval.is_zero()).then_some(health_interval),
        watch: watch.map_or(Some(None), |globs| globs.map(Some))?,
        warnings: Vec::new(),
        digest: super::digest(&[bytes]),
    })
}

/// `mcp`: the command, its arguments and its environment.
fn launch(mcp: &Field, findings: &mut Findings) -> Option<Program> {
    let mut fields = Fields::of(mcp.node, &mcp.name, findings)?;
    let command = fields.need_text("command", "\"node\"", findings);
    let args = fields
        .need("args", "[\"server.js\", \"--port\", \"${PORT}\"]", findings)
        .and_then(|field| field.texts(findings));
    let env = fields.take("env").map(|field| field.environment(findings)).unwrap_or_default();
    fields.warn_of_the_rest(findings);
    Some(Program { command: command?.0, args: args?, env })
}

fn transport(field: &Field, findings: &mut Findings) -> Option<Transport> {
    field.one_of(&[("http", Transport::Http), ("stdio", Transport::Stdio)], findings)
}

pub(super) fn restart_policy(field: &Field, findings: &mut Findings) -> Option<RestartPolicy> {
    let words = [
        ("on-failure", RestartPolicy::OnFailure),
        ("always", RestartPolicy::Always),
        ("never", RestartPolicy::Never),
    ];
    field.one_of(&words, findings)
}

/// The path part of a URL, as it goes into a request line.
fn url_path(field: &Field, findings: &mut Findings) -> Option<String> {
    let text = field.text(findings)?;
    let right = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !right {
        field.wrong("the path of a URL: it begins with \"/\" and holds no spaces, as in \"/mcp\"", findings);
    }
    right.then_some(text)
}

/// Three numbers, then perhaps a pre-release or build part.
fn is_semantic(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    numbers.len() == 3
        && numbers.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{
  "name": "weather", "displayName": "Weather", "description": "Tells it", "version": "0.1.0",
  "transport": "http",
  "mcp": {"command": "node", "args": ["server.js", "${PORT}"], "env": {"B": "1", "A": "${PORT}"}}
}"#;

    fn read_text(text: &str) -> Result<Manifest, Rejection> {
        read(Path::new("m/guild-member.json"), Path::new("/x/weather"), "weather", text.as_bytes())
    }

    /// Every fault of a manifest that is `GOOD` with one thing replaced.
    fn faults(from: &str, to: &str) -> Vec<String> {
        assert!(GOOD.contains(from), "{from}");
        let rejection = read_text(&GOOD.replacen(from, to, 1)).expect_err("it must be refused");
        rejection.all().map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_manifest_is_read_whole() {
        let manifest = read_text(GOOD).unwrap();
        assert_eq!(manifest.args, ["server.js", "${PORT}"]);
        assert_eq!(manifest.env, [("B".into(), "1".into()), ("A".into(), "${PORT}".into())]);
        assert_eq!((manifest.path.as_str(), manifest.start_timeout), ("/mcp", START_TIMEOUT));
        assert!(manifest.warnings.is_empty(), "{:?}", manifest.warnings);
        assert_eq!(
            read_text(&format!("\u{feff}{GOOD}")).unwrap().name,
            "weather",
            "a byte order mark is no fault"
        );
    }

    #[test]
    fn a_fault_names_place_field_what_stands_there_and_what_would_be_right() {
        let cases = [
            (
                r#""name": "weather", "#,
                "",
                "m/guild-member.json:1:1: name: is missing in the object that begins here; add \"name\": \"weather\"",
            ),
            (
                r#""name": "weather""#,
                r#""Name": "weather""#,
                "m/guild-member.json:1:1: name: is missing in the object that begins here; add \"name\": \"weather\" (did you mean it by \"Name\"?)",
            ),
            (r#""0.1.0""#, "1", "m/guild-member.json:2:86: version: is the number 1; it must be a text"),
            (
                r#""Weather""#,
                "\" \"",
                "m/guild-member.json:2:37: displayName: is empty; it must say something, as in \"Weather\"",
            ),
            (
                r#""http""#,
                r#""sse""#,
                "m/guild-member.json:3:16: transport: is the text \"sse\"; it must be \"http\" or \"stdio\"",
            ),
            (
                r#""server.js""#,
                "[]",
                "m/guild-member.json:4:39: mcp.args[0]: is a list of 0; it must be a text",
            ),
            (
                r#""command": "node", "#,
                "",
                "m/guild-member.json:4:10: mcp.command: is missing in the object that begins here; add \"command\": \"node\"",
            ),
            (
                r#""B": "1""#,
                r#""B": true"#,
                "m/guild-member.json:4:77: mcp.env.B: is true; it must be a text",
            ),
            (
                r#""A": "#,
                r#""A=B": "#,
                "m/guild-member.json:4:82: mcp.env.\"A=B\": \"A=B\" cannot be the name of an environment variable",
            ),
            (
                r#""mcp": {"#,
                r#""restart": "often", "mcp": {"#,
                "m/guild-member.json:4:14: restart: is the text \"often\"; it must be \"on-failure\" or \"always\" or \"never\"",
            ),
            (
                r#""mcp": {"#,
                r#""watch": ["src/**", "lib/[a"], "mcp": {"#,
                "m/guild-member.json:4:23: watch[1]: is the text \"lib/[a\"; it must be a glob of files, as in \"src/**\": unclosed character class; missing ']'",
            ),
            (
                r#""mcp": {"#,
                r#""watch": ["../other/*"], "mcp": {"#,
                "m/guild-member.json:4:13: watch[0]: is the text \"../other/*\"; it must be a glob of files, as in \"src/**\": it leads out of the member's directory by \"..\"",
            ),
            (
                r#""mcp": {"#,
                r#""stopTimeoutMs": -1, "mcp": {"#,
                "m/guild-member.json:4:20: stopTimeoutMs: is the number -1; it must be a whole number of milliseconds between 0 and 3600000",
            ),
            (
                r#""http","#,
                r#""http","name":"again","#,
                "m/guild-member.json:3:23: name: stands here a second time; remove one of the two",
            ),
        ];
        for (from, to, fault) in cases {
            assert_eq!(faults(from, to), [fault]);
        }
    }

    #[test]
    fn a_member_that_speaks_mcp_on_pipes_stands_behind_a_porter() {
        let text = GOOD.replace("\"http\"", "\"stdio\", \"callTimeoutMs\": 5000");
        let manifest = read_text(&text).unwrap();
        assert_eq!(
            (manifest.command.as_str(), manifest.transport),
            (Manifest::PORTER_COMMAND, Transport::Stdio)
        );
        assert_eq!(
            (manifest.args.as_slice(), manifest.env.len()),
            (&Manifest::PORTER_ARGS.map(String::from)[..], 0)
        );
        let program = manifest.program().unwrap();
        assert_eq!((program.command.as_str(), program.args[0].as_str()), ("node", "server.js"));
        assert_eq!(program.env.len(), 2);
        let porter = manifest.porter.as_ref().unwrap();
        assert_eq!((porter.plugin.name.as_str(), porter.timeout), ("Weather", Duration::from_secs(5)));
        assert!(read_text(GOOD).unwrap().porter.is_none());
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let all = faults(
            r#""displayName": "Weather", "description": "Tells it", "version": "0.1.0","#,
            r#""version": 1,"#,
        );
        assert_eq!(all.len(), 3, "{all:?}");
    }

    #[test]
    fn a_fault_of_the_syntax_has_its_place() {
        let cases = [
            (r#""http","#, r#""http""#, "m/guild-member.json:4:3: expected `,` or `}`; found '\"'"),
            (r#""1", "A""#, r#""1", A"#, "m/guild-member.json:4:82: key must be a string; found 'A'"),
            ("}}\n}", "}}\n", "m/guild-member.json:5:0"),
        ];
        for (from, to, fault) in cases {
            let found = faults(from, to);
            assert!(found.len() == 1 && found[0].starts_with(fault.trim_end_matches('0')), "{found:?}");
        }
        assert!(read_text("").unwrap_err().to_string().contains("the file is empty"));
        assert!(
            read_text(&"[".repeat(70))
                .unwrap_err()
                .to_string()
                .starts_with("m/guild-member.json:1:65: values are nested")
        );
        assert!(
            read_text("[]").unwrap_err().to_string().contains("1:1: is a list of 0; it must be an object")
        );
    }

    #[test]
    fn what_is_odd_but_works_is_a_warning() {
        let text = GOOD
            .replace("0.1.0", "1")
            .replace("\"weather\"", "\"wether\"")
            .replace("\"transport\"", "\"colour\": 1, \"watchh\": [], \"transport\"");
        let warnings: Vec<String> =
            read_text(&text).unwrap().warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 4, "{warnings:?}");
        assert!(warnings.iter().any(|warning| warning.contains("did you mean \"watch\"?")), "{warnings:?}");
    }
}
