//! `new`: a member that runs as it is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::Failed;
use super::print::{self, DIM, GREEN, styled};
use super::shell::quoted;
use super::table::{Table, cell, plain};
use crate::discovery::read_member;
use crate::model::MemberKey;
use crate::process::find_command;

const MEMBERS: &str = "guild-members";

/// Write a member that runs as it is, to begin with
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  guild-hall new weather --lang python\n  guild-hall new toolbox/clock --lang rust --members ~/plugins\n\nPython and TypeScript (for Node, its types in comments) need nothing installed; Rust builds itself at its first start."
)]
pub(super) struct New {
    /// Its directory below the members directory: `name` or `collection/name`
    #[arg(value_parser = key)]
    name: MemberKey,
    /// What it is written in
    #[arg(long, value_enum)]
    lang: Lang,
    /// Where the members are
    #[arg(long, value_name = "DIR", default_value = MEMBERS, env = "GUILD_HALL_MEMBERS")]
    members: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lang {
    #[value(alias = "py")]
    Python,
    #[value(aliases = ["ts", "javascript", "js", "node"])]
    Typescript,
    #[value(alias = "rs")]
    Rust,
}

/// A file of a scaffold.
struct File {
    path: &'static str,
    /// With `<<blanks>>` that are filled in.
    text: &'static str,
    about: &'static str,
}

const MANIFEST: &str = "guild-member.json";
const ABOUT_MANIFEST: &str = "what it is, and how it is started";
const ABOUT_SERVER: &str = "the server; its tools stand at the top";
const ABOUT_README: &str = "how to go on";

const PYTHON: [File; 3] = [
    File { path: MANIFEST, text: include_str!("new/python/guild-member.json"), about: ABOUT_MANIFEST },
    File { path: "server.py", text: include_str!("new/python/server.py"), about: ABOUT_SERVER },
    File { path: "README.md", text: include_str!("new/python/README.md"), about: ABOUT_README },
];

const TYPESCRIPT: [File; 3] = [
    File { path: MANIFEST, text: include_str!("new/typescript/guild-member.json"), about: ABOUT_MANIFEST },
    File { path: "server.mjs", text: include_str!("new/typescript/server.mjs"), about: ABOUT_SERVER },
    File { path: "README.md", text: include_str!("new/typescript/README.md"), about: ABOUT_README },
];

// Two have other names here: a Cargo.toml would cut its directory out of this package, and a .gitignore
// would be obeyed.
const RUST: [File; 5] = [
    File { path: MANIFEST, text: include_str!("new/rust/guild-member.json"), about: ABOUT_MANIFEST },
    File { path: "Cargo.toml", text: include_str!("new/rust/Cargo.toml.in"), about: "what it depends on" },
    File { path: "src/main.rs", text: include_str!("new/rust/main.rs"), about: ABOUT_SERVER },
    File { path: "README.md", text: include_str!("new/rust/README.md"), about: ABOUT_README },
    File { path: ".gitignore", text: include_str!("new/rust/gitignore"), about: "what is built" },
];

impl Lang {
    fn files(self) -> &'static [File] {
        match self {
            Self::Python => &PYTHON,
            Self::Typescript => &TYPESCRIPT,
            Self::Rust => &RUST,
        }
    }
}

/// A key under which a hall would find the member.
fn key(text: &str) -> Result<MemberKey, String> {
    let key = MemberKey::parse(text).map_err(|error| error.to_string())?;
    if let Some(part) = text.split('/').find(|part| part.starts_with('.') || *part == "node_modules") {
        return Err(format!("no hall looks for members in a directory called {part:?}"));
    }
    Ok(key)
}

impl New {
    pub(super) fn execute(self) -> Result<(), Failed> {
        let dir = self.members.join(self.name.as_str());
        self.refuse_a_taken_place(&dir)?;
        let blanks = Blanks::of(&self.name);
        let mut draft = Draft::beside(&dir).map_err(|error| cannot("make", &dir, &error))?;
        for file in self.lang.files() {
            draft.write(file.path, &blanks.fill(file.text))?;
        }
        draft.publish(&dir).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty => taken(&dir),
            _ => cannot("make", &dir, &error),
        })?;
        print::out(&self.told(&dir))?;
        if let Some(Ok(manifest)) = read_member(&dir)
            && let Err(error) = find_command(&manifest)
        {
            print::note(&format!("it will not start yet: {error}"));
        }
        Ok(())
    }

    fn refuse_a_taken_place(&self, dir: &Path) -> Result<(), Failed> {
        if let Some((collection, _)) = self.name.as_str().split_once('/')
            && read_member(&self.members.join(collection)).is_some()
        {
            return Err(Failed::new(format!(
                "{} is a member itself: no hall looks for members inside of it. Choose another collection",
                self.members.join(collection).display()
            )));
        }
        let is_empty = || fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
        match fs::symlink_metadata(dir) {
            Ok(there) if there.is_dir() && is_empty() => Ok(()),
            Ok(_) => Err(taken(dir)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(cannot("make", dir, &error)),
        }
    }

    /// What was written, and what comes next.
    fn told(&self, dir: &Path) -> String {
        let mut table = Table::default();
        for file in self.lang.files() {
            table.row(vec![plain(format!("  {}", file.path)), cell(file.about, DIM)]);
        }
        let members = match self.members.to_str() {
            Some(MEMBERS) => String::new(),
            _ => format!(" --members {}", quoted(&self.members.display().to_string())),
        };
        let key = quoted(self.name.as_str());
        let mut next = Table::default();
        let starts = match self.lang {
            Lang::Rust => {
                "or `guild-hall reload` if it runs; the first start builds it, which can take minutes"
            }
            Lang::Python | Lang::Typescript => "or `guild-hall reload` if it runs",
        };
        next.row(vec![plain(format!("  guild-hall run{members}")), cell(starts, DIM)]);
        next.row(vec![plain(format!("  guild-hall call {key} greet '{{\"name\":\"Ada\"}}'"))]);
        format!(
            "{} {}\n{}\nNext:\n{}",
            styled(GREEN, "wrote"),
            print::safe(&dir.display().to_string()),
            table.render(),
            next.render()
        )
    }
}

