//! `connect`: what a client's configuration needs, ready to be pasted.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use clap::{Args, ValueEnum};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::print::{self, BOLD, DIM};
use super::shell::quoted;
use super::snippet::{Snippet, table, text};
use super::table::{Table, cell, plain};
use super::{Failed, Target};
use crate::control::Client;
use crate::model::{Entry, MemberKey, Roster};

/// Print what lets an AI client use the members' tools, ready to be pasted
///
/// The configuration goes to stdout, where it belongs and what else is worth knowing to stderr. Without CLIENT:
/// the clients, and the file of each.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  guild-hall connect\n  guild-hall connect cursor\n  guild-hall connect claude-code | sh\n  guild-hall connect codex --stdio >> ~/.codex/config.toml\n  guild-hall connect vscode --member toolbox/clock"
)]
pub(super) struct Connect {
    /// Whose configuration
    #[arg(value_enum)]
    client: Option<App>,
    /// The client starts `guild-hall mcp`, which speaks to the hall's socket: no port, no token
    #[arg(long)]
    stdio: bool,
    /// The client asks the gateway over HTTP, with the token [default, where client and hall can]
    #[arg(long, conflicts_with = "stdio")]
    http: bool,
    /// One member's tools alone, under their own names
    #[arg(long, value_name = "NAME")]
    member: Option<String>,
    /// The configuration as JSON, whatever the client writes its own in
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// A program that uses tools over MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum App {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    #[value(name = "vscode", aliases = ["vs-code", "code"])]
    VsCode,
    Codex,
    Goose,
}

/// How a client gets to the hall.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    Stdio { command: String, args: Vec<String> },
    Http { url: String, token: Option<String> },
}

/// What a client calls the hall, or one member of it, and how it gets there.
#[derive(Debug)]
struct Server {
    name: String,
    about: String,
    way: Way,
}

