"""What HomeClaw gives to its plugins, as far as a plugin can be run without it: the modules `base` and
`core`, and a `loguru` that writes to the log. Each stands in only where the plugin's own environment
has none. Called by `loading` before the plugin is imported."""

import copy
import datetime
import importlib.machinery
import json
import os
import pathlib
import sys
import traceback
import types

from _guild_hall import records
from _guild_hall.core import NO_MODEL, CoreInterface

# What `loading` was told of the plugin.
told = {"dir": "", "config": {}, "config_file": None, "plugin": {}}
core = CoreInterface()


class BasePlugin:
    """What an inline plugin is derived from."""

    def __init__(self, coreInst=None, *_given, **_named):
        plugin = told["plugin"]
        self.config = copy.deepcopy(told["config"])
        self.initialized = False
        self.coreInst = core if coreInst is None else coreInst
        self.user_input = ""
        self.promptRequest = None
        self.plugin_id = plugin.get("id", "")
        self.description = plugin.get("description", "")
        self.keywords = list(plugin.get("keywords") or [])
        self.parameters = {}
        self.registration = plugin.get("registration")

    def initialize(self):
        pass

    async def run(self):
        pass

    def cleanup(self):
        pass

    async def check_best_plugin(self, text):
        return False, ""

    def get_config(self, key=None, default=None):
        return self.config if key is None else (self.config or {}).get(key, default)

    def set_config(self, config, *value):
        if value:
            self.config = dict(self.config or {}, **{config: value[0]})
        else:
            self.config = config

    def get_description(self):
        return self.description

    def set_description(self, description):
        self.description = description

    def get_keywords(self):
        return self.keywords

    def set_keywords(self, keywords):
        self.keywords = keywords

    def add_keyword(self, keyword):
        self.keywords.append(keyword)

    def remove_keyword(self, keyword):
        self.keywords.remove(keyword)

    def get_parameters(self):
        return self.parameters

    def set_parameters(self, parameters):
        self.parameters = parameters


class SchedulerPlugin(BasePlugin):
    """Of HomeClaw: calls its own methods at the times that its configuration names. Nothing is
    scheduled here: the answer of such a call would have nobody to go to."""

    def initialize(self):
        super().initialize()
        if (self.config or {}).get("tasks"):
            sys.stderr.write("the plugin's tasks are not scheduled: Guild Hall calls it when it is asked to\n")

    def schedule_tasks_from_config(self):
        pass

    def schedule_repeated_task(self, *_given, **_named):
        pass

    def schedule_fixed_task(self, *_given, **_named):
        pass

    def schedule_random_task(self, *_given, **_named):
        pass


class Util:
    """Of HomeClaw's helpers, those that need nothing else of it."""

    def load_yml_config(self, config_path):
        path = os.path.realpath(str(config_path))
        known = told["config_file"]
        if known is not None and path == os.path.realpath(known):
            return copy.deepcopy(told["config"])
        with open(path, encoding="utf-8") as file:
            if path.endswith(".json"):
                return json.load(file)
            try:
                import yaml
            except ImportError:
                raise RuntimeError(
                    "cannot read %s: Guild Hall reads the plugin's config_file; for other YAML "
                    "install PyYAML into the plugin's .venv" % config_path
                ) from None
            return yaml.safe_load(file)

    def get_core_metadata(self):
        return types.SimpleNamespace(workspace_dir=None)

    def main_llm_language(self):
        return "en"

    def convert_chats_to_text(self, chats=None):
        return "\n".join(str(chat) for chat in chats or [])

    async def openai_chat_completion(self, *_given, **_named):
        raise RuntimeError(NO_MODEL)

    async def plugin_llm_generate(self, *_given, **_named):
        raise RuntimeError(NO_MODEL)

    async def llm_summarize(self, *_given, **_named):
        raise RuntimeError(NO_MODEL)


def get_workspace_dir(config_dir=None):
    return pathlib.Path(config_dir or "workspace").absolute()


class Logger:
    """As much of loguru as plugins use; to stderr, which is the member's log."""

    def _log(self, level, message, given, named, trace=False):
        text = str(message)
        if given or named:
            try:
                text = text.format(*given, **named)
            except Exception:
                text = "%s %s" % (text, " ".join(map(str, given)))
        now = datetime.datetime.now().strftime("%H:%M:%S.%f")[:-3]
        lines = "%s %s %s\n" % (now, level, text)
        if trace and sys.exc_info()[0] is not None:
            lines += traceback.format_exc()
        sys.stderr.write(lines)

    def trace(self, message, *given, **named):
        self._log("TRACE", message, given, named)

    def debug(self, message, *given, **named):
        self._log("DEBUG", message, given, named)

    def info(self, message, *given, **named):
        self._log("INFO", message, given, named)

    def success(self, message, *given, **named):
        self._log("SUCCESS", message, given, named)

    def warning(self, message, *given, **named):
        self._log("WARNING", message, given, named)

    def error(self, message, *given, **named):
        self._log("ERROR", message, given, named)

    def critical(self, message, *given, **named):
        self._log("CRITICAL", message, given, named)

    def exception(self, message, *given, **named):
        self._log("ERROR", message, given, named, trace=True)

    def log(self, level, message, *given, **named):
        self._log(str(level), message, given, named)

    def add(self, *_given, **_named):
        return 0

    def remove(self, *_given, **_named):
        return None

    def _itself(self, *_given, **_named):
        return self

    opt = bind = patch = _itself


STAND_INS = {
    "base": {},
    "base.base": {
        kind.__name__: kind
        for kind in (
            records.ChannelType,
            records.ContentType,
            records.PromptRequest,
            records.PluginRequest,
            records.PluginResult,
        )
    },
    "base.BasePlugin": {"BasePlugin": BasePlugin},
    "base.SchedulerPlugin": {"SchedulerPlugin": SchedulerPlugin},
    "base.util": {"Util": Util},
    "base.workspace": {"get_workspace_dir": get_workspace_dir},
    "core": {},
    "core.coreInterface": {"CoreInterface": CoreInterface},
    "loguru": {"logger": Logger()},
}
PACKAGES = ("base", "core")


class Finder:
    """Finds the stand-ins, where nobody else finds the module."""

    def find_spec(self, name, path=None, target=None):
        if name not in STAND_INS:
            return None
        for other in sys.meta_path:
            theirs = None if other is self else other.find_spec(name, path, target)
            # A file base.py of the plugin's cannot hold base.BasePlugin: it is not what is meant.
            if theirs is not None and (name not in PACKAGES or theirs.submodule_search_locations is not None):
                return theirs
        return importlib.machinery.ModuleSpec(name, self, is_package=name in PACKAGES)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__dict__.update(STAND_INS[module.__name__])


def stand_in():
    sys.meta_path.insert(0, Finder())
