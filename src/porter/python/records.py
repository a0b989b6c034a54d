"""HomeClaw's records, with the fields that its documents name."""

import copy
import dataclasses
import enum
import json
import time
import typing


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