/// A token file may be this large; bytes.
const LARGEST_TOKEN: u64 = 4096;
/// Seconds; longer than any call takes by default.
const GOOSE_TIMEOUT: u32 = 300;
/// All but what may stand in a path as it is; RFC 3986 §2.3.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl App {
    fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Codex => "Codex",
            Self::Goose => "Goose",
        }
    }

    /// The file that the snippet belongs to; for one project, where that is another one.
    fn files(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::ClaudeCode => ("~/.claude.json", Some(".mcp.json")),
            Self::ClaudeDesktop => ("~/.config/Claude/claude_desktop_config.json", None),
            Self::Cursor => ("~/.cursor/mcp.json", Some(".cursor/mcp.json")),
            Self::VsCode => ("~/.config/Code/User/mcp.json", Some(".vscode/mcp.json")),
            Self::Codex => ("~/.codex/config.toml", Some(".codex/config.toml")),
            Self::Goose => ("~/.config/goose/config.yaml", None),
        }
    }

    /// It takes a URL with a header from its file.
    fn can_http(self) -> bool {
        self != Self::ClaudeDesktop
    }

    fn configuration(self, server: &Server) -> Snippet {
        let entry = match &server.way {
            Way::Stdio { command, args } => self.stdio(server, text(command), Snippet::List(args.clone())),
            Way::Http { url, token } => {
                let bearer = token.iter().map(|token| ("Authorization".to_owned(), text(bearer(token))));
                self.http(server, text(url), Snippet::Table(bearer.collect()))
            }
        };
        let servers = match self {
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor => "mcpServers",
            Self::VsCode => "servers",
            Self::Codex => "mcp_servers",
            Self::Goose => "extensions",
        };
        table([(servers, table([(&server.name, entry)]))])
    }

    fn stdio(self, server: &Server, command: Snippet, args: Snippet) -> Snippet {
        match self {
            Self::ClaudeCode | Self::Cursor | Self::VsCode => {
                table([("type", text("stdio")), ("command", command), ("args", args)])
            }
            Self::ClaudeDesktop | Self::Codex => table([("command", command), ("args", args)]),
            Self::Goose => goose(server, "stdio", [("cmd", command), ("args", args)]),
        }
    }

    fn http(self, server: &Server, url: Snippet, headers: Snippet) -> Snippet {
        let or_none = |name: &'static str| match &headers {
            Snippet::Table(fields) if fields.is_empty() => None,
            headers => Some((name, headers.clone())),
        };
        let fields: Vec<(&str, Snippet)> = match self {
            Self::ClaudeCode | Self::VsCode => {
                [("type", text("http")), ("url", url)].into_iter().chain(or_none("headers")).collect()
            }
            Self::ClaudeDesktop | Self::Cursor => {
                [("url", url)].into_iter().chain(or_none("headers")).collect()
            }
            Self::Codex => [("url", url)].into_iter().chain(or_none("http_headers")).collect(),
            Self::Goose => {
                return goose(server, "streamable_http", [("uri", url), ("headers", headers)]);
            }
        };
        Snippet::Table(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// As the client itself writes it; for Claude Code, the command that does.
    fn written(self, server: &Server) -> Result<String, Failed> {
        let configuration = self.configuration(server);
        match self {
            Self::ClaudeCode => Ok(claude_mcp_add(server)),
            Self::ClaudeDesktop | Self::Cursor | Self::VsCode => configuration.json(),
            Self::Codex => Ok(configuration.toml()),
            Self::Goose => Ok(configuration.yaml()),
        }
    }

    /// What to do with what was printed.
    fn advice(self) -> String {
        let (file, of_project) = self.files();
        let project = of_project.map(|file| format!(", or {file} of one project")).unwrap_or_default();
        let goes = format!("It goes into {file}{project}, beside the servers that are there");
        match self {
            Self::ClaudeCode => format!(
                "Run it once; it counts in all your projects. For one project alone, --json prints what goes into its {}.",
                of_project.unwrap_or(file)
            ),
            Self::ClaudeDesktop => format!("{goes}; then restart Claude Desktop."),
            Self::VsCode => format!("{goes}; \"MCP: Open User Configuration\" opens the former."),
            Self::Cursor | Self::Codex => format!("{goes}."),
            Self::Goose => format!("{goes}; where `extensions:` is there too, leave the first line out."),
        }
    }
}

fn goose<const N: usize>(server: &Server, kind: &str, fields: [(&str, Snippet); N]) -> Snippet {
    let head = [
        ("type", text(kind)),
        ("name", text(&server.name)),
        ("description", text(&server.about)),
        ("enabled", Snippet::Switch(true)),
    ];
    let tail = [("timeout", Snippet::Number(GOOSE_TIMEOUT))];
    let all = head.into_iter().chain(fields).chain(tail);
    Snippet::Table(all.map(|(name, value)| (name.into(), value)).collect())
}

