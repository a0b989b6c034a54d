"""From a file to a plugin. Called by `worker` once, at the start."""

import importlib.util
import inspect
import os
import sys
import traceback
import types

from _guild_hall import homeclaw


class Refused(Exception):
    """The text is all that there is to say."""


def load(start):
    """The plugin, made and not yet initialised."""
    directory = start["dir"]
    file = os.path.join(directory, start["file"])
    if not os.path.isfile(file):
        raise Refused("there is no %s in %s" % (start["file"], directory))
    homeclaw.told.update({name: start[name] for name in ("dir", "config", "config_file", "plugin")})
    start["plugin"]["registration"] = _registration(start["plugin"])
    homeclaw.stand_in()
    _let_be_found(os.path.dirname(file), directory)
    module = _imported(file, directory)
    kind = _class_of(module, start["class"], start["file"])
    plugin = _made(kind)
    _furnish(plugin, start)
    return plugin


def cause(error, directory):
    """What went wrong, and where in the plugin."""
    if isinstance(error, Refused):
        return str(error)
    text = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()[-1]
    if isinstance(error, SystemExit):
        text = "it calls sys.exit(%r)" % (error.code,)
    place = None
    if isinstance(error, SyntaxError) and error.filename:
        place = (error.filename, error.lineno)
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if is_own(frame.filename, directory)]
        if own:
            place = (own[-1].filename, own[-1].lineno)
    if place is not None:
        text += " (%s:%s)" % (os.path.relpath(place[0], directory), place[1])
    if isinstance(error, ModuleNotFoundError):
        text += "; install it into an environment of the plugin's own: python3 -m venv .venv"
    return text


def is_own(file, directory):
    """Is it the plugin's own source? An environment inside its directory is not."""
    return file.startswith(directory + os.sep) and "site-packages" not in file


def _let_be_found(*places):
    """Behind the standard library, so that a file email.py is not taken for its `email`, and before
    what is installed."""
    at = len(sys.path)
    for number, place in enumerate(sys.path):
        if os.path.basename(place) in ("site-packages", "dist-packages"):
            at = number
            break
    sys.path[at:at] = list(dict.fromkeys(places))


def _imported(file, directory):
    """The module as HomeClaw names it, `plugins.<folder>.<file>`, so that relative imports work and
    those that begin with `plugins.`."""
    folder = os.path.basename(directory)
    plugins = types.ModuleType("plugins")
    plugins.__path__ = [os.path.dirname(directory), os.path.join(directory, "plugins")]
    sys.modules["plugins"] = plugins
    package = "plugins." + folder.replace(".", "_")
    init = os.path.join(directory, "__init__.py")
    if os.path.isfile(init):
        _execute(package, init, [directory])
    else:
        module = types.ModuleType(package)
        module.__path__ = [directory]
        sys.modules[package] = module
    setattr(plugins, folder.replace(".", "_"), sys.modules[package])
    inner = os.path.splitext(os.path.relpath(file, directory))[0].split(os.sep)
    return _execute(".".join([package] + [part.replace(".", "_") for part in inner]), file, None)


def _execute(name, file, inside):
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=inside)
    if spec is None:
        raise Refused("%s is no Python file" % os.path.basename(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _class_of(module, wanted, file):
    if wanted is not None:
        found = getattr(module, wanted, None)
        if not inspect.isclass(found):
            raise Refused("%s has no class %s" % (file, wanted))
        return found
    classes = [kind for kind in vars(module).values() if inspect.isclass(kind) and _is_plugin(kind)]
    classes = list(dict.fromkeys(classes))
    own = [kind for kind in classes if kind.__module__ == module.__name__]
    classes = own or classes
    # Not what others are derived from.
    leaves = [kind for kind in classes if not any(other is not kind and issubclass(other, kind) for other in classes)]
    if not leaves:
        raise Refused(
            "%s has no class that is derived from BasePlugin (from base.BasePlugin import BasePlugin)" % file
        )
    if len(leaves) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in leaves))
        raise Refused("%s has several plugin classes, and one is needed: %s" % (file, names))
    return leaves[0]


def _is_plugin(kind):
    # By its name, too: the plugin may bring a BasePlugin of its own.
    return any(base.__name__ == "BasePlugin" for base in kind.__mro__[1:]) and kind is not homeclaw.SchedulerPlugin


def _made(kind):
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return kind(homeclaw.core)
    named = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    if any(parameter.name == "coreInst" or parameter.kind is parameter.VAR_KEYWORD for parameter in named):
        return kind(coreInst=homeclaw.core)
    if any(parameter.default is parameter.empty for parameter in named):
        return kind(homeclaw.core)
    return kind()


def _furnish(plugin, start):
    """What a plugin may rely on that has not called BasePlugin's own __init__, or is not derived from ours."""
    about = start["plugin"]
    config = getattr(plugin, "config", None)
    if not isinstance(config, dict):
        config = {}
        _set(plugin, "config", config)
    if not config:
        config.update(start["config"])
    for name in ("id", "name", "description", "description_long"):
        if about[name] is not None:
            config.setdefault(name, about[name])
    for name, value in (
        ("coreInst", homeclaw.core),
        ("plugin_id", about["id"]),
        ("registration", about["registration"]),
        ("promptRequest", None),
        ("user_input", ""),
    ):
        if not getattr(plugin, name, None):
            _set(plugin, name, value)


def _set(plugin, name, value):
    try:
        setattr(plugin, name, value)
    except AttributeError:
        # The plugin has made it a property of its own.
        pass


def _registration(about):
    """The plugin's papers in HomeClaw's words."""

    def parameter(known):
        fields = {name: known[name] for name in ("name", "required", "default", "description")}
        return dict(known["rest"], type=known["kind"], **fields)

    def capability(known):
        fields = {name: value for name, value in known.items() if name not in ("rest", "parameters")}
        return dict(known["rest"], parameters=[parameter(each) for each in known["parameters"]], **fields)

    fields = {name: about[name] for name in ("id", "name", "description", "description_long", "version")}
    return dict(fields, type="inline", capabilities=[capability(each) for each in about["capabilities"]])
