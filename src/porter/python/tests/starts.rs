//! What can be loaded, and why something else cannot.

use super::*;

#[tokio::test]
async fn a_plugin_that_cannot_be_started_says_why_and_where() {
    let base = "from base.BasePlugin import BasePlugin\n";
    let with_base = |rest: &str| Folder::new(&format!("{base}{rest}"));
    assert_eq!(
        Folder::new("import no_such_module\n").refused().await,
        "ModuleNotFoundError: No module named 'no_such_module' (plugin.py:1); install it into an environment of the plugin's own: python3 -m venv .venv"
    );
    let syntax = with_base("class Weather(BasePlugin)\n    pass\n").refused().await;
    assert!(syntax.starts_with("SyntaxError: ") && syntax.contains("plugin.py:2"), "{syntax}");
    let made = with_base("class Weather(BasePlugin):\n    def __init__(self, coreInst):\n        1 / 0\n");
    assert_eq!(made.refused().await, "ZeroDivisionError: division by zero (plugin.py:4)");
    let begun = with_base(
        "class Weather(BasePlugin):\n    async def initialize(self):\n        raise ValueError('no key')\n",
    );
    assert_eq!(begun.refused().await, "ValueError: no key (plugin.py:4)");
    let exits = with_base("import sys\nsys.exit(7)\n");
    assert_eq!(exits.refused().await, "it calls sys.exit(7) (plugin.py:3)");
    let ends = with_base("import os\nos._exit(9)\n");
    assert_eq!(ends.refused().await, "Python exited with code 9 before the plugin was ready");
    let several = with_base("class A(BasePlugin): pass\nclass B(BasePlugin): pass\nclass C(A): pass\n");
    assert_eq!(several.refused().await, "plugin.py has several plugin classes, and one is needed: B, C");
    assert!(several.open(Some("A")).await.is_ok());
    assert_eq!(several.open(Some("D")).await.err().unwrap(), "plugin.py has no class D");
    assert!(
        Folder::new("class A: pass\n").refused().await.starts_with("plugin.py has no class that is derived")
    );
    let none = Folder::new("");
    fs::remove_file(none.path().join("plugin.py")).unwrap();
    assert!(none.refused().await.starts_with("there is no plugin.py in "));
    none.write(".venv/pyvenv.cfg", "");
    assert!(none.refused().await.contains("has no interpreter any more"));
}

#[tokio::test]
async fn a_plugin_finds_its_neighbours_and_its_own_environment() {
    let folder = Folder::new(
        r#"
import sys
from . import near
from .inner.deep import DEEP
import helper
from base.base import PluginResult
from base.util import Util
from base.workspace import get_workspace_dir
from base.SchedulerPlugin import SchedulerPlugin
from loguru import logger
import os, smtplib, email.message

class Base(SchedulerPlugin):
    pass

class Weather(Base):
    def __init__(self, coreInst):
        super().__init__(coreInst)
        logger.bind(a=1).debug("starts with {}", len(self.config))
        self.config = Util().load_yml_config(os.path.join(os.path.dirname(__file__), "config.yml"))

    def initialize(self):
        if self.initialized:
            return
        super().initialize()
        self.initialized = True

    def look(self):
        plugins = __name__.split(".")[0]
        return f"{near.NEAR} {DEEP} {helper.HELPER} {self.config} {self.initialized} {plugins} {sys.argv} {self.plugin_id} {self.registration['type']} {sys.prefix}"
"#,
    )
    .with("look", &[]);
    for (name, text) in [
        ("near.py", "NEAR = 1"),
        ("inner/deep.py", "DEEP = 2"),
        ("helper.py", "HELPER = 3"),
        // Not the standard library's.
        ("email.py", "raise ImportError('shadowed')"),
        ("json.py", "raise ImportError('shadowed')"),
        ("base.py", "raise ImportError('shadowed')"),
        ("config.yml", "city: Bern\ntasks: {look: {type: fixed}}\n"),
    ] {
        folder.write(name, text);
    }
    let made = std::process::Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(folder.path().join(".venv"))
        .status();
    assert!(made.unwrap().success());
    let python = folder.start().await;
    let seen = python.text("look", json!({})).await;
    let expected = format!(
        "1 2 3 {{'city': 'Bern', 'tasks': {{'look': {{'type': 'fixed'}}}}, 'id': 'weather', 'name': 'Weather', 'description': 'Tells the weather'}} True plugins ['plugin.py'] weather inline {}/.venv",
        folder.path().display()
    );
    assert_eq!(seen, expected);
}