/// Its `--header` takes all words that follow it, so it comes last.
fn claude_mcp_add(server: &Server) -> String {
    let add = "claude mcp add --scope user --transport";
    let name = quoted(&server.name);
    match &server.way {
        Way::Stdio { command, args } => {
            let words = [command].into_iter().chain(args).map(|word| quoted(word));
            format!("{add} stdio {name} -- {}\n", words.collect::<Vec<_>>().join(" "))
        }
        Way::Http { url, token } => {
            let header = token
                .iter()
                .map(|token| format!(" --header {}", quoted(&format!("Authorization: {}", bearer(token)))));
            format!("{add} http {name} {}{}\n", quoted(url), header.collect::<String>())
        }
    }
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

impl Connect {
    pub(super) async fn execute(self) -> Result<(), Failed> {
        let Some(app) = self.client else { return self.list() };
        if self.http && !app.can_http() {
            return Err(Failed::usage(format!(
                "{} takes no URL with a token from its file: leave --http out, and it starts `guild-hall mcp`",
                app.title()
            )));
        }
        let hall = self.target.client();
        let Roster { hall: facts, .. } = hall.get("/v1/roster").await?;
        let member = match &self.member {
            Some(name) => {
                let entry: Entry = hall.get(&format!("/v1/roster/{}", Client::segment(name))).await?;
                Some(entry.name)
            }
            None => None,
        };
        let mut notes: Vec<String> = (!self.json).then(|| app.advice()).into_iter().collect();
        let way = self.way(app, facts.gateway.as_deref(), member.as_ref(), &mut notes)?;
        let server = Server { name: name(member.as_ref()), about: about(member.as_ref()), way };
        if self.json {
            print::out(&app.configuration(&server).json()?)?;
        } else {
            print::out(&app.written(&server)?)?;
        }
        for line in notes {
            print::note(&line);
        }
        Ok(())
    }

    /// Every client, and where its configuration is.
    fn list(&self) -> Result<(), Failed> {
        #[derive(Serialize)]
        struct Listed {
            client: String,
            title: &'static str,
            file: &'static str,
            #[serde(rename = "projectFile")]
            of_project: Option<&'static str>,
        }
        let listed = App::value_variants().iter().map(|app| {
            let (file, of_project) = app.files();
            Listed { client: app.word(), title: app.title(), file, of_project }
        });
        if self.json {
            return print::json(&listed.collect::<Vec<_>>());
        }
        let mut clients = Table::default();
        clients.row(["CLIENT", "", "FILE", "OF ONE PROJECT"].map(|title| cell(title, DIM)).into());
        for Listed { client, title, file, of_project } in listed {
            clients.row(vec![
                cell(client, BOLD),
                plain(title),
                plain(file),
                plain(of_project.unwrap_or("-")),
            ]);
        }
        print::out(&format!("{}\n`guild-hall connect CLIENT` prints what goes there.\n", clients.render()))
    }

    /// As it was asked for, or else over HTTP where client and hall can.
    fn way(
        &self, app: App, gateway: Option<&str>, member: Option<&MemberKey>, notes: &mut Vec<String>,
    ) -> Result<Way, Failed> {
        if self.stdio || !app.can_http() {
            return self.stdio_way(member);
        }
        match gateway {
            Some(gateway) => Ok(Way::Http { url: url(gateway, member), token: self.token(notes)? }),
            None if self.http => Err(Failed::new(
                "the hall listens on its socket alone: start it with --listen 127.0.0.1:4180, or leave --http out",
            )),
            None => {
                notes.push(
                    "The hall listens on its socket alone, so the client starts `guild-hall mcp`.".into(),
                );
                self.stdio_way(member)
            }
        }
    }

    fn stdio_way(&self, member: Option<&MemberKey>) -> Result<Way, Failed> {
        let unknown = |error| Failed::new(format!("cannot tell where this program is: {error}"));
        let command = as_text(&std::env::current_exe().map_err(unknown)?)?;
        // The client starts it in a directory of its own choice.
        let socket = self.target.socket();
        let socket = std::path::absolute(&socket)
            .map_err(|error| Failed::new(format!("cannot resolve {}: {error}", socket.display())))?;
        let mut args = vec!["mcp".to_owned(), "--socket".into(), as_text(&socket)?];
        if let Some(member) = member {
            args.extend(["--member".into(), member.to_string()]);
        }
        Ok(Way::Stdio { command, args })
    }

    /// `None` where the hall has none.
    fn token(&self, notes: &mut Vec<String>) -> Result<Option<String>, Failed> {
        // A service manager may have put the socket elsewhere.
        let beside_socket = self.target.socket().with_file_name("token");
        let in_run_dir = self.target.run_dir.as_deref().map(|dir| dir.join("token"));
        let file =
            in_run_dir.filter(|file| !beside_socket.exists() && file.exists()).unwrap_or(beside_socket);
        let token = read_token(&file)?;
        notes.push(match token {
            Some(_) => {
                "The token in it is a secret, with which every tool can be called: keep it out of version control.".into()
            }
            None => format!(
                "There is no {}, as with `run --no-auth`: if the hall answers 401, name its run directory with --run-dir.",
                file.display()
            ),
        });
        Ok(token)
    }
}

fn as_text(path: &Path) -> Result<String, Failed> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Failed::new(format!("{} is not UTF-8: no configuration can hold it", path.display())))
}