fn taken(dir: &Path) -> Failed {
    let message = "is there already, and is no empty directory: choose another name, or remove it first";
    Failed::new(format!("{} {message}", dir.display()))
}

fn cannot(act: &str, path: &Path, error: &io::Error) -> Failed {
    Failed::new(format!(
        "cannot {act} {}: {error}. Choose another name, or another members directory with --members",
        path.display()
    ))
}

/// What is filled into the files.
struct Blanks([(&'static str, String); 5]);

impl Blanks {
    fn of(key: &MemberKey) -> Self {
        let name = key.as_str().rsplit('/').next().unwrap_or_default();
        let heading = title(name);
        // Without control characters, which no key has, a text of JSON is one of Rust too.
        let literal = |text: &str| serde_json::Value::from(text).to_string();
        Self([
            ("name", literal(name)),
            ("title", literal(&heading)),
            ("heading", heading),
            ("key", quoted(key.as_str())),
            ("package", package(key)),
        ])
    }

    /// In one go, so that nothing that was filled in is taken for a blank.
    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, blank, after)) = self.next(rest) {
            filled.push_str(before);
            filled.push_str(blank);
            rest = after;
        }
        filled + rest
    }

    fn next<'a>(&'a self, text: &'a str) -> Option<(&'a str, &'a str, &'a str)> {
        let (before, rest) = text.split_once("<<")?;
        let (name, after) = rest.split_once(">>")?;
        let (_, value) = self.0.iter().find(|(known, _)| *known == name)?;
        Some((before, value, after))
    }
}

/// `my-weather` as `My Weather`.
fn title(name: &str) -> String {
    let words = name.split(['-', '_', ' ']).filter(|word| !word.is_empty()).map(|word| {
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
    });
    let title = words.collect::<Vec<_>>().join(" ");
    if title.is_empty() { name.into() } else { title }
}

/// A name that cargo takes, whatever the member's is, and of the whole key: two members may be built in one
/// target directory.
fn package(key: &MemberKey) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    format!("member-{}", key.file_stem().chars().map(letter).collect::<String>())
}

/// A directory that is not there yet: no hall looks into one whose name begins with a dot. Removed, unless it
/// is published, with all that had to be made for it.
struct Draft {
    dir: PathBuf,
    /// Directories above that were not there, the innermost first.
    made: Vec<PathBuf>,
}

impl Draft {
    fn beside(place: &Path) -> io::Result<Self> {
        let parent = place.parent().unwrap_or(Path::new(""));
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let made = parent.ancestors().take_while(is_missing).map(Path::to_path_buf).collect();
        let draft = Self { dir: parent.join(format!(".{name}.new-{}", std::process::id())), made };
        fs::create_dir_all(parent)?;
        fs::create_dir(&draft.dir)?;
        Ok(draft)
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Failed> {
        let path = self.dir.join(path);
        let parent = path.parent().unwrap_or(&self.dir);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
        written.map_err(|error| cannot("write", &path, &error))
    }

    fn publish(mut self, place: &Path) -> io::Result<()> {
        fs::rename(&self.dir, place)?;
        self.made.clear();
        self.dir = PathBuf::new();
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.dir.as_os_str().is_empty() {
            return;
        }
        let _ = fs::remove_dir_all(&self.dir);
        for dir in &self.made {
            // Fails where somebody has put something into it meanwhile, as it should.
            let _ = fs::remove_dir(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_blank_is_left_in_any_file() {
        let blanks = Blanks::of(&MemberKey::parse("box/my-<<key>>_\"weather\"").unwrap());
        for lang in [Lang::Python, Lang::Typescript, Lang::Rust] {
            for File { path, text, .. } in lang.files() {
                let filled = blanks.fill(text).replace("<<key>>", "");
                assert!(!filled.contains("<<") && !filled.contains(">>"), "{path}: {filled}");
            }
        }
    }

    #[test]
    fn a_name_becomes_a_title_and_a_package() {
        assert_eq!(["my-weather", "sql_2", "-", "天気"].map(title), ["My Weather", "Sql 2", "-", "天気"]);
        let package = |text| package(&MemberKey::parse(text).unwrap());
        assert_eq!(
            ["test", "box/3d", "a b.c", "天気"].map(package),
            ["member-test", "member-box--3d", "member-a-b-c", "member---"]
        );
    }

    #[test]
    fn only_a_name_that_a_hall_would_find_is_taken() {
        assert!(key("weather").is_ok() && key("box/weather").is_ok());
        for bad in ["", "..", "a/b/c", "a/", ".hidden", "box/.hidden", "node_modules/x", "a\nb"] {
            assert!(key(bad).is_err(), "{bad:?}");
        }
    }
}
