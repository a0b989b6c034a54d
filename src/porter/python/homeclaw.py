"""What HomeClaw gives to its plugins, as far as a plugin can be run without it: the modules `base` and
`core`, and a `loguru` that writes to the log. Each stands in only where the plugin's own environment
has none. Called by `loading` before the plugin is imported."""

import collections.abc
import copy
import dataclasses
import datetime
import enum
import importlib.machinery
import json
import os
import pathlib
import sys
import time
import traceback
import types
import typing

NO_MODEL = (
    "Guild Hall has no language model for plugins to call: return the text, and let the capability's "
    "post_process have it processed"
)

# What `loading` was told of the plugin.
told: dict = {"dir": "", "config": {}, "config_file": None, "plugin": {}}


class ChannelType(enum.Enum):
    Email = "EMAIL"
    SMS = "SMS"
    Phone = "PHONE"
    IM = "IM"

    @classmethod
    def list(cls):
        return [member.value for member in cls]


class ContentType(enum.Enum):
    TEXT = "TEXT"
    TEXTWITHIMAGE = "TEXTWITHIMAGE"
    IMAGE = "IMAGE"
    AUDIO = "AUDIO"
    VIDEO = "VIDEO"
    HTML = "HTML"
    OTHER = "OTHER"

    @classmethod
    def list(cls):
        return [member.value for member in cls]


class Record:
    """What plugins know of HomeClaw's records: they are pydantic models there."""

    def model_dump(self, **_ignored):
        return {field.name: copy.deepcopy(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def dict(self, **_ignored):
        return self.model_dump()

    def model_dump_json(self, **_ignored):
        plain = lambda value: value.value if isinstance(value, enum.Enum) else str(value)
        return json.dumps(self.model_dump(), default=plain)

    def json(self, **_ignored):
        return self.model_dump_json()

    def model_copy(self, deep=False, **_ignored):
        return copy.deepcopy(self) if deep else copy.copy(self)

    def copy(self, deep=False, **_ignored):
        return self.model_copy(deep=deep)


@dataclasses.dataclass
class PromptRequest(Record):
    request_id: str = ""
    channel_name: str = ""
    request_metadata: dict = dataclasses.field(default_factory=dict)
    channelType: typing.Any = ChannelType.IM
    user_name: str = ""
    app_id: str = ""
    user_id: str = ""
    contentType: typing.Any = ContentType.TEXT
    system_user_id: typing.Optional[str] = None
    text: str = ""
    action: str = "respond"
    host: str = ""
    port: int = 0
    images: typing.List[str] = dataclasses.field(default_factory=list)
    videos: typing.List[str] = dataclasses.field(default_factory=list)
    audios: typing.List[str] = dataclasses.field(default_factory=list)
    files: typing.Optional[typing.List[str]] = None
    timestamp: float = 0.0
    chat_context: typing.Optional[str] = None


@dataclasses.dataclass
class PluginRequest(Record):
    request_id: str = ""
    plugin_id: str = ""
    user_input: str = ""
    user_id: str = ""
    user_name: str = ""
    channel_name: str = ""
    channel_type: str = ""
    app_id: str = ""
    chat_context: typing.Optional[str] = None
    metadata: dict = dataclasses.field(default_factory=dict)
    capability_id: typing.Optional[str] = None
    capability_parameters: typing.Optional[dict] = None


@dataclasses.dataclass
class PluginResult(Record):
    request_id: str = ""
    plugin_id: str = ""
    success: bool = True
    text: str = ""
    error: typing.Optional[str] = None
    metadata: dict = dataclasses.field(default_factory=dict)


def prompt_request(request):
    """A plugin request, as an inline plugin sees it."""
    channel_type = request.get("channel_type") or ChannelType.IM.value
    metadata = request.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    for name in ("capability_id", "capability_parameters"):
        if request.get(name) is not None:
            metadata[name] = request[name]
    return PromptRequest(
        request_id=request.get("request_id") or "",
        channel_name=request.get("channel_name") or "",
        request_metadata=metadata,
        channelType=ChannelType(channel_type) if channel_type in ChannelType.list() else channel_type,
        user_name=request.get("user_name") or "",
        app_id=request.get("app_id") or "",
        user_id=request.get("user_id") or "",
        text=request.get("user_input") or "",
        timestamp=time.time(),
        chat_context=request.get("chat_context"),
    )


class Done(collections.abc.Coroutine):
    """Has happened already. It may be awaited, and need not be."""

    def send(self, _value):
        raise StopIteration

    def throw(self, *error):
        raise error[0]

    def close(self):
        pass

    def __await__(self):
        return iter(())


class CoreInterface:
    """HomeClaw's core, as plugins see it. What is sent to a channel is what the call has said."""

    # Takes a text, the request that it answers, and paths of media; `calls` puts it here.
    hear = None

    def send_response_to_request_channel(self, response="", request=None, **media):
        return self._say(response, request, media)

    def send_response_for_plugin(self, response="", request=None, **media):
        return self._say(response, request, media)

    def send_response_to_latest_channel(self, response="", **media):
        return self._say(response, None, media)

    def send_response_to_channel_by_key(self, key="", response="", **media):
        return self._say(response, None, media)

    def deliver_to_user(self, user_id="", text="", **media):
        return self._say(text, None, media)

    def _say(self, text, request, media):
        media = {name: value for name, value in media.items() if name in MEDIA and value}
        if self.hear is None:
            sys.stderr.write("the plugin says, before it is called: %s\n" % (text,))
        else:
            self.hear("" if text is None else str(text), request, media)
        return Done()

    def check_permission(self, *_given, **_named):
        return True

    def get_latest_chat_info(self):
        return None, None, None

    def get_latest_chats(self, *_given, **_named):
        return []

    def get_latest_chats_by_role(self, *_given, **_named):
        return []

    def get_session_transcript(self, *_given, **_named):
        return []

    def add_chat_history(self, *_given, **_named):
        return None

    def add_chat_history_by_role(self, *_given, **_named):
        return None

    def add_user_input_to_memory(self, *_given, **_named):
        return Done()

    def get_session_id(self, *_given, **_named):
        return ""

    def get_run_id(self, *_given, **_named):
        return ""

    async def openai_chat_completion(self, *_given, **_named):
        raise RuntimeError(NO_MODEL)


MEDIA = ("image_path", "video_path", "audio_path", "images", "videos", "audios")
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
        "ChannelType": ChannelType,
        "ContentType": ContentType,
        "PromptRequest": PromptRequest,
        "PluginRequest": PluginRequest,
        "PluginResult": PluginResult,
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
