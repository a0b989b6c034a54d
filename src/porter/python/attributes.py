"""Attributes of the one plugin that are another thing to each call."""

import contextvars
import inspect

# No value; None may be one.
NONE = object()
# The call that the code runs in.
current = contextvars.ContextVar("guild_hall_call", default=None)


class PerCall:
    """An attribute of the plugin of which a call that runs beside others has its own value. Threads that
    the plugin has made itself see the plugin's."""

    def __init__(self, desk, name, default):
        self.desk = desk
        self.name = name
        self.default = default

    @classmethod
    def put(cls, desk, name):
        kind = type(desk.plugin)
        default = inspect.getattr_static(kind, name, None)
        # What the plugin has thought of itself is left as it is.
        if hasattr(default, "__get__") or not hasattr(desk.plugin, "__dict__"):
            return
        setattr(kind, name, cls(desk, name, default))

    def __get__(self, plugin, _kind=None):
        if plugin is None:
            return self.default
        call = current.get()
        if call is not None:
            if self.name in call.own:
                return call.own[self.name]
            if self.is_beside(call):
                return self.desk.config
        return plugin.__dict__.get(self.name, self.default)

    def __set__(self, plugin, value):
        call = current.get()
        if call is not None and self.name in call.own:
            call.own[self.name] = value
        elif call is not None and self.is_beside(call):
            self.desk.config = value
        else:
            plugin.__dict__[self.name] = value

    def is_beside(self, call):
        """Is it the configuration that another call sees with its own parameters in it?"""
        return self.name == "config" and self.desk.config is not NONE and call is not self.desk.turn