fn read_token(file: &Path) -> Result<Option<String>, Failed> {
    use io::Read as _;
    let cannot =
        |error: &dyn std::fmt::Display| Failed::new(format!("cannot read {}: {error}", file.display()));
    let opened = match fs::File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| cannot(&error))?,
    };
    let mut token = String::new();
    opened.take(LARGEST_TOKEN).read_to_string(&mut token).map_err(|error| cannot(&error))?;
    let token = token.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(cannot(&"it holds no token; remove it and restart the hall, which makes another one"));
    }
    Ok(Some(token.into()))
}

/// A name that every client takes; they put it before the names of the tools.
fn name(member: Option<&MemberKey>) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = member.map(MemberKey::as_str).unwrap_or_default().chars().map(letter).collect();
    if name.contains(|c: char| c.is_ascii_alphanumeric()) { name } else { "guild-hall".into() }
}

fn about(member: Option<&MemberKey>) -> String {
    member.map_or_else(|| "The tools of a Guild Hall".into(), |member| format!("The tools of {member}"))
}

/// Of the gateway, as a client on this machine reaches it.
fn url(gateway: &str, member: Option<&MemberKey>) -> String {
    let here = |at: SocketAddr| match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, at.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, at.port())),
        _ => at,
    };
    let at = gateway.parse().map_or_else(|_| gateway.to_owned(), |at| here(at).to_string());
    let path = member.map(|member| format!("/{}", utf8_percent_encode(member.as_str(), SEGMENT)));
    format!("http://{at}/mcp{}", path.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn http() -> Server {
        let way = Way::Http { url: url("127.0.0.1:4180", None), token: Some("s3cret".into()) };
        Server { name: name(None), about: about(None), way }
    }

    fn stdio() -> Server {
        let args = ["mcp", "--socket", "/run/my hall/guild-hall.sock"].map(Into::into).into();
        let way = Way::Stdio { command: "/opt/guild-hall".into(), args };
        Server { name: name(None), about: about(None), way }
    }

    fn parsed(app: App, server: &Server) -> Value {
        serde_json::from_str(&app.configuration(server).json().unwrap()).unwrap()
    }

    #[test]
    fn each_client_gets_a_url_and_a_header_in_its_own_words() {
        let (url, headers) = ("http://127.0.0.1:4180/mcp", json!({"Authorization": "Bearer s3cret"}));
        let entries = [
            (
                App::ClaudeCode,
                json!({"mcpServers": {"guild-hall": {"type": "http", "url": url, "headers": headers}}}),
            ),
            (App::Cursor, json!({"mcpServers": {"guild-hall": {"url": url, "headers": headers}}})),
            (
                App::VsCode,
                json!({"servers": {"guild-hall": {"type": "http", "url": url, "headers": headers}}}),
            ),
            (App::Codex, json!({"mcp_servers": {"guild-hall": {"url": url, "http_headers": headers}}})),
            (
                App::Goose,
                json!({"extensions": {"guild-hall": {
                    "type": "streamable_http", "name": "guild-hall", "description": "The tools of a Guild Hall",
                    "enabled": true, "uri": url, "headers": headers, "timeout": 300,
                }}}),
            ),
        ];
        for (app, wanted) in entries {
            assert_eq!(parsed(app, &http()), wanted, "{app:?}");
        }
    }

    #[test]
    fn each_client_gets_a_command_in_its_own_words() {
        let command = "/opt/guild-hall";
        let args = json!(["mcp", "--socket", "/run/my hall/guild-hall.sock"]);
        let typed = json!({"guild-hall": {"type": "stdio", "command": command, "args": args}});
        let plain = json!({"guild-hall": {"command": command, "args": args}});
        let entries = [
            (App::ClaudeCode, json!({"mcpServers": typed})),
            (App::ClaudeDesktop, json!({"mcpServers": plain})),
            (App::Cursor, json!({"mcpServers": typed})),
            (App::VsCode, json!({"servers": typed})),
            (App::Codex, json!({"mcp_servers": plain})),
            (
                App::Goose,
                json!({"extensions": {"guild-hall": {
                    "type": "stdio", "name": "guild-hall", "description": "The tools of a Guild Hall",
                    "enabled": true, "cmd": command, "args": args, "timeout": 300,
                }}}),
            ),
        ];
        for (app, wanted) in entries {
            assert_eq!(parsed(app, &stdio()), wanted, "{app:?}");
        }
    }

    #[test]
    fn a_client_that_reads_no_json_gets_what_it_reads() {
        assert_eq!(
            App::ClaudeCode.written(&http()).unwrap(),
            "claude mcp add --scope user --transport http guild-hall http://127.0.0.1:4180/mcp --header 'Authorization: Bearer s3cret'\n"
        );
        assert_eq!(
            App::ClaudeCode.written(&stdio()).unwrap(),
            "claude mcp add --scope user --transport stdio guild-hall -- /opt/guild-hall mcp --socket '/run/my hall/guild-hall.sock'\n"
        );
        assert_eq!(
            App::Codex.written(&http()).unwrap(),
            "[mcp_servers.guild-hall]\nurl = \"http://127.0.0.1:4180/mcp\"\nhttp_headers = { Authorization = \"Bearer s3cret\" }\n"
        );
        let goose: Value = serde_saphyr::from_str(&App::Goose.written(&http()).unwrap()).unwrap();
        assert_eq!(goose, parsed(App::Goose, &http()));
    }

    #[test]
    fn without_a_token_there_is_no_header() {
        let way = Way::Http { url: url("127.0.0.1:4180", None), token: None };
        let server = Server { way, ..http() };
        for app in App::value_variants().iter().filter(|app| app.can_http()) {
            assert!(!app.written(&server).unwrap().contains("Authorization"), "{app:?}");
        }
    }

    #[test]
    fn a_member_has_a_url_and_a_name_of_its_own() {
        let key = MemberKey::parse("home tools/my-weather").unwrap();
        assert_eq!(url("127.0.0.1:4180", Some(&key)), "http://127.0.0.1:4180/mcp/home%20tools%2Fmy-weather");
        assert_eq!(name(Some(&key)), "home-tools-my-weather");
        assert_eq!(name(Some(&MemberKey::parse("天気").unwrap())), "guild-hall");
    }

    #[test]
    fn a_gateway_on_every_address_is_reached_on_this_machine() {
        let urls = ["0.0.0.0:80", "[::]:4180", "192.0.2.7:1", "hall.example:2"].map(|at| url(at, None));
        assert_eq!(
            urls,
            [
                "http://127.0.0.1:80/mcp",
                "http://[::1]:4180/mcp",
                "http://192.0.2.7:1/mcp",
                "http://hall.example:2/mcp"
            ]
        );
    }

    #[test]
    fn a_token_is_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        assert_eq!(read_token(&file).unwrap(), None);
        fs::write(&file, "abc_123-x\n").unwrap();
        assert_eq!(read_token(&file).unwrap().as_deref(), Some("abc_123-x"));
        for bad in ["", "\n", "two words", "a\u{7}b"] {
            fs::write(&file, bad).unwrap();
            assert!(read_token(&file).unwrap_err().message.contains("holds no token"), "{bad:?}");
        }
    }
}
